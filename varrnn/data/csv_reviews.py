"""Rated texts from the user's CSV file with the columns `text` and `rating`."""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from varrnn.data import files
from varrnn.data.reviews import Reviews
from varrnn.errors import UserError

COLUMNS = ("text", "rating")
DELIMITERS = ",;\t|"
LARGEST = 1e18  # squares of much larger ratings overflow in float32
LONGEST_FIELD = 2**31 - 1  # characters; the default of the csv module is 131,072
WORD = re.compile(r"\w+(?:['’-]\w+)*|[^\w\s]")


def load(path: str) -> Reviews:
    """Texts in lower case, with each punctuation mark as a word; ratings on any scale. Other columns are ignored.

    The delimiter is detected from the header. Column names may be in any case, with spaces around them.
    """
    file = Path(path).expanduser()
    content = files.read(file)
    header, rows = read_table(file, content, COLUMNS)
    if not rows:
        raise UserError(f"{file}: the file has a header but no reviews; add rows")
    texts, ratings = zip(*(_row(file, line, header, fields) for line, fields in rows))
    return Reviews("reviews", list(texts), np.array(ratings), files.sha256_of(content), source=str(file))


def read_table(file: Path, content: bytes, required: Sequence[str]) -> tuple[list[str], list[tuple[int, list[str]]]]:
    """The column names in lower case, the required ones among them, and the rows with their line numbers."""
    limit = csv.field_size_limit(LONGEST_FIELD)
    try:
        lines = _lines(file, files.decode(file, content))
        _, named = next(lines, (1, []))
        header = [name.strip().lower() for name in named]
        for column in required:
            if header.count(column) != 1:
                count = "no column" if column not in header else f"{header.count(column)} columns"
                raise UserError(f"{file}: {count} {column!r}; the first line names {named}, give {','.join(required)}")
        rows = list(lines)
    finally:
        csv.field_size_limit(limit)
    for line, fields in rows:
        if len(fields) > len(header):  # otherwise a text would be cut at its comma silently
            count = f"{len(fields)} fields, the header has {len(header)}"
            raise UserError(f'{file}, line {line}: {count}; quote texts with "..."')
    return header, rows


def _lines(file: Path, text: str) -> Iterator[tuple[int, list[str]]]:
    """Every non-blank row with the number of its first line; a quoted text may span several lines."""
    source = io.StringIO(text, newline="")
    reader = csv.reader(source, delimiter=_delimiter(text), skipinitialspace=True, strict=True)
    begin = 1
    try:
        for fields in reader:
            if fields:
                yield begin, fields
            begin = reader.line_num + 1
    except csv.Error as error:
        raise UserError(f'{file}, line {begin}: not a valid CSV file ({error}); quote texts with "..."') from None


def _delimiter(text: str) -> str:
    """The delimiter that csv.Sniffer finds in the header; a comma if it finds none."""
    header = next((line for line in text.splitlines() if line.strip()), "")
    try:
        return csv.Sniffer().sniff(header, DELIMITERS).delimiter
    except csv.Error:  # e.g. a single column, which the check of column names rejects
        return ","


def _row(file: Path, line: int, header: list[str], fields: list[str]) -> tuple[list[str], float]:
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
    if abs(rating) > LARGEST:
        raise UserError(f"{file}, line {line}: rating {value} is beyond {LARGEST:g}; rescale all ratings")
    return rating
