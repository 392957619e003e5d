"""Figure 3: sentiment analysis, variational, naive and no dropout; LSTM (a: train, b: test) and GRU (c: test)."""

from matplotlib.axes import Axes

from varrnn.config.identity import identity_of
from varrnn.records.store import Records
from varrnn.reporting.style import SKY, LineStyle
from varrnn.reproduction.artefact import main
from varrnn.reproduction.figures import Curves, error_panel, figure_artefact, limit_y, train_panel, variant_curves
from varrnn.reproduction.runs import figure3, stated_optimum

LSTM, GRU = figure3("lstm"), figure3("gru")
SHOWN = (0.145, 0.175)  # RMSE: the range of the paper's curves and ours after the first epochs
STATED = LineStyle("Variational, the paper's stated optimum", SKY, (0, (5, 1)))


def lstm_curves() -> Curves:
    """The curves of the LSTM, with the paper's stated optimum if the held-out reviews chose other dropout rates."""
    if identity_of(stated_optimum()) == identity_of(LSTM["variational_untied"]):
        return variant_curves(LSTM)
    return {**variant_curves(LSTM), "stated optimum": (STATED, stated_optimum())}


def draw(panels: list[Axes], records: Records) -> None:
    train_panel(panels[0], records, lstm_curves(), "(a) LSTM train error, MC")
    error_panel(panels[1], records, lstm_curves(), "(b) LSTM test error, MC")
    error_panel(panels[2], records, variant_curves(GRU), "(c) GRU test error, MC")
    for panel in panels[1:]:
        limit_y(panel, *SHOWN)


ARTEFACT = figure_artefact(
    __file__,
    "Figure 3: sentiment analysis error, variational, naive and standard LSTM and GRU",
    draw,
    panels=3,
    shared_legend=True,
    runs=(*LSTM.values(), *GRU.values(), stated_optimum()),
    claims=("C26", "C27", "C28", "C28b", "C29", "C30"),
)

if __name__ == "__main__":
    main(ARTEFACT)
