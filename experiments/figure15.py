"""Figure 15: train loss against batches for the runs of figure 4a."""

from matplotlib.axes import Axes

from varrnn.records.store import Records
from varrnn.reproduction.artefact import main
from varrnn.reproduction.figures import combinations, figure_artefact, loss_panel
from varrnn.reproduction.runs import FIGURE4A


def draw(panels: list[Axes], records: Records) -> None:
    loss_panel(panels[0], records, combinations(FIGURE4A), "Train loss (figure 4a)")


ARTEFACT = figure_artefact(
    __file__,
    "Figure 15: train loss of the runs of figure 4a",
    draw,
    runs=tuple(FIGURE4A.values()),
    claims=("C43",),
)

if __name__ == "__main__":
    main(ARTEFACT)
