"""Words per second from the record of scripts/benchmark.py, and untied / tied compared with the paper's."""

from collections.abc import Mapping
from pathlib import Path
from string import ascii_uppercase
from typing import Any

from varrnn.benchmark.chart import LABELS, bars, share
from varrnn.records.store import Records
from varrnn.reporting.table import DASH, Table
from varrnn.reproduction.artefact import Artefact, main
from varrnn.reproduction.claims.special import latest_benchmark, untied_to_tied
from varrnn.reproduction.figures import figure
from varrnn.reproduction.machines import describe_machine

COMMAND = "python scripts/benchmark.py --record"
SIZES = ("small", "medium", "large", "sentiment")
PAPER = {"medium": 2700 / 4700, "large": 1600 / 2400}
NOTE = """\
Full training steps, all candidates in turn in one process; compare numbers of one column only. Limit: the matrix \
products of a step alone, computed by torch; where our products are faster, a share may exceed 1. Autograd loop: a \
Python loop over time steps, the usual implementation of recurrent dropout. "untied / tied, paper's GPU": from the \
words per second in Table 1, where untied weights take four products one after the other on a GPU. Shares and ratios \
are medians over rounds of measurement, so they may differ from the quotients of the words per second above them."""

LAUNCHES_NOTE = """\
Kernels that one training step launches: drawing masks, forward and backward pass, clipping and SGD on one window \
(Penn Treebank: 35 time steps, two layers; sentiment: 200 time steps, one layer). They are counted on meta tensors, \
which need no GPU; the time of these steps on a GPU has not been measured. A call of cuDNN (nn.LSTM, naive) counts as \
one, although it launches several kernels. The GRU of the sentiment task applies its reset gate before the matrix \
product; torch has no fused cell for that."""


def latest_sizes(records: Records) -> tuple[Mapping[str, Any], list[str]]:
    """The last benchmark record, and the sizes that it measured."""
    benchmark = latest_benchmark(records)
    return benchmark, [size for size in SIZES if isinstance(benchmark.get(size), Mapping)]


def table(records: Records) -> Table:
    """A column for each size; if there are records of several processors, one for each of them, A, B and so on."""
    columns = [
        (size, benchmark, letter)
        for size in SIZES
        for letter, benchmark in zip(ascii_uppercase, records.benchmarks)
        if isinstance(benchmark.get(size), Mapping)
    ]
    if not columns:
        return Table("speed", "Words per second", ("",), [], f"Not run: `{COMMAND}`.")
    several = len(records.benchmarks) > 1
    heads = [f"{size}, {letter}" if several else size for size, _, letter in columns]
    speeds = [(size, benchmark[size]) for size, benchmark, _ in columns]
    measured = {key: label for key, label in LABELS.items() if any(one.get(key) for _, one in speeds)}
    rows = [[label, *(_speed(one, key) for _, one in speeds)] for key, label in measured.items()]
    machines = [describe_machine(benchmark) for benchmark in records.benchmarks]
    if several:
        machines = [f"{letter}: {machine}" for letter, machine in zip(ascii_uppercase, machines)]
    note = f"{NOTE} Measured on: {'; '.join(machines)}."
    return Table("speed", "Words per second", ("", *heads), rows + ratios(speeds), note)


def launches() -> Table:
    """The number of kernels that a GPU launches for the same steps; it is counted without a GPU or a record."""
    from varrnn.benchmark.launches import LABELS, WINDOWS, count_window

    counts = {name: count_window(shape) for name, shape in WINDOWS.items()}
    rows = [[label, *(f"{counts[name][key]:,}" for name in counts)] for key, label in LABELS.items()]
    return Table("launches", "Kernel launches of a training step on a GPU", ("", *counts), rows, LAUNCHES_NOTE)


def _speed(speeds: Mapping[str, Any], key: str) -> str:
    """ "1,400 (0.85)": words per second, and the share of the limit."""
    if not speeds.get(key):
        return DASH
    of_limit = share(speeds, key)
    return f"{speeds[key]:,.0f}" + (f" ({of_limit:.2f})" if of_limit is not None and key != "limit" else "")


def _number(value: float | None) -> str:
    return DASH if value is None else f"{value:.2f}"


def ratios(columns: list[tuple[str, Mapping[str, Any]]]) -> list[list[str]]:
    """The rows below the words per second."""
    found = [speeds for _, speeds in columns]
    ours = [untied_to_tied(speeds) for speeds in found]
    to_torch = [share(speeds, "variational_untied", "nn_lstm") for speeds in found]
    mc = [(speeds.get("mc") or {}).get("batched_to_loop") for speeds in found]
    sides = [(speeds.get("side_by_side") or {}).get("ratio") for speeds in found]
    return [
        ["**untied / tied, ours**", *(f"**{_number(ratio)}**" for ratio in ours)],
        ["untied / tied, paper's GPU", *(_number(PAPER.get(size)) for size, _ in columns)],
        ["variational untied / nn.LSTM", *map(_number, to_torch)],
        [
            "MC evaluation, batched / autograd loop with one sample at a time",
            *(DASH if ratio is None else f"{ratio:.1f}" for ratio in mc),
        ],
        ["several runs with one thread each / one run with all threads", *map(_number, sides)],
    ]


def chart(records: Records, folder: Path) -> list[Path]:
    """Bars of the speed relative to the limit, one panel per size."""
    benchmark, sizes = latest_sizes(records)
    with figure(folder, "speed", panels=max(1, len(sizes)), height=2.4) as (panels, files):
        bars(panels, benchmark, sizes)
        if not sizes:
            panels[0].set(xticks=[], yticks=[], title="Words per second: not run", xlabel=COMMAND)
            panels[0].xaxis.label.set_size(5)
    return files


def render(records: Records, folder: Path) -> list[Path]:
    return [*table(records).write(folder), *launches().write(folder), *chart(records, folder)]


ARTEFACT = Artefact("speed", "Words per second", render, claims=("C22", "C22b"), more=(COMMAND,))

if __name__ == "__main__":
    main(ARTEFACT)
