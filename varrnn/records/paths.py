"""Where a record lies below results/records, and what happens to that when a default changes.

A folder's name tells what differs from the defaults. When a default changes (a rate is chosen anew), the name of an
older record means another run than before: `relocate` moves such records to where today's defaults put them.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from varrnn import fileio
from varrnn.config.compose import COMPOSE_ERRORS, defaults, relative_dir
from varrnn.config.identity import SEED_KEYS, SENTIMENT
from varrnn.config.schema import EPOCHS_KEY
from varrnn.errors import UserError
from varrnn.records import integrity
from varrnn.records.schema import FINISHED
from varrnn.records.store import RECORDS, TMP_SUFFIX, Record, json_files, load, read, read_json

SAMPLES = "mc_samples"  # a column of sentiment runs
BY_MC = ("_mc", "_ll")  # how the columns end that depend on it
TIMES = ("wps_train", "wps_authors", "seconds")  # columns that no two trainings share


def relative_path(record: Record) -> Path:
    """`ptb/small/naive/lstm/paper/model.p_W=0.15,model.p_y=0.15/seed_1.json`, by the defaults of today.

    A sentiment run that went on replaces its shorter self, as `identity.matches` has it; a language model with another
    horizon is another run, and leaves the row of a table alone.
    """
    differs = differences(record)
    if SENTIMENT in record.options:
        differs.pop(EPOCHS_KEY, None)
    return Path(f"{relative_dir(dict(record.choices), differs, record.seed)}.json")


def benchmark_path(machine: Mapping[str, Any], folder: Path = RECORDS) -> Path:
    """`results/records/benchmark/amd_epyc_2_cores.json`: one file for a machine."""
    name = machine["gpu"] or f"{machine['cpu']} {machine['cores']} cores"
    return folder / "benchmark" / f"{re.sub('[^a-z0-9]+', '_', name.lower()).strip('_')}.json"


def differences(record: Record) -> dict[str, Any]:
    """The options that differ from the defaults of the record's choices."""
    try:
        usual = _defaults(tuple(record.choices.items()))
    except COMPOSE_ERRORS:  # a choice of someone's own --config-dir: what its defaults were is what the run says
        return dict(record.diff)
    mine = record.identity.options
    compared = (key for key in usual if key in mine and key not in SEED_KEYS)
    return {key: mine[key] for key in compared if mine[key] != usual[key]}


@functools.cache
def _defaults(choices: tuple[tuple[str, str], ...]) -> dict[str, Any]:
    """Composing takes a tenth of a second, and most records share their choices with others."""
    return defaults(dict(choices))


def check_overwrite(record: Record, path: Path) -> None:
    """A record gives way to nothing but the same run that went on."""
    if not path.is_file():
        return
    old = read(path)
    if relative_path(old) != relative_path(record):
        raise UserError(
            f"{path} is the record of another run, which a changed default has moved to {relative_path(old)}; "
            "`python scripts/publish.py --relocate` puts every record where it belongs"
        )
    if old.status == FINISHED and record.status != FINISHED:
        raise UserError(f"{path} is of a finished run, this one is {record.status}; remove that record to replace it")
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
    """Where the curves of two records part, or "": a run that went on repeats every epoch of its shorter self.

    What one of them did not measure (MC is measured at a run's last epoch too) tells nothing, and neither does what
    they measured with different numbers of MC samples (the last tenth of a run has more).
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
    """With how many samples an epoch was measured; records from before this was a column had one number for all."""
    column = record.history.get(SAMPLES)
    found = None if column is None else column[row]
    return record.options.get(f"task.{SAMPLES}") if found is None else found


def add_digests(folder: Path) -> None:
    """Give every record that has no digest the one of its content."""
    for path in json_files(folder):
        content = read_json(path)
        if integrity.DIGEST not in content:
            integrity.write(path, content)


def relocate(folder: Path = RECORDS) -> list[tuple[Path, Path]]:
    """Move every record of a run to its place; returns (from, to) of those that were elsewhere.

    A record of an early version, which has no digest, gets one; one that was edited is rejected as everywhere.
    """
    add_digests(folder)
    moves = [(record.path, folder / relative_path(record)) for record in load(folder).runs]
    wanted: dict[Path, Path] = {}
    for old, new in moves:
        if new in wanted:
            raise UserError(f"{old} and {wanted[new]} are records of one run; remove the one that is not wanted")
        wanted[new] = old
    moves = [(old, new) for old, new in moves if old != new]
    for _, new in moves:
        fileio.folder(new.parent)  # before anything is moved
    waiting = [(old.rename(old.with_suffix(TMP_SUFFIX)), new) for old, new in moves]  # two may change places
    for old, new in waiting:
        old.rename(new)
    for emptied in {old.parent for old, _ in waiting}:
        if not any(emptied.iterdir()):
            emptied.rmdir()
    return moves
