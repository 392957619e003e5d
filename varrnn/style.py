"""The one style of all figures: sizes, fonts, and label, colour and order of every variant."""

from __future__ import annotations

from typing import Any, NamedTuple

COLUMN, PAGE = 3.4, 7.0  # inches: one column, and the whole width of a page

RC: Any = {
    "figure.dpi": 100,
    "savefig.dpi": 200,
    "figure.constrained_layout.use": True,
    "font.size": 8,
    "axes.titlesize": 8,
    "axes.labelsize": 8,
    "legend.fontsize": 7,
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "figure.constrained_layout.w_pad": 0.08,
    "legend.frameon": False,
    "legend.handlelength": 1.8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.alpha": 0.25,
    "grid.linewidth": 0.5,
    "lines.linewidth": 1.3,
}


class Look(NamedTuple):
    """How one curve looks."""

    label: str
    colour: str
    line: Any = "-"
    order: int = 0


# Okabe and Ito's colours, told apart with every kind of colour vision; lines differ too, for print in grey.
VARIANTS = {
    "variational_untied": Look("Variational (untied)", "#0072B2", "-", 0),
    "variational_tied": Look("Variational (tied)", "#56B4E9", (0, (5, 1)), 1),
    "variational_untied_noemb": Look("Variational, no word dropout", "#CC79A7", "-.", 2),
    "naive": Look("Naive dropout", "#D55E00", "--", 3),
    "moon": Look("Moon et al.", "#009E73", "-.", 4),
    "moon_emb": Look("Moon et al. + emb", "#E69F00", (0, (3, 1, 1, 1)), 5),
    "moon_cell_only": Look("Moon et al., cell only", "#F0E442", ":", 6),
    "none": Look("Standard (no dropout)", "#000000", ":", 7),
}
REFERENCE = "#777777"
SEQUENCE = "viridis"  # for sweeps: from dark (low) to light (high)


def sweep(labels: list[str]) -> dict[str, Look]:
    """Looks of a swept value, in order; the lightest end is left out, it is hard to see on white."""
    import matplotlib

    colours = matplotlib.colormaps[SEQUENCE]
    lines = ("-", "--", "-.", ":")
    places = [0.8 * i / max(1, len(labels) - 1) for i in range(len(labels))]
    return {
        label: Look(label, matplotlib.colors.to_hex(colours(place)), lines[i % len(lines)], i)
        for i, (label, place) in enumerate(zip(labels, places))
    }
