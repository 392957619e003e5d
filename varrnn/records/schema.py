"""What a record must look like: of a damaged one the file and the entry are named before anything is made of it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from varrnn.config.schema import CHOICES
from varrnn.errors import UserError

SUMMARY_FILE = "summary.json"  # in the folder of a run that has ended
FINISHED, UNSTABLE = "finished", "unstable"
GOING_ON = "going on"  # a finished run that is being trained further


class Entry(NamedTuple):
    """How to tell that an entry is sound, and what it should be, in words."""

    sound: Callable[[Any], bool]
    words: str


def whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def number(value: Any) -> bool:
    """A number, or null where it is not finite or was not measured."""
    return value is None or (isinstance(value, int | float) and not isinstance(value, bool))


def numbers(value: Any) -> bool:
    return isinstance(value, Mapping) and all(number(entry) for entry in value.values())


def tree(value: Any) -> bool:
    return isinstance(value, Mapping)


def tree_or_null(value: Any) -> bool:
    return value is None or isinstance(value, Mapping)


def choices(value: Any) -> bool:
    return isinstance(value, Mapping) and all(isinstance(value.get(group), str) for group in CHOICES)


def columns(value: Any) -> bool:
    """Epoch by epoch, every column as long as the one that counts them."""
    if not isinstance(value, Mapping) or not all(isinstance(column, list) for column in value.values()):
        return False
    same = "epoch" in value and all(len(column) == len(value["epoch"]) for column in value.values())
    return same and all(map(whole, value["epoch"])) and all(number(x) for column in value.values() for x in column)


def losses(value: Any) -> bool:
    return value is None or (isinstance(value, Mapping) and all(map(number, value.get("train_loss") or ())))


CHOSEN = Entry(choices, f"the names of {', '.join(CHOICES)}")
NUMBERS = Entry(numbers, "numbers by their names")
SUMMARY = {
    "choices": CHOSEN,
    "diff": Entry(tree, "options by their names"),
    "seed": Entry(whole, "a whole number"),
    "status": Entry(lambda value: isinstance(value, str), "a word"),
    "config": Entry(tree, "options by their names"),
    "metrics": NUMBERS,
}
RUN = SUMMARY | {"history": Entry(columns, "columns of numbers, as many as there are epochs")}
OPTIONAL = {
    "batches": Entry(losses, "the train loss of every batch"),
    **dict.fromkeys(("data", "hardware", "mc", "mc_curve", "machine"), Entry(tree_or_null, "entries by their names")),
}
ENSEMBLE = {
    "choices": CHOSEN,
    "members": Entry(whole, "a whole number"),
    "mc": Entry(lambda value: isinstance(value, bool), "true or false"),
    "metrics": NUMBERS,
}


def fault(content: Mapping[str, Any], shape: Mapping[str, Entry], optional: Mapping[str, Entry] = OPTIONAL) -> str:
    """What is wrong with a record; "" where nothing is."""
    absent = [key for key in shape if key not in content]
    if absent:
        return f"no {', '.join(absent)} in this record"
    for key, entry in {**optional, **shape}.items():
        if key in content and not entry.sound(content[key]):
            return f"{key} is {json.dumps(content[key])[:40]}, it should be {entry.words}"
    return ""


def check(path: Path, content: Mapping[str, Any], shape: Mapping[str, Entry], way_out: str) -> None:
    """Refuse a damaged record."""
    found = fault(content, shape)
    if found:
        raise UserError(f"{path}: {found}; {way_out}")
