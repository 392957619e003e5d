"""Figure 12: Variational GRU by the dropout approximation (left), beside MC dropout (right)."""

from pathlib import Path

from varrnn.records.store import Records
from varrnn.reproduction.artefact import Artefact, main
from varrnn.reproduction.figures import error_panel, figure, grid, history, share_y
from varrnn.reproduction.runs import FIGURE10


def render(records: Records, folder: Path) -> list[Path]:
    with figure(folder, "figure12", panels=2, height=3.6) as (panels, files):
        error_panel(panels[0], records, grid(FIGURE10), "GRU, dropout approximation", history("test_rmse"))
        error_panel(panels[1], records, grid(FIGURE10), "GRU, MC dropout (figure 10)")
        share_y(panels)
    return files


ARTEFACT = Artefact(
    "figure12",
    "Figure 12: dropout approximation in the GRU",
    render,
    runs=tuple(FIGURE10.values()),
    claims=("C41",),
)

if __name__ == "__main__":
    main(ARTEFACT)
