"""Figure 11: naive dropout (new masks at each step) against dropout LSTM (one mask), on inputs and outputs only."""

from matplotlib.axes import Axes

from varrnn.records.store import Records
from varrnn.reporting.style import BLUE, VARIANTS, LineStyle
from varrnn.reproduction.artefact import main
from varrnn.reproduction.figures import error_panel, figure_artefact
from varrnn.reproduction.runs import FIGURE11

LOOKS = {"naive": VARIANTS["naive"], "fixed mask": LineStyle("Dropout LSTM (fixed mask)", BLUE)}


def draw(panels: list[Axes], records: Records) -> None:
    curves = {role: (LOOKS[role], run) for role, run in FIGURE11.items()}
    error_panel(panels[0], records, curves, "No dropout on embedding and recurrent layer, MC")


ARTEFACT = figure_artefact(
    __file__,
    "Figure 11: naive dropout LSTM and dropout LSTM",
    draw,
    runs=tuple(FIGURE11.values()),
    claims=("C42",),
)

if __name__ == "__main__":
    main(ARTEFACT)
