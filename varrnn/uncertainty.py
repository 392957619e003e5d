"""Model uncertainty from samples of MC dropout (the paper's future work; Gal & Ghahramani, 2015).

The classes keep running sums only: ``add`` takes samples one by one and stores neither them nor their graphs.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass, field

import torch
from torch import Tensor

from varrnn.calibration import check_probabilities


@dataclass
class Classification:
    """Samples of class probabilities, (..., K): for classifiers, and for every next word of a language model.

    Example:
        >>> result = Classification()
        >>> for p in ([0.9, 0.1], [0.1, 0.9]):  # two samples that favour different classes
        ...     _ = result.add(torch.tensor(p))
        >>> round(result.predictive_entropy.item(), 2), round(result.mutual_information.item(), 2)
        (0.69, 0.37)
    """

    samples: int = 0
    summed: Tensor | None = None  # (..., K), sum of probabilities
    votes: Tensor | None = None  # (..., K), how many samples put this class first
    entropies: Tensor | None = None  # (...), summed over samples

    @torch.no_grad()
    def add(self, probabilities: Tensor, sample_dim: int | None = None) -> "Classification":
        """Add one sample (..., K), or several along `sample_dim`."""
        p = probabilities.unsqueeze(0) if sample_dim is None else probabilities.movedim(sample_dim, 0)
        if self.summed is None:
            check_probabilities(p[:1])  # only the first sample: this synchronises a GPU
            self.summed = torch.zeros(p.shape[1:], device=p.device, dtype=torch.float64)
            self.votes = torch.zeros(p.shape[1:], device=p.device, dtype=torch.int32)
            self.entropies = torch.zeros(p.shape[1:-1], device=p.device, dtype=torch.float64)
        assert self.votes is not None and self.entropies is not None
        if p.shape[1:] != self.summed.shape:
            raise ValueError(f"a sample of shape {tuple(p.shape[1:])} after samples of {tuple(self.summed.shape)}")
        self.summed += p.sum(0, dtype=torch.float64)
        self.entropies += entropy(p.double()).sum(0)  # double precision: mutual_information is a small difference
        first = p.argmax(-1).movedim(0, -1)  # (..., S): a class may get several votes at once
        self.votes.scatter_add_(-1, first, torch.ones_like(first, dtype=torch.int32))
        self.samples += len(p)
        return self

    @property
    def mean(self) -> Tensor:
        """p(y | x) of MC dropout: probabilities averaged, not logits (equation 4 of the paper)."""
        return _require(self.summed) / self.samples

    @property
    def predictive_entropy(self) -> Tensor:
        """H[y | x]: the total predictive uncertainty, in nats."""
        return entropy(self.mean)

    @property
    def expected_entropy(self) -> Tensor:
        """E_omega H[y | x, omega]: the aleatoric part, which remains for any fixed weights (noise of the data)."""
        return _require(self.entropies) / self.samples

    @property
    def mutual_information(self) -> Tensor:
        """I[y, omega | x] = H[y | x] - E_omega H[y | x, omega], the epistemic part (BALD; Houlsby et al., 2011)."""
        return (self.predictive_entropy - self.expected_entropy).clamp(min=0)  # rounding can make it negative

    @property
    def variation_ratio(self) -> Tensor:
        """The share of samples whose most likely class is not the class that most samples chose."""
        return 1 - _require(self.votes).amax(-1).double() / self.samples


@dataclass
class _GaussianSamples:
    """Running means over sampled outputs and the variance of their noise, and the likelihood of targets under them."""

    samples: int = field(default=0, init=False)
    mean_: Tensor | None = field(default=None, init=False)
    noise: Tensor | None = field(default=None, init=False)  # the mean variance of the noise
    sum_sq: Tensor | None = field(default=None, init=False)  # squared distances from the mean, summed
    log_sum: Tensor | None = field(default=None, init=False)  # log of the summed likelihoods of the targets

    def _update(self, y: Tensor, noise: Tensor, targets: Tensor | None) -> None:
        """Add one sample by Welford's update, which loses no digits when the spread is small relative to the mean."""
        if self.mean_ is None or self.noise is None or self.sum_sq is None:
            self.mean_, self.noise, self.sum_sq = (torch.zeros_like(y) for _ in range(3))
        if y.shape != self.mean_.shape:
            raise ValueError(f"a sample of shape {tuple(y.shape)} after samples of {tuple(self.mean_.shape)}")
        self.samples += 1
        delta = y - self.mean_
        self.mean_ = self.mean_ + delta / self.samples
        self.noise = self.noise + (noise - self.noise) / self.samples
        self.sum_sq = self.sum_sq + delta * (y - self.mean_)
        if targets is not None:
            log_p = log_density(y, targets.double(), 1 / noise)
            self.log_sum = log_p if self.log_sum is None else torch.logaddexp(self.log_sum, log_p)

    @property
    def mean(self) -> Tensor:
        """The predictive mean, E[y]."""
        return _require(self.mean_)

    @property
    def aleatoric(self) -> Tensor:
        """The noise of the data: the mean over samples of the noise variance."""
        return _require(self.noise)

    @property
    def epistemic(self) -> Tensor:
        """The uncertainty of the model: the variance of the sampled outputs."""
        return _require(self.sum_sq) / self.samples

    @property
    def variance(self) -> Tensor:
        """The predictive variance, aleatoric + epistemic.

        For ``Regression`` it is tau^-1 + E[y^2] - E[y]^2 (Gal & Ghahramani, 2015, section 4), for ``Heteroscedastic``
        equation 9 of Kendall & Gal (2017).
        """
        return self.aleatoric + self.epistemic

    def interval(self, level: float) -> tuple[Tensor, Tensor]:
        """The ends of the central interval of N(mean, variance) that holds a target with probability ``level``."""
        return central_interval(self.mean, self.variance, level)

    @property
    def log_likelihood(self) -> Tensor:
        """log of the mean over samples of the Gaussian density of every target (Gal & Ghahramani, 2015, eq. 8)."""
        if self.log_sum is None:
            raise ValueError(f"the log-likelihood needs targets: {type(self).__name__}(..., targets=)")
        return self.log_sum - math.log(self.samples)


