"""A user's own rated texts: a CSV file with the columns `text` and `rating`."""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from varrnn.data import files
from varrnn.data.reviews import Reviews
from varrnn.errors import UserError

COLUMNS = ("text", "rating")
WORD = re.compile(r"\w+(?:['’-]\w+)*|[^\w\s]")


def load(path: str) -> Reviews:
    """Texts in lower case, punctuation as words of its own; ratings on any scale. Other columns are ignored."""
    file = Path(path).expanduser()
    content = files.read(file)
    lines = _lines(file, files.decode(file, content))
    _, header = next(lines, (1, []))
    missing = [column for column in COLUMNS if column not in header]
    if missing:
        raise UserError(f"{file}: no column {missing[0]!r}; the first line names {header}, give text,rating")
    rows = [_row(file, line, header, fields) for line, fields in lines]
    if not rows:
        raise UserError(f"{file}: a header but no reviews below it")
    texts, ratings = zip(*rows)
    return Reviews("reviews", list(texts), np.array(ratings), files.sha256_of(content), source=str(file))


def _lines(file: Path, text: str) -> Iterator[tuple[int, list[str]]]:
    """Every row that is not blank, with the line in which it begins: a quoted text may go on over several."""
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    begin = 1
    try:
        for fields in reader:
            if fields:
                yield begin, fields
            begin = reader.line_num + 1
    except csv.Error as error:
        raise UserError(f'{file}, line {begin}: not a valid CSV file ({error}); quote texts with "..."') from None


def _row(file: Path, line: int, header: list[str], fields: list[str]) -> tuple[list[str], float]:
    if len(fields) > len(header):  # a text cut at its comma would pass in silence
        count = f"{len(fields)} fields, the header has {len(header)}"
        raise UserError(f'{file}, line {line}: {count}; quote texts with "..."')
    row = dict(zip(header, fields))
    return _words(file, line, row), _rating(file, line, row)


def _words(file: Path, line: int, row: dict[str, str]) -> list[str]:
    words = WORD.findall(row.get("text", "").lower())
    if not words:
        raise UserError(f"{file}, line {line}: the text is empty; remove the row")
    return words


def _rating(file: Path, line: int, row: dict[str, str]) -> float:
    value = row.get("rating", "")
    try:
        rating = float(value)
    except ValueError:
        rating = math.nan
    if not math.isfinite(rating):
        raise UserError(f"{file}, line {line}: rating {value!r} is not a number; give one such as 0.7")
    return rating
