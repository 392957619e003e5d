"""Figure 6: test error of the Variational LSTM with different weight decays; right: with the authors' regulariser."""

from varrnn.reproduction.artefact import main
from varrnn.reproduction.figures import Panel, curve_figure, error_panel, sweep_curves
from varrnn.reproduction.runs import FIGURE6, FIGURE6_ONE_GATE

ARTEFACT = curve_figure(
    __file__,
    "Figure 6: weight decay",
    Panel(error_panel, sweep_curves(FIGURE6, "λ"), "Weight decay on all layers (paper's text)"),
    Panel(error_panel, sweep_curves(FIGURE6_ONE_GATE, "λ"), "Weight decay on one gate (authors' code)"),
    height=3.1,
    claims=("C36", "C36b"),
)

if __name__ == "__main__":
    main(ARTEFACT)
