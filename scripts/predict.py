"""Rate texts with a trained sentiment model: `python scripts/predict.py RUN_DIR --text "..."` or `--csv FILE`.

It prints the rating by MC dropout, an interval that contains 95 % of unseen ratings, and the standard deviation of the
samples (the model's uncertainty). A CSV file needs a column `text`; the columns rating, low, high, spread are added.
"""

import argparse
import csv
import io
import itertools
import sys
from pathlib import Path

from varrnn import fileio
from varrnn.cli.errors import user_errors
from varrnn.data import csv_reviews, files
from varrnn.errors import UserError
from varrnn.training import open_run
from varrnn.training.trained import Rating

COLUMNS = ("rating", "low", "high", "spread")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, metavar="RUN_DIR", help="folder of a finished sentiment run")
    parser.add_argument("overrides", nargs="*", help="device=cuda, threads=1, mc.word_dropout=false")
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--text", action="append", help="a text to rate; can be repeated")
    what.add_argument("--csv", type=Path, help="file with a column `text`")
    parser.add_argument("--samples", type=int, default=50, help="MC samples (50); 0: the dropout approximation")
    parser.add_argument("--level", type=float, default=0.95, help="share of unseen ratings inside the interval (0.95)")
    parser.add_argument("--out", type=Path, help="output file of --csv (default: the terminal)")
    options = parser.parse_intermixed_args()
    if options.samples < 0:
        raise UserError(f"--samples {options.samples}: must be at least 0")
    if options.out and not options.csv:
        raise UserError("--out is the output file of --csv; leave it out with --text")
    rows = read_rows(options.csv) if options.csv else []
    texts = [row["text"] for row in rows] if options.csv else options.text
    run = open_run(options.run, options.overrides)
    ratings = run.predict(texts, options.samples, options.level)
    if not options.csv:
        for rating in ratings:
            print(describe(rating, options.level))
        return
    result = as_csv(rows, ratings)
    if options.out:
        fileio.write_text(options.out, result)
        print(f"wrote {options.out}")
    else:
        sys.stdout.write(result)


def read_rows(file: Path) -> list[dict[str, str]]:
    """The rows of a CSV file, read like the files of task=reviews; every one has a text."""
    header, lines = csv_reviews.read_table(file, files.read(file), ("text",))
    if not lines:
        raise UserError(f"{file}: the file has a header but no texts; add rows")
    rows = []
    for line, fields in lines:
        row = dict(itertools.zip_longest(header, fields, fillvalue=""))
        if not row["text"].strip():
            raise UserError(f"{file}, line {line}: the text is empty; remove the row")
        rows.append(row)
    return rows


def describe(rating: Rating, level: float) -> str:
    """One line for one text."""
    note = f"; unknown words: {', '.join(rating.unknown_words)}" if rating.unknown_words else ""
    interval = f"{level:.0%} between {rating.low:.3f} and {rating.high:.3f}"
    return f"{rating.mean:.3f}  ({interval}; spread of the samples {rating.model_sd:.3f}{note})"


def as_csv(rows: list[dict[str, str]], ratings: list[Rating]) -> str:
    """The input columns with four more; existing columns of these names are replaced."""
    out = io.StringIO()
    given = [name for name in rows[0] if name not in COLUMNS]
    writer = csv.DictWriter(out, [*given, *COLUMNS], extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    for row, rating in zip(rows, ratings):
        values = (rating.mean, rating.low, rating.high, rating.model_sd)
        writer.writerow(row | {name: f"{value:.4f}" for name, value in zip(COLUMNS, values)})
    return out.getvalue()


if __name__ == "__main__":
    with user_errors():
        main()
