"""Labels and chart of the benchmark, for scripts/benchmark.py and experiments/speed.py."""

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from varrnn.reporting.style import REFERENCE, VARIANTS

LABELS = {
    "limit": "matrix products alone",
    "nn_lstm": "nn.LSTM, ordinary dropout",
    "loop_tied": "autograd loop, tied",
    "loop_untied": "autograd loop, untied",
    "naive": "ours, naive",
    "moon": "ours, Moon et al.",
    "variational_tied": "ours, variational tied",
    "variational_untied": "ours, variational untied",
    "variational_untied_high": "ours, variational untied, precision=high",
    "variational_tied_torch": "ours, variational tied, torch operations",
    "paper_lstm": "protocol=paper, LSTM",
    "authors_code_lstm": "protocol=authors_code, LSTM",
    "paper_gru": "protocol=paper, GRU",
    "authors_code_gru": "protocol=authors_code, GRU",
}


MARKERS = "osD^vP*X"  # one for each machine


def ratio(speeds: Mapping[str, Any], key: str) -> float | None:
    """The speed relative to nn.LSTM: the median of paired ratios if the record has it."""
    paired = speeds.get("ratio_to_nn_lstm") or {}
    if paired.get(key):
        return paired[key]
    return speeds[key] / speeds["nn_lstm"] if speeds.get(key) and speeds.get("nn_lstm") else None


def draw_speeds(panels: Sequence[Axes], machines: Mapping[str, Mapping[str, Any]], sizes: Sequence[str]) -> None:
    """The speed of each candidate relative to nn.LSTM: a panel for each size, a marker for each machine.

    All panels have the same rows, the candidates that were measured at every size; the first panel has the labels."""
    keys = [key for key in LABELS if key != "nn_lstm" and _measured_everywhere(key, machines, sizes)]
    rows = range(len(keys))
    colours = [VARIANTS[key].colour if key in VARIANTS else REFERENCE for key in keys]
    markers = dict(zip(machines, itertools.cycle(MARKERS)))
    for axes, size in zip(panels, sizes):
        axes.axvline(1, color=REFERENCE, linewidth=1)
        for name, benchmark in machines.items():
            ratios = [ratio(benchmark.get(size) or {}, key) for key in keys]
            shown = [(value, row, colour) for value, row, colour in zip(ratios, rows, colours) if value is not None]
            if shown:
                values, places, used = zip(*shown)
                axes.scatter(values, places, c=used, marker=markers[name], s=14, linewidths=0, alpha=0.8)
        axes.set(title=size, xlabel="speed / nn.LSTM", yticks=rows, ylim=(len(keys) - 0.5, -0.5))
        axes.set_xlim(0, max(1.25, 1.05 * axes.get_xlim()[1]))
        axes.set_yticklabels([LABELS[key] for key in keys] if axes is panels[0] else [])
    if len(machines) > 1:
        handles = [
            Line2D([], [], color=REFERENCE, linestyle="", marker=marker, markersize=4, label=name)
            for name, marker in markers.items()
        ]
        panels[-1].legend(handles=handles, loc="upper left", bbox_to_anchor=(1, 1), handlelength=1)


def _measured_everywhere(key: str, machines: Mapping[str, Mapping[str, Any]], sizes: Sequence[str]) -> bool:
    return all(any((benchmark.get(size) or {}).get(key) for benchmark in machines.values()) for size in sizes)
