"""Runs that have failed or not finished: their last lines, and the commands that repeat or resume them."""

import csv
import fcntl
import json
import shlex
import sys
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from yaml import YAMLError

from varrnn import fileio
from varrnn.config import compose
from varrnn.config.overrides import run_command
from varrnn.config.schema import OTHER_FOLDER, RunConfig
from varrnn.errors import UserError
from varrnn.records.schema import UNSTABLE
from varrnn.training import summary as run_summary

LAST_LINES = 5


@dataclass(frozen=True)
class Failure:
    """What is left of a job that failed: where, its last words, and how to repeat it."""

    folder: str
    last_lines: list[str]
    command: str

    def __str__(self) -> str:
        return "\n".join([self.folder, *(f"    {line}" for line in self.last_lines), f"    again: {self.command}"])


def record_failure(error: Exception, config: RunConfig | None, overrides: Sequence[str]) -> Failure:
    """The failure of a job; one that the user cannot mend leaves its traceback in the run's error.txt."""
    if config is None:  # nothing was started: the options themselves are wrong
        given = [word for word in overrides if not word.startswith(("sweep=", "launcher=", "hydra"))]
        return Failure("(not started)", str(error).splitlines(), " ".join(["python run.py", *map(shlex.quote, given)]))
    folder, text = compose.run_dir(config), str(error) or type(error).__name__
    if not isinstance(error, UserError):
        text = traceback.format_exc()
        fileio.write_text(folder / "error.txt", text, OTHER_FOLDER)
    return Failure(str(folder), text.splitlines()[-LAST_LINES:], run_command(config))


def load_failures(folder: Path) -> list[Failure]:
    """What the jobs of a sweep have noted, in their order."""
    files = sorted(folder.glob("failed_*.json"), key=lambda file: int(file.stem.split("_")[1]))
    return [Failure(**json.loads(file.read_text(encoding="utf-8"))) for file in files]


def show(found: list[Failure]) -> None:
    """The list of failures; finished runs are kept, so the same command tries these again."""
    if found:
        lines = [f"\n{len(found)} of the sweep's runs failed; the same command tries them again:", *map(str, found)]
        print("\n".join(lines), file=sys.stderr)


def crash_message(error: Exception) -> str:
    """A job that could not even say what happened: killed by hand, by the system, or by the scheduler."""
    reason = next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)
    refused = next((line.strip() for line in str(error).splitlines() if line.strip().startswith("sbatch")), None)
    if refused:
        return (
            f"Slurm did not take the job: {refused}; see configs/launcher/slurm.yaml for partition, account and limits"
        )
    return (
        f"a job ended without a word ({reason.strip()}): killed, or out of memory? Finished runs are kept and broken "
        "ones resume: wait for jobs that still run, then start the same command again"
    )


SHOWN = ("valid_ppl", "valid_rmse_mc", "valid_rmse", "train_loss")  # of the last epoch: the first that it has


@dataclass(frozen=True)
class Unfinished:
    """A run that has not ended well, or not yet."""

    status: str  # running, stopped, failed or unstable
    failure: Failure


def unfinished_runs(folder: Path) -> list[Unfinished]:
    """Every run below a folder that has no result, with its last lines and the command to go on."""
    found = []
    for file in sorted(folder.rglob("config.yaml")):
        run = file.parent
        try:
            summary = run_summary.read(run)
            if run_summary.is_finished(summary):
                continue
            lines, again = last_lines(run), run_command(compose.load_config(run))
        except (*compose.COMPOSE_ERRORS, OSError, ValueError, YAMLError) as error:  # a broken file, not a broken list
            summary, lines, again = None, str(error).splitlines()[:1], "the same command as before"
        found.append(Unfinished(_status(run, summary), Failure(str(run), lines, again)))
    return found


def _status(run: Path, summary: dict[str, Any] | None) -> str:
    if running(run):
        return "running"
    if summary is not None and summary["status"] == UNSTABLE:
        return UNSTABLE
    return "failed" if (run / "error.txt").is_file() else "stopped"


def running(run: Path) -> bool:
    """Does a process hold the run's lock?"""
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
    """The end of error.txt; without that file, how far the log has come."""
    file = run / "error.txt"
    if file.is_file():
        return file.read_text(encoding="utf-8").splitlines()[-LAST_LINES:]
    return [_last_epoch(run / "log.csv")]


def _last_epoch(log: Path) -> str:
    """`epoch 5: valid ppl 157.3`; the training loss where nothing was validated."""
    rows = list(csv.DictReader(log.read_text(encoding="utf-8").splitlines())) if log.is_file() else []
    if not rows:
        return "no epoch finished yet"
    last = rows[-1]
    name = next((name for name in SHOWN if last.get(name)), None)
    measured = f": {name.replace('_', ' ')} {float(last[name]):.4g}" if name else ""
    return f"epoch {last['epoch']}{measured}"
