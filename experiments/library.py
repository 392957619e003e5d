"""Our layers compared with torch's at common shapes, from the records of scripts/benchmark.py --size library."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from varrnn.records.store import Records
from varrnn.reporting.table import DASH, Table
from varrnn.reproduction.artefact import Artefact, main
from varrnn.reproduction.machines import list_machines, name_libraries

COMMAND = "python scripts/benchmark.py --size library --record"
TITLE = "Our layers compared with torch's"
CELLS = ("lstm", "gru", "rnn")
HEADS = ("processor", "threads", "shape", *(cell.upper() for cell in CELLS))
NOTE = """\
torch's time divided by ours: above 1 ours is faster. T, B, I, H: time steps, batch size, input size and units. Each \
cell has four numbers: training without dropout, with tied masks and with untied masks (including the time to draw \
them; torch's layer has no dropout), and inference. T1 is a single step with a given state. "[400]+[5]*31" and \
"5to200" are the lengths of packed sequences. Medians over rounds of measurement, all candidates in turn in one \
process. varrnn/kernels/README.md explains the numbers below .95."""


def table(records: Records) -> Table:
    """One row for each processor, number of threads and shape."""
    if not records.libraries:
        return Table("library", TITLE, HEADS, [], f"Not run: `{COMMAND}`.")
    machines = name_libraries(records.libraries, records.benchmarks)
    rows = [row for letter, record in machines.items() for row in _rows(letter, record["library"])]
    return Table("library", TITLE, HEADS, rows, f"{NOTE} {list_machines(machines)}")


def _rows(letter: str, found: Mapping[str, Any]) -> list[list[str]]:
    """The rows of one machine from its entries, which are named like `lstm T50,B64,I64,H64 1 thread`."""
    ratios: dict[tuple[str, str], dict[str, str]] = {}
    for name, entry in found.items():
        cell, shape, threads, _ = name.split(" ")
        numbers = (f"{ratio:.2f}".removeprefix("0") for ratio in entry["ratio"].values())
        ratios.setdefault((threads, shape), {})[cell] = " / ".join(numbers)
    return [
        [letter, threads, shape.replace(",", ", "), *(cells.get(cell, DASH) for cell in CELLS)]
        for (threads, shape), cells in sorted(ratios.items(), key=lambda item: item[0][0])
    ]


def render(records: Records, folder: Path) -> list[Path]:
    return table(records).write(folder)


ARTEFACT = Artefact("library", TITLE, render, more=(COMMAND,))

if __name__ == "__main__":
    main(ARTEFACT)
