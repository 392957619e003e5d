"""Failed runs of a sweep: folder, last lines of the error, and the command to repeat the run."""

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
    """A failed job: its folder, the last lines of its error, and the command to repeat it."""

    folder: str
    last_lines: list[str]
    command: str

    def __str__(self) -> str:
        return "\n".join([self.folder, *(f"    {line}" for line in self.last_lines), f"    again: {self.command}"])


def record_failure(error: Exception, config: RunConfig | None, overrides: Sequence[str]) -> Failure:
    """The failure of a job; a bug leaves its traceback in the run's error.txt."""
    if config is None:  # nothing was started: the options are wrong
        given = [word for word in overrides if not word.startswith(("sweep=", "launcher=", "hydra"))]
        return Failure("(not started)", str(error).splitlines(), " ".join(["python run.py", *map(shlex.quote, given)]))
    folder, text = compose.run_dir(config), str(error) or type(error).__name__
    if not isinstance(error, UserError):
        text = traceback.format_exc()
        fileio.write_text(folder / "error.txt", text, OTHER_FOLDER)
    return Failure(str(folder), text.splitlines()[-LAST_LINES:], run_command(config))


def load_failures(folder: Path) -> list[Failure]:
    """The failures recorded by the jobs of a sweep, in the order of the jobs."""
    files = sorted(folder.glob("failed_*.json"), key=lambda file: int(file.stem.split("_")[1]))
    return [Failure(**json.loads(file.read_text(encoding="utf-8"))) for file in files]


def print_failures(found: list[Failure]) -> None:
    """The report of failures; the same command repeats the failed runs only."""
    if found:
        lines = [f"\n{len(found)} of the sweep's runs failed; the same command tries them again:", *map(str, found)]
        print("\n".join(lines), file=sys.stderr)


def crash_message(error: Exception) -> str:
    """The message for a job that ended without an error message: killed by a user, the system or the scheduler."""
    reason = next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)
    rejected = next((line.strip() for line in str(error).splitlines() if line.strip().startswith("sbatch")), None)
    if rejected:
        return f"Slurm rejected the job: {rejected}; see configs/launcher/slurm.yaml for partition, account and limits"
    return (
        f"a job ended without an error message ({reason.strip()}): killed, or out of memory? Wait for jobs that still "
        "run, then start the same command again: it keeps finished runs and resumes the others"
    )
