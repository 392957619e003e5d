"""The style of all figures: sizes, fonts, and label, colour and order of every variant."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from varrnn import fileio

if TYPE_CHECKING:
    from matplotlib.figure import Figure

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


class LineStyle(NamedTuple):
    """The label, colour and line of a curve."""

    label: str
    colour: str
    line: Any = "-"
    order: int = 0


# Okabe and Ito's palette, distinguishable with every kind of colour vision; line styles differ too, for grey prints.
BLACK, BLUE, SKY, GREEN = "#000000", "#0072B2", "#56B4E9", "#009E73"
VERMILION, ORANGE, YELLOW, PINK = "#D55E00", "#E69F00", "#F0E442", "#CC79A7"
BROWN = "#8B4513"  # not in the palette, for a ninth variant
VARIANTS = {
    "variational_untied": LineStyle("Variational (untied)", BLUE, "-", 0),
    "variational_tied": LineStyle("Variational (tied)", SKY, (0, (5, 1)), 1),
    "variational_untied_noemb": LineStyle("Variational, no word dropout", PINK, "-.", 2),
    "naive": LineStyle("Naive dropout", VERMILION, "--", 3),
    "naive_recurrent": LineStyle("Naive dropout, recurrent too", BROWN, (0, (1, 1)), 8),
    "moon": LineStyle("Moon et al.", GREEN, "-.", 4),
    "moon_emb": LineStyle("Moon et al. + emb", ORANGE, (0, (3, 1, 1, 1)), 5),
    "moon_cell_only": LineStyle("Moon et al., cell only", YELLOW, ":", 6),
    "none": LineStyle("Standard (no dropout)", BLACK, ":", 7),
}
REFERENCE = "#777777"
SEQUENCE = "viridis"  # for sweeps: from dark (low) to light (high)


def save(figure: Figure, folder: Path, name: str) -> list[Path]:
    """Save as PDF and PNG without dates, so that equal records give equal files. The name may contain dots."""
    files = {folder / f"{name}.pdf": "CreationDate", folder / f"{name}.png": "Software"}
    with fileio.writing(fileio.make_folder(folder)):
        for path, dated in files.items():
            figure.savefig(path, metadata={dated: None})
    return list(files)


def sweep(labels: list[str]) -> dict[str, LineStyle]:
    """Line styles of a swept value, in order, without the lightest colours, which are hard to see on white."""
    import matplotlib

    colours = matplotlib.colormaps[SEQUENCE]
    lines = ("-", "--", "-.", ":")
    positions = [0.8 * i / max(1, len(labels) - 1) for i in range(len(labels))]
    return {
        label: LineStyle(label, matplotlib.colors.to_hex(colours(position)), lines[i % len(lines)], i)
        for i, (label, position) in enumerate(zip(labels, positions))
    }
