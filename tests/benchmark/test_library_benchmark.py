"""The table that compares our layers with torch's: its rows, candidates and command line."""

import importlib.util
import json
import re
import subprocess
import sys

import pytest
import torch
from helpers import ROOT

from varrnn.benchmark import library
from varrnn.errors import UserError

SCRIPT = ROOT / "scripts" / "benchmark.py"


@pytest.fixture
def benchmark(monkeypatch):
    spec = importlib.util.spec_from_file_location("benchmark", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module.allocator, "retain_heap", lambda: True)
    return module


def test_one_row_alone(benchmark, monkeypatch, tmp_path, capsys):
    file = tmp_path / "library.json"
    words = ["--size", "library", "--filter", "gru T1,B1,I64", "--quick", "--threads", "1", "--json", str(file)]
    monkeypatch.setattr(sys, "argv", ["benchmark.py", *words])
    benchmark.main()
    record = json.loads(file.read_text())["library"]
    assert list(record) == ["gru T1,B1,I64,H64 1 thread"]
    (found,) = record.values()
    assert set(found["ratio"]) == set(found["spread"]) == set(found["backends"]) == set(library.COLUMNS)
    assert all(ratio > 0 for ratio in found["ratio"].values()) and found["rounds"] == benchmark.QUICK_ROUNDS
    assert "gru T1,B1,I64,H64 1 thread" in capsys.readouterr().out


def test_rows():
    """Every shape, cell and number of threads is one row; a filter selects rows with all of its words."""
    rows = library.choose_rows("", 2)
    assert len({row.name for row in rows}) == len(rows) == len(library.SHAPES) * 3 * 2
    assert {row.threads for row in library.choose_rows("", 1)} == {1}
    assert [row.name for row in library.choose_rows("lstm [400] threads", 2)] == [
        "lstm [400]+[5]*31,I64,H128 2 threads"
    ]
    with pytest.raises(UserError, match="--filter 'lstn': no row has all of these words"):
        library.choose_rows("lstn", 1)


@pytest.mark.parametrize("cell", library.CELLS)
@pytest.mark.parametrize("shape", [library.SHAPES[5], library.SHAPES[6], library.SHAPES[-2]], ids=lambda s: s.name)
def test_torch_and_ours_get_the_same_problem(cell, shape):
    """The training call without dropout gives the gradients of torch's layer."""
    theirs, ours = (make(shape.inputs, shape.units) for make in library.CELLS[cell])
    ours.load_state_dict(theirs.state_dict())
    for layer in (theirs, ours):
        torch.manual_seed(0)
        library.training_call(layer, shape, cell)()
    for a, b in zip(theirs.parameters(), ours.parameters()):
        torch.testing.assert_close(a.grad, b.grad, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--filter lstm", "only the library's table has rows to choose"),
        ("--size library --chart a.png --device cpu", "a table for CPUs without a chart"),
        ("--size library --record --quick", "--record --quick: three rounds"),
    ],
)
def test_options_that_do_not_fit_are_rejected(benchmark, monkeypatch, words, message):
    monkeypatch.setattr(sys, "argv", ["benchmark.py", *words.split()])
    with pytest.raises(UserError, match=message):
        benchmark.main()


@pytest.mark.parametrize(("arguments", "recorded"), [("", True), ("--size library", False), ("--size=small", False)])
def test_make_bench_records_only_without_a_size(arguments, recorded):
    command = ["make", "--dry-run", "--always-make", "--no-print-directory", "bench", f"ARGS={arguments}"]
    shown = subprocess.run(command, cwd=ROOT, capture_output=True, text=True).stdout
    (line,) = re.findall(r".*scripts/benchmark\.py.*", shown)
    assert ("--record" in line) == recorded and line.count("--size") == 1
