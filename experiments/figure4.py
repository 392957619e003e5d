"""Figure 4: test error of the Variational LSTM with dropout on the embedding (p_E) and the recurrent layer (p_U)."""

from varrnn.reproduction.artefact import main
from varrnn.reproduction.figures import Panel, combination_curves, curve_figure, error_panel, sweep_curves
from varrnn.reproduction.runs import FIGURE4A, FIGURE4B, FIGURE4C

ARTEFACT = curve_figure(
    __file__,
    "Figure 4: Variational LSTM with different dropout on embedding and recurrent layer",
    Panel(error_panel, combination_curves(FIGURE4A), "(a) p_E and p_U in {0, 0.5}"),
    Panel(error_panel, sweep_curves(FIGURE4B, "p_U"), "(b) p_U sweep, p_E=0"),
    Panel(error_panel, sweep_curves(FIGURE4C, "p_U"), "(c) p_U sweep, p_E=0.5"),
    height=3.3,
    claims=("C31", "C32", "C33", "C34", "C35", "C49"),
)

if __name__ == "__main__":
    main(ARTEFACT)
