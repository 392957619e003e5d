"""Figure 6: test error of the Variational LSTM with different weight decays; right: with the authors' regulariser."""

from pathlib import Path

from varrnn.records.store import Records
from varrnn.reproduction.artefact import Artefact, main
from varrnn.reproduction.figures import error_panel, figure, sweep_curves
from varrnn.reproduction.runs import FIGURE6, FIGURE6_ONE_GATE


def render(records: Records, folder: Path) -> list[Path]:
    with figure(folder, "figure6", panels=2, height=3.1) as (panels, files):
        error_panel(panels[0], records, sweep_curves(FIGURE6, "λ"), "Weight decay on all layers (the text)")
        error_panel(
            panels[1], records, sweep_curves(FIGURE6_ONE_GATE, "λ"), "Weight decay on one gate (the authors' code)"
        )
    return files


ARTEFACT = Artefact(
    "figure6",
    "Figure 6: weight decay",
    render,
    runs=(*FIGURE6.values(), *FIGURE6_ONE_GATE.values()),
    claims=("C36", "C36b"),
)

if __name__ == "__main__":
    main(ARTEFACT)
