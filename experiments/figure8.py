"""Figure 8: test error of the Variational LSTM. Embedding dropout, T=50, p_U=0.5."""

from matplotlib.axes import Axes

from varrnn.records.store import Records
from varrnn.reproduction.artefact import main
from varrnn.reproduction.figures import error_panel, figure_artefact, sweep_curves
from varrnn.reproduction.runs import FIGURE8


def draw(panels: list[Axes], records: Records) -> None:
    error_panel(panels[0], records, sweep_curves(FIGURE8, "p_E"), "Embedding dropout, T=50, p_U=0.5")


ARTEFACT = figure_artefact(
    __file__,
    "Figure 8: embedding dropout, T=50, p_U=0.5",
    draw,
    height=3.3,
    runs=tuple(FIGURE8.values()),
    claims=("C38",),
)

if __name__ == "__main__":
    main(ARTEFACT)
