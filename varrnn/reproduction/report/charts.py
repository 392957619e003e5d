"""Charts as data for the page, from records or from the matplotlib figures of experiments/."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from varrnn.config.compose import CONFIGS
from varrnn.records.paths import differences
from varrnn.records.store import Curve, Group, Records
from varrnn.reporting.style import REFERENCE, VARIANTS
from varrnn.reproduction.grids import best_on_validation
from varrnn.reproduction.published import PUBLISHED_SMALL, TABLE1
from varrnn.reproduction.runs import TABLE1_MODELS, commands, language_model

Chart = dict[str, Any]
Trace = dict[str, Any]
DIGITS = 5


def numbers(values: Any) -> list[float | None]:
    """Round to five significant digits; numbers that are not finite become null."""
    return [float(f"{value:.{DIGITS}g}") if np.isfinite(value) else None for value in np.asarray(values, dtype=float)]


def trace(label: str, x: Any, y: Any, colour: str, dash: str = "solid", **more: Any) -> Trace:
    return {"label": label, "x": numbers(x), "y": numbers(y), "colour": colour, "dash": dash, **more}


def line(label: str, value: float, colour: str = REFERENCE, dash: str = "dash") -> dict[str, Any]:
    """A horizontal line: a published value, a baseline."""
    return {"label": label, "value": value, "colour": colour, "dash": dash}


def from_figure(figure: Figure) -> list[Chart]:
    """Every panel of a figure of experiments/ as a chart."""
    return [from_axes(axes) for axes in figure.axes]


def from_axes(axes: Axes) -> Chart:
    """Curves with their bands and commands, horizontal lines, labels and scales of one panel."""
    curves = [one for one in axes.lines if not _is_reference(axes, one)]
    references = [one for one in axes.lines if _is_reference(axes, one) and not _label(one).startswith("_")]
    traces = [_trace(one) for one in curves if not _label(one).startswith("_")]
    _add_bands(axes, traces)
    return {
        "title": html(axes.get_title()),
        "xlabel": axes.get_xlabel(),
        "ylabel": axes.get_ylabel(),
        "xlog": axes.get_xscale() == "log",
        "ylog": axes.get_yscale() == "log",
        "traces": traces,
        "lines": [line(_label(one), float(np.asarray(one.get_ydata())[0])) for one in references],
    }


def _label(drawn: Line2D) -> str:
    return html(str(drawn.get_label()))


def html(text: str) -> str:
    """matplotlib's `$p_E$` in plotly's notation."""
    return re.sub(r"\$p_(\w)\$", r"p<sub>\1</sub>", text)


def _is_reference(axes: Axes, drawn: Line2D) -> bool:
    """Whether a line comes from axhline, whose horizontal coordinates are those of the axes, not of the data."""
    return drawn.get_transform() is not axes.transData


def _trace(drawn: Line2D) -> Trace:
    made = trace(
        _label(drawn), drawn.get_xdata(), drawn.get_ydata(), to_hex(drawn.get_color()), _dash(drawn),
        markers=drawn.get_marker() not in ("None", None, ""),
    )  # fmt: skip
    return made | {"command": drawn.get_gid() or "", "missing": not made["x"]}


def _dash(drawn: Line2D) -> str:
    """The closest line style of plotly."""
    style = str(drawn.get_linestyle())
    return {"-": "solid", "--": "dash", "-.": "dashdot", ":": "dot", "None": "none"}.get(style, "longdash")


def _add_bands(axes: Axes, traces: list[Trace]) -> None:
    """The band of a curve, one standard deviation over seeds: fill_between with the same colour and points."""
    for band in (found for found in axes.collections if isinstance(found, PolyCollection)):
        vertices = np.asarray(band.get_paths()[0].vertices)
        positions = np.unique(vertices[:, 0])
        low = [vertices[vertices[:, 0] == x, 1].min() for x in positions]
        high = [vertices[vertices[:, 0] == x, 1].max() for x in positions]
        colour = to_hex(tuple(np.asarray(band.get_facecolor())[0]))
        for made in traces:
            if made["colour"] == colour and made["x"] == numbers(positions):
                made |= {"low": numbers(low), "high": numbers(high)}


def record_command(group: Group) -> str:
    """The command of a group of records: its choices, the options that differ from their defaults, the seeds."""
    first = group.records[0]
    defaults = {"cell": "lstm", "protocol": "paper"}
    chosen = [f"{name}={value}" for name, value in first.choices.items() if defaults.get(name) != value]
    size, task = first.choices["size"], first.choices["task"]
    if (CONFIGS / "experiment" / f"{task}_{size}.yaml").is_file():
        chosen = [f"experiment={task}_{size}", *(word for word in chosen if word.split("=")[0] not in ("task", "size"))]
    differs = [f"{key}={value}" for key, value in sorted(differences(first).items())]
    several = ["-m"] if len(group) > 1 else []
    return " ".join(["python run.py", *several, *chosen, *differs, f"seed={','.join(map(str, group.seeds()))}"])


def group_trace(group: Group, model: str, curve: Curve, label: str = "", dash: str = "solid") -> Trace:
    """A variant's curve over seeds in its colour."""
    made = trace(f"{label or VARIANTS[model].label} (n={curve.n})", curve.epochs, curve.mean, VARIANTS[model].colour,
                 dash, command=record_command(group), missing=False, markers=False)  # fmt: skip
    if curve.n > 1:
        made |= {"low": numbers(curve.mean - curve.std), "high": numbers(curve.mean + curve.std)}
    return made


