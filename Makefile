# On a fresh machine start with `make demo` or `make test`; both install what they need. `make help` lists all commands.
.DEFAULT_GOAL := help
SHELL := /bin/bash
PYTHON ?= python3
VENV ?= .venv
FAKE_CUDA ?= .venv-cuda
ifneq ($(words $(VENV)),1)
$(error VENV=$(VENV): make cannot handle file names with spaces; choose another folder)
endif
ifneq ($(words $(FAKE_CUDA)),1)
$(error FAKE_CUDA=$(FAKE_CUDA): make cannot handle file names with spaces; choose another folder)
endif
BIN := $(VENV)/bin
PY := $(BIN)/python
STAMP := $(VENV)/.installed
MODEL ?= variational_untied
SEED ?= 1
RUNS ?= runs
IN_RUNS = runs_root='$(patsubst ~/%,$(HOME)/%,$(RUNS))'
ARGS ?=
LAUNCHER ?= local
FIGURES := $(foreach n,1 2 3 4 5 6 7 8 9 10 11 12 13 14 15,figure$(n))

.PHONY: help setup own-venv demo test pytest test-fast lint types data data-ptb data-cornell ptb-small ptb-medium ptb-large sentiment table1-runs \
        paper report table1 ensemble claims bench gpu-check test-fake-cuda notebooks test-slurm clean $(FIGURES)

help: ## this list
	@grep -hE '^[a-zA-Z0-9_.-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  %-14s %s\n", $$1, $$2}'
	@echo "  Variables: MODEL, SEED, RUNS (folder of the runs), ARGS (passed to the script): make ptb-medium MODEL=naive SEED=2 ARGS='mc.samples=0'"

setup: own-venv $(STAMP) ## create the virtual environment .venv with pinned dependencies

# an environment in which another checkout is installed would run the code of that checkout
own-venv:
	@found=$$(sed -n 's|.*"url": *"file://\([^"]*\)".*|\1|p' $(VENV)/lib/python*/site-packages/varrnn-*.dist-info/direct_url.json \
	    2>/dev/null | head -n 1); found=$$(printf '%b' "$${found//%/\\x}"); \
	if [ -d "$$found" ] && [ "$$(realpath "$$found")" != "$$(realpath .)" ]; then \
	    echo "error: VENV=$(VENV): the environment of another checkout, $$found; choose another folder, or leave VENV= out" >&2; \
	    exit 1; fi

$(STAMP): pyproject.toml constraints.txt | own-venv
	@test -x $(PY) || echo "creating the virtual environment $(VENV) with $(PYTHON)"
	@test -x $(PY) || $(PYTHON) -m venv $(VENV)
	@echo "installing torch 2.13.0 into $(VENV): a download of 200 MB or more, which takes minutes the first time"
	$(PY) -m pip install --quiet --disable-pip-version-check --constraint constraints.txt torch==2.13.0
	@echo "installing varrnn, and the packages that training and tests need (pyproject.toml, constraints.txt)"
	$(PY) -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	@touch $(STAMP)

demo: setup ## train three small models on the built-in corpus; show a table, a figure and generated sentences (6 minutes)
	$(PY) scripts/demo.py $(ARGS)

test: setup lint ## lint, types, and every test and notebook that can run on this machine
	@$(MAKE) --no-print-directory --jobs=2 types pytest

# notebooks first: each is one long test and should not start last
pytest: setup
	OMP_NUM_THREADS=1 $(PY) -m pytest -n auto --dist worksteal --nbmake notebooks tests $(ARGS)

test-fast: setup ## the tests without subprocesses, long trainings, real corpora and most cases of large grids (a minute on two cores)
	OMP_NUM_THREADS=1 $(PY) -m pytest -n auto --dist worksteal -m 'not slow and not data' tests $(ARGS)

lint: setup ## ruff: lint, and check of the formatting
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: setup ## mypy: type check of varrnn/
	$(BIN)/mypy

data: setup ## download and verify the Penn Treebank and the Cornell film reviews
	$(PY) scripts/download_data.py all

