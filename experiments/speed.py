"""Words per second from the records of scripts/benchmark.py, and untied / tied compared with the paper's."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from varrnn.benchmark.chart import LABELS, draw_speeds, ratio
from varrnn.records.store import Records
from varrnn.reporting.table import DASH, Table
from varrnn.reproduction.artefact import Artefact, main
from varrnn.reproduction.claims.special import untied_to_tied
from varrnn.reproduction.figures import figure
from varrnn.reproduction.machines import list_machines, name_machines

COMMAND = "python scripts/benchmark.py --record"
SIZES = ("small", "medium", "large", "sentiment")
PAPER = {"medium": 2700 / 4700, "large": 1600 / 2400}
NOTE = """\
Words per second of full training steps; in brackets, relative to nn.LSTM. All candidates run in turn in one process, \
so compare numbers of one column only. Matrix products alone: those of a step, computed by torch. Autograd loop: a \
Python loop over time steps, the usual implementation of recurrent dropout. "untied / tied": the paper's is from the \
words per second in Table 1; on a GPU, untied weights take four products one after the other. precision=high: products \
of sums of two bfloat16 numbers, on processors with AMX; everything else is float32. Ratios are medians over rounds of \
measurement, so they may differ from the quotients of the words per second."""

LAUNCHES_NOTE = """\
Kernels that one training step launches: drawing masks, forward and backward pass, clipping and SGD on one window \
(Penn Treebank: 35 time steps, two layers; sentiment: 200 time steps, one layer). They are counted on meta tensors, \
which need no GPU; the time of these steps on a GPU has not been measured. A call of cuDNN (nn.LSTM, naive) counts as \
one, although it launches several kernels. The GRU of the sentiment task applies its reset gate before the matrix \
product; torch has no fused cell for that."""


def measured_sizes(records: Records) -> list[str]:
    """The sizes that any machine has measured."""
    return [size for size in SIZES if any(isinstance(one.get(size), Mapping) for one in records.benchmarks)]


def table(records: Records) -> Table:
    """A column for each machine, and for each size a row for each candidate, followed by ratios."""
    machines, sizes = name_machines(records.benchmarks), measured_sizes(records)
    if not sizes:
        return Table("speed", "Words per second", ("",), [], f"Not run: `{COMMAND}`.")
    rows: list[list[str]] = []
    for size in sizes:
        speeds = [benchmark.get(size) or {} for benchmark in machines.values()]
        rows += [[f"{size}: {label}", *(_speed(one, key) for one in speeds)] for key, label in LABELS.items()]
        rows += [[f"{size}: {label}", *cells] for label, *cells in ratios(size, speeds)]
    shown = [row for row in rows if set(row[1:]) != {DASH}]
    return Table("speed", "Words per second", ("", *machines), shown, f"{NOTE} {list_machines(machines)}")


def launches() -> Table:
    """The number of kernels that a GPU launches for the same steps; it is counted without a GPU or a record."""
    from varrnn.benchmark.launches import LABELS, WINDOWS, count_window

    counts = {name: count_window(shape) for name, shape in WINDOWS.items()}
    rows = [[label, *(f"{counts[name][key]:,}" for name in counts)] for key, label in LABELS.items()]
    return Table("launches", "Kernel launches of a training step on a GPU", ("", *counts), rows, LAUNCHES_NOTE)


def _speed(speeds: Mapping[str, Any], key: str) -> str:
    """ "1,400 (1.05)": words per second, and the speed relative to nn.LSTM."""
    if not speeds.get(key):
        return DASH
    to_torch = ratio(speeds, key)
    return f"{speeds[key]:,.0f}" + (f" ({to_torch:.2f})" if to_torch is not None and key != "nn_lstm" else "")


def _number(value: float | None, digits: int = 2) -> str:
    return DASH if value is None else f"{value:.{digits}f}"


def ratios(size: str, machines: Sequence[Mapping[str, Any]]) -> list[list[str]]:
    """The rows below the words per second of a size."""
    paper = f" (the paper's GPU: {PAPER[size]:.2f})" if size in PAPER else ""
    mc, mc_high = (
        [(speeds.get("mc") or {}).get(key) for speeds in machines] for key in ("batched_to_loop", "high_to_batched")
    )
    parallel = [(speeds.get("side_by_side") or {}).get("ratio") for speeds in machines]
    return [
        [f"untied / tied{paper}", *(_number(untied_to_tied(speeds)) for speeds in machines)],
        [
            "MC dropout, samples in one batch / autograd loop with one at a time",
            *(_number(value, digits=1) for value in mc),
        ],
        ["MC dropout, samples in one batch: precision=high / float32", *map(_number, mc_high)],
        ["several runs with one thread each / one run with all threads", *map(_number, parallel)],
    ]


def chart(records: Records, folder: Path) -> list[Path]:
    """The speed relative to nn.LSTM, one panel per size."""
    sizes = measured_sizes(records)
    with figure(folder, "speed", panels=max(1, len(sizes)), height=2.2) as (panels, files):
        draw_speeds(panels, name_machines(records.benchmarks), sizes)
        if not sizes:
            panels[0].set(xticks=[], yticks=[], title="Words per second: not run", xlabel=COMMAND)
            panels[0].xaxis.label.set_size(5)
    return files


def render(records: Records, folder: Path) -> list[Path]:
    return [*table(records).write(folder), *launches().write(folder), *chart(records, folder)]


ARTEFACT = Artefact("speed", "Words per second", render, claims=("C22", "C22b"), more=(COMMAND,))

if __name__ == "__main__":
    main(ARTEFACT)
