"""scripts/run_missing.py: the commands of all runs without a record, executed or listed."""

import itertools
import runpy
import sys
from pathlib import Path

import pytest
from helpers.runs import ROOT

from varrnn.errors import UserError


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


@pytest.mark.parametrize("word", ["--lst", "-x", "2"])
def test_unknown_arguments_start_nothing(tmp_path, monkeypatch, word):
    main = runpy.run_path(str(ROOT / "scripts" / "run_missing.py"))["main"]
    monkeypatch.setitem(main.__globals__, "run_subprocess", lambda *_: pytest.fail("started"))
    monkeypatch.setattr(sys, "argv", ["x", "table1", "--records", str(tmp_path), word, "--list"])
    with pytest.raises(UserError, match=f"^{word}: neither an option of this script"):
        main()
