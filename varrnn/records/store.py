"""The records of finished runs, the only source of tables, figures and claims.

A record is the summary.json of a run, published by scripts/publish.py into results/records/. Here records are loaded,
matched to the runs that an artefact needs, and aggregated over seeds.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from varrnn.config.identity import Identity, Run, identity_of, matches
from varrnn.config.schema import EARLIER_HEADLINE, EPOCHS_KEY, effective, flatten
from varrnn.errors import UserError
from varrnn.fileio import PROJECT_ROOT
from varrnn.records import integrity
from varrnn.records import schema as record_schema
from varrnn.records.schema import UNSTABLE
from varrnn.version import SCHEMA

ROOT = PROJECT_ROOT
RECORDS = ROOT / "results" / "records"
PUBLISH_AGAIN = "delete the file and publish the run again"
TMP_SUFFIX = ".moving"  # suffix of a record while `relocate` moves it


@dataclass(frozen=True)
class Record:
    """One run: its group choices, the options that differ from them, and its results."""

    path: Path
    choices: Mapping[str, str]
    diff: Mapping[str, Any]
    seed: int
    status: str
    config: Mapping[str, Any]
    metrics: Mapping[str, float | None]
    history: Mapping[str, list]
    content: Mapping[str, Any] = field(repr=False)

    @property
    def epochs(self) -> int:
        return int(max(self.history.get("epoch", []), default=0))

    def metric(self, name: str) -> float | None:
        value = self.metrics.get(name)
        return None if value is None or not np.isfinite(value) else float(value)

    def column(self, name: str) -> tuple[np.ndarray, np.ndarray]:
        """Epochs and values of a history column, without epochs where it was not measured."""
        pairs = zip(self.history.get("epoch", []), self.history.get(name, []))
        measured = [(epoch, value) for epoch, value in pairs if value is not None and np.isfinite(value)]
        return np.array([e for e, _ in measured], dtype=int), np.array([v for _, v in measured], dtype=float)

    @property
    def error_column(self) -> str:
        """Test error by MC dropout, as the paper plots it; without dropout, the deterministic one (the same)."""
        return "test_rmse_mc" if len(self.column("test_rmse_mc")[0]) else "test_rmse"

    @property
    def train_column(self) -> str:
        """Train error by MC dropout; it is never replaced by the dropout approximation, which estimates it poorly."""
        return "train_rmse_mc" if self.rates else "train_rmse"

    @property
    def identity(self) -> Identity:
        return Identity(self.choices, effective(self.options))

    @property
    def rates(self) -> tuple[tuple[str, float], ...]:
        """The dropout rates that are not zero."""
        return self.identity.rates

    @property
    def mc_word_dropout(self) -> bool:
        """Whether this is the ablation mc.word_dropout=true, whose MC values are not comparable to others."""
        return bool((self.content.get("mc") or {}).get("word_dropout", self.options.get("mc.word_dropout")))

    @functools.cached_property
    def options(self) -> dict[str, Any]:
        """The config by dotted names, with values of early versions renamed."""
        found = flatten(self.config)
        return found | {"task.headline": "exact"} if found.get("task.headline") in EARLIER_HEADLINE else found


class Curve(NamedTuple):
    """Mean and standard deviation of a history column over seeds."""

    epochs: np.ndarray
    mean: np.ndarray
    std: np.ndarray
    n: int


@dataclass(frozen=True)
class Group:
    """The records of one setting: a list over seeds, and the number of unstable runs."""

    records: tuple[Record, ...] = ()
    unstable: int = 0

    def __len__(self) -> int:
        return len(self.records)

    def seeds(self) -> tuple[int, ...]:
        return tuple(record.seed for record in self.records)

    @property
    def epochs(self) -> int:
        return min((record.epochs for record in self.records), default=0)

    def by_seed(self, metric: str) -> dict[int, float]:
        found = {record.seed: record.metric(metric) for record in self.records}
        return {seed: value for seed, value in found.items() if value is not None}

    def mean(self, metric: str) -> float | None:
        values = list(self.by_seed(metric).values())
        return float(np.mean(values)) if values else None

    def std(self, metric: str) -> float | None:
        """Sample standard deviation over seeds; None for a single seed."""
        values = list(self.by_seed(metric).values())
        return float(np.std(values, ddof=1)) if len(values) > 1 else None

    def with_metric(self, metric: str) -> Group:
        """The records that have this metric, so that compared metrics come from the same runs."""
        return Group(tuple(record for record in self.records if record.metric(metric) is not None), self.unstable)

    def with_mc(self) -> Group:
        """The records with MC dropout on the test text without word dropout, as in the tables."""
        wanted = tuple(record for record in self.with_metric("test_ppl_mc").records if not record.mc_word_dropout)
        return Group(wanted, self.unstable)

    def curve(self, column: str) -> Curve:
        """Mean and standard deviation over seeds, at the epochs that were measured for every seed."""
        columns = [dict(zip(*record.column(column))) for record in self.records]
        columns = [values for values in columns if values]
        epochs = sorted(set.intersection(*(set(values) for values in columns))) if columns else []
        table = np.array([[values[e] for e in epochs] for values in columns]).reshape(len(columns), len(epochs))
        std = table.std(axis=0, ddof=1) if len(columns) > 1 else np.zeros(len(epochs))
        return Curve(np.array(epochs, dtype=int), table.mean(axis=0) if columns else np.array([]), std, len(columns))


@dataclass(frozen=True)
class Records:
    """All records of a folder: runs, ensembles, and benchmarks of training and of the layers alone."""

    runs: tuple[Record, ...] = ()
    ensembles: tuple[Mapping[str, Any], ...] = ()
    benchmarks: tuple[Mapping[str, Any], ...] = ()
    libraries: tuple[Mapping[str, Any], ...] = ()

    def group(self, run: Run) -> Group:
        """The records of the runs that these overrides would start, one per seed."""
        wanted = identity_of(run)
        return group_by_seed(record for record in self.runs if matches(record.identity, wanted))

    def missing(self, run: Run, seeds: Sequence[int]) -> tuple[int, ...]:
        """Seeds without a record, or whose run can be extended to more epochs; an unstable run is not missing."""
        wanted = identity_of(run)
        complete = {
            record.seed for record in self.runs if matches(record.identity, wanted) and is_complete(record, wanted)
        }
        return tuple(seed for seed in seeds if seed not in complete)

    def grid(self, run: Run) -> dict[tuple[tuple[str, float], ...], Group]:
        """Records that differ from `run` only in the dropout rates, by their rates."""
        wanted = identity_of(run)
        found: dict[tuple[tuple[str, float], ...], list[Record]] = {}
        for record in self.runs:
            if matches(record.identity, wanted, ignore_prefixes=("model.p_",)):
                found.setdefault(record.rates, []).append(record)
        return {key: group_by_seed(records) for key, records in sorted(found.items())}


def group_by_seed(records: Iterable[Record]) -> Group:
    """One record per seed: the run with the most epochs."""
    best: dict[int, Record] = {}
    unstable: set[int] = set()
    for record in sorted(records, key=lambda r: (r.epochs, str(r.path))):
        if record.status == UNSTABLE:
            unstable.add(record.seed)
        else:
            best[record.seed] = record
    return Group(tuple(best[seed] for seed in sorted(best)), len(unstable - set(best)))


def is_complete(record: Record, wanted: Identity) -> bool:
    """Whether training is complete: at the last epoch, or by early stopping."""
    stopped = record.status == UNSTABLE or bool(record.options.get("train.patience"))
    return stopped or record.epochs >= wanted.options[EPOCHS_KEY]


def load(folder: Path | str = RECORDS) -> Records:
    """Every record below a folder; a damaged file raises."""
    if not Path(folder).is_dir() and Path(folder) != RECORDS:
        raise UserError(f"{folder}: no such folder; records are published into {RECORDS.relative_to(ROOT)}")
    for stray in Path(folder).rglob(f"*{TMP_SUFFIX}"):
        hint = f"rename it to {stray.stem}_moved.json and repeat python scripts/publish.py --relocate"
        raise UserError(f"{stray}: relocating was interrupted; {hint}")
    runs, ensembles = [], []
    machines: dict[str, list[Mapping[str, Any]]] = {"benchmark": [], "library": []}
    for path in json_files(Path(folder)):
        content = read_json(path)
        if (kind := path.relative_to(folder).parts[0]) in machines:
            record_schema.check(path, content, {}, "measure again with scripts/benchmark.py --record")
            integrity.check_digest(path, content)
            machines[kind].append(content)
        elif content.get("kind") == "ensemble":
            record_schema.check(path, content, record_schema.ENSEMBLE, PUBLISH_AGAIN)
            check_integrity(path, content)
            ensembles.append(content)
        else:
            runs.append(as_record(path, content))
            check_integrity(path, content)
    for found in machines.values():
        found.sort(key=lambda benchmark: str((benchmark.get("machine") or {}).get("date", "")))
    return Records(tuple(runs), tuple(ensembles), tuple(machines["benchmark"]), tuple(machines["library"]))


def json_files(folder: Path) -> list[Path]:
    """Every JSON file below a folder of runs or records, without the files of sweeps (.sweeps)."""
    files = sorted(folder.rglob("*.json"))
    return [file for file in files if not any(part.startswith(".") for part in file.relative_to(folder).parts)]


def read_json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text())
    except ValueError as error:
        raise UserError(f"{path}: not valid JSON ({error}); {PUBLISH_AGAIN}") from error
    if not isinstance(content, dict):
        raise UserError(f"{path}: a record is a JSON object, this is a {type(content).__name__}; {PUBLISH_AGAIN}")
    return content


def read(path: Path) -> Record:
    """One record of a run."""
    content = read_json(path)
    found = as_record(path, content)
    check_integrity(path, content)
    return found


def check_integrity(path: Path, content: Mapping[str, Any]) -> None:
    """Check the schema, the digest and the data hash of a record."""
    integrity.check_known_data(path, content)
    integrity.check_digest(path, content)


def as_record(path: Path, content: Mapping[str, Any]) -> Record:
    if content.get("schema") != SCHEMA:
        raise UserError(
            f"{path}: schema is {content.get('schema')!r}, this version reads schema {SCHEMA}; {PUBLISH_AGAIN}"
        )
    record_schema.check(path, content, record_schema.RUN, PUBLISH_AGAIN)
    return Record(path=path, content=content, **{key: content[key] for key in record_schema.RUN})
