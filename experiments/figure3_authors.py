"""Figure 3 under protocol=authors_code: as the authors' code computes it, which differs from the paper's text."""

from collections.abc import Mapping

from matplotlib.axes import Axes

from varrnn.records.store import Records
from varrnn.reporting.style import SKY, VARIANTS, LineStyle
from varrnn.reproduction.artefact import main
from varrnn.reproduction.figures import Curves, error_panel, figure_artefact, train_panel
from varrnn.reproduction.runs import Run, figure3_authors

LSTM, GRU = figure3_authors("lstm"), figure3_authors("gru")
LOOKS = {
    "variational": VARIANTS["variational_untied"]._replace(label="Variational, p=.5, λ=1e-6"),
    "stated optimum": LineStyle("Variational, p=.25, λ=1e-3", SKY, (0, (5, 1))),
    "naive": VARIANTS["naive"],
    "none": VARIANTS["none"],
}


def curves(runs: Mapping[str, Run]) -> Curves:
    return {role: (LOOKS[role], run) for role, run in runs.items()}


def draw(panels: list[Axes], records: Records) -> None:
    train_panel(panels[0], records, curves(LSTM), "(a) LSTM train error, authors' code")
    error_panel(panels[1], records, curves(LSTM), "(b) LSTM test error, authors' code")
    error_panel(panels[2], records, curves(GRU), "(c) GRU test error, authors' code")


ARTEFACT = figure_artefact(
    __file__,
    "Figure 3 under the protocol of the authors' code",
    draw,
    panels=3,
    shared_legend=True,
    runs=(*LSTM.values(), *GRU.values()),
)

if __name__ == "__main__":
    main(ARTEFACT)
