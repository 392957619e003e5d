"""Figure 3: sentiment analysis, variational, naive and no dropout; LSTM (a: train, b: test) and GRU (c: test)."""

from pathlib import Path

from varrnn.records.store import Records
from varrnn.reproduction.artefact import Artefact, main
from varrnn.reproduction.figures import error_panel, figure, train_panel, variants
from varrnn.reproduction.runs import figure3

LSTM, GRU = figure3("lstm"), figure3("gru")


def draw(records: Records, folder: Path) -> list[Path]:
    with figure(folder, "figure3", panels=3) as (panels, files):
        train_panel(panels[0], records, variants(LSTM), "(a) LSTM train error, approximation")
        error_panel(panels[1], records, variants(LSTM), "(b) LSTM test error, MC")
        error_panel(panels[2], records, variants(GRU), "(c) GRU test error, MC")
    return files


ARTEFACT = Artefact(
    "figure3",
    "Figure 3: sentiment analysis error, variational, naive and standard LSTM and GRU",
    draw,
    runs=(*LSTM.values(), *GRU.values()),
    claims=("C26", "C27", "C28", "C29", "C30"),
)

if __name__ == "__main__":
    main(ARTEFACT)
