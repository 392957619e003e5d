"""Turn a run's summary.json into a record that can be committed: checked, without paths, and compressed."""

from __future__ import annotations

import json
import math
import re
import socket
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np

from varrnn.config import schema
from varrnn.config.schema import EPOCHS_KEY, flatten
from varrnn.errors import UserError
from varrnn.records import integrity
from varrnn.records import schema as record_schema
from varrnn.records.integrity import KNOWN_DATA
from varrnn.records.schema import FINISHED, SUMMARY_FILE, UNSTABLE
from varrnn.records.store import RECORDS, ROOT, as_record
from varrnn.version import SCHEMA

BUILT_IN = ("pydoc", "synthetic_reviews")  # their hash depends on the Python version, so only its presence is checked
RECORD_KEYS = (
    *("schema", "status", "reason", "choices", "diff", "seed", "config"),
    *("metrics", "history", "batches", "mc", "mc_curve", "duration", "peak_memory_mb"),
    *("data", "commit", "commits", "dirty", "versions", "hardware"),
)
PATHS = ("runs_root", "run_dir", "path", "csv", "train", "valid", "test", "hostname", "host", "node")
BATCHES = 1000  # maximum number of points of the train loss per batch
DIGITS = 6


def publish(folder: Path, records: Path = RECORDS, repository: Path = ROOT) -> Path:
    """Write the record of a run (its folder), an ensemble or a GPU check (its file).

    Raises if it cannot serve as evidence.
    """
    summary = read(folder)
    if summary.get("kind") == "gpu_check":
        return publish_gpu_check(folder, summary, records, repository)
    ensemble = summary.get("kind") == "ensemble"
    if not ensemble:
        check_finished(folder, summary)
    check_commits(folder, summary, repository)
    check_data(folder, summary)
    record = summary if ensemble else compress(anonymize(summary))
    check_no_paths(folder, record)
    path = ensemble_path(folder, record, records) if ensemble else record_path(record, records)
    integrity.write(path, record)
    return path


def publish_gpu_check(file: Path, found: dict[str, Any], records: Path, repository: Path) -> Path:
    """A benchmark record with the tests and the updates behind it; reject one whose tests failed."""
    from varrnn.records.paths import benchmark_path

    machine, tests = found["machine"], found["tests"]
    if not isinstance(machine.get("gpu"), str):
        raise UserError(f"{file}: no GPU is named in it; run `make gpu-check` on a machine with one")
    if tests.get("failed") != 0 or not tests.get("passed"):
        names = ", ".join(tests.get("failures") or [])
        raise UserError(
            f"{file}: {tests.get('failed')} of its tests failed ({names}), {tests.get('passed')} passed, so its speed "
            "is not evidence; send us the file in an issue"
        )
    check_commits(file, {"commit": machine.get("commit")}, repository)
    check_no_paths(file, found)
    path = benchmark_path(machine, records)
    integrity.write(path, found)
    return path


def record_path(record: Mapping[str, Any], records: Path) -> Path:
    """The path of a run's record; an existing file there must be the same run with at most as many epochs."""
    from varrnn.records import paths as record_paths

    made = as_record(Path(), record)
    path = records / record_paths.relative_path(made)
    record_paths.check_overwrite(made, path)
    return path


def ensemble_path(file: Path, record: Mapping[str, Any], records: Path) -> Path:
    """The path of an ensemble's record; an existing file must be the same models with at most as many samples."""
    path = records / "ensembles" / file.name
    if not path.is_file():
        return path
    old = read(path)
    for key in ("choices", "diff", "member_seeds", "member_mc", "mc_word_dropout"):
        if old.get(key) != record.get(key):
            raise UserError(f"{path} is of another ensemble ({key} differs); remove that record to replace it")
    if old.get("mc_samples", 0) > record.get("mc_samples", 0):
        raise UserError(f"{path} has more MC samples per model than this ensemble; remove that record to replace it")
    return path


