"""Print a verdict on every claim of the paper, from the records; `--write` also updates results/claims.md and .csv."""

import argparse
from pathlib import Path

from varrnn.cli.errors import user_errors
from varrnn.errors import UserError
from varrnn.records.store import RECORDS, load
from varrnn.reproduction.artefact import RESULTS
from varrnn.reproduction.claims import CLAIMS, judge
from varrnn.reproduction.claims.report import lines, write


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("claims", nargs="*", metavar="ID", help="only these, e.g. C1 C11a; default: all")
    parser.add_argument("--records", type=Path, default=RECORDS, help="folder of records (results/records)")
    parser.add_argument("--write", action="store_true", help="update results/claims.md and results/claims.csv")
    options = parser.parse_args()
    unknown = sorted(set(options.claims) - {claim.id for claim in CLAIMS})
    if unknown:
        raise UserError(f"{', '.join(unknown)}: no such claim; there are {', '.join(claim.id for claim in CLAIMS)}")
    if options.write and options.claims:
        raise UserError("--write updates all verdicts; leave out the IDs, or --write")
    records = load(options.records)
    chosen = [claim for claim in CLAIMS if not options.claims or claim.id in options.claims]
    verdicts = [(claim, judge(claim, records)) for claim in chosen]
    print(lines(verdicts))
    if options.write:
        for path in write(verdicts, RESULTS):
            print(f"wrote {path}")


if __name__ == "__main__":
    with user_errors():
        main()
