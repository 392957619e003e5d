"""Rank every grid below a folder of runs; write heat maps and the YAML of the best points; list unfinished runs.

    python scripts/sweep_summary.py                    # everything below runs/
    python scripts/sweep_summary.py results/records    # published records
    python scripts/sweep_summary.py --sweep-key optim.lr    # a sweep over other options than rates and weight decay

Grid points are ranked by their validation value (mean over the seeds that all have), not by the test set. The exit
status is 1 if a run has failed or was stopped, or if no run was found.
"""

import argparse
import sys
from pathlib import Path

from varrnn import fileio
from varrnn.cli.errors import option_docs, user_errors
from varrnn.config.identity import identity_options
from varrnn.config.schema import CHOICE_GROUPS
from varrnn.config.validation import suggest
from varrnn.errors import UserError
from varrnn.records.store import RECORDS, ROOT
from varrnn.sweeps import heatmap
from varrnn.sweeps import ranking as sweep_ranking
from varrnn.sweeps.unfinished import unfinished_runs


def main() -> int:
    """Print and write the summaries; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path, nargs="?", default=Path("runs"), help="folder of runs, or of records (runs)")
    parser.add_argument(
        "--sweep-key", action="append", default=[], metavar="KEY", help="a further option that was swept"
    )
    parser.add_argument(
        "--out", type=Path, help="folder for tables/, figures/ and best/ (RUNS/summary; runs/summary_of_records)"
    )
    options = parser.parse_args()
    check(options.sweep_key)
    found, left = list(sweep_ranking.load_summaries(options.runs)), unfinished_runs(options.runs)
    if not found and not left:
        raise UserError(f"no runs below {options.runs}; give the runs_root of a sweep, or a folder of records")
    for grid in sweep_ranking.find_grids(found, options.sweep_key):
        show(grid, options.runs, options.out or default_out(options.runs))
    for run in left:
        print(f"{run.status}: {run.failure}")
    return int(any(run.status != "running" for run in left))


def check(sweep_keys: list[str]) -> None:
    """Check that every --sweep-key is an option in which the runs of a grid can differ."""
    known = option_docs()
    for key in sweep_keys:
        if key not in known:
            raise UserError(
                f"--sweep-key {key}: there is no such option{suggest(key, list(known))}; see python run.py --help"
            )
        if key == "seed":
            raise UserError("--sweep-key seed: a grid point is the mean over its seeds; leave it out")
        if key in (*CHOICE_GROUPS, *(f"{group}.name" for group in CHOICE_GROUPS)) or not identity_options({key: None}):
            raise UserError(f"--sweep-key {key}: grids are not ranked over this option; leave it out")


def is_records_folder(runs: Path) -> bool:
    """Whether this is the folder of committed records."""
    return runs.resolve().is_relative_to(RECORDS.parent)


def default_out(runs: Path) -> Path:
    """The default folder: in the folder of runs, but outside the repository's records."""
    return ROOT / "runs" / "summary_of_records" if is_records_folder(runs) else runs / "summary"


def show(grid: sweep_ranking.Grid, runs: Path, out: Path) -> None:
    """Print and write one grid; a single point has neither a heat map nor a best point."""
    if not grid.score:
        print(f"{grid.title}: no validation value, so nothing can be chosen (sentiment: set task.hold_out=0.1)\n")
        return
    ranking = sweep_ranking.ranking_table(grid)
    print(f"{grid.title}\n{ranking.markdown()}")
    if grid.axes():
        file = out / "best" / f"{grid.name}.yaml"
        fileio.write_text(file, sweep_ranking.best_yaml(grid))
        for path in (file, *ranking.write(out), *heatmap.draw_heatmap(grid, out)):
            print(f"wrote {path}")
        command = (
            sweep_ranking.next_command(grid) if is_records_folder(runs) else sweep_ranking.next_command(grid, str(runs))
        )
        print(f"run the best point with three seeds: {command}")
    print()


if __name__ == "__main__":
    with user_errors():
        sys.exit(main())
