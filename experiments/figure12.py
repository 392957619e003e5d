"""Figure 12: Variational GRU by the dropout approximation (left) and MC dropout (right)."""

from varrnn.reproduction.artefact import main
from varrnn.reproduction.figures import Panel, approximation_panel, curve_figure, error_panel, grid_curves, share_y
from varrnn.reproduction.runs import FIGURE10

ARTEFACT = curve_figure(
    __file__,
    "Figure 12: dropout approximation in the GRU",
    Panel(approximation_panel, grid_curves(FIGURE10), "GRU, dropout approximation"),
    Panel(error_panel, grid_curves(FIGURE10), "GRU, MC dropout (figure 10)"),
    adjust=share_y,
    shared_legend=True,
    height=3.6,
    claims=("C41",),
)

if __name__ == "__main__":
    main(ARTEFACT)
