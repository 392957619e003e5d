"""A grid as a heat map: the validation value of every cell, with a frame around the best one."""

import textwrap
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

from varrnn.reporting.style import VERMILION
from varrnn.reproduction.figures import figure
from varrnn.sweeps.ranking import Grid, axis_label


def draw_heatmap(grid: Grid, folder: Path) -> list[Path]:
    """The first two swept options as axes; of further ones, each cell shows the lowest value."""
    axes = grid.axes()
    if not axes:
        return []
    x, y = axes[0], axes[1] if len(axes) > 1 else None
    across = in_order(grid.value(point, x) for point in grid.points)
    down = in_order(grid.value(point, y) for point in grid.points) if y else [""]
    cells = np.full((len(down), len(across)), np.nan)
    for point in reversed(grid.points):  # best last, which overwrites the others in its cell
        cells[down.index(grid.value(point, y)) if y else 0, across.index(grid.value(point, x))] = point.mean
    cells[np.isinf(cells)] = np.nan
    first = grid.points[0]  # ranked on the seeds shared by all points; cells show means over all seeds
    best = down.index(grid.value(first, y)) if y else 0, across.index(grid.value(first, x))
    with figure(folder, grid.name) as (panels, files):
        draw_cells(panels[0], cells, best)
        panels[0].set(xticks=range(len(across)), xticklabels=across, xlabel=axis_label(x))
        panels[0].set(yticks=range(len(down)), yticklabels=down, ylabel=axis_label(y) if y else "")
        title = textwrap.wrap(grid.title, 50, break_on_hyphens=False)
        panels[0].set_title("\n".join([*title, grid.score]))
    return files


def in_order(values: Iterable[Any]) -> list[Any]:
    """The different values, numbers first; an option may also be a word, or null."""

    def rank(value: Any) -> tuple[bool, Any]:
        return (False, value) if isinstance(value, int | float) else (True, str(value))

    return sorted(set(values), key=rank)


def draw_cells(panel: Axes, cells: np.ndarray, best: tuple[int, int]) -> None:
    """Draw coloured cells with their values, and a frame around the best."""
    panel.imshow(cells, cmap="viridis_r", aspect="auto")
    panel.grid(False)
    if np.isnan(cells).all():
        return
    middle = (np.nanmin(cells) + np.nanmax(cells)) / 2
    for (row, column), value in np.ndenumerate(cells):
        text = "–" if np.isnan(value) else f"{value:.4g}"
        dark = value > middle  # high values are dark in this map
        weight = "bold" if (row, column) == best else "normal"
        panel.text(column, row, text, ha="center", va="center", weight=weight, color="white" if dark else "black")
        if (row, column) == best:
            panel.add_patch(
                Rectangle((column - 0.48, row - 0.48), 0.96, 0.96, fill=False, edgecolor=VERMILION, linewidth=2)
            )
