"""Labels and bar chart of the benchmark, for scripts/benchmark.py and experiments/speed.py."""

from collections.abc import Mapping
from typing import Any

from matplotlib.axes import Axes

from varrnn.reporting.style import REFERENCE, VARIANTS

LABELS = {
    "limit": "matrix products alone (limit)",
    "nn_lstm": "nn.LSTM, ordinary dropout",
    "loop_tied": "autograd loop, tied",
    "loop_untied": "autograd loop, untied",
    "naive": "ours, naive",
    "moon": "ours, Moon et al.",
    "variational_tied": "ours, variational tied",
    "variational_untied": "ours, variational untied",
    "variational_tied_torch": "ours, variational tied, torch operations",
    "paper_lstm": "protocol=paper, LSTM",
    "authors_code_lstm": "protocol=authors_code, LSTM",
    "paper_gru": "protocol=paper, GRU",
    "authors_code_gru": "protocol=authors_code, GRU",
}


def share(speeds: Mapping[str, Any], key: str, of: str = "limit") -> float | None:
    """The speed relative to the limit or to nn.LSTM: the median of paired ratios if the record has it."""
    paired = speeds.get(f"ratio_to_{of}") or {}
    if paired.get(key):
        return paired[key]
    return speeds[key] / speeds[of] if speeds.get(key) and speeds.get(of) else None


def bars(panels: list[Axes], benchmark: Mapping[str, Any], sizes: list[str]) -> None:
    """Words per second relative to the limit: one panel per size, with the labels at the first panel.

    All panels have the same bars: the candidates that every size has."""
    keys = [key for key in LABELS if key != "limit" and all(benchmark[size].get(key) for size in sizes)]
    for axes, size in zip(panels, sizes):
        speeds = benchmark[size]
        colours = [VARIANTS[key].colour if key in VARIANTS else REFERENCE for key in keys]
        drawn = axes.barh([LABELS[key] for key in keys], [share(speeds, key) for key in keys], color=colours)  # type: ignore[arg-type]
        axes.bar_label(drawn, fmt="%.2f", fontsize=6, padding=2)
        axes.set(title=f"{size}\nlimit {speeds['limit']:,.0f} words/s", xlabel="share of the limit", xlim=(0, 1.25))
        axes.grid(False, axis="y")
        axes.invert_yaxis()
        if axes is not panels[0]:
            axes.set_yticklabels([])
