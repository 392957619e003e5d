"""Figure 9: the runs of figure 4a by the dropout approximation (left) and MC dropout (right)."""

from varrnn.reproduction.artefact import main
from varrnn.reproduction.figures import (
    Panel,
    approximation_panel,
    combination_curves,
    curve_figure,
    error_panel,
    share_y,
)
from varrnn.reproduction.runs import FIGURE4A, figure3

ARTEFACT = curve_figure(
    __file__,
    "Figure 9: dropout approximation in the Variational LSTM",
    Panel(approximation_panel, combination_curves(FIGURE4A), "Dropout approximation"),
    Panel(error_panel, combination_curves(FIGURE4A), "MC dropout (figure 4a)"),
    adjust=share_y,
    shared_legend=True,
    height=3.1,
    runs=(figure3("lstm")["variational_untied"],),
    claims=("C40",),
)

if __name__ == "__main__":
    main(ARTEFACT)
