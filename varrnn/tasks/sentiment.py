"""Sentiment analysis (section 5.2 of the paper): segments of reviews, one rating each, root mean squared error."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from varrnn import rng
from varrnn.config import schema
from varrnn.data.registry import REVIEWS
from varrnn.data.reviews import Segments, cut_segments, frequent_words
from varrnn.errors import UserError
from varrnn.tasks import baselines, sentiment_model
from varrnn.tasks.base import Metrics, Step, reject_unused_options
from varrnn.tasks.model import ModelMasks
from varrnn.tasks.sentiment_model import SentimentModel

ALLOWED = {
    "reviews": tuple(REVIEWS),
    "gate_activation": ("sigmoid", "hard_sigmoid"),
    "gru_candidate": ("tanh", "sigmoid"),
    "word_mask": ("sequence", "minibatch"),
    "scaling": ("inverted", "retain"),
}
TRAIN_SAMPLE = 2655  # number of training segments for the train error: that of the test set at T = 200
FIRST = 100  # the authors' train curve shows the first 100 segments
LATE = 0.9  # of all epochs: the final value is the mean from here on, measured with more samples
LATE_SAMPLES = 50
ROWS = 640  # sequences in one batch: more is not faster on a CPU, and each needs about 0.5 MB at T = 200
KERAS_CHUNK = 500  # the authors predict in chunks of 500 segments, each with one word mask
PRECISION = 0.1  # of the log-likelihood, as the authors' code prints it
TEST, VALID, TRAIN, TRAIN_FIRST = range(4)  # numbers of the random streams; a new split needs a new number


@dataclass
class Split:
    """Segments x (N, T) with ratings y (N,), not standardised; `number` selects the split's random stream."""

    x: Tensor
    y: Tensor
    number: int

    def rmse(self, predicted: Tensor) -> float:
        """Root mean squared error of predictions (N,) in units of the ratings."""
        return float((predicted.double() - self.y.double()).square().mean().sqrt())

    def log_likelihood(self, samples: Tensor) -> float:
        """Mean log of the averaged Gaussian density, with precision 0.1 in rating units: (S, N) -> a number."""
        squares = (samples.double() - self.y.double()).square()
        exponents = (-0.5 * PRECISION * squares).logsumexp(0) - math.log(len(samples))
        return float(exponents.mean()) + 0.5 * math.log(PRECISION / (2 * math.pi))