@dataclass
class Regression(_GaussianSamples):
    """Samples of real outputs, with one noise variance for all of them.

    Args:
        precision: tau, the inverse variance of the noise on the targets (``fit_precision``, ``model_precision``).
        targets: what was observed, for ``log_likelihood``.

    Example:
        >>> result = Regression(precision=4.0)
        >>> for y in (1.0, 3.0):
        ...     _ = result.add(torch.tensor([y]))
        >>> result.mean.item(), result.aleatoric.item(), result.epistemic.item(), result.variance.item()
        (2.0, 0.25, 1.0, 1.25)
        >>> low, high = result.interval(0.95)
    """

    precision: float
    targets: Tensor | None = None  # give them to get the log-likelihood

    def __post_init__(self) -> None:
        if not self.precision > 0:
            raise ValueError(f"precision={self.precision!r} (tau, one over the noise variance) must be above 0")

    @torch.no_grad()
    def add(self, output: Tensor) -> "Regression":
        """Add one sample."""
        y = output.double()
        self._update(y, torch.full_like(y, 1 / self.precision), self.targets)
        return self


@dataclass
class Heteroscedastic(_GaussianSamples):
    """Samples of (mean, log variance) from a model that also predicts the noise of its data (Kendall & Gal, 2017).

    Args:
        targets: what was observed, for ``log_likelihood``.

    Example:
        >>> result = Heteroscedastic()
        >>> for mean in (1.0, 3.0):
        ...     _ = result.add(torch.tensor([mean]), torch.tensor([0.0]))
        >>> result.mean.item(), result.aleatoric.item(), result.epistemic.item(), result.variance.item()
        (2.0, 1.0, 1.0, 2.0)
    """

    targets: Tensor | None = None

    @torch.no_grad()
    def add(self, mean: Tensor, log_variance: Tensor) -> "Heteroscedastic":
        """Add one sample: the predicted mean and log variance, of the same shape."""
        if mean.shape != log_variance.shape:
            raise ValueError(f"a mean of shape {tuple(mean.shape)}, a log variance of {tuple(log_variance.shape)}")
        self._update(mean.double(), log_variance.double().exp(), self.targets)
        return self


def central_interval(mean: Tensor, variance: Tensor, level: float) -> tuple[Tensor, Tensor]:
    """The ends of the central interval of N(mean, variance) that has probability ``level``.

    Example:
        >>> low, high = central_interval(torch.zeros(1), torch.ones(1), 0.95)
        >>> round(low.item(), 2), round(high.item(), 2)
        (-1.96, 1.96)
    """
    if isinstance(level, bool) or not 0 < level < 1:
        raise ValueError(f"level={level!r} must lie between 0 and 1, 0.95 for example")
    half = torch.special.ndtri(torch.tensor((1 + level) / 2, dtype=torch.float64)).item() * variance.sqrt()
    return mean - half, mean + half


