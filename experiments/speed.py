"""Words per second of this machine, from the records of scripts/benchmark.py; untied / tied beside the paper's."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from varrnn.benchmark.chart import LABELS, bars, share
from varrnn.records.store import Records
from varrnn.reproduction.artefact import Artefact, main
from varrnn.reproduction.claims.special import latest, untied_to_tied
from varrnn.reproduction.figures import figure
from varrnn.reproduction.tables import DASH, Table

COMMAND = "python scripts/benchmark.py --record"
SIZES = ("small", "medium", "large", "sentiment")
PAPER = {"medium": 2700 / 4700, "large": 1600 / 2400}
NOTE = """\
Full training steps, candidates interleaved in one process; compare within a column only. "paper": words per second of \
untied / tied in Table 1, four products one after the other on a GPU. The limit takes torch's products; where ours are \
faster a share may exceed 1. Shares and ratios are medians of the ratios within each round, so they need not be the \
quotients of the words per second above them."""

LAUNCHES_NOTE = """\
Masks, forward and backward pass, clipping and SGD of one window (35 steps of two layers, 200 steps of one), counted \
on meta tensors, which need no GPU; the times of these steps on a GPU have not been measured. A call of cuDNN \
(nn.LSTM, naive) counts as one, although it launches kernels of its own. The sentiment GRU resets before the product, \
where torch has no fused cell."""


def measured(records: Records) -> tuple[Mapping[str, Any], list[str]]:
    """The last benchmark record, and the sizes that it measured."""
    benchmark = latest(records)
    return benchmark, [size for size in SIZES if isinstance(benchmark.get(size), Mapping)]


def table(records: Records) -> Table:
    benchmark, sizes = measured(records)
    rows = (
        [[label, *(_speed(benchmark[size], key) for size in sizes)] for key, label in LABELS.items()] if sizes else []
    )
    if sizes:
        rows += ratios(benchmark, sizes)
    note = f"{NOTE} Measured on: {machine(benchmark)}." if sizes else f"Not run: `{COMMAND}`."
    return Table("speed", "Words per second", ("", *sizes), rows, note)


def launches() -> Table:
    """Kernels that a GPU launches for the same steps: counted, not measured, so no record is needed."""
    from varrnn.benchmark.launches import LABELS, WINDOWS, count_window

    counts = {name: count_window(shape) for name, shape in WINDOWS.items()}
    rows = [[label, *(f"{counts[name][key]:,}" for name in counts)] for key, label in LABELS.items()]
    return Table("launches", "Kernel launches of a training step on a GPU", ("", *counts), rows, LAUNCHES_NOTE)


def machine(benchmark: Mapping[str, Any]) -> str:
    """CPU or GPU, threads and torch, as the benchmark recorded them."""
    info = benchmark.get("machine") or {}
    names = ("gpu", "cpu", "cores", "threads", "torch")
    return ", ".join(f"{name} {info[name]}" for name in names if info.get(name))


def _speed(speeds: Mapping[str, Any], key: str) -> str:
    """ "1,400 (0.85)": words per second, and the share of the limit."""
    if not speeds.get(key):
        return DASH
    of_limit = share(speeds, key)
    return f"{speeds[key]:,.0f}" + (f" ({of_limit:.2f})" if of_limit is not None and key != "limit" else "")


def _number(value: float | None) -> str:
    return DASH if value is None else f"{value:.2f}"


def ratios(benchmark: Mapping[str, Any], sizes: list[str]) -> list[list[str]]:
    """The rows below the words per second."""
    ours = [untied_to_tied(benchmark[size]) for size in sizes]
    to_torch = [share(benchmark[size], "variational_untied", "nn_lstm") for size in sizes]
    mc = [(benchmark[size].get("mc") or {}).get("batched_to_loop") for size in sizes]
    sides = [(benchmark[size].get("side_by_side") or {}).get("ratio") for size in sizes]
    return [
        ["**untied / tied, ours**", *(f"**{_number(ratio)}**" for ratio in ours)],
        ["untied / tied, paper", *(_number(PAPER.get(size)) for size in sizes)],
        ["variational untied / nn.LSTM", *map(_number, to_torch)],
        [
            "MC evaluation, batched / the usual loop, one sample at a time",
            *(DASH if ratio is None else f"{ratio:.1f}" for ratio in mc),
        ],
        ["parallel runs of one thread / one run with all threads", *map(_number, sides)],
    ]


def chart(records: Records, folder: Path) -> list[Path]:
    """Bars as shares of the limit, a panel per size."""
    benchmark, sizes = measured(records)
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
