"""scripts/sweep_summary.py: what it rejects, and where it writes."""

import runpy
import sys

import pytest
from helpers.runs import ROOT

from varrnn.errors import UserError


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--sweep-key optim.lrr", "--sweep-key optim.lrr: there is no such option; did you mean optim.lr"),
        ("--sweep-key seed", "--sweep-key seed: a grid point is the mean over its seeds"),
        ("--sweep-key mc.samples", "--sweep-key mc.samples: grids are not ranked over this option"),
        ("--sweep-key cell", "--sweep-key cell: grids are not ranked over this option"),
        ("--sweep-key optim.lr", "no runs below ."),
        ("--sweep-key task.scaling", "no runs below ."),
    ],
)
def test_options_that_the_summary_rejects(tmp_path, monkeypatch, words, message):
    monkeypatch.chdir(tmp_path)
    main = runpy.run_path(str(ROOT / "scripts" / "sweep_summary.py"))["main"]
    monkeypatch.setattr(sys, "argv", ["sweep_summary.py", ".", *words.split()])
    with pytest.raises(UserError) as error:
        main()
    assert str(error.value).startswith(message)


def test_a_summary_of_records_stays_out_of_the_repository(tmp_path):
    default_out = runpy.run_path(str(ROOT / "scripts" / "sweep_summary.py"))["default_out"]
    assert default_out(tmp_path) == tmp_path / "summary"
    for folder in ("results/records", "results/records/ptb/small", "results"):
        assert default_out(ROOT / folder) == ROOT / "runs" / "summary_of_records"
