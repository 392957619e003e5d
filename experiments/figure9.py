"""Figure 9: the runs of figure 4a by the dropout approximation (left) and MC dropout (right)."""

from matplotlib.axes import Axes

from varrnn.records.store import Records
from varrnn.reproduction.artefact import main
from varrnn.reproduction.figures import combinations, error_panel, figure_artefact, history, share_y
from varrnn.reproduction.runs import FIGURE4A, figure3


def draw(panels: list[Axes], records: Records) -> None:
    error_panel(panels[0], records, combinations(FIGURE4A), "Dropout approximation", history("test_rmse"))
    error_panel(panels[1], records, combinations(FIGURE4A), "MC dropout (figure 4a)")
    share_y(panels)


ARTEFACT = figure_artefact(
    __file__,
    "Figure 9: dropout approximation in the Variational LSTM",
    draw,
    panels=2,
    shared_legend=True,
    height=3.1,
    runs=(*FIGURE4A.values(), figure3("lstm")["variational_untied"]),
    claims=("C40",),
)

if __name__ == "__main__":
    main(ARTEFACT)