def learning_curves(records: Records) -> list[Chart]:
    """Validation perplexity on the Penn Treebank against epochs, one chart per size, and MC dropout against samples.

    Charts that have data come first.
    """
    charts = [*(_learning_curve(records, size) for size in ("medium", "large", "small")), mc_curves(records)]
    return sorted(charts, key=lambda chart: not any(made["x"] for made in chart["traces"]))


def _learning_curve(records: Records, size: str) -> Chart:
    """The records of a model: of the small size the point chosen on validation data, else the paper's rates."""
    small = size == "small"
    metric = "valid_ppl" if small else "valid_ppl_authors"
    models = sorted(TABLE1_MODELS, key=lambda model: VARIANTS[model].order)
    runs = {model: language_model(size, model) for model in models}
    groups = {model: best_on_validation(records, run) if small else records.group(run) for model, run in runs.items()}
    traces = []
    for model, group in groups.items():
        curve = group.curve(metric)
        if len(curve.epochs):
            traces.append(group_trace(group, model, curve))
            train = group.curve("train_ppl")
            label = f"{VARIANTS[model].label}, training"
            traces.append(group_trace(group, model, train, label, "dot") | {"hidden": "training, dropout on (dotted)"})
        else:
            faint = trace(f"{VARIANTS[model].label}: not run", [], [], VARIANTS[model].colour)
            traces.append(faint | {"command": commands([(runs[model], (1, 2, 3))])[0], "missing": True})
    if small:
        lines = [line(f"{one.label} ({one.valid:g})", one.valid) for one in PUBLISHED_SMALL if one.valid]
    else:
        rows = [row for row in TABLE1[size] if row.valid]
        lines = [line(f"paper: {row.label} {row.valid:g}", row.valid or 0, VARIANTS[row.model].colour) for row in rows]
    units = {"small": 200, "medium": 650, "large": 1500}[size]
    way = "" if small else ", authors' normaliser"
    return {
        "title": f"Penn Treebank, {size} model ({units} units)",
        "xlabel": "epoch",
        "ylabel": f"validation perplexity{way}",
        "xlog": False,
        "ylog": True,
        "traces": traces,
        "lines": lines,
        "yrange": _range(traces, lines),
    }


def _range(traces: list[dict[str, Any]], lines: list[dict[str, Any]]) -> list[float] | None:
    """The initial vertical range, without the first epochs, which are far above the rest (zoom out to see them)."""
    shown = [made["y"] for made in traces if made["y"] and not made.get("hidden")]
    if not shown:
        return None
    lowest = min([min(y) for y in shown] + [one["value"] for one in lines])
    return [0.94 * lowest, 1.25 * max([y[-1] for y in shown] + [one["value"] for one in lines])]


def mc_curves(records: Records) -> Chart:
    """Test perplexity against the number of MC samples, with the dropout approximation as a line."""
    traces, lines = [], []
    for model in ("variational_untied", "variational_tied"):
        for size in ("small", "medium", "large"):
            run = language_model(size, model)
            group = best_on_validation(records, run) if size == "small" else records.group(run)
            for record in group.with_mc().records:
                curve = record.content.get("mc_curve") or {}
                plain = record.metric("test_ppl")
                if curve.get("samples") and plain is not None:
                    label = f"{VARIANTS[model].label}, {size}, seed {record.seed}"
                    one = Group((record,))
                    traces.append(trace(f"{label}: MC", curve["samples"], curve["ppl"], VARIANTS[model].colour,
                                        command=record_command(one), missing=False, markers=True))  # fmt: skip
                    lines.append(line(f"{label}: dropout approximation {plain:.2f}", plain, VARIANTS[model].colour))
    title, labels = "MC dropout", {"xlabel": "MC samples", "ylabel": "test perplexity"}
    return {"title": title, **labels, "xlog": True, "ylog": False, "traces": traces, "lines": lines}
