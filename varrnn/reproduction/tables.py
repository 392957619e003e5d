"""Tables from records, as Markdown, LaTeX and CSV: ours beside the paper's, "not run" where a record is missing."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from varrnn import fileio
from varrnn.records.store import Group

NOT_RUN = "not run"
DASH = "–"


@dataclass(frozen=True)
class Table:
    """Cells as text; the first column is aligned on the left, the others are numbers."""

    name: str
    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    note: str = ""
    numbers: bool = True  # False: sentences, aligned on the left

    def markdown(self) -> str:
        escaped = [[cell.replace("|", "\\|") for cell in row] for row in (self.columns, *self.rows)]
        lines = ["| " + " | ".join(row) + " |" for row in escaped]
        rule = "|---|" + ("--:|" if self.numbers else "---|") * (len(self.columns) - 1)
        return "\n".join([lines[0], rule, *lines[1:]])

    def document(self) -> str:
        """The Markdown file: title, table, note."""
        return "\n\n".join(part for part in (f"**{self.title}**", self.markdown(), self.note) if part) + "\n"

    def latex(self) -> str:
        lines = [" & ".join(map(_tex, row)) + r" \\" for row in (self.columns, *self.rows)]
        head = rf"\begin{{tabular}}{{l{'r' * (len(self.columns) - 1)}}}"
        body = [r"\hline", lines[0], r"\hline", *lines[1:], r"\hline", r"\end{tabular}"]
        return "\n".join([f"% {self.title}", head, *body]) + "\n"

    def csv(self) -> str:
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows([self.columns, *self.rows])
        return text.getvalue()

    def write(self, folder: Path) -> list[Path]:
        """name.md, name.tex and name.csv below results/tables."""
        target = fileio.folder(folder / "tables")
        written = []
        for suffix, text in ((".md", self.document()), (".tex", self.latex()), (".csv", self.csv())):
            path = target / f"{self.name}{suffix}"
            fileio.write_text(path, text)
            written.append(path)
        return written


TEX = {"&": r"\&", "%": r"\%", "_": r"\_", "±": r"$\pm$", DASH: "--", "×": r"$\times$", "λ": r"$\lambda$", "**": ""}


def _tex(cell: str) -> str:
    for sign, tex in TEX.items():
        cell = cell.replace(sign, tex)
    return cell


def mean_sd(group: Group, metric: str, digits: int = 1) -> str:
    """ "81.8 ± 0.2"; no deviation for one seed; "not run" without a record, a dash where it was not measured."""
    if not group.records:
        return NOT_RUN
    mean, sd = group.mean(metric), group.std(metric)
    if mean is None:
        return DASH
    return f"{mean:.{digits}f}" + (f" ± {sd:.{digits}f}" if sd is not None else "")


def mc_cell(group: Group) -> str:
    """Test perplexity by MC dropout; how many samples where not the paper's 1000, how many seeds where not all."""
    sampled = group.with_mc()
    if not sampled.records:
        return DASH if group.records else NOT_RUN
    samples = sampled.mean("mc_samples")
    unusual = [f"{samples:.0f} samples"] if samples is not None and samples != 1000 else []
    unusual += [f"n={len(sampled)}"] if len(sampled) < len(group) else []
    return mean_sd(sampled, "test_ppl_mc") + (f" ({', '.join(unusual)})" if unusual else "")


def difference(group: Group, metric: str, published: float | None, digits: int = 1) -> str:
    """Ours minus the paper's."""
    mean = group.mean(metric)
    return DASH if mean is None or published is None else f"{mean - published:+.{digits}f}"


def published(value: float | None, sd: float | None = None, digits: int = 1) -> str:
    if value is None:
        return DASH
    return f"{value:.{digits}f}" + (f" ± {sd:.{digits}f}" if sd is not None else "")


def thousands(value: float | None) -> str:
    """Words per second as in Table 1: 4.7K."""
    return DASH if value is None else f"{value / 1000:.1f}K"


def moved(group: Group) -> bool:
    """Was one of the runs continued on other hardware? Its words per second are then those of neither."""
    return any((record.content.get("hardware") or {}).get("earlier") for record in group.records)


def hardware(groups: Iterable[Group]) -> str:
    """What the runs ran on: the GPU, or the CPU with its threads; and where those that have moved began."""
    found = []
    for record in (record for group in groups for record in group.records):
        info = record.content.get("hardware") or {}
        threads = info.get("threads", "?")
        cpu = f"{info.get('cpu', 'unknown CPU')}, {threads} thread{'' if threads == 1 else 's'}"
        found += [info.get("gpu") or cpu, *(f"begun on {place}" for place in info.get("earlier", []))]
    return "; ".join(dict.fromkeys(found)) or DASH


def seeds_cell(group: Group) -> str:
    """Number of seeds, and how many were discarded as unstable: "3", "2 (1 unstable)"."""
    return f"{len(group)}" + (f" ({group.unstable} unstable)" if group.unstable else "")
