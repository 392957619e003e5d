"""Figure 10: GRU test error, the models of figure 3c (left) and Variational GRU configurations (right)."""

from matplotlib.axes import Axes

from varrnn.records.store import Records
from varrnn.reproduction.artefact import main
from varrnn.reproduction.figures import error_panel, figure_artefact, grid, variants
from varrnn.reproduction.runs import FIGURE10, figure3

GRU = figure3("gru")


def draw(panels: list[Axes], records: Records) -> None:
    error_panel(panels[0], records, variants(GRU), "GRU test error, MC (figure 3c)")
    error_panel(panels[1], records, grid(FIGURE10), "Variational GRU, MC, p and weight decay")


ARTEFACT = figure_artefact(
    __file__,
    "Figure 10: GRU test error and Variational GRU configurations",
    draw,
    panels=2,
    height=3.6,
    runs=(*GRU.values(), *FIGURE10.values()),
    claims=("C28", "C41"),
)

if __name__ == "__main__":
    main(ARTEFACT)
