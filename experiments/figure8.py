"""Figure 8: test error of the Variational LSTM. Embedding dropout, T=50, p_U=0.5."""

from varrnn.reproduction.artefact import main
from varrnn.reproduction.figures import Panel, curve_figure, error_panel, sweep_curves
from varrnn.reproduction.runs import FIGURE8

ARTEFACT = curve_figure(
    __file__,
    "Figure 8: embedding dropout, T=50, p_U=0.5",
    Panel(error_panel, sweep_curves(FIGURE8, "p_E"), "Embedding dropout, T=50, p_U=0.5"),
    height=3.3,
    claims=("C38",),
)

if __name__ == "__main__":
    main(ARTEFACT)
