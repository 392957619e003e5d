"""Figure 14: train loss against batches for the GRUs of figure 3c."""

from varrnn.reproduction.artefact import main
from varrnn.reproduction.figures import Panel, curve_figure, loss_panel, variant_curves
from varrnn.reproduction.runs import figure3

ARTEFACT = curve_figure(
    __file__,
    "Figure 14: train loss of the GRUs of figure 3c",
    Panel(loss_panel, variant_curves(figure3("gru")), "Train loss of the GRUs of figure 3c"),
    claims=("C43",),
)

if __name__ == "__main__":
    main(ARTEFACT)
