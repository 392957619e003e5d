"""Figure 7: test error of the Variational LSTM. Sequence length."""

from matplotlib.axes import Axes

from varrnn.records.store import Records
from varrnn.reproduction.artefact import main
from varrnn.reproduction.figures import error_panel, figure_artefact, sweep_curves
from varrnn.reproduction.runs import FIGURE7


def draw(panels: list[Axes], records: Records) -> None:
    error_panel(panels[0], records, sweep_curves(FIGURE7, "T"), "Sequence length")


ARTEFACT = figure_artefact(
    __file__,
    "Figure 7: sequence length",
    draw,
    height=3.3,
    runs=tuple(FIGURE7.values()),
    claims=("C37",),
)

if __name__ == "__main__":
    main(ARTEFACT)