def classification(samples: Iterable[Tensor]) -> Classification:
    """Uncertainty from a stream of class probabilities, e.g. ``mc_predict(..., apply=softmax)``.

    Example:
        >>> model = VariationalLSTM(3, 4, dropout=DropoutRates.variational(p_W=0.5))
        >>> samples = mc_predict(model, torch.randn(5, 2, 3), samples=8, apply=lambda out: out.softmax(-1))
        >>> classification(samples).mutual_information.shape
        torch.Size([5, 2])
    """
    result = Classification()
    for probabilities in samples:
        result.add(probabilities)
    _require(result.summed)
    return result


def regression(samples: Iterable[Tensor], precision: float, targets: Tensor | None = None) -> Regression:
    """Predictive mean, variance and log-likelihood from a stream of outputs; see ``Regression``.

    Example:
        >>> result = regression([torch.tensor([1.0]), torch.tensor([3.0])], precision=4.0, targets=torch.tensor([2.0]))
        >>> result.mean.item(), round(result.log_likelihood.item(), 3)
        (2.0, -2.226)
    """
    result = Regression(precision, targets)
    for output in samples:
        result.add(output)
    _require(result.mean)
    return result


def heteroscedastic(
    samples: Iterable[Tensor | tuple[Tensor, Tensor]], targets: Tensor | None = None
) -> Heteroscedastic:
    """Aleatoric, epistemic and total variance from a stream of (mean, log variance), as pairs or tensors (2, ...).

    Example:
        >>> result = heteroscedastic([torch.tensor([[1.0], [0.0]]), torch.tensor([[3.0], [0.0]])])
        >>> result.aleatoric.item(), result.epistemic.item()
        (1.0, 1.0)
    """
    result = Heteroscedastic(targets)
    for mean, log_variance in samples:
        result.add(mean, log_variance)
    _require(result.mean_)
    return result


def entropy(probabilities: Tensor) -> Tensor:
    """-sum p log p over the last axis, in nats; 0 log 0 = 0.

    Example:
        >>> entropy(torch.tensor([0.5, 0.5]))
        tensor(0.6931)
    """
    return torch.special.entr(probabilities).sum(-1)


def model_precision(p: float, length_scale: float, data_size: int, weight_decay: float) -> float:
    """tau = (1 - p) l^2 / (2 N lambda) (Gal & Ghahramani, 2015, section 4), with p the probability of DROPPING.

    lambda is the coefficient of sum w^2 for a loss of half the squared error; for the plain mean squared error give
    half of the coefficient. tau is in the units of the training targets, for instance standardised ones.

    Example:
        >>> model_precision(p=0.5, length_scale=1.0, data_size=1000, weight_decay=1e-4)
        2.5
    """
    if not (0 <= p < 1 and length_scale > 0 and data_size > 0 and weight_decay > 0):
        raise ValueError(
            f"p={p} must lie in [0, 1), and {length_scale=}, {data_size=}, {weight_decay=} must be above 0: without "
            "weight decay the precision is not determined; fit it on validation data instead"
        )
    return (1 - p) * length_scale**2 / (2 * data_size * weight_decay)


@torch.no_grad()
def fit_precision(samples: Iterable[Tensor], targets: Tensor) -> float:
    """The tau that maximises the likelihood of targets that were NOT trained on (as in Gal & Ghahramani, 2015).

    A grid search between 1e-2 and 1e6 times the precision of the targets around their mean.

    Example:
        >>> targets = torch.randn(1000) * 0.5  # noise of variance 1/4 around 0
        >>> 3.4 < fit_precision([torch.zeros(1000)], targets) < 4.7
        True
    """
    target = targets.double()
    guess = 1 / float(target.var(correction=0).clamp(min=1e-12))
    taus = guess * torch.logspace(-2, 6, 161, dtype=torch.float64, device=target.device)  # steps of 12 %
    taus = taus.view(-1, *[1] * target.dim())
    log_sum: Tensor | None = None  # (candidates, ...), over samples
    for output in samples:
        log_p = log_density(output.double(), target, taus)
        log_sum = log_p if log_sum is None else torch.logaddexp(log_sum, log_p)
    best = _require(log_sum).flatten(1).mean(1).argmax()
    return float(taus.flatten()[best])


def log_density(y: Tensor, targets: Tensor, precision: float | Tensor) -> Tensor:
    """log N(target; y, tau^-1), for every target separately."""
    if targets.shape != y.shape:  # broadcasting (N, 1) against (N,) would pair every output with every target
        raise ValueError(f"targets of shape {tuple(targets.shape)} for outputs of shape {tuple(y.shape)}")
    tau = torch.as_tensor(precision, dtype=y.dtype, device=y.device)
    return 0.5 * ((tau / (2 * math.pi)).log() - tau * (y - targets) ** 2)


def _require(sums: Tensor | None) -> Tensor:
    if sums is None:
        raise ValueError("no sample has been added yet")
    return sums