class SentimentTask:
    """Reviews cut into segments of T words; each has its review's rating, standardised for training."""

    example_command = 'python scripts/predict.py {folder} --text "a fine film"'
    log_batch_losses = True

    def __init__(
        self,
        data: Segments,
        name: str,
        sha256: str,
        config: schema.RunConfig,
        device: torch.device,
        words: list[str] | None = None,
    ) -> None:
        assert isinstance(config.task, schema.SentimentConfig)
        self.all_words = words or []
        self.name, self.sha256, self.data, self.options = name, sha256, data, config.task
        self.seed, self.epochs, self.device = config.seed, config.optim.epochs, device
        self.has_dropout = config.model.has_dropout
        self.x, self.y = (torch.from_numpy(array).to(device) for array in (data.train_x, data.train_y))
        self.test = self._split(data.test_x, data.test_y, TEST)
        self.valid = self._split(data.valid_x, data.valid_y, VALID) if len(data.valid_x) else None
        self.selection_metric: str | None = "valid_rmse" if self.valid else None
        self.updates_per_epoch = -(-len(self.x) // self.options.batch_size)
        self.measured_rows = train_eval_indices(len(self.x)).to(device)
        self.train_parts = {
            "train_rmse": self._train_part(self.measured_rows, TRAIN),
            "train_rmse_100": self._train_part(slice(FIRST), TRAIN_FIRST),
        }
        self._order: tuple[int, Tensor] | None = None

    def _split(self, x: np.ndarray, y: np.ndarray, number: int) -> Split:
        return Split(torch.from_numpy(x).to(self.device), torch.from_numpy(y).to(self.device), number)

    def _train_part(self, rows: Tensor | slice, number: int) -> Split:
        """Some training segments with their ratings in rating units (training targets are standardised)."""
        return Split(self.x[rows], self._ratings(self.y[rows]), number)

    def model(self, config: schema.RunConfig) -> SentimentModel:
        """One row of the embedding per word id, also for padding, which is an ordinary, trained word."""
        return build_model(config, self.vocabulary()).to(self.device)

    def vocabulary(self) -> dict[str, Any]:
        """The words by descending frequency, and the mean and standard deviation of the training ratings."""
        data = self.data
        return {"words": self.all_words, "num_words": data.num_words, "mean": data.mean, "std": data.std}

    def words(self, update: int) -> int:
        """T x B; the last batch of an epoch is smaller."""
        rows = min(self.options.batch_size, len(self.x) - update * self.options.batch_size)
        return rows * self.options.steps

    def prepare_batch(
        self, model: SentimentModel, epoch: int, update: int, generator: torch.Generator | None
    ) -> tuple[Tensor, Tensor, ModelMasks]:
        """Some segments (T, B), their standardised ratings, and new masks for every segment."""
        size = self.options.batch_size
        rows = self._shuffled(epoch)[update * size : (update + 1) * size]
        words = self.x[rows].t()
        return words, self.y[rows], model.sample_masks(words, generator)

    def compute_loss(self, model: SentimentModel, batch: tuple[Tensor, Tensor, ModelMasks], state: Any) -> Step:
        """Mean squared error of standardised ratings. The optimizer adds the penalty."""
        words, ratings, masks = batch
        predicted, _ = model(words, masks=masks)
        error = (predicted[:, 0] - ratings).square().mean()
        return Step(error, error.detach(), None)

    def _shuffled(self, epoch: int) -> Tensor:
        """The epoch's order of the segments; after a resume it is drawn again from its seed."""
        if self._order is None or self._order[0] != epoch:
            draws = rng.make_generator("cpu", rng.SHUFFLE, self.seed, epoch)
            self._order = epoch, torch.randperm(len(self.x), generator=draws).to(self.device)
        return self._order[1]

    def train_metrics(self, mean_loss: float) -> Metrics:
        """Mean squared error of standardised ratings, with dropout.

        Differs: the loss that the authors' code prints includes the weight-decay penalty, which dwarfs the error at the
        paper's 1e-3; without it the curves of figures 13 to 15 can be compared.
        """
        return {"train_loss": mean_loss}

    def epoch_metrics(self, model: SentimentModel, epoch: int) -> Metrics:
        """Train and test error, at some epochs also by MC. If reviews are held out, they replace the test set.

        Differs: the authors chose rates and weight decay on the test curve; here a run with held-out reviews has no
        test curve.
        """
        samples = self.samples(epoch)
        name, part = self._scored
        counted = {"mc_samples": samples} if samples and self.has_dropout else {}
        return {
            **self._train_errors(model, samples, epoch),
            **self._errors(model, name, part, samples, epoch),
            **counted,
        }

    def samples(self, epoch: int) -> int:
        """The MC samples of an epoch: 0 if MC is not measured, at least 50 in the last tenth of training."""
        requested = self.options.mc_samples
        if not requested or not schema.mc_due(epoch, self.options.mc_every, self.epochs):
            return 0
        return max(requested, LATE_SAMPLES) if epoch > LATE * self.epochs else requested

    @property
    def _scored(self) -> tuple[str, Split]:
        """The split of curves and MC dropout: the held-out reviews if there are any, else the test set."""
        return ("test", self.test) if self.valid is None else ("valid", self.valid)

    def final_metrics(self, model: SentimentModel, row: Metrics | None = None) -> Metrics:
        """The metrics of the last epoch; if reviews are held out, also the test error (with fewer samples)."""
        if row is None or row["epoch"] != self.epochs:
            row = self.epoch_metrics(model, self.epochs)
        found = {key: value for key, value in row.items() if key.startswith(("train_rmse", f"{self._scored[0]}_"))}
        if self.valid is not None:
            found |= self._errors(model, "test", self.test, self.options.mc_samples, self.epochs)
        return found

    def _train_errors(self, model: SentimentModel, samples: int, epoch: int) -> Metrics:
        """The error on a fixed random part of the training set, by the dropout approximation and by MC dropout.

        MC is measured at the epochs of the MC test error. With held-out reviews it is left out: it is not used for the
        choice, and would add more than half to the time of a grid.
        Differs: the authors' train curves show the first 100 segments only (42 reviews); those are `train_rmse_100`.
        """
        found = {}
        for name, part in self.train_parts.items():
            found[name] = part.rmse(self._ratings(deterministic_predictions(model, part.x)))
            if samples and self.has_dropout and self.valid is None:
                drawn = self._ratings(mc_predictions(model, part.x, samples, (self.seed, epoch, part.number)))
                found[f"{name}_mc"] = part.rmse(drawn.mean(0))
        return found

    def _errors(self, model: SentimentModel, name: str, split: Split, samples: int, epoch: int) -> Metrics:
        """RMSE in units of the ratings by the approximation and by the MC mean, and the log-likelihood."""
        single = self._ratings(deterministic_predictions(model, split.x)).unsqueeze(0)
        found = {f"{name}_rmse": split.rmse(single[0])}
        if not self.has_dropout:
            return {**found, f"{name}_ll": split.log_likelihood(single)}
        if samples:
            drawn = self._ratings(mc_predictions(model, split.x, samples, (self.seed, epoch, split.number)))
            found |= {f"{name}_rmse_mc": split.rmse(drawn.mean(0)), f"{name}_ll": split.log_likelihood(drawn)}
        return found

    def _ratings(self, standardised: Tensor) -> Tensor:
        """Convert standardised values to rating units."""
        return standardised * self.data.std + self.data.mean

    def reference_metrics(self) -> Metrics:
        """The constant predictor, ridge regression on a bag of words, and the best possible error if it is known."""
        found = {"constant_rmse": baselines.constant_rmse(self.data), "ridge_rmse": baselines.ridge(self.data).rmse}
        return found if self.data.best_rmse is None else {**found, "possible_rmse": self.data.best_rmse}

    def headline(self, row: Metrics) -> str:
        """Train, validation and test errors."""
        name = "test" if self.valid is None else "valid"
        shown = {name: row[f"{name}_rmse"], "MC": row.get(f"{name}_rmse_mc")}
        errors = "  ".join(f"{key} {value:.4f}" for key, value in shown.items() if value is not None)
        return f"train loss {row['train_loss']:.4f}  rmse: train {row['train_rmse']:.4f}  {errors}"

    def sampler(self, model: SentimentModel, config: schema.RunConfig) -> "RatingSampler":
        """MC dropout of the reported model, on the held-out reviews if there are any, else on the test set."""
        name, part = self._scored
        stream = (self.seed, 0, part.number)  # 0 instead of an epoch: a separate stream
        sampler = MCPredictions(model, part.x, config.mc.samples, stream, config.mc.word_dropout)
        return RatingSampler(sampler, name, part, self._ratings)


@torch.no_grad()
def deterministic_predictions(model: SentimentModel, x: Tensor) -> Tensor:
    """The dropout approximation: one pass with every weight at its mean; (N, T) -> (N,), standardised."""
    masks = model.mean_masks()
    return torch.cat([model(rows.t(), masks=masks)[0][:, 0] for rows in x.split(ROWS)])


def mc_predictions(
    model: SentimentModel,
    x: Tensor,
    samples: int,
    stream: tuple[int, ...],
    word_dropout: bool = True,
    tick: Callable[[int], object] | None = None,
) -> Tensor:
    """MC dropout: `samples` stochastic passes, (N, T) -> (S, N), standardised. Their mean is the prediction.

    `tick` is called with the samples x words of every chunk.
    """
    sampler = MCPredictions(model, x, samples, stream, word_dropout)
    while sampler.done < samples:
        count = sampler.advance()
        if tick is not None:
            tick(count)
    return sampler.predictions


class MCPredictions:
    """Samples of the standardised ratings of segments x (N, T), computed in chunks of samples x segments.

    Every sample of every segment is a row of a batch with separate masks. The masks of a chunk come from a generator
    seeded by (stream, first sample, first segment), so that they are the same after a resume.
    """

    def __init__(
        self, model: SentimentModel, x: Tensor, samples: int, stream: tuple[int, ...], word_dropout: bool = True
    ) -> None:
        self.model, self.x, self.samples, self.stream, self.word_dropout = model, x, samples, stream, word_dropout
        self.width = KERAS_CHUNK if model.shared_words else max(1, ROWS // min(samples, 10))
        self.height = max(1, ROWS // self.width)
        self.done = 0  # samples of all segments
        self.segments = 0  # of the next samples
        self.predictions = x.new_zeros(samples, len(x), dtype=model.output.weight.dtype)  # (S, N)

    @torch.no_grad()
    def advance(self) -> int:
        """One chunk; returns its samples x words."""
        count = min(self.height, self.samples - self.done)
        here = slice(self.segments, self.segments + self.width)
        words = self.x[here].t()  # (T, n)
        draws = rng.make_generator(self.x.device, rng.MONTE_CARLO, *self.stream, self.done, self.segments)
        masks = self.model.sample_mc_masks(words, count, draws)
        if not self.word_dropout:
            masks = masks._replace(words=self.model.mean_masks().words)
        drawn = self.model(words.repeat(1, count), masks=masks)[0]
        self.predictions[self.done : self.done + count, here] = drawn.view(count, -1)
        self.segments += words.shape[1]
        if self.segments == len(self.x):
            self.done, self.segments = self.done + count, 0
        return count * words.numel()


@dataclass
class RatingSampler:
    """The error of the mean rating over MC samples, as a run measures it after training."""

    sampler: MCPredictions
    name: str  # of the data: test or valid
    part: Split
    to_ratings: Callable[[Tensor], Tensor]

    @property
    def done(self) -> int:
        return self.sampler.done

    def words(self, samples: int) -> int:
        return samples * self.sampler.x.numel()

    def words_done(self) -> int:
        sampler = self.sampler
        count = min(sampler.height, sampler.samples - sampler.done)
        return self.words(sampler.done) + count * sampler.segments * sampler.x.shape[1]

    def advance(self, samples: int) -> int:
        """Compute one chunk. `samples` must be the number given to the constructor, which determines the chunks."""
        return self.sampler.advance()

    def metrics(self) -> Metrics:
        """RMSE and log-likelihood of the complete samples."""
        drawn = self.to_ratings(self.sampler.predictions[: self.done])
        rmse, likelihood = self.part.rmse(drawn.mean(0)), self.part.log_likelihood(drawn)
        return {
            f"{self.name}_rmse_mc{self.sampler.samples}": rmse,
            f"{self.name}_ll_mc{self.sampler.samples}": likelihood,
            "mc_samples": self.done,
        }

    def curves(self) -> dict[str, Any]:
        return {}

    def state_dict(self) -> dict[str, Any]:
        sampler = self.sampler
        return {
            "samples": sampler.samples,
            "done": sampler.done,
            "segments": sampler.segments,
            "predictions": sampler.predictions,
        }

    def resume(self, state: dict[str, Any], samples: int, same_device: bool) -> None:
        """Continue; start again if another number of samples or another device would give other masks."""
        sampler = self.sampler
        if state["samples"] != samples or not same_device:
            return
        done, segments, predictions = state["done"], state["segments"], state["predictions"]
        if type(done) is not int or not (done == samples or (0 <= done < samples and done % sampler.height == 0)):
            raise ValueError("done")
        if type(segments) is not int or segments % sampler.width or not 0 <= segments < len(sampler.x):
            raise ValueError("segments")
        if not isinstance(predictions, Tensor) or predictions.shape != sampler.predictions.shape:
            raise ValueError("predictions")
        sampler.predictions.copy_(predictions)
        sampler.done, sampler.segments = done, segments


def load(config: schema.RunConfig, device: torch.device) -> SentimentTask:
    """Read the reviews that the config names, and cut them."""
    options = config.task
    assert isinstance(options, schema.SentimentConfig)
    check(options)
    reject_unused_options(options, REVIEWS, options.reviews)
    reviews = REVIEWS[options.reviews].load(options)
    data = cut_segments(reviews, options.steps, options.max_words, options.hold_out)
    words = frequent_words(reviews.texts, options.max_words)
    return SentimentTask(data, reviews.name, reviews.sha256, config, device, words)


def build_model(config: schema.RunConfig, vocabulary: Mapping[str, Any]) -> SentimentModel:
    """The network for a vocabulary of `num_words` word ids."""
    return sentiment_model.build(config, vocabulary["num_words"])


def train_eval_indices(count: int) -> Tensor:
    """The training segments of the train error: random, but the same in all runs."""
    return torch.from_numpy(np.sort(np.random.RandomState(0).permutation(count)[:TRAIN_SAMPLE]))


def check(options: schema.SentimentConfig) -> None:
    """Raise for invalid options."""
    for key, allowed in ALLOWED.items():
        if getattr(options, key) not in allowed:
            raise UserError(f"task.{key}={getattr(options, key)}: allowed are {', '.join(allowed)}")
    for key, least in (("mc_samples", 0), ("mc_every", 1)):
        if getattr(options, key) < least:
            raise UserError(f"task.{key}={getattr(options, key)}: must be at least {least}")
    if not options.recurrent_gain > 0:
        raise UserError(f"task.recurrent_gain={options.recurrent_gain}: must be above 0")
