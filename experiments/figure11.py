"""Figure 11: naive dropout (a new mask at each step) against dropout LSTM (the same mask), inputs and outputs alone."""

from pathlib import Path

from varrnn.records.store import Records
from varrnn.reporting.style import BLUE, VARIANTS, LineStyle
from varrnn.reproduction.artefact import Artefact, main
from varrnn.reproduction.figures import error_panel, figure
from varrnn.reproduction.runs import FIGURE11

LOOKS = {"naive": VARIANTS["naive"], "fixed mask": LineStyle("Dropout LSTM (fixed mask)", BLUE)}


def render(records: Records, folder: Path) -> list[Path]:
    curves = {role: (LOOKS[role], run) for role, run in FIGURE11.items()}
    with figure(folder, "figure11") as (panels, files):
        error_panel(panels[0], records, curves, "No dropout on embedding and recurrent layer, MC")
    return files


ARTEFACT = Artefact(
    "figure11",
    "Figure 11: naive dropout LSTM and dropout LSTM",
    render,
    runs=tuple(FIGURE11.values()),
    claims=("C42",),
)

if __name__ == "__main__":
    main(ARTEFACT)
