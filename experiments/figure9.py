"""Figure 9: the runs of figure 4a by the dropout approximation (left), beside MC dropout (right)."""

from pathlib import Path

from varrnn.records.store import Records
from varrnn.reproduction.artefact import Artefact, main
from varrnn.reproduction.figures import combinations, error_panel, figure, history, share_y
from varrnn.reproduction.runs import FIGURE4A, figure3


def render(records: Records, folder: Path) -> list[Path]:
    with figure(folder, "figure9", panels=2, height=3.1) as (panels, files):
        error_panel(panels[0], records, combinations(FIGURE4A), "Dropout approximation", history("test_rmse"))
        error_panel(panels[1], records, combinations(FIGURE4A), "MC dropout (figure 4a)")
        share_y(panels)
    return files


ARTEFACT = Artefact(
    "figure9",
    "Figure 9: dropout approximation in the Variational LSTM",
    render,
    runs=(*FIGURE4A.values(), figure3("lstm")["variational_untied"]),
    claims=("C40",),
)

if __name__ == "__main__":
    main(ARTEFACT)
