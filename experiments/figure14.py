"""Figure 14: train loss against batches for the GRUs of figure 3c."""

from pathlib import Path

from varrnn.records.store import Records
from varrnn.reproduction.artefact import Artefact, main
from varrnn.reproduction.figures import figure, loss_panel, variants
from varrnn.reproduction.runs import figure3

RUNS = figure3("gru")


def render(records: Records, folder: Path) -> list[Path]:
    with figure(folder, "figure14") as (panels, files):
        loss_panel(panels[0], records, variants(RUNS), "GRU train loss (figure 3c)")
    return files


ARTEFACT = Artefact(
    "figure14",
    "Figure 14: train loss of the GRUs of figure 3c",
    render,
    runs=tuple(RUNS.values()),
    claims=("C43",),
)

if __name__ == "__main__":
    main(ARTEFACT)
