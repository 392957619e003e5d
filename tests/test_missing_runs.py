"""scripts/missing_runs.py: the commands of all runs without a record, carried out or listed."""

import itertools
import runpy
import sys

import pytest
from small_runs import ROOT

from varrnn.errors import UserError


def test_missing_runs_of_table_1(tmp_path, monkeypatch, capsys):
    script = runpy.run_path(str(ROOT / "scripts" / "missing_runs.py"))
    with pytest.raises(UserError, match=r"allowed are .*table1"):
        script["artefact"]("table2")
    started = []
    answers = iter([1, 0, 0])
    main = script["main"]
    monkeypatch.setitem(main.__globals__, "carried_out", lambda words, _: started.append(words) or next(answers))
    words = ["x", "table1", "--records", str(tmp_path), "launcher=joblib"]
    monkeypatch.setattr(sys, "argv", words)
    assert main() == 1  # the command "failed"
    swept = [dict(word.split("=", 1) for word in one if "=" in word) for one in started]
    points = [len(list(itertools.product(*(given.split(",") for given in one.values())))) for one in swept]
    assert sum(points) == 36 and all(one["launcher"] == "joblib" for one in swept)
    assert "failed or stopped: python run.py -m" in capsys.readouterr().err
    monkeypatch.setattr(
        sys, "argv", ["x", "figure3", "--records", str(tmp_path), "--seeds", "2", "launcher=joblib", "--list"]
    )
    assert script["main"]() == 0
    said = capsys.readouterr().out.splitlines()
    assert said and all(line.endswith("seed=2 launcher=joblib") for line in said)
