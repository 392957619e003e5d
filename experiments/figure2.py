"""Figure 2: medium model, validation perplexity without learning-rate decay.

Differs: the paper says that the decay was "reduced", but not by how much; the authors' first scripts and ours use none.

Differs: figure 2 does not say whether its Variational LSTM is tied or untied; here it is untied.
"""

from matplotlib.axes import Axes

from varrnn.records.store import Records
from varrnn.reporting.style import VARIANTS
from varrnn.reproduction.artefact import main
from varrnn.reproduction.figures import decorate, figure_artefact, history_curve, plot_curves, variant_curves
from varrnn.reproduction.published import TABLE1
from varrnn.reproduction.runs import figure2

RUNS = figure2()


def draw(panels: list[Axes], records: Records) -> None:
    axes = panels[0]
    drawn = plot_curves(axes, records, variant_curves(RUNS), history_curve("valid_ppl_authors"))
    if drawn:
        for row in TABLE1["medium"]:
            if row.model in RUNS and row.valid:  # the paper's values with decay
                axes.plot(1.0, row.valid, "<", color=VARIANTS[row.model].colour, ms=4, clip_on=False,
                          transform=axes.get_yaxis_transform())  # fmt: skip
        axes.plot([], [], "<", color="0.4", ms=4, label="with decay (paper, Table 1)")
        axes.set_ylim(75, 2.2 * min(curve.mean.min() for curve in drawn))
    decorate(axes, "Medium LSTM, constant learning rate", ylabel="validation perplexity, authors' normaliser")


ARTEFACT = figure_artefact(
    __file__,
    "Figure 2: medium model, validation perplexity without learning-rate decay",
    draw,
    runs=tuple(RUNS.values()),
    claims=("C23", "C24", "C25"),
)

if __name__ == "__main__":
    main(ARTEFACT)
