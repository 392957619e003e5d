"""Reading a text with a trained language model: the log-probability of every next word."""

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from varrnn.tasks.model import ModelMasks, SequenceModel


def log_probabilities(
    model: SequenceModel, columns: Tensor, steps: int, masks: ModelMasks | None = None
) -> Iterator[Tensor]:
    """Read the columns (N, B) in windows of `steps`, state carried over; yields log p of the targets (W, B).

    Without masks the dropout approximation is used, whatever mode the model is in.
    """
    masks = model.ones_masks() if masks is None else masks
    state = None
    for start in range(0, len(columns) - 1, steps):
        words = columns[start : start + steps + 1]
        features, state = model.features(words[:-1], state, masks)
        yield target_log_probabilities(model, features, words[1:])


def target_log_probabilities(model: SequenceModel, features: Tensor, targets: Tensor) -> Tensor:
    """log softmax(read W_y + b_y) at the targets: (W, B, H) and (W, B) -> (W, B), in float64."""
    return model.target_log_probabilities(features, targets).double()


@torch.no_grad()
def perplexity(model: SequenceModel, columns: Tensor, steps: int) -> float:
    """exp of the mean over all predictions, by the dropout approximation."""
    total = sum(log_p.sum() for log_p in log_probabilities(model, columns, steps))
    return safe_exp(-float(total) / ((len(columns) - 1) * columns.shape[1]))


@torch.no_grad()
def validation(model: SequenceModel, columns: Tensor, steps: int) -> dict[str, float]:
    """Validation perplexity over all full windows: the true one, and as the authors' code computes it.

    Their code sums the mean of each full window but divides by the number of windows BEFORE rounding it down (3687 / 35
    = 105.343 instead of 105 on PTB), so every validation perplexity they print is 1.4 to 1.6 % too low.
    """
    windows = (len(columns) - 1) // steps
    total = sum(log_p.sum() for log_p in log_probabilities(model, columns[: windows * steps + 1], steps))
    exact_nll = -float(total) / (windows * steps * columns.shape[1])
    authors_nll = exact_nll * windows / ((len(columns) - 1) / steps)
    return {"valid_ppl": safe_exp(exact_nll), "valid_ppl_authors": safe_exp(authors_nll)}


def safe_exp(mean_nll: float) -> float:
    """exp, but infinite instead of an error for a model that has gone astray."""
    return math.exp(mean_nll) if mean_nll < 700 else math.inf


def window_steps(rows: int, num_words: int, memory_mb: int) -> int:
    """How many steps' logits of `rows` rows fit into the memory given; at most 256."""
    return max(1, min(256, memory_mb * 2**20 // (4 * rows * num_words)))
