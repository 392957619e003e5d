"""The layers compared with torch's at common shapes: ``scripts/benchmark.py --size library``.

A row is a shape, a cell and a number of threads. Its candidates are torch's layer and ours in training (without
dropout, tied and untied masks; torch's layer has no dropout), and both in inference. They run interleaved in one
process; a ratio is the median over rounds of torch's time / ours, so above 1 ours is faster.
"""

import statistics
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pack_sequence

from varrnn import VariationalGRU, VariationalLSTM, VariationalRNN
from varrnn.benchmark.timing import Call, Timer, half_range
from varrnn.dropout import DropoutRates
from varrnn.errors import UserError
from varrnn.kernels import record_backends

CELLS: dict[str, tuple[Any, Any]] = {
    "lstm": (nn.LSTM, VariationalLSTM),
    "gru": (nn.GRU, VariationalGRU),
    "rnn": (nn.RNN, VariationalRNN),
}
TIED = DropoutRates(p_W=0.25, p_U=0.25)
TRAINING = {
    "train": DropoutRates.none(),
    "tied": TIED,
    "untied": DropoutRates(p_W=0.25, p_U=0.25, per_gate=True),
}
COLUMNS = (*TRAINING, "inference")
SAMPLE_SECONDS = 2e-3  # a candidate that takes less is called several times in a row


@dataclass(frozen=True)
class Shape:
    """The sizes of one layer and its input; ``lengths`` are those of packed sequences."""

    name: str
    steps: int
    batch: int
    inputs: int
    units: int
    carried: bool = False  # whether the state is given, as in a loop over single steps
    lengths: tuple[int, ...] = ()


def _packed(name: str, lengths: tuple[int, ...], inputs: int, units: int) -> Shape:
    return Shape(f"{name},I{inputs},H{units}", max(lengths), len(lengths), inputs, units, lengths=lengths)


