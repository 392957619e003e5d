"""scripts/run_missing.py: the commands of all runs without a record, executed or listed."""

import itertools
import runpy
import sys
from pathlib import Path

import pytest
from helpers import records as synthetic
from helpers.runs import ROOT

from varrnn.errors import UserError
from varrnn.reproduction.artefact import experiment
from varrnn.reproduction.runs import language_model


def test_missing_runs_of_table_1(tmp_path, monkeypatch, capsys):
    script = runpy.run_path(str(ROOT / "scripts" / "run_missing.py"))
    with pytest.raises(UserError, match=r"allowed are .*table1"):
        script["artefact"]("table2")
    monkeypatch.chdir(tmp_path)  # a relative runs_root= means a folder here, as for run.py itself
    started = []
    answers = iter([1, 0, 0])
    main = script["main"]
    monkeypatch.setitem(main.__globals__, "run_subprocess", lambda *given: started.append(given) or next(answers))
    words = ["x", "table1", "--records", str(tmp_path), "launcher=joblib"]
    monkeypatch.setattr(sys, "argv", words)
    assert main() == 1  # the command "failed"
    assert {(words[1], folder) for words, folder in started} == {(str(ROOT / "run.py"), Path.cwd())}
    swept = [dict(word.split("=", 1) for word in words if "=" in word) for words, _ in started]
    points = [len(list(itertools.product(*(given.split(",") for given in one.values())))) for one in swept]
    assert sum(points) == 36 and all(one["launcher"] == "joblib" for one in swept)
    assert "failed or stopped: python run.py -m" in capsys.readouterr().err
    monkeypatch.setattr(
        sys, "argv", ["x", "figure3", "--records", str(tmp_path), "--seeds", "2", "launcher=joblib", "--list"]
    )
    assert script["main"]() == 0
    said = capsys.readouterr().out.splitlines()
    assert said and all(line.endswith("seed=2 launcher=joblib") for line in said)


def test_a_record_without_mc_dropout_is_missing_in_table_1(tmp_path):
    """Its row of MC dropout would stay empty; the same command evaluates the trained model."""
    find = runpy.run_path(str(ROOT / "scripts" / "run_missing.py"))["missing_commands"]
    wanted = experiment("table1").ARTEFACT
    for model, mc, expected in (
        ("naive", None, False),
        ("variational_tied", None, True),
        ("variational_tied", 79.0, False),
    ):
        content = synthetic.language_run(language_model("medium", model), 1, 81.0, 80.0, mc, epochs=39)
        folder = synthetic.save([content], tmp_path / f"{model}_{mc}")
        found = [line for line in find(wanted, folder, [1]) if "ptb_medium" in line]
        assert len(found) == 1 and (model in found[0].split("model=")[1]) is expected, found
    content["metrics"]["mc_samples"] = 999
    assert model in str(find(wanted, synthetic.save([content], tmp_path / "fewer"), [1]))


@pytest.mark.parametrize("word", ["--lst", "-x", "2"])
def test_unknown_arguments_start_nothing(tmp_path, monkeypatch, word):
    main = runpy.run_path(str(ROOT / "scripts" / "run_missing.py"))["main"]
    monkeypatch.setitem(main.__globals__, "run_subprocess", lambda *_: pytest.fail("started"))
    monkeypatch.setattr(sys, "argv", ["x", "table1", "--records", str(tmp_path), word, "--list"])
    with pytest.raises(UserError, match=f"^{word}: neither an option of this script"):
        main()
