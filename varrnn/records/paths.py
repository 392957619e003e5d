"""The path of a record below results/records, and its relocation when a default changes.

A folder's name lists the options that differ from the defaults. When a default changes (for example a tuned dropout
rate), the path of an older record names another run: `relocate` moves such records to their path under the current
defaults.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from varrnn import fileio
from varrnn.config.compose import COMPOSE_ERRORS, defaults, relative_dir
from varrnn.config.identity import SEED_KEYS
from varrnn.config.schema import EPOCHS_KEY
from varrnn.errors import UserError
from varrnn.records import integrity
from varrnn.records.schema import FINISHED
from varrnn.records.store import RECORDS, TMP_SUFFIX, Record, json_files, load, read, read_json

SAMPLES = "mc_samples"  # a column of sentiment runs
BY_MC = ("_mc", "_ll")  # suffixes of the columns that depend on it
TIMES = ("wps_train", "wps_authors", "seconds")  # columns that differ in every training


def relative_path(record: Record) -> Path:
    """`ptb/small/naive/lstm/paper/model.p_W=0.15,model.p_y=0.15/seed_1.json`, by the current defaults.

    An extended sentiment run has the path of the shorter run and replaces it (see `identity.matches`). A language model
    with another number of epochs is another run with another path.
    """
    differs = differences(record)
    if record.identity.extendable:
        differs.pop(EPOCHS_KEY, None)
    return Path(f"{relative_dir(dict(record.choices), differs, record.seed)}.json")


def benchmark_path(machine: Mapping[str, Any], folder: Path = RECORDS) -> Path:
    """`results/records/benchmark/amd_epyc_avx512_l3_32768_kb_2_cores.json`: processors of one name differ in these."""
    return folder / "benchmark" / _machine_file(machine)


def library_path(machine: Mapping[str, Any], folder: Path = RECORDS) -> Path:
    """The record of our layers compared with torch's; one file for each machine too."""
    return folder / "library" / _machine_file(machine)


def _machine_file(machine: Mapping[str, Any]) -> str:
    last = (machine.get("caches") or {}).get("l3_kb")
    parts = (machine["cpu"], machine.get("instructions"), last and f"l3 {last} kb", machine["cores"], "cores")
    name = machine["gpu"] or " ".join(str(part) for part in parts if part)
    if machine.get("precision", "highest") != "highest":  # TF32: another speed of the same GPU
        name += f" precision {machine['precision']}"
    return f"{re.sub('[^a-z0-9]+', '_', name.lower()).strip('_')}.json"


def differences(record: Record) -> dict[str, Any]:
    """The options that differ from the defaults of the record's choices."""
    try:
        current_defaults = _defaults(tuple(record.choices.items()))
    except COMPOSE_ERRORS:  # a choice from a --config-dir: its defaults are unknown, so use the recorded ones
        return dict(record.diff)
    options = record.identity.options
    compared = (key for key in current_defaults if key in options and key not in SEED_KEYS)
    return {key: options[key] for key in compared if options[key] != current_defaults[key]}


@functools.cache
def _defaults(choices: tuple[tuple[str, str], ...]) -> dict[str, Any]:
    """Cached: composing takes a tenth of a second, and most records share their choices."""
    return defaults(dict(choices))


def check_overwrite(record: Record, path: Path) -> None:
    """Raise unless the new record is the same run with at least as many epochs and MC samples."""
    if not path.is_file():
        return
    old = read(path)
    if relative_path(old) != relative_path(record):
        raise UserError(
            f"{path} is the record of another run; since a default changed, its path is {relative_path(old)}; "
            "`python scripts/publish.py --relocate` moves every record to its path"
        )
    if old.status == FINISHED and record.status != FINISHED:
        raise UserError(f"{path} is of a finished run, this run is {record.status}; remove that record to replace it")
    samples, before = (one.metric("mc_samples") or 0 for one in (record, old))
    if old.epochs == record.epochs and samples < before:
        raise UserError(f"{path} has MC dropout with more samples than this run; remove that record to replace it")
    if old.epochs == record.epochs and record.mc_word_dropout and before and not old.mc_word_dropout:
        raise UserError(f"{path} has MC dropout without word dropout, this run with; remove that record to replace it")
    if old.epochs > record.epochs:
        raise UserError(
            f"{path} has {old.epochs} epochs and this run {record.epochs}; remove that record to replace it"
        )
    if other := first_difference(old, record):
        raise UserError(f"{path} is of another training of this run ({other}); remove that record to replace it")


def first_difference(old: Record, new: Record) -> str:
    """The first difference between the curves of two records, or "": an extended run has the epochs of the shorter run.

    Values are not compared where one of them was not measured (MC is also measured at a run's last epoch), or was
    measured with another number of MC samples (the last tenth of a run has more).
    """
    for row, epoch in enumerate(old.history["epoch"]):
        sampled = mc_samples(old, row) == mc_samples(new, row)
        for column in (name for name in old.history if name in new.history and name not in TIMES):
            if not sampled and (column.endswith(BY_MC) or column == SAMPLES):
                continue
            there, here = (one.history[column][row] for one in (old, new))
            if None not in (there, here) and there != here:
                return f"epoch {epoch}: {column} is {there} there and {here} here"
    return ""


def mc_samples(record: Record, row: int) -> Any:
    """The number of MC samples of an epoch; older records, without this column, have one number for all epochs."""
    column = record.history.get(SAMPLES)
    found = None if column is None else column[row]
    return record.options.get(f"task.{SAMPLES}") if found is None else found


def add_digests(folder: Path) -> None:
    """Add the digest to every record that has none."""
    for path in json_files(folder):
        content = read_json(path)
        if integrity.DIGEST not in content:
            integrity.write(path, content)


def relocate(folder: Path = RECORDS) -> list[tuple[Path, Path]]:
    """Move every record of a run to its path; returns (from, to) of those that were moved.

    A record of an early version, without a digest, gets one; an edited record is rejected.
    """
    add_digests(folder)
    moves = [(record.path, folder / relative_path(record)) for record in load(folder).runs]
    wanted: dict[Path, Path] = {}
    for old, new in moves:
        if new in wanted:
            raise UserError(f"{old} and {wanted[new]} are records of the same run; remove one of them")
        wanted[new] = old
    moves = [(old, new) for old, new in moves if old != new]
    for _, new in moves:
        fileio.make_folder(new.parent)  # check that it is writable before anything is moved
    waiting = [(old.rename(old.with_suffix(TMP_SUFFIX)), new) for old, new in moves]  # two records may swap paths
    for old, new in waiting:
        old.rename(new)
    for emptied in {old.parent for old, _ in waiting}:
        if not any(emptied.iterdir()):
            emptied.rmdir()
    return moves
