"""Figure 11: naive dropout (new masks at each step) against dropout LSTM (one mask), on inputs and outputs only."""

from varrnn.reporting.style import BLUE, VARIANTS, LineStyle
from varrnn.reproduction.artefact import main
from varrnn.reproduction.figures import Panel, curve_figure, error_panel
from varrnn.reproduction.runs import FIGURE11

CURVES = {
    "naive": (VARIANTS["naive"], FIGURE11["naive"]),
    "fixed mask": (LineStyle("Dropout LSTM (fixed mask)", BLUE), FIGURE11["fixed mask"]),
}
ARTEFACT = curve_figure(
    __file__,
    "Figure 11: naive dropout LSTM and dropout LSTM",
    Panel(error_panel, CURVES, "No dropout on embedding and recurrent layer, MC"),
    claims=("C42",),
)

if __name__ == "__main__":
    main(ARTEFACT)
