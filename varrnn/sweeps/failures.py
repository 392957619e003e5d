"""Runs of a sweep that have failed: where, their last words, and the command that repeats them."""

import json
import re
import shlex
import sys
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException

from varrnn import fileio
from varrnn.config import compose
from varrnn.config.schema import OTHER_FOLDER, Config
from varrnn.errors import UserError

LAST_LINES = 5
BEFORE_A_QUOTE = r"(\\*)('|$)"
NOT_REPEATED = ("seed", "runs_root", "run_dir", "progress")  # said elsewhere, or nothing that a run depends on


@dataclass(frozen=True)
class Failure:
    """What is left of a job that failed: where, its last words, and how to repeat it."""

    folder: str
    last_lines: list[str]
    command: str

    def __str__(self) -> str:
        return "\n".join([self.folder, *(f"    {line}" for line in self.last_lines), f"    again: {self.command}"])


def failed(error: Exception, config: Config | None, overrides: Sequence[str]) -> Failure:
    """The failure of a job; one that the user cannot mend leaves its traceback in the run's error.txt."""
    if config is None:  # nothing was started: the options themselves are wrong
        given = [word for word in overrides if not word.startswith(("sweep=", "launcher=", "hydra"))]
        return Failure("(not started)", str(error).splitlines(), " ".join(["python run.py", *map(shlex.quote, given)]))
    folder, text = compose.run_dir(config), str(error) or type(error).__name__
    if not isinstance(error, UserError):
        text = traceback.format_exc()
        fileio.write_text(folder / "error.txt", text, OTHER_FOLDER)
    return Failure(str(folder), text.splitlines()[-LAST_LINES:], command(config))


def command(config: Config) -> str:
    """The command that starts this one run again, or goes on with it."""
    chosen = [f"{group}={name}" for group, name in compose.choices(config).items()]
    try:
        base, mine = compose.leaves(compose.compose(chosen)), compose.leaves(config)
    except compose.NOT_COMPOSED:  # files outside configs/, which the run does not remember
        return f"the same command as before, with its --config-dir ({' '.join(chosen)} seed={config.seed})"
    differs = [f"{key}={spell(mine[key])}" for key in mine if key not in NOT_REPEATED and base.get(key) != mine[key]]
    words = [*chosen, *differs, f"seed={config.seed}"]
    if config.runs_root != Config().runs_root:
        words.append(f"runs_root={spell(config.runs_root)}")
    if config.run_dir is not None:
        words.append(f"run_dir={spell(config.run_dir)}")
    return " ".join(["python run.py", *map(shlex.quote, words)])


def spell(value: Any) -> str:
    """A value in Hydra's grammar."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str) and not _means_itself(value):
        return f"'{re.sub(BEFORE_A_QUOTE, _escaped, value)}'"
    return str(value)


def _escaped(found: re.Match[str]) -> str:
    """Backslashes count in front of a quote only, the closing one included."""
    return 2 * found[1] + ("\\'" if found[2] else "")


def _means_itself(word: str) -> bool:
    """Without quotes `a=b` and letters beyond a to z are no value, and `true` and `1e3` are no text."""
    try:
        return (
            re.search(r"[\s$]", word) is None and OverridesParser.create().parse_override(f"x={word}").value() == word
        )
    except HydraException:
        return False


def noted(folder: Path) -> list[Failure]:
    """What the jobs of a sweep have noted, in their order."""
    files = sorted(folder.glob("failed_*.json"), key=lambda file: int(file.stem.split("_")[1]))
    return [Failure(**json.loads(file.read_text(encoding="utf-8"))) for file in files]


def show(found: list[Failure]) -> None:
    """The list of failures; finished runs are kept, so the same command tries these again."""
    if found:
        lines = [f"\n{len(found)} of the sweep's runs failed; the same command tries them again:", *map(str, found)]
        print("\n".join(lines), file=sys.stderr)


def lost(error: Exception) -> str:
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
