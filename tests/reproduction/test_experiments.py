"""experiments/: every artefact of the paper has a file, lists its runs, and draws with and without records."""

import os
import re
import subprocess
import sys
from dataclasses import replace
from types import SimpleNamespace

import pytest
from helpers import ROOT
from helpers import records as synthetic

from varrnn.benchmark import launches
from varrnn.config.identity import identity_of
from varrnn.records.store import Records, load
from varrnn.reporting import style
from varrnn.reproduction.artefact import experiment, main, names, unique
from varrnn.reproduction.claims import CLAIMS

FOLDER = ROOT / "experiments"
NAMES = names()
DRAWN_IN_FULL = (
    "table1",
    "sentiment",
    "speed",
    "figure2",
    "figure3",
    "figure4",
    "figure12",
    "figure13",
    "learning_curves",
)


@pytest.fixture(scope="module")
def full(tmp_path_factory) -> Records:
    contents = synthetic.table1_records("medium") + synthetic.table1_records("medium", at="small")
    contents += [*synthetic.sentiment_records(), synthetic.benchmark()]
    contents += [synthetic.language_run(run, 1, 90.0, 88.0) for run in experiment("figure2").RUNS.values()]
    return load(synthetic.save(contents, tmp_path_factory.mktemp("full")))


@pytest.fixture(autouse=True)
def _small_drawings(monkeypatch) -> None:
    """Few pixels; launches are counted in windows of a few steps (tests/kernels counts those of the paper)."""
    monkeypatch.setitem(style.RC, "savefig.dpi", 50)
    for name, shape in launches.WINDOWS.items():
        monkeypatch.setitem(launches.WINDOWS, name, replace(shape, steps=4))


def test_every_artefact_of_the_paper_has_a_file() -> None:
    assert {"table1", "ensemble", *(f"figure{number}" for number in range(1, 16))} <= set(NAMES)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.slow
def test_artefact(name: str, tmp_path) -> None:
    """It has the name of its file, its claims exist, its runs compose, and it renders without records."""
    artefact = experiment(name).ARTEFACT
    assert artefact.name == name and artefact.title
    assert set(artefact.claims) <= {claim.id for claim in CLAIMS}
    assert artefact.runs or artefact.more or name == "figure1"
    assert all(identity_of(run).choices["task"] in ("ptb", "cornell") for run in artefact.runs)
    written = artefact.render(Records(), tmp_path)
    assert written and all(path.stat().st_size > 0 for path in written)


@pytest.mark.parametrize("name", DRAWN_IN_FULL)
@pytest.mark.slow
def test_drawing_with_records(name: str, full: Records, tmp_path) -> None:
    written = experiment(name).ARTEFACT.render(full, tmp_path)
    assert written and all(path.stat().st_size > 0 for path in written)


def test_every_claim_belongs_to_an_artefact() -> None:
    named = {name for stem in NAMES for name in experiment(stem).ARTEFACT.claims}
    assert {claim.id for claim in CLAIMS} - named == {"C45"}  # a property of the code, shown nowhere


@pytest.mark.slow
def test_every_claim_with_runs_belongs_to_an_artefact_that_lists_them() -> None:
    artefacts = [experiment(name).ARTEFACT for name in NAMES]
    listed = {repr(identity_of(run)) for artefact in artefacts for run in artefact.runs}
    ablations = {"C21", "C50"}  # protocol=authors_code, naive_recurrent: in no table or figure of the paper
    for claim in CLAIMS:
        if claim.id not in ablations:
            assert {repr(identity_of(run)) for run in claim.runs.values()} <= listed, claim.id


READ_RECORDS = """
import importlib, pkgutil, runpy, sys
import varrnn
for name in ("cli", "config", "data", "records", "reporting", "reproduction"):
    package = importlib.import_module(f"varrnn.{name}")
    for module in pkgutil.walk_packages(package.__path__, f"varrnn.{name}."):
        importlib.import_module(module.name)
        assert "torch" not in sys.modules, module.name
for script in sys.argv[1:]:
    runpy.run_path(script, run_name="imported")
    assert "torch" not in sys.modules, script
"""