SHAPES = (
    *(
        Shape(f"T{t},B{b},I{i},H{h}", t, b, i, h)
        for t, b, i, h in (
            (50, 64, 64, 64),
            (100, 32, 300, 256),
            (200, 16, 40, 512),
            (1000, 8, 16, 128),
            (28, 256, 28, 128),
            (10, 1, 64, 64),
        )
    ),
    *(Shape(f"T1,B{b},I{h},H{h}", 1, b, h, h, carried=True) for b, h in ((1, 64), (1, 512), (32, 512), (256, 128))),
    _packed("[400]+[5]*31", (400, *[5] * 31), 64, 128),
    _packed("5to200,B32", tuple(5 + 195 * k // 31 for k in range(31, -1, -1)), 64, 128),
)


@dataclass(frozen=True)
class Row:
    shape: Shape
    cell: str
    threads: int

    @property
    def name(self) -> str:
        """The name that ``--filter`` searches, e.g. `lstm T50,B64,I64,H64 1 thread`."""
        return f"{self.cell} {self.shape.name} {self.threads} thread{'s' if self.threads > 1 else ''}"


def choose_rows(words: str, threads: int) -> list[Row]:
    """The rows of the table whose names contain all ``words``, with one thread and with all ``threads``."""
    counts = sorted({1, threads})
    rows = [Row(shape, cell, count) for shape in SHAPES for cell in CELLS for count in counts]
    found = [row for row in rows if all(word in row.name for word in words.split())]
    if not found:
        raise UserError(
            f"--filter {words!r}: no row has all of these words; rows are called {rows[0].name!r} and so on"
        )
    return found


def make_input(shape: Shape, requires_grad: bool) -> Tensor | PackedSequence:
    if not shape.lengths:
        return torch.randn(shape.steps, shape.batch, shape.inputs, requires_grad=requires_grad)
    packed = pack_sequence([torch.randn(length, shape.inputs) for length in shape.lengths])
    return packed._replace(data=packed.data.requires_grad_(requires_grad))


def make_state(shape: Shape, cell: str) -> Any:
    """h_0, and for an LSTM (h_0, c_0); None is torch's default of zeros."""
    if not shape.carried:
        return None
    states = tuple(torch.randn(1, shape.batch, shape.units) for _ in range(2))
    return states if cell == "lstm" else states[0]


def training_call(layer: nn.Module, shape: Shape, cell: str) -> Call:
    """A forward and a backward pass, with gradients of the weights and of the input."""
    x, state = make_input(shape, True), make_state(shape, cell)
    data = x if isinstance(x, Tensor) else x.data
    gradient = torch.randn(*data.shape[:-1], shape.units)
    leaves = [data, *layer.parameters()]

    def call() -> None:
        for leaf in leaves:
            leaf.grad = None
        out = layer(x, state)[0]
        (out if isinstance(out, Tensor) else out.data).backward(gradient)

    return call


def inference_call(layer: nn.Module, shape: Shape, cell: str) -> Call:
    x, state = make_input(shape, False), make_state(shape, cell)

    def call() -> None:
        with torch.no_grad():
            layer(x, state)

    return call


def candidates(row: Row) -> dict[str, Call]:
    """The calls of torch's layer and of ours for one row, by name."""
    shape, (theirs, ours) = row.shape, CELLS[row.cell]
    sizes = (shape.inputs, shape.units)
    return {
        "torch train": training_call(theirs(*sizes), shape, row.cell),
        **{name: training_call(ours(*sizes, dropout=rates), shape, row.cell) for name, rates in TRAINING.items()},
        "torch inference": inference_call(theirs(*sizes).eval(), shape, row.cell),
        "inference": inference_call(ours(*sizes, dropout=TIED).eval(), shape, row.cell),
    }


def measure(row: Row, timer: Timer) -> dict[str, Any]:
    """Milliseconds of torch's layer, the ratios torch / ours with half their interquartile range, and our backends."""
    before = torch.get_num_threads()
    torch.set_num_threads(row.threads)
    try:
        calls = candidates(row)
        backends = {name: _backends(call) for name, call in calls.items() if name in COLUMNS}
        times = timer.interleave(calls, {name: _count(call) for name, call in calls.items()})
    finally:
        torch.set_num_threads(before)
    found: dict[str, Any] = {"rounds": len(times["train"]), "backends": backends, "ratio": {}, "spread": {}}
    found["torch_ms"] = {kind: 1e3 * statistics.median(times[f"torch {kind}"]) for kind in ("train", "inference")}
    for name in COLUMNS:
        theirs = times["torch inference" if name == "inference" else "torch train"]
        ratios = [b / a for a, b in zip(times[name], theirs)]
        found["ratio"][name], found["spread"][name] = statistics.median(ratios), half_range(ratios)
    return found


def _backends(call: Call) -> str:
    with record_backends() as used:
        call()
    return "+".join(sorted(set(used)))


def _count(call: Call) -> int:
    """The number of consecutive calls that takes long enough for the clock."""
    return max(1, min(1000, int(SAMPLE_SECONDS / max(1e-7, Timer("wall", 0, 1).seconds(call)))))


def lines(rows: list[Row], timer: Timer, record: dict[str, Any]) -> Iterator[str]:
    """Measure the rows and yield the lines of the table; the numbers are added to ``record`` by row name."""
    yield "torch's time / ours (above 1: ours is faster), +- half the interquartile range; backend; ms of torch"
    heads = "".join(f"{name:>15}" for name in COLUMNS)
    yield f"{'':34}{heads}{'train ms':>10}{'infer ms':>10}"
    for row in rows:
        found = record[row.name] = measure(row, timer)
        cells = "".join(
            f"{found['ratio'][name]:7.2f} +-{found['spread'][name]:.2f}".rjust(12)
            + f" {found['backends'][name][:1] or '-':2}"
            for name in COLUMNS
        )
        yield f"{row.name:34}{cells}{found['torch_ms']['train']:10.3f}{found['torch_ms']['inference']:10.3f}"
    ratios = [found["ratio"][name] for found in record.values() for name in COLUMNS]
    yield f"{len(ratios)} entries: lowest {min(ratios):.2f}, median {statistics.median(ratios):.2f}"
