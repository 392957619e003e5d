"""Figure 3 under protocol=authors_code: as the authors' code computes it, which differs from the paper's text."""

from collections.abc import Mapping

from varrnn.reporting.style import SKY, VARIANTS, LineStyle
from varrnn.reproduction.artefact import main
from varrnn.reproduction.figures import Curves, Panel, curve_figure, error_panel, train_panel
from varrnn.reproduction.runs import Run, figure3_authors

LSTM, GRU = figure3_authors("lstm"), figure3_authors("gru")
STYLES = {
    "variational": VARIANTS["variational_untied"]._replace(label="Variational, p=.5, λ=1e-6"),
    "stated optimum": LineStyle("Variational, p=.25, λ=1e-3", SKY, (0, (5, 1))),
    "naive": VARIANTS["naive"],
    "none": VARIANTS["none"],
}


def curves(runs: Mapping[str, Run]) -> Curves:
    return {role: (STYLES[role], run) for role, run in runs.items()}


ARTEFACT = curve_figure(
    __file__,
    "Figure 3 under the protocol of the authors' code",
    Panel(train_panel, curves(LSTM), "(a) LSTM train error, authors' code"),
    Panel(error_panel, curves(LSTM), "(b) LSTM test error, authors' code"),
    Panel(error_panel, curves(GRU), "(c) GRU test error, authors' code"),
    shared_legend=True,
)

if __name__ == "__main__":
    main(ARTEFACT)
