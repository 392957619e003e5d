"""Figure 4: test error of the Variational LSTM with dropout on the embedding (p_E) and the recurrent layer (p_U)."""

from matplotlib.axes import Axes

from varrnn.records.store import Records
from varrnn.reproduction.artefact import main
from varrnn.reproduction.figures import combinations, error_panel, figure_artefact, sweep_curves
from varrnn.reproduction.runs import FIGURE4A, FIGURE4B, FIGURE4C


def draw(panels: list[Axes], records: Records) -> None:
    error_panel(panels[0], records, combinations(FIGURE4A), "(a) p_E and p_U in {0, 0.5}")
    error_panel(panels[1], records, sweep_curves(FIGURE4B, "p_U"), "(b) p_U sweep, p_E=0")
    error_panel(panels[2], records, sweep_curves(FIGURE4C, "p_U"), "(c) p_U sweep, p_E=0.5")


ARTEFACT = figure_artefact(
    __file__,
    "Figure 4: Variational LSTM with different dropout on embedding and recurrent layer",
    draw,
    panels=3,
    height=3.3,
    runs=(*FIGURE4A.values(), *FIGURE4B.values(), *FIGURE4C.values()),
    claims=("C31", "C32", "C33", "C34", "C35", "C49"),
)

if __name__ == "__main__":
    main(ARTEFACT)
