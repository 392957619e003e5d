"""The published numbers: Table 1 of the paper, the authors' later corrections, and baselines for the small model."""

from __future__ import annotations

from typing import NamedTuple


class Row(NamedTuple):
    """A row of Table 1 for one model size."""

    label: str
    model: str
    mc: bool
    valid: float | None
    test: float
    wps: float | None
    valid_sd: float | None = None
    test_sd: float | None = None
    corrected_valid: float | None = None  # the authors' readme, "update 4": word types really tied, as in the paper
    corrected_test: float | None = None


TIED, UNTIED = "Variational (tied weights", "Variational (untied weights"
TABLE1: dict[str, tuple[Row, ...]] = {
    "medium": (
        Row("Non-regularized (early stopping)", "none", False, 121.1, 121.7, 5500),
        Row("Moon et al.", "moon", False, 100.7, 97.0, 4800),
        Row("Moon et al. + emb dropout", "moon_emb", False, 88.9, 86.5, 4800),
        Row("Zaremba et al. (naive)", "naive", False, 86.2, 82.7, 5500),
        Row(f"{TIED})", "variational_tied", False, 81.8, 79.7, 4700, 0.2, 0.1),
        Row(f"{TIED}, MC)", "variational_tied", True, None, 79.0, None, None, 0.1),
        Row(f"{UNTIED})", "variational_untied", False, 81.9, 79.7, 2700, 0.2, 0.1),
        Row(f"{UNTIED}, MC)", "variational_untied", True, None, 78.6, None, None, 0.1),
    ),
    "large": (
        Row("Non-regularized (early stopping)", "none", False, 128.3, 127.4, 2500),
        Row("Moon et al.", "moon", False, 122.9, 118.7, 3000),
        Row("Moon et al. + emb dropout", "moon_emb", False, 88.8, 86.0, 3000),
        Row("Zaremba et al. (naive)", "naive", False, 82.2, 78.4, 2500),
        Row(f"{TIED})", "variational_tied", False, 77.3, 75.0, 2400, 0.2, 0.1),
        Row(f"{TIED}, MC)", "variational_tied", True, None, 74.1, None, None, 0.0),
        Row(f"{UNTIED})", "variational_untied", False, 77.9, 75.2, 1600, 0.3, 0.2, 77.457, 75.112),
        Row(f"{UNTIED}, MC)", "variational_untied", True, None, 73.4, None, None, 0.0, None, 73.319),
    ),
}

# Model averaging, large: members -> test perplexity.
ENSEMBLES = {"variational, MC": {10: 68.7}, "naive (Zaremba et al.)": {10: 69.5, 38: 68.7}}


class PublishedResult(NamedTuple):
    """A published result at 200 units."""

    label: str
    valid: float
    test: float
    note: str


PUBLISHED_SMALL = (
    PublishedResult("Zaremba et al. 2014, non-regularized", 120.7, 114.5, "the recipe of our standard model"),
    PublishedResult("TensorFlow ptb_word_lm, small", 121.39, 115.91, "a reproduction of that result"),
    PublishedResult("Inan et al. 2016, VD-LSTM", 92.6, 87.3, "another model: one mask on h, no word dropout"),
)
