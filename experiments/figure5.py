"""Figure 5: test error of the Variational LSTM. Embedding dropout, T=200, p_U=0.5."""

from matplotlib.axes import Axes

from varrnn.records.store import Records
from varrnn.reproduction.artefact import main
from varrnn.reproduction.figures import error_panel, figure_artefact, sweep_curves
from varrnn.reproduction.runs import FIGURE5


def draw(panels: list[Axes], records: Records) -> None:
    error_panel(panels[0], records, sweep_curves(FIGURE5, "p_E"), "Embedding dropout, T=200, p_U=0.5")


ARTEFACT = figure_artefact(
    __file__,
    "Figure 5: embedding dropout, T=200, p_U=0.5",
    draw,
    height=3.3,
    runs=tuple(FIGURE5.values()),
    claims=("C39",),
)

if __name__ == "__main__":
    main(ARTEFACT)
