"""A table or figure of the paper: the runs it needs, the function that renders it, and the claims it tests."""

from __future__ import annotations

import argparse
import importlib.util
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from varrnn import fileio
from varrnn.config.identity import identity_of
from varrnn.errors import UserError
from varrnn.records.store import RECORDS, ROOT, Records, load
from varrnn.reproduction.claims.verdict import MC_SAMPLES
from varrnn.reproduction.runs import SEEDS, Run, command

RESULTS, EXPERIMENTS = ROOT / "results", ROOT / "experiments"


@dataclass(frozen=True)
class Artefact:
    """One file of experiments/."""

    name: str
    title: str
    render: Callable[[Records, Path], list[Path]]  # (records, results folder) -> files written
    runs: tuple[Run, ...] = ()
    claims: tuple[str, ...] = ()
    seeds: tuple[int, ...] = SEEDS
    more: tuple[str, ...] = ()  # further commands, not of run.py
    is_figure: bool = False  # a figure without any record is not drawn; tables and pages are always written
    shown: tuple[Run, ...] = ()  # the runs that a figure shows, if a claim needs further ones; otherwise all
    sampled: tuple[Run, ...] = ()  # the runs whose records need a test perplexity by MC dropout too

    def has_data(self, records: Records) -> bool:
        """Whether there is something to show: a record of one of its runs, or it needs no runs."""
        return not self.runs or any(records.group(run).records for run in unique(self.shown or self.runs))

    def commands(self, records: Records | None = None) -> list[str]:
        """One command per run and seed; with records, only for missing ones."""
        needed = [(run, self.seeds) for run in unique(self.runs)] if records is None else self.missing(records)
        return [command(run, [seed]) for run, seeds in needed for seed in seeds] + list(self.more)

    def missing(self, records: Records, seeds: Sequence[int] = ()) -> list[tuple[Run, tuple[int, ...]]]:
        """The runs with the seeds that have no record, too few epochs, or not the MC dropout that the table shows."""
        wanted, found = seeds or self.seeds, []
        for run in unique(self.runs):
            lacking = {*records.missing(run, wanted), *(_without_mc(records, run) if run in self.sampled else ())}
            found.append((run, tuple(seed for seed in wanted if seed in lacking)))
        return [(run, lacking) for run, lacking in found if lacking]


def _without_mc(records: Records, run: Run) -> set[int]:
    """The seeds with a record whose MC dropout has fewer samples than the paper's, or is missing."""
    group = records.group(run)
    done = (record.seed for record in group.with_mc().records if (record.metric("mc_samples") or 0) >= MC_SAMPLES)
    return {*group.seeds()} - {*done}


def names() -> list[str]:
    """The files of experiments/, figures in the order of their numbers."""
    return sorted((path.stem for path in EXPERIMENTS.glob("*.py")), key=lambda name: (len(name), name))


def experiment(name: str) -> ModuleType:
    """Load a file of experiments/ as a module, without adding its folder to sys.path."""
    spec = importlib.util.spec_from_file_location(f"experiments.{name}", EXPERIMENTS / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def unique(runs: Iterable[Run]) -> list[Run]:
    """Remove duplicate runs, also those with different but equivalent overrides."""
    found: dict[str, Run] = {}
    for run in runs:
        found.setdefault(repr(identity_of(run)), run)
    return list(found.values())


def main(artefact: Artefact, arguments: Sequence[str] | None = None) -> None:
    """The command line of every file in experiments/."""
    parser = argparse.ArgumentParser(
        description=f"{artefact.title}. Claims tested: {', '.join(artefact.claims) or 'none'}."
    )
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--runs", action="store_true", help="print the commands of all runs it needs")
    what.add_argument(
        "--missing",
        action="store_true",
        help="print the commands of missing runs: no record, or too few epochs or MC samples",
    )
    parser.add_argument("--records", type=Path, default=RECORDS, help="folder of records (results/records)")
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder for figures/ and tables/ (results)")
    options = parser.parse_args(arguments)
    try:
        print("\n".join(_answer(artefact, options)), flush=True)
    except BrokenPipeError:  # e.g. `| head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (UserError, OSError) as error:
        sys.exit(f"error: {error}")


def _answer(artefact: Artefact, options: argparse.Namespace) -> list[str]:
    if options.runs:
        return artefact.commands()
    records = load(options.records)
    if options.missing:
        return artefact.commands(records)
    written = artefact.render(records, fileio.make_folder(options.out))
    tables = [path.read_text(encoding="utf-8") for path in written if path.suffix == ".md"]
    return [*tables, *_verdicts(artefact, records), *(f"wrote {path}" for path in written)]


def _verdicts(artefact: Artefact, records: Records) -> list[str]:
    """The verdicts on the claims that the artefact tests."""
    from varrnn.reproduction.claims import CLAIMS
    from varrnn.reproduction.claims.report import lines
    from varrnn.reproduction.claims.verdict import judge

    found = [(claim, judge(claim, records)) for claim in CLAIMS if claim.id in artefact.claims]
    return [lines(found), ""] if found else []
