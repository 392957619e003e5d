"""Figures of uncertainty: coloured words, uncertainty against position, out-of-distribution texts, calibration."""

from __future__ import annotations

import html
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Colormap, Normalize
from matplotlib.figure import Figure

from varrnn import fileio
from varrnn.analysis.word_uncertainty import MEASURES, WordUncertainty
from varrnn.calibration import Reliability
from varrnn.reporting.style import BLUE, GREEN, PAGE, RC, REFERENCE, VERMILION, save

COLOURS = matplotlib.colormaps["YlOrRd"]
LETTER, LINE = 0.0665, 0.175  # inches: letter width and line height of a monospaced font at 8 points
END = "<eos>"


@contextmanager
def canvas(file: Path, width: float, height: float, panels: int = 1) -> Iterator[list[Axes]]:
    """Panels in a row, saved as PNG and PDF without dates; it does not use pyplot, so no display is needed."""
    with matplotlib.rc_context(RC):
        figure = Figure(figsize=(width, height))
        yield list(figure.subplots(1, panels, squeeze=False)[0])
        save(figure, file.parent, file.stem)


def scale(values: np.ndarray) -> Normalize:
    """The upper end of the colour scale, the 98th percentile: a single word must not make all others pale."""
    return Normalize(0, scale_max(values), clip=True)


def scale_max(values: np.ndarray) -> float:
    return max(float(np.quantile(values, 0.98)), 1e-9)


def text_color(background: Sequence[float]) -> str:
    """Black on light, white on dark."""
    red, green, blue = background[:3]
    return "black" if 0.299 * red + 0.587 * green + 0.114 * blue > 0.5 else "white"


def write_words_html(words: Sequence[str], uncertainty: WordUncertainty, file: Path, title: str) -> None:
    """The text once per measure, every word coloured by its uncertainty before reading it; hover to see all numbers."""
    parts = [
        _paragraph(words, uncertainty, measure) for measure in ("mutual_information", "predictive_entropy", "surprise")
    ]
    page = f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{html.escape(title)}</title>
