"""Unfinished and failed runs below a folder: their progress, and the command to resume each."""

import csv
import fcntl
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from yaml import YAMLError

from varrnn.config import compose
from varrnn.config.overrides import run_command
from varrnn.records.schema import UNSTABLE
from varrnn.sweeps.failures import LAST_LINES, Failure
from varrnn.training import resume
from varrnn.training import summary as run_summary

MC_OPEN = "trained; MC dropout has not finished"
SHOWN = ("valid_ppl", "valid_rmse_mc", "valid_rmse", "train_loss")  # the first one measured is shown


@dataclass(frozen=True)
class Unfinished:
    """An unfinished or failed run."""

    status: str  # running, stopped, failed or unstable
    failure: Failure


def unfinished_runs(folder: Path) -> list[Unfinished]:
    """Every run below a folder without a result, or stopped during MC dropout: last lines, command to resume it."""
    found = []
    for file in sorted(folder.rglob("config.yaml")):
        run = file.parent
        try:
            summary = run_summary.read(run)
            config = compose.load_config(run)
            if run_summary.is_finished(summary) and resume.mc_up_to_date(summary, config):
                continue
            trained = run_summary.is_finished(summary)
            lines, again = [MC_OPEN] if trained else last_lines(run), run_command(config)
        except (*compose.COMPOSE_ERRORS, OSError, ValueError, YAMLError) as error:  # a damaged file is listed too
            summary, lines, again = None, str(error).splitlines()[:1], "the same command as before"
        found.append(Unfinished(_status(run, summary), Failure(str(run), lines, again)))
    return found


def _status(run: Path, summary: dict[str, Any] | None) -> str:
    if is_running(run):
        return "running"
    if summary is not None and summary["status"] == UNSTABLE:
        return UNSTABLE
    return "failed" if (run / "error.txt").is_file() else "stopped"


def is_running(run: Path) -> bool:
    """Whether a process holds the run's lock."""
    file = run / "lock"
    if not file.is_file():
        return False
    with file.open() as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            return True
    return False


def last_lines(run: Path) -> list[str]:
    """The end of error.txt; without that file, the last epoch of the log."""
    file = run / "error.txt"
    if file.is_file():
        return file.read_text(encoding="utf-8").splitlines()[-LAST_LINES:]
    return [_last_epoch(run / "log.csv")]


def _last_epoch(log: Path) -> str:
    """`epoch 5: valid ppl 157.3`, or the training loss without validation data."""
    rows = list(csv.DictReader(log.read_text(encoding="utf-8").splitlines())) if log.is_file() else []
    if not rows:
        return "no epoch finished yet"
    last = rows[-1]
    name = next((name for name in SHOWN if last.get(name)), None)
    measured = f": {name.replace('_', ' ')} {float(last[name]):.4g}" if name else ""
    return f"epoch {last['epoch']}{measured}"
