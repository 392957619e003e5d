"""Figure 5: test error of the Variational LSTM. Embedding dropout, T=200, p_U=0.5."""

from pathlib import Path

from varrnn.records.store import Records
from varrnn.reproduction.artefact import Artefact, main
from varrnn.reproduction.figures import error_panel, figure, sweep_curves
from varrnn.reproduction.runs import FIGURE5


def render(records: Records, folder: Path) -> list[Path]:
    with figure(folder, "figure5", height=3.3) as (panels, files):
        error_panel(panels[0], records, sweep_curves(FIGURE5, "p_E"), "Embedding dropout, T=200, p_U=0.5")
    return files


ARTEFACT = Artefact(
    "figure5",
    "Figure 5: embedding dropout, T=200, p_U=0.5",
    render,
    runs=tuple(FIGURE5.values()),
    claims=("C39",),
)

if __name__ == "__main__":
    main(ARTEFACT)
