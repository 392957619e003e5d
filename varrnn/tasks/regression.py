"""Predictions of ratings: the dropout approximation, and MC dropout with samples as rows of a batch."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from varrnn import rng
from varrnn.tasks.base import ProgressFn
from varrnn.tasks.sentiment_model import SentimentModel

ROWS = 640  # sequences read as one batch: more is no faster on a CPU, and each needs about 0.5 MB at T = 200
KERAS_CHUNK = 500  # the authors predict in chunks of 500 segments, each with one word mask
PRECISION = 0.1  # of the log-likelihood, as the authors' code prints it


@dataclass
class Split:
    """Segments x (N, T) with ratings y (N,) in their own units; `number` keeps the random streams of parts apart."""

    x: Tensor
    y: Tensor
    number: int

    def rmse(self, predicted: Tensor) -> float:
        """Root mean squared error of predictions (N,) in units of the ratings."""
        return float((predicted.double() - self.y.double()).square().mean().sqrt())

    def log_likelihood(self, samples: Tensor) -> float:
        """Mean log of the averaged Gaussian density, precision 0.1 in units of the ratings: (S, N) -> a number."""
        squares = (samples.double() - self.y.double()).square()
        exponents = (-0.5 * PRECISION * squares).logsumexp(0) - math.log(len(samples))
        return float(exponents.mean()) + 0.5 * math.log(PRECISION / (2 * math.pi))


@torch.no_grad()
def deterministic_predictions(model: SentimentModel, x: Tensor) -> Tensor:
    """The dropout approximation: one pass with every weight at its mean; (N, T) -> (N,), standardised."""
    masks = model.ones_masks()
    return torch.cat([model(rows.t(), masks=masks)[0][:, 0] for rows in x.split(ROWS)])


@torch.no_grad()
def mc_predictions(
    model: SentimentModel,
    x: Tensor,
    samples: int,
    stream: tuple[int, ...],
    word_dropout: bool = True,
    tick: ProgressFn | None = None,
) -> Tensor:
    """MC dropout: `samples` stochastic passes, (N, T) -> (S, N), standardised. Their mean is the prediction.

    Every sample of every segment is a row with masks of its own. The masks of a chunk come from a generator seeded by
    (stream, first sample, first segment), so that they are the same after a stop.
    """
    out = x.new_empty(samples, len(x), dtype=model.output.weight.dtype)
    width = KERAS_CHUNK if model.shared_words else max(1, ROWS // min(samples, 10))
    height = max(1, ROWS // width)
    for first in range(0, samples, height):
        count = min(height, samples - first)
        for start in range(0, len(x), width):
            words = x[start : start + width].t()
            draws = rng.make_generator(x.device, rng.MONTE_CARLO, *stream, first, start)
            out[first : first + count, start : start + width] = _samples(model, words, count, draws, word_dropout)
            if tick is not None:
                tick(count * words.numel())
    return out


def _samples(model: SentimentModel, words: Tensor, samples: int, draws: torch.Generator, word_dropout: bool) -> Tensor:
    """words (T, n) -> predictions (samples, n)."""
    masks = model.sample_mc_masks(words, samples, draws)
    if not word_dropout:
        masks = masks._replace(words=model.ones_masks().words)
    return model(words.repeat(1, samples), masks=masks)[0].view(samples, -1)
