"""Our layers compared with torch's at common shapes, from the records of scripts/benchmark.py --size library."""

from collections.abc import Mapping
from pathlib import Path
from string import ascii_uppercase
from typing import Any

from varrnn.benchmark import library
from varrnn.records.store import Records
from varrnn.reporting.table import DASH, Table
from varrnn.reproduction.artefact import Artefact, main
from varrnn.reproduction.machines import describe_machine

COMMAND = "python scripts/benchmark.py --size library --record"
TITLE = "Our layers compared with torch's"
HEADS = ("processor", "threads", "T, B, I, H")
NOTE = """\
torch's time divided by ours: above 1 ours is faster. T, B, I, H: time steps, batch size, input size and units. Each \
cell has four numbers: training without dropout, with tied masks and with untied masks (including the time to draw \
them; torch's layer has no dropout), and inference. T = 1 is a single step with a given state. "[400]+[5]*31" and \
"5 to 200" are the lengths of packed sequences. Medians over rounds of measurement, all candidates in turn in one \
process. varrnn/kernels/README.md explains the numbers below .95."""


def table(records: Records) -> Table:
    """One row for each processor, number of threads and shape."""
    if not records.libraries:
        return Table("library", TITLE, HEADS, [], f"Not run: `{COMMAND}`.")
    machines = dict(zip(ascii_uppercase, records.libraries))
    rows = [row for letter, record in machines.items() for row in _rows(letter, record)]
    heads = (*HEADS, *(cell.upper() for cell in library.CELLS))
    measured = "; ".join(f"{letter}: {describe_machine(record)}" for letter, record in machines.items())
    return Table("library", TITLE, heads, rows, f"{NOTE} Measured on: {measured}.")


def _rows(letter: str, record: Mapping[str, Any]) -> list[list[str]]:
    found = record.get("library") or {}
    counts = sorted({row.threads for row in library.choose_rows("", (record.get("machine") or {}).get("threads") or 1)})
    return [
        [
            letter,
            str(threads),
            shape.title,
            *(_ratios(found.get(library.Row(shape, cell, threads).name)) for cell in library.CELLS),
        ]
        for threads in counts
        for shape in library.SHAPES
    ]


def _ratios(row: Mapping[str, Any] | None) -> str:
    """ "1.04 / 1.02 / .95 / 1.10"."""
    if not row:
        return DASH
    return " / ".join(f"{row['ratio'][name]:.2f}".removeprefix("0") for name in library.COLUMNS)


def render(records: Records, folder: Path) -> list[Path]:
    return table(records).write(folder)


ARTEFACT = Artefact("library", TITLE, render, more=(COMMAND,))

if __name__ == "__main__":
    main(ARTEFACT)
