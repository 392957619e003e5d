"""Figure 15: train loss against batches for the runs of figure 4a."""

from varrnn.reproduction.artefact import main
from varrnn.reproduction.figures import Panel, combination_curves, curve_figure, loss_panel
from varrnn.reproduction.runs import FIGURE4A

ARTEFACT = curve_figure(
    __file__,
    "Figure 15: train loss of the runs of figure 4a",
    Panel(loss_panel, combination_curves(FIGURE4A), "Train loss of the runs of figure 4a"),
    claims=("C43",),
)

if __name__ == "__main__":
    main(ARTEFACT)
