"""Runs of a sweep that have failed: where, their last words, and the command that repeats them."""

import json
import shlex
import sys
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from varrnn import fileio
from varrnn.config import compose
from varrnn.config.overrides import run_command
from varrnn.config.schema import OTHER_FOLDER, RunConfig
from varrnn.errors import UserError

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