<style>
body {{ font: 16px/1.7 Georgia, serif; max-width: 50em; margin: 2em auto; padding: 0 1em }}
span {{ padding: 1px 2px; border-radius: 3px }}
h2 {{ font: bold 15px sans-serif; margin-top: 2em }}
small {{ font: 12px sans-serif; color: #555 }}
</style></head><body>
<h1>{html.escape(title)}</h1>
<small>The colour of a word shows the model's uncertainty before reading it. Hover over a word for its numbers.</small>
{"".join(parts)}
</body></html>
"""
    fileio.write_text(file, page)


def _paragraph(words: Sequence[str], uncertainty: WordUncertainty, measure: str) -> str:
    values = getattr(uncertainty, measure).cpu().numpy()
    norm = scale(values)
    spans = [f"<span>{html.escape(words[0])}</span>"]
    for position, (word, value) in enumerate(zip(words[1:], values)):
        colour = COLOURS(norm(value))
        numbers = "&#10;".join(
            f"{label}: {float(getattr(uncertainty, name)[position]):.3f}" for name, label in MEASURES.items()
        )
        style = f"background:{matplotlib.colors.to_hex(colour)};color:{text_color(colour)}"
        shown = "&para;" if word == END else html.escape(word)
        spans.append(f'<span style="{style}" title="{numbers}">{shown}</span>' + ("<br>" if word == END else ""))
    shades = "".join(
        f'<span style="background:{matplotlib.colors.to_hex(c)};color:{text_color(c)}">'
        f"{scale_max(values) * x:.2f}</span>"
        for x in (0.0, 0.25, 0.5, 0.75, 1.0)  # a colour map takes an int for the number of a colour
        for c in [COLOURS(x)]
    )
    return f"<h2>{MEASURES[measure]}, nats {shades}</h2>\n<p>{' '.join(spans)}</p>\n"


def plot_words(
    words: Sequence[str], uncertainty: WordUncertainty, file: Path, measure: str = "mutual_information"
) -> None:
    """A figure of monospaced words on a background coloured by one measure, with a new line after every sentence."""
    values = getattr(uncertainty, measure).cpu().numpy()
    norm, columns = scale(values), int((PAGE - 0.2) / LETTER)
    placed = list(_layout(words, columns))
    lines = placed[-1][0] + 1
    height = lines * LINE + 0.75
    with canvas(file, PAGE, height) as (axes,):
        assert isinstance(axes.figure, Figure)
        axes.figure.set_layout_engine("none")
        axes.set_position((0.1 / PAGE, 0.6 / height, 1 - 0.2 / PAGE, 1 - 0.7 / height))
        axes.set(xlim=(0, columns), ylim=(lines, 0))
        axes.axis("off")
        for (line, column, shown), value in zip(placed, [None, *values]):
            colour = (1.0, 1.0, 1.0, 1.0) if value is None else COLOURS(norm(value))
            axes.add_patch(
                matplotlib.patches.Rectangle((column - 0.3, line + 0.08), len(shown) + 0.6, 0.84, color=colour, lw=0)
            )
            axes.text(
                column,
                line + 0.54,
                shown,
                color=text_color(colour),
                family="monospace",
                fontsize=8,
                va="center_baseline",
            )
        _add_colorbar(axes, norm, COLOURS, MEASURES[measure], height)


def _layout(words: Sequence[str], columns: int) -> Iterator[tuple[int, int, str]]:
    """(line, column, word) of every word."""
    line = column = 0
    for word in words:
        shown = "¶" if word == END else word
        if column and column + len(shown) > columns:
            line, column = line + 1, 0
        yield line, column, shown
        line, column = (line + 1, 0) if word == END else (line, column + len(shown) + 1)


def _add_colorbar(axes: Axes, norm: Normalize, colours: Colormap, label: str, height: float) -> None:
    box = axes.figure.add_axes((0.25, 0.36 / height, 0.5, 0.11 / height))
    bar = axes.figure.colorbar(ScalarMappable(norm, colours), cax=box, orientation="horizontal", extend="max")
    bar.set_label(f"{label}, nats")


def plot_positions(uncertainty: Mapping[str, np.ndarray], file: Path) -> None:
    """Mean over sequences of every measure (sequences, positions), against the words read so far; band: 2 s.e."""
    with canvas(file, PAGE, 2.5, 2) as panels:
        left = (("surprise", REFERENCE, "-"), ("predictive_entropy", BLUE, "-"), ("expected_entropy", GREEN, "--"))
        for axes, lines in zip(panels, (left, (("mutual_information", VERMILION, "-"),))):
            for measure, colour, style in lines:
                _plot_band(axes, uncertainty[measure], MEASURES[measure], colour, style)
            axes.set(xlabel="words read since the zero state", ylabel="nats per word", xscale="log")
            axes.xaxis.set_major_formatter("{x:g}")
            axes.legend(loc="best")
        panels[1].set_ylim(bottom=0)


def _plot_band(axes: Axes, table: np.ndarray, label: str, colour: str, style: str) -> None:
    """Average positions in groups of growing size, to reduce noise in the right half of a log axis."""
    edges = np.unique(np.geomspace(1, table.shape[1] + 1, 24).astype(int))
    groups = [table[:, a - 1 : b - 1].mean(1) for a, b in pairwise(edges)]
    positions = [(a + b - 1) / 2 for a, b in pairwise(edges)]
    mean = np.array([g.mean() for g in groups])
    error = np.array([2 * g.std(ddof=1) / np.sqrt(len(g)) for g in groups])
    axes.plot(positions, mean, color=colour, linestyle=style, label=label)
    axes.fill_between(positions, mean - error, mean + error, color=colour, alpha=0.2, lw=0)


def plot_domains(texts: Mapping[str, WordUncertainty], scores: Mapping[str, Mapping[str, float]], file: Path) -> None:
    """Every measure on the test text and on other texts: quartiles as boxes, 5th to 95th percentile as whiskers."""
    shown = ("predictive_entropy", "mutual_information", "surprise")
    with canvas(file, PAGE, 0.9 + 0.35 * len(texts), len(shown)) as panels:
        for axes, measure in zip(panels, shown):
            values = [getattr(uncertainty, measure).cpu().numpy() for uncertainty in texts.values()]
            boxes = axes.boxplot(
                values, orientation="horizontal", whis=(5, 95), showfliers=False, patch_artist=True, widths=0.6
            )
            for box, colour in zip(boxes["boxes"], (BLUE, VERMILION, GREEN)):
                box.set(facecolor=colour, alpha=0.5)
            for line in boxes["medians"]:
                line.set(color="black")
            axes.set_yticks(range(1, len(texts) + 1), list(texts) if axes is panels[0] else [""] * len(texts))
            axes.invert_yaxis()
            axes.set(title=MEASURES[measure], xlabel="nats per word")
            for row, name in enumerate(texts, 1):
                if name in scores:
                    at: dict[str, Any] = {"transform": axes.get_yaxis_transform(), "va": "center", "fontsize": 6.5}
                    axes.text(1.0, row, f"AUROC\n{scores[name][measure]:.2f}", ha="left", **at)


def plot_reliability(diagrams: Mapping[str, Reliability], file: Path) -> None:
    """Reliability diagram (left) and histogram of the confidence (right)."""
    with canvas(file, PAGE, 2.8, 2) as (axes, counts):
        axes.plot([0, 1], [0, 1], color=REFERENCE, lw=0.8, ls=":")
        for (name, diagram), colour, mark in zip(diagrams.items(), (VERMILION, BLUE), ("s", "o")):
            label = f"{name}: ECE {diagram.ece:.3f}"
            axes.plot(diagram.confidence.cpu(), diagram.accuracy.cpu(), color=colour, marker=mark, ms=3, label=label)
            assert diagram.counts is not None
            share = (diagram.counts / diagram.counts.sum()).cpu().numpy()
            edges = np.linspace(0, 1, diagram.bins + 1)
            counts.stairs(share, edges, color=colour, label=name)
        axes.set(xlabel="confidence in the most likely word", ylabel="accuracy", xlim=(0, 1), ylim=(0, 1))
        counts.set(xlabel="confidence", ylabel="share of predictions", xlim=(0, 1))
        axes.legend(loc="upper left")
        counts.legend(loc="upper right")


def plot_regression(
    sd: np.ndarray, error: np.ndarray, levels: np.ndarray, held: Mapping[str, np.ndarray], file: Path
) -> None:
    """Left: error against predictive standard deviation. Right: coverage of the predictive intervals."""
    with canvas(file, PAGE, 2.8, 2) as (left, right):
        left.scatter(sd, np.abs(error), s=4, color=BLUE, alpha=0.25, lw=0, label="one text")
        order = np.array_split(np.argsort(sd), 10)
        positions = [float(np.sqrt(np.mean(sd[part] ** 2))) for part in order]
        rms = [float(np.sqrt(np.mean(error[part] ** 2))) for part in order]
        left.plot(positions, rms, "o-", color=VERMILION, ms=4, label="root mean square per decile")
        ends = np.array([sd.min(), sd.max()])
        left.plot(ends, ends, color=REFERENCE, ls=":", lw=0.8, label="error = deviation")
        left.set(xlabel="predictive standard deviation", ylabel="absolute error of the MC mean")
        left.set_ylim(0, 1.35 * np.abs(error).max())  # space for the legend
        left.legend(loc="upper left")
        right.plot([0, 1], [0, 1], color=REFERENCE, ls=":", lw=0.8)
        for (name, share), colour in zip(held.items(), (VERMILION, BLUE)):
            right.plot(levels, share, "o-", color=colour, ms=3, label=name)
        right.set(xlabel="nominal coverage", ylabel="observed coverage", xlim=(0, 1), ylim=(0, 1))
        right.legend(loc="upper left")
