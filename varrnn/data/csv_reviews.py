"""A user's own rated texts: a CSV file with the columns `text` and `rating`."""

from __future__ import annotations

import csv
import io
import math
import re
from pathlib import Path
from typing import Any

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
    reader = csv.DictReader(io.StringIO(files.decode(file, content), newline=""), strict=True)
    try:
        missing = [column for column in COLUMNS if column not in (reader.fieldnames or ())]
        if missing:
            raise UserError(
                f"{file}: no column {missing[0]!r}; the first line names {reader.fieldnames}, give text,rating"
            )
        rows = [_row(file, reader.line_num, row) for row in reader]
    except csv.Error as error:
        raise UserError(
            f'{file}, line {reader.line_num}: not a valid CSV file ({error}); quote texts with "..."'
        ) from None
    if not rows:
        raise UserError(f"{file}: a header but no reviews below it")
    texts, ratings = zip(*rows)
    return Reviews(file.stem, list(texts), np.array(ratings), files.sha256_of(content))


def _row(file: Path, line: int, row: dict[Any, Any]) -> tuple[list[str], float]:
    beyond = row.pop(None, None)  # what no column of the header takes: a text cut at its comma would pass in silence
    if beyond:
        fields = f"{len(row) + len(beyond)} fields, the header has {len(row)}"
        raise UserError(f'{file}, line {line}: {fields}; quote texts with "..."')
    return _words(file, line, row), _rating(file, line, row)


def _words(file: Path, line: int, row: dict[str, str | None]) -> list[str]:
    words = WORD.findall((row["text"] or "").lower())
    if not words:
        raise UserError(f"{file}, line {line}: the text is empty; remove the row")
    return words


def _rating(file: Path, line: int, row: dict[str, str | None]) -> float:
    value = row["rating"] or ""
    try:
        rating = float(value)
    except ValueError:
        rating = math.nan
    if not math.isfinite(rating):
        raise UserError(f"{file}, line {line}: rating {value!r} is not a number; give one such as 0.7")
    return rating
