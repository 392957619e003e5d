"""Figure 13: train loss against batches for the LSTMs of figure 3a."""

from matplotlib.axes import Axes

from varrnn.records.store import Records
from varrnn.reproduction.artefact import main
from varrnn.reproduction.figures import figure_artefact, loss_panel, variants
from varrnn.reproduction.runs import figure3

RUNS = figure3("lstm")


def draw(panels: list[Axes], records: Records) -> None:
    loss_panel(panels[0], records, variants(RUNS), "LSTM train loss (figure 3a)")


ARTEFACT = figure_artefact(
    __file__,
    "Figure 13: train loss of the LSTMs of figure 3a",
    draw,
    runs=tuple(RUNS.values()),
    claims=("C43",),
)

if __name__ == "__main__":
    main(ARTEFACT)
