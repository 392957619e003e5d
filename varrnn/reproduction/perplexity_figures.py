"""Panels of language models: validation perplexity against epochs, and test perplexity against MC samples."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from matplotlib.axes import Axes

from varrnn.records.store import Group, Records
from varrnn.reporting.style import VARIANTS
from varrnn.reproduction.artefact import Artefact
from varrnn.reproduction.figures import (
    decorate,
    error_band,
    figure_artefact,
    in_style_order,
    not_run_panel,
    reference_line,
)
from varrnn.reproduction.runs import TABLE1_MODELS, Run, command, language_model

ZOOM = 0.4  # share of the epochs, at the end, shown again in the inset


def learning_curve_figure(
    file: str,
    title: str,
    size: str,
    panel_title: str,
    column: str,
    height: float,
    find_group: Callable[[Records, Run], Group] = Records.group,
    paper: Mapping[str, float | None] | None = None,
    paper_mc: Mapping[str, float | None] | None = None,
    baseline: tuple[float | None, str] = (None, ""),
) -> Artefact:
    """An artefact of two panels for the variants of Table 1 at one size: `validation_panel` and `mc_panel`.

    `find_group` returns the records of a run; for the small model, those of the best point of its grid.
    """
    runs = in_style_order({model: language_model(size, model) for model in TABLE1_MODELS})

    def draw(panels: list[Axes], records: Records) -> None:
        groups = {model: find_group(records, run) for model, run in runs.items()}
        validation_panel(panels[0], groups, runs, column, panel_title, paper, baseline)
        for panel in panels[1:]:
            mc_panel(panel, groups, runs, paper_mc)

    def count_panels(records: Records) -> int:
        """One while no model has been evaluated with MC dropout, unless there is no record at all."""
        groups = [find_group(records, run) for run in runs.values()]
        return 1 if any(group.records for group in groups) and not any(map(_mc_curve, groups)) else 2

    return figure_artefact(file, title, draw, panels=count_panels, height=height, runs=tuple(runs.values()))


def _mc_curve(group: Group) -> Mapping[str, list[float]]:
    """Perplexity against the number of MC samples of the first run that has it."""
    sampled = group.with_mc().records
    return (sampled[0].content.get("mc_curve") or {}) if sampled else {}


def validation_panel(
    axes: Axes,
    groups: Mapping[str, Group],
    runs: Mapping[str, Run],
    column: str,
    title: str,
    paper: Mapping[str, float | None] | None = None,
    baseline: tuple[float | None, str] = (None, ""),
) -> None:
    """Plot every variant that has a record, with the last epochs again in an inset if a curve has its minimum there.

    `paper` has a published value per variant, shown as a thin line of the variant's colour. `baseline` is a further
    value with its name.
    """
    curves = {model: group.curve(column) for model, group in groups.items()}
    curves = {model: curve for model, curve in curves.items() if len(curve.epochs)}
    if not curves:
        not_run_panel(axes, list(runs.values()))
        decorate(axes, title)
        return
    published = {model: value for model, value in (paper or {}).items() if model in curves and value is not None}
    lowest = min([*(curve.mean.min() for curve in curves.values()), *published.values()])
    longest = max(curve.epochs[-1] for curve in curves.values())
    start = (1 - ZOOM) * longest
    zoomed = any(curve.epochs[curve.mean.argmin()] >= start for curve in curves.values())
    zoom = axes.inset_axes((0.42, 0.42, 0.56, 0.56)) if zoomed else None
    for panel in (axes, zoom) if zoom else (axes,):
        for model, curve in curves.items():
            style, label = VARIANTS[model], f"{VARIANTS[model].label} (n={curve.n})"
            made_by = command(runs[model], groups[model].seeds())
            panel.plot(curve.epochs, curve.mean, color=style.colour, linestyle=style.line, label=label, gid=made_by)
            error_band(panel, curve, style.colour)
        for model, value in published.items():
            panel.axhline(value, color=VARIANTS[model].colour, lw=0.5, zorder=1)
    if published:
        axes.plot([], [], color="0.4", lw=0.5, label="thin line: the paper's value of the same colour")
    reference_line(axes, *baseline)
    highest = max([*(curve.mean.max() for curve in curves.values()), *published.values()])
    axes.set_ylim(0.93 * lowest, min(3.2 * lowest, 1.05 * highest))
    if zoom:
        late = {model: curve for model, curve in curves.items() if curve.epochs[-1] >= start}
        shown = [value for curve in late.values() for value in curve.mean[curve.epochs >= start]]
        shown += [value for model, value in published.items() if model in late]
        zoom.set_xlim(start, longest)
        zoom.set_ylim(0.985 * lowest, 1.01 * max(shown))
        zoom.tick_params(labelsize=6)
        axes.indicate_inset_zoom(zoom, edgecolor="0.6", lw=0.6)
    normaliser = ", authors' normaliser" if column.endswith("_authors") else ""
    decorate(axes, title, ylabel=f"validation perplexity{normaliser}")


def mc_panel(
    axes: Axes, groups: Mapping[str, Group], runs: Mapping[str, Run], paper: Mapping[str, float | None] | None = None
) -> None:
    """MC dropout of the variational models, their dropout approximation (dashed), and the paper's values (dotted)."""
    variational = [model for model in runs if model.startswith("variational")]
    for model in variational:
        curve = _mc_curve(groups[model])
        if curve.get("samples"):
            record, style = groups[model].with_mc().records[0], VARIANTS[model]
            label = f"{style.label}, seed {record.seed}"
            axes.plot(curve["samples"], curve["ppl"], "o-", ms=3, color=style.colour, label=f"{label}: MC")
            plain, published = record.metric("test_ppl"), (paper or {}).get(model)
            if plain is not None:
                axes.axhline(plain, color=style.colour, linestyle="--", lw=0.9, label=f"{label}: dropout approximation")
            if published is not None:
                axes.axhline(
                    published, color=style.colour, linestyle=":", lw=0.9, label=f"{style.label}, MC, the paper"
                )
    if axes.lines:
        axes.set_xscale("log")
    else:
        not_run_panel(axes, [runs[model] for model in variational])
    decorate(axes, "MC dropout", xlabel="MC samples", ylabel="test perplexity")
