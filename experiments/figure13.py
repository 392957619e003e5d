"""Figure 13: train loss against batches for the LSTMs of figure 3a."""

from pathlib import Path

from varrnn.records.store import Records
from varrnn.reproduction.artefact import Artefact, main
from varrnn.reproduction.figures import figure, loss_panel, variants
from varrnn.reproduction.runs import figure3

RUNS = figure3("lstm")


def render(records: Records, folder: Path) -> list[Path]:
    with figure(folder, "figure13") as (panels, files):
        loss_panel(panels[0], records, variants(RUNS), "LSTM train loss (figure 3a)")
    return files


ARTEFACT = Artefact(
    "figure13",
    "Figure 13: train loss of the LSTMs of figure 3a",
    render,
    runs=tuple(RUNS.values()),
    claims=("C43",),
)

if __name__ == "__main__":
    main(ARTEFACT)
