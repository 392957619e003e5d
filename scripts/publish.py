"""Turn finished runs into records, small files in results/records that tables, figures and claims are made from.

    python scripts/publish.py runs/ptb/small/*/lstm/paper/*/seed_*

    python scripts/publish.py runs/ensembles/ptb_large_naive_lstm_paper_10_*.json

    python scripts/publish.py runs/gpu_check/*.json

    python scripts/publish.py --relocate

It rejects unfinished runs, runs with uncommitted changes or of a commit that is not in the repository, unknown data,
and runs that would replace the record of another run. A record's path names the options that differ from the defaults;
when a default has changed, --relocate moves older records to their new paths.
"""

import argparse
import sys
from pathlib import Path

from varrnn.cli.errors import user_errors
from varrnn.errors import UserError
from varrnn.records import paths as record_paths
from varrnn.records.publish import lacks_mc, publish
from varrnn.records.store import RECORDS


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "runs", nargs="*", type=Path, metavar="RUN", help="a run's folder, or the file of an ensemble or a GPU check"
    )
    parser.add_argument("--to", type=Path, default=RECORDS, help="folder of records (results/records)")
    parser.add_argument(
        "--relocate", action="store_true", help="first move older records to the paths that the current defaults give"
    )
    options = parser.parse_args()
    if not options.runs and not options.relocate:
        parser.error("nothing to publish: name the folder of a finished run")
    if options.relocate:
        moves = record_paths.relocate(options.to)
        print("".join(f"moved {old}\n   to {new}\n" for old, new in moves) + f"{len(moves)} records moved")
    rejected = 0
    for folder in options.runs:
        try:
            path = publish(folder, options.to)
            print(f"wrote {path} ({path.stat().st_size / 1024:.0f} KB)")
            if lacks_mc(folder):
                print(f"note: {folder} has no result of MC dropout yet; finish the run, then publish it again")
        except UserError as error:
            rejected += 1
            print(f"rejected: {error}", file=sys.stderr)
    print(f"{len(options.runs) - rejected} published, {rejected} rejected; update tables and figures with `make paper`")
    sys.exit(1 if rejected else 0)


if __name__ == "__main__":
    with user_errors():
        main()
