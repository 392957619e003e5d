"""scripts/evaluate.py: a finished run gets other MC samples, and nothing else changes."""

import json

import pytest
from helpers.runs import make_run, python


@pytest.fixture
def run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return make_run("mc.samples=0", "train.early_stopping=true")


@pytest.mark.slow
def test_adds_samples_to_a_finished_run(run, tmp_path):
    before, weights = json.loads((run / "summary.json").read_text()), (run / "checkpoint.pt").read_bytes()
    assert "test_ppl_mc" not in before["metrics"]
    done = python("scripts/evaluate.py", str(run), "mc.samples=6", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    after = json.loads((run / "summary.json").read_text())
    assert after["metrics"]["mc_samples"] == 6 and after["mc_curve"]["samples"] == [1, 2, 5]
    assert {name: after["metrics"][name] for name in before["metrics"]} == before["metrics"]
    assert after["history"] == before["history"] and (run / "checkpoint.pt").read_bytes() == weights


@pytest.mark.slow
def test_options_that_would_make_another_run_are_rejected(run, tmp_path):
    done = python("scripts/evaluate.py", str(run), "optim.lr=0.5", folder=tmp_path)
    assert done.returncode == 1 and "optim.lr=0.5" in done.stderr and "Traceback" not in done.stderr
    (run / "summary.json").unlink()
    done = python("scripts/evaluate.py", str(run), "mc.samples=2", folder=tmp_path)
    assert done.returncode == 1 and "not finished" in done.stderr
