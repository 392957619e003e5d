"""Small model (not in the paper): validation perplexity against epochs, test perplexity against MC samples."""

from varrnn.reproduction.artefact import main
from varrnn.reproduction.grids import best_on_validation
from varrnn.reproduction.perplexity_figures import learning_curve_figure
from varrnn.reproduction.published import PUBLISHED_SMALL

ARTEFACT = learning_curve_figure(
    __file__,
    "Small model: learning curves and MC samples",
    "small",
    "Penn Treebank, 200 units",
    "valid_ppl",
    height=3.4,
    find_group=best_on_validation,
    baseline=(PUBLISHED_SMALL[0].valid, "Zaremba et al., no dropout"),
)

if __name__ == "__main__":
    main(ARTEFACT)
