"""summary.json: the results of a run, with the config, the data's hash and the provenance of the numbers."""

import json
import math
import shlex
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeGuard

from varrnn.config import compose
from varrnn.config.schema import EPOCHS_KEY, RunConfig, flatten
from varrnn.errors import UserError
from varrnn.records import schema as record_schema
from varrnn.records.schema import EXTENDED, FINISHED, SUMMARY_FILE, UNSTABLE
from varrnn.training import checkpoint, provenance
from varrnn.version import SCHEMA

if TYPE_CHECKING:
    import torch

    from varrnn.training.trainer import Progress

PATHS = ("runs_root", "run_dir", "logger")  # options of one machine, left out of a summary


def _is_data(value: Any) -> bool:
    return isinstance(value, dict) and all(isinstance(value.get(key), str) for key in ("name", "sha256"))


def _is_mc(value: Any) -> bool:
    whole = isinstance(value, dict) and record_schema.is_int(value.get("samples"))
    return whole and isinstance(value.get("word_dropout"), bool)


REQUIRED = {  # entries that a run reads from its summary, in addition to those of a record
    "status": record_schema.Entry(
        lambda value: value in (FINISHED, UNSTABLE, EXTENDED), f"{FINISHED}, {UNSTABLE} or {EXTENDED!r}"
    ),
    "data": record_schema.Entry(_is_data, "the name and sha256 of the data"),
}
OPTIONAL = {
    "mc": record_schema.Entry(_is_mc, "samples (a whole number) and word_dropout (true or false)"),
    "commits": record_schema.Entry(
        lambda value: isinstance(value, list) and all(isinstance(one, str) for one in value), "a list of commits"
    ),
    "duration": record_schema.NUMBERS,
}
AUTHORS_METRICS = {
    "valid_ppl_authors": "as in Table 1: the authors' code divides by a count that is too large; valid_ppl is exact",
    "wps_authors": "validation included, as in the authors' log; wps_train is training alone",
}


def read(folder: Path) -> dict[str, Any] | None:
    """The summary of a finished or unstable run, or None."""
    file = folder / SUMMARY_FILE
    if not file.is_file():
        return None
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise UserError(f"{file}: not readable ({error}); remove it and start the same command again") from error
    problem = find_problem(found) if isinstance(found, dict) else "not a JSON object"
    if problem:
        raise UserError(f"{file}: not the summary of a run ({problem}); remove it and start the same command again")
    return {"commits": [str(found.get("commit"))], "duration": {}, **found}  # early versions had one commit only


def find_problem(found: dict[str, Any]) -> str:
    """The first error in a summary that is valid JSON, e.g. one edited by hand; "" without errors."""
    problem = record_schema.validation_error(found, record_schema.RUN | REQUIRED, record_schema.OPTIONAL | OPTIONAL)
    if problem:
        return problem
    epochs, trained = flatten(found["config"]).get(EPOCHS_KEY), found["history"]["epoch"]
    if not record_schema.is_int(epochs):
        return f"config.{EPOCHS_KEY} is {epochs!r}, it should be a whole number"
    if trained != list(range(1, len(trained) + 1)) or (found["status"] == FINISHED and not trained):
        return "history.epoch does not count from 1 to the last epoch"
    return ""


def is_finished(summary: dict[str, Any] | None) -> TypeGuard[dict[str, Any]]:
    """Whether the run is trained to its last epoch and its checkpoint belongs to its metrics."""
    return summary is not None and summary["status"] == FINISHED


def load_finished(folder: Path) -> dict[str, Any]:
    """The summary of a finished run; raises for other runs."""
    summary = read(folder)
    if not is_finished(summary):
        state = "" if summary is None else f" ({summary['status']})"
        raise UserError(f"{folder}: this run has not finished{state}; the command that started it resumes it")
    return summary


def write(folder: Path, summary: dict[str, Any]) -> None:
    """Write the summary atomically; numbers that are not finite become null, since JSON has no infinity."""
    checkpoint.write_text(
        folder / SUMMARY_FILE, json.dumps(nan_to_null({"schema": SCHEMA, **summary}), indent=1) + "\n"
    )


def nan_to_null(value: Any) -> Any:
    """The same tree with None for every number that is not finite."""
    if isinstance(value, dict):
        return {key: nan_to_null(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [nan_to_null(entry) for entry in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def describe(summary: dict[str, Any], config: RunConfig) -> str:
    """The final metrics as text; those with the authors' normaliser for PTB only, where the paper has them too."""
    first = getattr(config.task, "headline", "") == "authors"
    hidden = () if getattr(config.task, "corpus", "") == "ptb" or first else tuple(AUTHORS_METRICS)
    names = [name for name in summary["metrics"] if not name.endswith(("_last", "_best")) and name not in hidden]
    if first and "valid_ppl_authors" in names:
        names = list(dict.fromkeys(["valid_ppl_authors", *names]))
    found = {name: summary["metrics"][name] for name in names}
    shown = {name: value for name, value in found.items() if value is not None and math.isfinite(value)}
    return "\n".join(
        f"  {name:20} {format_number(value):8}  {AUTHORS_METRICS.get(name, '')}".rstrip()
        for name, value in shown.items()
    )


def format_number(value: float) -> str:
    """Four digits, and never an exponent for a large number."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def run_identity(config: RunConfig, data: str, sha256: str) -> dict[str, Any]:
    """The run's identity and its data."""
    return {
        "choices": compose.choices(config),
        "diff": compose.diff(config),
        "seed": config.seed,
        "config": {key: value for key, value in asdict(config).items() if key not in PATHS},
        "data": {"name": data, "sha256": sha256},
        "versions": provenance.versions(),
    }


def training_record(progress: "Progress", device: "torch.device") -> dict[str, Any]:
    """The results of training so far, finished or not."""
    return {
        "history": progress.history,
        "commit": progress.commits[-1].removesuffix("+dirty"),
        **provenance.commit_record(progress.commits),
        "duration": {"train_seconds": progress.train_seconds, "total_seconds": progress.total_seconds},
        "hardware": provenance.hardware(device, progress.environments[:-1]) | progress.graph_record(),
        "peak_memory_mb": provenance.peak_memory_mb(device),
    }


def numeric_metrics(summary: dict[str, Any]) -> dict[str, float]:
    """The metrics that are numbers."""
    return {name: value for name, value in summary["metrics"].items() if isinstance(value, int | float)}


def next_steps(summary: dict[str, Any], example: str, config: RunConfig, folder: Path) -> list[str]:
    """Commands for a finished run: an example of using it, and publishing if that is possible."""
    where = shlex.quote(str(folder))
    steps = [f"look at it with: {example.format(folder=where)}"]
    if not config.task.user_files and not summary["dirty"] and "unknown" not in summary["commits"]:
        steps.append(f"publish it with: python scripts/publish.py {where}")
    return steps
