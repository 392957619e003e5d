"""A part of a document that a script writes, between two markers; everything around it is written by hand."""

from varrnn.errors import UserError


def begin(name: str) -> str:
    return f"<!-- {name}:begin -->"


def end(name: str) -> str:
    return f"<!-- {name}:end -->"


def replaced(document: str, name: str, text: str, file: str = "README.md") -> str:
    """The document with a new text in the part of that name."""
    first, last = begin(name), end(name)
    if document.count(first) != 1 or document.count(last) != 1 or document.index(first) > document.index(last):
        raise UserError(f"{file}: the lines {first} and {last} must stand in it once each, in this order")
    before, rest = document.split(first)
    return f"{before}{first}\n{text}\n{last}{rest.split(last)[1]}"
