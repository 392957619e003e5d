"""Calibration: reliability diagram, ECE, NLL and Brier score for classes; interval coverage for regression."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

TOLERANCE = 1e-2  # allowed error of a sum of probabilities, which are not exact in half precision


@dataclass
class Reliability:
    """The reliability diagram: the accuracy in each bin of confidence. ``add`` takes data batch by batch.

    Args:
        bins: the number of bins of equal width.

    Example:
        >>> diagram = Reliability(bins=2).add(torch.tensor([[0.9, 0.1], [0.8, 0.2]]), torch.tensor([0, 1]))
        >>> round(diagram.ece, 2)  # mean confidence 85 %, accuracy 50 %
        0.35
    """

    bins: int = 15
    counts: Tensor | None = None  # (bins,)
    confidences: Tensor | None = None  # (bins,), summed
    hits: Tensor | None = None  # (bins,), summed

    def __post_init__(self) -> None:
        if isinstance(self.bins, bool) or not isinstance(self.bins, int) or self.bins < 1:
            raise ValueError(f"bins={self.bins!r} must be a whole number from 1")

    @torch.no_grad()
    def add(self, probabilities: Tensor, targets: Tensor) -> "Reliability":
        """Add class probabilities (..., K) and the true classes (...)."""
        _check(probabilities, targets)
        confidence, answer = probabilities.max(-1)
        return self.add_answers(confidence.flatten(), (answer == targets).flatten())

    @torch.no_grad()
    def add_answers(self, confidence: Tensor, correct: Tensor) -> "Reliability":
        """Add the probability of each predicted class, and whether it was the true one."""
        if self.counts is None or self.confidences is None or self.hits is None:
            zero = torch.zeros(self.bins, dtype=torch.float64, device=confidence.device)
            self.counts, self.confidences, self.hits = zero, zero.clone(), zero.clone()
        # intervals open on the left, (k/bins, (k+1)/bins], as Guo et al. (2017) define them
        edges = torch.linspace(0, 1, self.bins + 1, device=confidence.device, dtype=confidence.dtype)
        bins = torch.bucketize(confidence, edges[1:-1])
        self.counts.index_add_(0, bins, torch.ones_like(confidence, dtype=torch.float64))
        self.confidences.index_add_(0, bins, confidence.double())
        self.hits.index_add_(0, bins, correct.double())
        return self

    @property
    def confidence(self) -> Tensor:
        """The mean confidence of each bin, nan where it is empty."""
        return self._filled()[1] / self._filled()[0]

    @property
    def accuracy(self) -> Tensor:
        """The share of correct predictions in each bin, nan where it is empty."""
        return self._filled()[2] / self._filled()[0]

    @property
    def ece(self) -> float:
        """Expected calibration error: |accuracy - confidence|, weighted by the number of predictions in a bin."""
        counts, confidences, hits = self._filled()
        return float((confidences - hits).abs().sum() / counts.sum())

    @property
    def mce(self) -> float:
        """Maximum calibration error: the worst bin."""
        return float((self.accuracy - self.confidence).abs().nan_to_num(0).max())

    def _filled(self) -> tuple[Tensor, Tensor, Tensor]:
        if self.counts is None or self.confidences is None or self.hits is None:
            raise ValueError("nothing has been added to this reliability diagram yet")
        return self.counts, self.confidences, self.hits


def nll(probabilities: Tensor, targets: Tensor) -> Tensor:
    """-log p(target), one for each target; its mean's exponential is the perplexity.

    Example:
        >>> nll(torch.tensor([[0.5, 0.5]]), torch.tensor([1])).exp()
        tensor([2.])
    """
    _check(probabilities, targets)
    return -probabilities.gather(-1, targets.unsqueeze(-1)).squeeze(-1).log()


def brier(probabilities: Tensor, targets: Tensor) -> Tensor:
    """sum_k (p_k - [k is the target])^2, one for each target: between 0 and 2.

    Example:
        >>> brier(torch.tensor([[0.5, 0.5]]), torch.tensor([1]))
        tensor([0.5000])
    """
    _check(probabilities, targets)
    target = probabilities.gather(-1, targets.unsqueeze(-1)).squeeze(-1)
    return (probabilities**2).sum(-1) - 2 * target + 1


def coverage(mean: Tensor, variance: Tensor, targets: Tensor, levels: Sequence[float]) -> Tensor:
    """The share of targets inside the central interval of N(mean, variance), for each nominal level.

    Example:
        >>> coverage(torch.zeros(4), torch.ones(4), torch.tensor([0.1, -0.5, 1.2, 3.0]), levels=[0.5, 0.95])
        tensor([0.5000, 0.7500], dtype=torch.float64)
    """
    if not mean.shape == variance.shape == targets.shape:
        shapes = ", ".join(str(tuple(x.shape)) for x in (mean, variance, targets))
        raise ValueError(f"mean, variance and targets must have one shape, not {shapes}")
    wanted = torch.tensor(levels, dtype=torch.float64, device=mean.device)
    if not bool(((wanted > 0) & (wanted < 1)).all()):
        raise ValueError(f"levels={list(levels)} must lie between 0 and 1")
    half = torch.special.ndtri((1 + wanted) / 2)  # in standard deviations
    away, sd = (x.double().flatten() for x in ((targets - mean).abs(), variance.sqrt()))
    return (away <= half.unsqueeze(1) * sd).double().mean(1)  # no division by sd, which may be 0


def check_probabilities(p: Tensor) -> None:
    """Raise for logits, which would give meaningless numbers without an error."""
    off = (p.sum(-1, dtype=torch.float64) - 1).abs()
    if not bool(((p >= 0).all(-1) & (off <= TOLERANCE)).all()):
        raise ValueError(
            f"not probabilities: the lowest is {float(p.min()):.3g}, sums over the last axis are up to "
            f"{float(off.max()):.3g} away from 1; take the softmax first (mc_predict: apply=lambda y: y.softmax(-1))"
        )


def _check(probabilities: Tensor, targets: Tensor) -> None:
    check_probabilities(probabilities)
    if probabilities.shape[:-1] != targets.shape:
        raise ValueError(f"probabilities {tuple(probabilities.shape)} need one target each, not {tuple(targets.shape)}")
    classes = probabilities.shape[-1]
    if bool(((targets < 0) | (targets >= classes)).any()):
        raise ValueError(
            f"targets from {int(targets.min())} to {int(targets.max())}, classes from 0 to {classes - 1}: drop padded "
            "positions first, p[mask], t[mask]"
        )
