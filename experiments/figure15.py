"""Figure 15: train loss against batches for the runs of figure 4a."""

from pathlib import Path

from varrnn.records.store import Records
from varrnn.reproduction.artefact import Artefact, main
from varrnn.reproduction.figures import combinations, figure, loss_panel
from varrnn.reproduction.runs import FIGURE4A


def render(records: Records, folder: Path) -> list[Path]:
    with figure(folder, "figure15") as (panels, files):
        loss_panel(panels[0], records, combinations(FIGURE4A), "Train loss (figure 4a)")
    return files


ARTEFACT = Artefact(
    "figure15",
    "Figure 15: train loss of the runs of figure 4a",
    render,
    runs=tuple(FIGURE4A.values()),
    claims=("C43",),
)

if __name__ == "__main__":
    main(ARTEFACT)
