"""A table of text cells, written as Markdown, LaTeX and CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from varrnn import fileio

NOT_RUN = "not run"
DASH = "–"


@dataclass(frozen=True)
class Table:
    """Cells as text; the first column is left-aligned, the others are numbers."""

    name: str
    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    note: str = ""
    numbers: bool = True  # False: text, left-aligned

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
        target = fileio.make_folder(folder / "tables")
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
