"""The schema of records; a damaged record is reported with its file and entry before it is used."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from varrnn.config.schema import CHOICE_GROUPS
from varrnn.errors import UserError

SUMMARY_FILE = "summary.json"  # in the folder of a finished or unstable run
FINISHED, UNSTABLE = "finished", "unstable"
EXTENDED = "going on"  # a finished run that is being trained further


class Entry(NamedTuple):
    """The validity check of an entry, and a description of valid values."""

    is_valid: Callable[[Any], bool]
    description: str


def is_int(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def is_number(value: Any) -> bool:
    """A number, or null if it is not finite or was not measured."""
    return value is None or (isinstance(value, int | float) and not isinstance(value, bool))


def is_number_mapping(value: Any) -> bool:
    return isinstance(value, Mapping) and all(is_number(entry) for entry in value.values())


def is_mapping(value: Any) -> bool:
    return isinstance(value, Mapping)


def is_mapping_or_null(value: Any) -> bool:
    return value is None or isinstance(value, Mapping)


def has_choices(value: Any) -> bool:
    return isinstance(value, Mapping) and all(isinstance(value.get(group), str) for group in CHOICE_GROUPS)


def is_history(value: Any) -> bool:
    """Columns of one value per epoch, all as long as the column `epoch`."""
    if not isinstance(value, Mapping) or not all(isinstance(column, list) for column in value.values()):
        return False
    same = "epoch" in value and all(len(column) == len(value["epoch"]) for column in value.values())
    return same and all(map(is_int, value["epoch"])) and all(is_number(x) for column in value.values() for x in column)


def is_batch_losses(value: Any) -> bool:
    return value is None or (isinstance(value, Mapping) and all(map(is_number, value.get("train_loss") or ())))


CHOSEN = Entry(has_choices, f"the names of {', '.join(CHOICE_GROUPS)}")
NUMBERS = Entry(is_number_mapping, "numbers by their names")
SUMMARY = {
    "choices": CHOSEN,
    "diff": Entry(is_mapping, "options by their names"),
    "seed": Entry(is_int, "a whole number"),
    "status": Entry(lambda value: isinstance(value, str), "a word"),
    "config": Entry(is_mapping, "options by their names"),
    "metrics": NUMBERS,
}
RUN = SUMMARY | {"history": Entry(is_history, "columns of numbers, as many as there are epochs")}
OPTIONAL = {
    "batches": Entry(is_batch_losses, "the train loss of every batch"),
    **dict.fromkeys(
        ("data", "hardware", "mc", "mc_curve", "machine"), Entry(is_mapping_or_null, "entries by their names")
    ),
}
ENSEMBLE = {
    "choices": CHOSEN,
    "members": Entry(is_int, "a whole number"),
    "mc": Entry(lambda value: isinstance(value, bool), "true or false"),
    "metrics": NUMBERS,
}

GPU_CHECK = {
    "machine": Entry(is_mapping, "entries by their names"),
    "tests": Entry(is_mapping, "numbers of tests, and the names of those that failed"),
    "training": Entry(is_mapping, "updates with and without a CUDA graph"),
}
KINDS = {"ensemble": ENSEMBLE, "gpu_check": GPU_CHECK}  # published in addition to runs


def validation_error(
    content: Mapping[str, Any], shape: Mapping[str, Entry], optional: Mapping[str, Entry] = OPTIONAL
) -> str:
    """The first error of a record, or ""."""
    absent = [key for key in shape if key not in content]
    if absent:
        return f"no {', '.join(absent)} in this record"
    for key, entry in {**optional, **shape}.items():
        if key in content and not entry.is_valid(content[key]):
            return f"{key} is {json.dumps(content[key])[:40]}, it should be {entry.description}"
    return ""


def check(path: Path, content: Mapping[str, Any], shape: Mapping[str, Entry], hint: str) -> None:
    """Raise for a damaged record."""
    found = validation_error(content, shape)
    if found:
        raise UserError(f"{path}: {found}; {hint}")
