"""Table 1, medium: validation perplexity against epochs, and test perplexity against MC samples, with the paper's."""

from varrnn.reproduction.artefact import main
from varrnn.reproduction.perplexity_figures import learning_curve_figure
from varrnn.reproduction.published import TABLE1

ARTEFACT = learning_curve_figure(
    __file__,
    "Table 1, medium: learning curves and MC samples",
    "medium",
    "Penn Treebank, 650 units",
    "valid_ppl_authors",
    height=3.6,
    paper={row.model: row.valid for row in TABLE1["medium"] if not row.mc},
    paper_mc={row.model: row.test for row in TABLE1["medium"] if row.mc},
)

if __name__ == "__main__":
    main(ARTEFACT)
