"""Words shaded by a language model's uncertainty before reading them, in a terminal and as an HTML page."""

from __future__ import annotations

import html
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

import torch

from varrnn import fileio
from varrnn.analysis.word_uncertainty import MEASURES, read_text
from varrnn.data.corpus import EOS
from varrnn.tasks.generation import Generated
from varrnn.training.trained import TrainedRun

SHADES = ("mutual_information", "predictive_entropy", "surprise")
HOT, PALE = (213, 94, 0), (255, 255, 255)


@dataclass(frozen=True)
class ShadedText:
    """A text with one number per word, in nats; the first `given` words are the prompt."""

    words: list[str]
    values: list[float]
    measure: str
    given: int = 0


def shade(run: TrainedRun, text: Generated, measure: str = SHADES[0], samples: int = 20) -> ShadedText:
    """Evaluate a text with `samples` functions from q(omega), and keep one measure of every word.

    Without dropout there is only one function: then the words are shaded by its entropy.
    """
    vocabulary = run.vocabulary
    if not run.config.model.has_dropout:
        measure, samples = "predictive_entropy" if measure == SHADES[0] else measure, 0
    before = [] if vocabulary.end is None else [vocabulary.end]
    ids = torch.tensor([*before, *text.ids], device=run.device)
    found = getattr(read_text(run.model, ids, samples, run.config.seed, run.config.mc.word_dropout), measure).tolist()
    values = found if before else [0.0, *found]  # a first word without context has no value
    return ShadedText([vocabulary.words[number] for number in text.ids], values, measure, text.prompt)


def scale_max(texts: Sequence[ShadedText]) -> float:
    """The 98th percentile of all values, so that a single word does not make all others pale."""
    values = torch.tensor([value for text in texts for value in text.values])
    return max(float(values.quantile(0.98)), 1e-9)


def has_colours(stream: TextIO = sys.stdout) -> bool:
    """Whether to use colours: in a terminal unless NO_COLOR is set (no-color.org), elsewhere with FORCE_COLOR."""
    return bool(os.environ.get("FORCE_COLOR")) or (stream.isatty() and not os.environ.get("NO_COLOR"))


def terminal_text(text: ShadedText, most: float, colours: bool) -> str:
    """Words on a shaded background, with the prompt underlined; <eos> ends a line. Without colours, only the words."""
    lines: list[list[str]] = []
    line: list[str] = []
    for position, (word, value) in enumerate(zip(text.words, text.values)):
        if word == EOS:
            lines.append(line)
            line = []
        else:
            line.append(_painted(word, value / most, position < text.given) if colours else word)
    return "\n".join(" ".join(words) for words in [*lines, line] if words)


def _painted(word: str, share: float, underlined: bool) -> str:
    """Black on a 24-bit background between white and vermilion."""
    share = min(1.0, max(0.0, share))
    red, green, blue = (round(pale + (hot - pale) * share) for pale, hot in zip(PALE, HOT))
    return f"\x1b[38;2;0;0;0;48;2;{red};{green};{blue}{';4' if underlined else ''}m{word}\x1b[0m"


def legend(texts: Sequence[ShadedText], most: float) -> str:
    """The legend of the shades, in one line."""
    return f"shade: {MEASURES[texts[0].measure]}, from 0 (white) to {most:.2f} nats"


def write_html(file: Path, texts: Sequence[ShadedText], title: str, command: str) -> None:
    """One HTML page for all texts, with light and dark mode and without network requests."""
    most = scale_max(texts)
    parts = "\n".join(f"<p>{_spans(text, most)}</p>" for text in texts)
    page = f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark"><title>{html.escape(title)}</title>
<style>
:root {{ --ground: #fbfaf7; --ink: #1d2329; --soft: #5c6670; --line: #dcdfe2 }}
@media (prefers-color-scheme: dark) {{
  :root {{ --ground: #14181c; --ink: #e6e9eb; --soft: #9aa5ad; --line: #323a41 }}
}}
body {{ font: 17px/1.9 Georgia, serif; max-width: 46em; margin: 2em auto; padding: 0 1em; background: var(--ground);
  color: var(--ink) }}
p {{ border-top: 1px solid var(--line); padding-top: .8em }}
span {{ padding: .1em .15em; border-radius: .25em }}
.given {{ text-decoration: underline; text-underline-offset: .2em }}
small, code {{ color: var(--soft); font: 13px/1.5 ui-monospace, monospace }}
</style></head><body>
<h1>{html.escape(title)}</h1>
<small>{html.escape(legend(texts, most))}; the prompt is underlined; hover over a word for its number</small>
{parts}
<code>{html.escape(command)}</code>
</body></html>
"""
    fileio.write_text(file, page)


def _spans(text: ShadedText, most: float) -> str:
    spans = []
    for position, (word, value) in enumerate(zip(text.words, text.values)):
        strength = 0.85 * min(1.0, max(0.0, value / most))
        kind = ' class="given"' if position < text.given else ""
        style = f"background:rgba({HOT[0]},{HOT[1]},{HOT[2]},{strength:.3f})"
        shown = "¶" if word == EOS else html.escape(word)
        spans.append(f'<span{kind} style="{style}" title="{value:.3f} nats">{shown}</span>' + "<br>" * (word == EOS))
    return " ".join(spans)
