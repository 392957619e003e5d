"""Figure 5: test error of the Variational LSTM. Embedding dropout, T=200, p_U=0.5."""

from varrnn.reproduction.artefact import main
from varrnn.reproduction.figures import Panel, curve_figure, error_panel, sweep_curves
from varrnn.reproduction.runs import FIGURE5

ARTEFACT = curve_figure(
    __file__,
    "Figure 5: embedding dropout, T=200, p_U=0.5",
    Panel(error_panel, sweep_curves(FIGURE5, "p_E"), "Embedding dropout, T=200, p_U=0.5"),
    height=3.3,
    claims=("C39",),
)

if __name__ == "__main__":
    main(ARTEFACT)
