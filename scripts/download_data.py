"""Fetch the real corpora: `python scripts/download_data.py ptb|cornell|all [--to DIR] [--from DIR]`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from varrnn.data import cornell, ptb
from varrnn.data.fetch import RECIPES, fetch
from varrnn.data.files import default_data_dir
from varrnn.errors import UserError


def main(arguments: list[str] | None = None) -> int:
    """Download every requested corpus, then report those that are missing."""
    parser = argparse.ArgumentParser(description="Fetch and verify the Penn Treebank and the Cornell film reviews.")
    parser.add_argument("corpus", choices=[*RECIPES, "all"], help="the corpus to download")
    parser.add_argument(
        "--to", type=Path, default=default_data_dir(), help="folder for ptb/ and cornell/ (default: data)"
    )
    parser.add_argument(
        "--from",
        dest="local_source",
        type=Path,
        metavar="FOLDER",
        help="a folder or archive with the files; nothing is downloaded",
    )
    parser.add_argument("--if-missing", action="store_true", help="do nothing if a run would find verified files")
    options = parser.parse_args(arguments)
    failed = False
    for corpus in RECIPES if options.corpus == "all" else [options.corpus]:
        if options.if_missing and is_available(corpus):
            continue
        try:
            fetch(corpus, options.to.expanduser(), options.local_source and options.local_source.expanduser())
        except UserError as error:
            print(error, file=sys.stderr)
            failed = True
        except KeyboardInterrupt:
            print(f"{corpus}: stopped; nothing was written", file=sys.stderr)
            return 130
    return int(failed)


def is_available(corpus: str) -> bool:
    """Whether a run would find this corpus."""
    try:
        {"ptb": ptb.load, "cornell": cornell.load}[corpus]()
    except UserError:
        return False
    return True


if __name__ == "__main__":
    sys.exit(main())
