"""Figures from records: mean and band over seeds, reference lines, and a note in panels without records."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from varrnn.records.store import Curve, Group, Records
from varrnn.reporting.style import (
    BLACK,
    BLUE,
    COLUMN,
    GREEN,
    PAGE,
    RC,
    REFERENCE,
    VARIANTS,
    VERMILION,
    LineStyle,
    save,
    sweep,
)
from varrnn.reproduction.artefact import Artefact
from varrnn.reproduction.runs import FIGURE4A, SEEDS, Run, command, commands

COMBINATIONS = dict(zip(FIGURE4A, ((BLACK, ":"), (VERMILION, "--"), (GREEN, "-."), (BLUE, "-"))))
Curves = Mapping[str, tuple[LineStyle, Run]]  # role -> its line style, and its run
_collected: ContextVar[list[Figure] | None] = ContextVar("collected", default=None)


@contextmanager
def collect_figures() -> Iterator[list[Figure]]:
    """Collect the figures drawn inside instead of saving them; the report page turns them into interactive charts."""
    figures: list[Figure] = []
    token = _collected.set(figures)
    try:
        yield figures
    finally:
        _collected.reset(token)


def in_style_order(runs: Mapping[str, Run]) -> dict[str, Run]:
    """Variants of Table 1 in the order in which every figure shows them."""
    return {model: runs[model] for model in sorted(runs, key=lambda model: VARIANTS[model].order)}


def variant_curves(runs: Mapping[str, Run]) -> Curves:
    """Curves that are variants of Table 1, with the style and order of each variant."""
    return {model: (VARIANTS[model], run) for model, run in in_style_order(runs).items()}


class Canvas(NamedTuple):
    """Panels to draw on, and the files they are saved to."""

    panels: list[Axes]
    files: list[Path]


@contextmanager
def figure(
    folder: Path, name: str, panels: int = 1, height: float = 2.9, shared_legend: bool = False
) -> Iterator[Canvas]:
    """One panel at column width, or several in a row at page width; saved as PDF and PNG below results/figures.

    It does not use pyplot: a script needs no display, and a notebook keeps its backend.
    """
    files: list[Path] = []
    with matplotlib.rc_context(RC):
        made = Figure(figsize=(COLUMN if panels == 1 else PAGE, height))
        yield Canvas(list(made.subplots(1, panels, squeeze=False)[0]), files)
        if shared_legend:
            share_legend(made)
        if (collected := _collected.get()) is not None:
            collected.append(made)
        else:
            files += save(made, folder / "figures", name)


def figure_artefact(
    file: str,
    title: str,
    draw: Callable[[list[Axes], Records], None],
    panels: int | Callable[[Records], int] = 1,
    height: float = 2.9,
    shared_legend: bool = False,
    **rest: Any,
) -> Artefact:
    """An artefact of one figure. `file` is the experiment's __file__; artefact and image files have its name.

    `panels` is the number of panels; a function leaves out those that have no data yet.
    """
    name = Path(file).stem

    def render(records: Records, folder: Path) -> list[Path]:
        count = panels if isinstance(panels, int) else panels(records)
        with figure(folder, name, count, height, shared_legend) as (axes, files):
            draw(axes, records)
        return files

    return Artefact(name, title, render, is_figure=True, **rest)


class Panel(NamedTuple):
    """A panel of curves."""

    plot: Callable[[Axes, Records, Curves, str], None]  # error_panel, approximation_panel, train_panel or loss_panel
    curves: Curves
    title: str


def curve_figure(
    file: str,
    title: str,
    *panels: Panel,
    adjust: Callable[[list[Axes]], None] = lambda axes: None,
    runs: tuple[Run, ...] = (),
    **rest: Any,
) -> Artefact:
    """An artefact of one figure whose panels show curves: its runs are those of the curves, and further `runs`.

    `adjust` is called with the finished panels, for example `share_y`. Panels without any record are left out, unless
    no panel has one.
    """

    def drawn(records: Records) -> Sequence[Panel]:
        return [panel for panel in panels if _has_records(panel, records)] or list(panels)

    def draw(axes: list[Axes], records: Records) -> None:
        for one, panel in zip(axes, drawn(records), strict=True):
            panel.plot(one, records, panel.curves, panel.title)
        adjust(axes)

    needed = tuple(run for panel in panels for _, run in panel.curves.values())
    return figure_artefact(
        file, title, draw, panels=lambda records: len(drawn(records)), runs=needed + runs, shown=needed, **rest
    )


def _has_records(panel: Panel, records: Records) -> bool:
    return any(records.group(run).records for _, run in panel.curves.values())


def error_curve(group: Group) -> Curve:
    """Test error by MC dropout against epochs."""
    return group.curve(group.records[0].error_column)


def train_curve(group: Group) -> Curve:
    """Train error against epochs, by MC for models with dropout."""
    return group.curve(group.records[0].train_column)


def history_curve(column: str) -> Callable[[Group], Curve]:
    """A function that returns the mean of a history column over seeds, for `plot_curves`."""
    return lambda group: group.curve(column)


def batch_curve(group: Group) -> Curve:
    """Train loss without penalty against batches: the mean over blocks of one per cent of the shortest run.

    A long run has fewer recorded points per epoch than a short one, so points are placed at their batch numbers.
    """
    batches = [record.content.get("batches") or {} for record in group.records]
    found = [(np.asarray(one["train_loss"], dtype=float), one.get("every") or 1) for one in batches
             if one.get("train_loss")]  # fmt: skip
    if not found:
        return Curve(np.array([]), np.array([]), np.array([]), 0)
    num_batches = min(len(losses) * every for losses, every in found)
    blocks = min(100, *(num_batches // every for _, every in found))  # no block is narrower than a point
    edges = np.linspace(0, num_batches, blocks + 1)
    table = np.array([_block_means(losses, every, edges) for losses, every in found])
    std = table.std(axis=0, ddof=1) if len(found) > 1 else np.zeros(blocks)
    return Curve((edges[:-1] + edges[1:]) / 2, table.mean(axis=0), std, len(found))


def _block_means(losses: np.ndarray, every: int, edges: np.ndarray) -> np.ndarray:
    """The mean of the points in each block; a point is at the middle of its `every` batches."""
    blocks = np.searchsorted(edges, (np.arange(len(losses)) + 0.5) * every, side="right") - 1
    inside = blocks < len(edges) - 1
    width = len(edges) - 1
    summed = np.bincount(blocks[inside], losses[inside], width)
    return summed / np.bincount(blocks[inside], minlength=width)


def plot_curves(
    axes: Axes, records: Records, curves: Curves, get_curve: Callable[[Group], Curve] = error_curve
) -> list[Curve]:
    """Plot every curve that has records, with its number of seeds in the legend; without any, a note says so."""
    drawn = []
    for line_style, run in curves.values():
        group = records.group(run)
        curve = get_curve(group) if group.records else None
        if curve is not None and len(curve.epochs):
            _line(axes, curve, line_style, group, command(run, group.seeds()))
            drawn.append(curve)
    if not drawn:
        not_run_panel(axes, [run for _, run in curves.values()])
    return drawn


def error_band(axes: Axes, curve: Curve, colour: str) -> None:
    """A band of plus and minus one standard deviation over seeds."""
    if curve.n > 1:
        low, high = curve.mean - curve.std, curve.mean + curve.std
        axes.fill_between(curve.epochs, low, high, color=colour, alpha=0.2, lw=0)


def _line(axes: Axes, curve: Curve, line_style: LineStyle, group: Group, made_by: str) -> None:
    """Plot a curve; its gid stores the command of its run."""
    count = f"n={curve.n}" + (f", {group.unstable} unstable" if group.unstable else "")
    style: dict[str, Any] = {
        "color": line_style.colour,
        "linestyle": line_style.line,
        "zorder": 10 - line_style.order / 10,
    }
    gaps = np.diff(curve.epochs)
    if len(gaps) and not np.allclose(gaps, gaps[0]):  # MC was measured at some epochs only: mark them
        style |= {"marker": "o", "markersize": 1.8}
    axes.plot(curve.epochs, curve.mean, label=f"{typeset(line_style.label)} ({count})", gid=made_by, **style)
    error_band(axes, curve, line_style.colour)


def wrap(text: str, width: int) -> list[str]:
    """Wrap text without breaking overrides, so that they can be copied."""
    return textwrap.wrap(text, width, break_on_hyphens=False, break_long_words=False)


def not_run_panel(axes: Axes, runs: list[Run]) -> None:
    """Write into the panel that there is no record, and the command that makes it."""
    axes.clear()
    axes.set(xticks=[], yticks=[])
    axes.grid(False)
    needed = commands((run, SEEDS) for run in runs)
    text = needed[0] if needed else ""
    if len(needed) > 1:
        text += f"\n(and {len(needed) - 1} more)"
    width = 52 if len(axes.figure.axes) < 3 else 38  # characters that fit into a panel
    lines = [line for part in text.split("\n") for line in wrap(part, width)]
    anchor: dict[str, Any] = {"ha": "center", "va": "top", "transform": axes.transAxes}
    axes.text(0.5, 0.8, "not run", fontsize=9, color=REFERENCE, **anchor)
    axes.text(0.5, 0.66, "\n".join(lines), fontsize=5.5, family="monospace", **anchor)


def reference_line(axes: Axes, value: float | None, label: str, line: str = "--") -> None:
    """Horizontal lines: the constant predictor, ridge regression, or a number from the paper."""
    if value is not None:
        axes.axhline(value, color=REFERENCE, linestyle=line, linewidth=0.9, label=f"{label} {value:.4g}", zorder=1)
        axes.autoscale_view(scalex=False)  # a line at the edge of the panel would lie under its frame


def plot_baselines(axes: Axes, records: Records, curves: Curves) -> None:
    """The constant predictor and bag-of-words ridge regression, from the records of this panel."""
    groups = [records.group(run) for _, run in curves.values()]
    for metric, label, line in (("constant_rmse", "mean rating", "--"), ("ridge_rmse", "ridge regression", ":")):
        values = {round(v, 4) for v in (group.mean(metric) for group in groups) if v is not None}
        if len(values) == 1:
            reference_line(axes, values.pop(), label, line)


def decorate(axes: Axes, title: str = "", xlabel: str = "epoch", ylabel: str = "", legend: bool = True) -> None:
    """Add title, labels, and a legend below the panel."""
    axes.set_title(typeset(title))
    if axes.lines:
        axes.set(xlabel=xlabel, ylabel=ylabel)
        if legend:
            wide = len(axes.figure.axes) < 3  # three panels leave no space for a second column
            columns = 2 if wide and len(axes.get_legend_handles_labels()[0]) > 6 else 1
            axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.22), ncols=columns, columnspacing=1.0)


def sweep_curves(runs: Mapping[str, Run], label: str) -> Curves:
    """Curves of a swept value, "label=value", from dark (low) to light (high)."""
    line_styles = sweep(list(runs))
    return {value: (line_styles[value]._replace(label=f"{label}={value}"), run) for value, run in runs.items()}


def error_panel(
    axes: Axes, records: Records, curves: Curves, title: str, get_curve: Callable[[Group], Curve] = error_curve
) -> None:
    """A panel of figures 3 to 12: test error against epochs, with the constant predictor and ridge regression."""
    if plot_curves(axes, records, curves, get_curve):
        plot_baselines(axes, records, curves)
    decorate(axes, title, ylabel="RMSE")


def approximation_panel(axes: Axes, records: Records, curves: Curves, title: str) -> None:
    """A panel of figures 9 and 12: test error of the dropout approximation against epochs."""
    error_panel(axes, records, curves, title, history_curve("test_rmse"))


def train_panel(axes: Axes, records: Records, curves: Curves, title: str) -> None:
    """Figure 3a: train error against epochs, by MC for models with dropout; without references (test errors)."""
    plot_curves(axes, records, curves, train_curve)
    decorate(axes, title, ylabel="RMSE")


def loss_panel(axes: Axes, records: Records, curves: Curves, title: str) -> None:
    """A panel of figures 13 to 15: train loss (standardised MSE without the penalty) against batches."""
    if plot_curves(axes, records, curves, batch_curve):
        axes.set_yscale("log")
    decorate(axes, title, xlabel="batch", ylabel="train loss")


def combination_curves(runs: Mapping[str, Run]) -> Curves:
    """The four settings of figure 4a."""
    return {role: (LineStyle(role, COMBINATIONS[role][0], COMBINATIONS[role][1]), run) for role, run in runs.items()}


def grid_curves(runs: Mapping[str, Run]) -> Curves:
    """The (p, weight decay) settings of figures 10 and 12: one colour per decay, solid for p=.25, dashed for p=.5."""
    decays = list(dict.fromkeys(role.split("decay=")[1] for role in runs))
    line_styles = sweep(decays)
    colours = {role: line_styles[role.split("decay=")[1]].colour for role in runs}
    return {
        role: (LineStyle(role.replace("decay", "λ"), colours[role], "-" if "p=0.25" in role else "--"), run)
        for role, run in runs.items()
    }


def share_legend(made: Figure) -> None:
    """One legend below all panels instead of one below each."""
    handles: dict[str, Any] = {}
    for axes in made.axes:
        for handle, label in zip(*axes.get_legend_handles_labels()):
            handles.setdefault(label, handle)
        if (own := axes.get_legend()) is not None:
            own.remove()
    if handles:
        columns = min(3, len(handles)) if made.get_figwidth() > COLUMN else 1
        made.legend(list(handles.values()), list(handles), loc="outside lower center", ncols=columns)


def limit_y(axes: Axes, low: float, high: float) -> None:
    """Limit the vertical axis. A triangle and a number mark points where a curve leaves the range."""
    if not axes.lines:
        return
    axes.set_ylim(low, high)
    for line in list(axes.lines):
        x, y = np.asarray(line.get_xdata(), dtype=float), np.asarray(line.get_ydata(), dtype=float)
        inside = np.flatnonzero(y <= high)
        if len(x) < 3:  # a reference line
            if not low <= y[0] <= high:
                line.set_label(f"{line.get_label()} ({'above' if y[0] > high else 'below'} the range shown)")
            continue
        if not len(inside):
            continue
        for point in np.flatnonzero((y > high) & (np.arange(len(y)) > inside[0])):
            late = x[point] > (x[0] + x[-1]) / 2  # the label stays inside the panel
            axes.plot(x[point], high, "^", color=line.get_color(), ms=5, clip_on=False, zorder=20)
            axes.annotate(
                f"{y[point]:.4f} at epoch {x[point]:.0f}",
                (x[point], high),
                xytext=(-5 if late else 5, -9 if late else -3),
                textcoords="offset points",
                ha="right" if late else "left",
                fontsize=6,
                color=line.get_color(),
            )


def typeset(text: str) -> str:
    """`$p_E$` for p_E, in matplotlib's math notation."""
    return re.sub(r"\bp_([A-Za-z])\b", r"$p_\1$", text)


def share_y(panels: list[Axes]) -> None:
    """Give all panels the same vertical axis."""
    drawn = [axes for axes in panels if axes.lines]
    if len(drawn) > 1:
        low, high = min(axes.get_ylim()[0] for axes in drawn), max(axes.get_ylim()[1] for axes in drawn)
        for axes in drawn:
            axes.set_ylim(low, high)
