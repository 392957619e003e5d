"""Figure 8: test error of the Variational LSTM. Embedding dropout, T=50, p_U=0.5."""

from pathlib import Path

from varrnn.records.store import Records
from varrnn.reproduction.artefact import Artefact, main
from varrnn.reproduction.figures import error_panel, figure, sweep_curves
from varrnn.reproduction.runs import FIGURE8


def render(records: Records, folder: Path) -> list[Path]:
    with figure(folder, "figure8", height=3.3) as (panels, files):
        error_panel(panels[0], records, sweep_curves(FIGURE8, "p_E"), "Embedding dropout, T=50, p_U=0.5")
    return files


ARTEFACT = Artefact(
    "figure8",
    "Figure 8: embedding dropout, T=50, p_U=0.5",
    render,
    runs=tuple(FIGURE8.values()),
    claims=("C38",),
)

if __name__ == "__main__":
    main(ARTEFACT)
