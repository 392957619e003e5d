"""Figure 10: GRU test error, the models of figure 3c (left) and Variational GRU configurations (right)."""

from pathlib import Path

from varrnn.records.store import Records
from varrnn.reproduction.artefact import Artefact, main
from varrnn.reproduction.figures import error_panel, figure, grid, variants
from varrnn.reproduction.runs import FIGURE10, figure3

GRU = figure3("gru")


def render(records: Records, folder: Path) -> list[Path]:
    with figure(folder, "figure10", panels=2, height=3.6) as (panels, files):
        error_panel(panels[0], records, variants(GRU), "GRU test error, MC (figure 3c)")
        error_panel(panels[1], records, grid(FIGURE10), "Variational GRU, MC, p and weight decay")
    return files


ARTEFACT = Artefact(
    "figure10",
    "Figure 10: GRU test error and Variational GRU configurations",
    render,
    runs=(*GRU.values(), *FIGURE10.values()),
    claims=("C28", "C41"),
)

if __name__ == "__main__":
    main(ARTEFACT)
