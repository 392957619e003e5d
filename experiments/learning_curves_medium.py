"""Table 1, medium: validation perplexity against epochs, and test perplexity against MC samples, with the paper's."""

from matplotlib.axes import Axes

from varrnn.records.store import Records
from varrnn.reproduction.artefact import main
from varrnn.reproduction.figures import figure_artefact, in_style_order
from varrnn.reproduction.perplexity_figures import mc_panel, validation_panel
from varrnn.reproduction.published import TABLE1
from varrnn.reproduction.runs import TABLE1_MODELS, language_model

RUNS = in_style_order({model: language_model("medium", model) for model in TABLE1_MODELS})
PAPER = {row.model: row for row in TABLE1["medium"] if not row.mc}
PAPER_MC = {row.model: row for row in TABLE1["medium"] if row.mc}


def draw(panels: list[Axes], records: Records) -> None:
    groups = {model: records.group(run) for model, run in RUNS.items()}
    paper = {model: row.valid for model, row in PAPER.items()}
    validation_panel(panels[0], groups, RUNS, "valid_ppl_authors", "Penn Treebank, 650 units", paper)
    mc_panel(panels[1], groups, RUNS, {model: row.test for model, row in PAPER_MC.items()})


ARTEFACT = figure_artefact(
    __file__,
    "Table 1, medium: learning curves and MC samples",
    draw,
    panels=2,
    height=3.6,
    runs=tuple(RUNS.values()),
)

if __name__ == "__main__":
    main(ARTEFACT)
