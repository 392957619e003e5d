"""Start every run of a table or figure that has no record yet: python scripts/run_missing.py table1 launcher=joblib

A run whose record has too few epochs is extended from its folder. One whose record lacks the MC dropout that the table
shows is only evaluated. Without that folder (it is in runs/, or where runs_root= says) the run is trained anew. Runs
that differ in one option become one multirun. run.py skips finished runs and resumes interrupted ones, so the same
command can be repeated until all are done. Further arguments KEY=VALUE are passed to run.py, which starts in the
current folder.
"""

import argparse
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from varrnn.cli.errors import user_errors
from varrnn.errors import UserError
from varrnn.records.store import RECORDS, ROOT, load
from varrnn.reproduction.artefact import Artefact, experiment, names
from varrnn.reproduction.runs import commands
from varrnn.training.signals import run_subprocess


def main() -> int:
    """Print the commands, or run them one after the other; a failed command does not stop the others."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("artefact", help="a file of experiments/: table1, figure3, ensemble, ...")
    parser.add_argument("--list", action="store_true", help="only print the commands")
    parser.add_argument("--seeds", type=numbers, metavar="1,2", help="only these seeds (default: all that it needs)")
    parser.add_argument("--records", default=RECORDS, help="folder of records (results/records)")
    options, passed_on = parser.parse_known_args()
    for word in passed_on:
        if word.startswith("-") or "=" not in word:
            raise UserError(f"{word}: neither an option of this script (see --help) nor a KEY=VALUE for run.py")
    needed = missing_commands(artefact(options.artefact), options.records, options.seeds)
    if not needed:
        print(f"{options.artefact}: every run has a record")
    failed = []
    for command in needed:
        line = " ".join([command, *map(shlex.quote, passed_on)])
        print(line, flush=True)
        words = [sys.executable, str(ROOT / "run.py"), *shlex.split(line)[2:]]
        if not options.list and run_subprocess(words, Path.cwd()):  # paths are relative to this folder
            failed.append(line)
    for line in failed:
        print(f"failed or stopped: {line}", file=sys.stderr)
    return int(bool(failed))


def numbers(text: str) -> list[int]:
    """Parse `1,2`: one argument, since further ones go to run.py."""
    return [int(part) for part in text.split(",")]


def artefact(name: str) -> Artefact:
    """The table or figure of that name."""
    if name not in names():
        raise UserError(f"{name}: no such table or figure; allowed are {', '.join(names())}")
    return experiment(name).ARTEFACT


def missing_commands(wanted: Artefact, folder: str, seeds: Sequence[int] | None = None) -> list[str]:
    """The fewest commands that start all missing runs."""
    return commands(wanted.missing(load(folder), seeds or ()))


if __name__ == "__main__":
    with user_errors():
        sys.exit(main())
