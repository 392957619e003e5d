"""Figure 10: GRU test error, the models of figure 3c (left) and Variational GRU configurations (right)."""

from varrnn.reproduction.artefact import main
from varrnn.reproduction.figures import Panel, curve_figure, error_panel, grid_curves, variant_curves
from varrnn.reproduction.runs import FIGURE10, figure3

ARTEFACT = curve_figure(
    __file__,
    "Figure 10: GRU test error and Variational GRU configurations",
    Panel(error_panel, variant_curves(figure3("gru")), "GRU test error, MC (as figure 3c)"),
    Panel(error_panel, grid_curves(FIGURE10), "Variational GRU, MC: dropout p, weight decay λ"),
    height=3.6,
    claims=("C28", "C41"),
)

if __name__ == "__main__":
    main(ARTEFACT)
