"""Figure 12: Variational GRU by the dropout approximation (left) and MC dropout (right)."""

from matplotlib.axes import Axes

from varrnn.records.store import Records
from varrnn.reproduction.artefact import main
from varrnn.reproduction.figures import error_panel, figure_artefact, grid, history, share_y
from varrnn.reproduction.runs import FIGURE10


def draw(panels: list[Axes], records: Records) -> None:
    error_panel(panels[0], records, grid(FIGURE10), "GRU, dropout approximation", history("test_rmse"))
    error_panel(panels[1], records, grid(FIGURE10), "GRU, MC dropout (figure 10)")
    share_y(panels)


ARTEFACT = figure_artefact(
    __file__,
    "Figure 12: dropout approximation in the GRU",
    draw,
    panels=2,
    shared_legend=True,
    height=3.6,
    runs=tuple(FIGURE10.values()),
    claims=("C41",),
)

if __name__ == "__main__":
    main(ARTEFACT)