def read(folder: Path) -> dict[str, Any]:
    file = folder if folder.suffix == ".json" else folder / SUMMARY_FILE
    if not file.is_file():
        raise UserError(f"{folder}: no summary.json, so this run has not finished; start the same command again")
    try:
        summary = json.loads(file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise UserError(f"{file}: not valid JSON ({error}); run again") from error
    if not isinstance(summary, dict):
        raise UserError(f"{file}: a summary is a JSON object, this is a {type(summary).__name__}; run again")
    if summary.get("schema") != SCHEMA:
        raise UserError(f"{file}: schema is {summary.get('schema')!r}; this version publishes schema {SCHEMA}")
    shape = record_schema.KINDS.get(str(summary.get("kind")), record_schema.RUN)
    record_schema.check(file, summary, shape, "the file is damaged; run again")
    return summary


def lacks_mc(folder: Path) -> bool:
    """Whether MC dropout was requested for a run that has no result of it, because it was stopped before."""
    summary = read(folder)
    if summary.get("status") != FINISHED or "mc" in summary:  # an ensemble and a GPU check have no status
        return False
    options = flatten(summary["config"])
    return bool(options.get("mc.samples")) and any(options.get(f"model.{name}") for name in schema.DROP_RATES)


def check_finished(folder: Path, summary: Mapping[str, Any]) -> None:
    """Check that the run is finished at its last epoch, or unstable (published and counted too)."""
    status = summary.get("status")
    if status == UNSTABLE:
        return
    if status != FINISHED:
        raise UserError(f"{folder}: status is {status!r}; only finished and unstable runs are published")
    epochs, options = summary["history"]["epoch"][-1:], flatten(summary["config"])
    if EPOCHS_KEY not in options:
        raise UserError(f"{folder}: no optim.epochs in the config of summary.json; run again")
    requested, cut_short = options[EPOCHS_KEY], options.get("train.patience")
    if not epochs or (not cut_short and epochs != [requested]):
        raise UserError(f"{folder}: {epochs[0] if epochs else 0} of {requested} epochs; start the same command again")
    if not any(name.startswith("test_") or name == "valid_rmse" for name in summary["metrics"]):
        raise UserError(f"{folder}: no final metric in summary.json; start the same command again")


def check_commits(folder: Path, summary: Mapping[str, Any], repository: Path) -> None:
    """Check that every commit of the run (a resumed run may have several) is clean and in the repository."""
    commits = summary.get("commits") or [summary.get("commit")]
    if summary.get("dirty") or any(str(commit).endswith("+dirty") for commit in commits):
        raise UserError(f"{folder}: computed with uncommitted changes (dirty commit); commit first and run again")
    for commit in dict.fromkeys(commits):
        if not re.fullmatch(r"[0-9a-f]{40}", str(commit)) or not in_repository(str(commit), repository):
            raise UserError(f"{folder}: commit {commit} is not in this repository; run again from a commit that is")


def in_repository(commit: str, repository: Path) -> bool:
    """Whether a branch or tag contains the commit."""
    words = ["git", "-C", str(repository), "for-each-ref", "--count=1", "--contains", commit]
    answer = subprocess.run(words, capture_output=True, text=True)
    return answer.returncode == 0 and bool(answer.stdout.strip())


def check_data(folder: Path, summary: Mapping[str, Any]) -> None:
    """Check that the data are the paper's or a built-in corpus; others could not repeat a run on other data."""
    data = summary.get("data") or {}
    name, found = data.get("name"), data.get("sha256")
    if name not in (*KNOWN_DATA, *BUILT_IN):
        raise UserError(f"{folder}: data {name!r} cannot be published, only {', '.join([*KNOWN_DATA, *BUILT_IN])}")
    if name in BUILT_IN and not re.fullmatch(r"[0-9a-f]{64}", str(found)):
        raise UserError(f"{folder}: no SHA-256 of the data of {name} in summary.json; run again")
    integrity.check_known_data(folder, summary)


def anonymize(summary: Mapping[str, Any]) -> dict[str, Any]:
    """Remove paths and host names; keep the CPU or GPU model and the number of cores."""
    record = {key: _without(summary[key], PATHS) if key in ("config", "hardware") else summary[key]
              for key in RECORD_KEYS if key in summary}  # fmt: skip
    task = record["config"].get("task", {})
    if task.get("headline") in schema.EARLIER_HEADLINE:
        task["headline"] = "exact"
    record["diff"] = {key: value for key, value in record["diff"].items() if key.split(".")[-1] not in PATHS}
    return record


def _without(tree: Mapping[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    """Remove options with these names; keep groups (config.train)."""
    kept = {key: value for key, value in tree.items() if isinstance(value, Mapping) or key not in names}
    return {key: _without(value, names) if isinstance(value, Mapping) else value for key, value in kept.items()}


def compress(record: dict[str, Any]) -> dict[str, Any]:
    """Round to six digits, and keep at most BATCHES points of the loss per batch, each a mean over `every` batches."""
    losses = (record.get("batches") or {}).get("train_loss") or []
    every = math.ceil(len(losses) / BATCHES)
    if every > 1:
        whole = np.asarray(losses[: len(losses) // every * every], dtype=float).reshape(-1, every).mean(axis=1)
        record = record | {"batches": {"train_loss": whole.tolist(), "every": every}}
    return record | {key: _rounded(record[key]) for key in ("history", "batches", "mc_curve") if record.get(key)}


def _rounded(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _rounded(entry) for key, entry in value.items()}
    if isinstance(value, list):
        return [_rounded(entry) for entry in value]
    return float(f"{value:.{DIGITS}g}") if isinstance(value, float) and math.isfinite(value) else value


def check_no_paths(folder: Path, record: Mapping[str, Any]) -> None:
    """Final check: a committed file must not contain an absolute path or a name of this machine."""
    host = socket.gethostname()
    named = re.compile(rf"(?<![A-Za-z0-9]){re.escape(host)}(?![A-Za-z0-9])")
    distinctive = len(host) > 3 and host not in public_words()
    for text in _texts(record):
        if text.startswith(("/", "~")) or re.match(r"[A-Za-z]:\\", text) or (distinctive and named.search(text)):
            raise UserError(f"{folder}: {text!r} in summary.json names this machine or a path on it; remove it by hand")


def public_words() -> set[str]:
    """The names of choices and options, which may occur even if they equal the machine's name (`small`)."""
    names = {file.stem for file in (ROOT / "configs").rglob("*.yaml")}
    kinds = (kind for kind in vars(schema).values() if isinstance(kind, type) and is_dataclass(kind))
    default_words = {field.default for kind in kinds for field in fields(kind) if isinstance(field.default, str)}
    return {
        FINISHED,
        UNSTABLE,
        *BUILT_IN,
        *names,
        *(word for name in names for word in name.split("_")),
        *default_words,
    }


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for entry in value.values():
            yield from _texts(entry)
    elif isinstance(value, list):
        for entry in value:
            yield from _texts(entry)
