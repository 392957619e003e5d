"""Fetch the real corpora: `python scripts/get_data.py ptb|cornell|all [--to DIR] [--from DIR]`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from varrnn.data.fetch import RECIPES, fetch
from varrnn.data.files import project_data
from varrnn.errors import UserError


def main(arguments: list[str] | None = None) -> int:
    """Try every corpus that was asked for, then say what is missing."""
    parser = argparse.ArgumentParser(description="Fetch and verify the Penn Treebank and the Cornell film reviews.")
    parser.add_argument("corpus", choices=[*RECIPES, "all"])
    parser.add_argument("--to", type=Path, default=project_data(), help="folder for ptb/ and cornell/ (default: data)")
    parser.add_argument(
        "--from", dest="given", type=Path, help="a folder or archive that holds the files; no other source is then used"
    )
    options = parser.parse_args(arguments)
    failed = False
    for corpus in RECIPES if options.corpus == "all" else [options.corpus]:
        try:
            fetch(corpus, options.to.expanduser(), options.given and options.given.expanduser())
        except UserError as error:
            print(error, file=sys.stderr)
            failed = True
        except KeyboardInterrupt:
            print(f"{corpus}: stopped; nothing was written", file=sys.stderr)
            return 130
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
