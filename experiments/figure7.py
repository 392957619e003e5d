"""Figure 7: test error of the Variational LSTM. Sequence length."""

from varrnn.reproduction.artefact import main
from varrnn.reproduction.figures import Panel, curve_figure, error_panel, sweep_curves
from varrnn.reproduction.runs import FIGURE7

ARTEFACT = curve_figure(
    __file__,
    "Figure 7: sequence length",
    Panel(error_panel, sweep_curves(FIGURE7, "T"), "Sequence length"),
    height=3.3,
    claims=("C37",),
)

if __name__ == "__main__":
    main(ARTEFACT)
