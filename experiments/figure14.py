"""Figure 14: train loss against batches for the GRUs of figure 3c."""

from matplotlib.axes import Axes

from varrnn.records.store import Records
from varrnn.reproduction.artefact import main
from varrnn.reproduction.figures import figure_artefact, loss_panel, variants
from varrnn.reproduction.runs import figure3

RUNS = figure3("gru")


def draw(panels: list[Axes], records: Records) -> None:
    loss_panel(panels[0], records, variants(RUNS), "GRU train loss (figure 3c)")


ARTEFACT = figure_artefact(
    __file__,
    "Figure 14: train loss of the GRUs of figure 3c",
    draw,
    runs=tuple(RUNS.values()),
    claims=("C43",),
)

if __name__ == "__main__":
    main(ARTEFACT)
