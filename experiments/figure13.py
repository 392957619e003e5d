"""Figure 13: train loss against batches for the LSTMs of figure 3a."""

from varrnn.reproduction.artefact import main
from varrnn.reproduction.figures import Panel, curve_figure, loss_panel, variant_curves
from varrnn.reproduction.runs import figure3

ARTEFACT = curve_figure(
    __file__,
    "Figure 13: train loss of the LSTMs of figure 3a",
    Panel(loss_panel, variant_curves(figure3("lstm")), "Train loss of the LSTMs of figure 3a"),
    claims=("C43",),
)

if __name__ == "__main__":
    main(ARTEFACT)