data-ptb: setup
	$(PY) scripts/download_data.py ptb --if-missing

data-cornell: setup
	$(PY) scripts/download_data.py cornell --if-missing

ptb-small: data-ptb ## train a model of 200 units on the Penn Treebank (80 to 100 minutes of a CPU core; MC dropout as much again or more)
	$(PY) run.py experiment=ptb_small model=$(MODEL) seed=$(SEED) "$(IN_RUNS)" $(ARGS)

ptb-medium: data-ptb ## train a row of Table 1, medium (650 units): MODEL=none|naive|moon|moon_emb|variational_tied|variational_untied
	$(PY) run.py experiment=ptb_medium model=$(MODEL) seed=$(SEED) "$(IN_RUNS)" $(ARGS)

ptb-large: data-ptb ## train a row of Table 1, large (1500 units)
	$(PY) run.py experiment=ptb_large model=$(MODEL) seed=$(SEED) "$(IN_RUNS)" $(ARGS)

sentiment: data-cornell ## train the missing runs of figure 3 (variational, naive, none; LSTM and GRU) in parallel, for one SEED
	$(PY) scripts/run_missing.py figure3 --seeds $(SEED) launcher=joblib "$(IN_RUNS)" $(ARGS)

table1-runs: data-ptb ## train every row of Table 1 with 3 seeds that has no record yet; LAUNCHER=local|joblib|slurm
	$(PY) scripts/run_missing.py table1 launcher=$(LAUNCHER) "$(IN_RUNS)" $(ARGS)

paper: setup ## make every table, figure and claim from results/records (no training)
	$(PY) scripts/make_results.py $(ARGS)

table1: setup ## make Table 1, ours and the paper's, from records (also: make figure1 ... figure15, make ensemble)
	$(PY) experiments/$@.py $(ARGS)

ensemble $(FIGURES): setup
	$(PY) experiments/$@.py $(ARGS)

report: setup ## write results/report.html: all results on one page that works offline; ARGS='--run RUN_DIR': words shaded by that model
	$(PY) scripts/report.py $(ARGS)

claims: setup ## print a verdict on every claim of the paper, from records
	$(PY) scripts/claims.py $(ARGS)

bench: setup ## measure words per second of every variant and of nn.LSTM, write a record (8 minutes); ARGS='--size library': the layers alone
	$(PY) scripts/benchmark.py $(if $(findstring --size,$(ARGS)),,--size all --record) $(ARGS)

gpu-check: setup ## on a CUDA GPU: run its tests, the benchmark and training with a CUDA graph, write a record (10 minutes)
	$(PY) scripts/gpu_check.py $(ARGS)

test-fake-cuda: $(FAKE_CUDA)/.installed ## test the GPU code on fake CUDA tensors, without a GPU (installs torch's CUDA build: 5 GB)
	OMP_NUM_THREADS=1 $(FAKE_CUDA)/bin/python -m pytest tests/kernels/test_fake_cuda.py $(ARGS)

$(FAKE_CUDA)/.installed: pyproject.toml constraints.txt
	@test -x $(FAKE_CUDA)/bin/python || $(PYTHON) -m venv $(FAKE_CUDA)
	@echo "installing the CUDA build of torch 2.13.0 into $(FAKE_CUDA): a download of several GB"
	$(FAKE_CUDA)/bin/python -m pip install --quiet --disable-pip-version-check 'torch===2.13.0'
	$(FAKE_CUDA)/bin/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[train]' \
	    pytest pytest-timeout
	@touch $@

notebooks: setup ## execute the notebooks and save their outputs (make test only executes them)
	$(PY) scripts/notebooks.py $(ARGS)

test-slurm: setup ## test a sweep on a real single-node Slurm (needs root and Debian packages)
	bash tests/slurm/test_slurm.sh

clean: ## remove the virtual environments and caches; runs and data stay
	rm -rf '$(VENV)' '$(FAKE_CUDA)' .pytest_cache .ruff_cache .mypy_cache build dist *.egg-info
