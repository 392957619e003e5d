"""Figure 6: test error of the Variational LSTM with different weight decays; right: with the authors' regulariser."""

from matplotlib.axes import Axes

from varrnn.records.store import Records
from varrnn.reproduction.artefact import main
from varrnn.reproduction.figures import error_panel, figure_artefact, sweep_curves
from varrnn.reproduction.runs import FIGURE6, FIGURE6_ONE_GATE


def draw(panels: list[Axes], records: Records) -> None:
    error_panel(panels[0], records, sweep_curves(FIGURE6, "λ"), "Weight decay on all layers (the text)")
    error_panel(panels[1], records, sweep_curves(FIGURE6_ONE_GATE, "λ"), "Weight decay on one gate (the authors' code)")


ARTEFACT = figure_artefact(
    __file__,
    "Figure 6: weight decay",
    draw,
    panels=2,
    height=3.1,
    runs=(*FIGURE6.values(), *FIGURE6_ONE_GATE.values()),
    claims=("C36", "C36b"),
)

if __name__ == "__main__":
    main(ARTEFACT)