@pytest.mark.slow
def test_what_reads_configs_and_records_never_imports_torch() -> None:
    """No model is needed either; only figure 1 samples masks."""
    scripts = [path for path in FOLDER.glob("*.py") if path.stem != "figure1"]
    scripts += [ROOT / "run.py", *(ROOT / "scripts" / f"{name}.py" for name in ("claims", "make_results", "publish"))]
    words = [sys.executable, "-c", READ_RECORDS, *map(str, scripts)]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


COMMAND = """
import runpy, sys
sys.argv = sys.argv[1:]
try:
    runpy.run_path(sys.argv[0], run_name="__main__")
finally:
    assert "torch" not in sys.modules
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        ("run.py --help", 0, "usage: python run.py"),
        ("run.py optim.lrr=3", 1, "did you mean optim.lr"),
        ("run.py -m optim.lrr=1,2", 1, "optim.lrr"),
        ("run.py task=nothing", 1, "task=nothing: allowed are"),
        ("experiments/table1.py --runs", 0, "python run.py experiment=ptb_medium"),
    ],
)
def test_commands_that_need_no_torch_do_not_import_it(words: str, status: int, said: str) -> None:
    command = [sys.executable, "-c", COMMAND, *words.split()]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": str(ROOT)}
    )
    assert done.returncode == status and said in done.stdout + done.stderr and "AssertionError" not in done.stderr


def test_runs_and_missing(capsys, tmp_path) -> None:
    artefact = experiment("figure3").ARTEFACT
    main(artefact, ["--runs"])
    commands = capsys.readouterr().out.splitlines()
    assert len(commands) == 18 and commands[0].startswith("python run.py experiment=cornell model=variational_untied")
    synthetic.save([synthetic.sentiment_run(artefact.runs[0], 2)], tmp_path)
    main(artefact, ["--missing", "--records", str(tmp_path)])
    missing = capsys.readouterr().out.splitlines()
    assert set(commands) - set(missing) == {command for command in commands[:3] if command.endswith("seed=2")}


def test_equal_runs_are_listed_once() -> None:
    commands = experiment("figure4").ARTEFACT.commands()
    assert len(commands) == len(set(commands)) == 3 * 12  # 4a's four are ends of the sweeps 4b and 4c
    same = ("experiment=cornell", "model=none"), ("experiment=cornell", "model=none", "task.steps=200")
    assert unique(same) == [same[0]]


def test_drawing_prints_what_it_wrote(capsys, tmp_path) -> None:
    main(experiment("ensemble").ARTEFACT, ["--records", str(tmp_path), "--out", str(tmp_path)])
    said = capsys.readouterr().out
    assert "| 68.7 |" in said and "C20   not run" in said
    assert said.count("wrote ") == 3 and (tmp_path / "tables" / "ensemble.md").is_file()


def test_a_folder_that_cannot_be_written_is_one_line(tmp_path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(SystemExit, match=r"error: .*file: cannot be written \(.*file is a file, not a folder\)"):
        main(experiment("ensemble").ARTEFACT, ["--records", str(tmp_path), "--out", str(tmp_path / "file")])


def test_a_broken_record_is_one_line(tmp_path) -> None:
    (tmp_path / "x.json").write_text("{")
    with pytest.raises(SystemExit, match="not valid JSON"):
        main(experiment("ensemble").ARTEFACT, ["--records", str(tmp_path)])


def test_the_page_says_not_run_where_there_are_no_records() -> None:
    page = experiment("sentiment_page").page(Records())
    rows = [line for line in page.splitlines() if line.startswith("|") and "---" not in line]
    runs = [row for row in rows if row.startswith(("| Variational", "| Naive", "| Standard"))]
    claims = [row for row in rows if row.startswith("| C") and not row.startswith("| Claim")]
    assert len(runs) == 6 + 7 + 2 and all("| not run |" in row for row in [*runs, *claims])
    assert "p_E=0.5 | not run | not run" in page and "| 0.1" not in page and ": 0 of 7." in page


@pytest.mark.slow
def test_the_page_repeats_verdicts_and_tables_word_for_word(full: Records) -> None:
    from varrnn.reproduction.claims import judge

    page = experiment("sentiment_page").page(full)
    for claim in (claim for claim in CLAIMS if claim.id in ("C26", "C27", "C31")):
        verdict = judge(claim, full)
        assert f"| {claim.id} | {claim.statement} | {verdict.label()} | {verdict.numbers} |" in page
    table = experiment("sentiment").table(full)
    row = next(row for row in table.rows if row[:3] == ["Naive dropout", "lstm", "200"])
    assert " | ".join([*row[:2], *row[3:]]) in page


@pytest.mark.slow
def test_the_page_says_what_each_mask_changes(full: Records, monkeypatch) -> None:
    module = experiment("sentiment_page")
    errors = {"p_E=0 p_U=0": 0.15, "p_E=0 p_U=0.5": 0.19, "p_E=0.5 p_U=0": 0.16, "p_E=0.5 p_U=0.5": 0.17}
    roles = {full.group(run).records[0].path: role for role, run in module.FIGURE4A.items()}
    monkeypatch.setattr(module, "final_error", lambda group: errors[roles[group.records[0].path]])
    monkeypatch.setattr(module, "final_gap", lambda group: errors[roles[group.records[0].path]] / 10)
    lines = module.mask_effects(full).splitlines()
    assert lines[2:] == [
        "- The recurrent mask changes the final error by +0.0400 and +0.0100, and the gap by +0.0040 and +0.0010.",
        "- The word mask changes the final error by +0.0100 and -0.0200, and the gap by +0.0010 and -0.0020.",
    ]
    assert "once all four settings have a record" in module.mask_effects(Records())


def test_the_page_counts_the_records_of_lower_precision() -> None:
    gpu = {"gpu": "A100", "precision": "high"}
    machines = ({"precision": "high"}, {"gpu": None}, {}, None, gpu)
    made = [SimpleNamespace(choices={"task": "cornell"}, content={"hardware": machine}) for machine in machines]
    other = SimpleNamespace(choices={"task": "ptb"}, content={"hardware": {"precision": "high"}})
    count = experiment("sentiment_page").precisions(SimpleNamespace(runs=[*made, other]))
    assert count.startswith("1 of the 4 records ")


def test_the_summary_ranks_the_models_and_sorts_the_claims(full: Records) -> None:
    from varrnn.reproduction.claims import judge
    from varrnn.reproduction.runs import figure3

    module = experiment("sentiment_page")
    summary = module.in_short(full)
    (line,) = (line for line in summary.splitlines() if line.startswith("- The paper's text, GRU"))
    shown = [float(value) for value in re.findall(r" (0\.\d{4})", line)]
    assert len(shown) == len(figure3("gru")) and shown == sorted(shown)
    for claim in (claim for claim in CLAIMS if claim.id in module.CLAIMED["text"]):
        agrees = judge(claim, full).agrees
        head = "Open" if agrees is None else f"Claims that {'our runs agree' if agrees else 'they disagree'} with"
        (line,) = (line for line in summary.splitlines() if line.startswith(f"- {head}"))
        assert claim.id in line
    nothing = module.in_short(Records())
    assert nothing.count("agree with: none.") == 2 and "LSTM: not run: Variational (untied)" in nothing


def test_a_jump_of_a_curve_is_reported(tmp_path) -> None:
    from varrnn.reproduction.runs import figure3

    content = synthetic.sentiment_run(figure3("lstm")["none"], 1, 100)
    content["history"]["test_rmse"][95] = 0.25
    module = experiment("sentiment_page")
    leaps = module.jumps(load(synthetic.save([content], tmp_path)))
    assert "Standard (no dropout), lstm, protocol=paper, seed 1" in leaps and "to 0.2500 at epoch 96" in leaps
    assert module.jumps(Records()).endswith("none.")


def test_the_stated_optimum_is_a_marked_curve_where_it_was_not_chosen(monkeypatch) -> None:
    module = experiment("figure3")
    assert "stated optimum" not in module.lstm_curves()
    other = {**module.LSTM, "variational_untied": (*module.LSTM["variational_untied"], "optim.weight_decay=1e-4")}
    monkeypatch.setattr(module, "LSTM", other)
    assert module.lstm_curves()["stated optimum"][0].label.endswith("stated optimum")
