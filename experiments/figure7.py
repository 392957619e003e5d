"""Figure 7: test error of the Variational LSTM. Sequence length."""

from pathlib import Path

from varrnn.records.store import Records
from varrnn.reproduction.artefact import Artefact, main
from varrnn.reproduction.figures import error_panel, figure, sweep_curves
from varrnn.reproduction.runs import FIGURE7


def render(records: Records, folder: Path) -> list[Path]:
    with figure(folder, "figure7", height=3.3) as (panels, files):
        error_panel(panels[0], records, sweep_curves(FIGURE7, "T"), "Sequence length")
    return files


ARTEFACT = Artefact(
    "figure7",
    "Figure 7: sequence length",
    render,
    runs=tuple(FIGURE7.values()),
    claims=("C37",),
)

if __name__ == "__main__":
    main(ARTEFACT)
