"""Small model (not in the paper): validation perplexity against epochs, test perplexity against MC samples."""

from matplotlib.axes import Axes

from varrnn.records.store import Records
from varrnn.reproduction.artefact import main
from varrnn.reproduction.figures import figure_artefact, in_style_order
from varrnn.reproduction.grids import best_on_validation
from varrnn.reproduction.perplexity_figures import mc_panel, validation_panel
from varrnn.reproduction.published import PUBLISHED_SMALL
from varrnn.reproduction.runs import TABLE1_MODELS, language_model

RUNS = in_style_order({model: language_model("small", model) for model in TABLE1_MODELS})


def draw(panels: list[Axes], records: Records) -> None:
    groups = {model: best_on_validation(records, run) for model, run in RUNS.items()}
    baseline = (PUBLISHED_SMALL[0].valid, "Zaremba et al., no dropout")
    validation_panel(panels[0], groups, RUNS, "valid_ppl", "Penn Treebank, 200 units", baseline=baseline)
    mc_panel(panels[1], groups, RUNS)


ARTEFACT = figure_artefact(
    __file__,
    "Small model: learning curves and MC samples",
    draw,
    panels=2,
    height=3.4,
    runs=tuple(RUNS.values()),
)

if __name__ == "__main__":
    main(ARTEFACT)
