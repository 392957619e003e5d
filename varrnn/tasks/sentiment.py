"""Sentiment analysis (section 5.2 of the paper): segments of reviews, one rating each, root mean squared error."""

from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from varrnn import rng
from varrnn.config import schema
from varrnn.data import cornell, csv_reviews, synthetic
from varrnn.data.reviews import Reviews, Segments, frequent_words, segments
from varrnn.errors import UserError
from varrnn.tasks import baselines, sentiment_model
from varrnn.tasks.base import Metrics, ResumedWork, Step, reject_unused_options
from varrnn.tasks.model import ModelMasks
from varrnn.tasks.regression import Split, deterministic_predictions, mc_predictions
from varrnn.tasks.sentiment_model import SentimentModel

ALLOWED = {
    "reviews": ("cornell", "synthetic", "csv"),
    "gate_activation": ("sigmoid", "hard_sigmoid"),
    "gru_candidate": ("tanh", "sigmoid"),
    "word_mask": ("sequence", "minibatch"),
    "scaling": ("inverted", "retain"),
}
SOURCES = {"cornell": ("path",), "synthetic_reviews": (), "reviews": ("path", "csv")}  # the options of each
NAMES = {"cornell": "cornell", "synthetic": "synthetic_reviews", "csv": "reviews"}
TRAIN_SAMPLE = 2655  # training segments whose error is measured: as many as the test set has at T = 200
FIRST = 100  # the authors' train curve is that of the first 100 segments
LATE = 0.9  # of all epochs: from here on a curve's end is averaged, so that it is measured with more samples
LATE_SAMPLES = 50
TEST, VALID, TRAIN, TRAIN_FIRST = range(4)  # numbers of the random streams; a new part gets a new number


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
        self.drops = config.model.drops
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

    @classmethod
    def load(cls, config: schema.RunConfig, device: torch.device) -> "SentimentTask":
        """Read the reviews that the config names, and cut them."""
        options = config.task
        assert isinstance(options, schema.SentimentConfig)
        check(options)
        reject_unused_options(options, SOURCES, NAMES[options.reviews])
        reviews = read(options)
        data = segments(reviews, options.steps, options.max_words, options.hold_out)
        words = frequent_words(reviews.texts, options.max_words)
        return cls(data, reviews.name, reviews.sha256, config, device, words)

    def _split(self, x: np.ndarray, y: np.ndarray, number: int) -> Split:
        return Split(torch.from_numpy(x).to(self.device), torch.from_numpy(y).to(self.device), number)

    def _train_part(self, rows: Tensor | slice, number: int) -> Split:
        """Some training segments with their ratings, whose targets are standardised elsewhere."""
        return Split(self.x[rows], self._ratings(self.y[rows]), number)

    def model(self, config: schema.RunConfig) -> SentimentModel:
        """One row of the embedding per word id, padding included: it is an ordinary word that is trained too."""
        return sentiment_model.build(config, self.data.num_words).to(self.device)

    def vocabulary(self) -> dict[str, Any]:
        """The words by falling frequency, and what turns standardised predictions into ratings."""
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

    def loss(
        self, model: SentimentModel, epoch: int, update: int, state: Any, generator: torch.Generator | None
    ) -> Step:
        """The loss of one batch."""
        return self.compute_loss(model, self.prepare_batch(model, epoch, update, generator), state)

    def compute_loss(self, model: SentimentModel, batch: tuple[Tensor, Tensor, ModelMasks], state: Any) -> Step:
        """Mean squared error of standardised ratings. The optimizer adds the penalty."""
        words, ratings, masks = batch
        predicted, _ = model(words, masks=masks)
        error = (predicted[:, 0] - ratings).square().mean()
        return Step(error, error.detach(), None)

    def _shuffled(self, epoch: int) -> Tensor:
        """The epoch's order of the segments; drawn again, not remembered, after a stop."""
        if self._order is None or self._order[0] != epoch:
            draws = rng.make_generator("cpu", rng.SHUFFLE, self.seed, epoch)
            self._order = epoch, torch.randperm(len(self.x), generator=draws).to(self.device)
        return self._order[1]

    def train_metrics(self, mean_loss: float) -> Metrics:
        """Mean squared error, standardised, masks on.

        Differs: the loss that the authors' code prints includes the weight-decay penalty, which dwarfs the error at the
        paper's 1e-3; without it the curves of figures 13 to 15 can be compared.
        """
        return {"train_loss": mean_loss}

    def epoch_metrics(self, model: SentimentModel, epoch: int) -> Metrics:
        """Train and test error; MC when it is due. Where reviews are held out, they take the place of the test set.

        Differs: the authors chose rates and weight decay on the test curve; a run that chooses sees no such curve.
        """
        samples = self.samples(epoch)
        name, part = self._scored
        counted = {"mc_samples": samples} if samples and self.drops else {}
        return {
            **self._train_errors(model, samples, epoch),
            **self._errors(model, name, part, samples, epoch),
            **counted,
        }

    def samples(self, epoch: int) -> int:
        """How many MC samples measure an epoch: none where MC is not due, at least 50 in the last tenth of training."""
        asked = self.options.mc_samples
        if not asked or not schema.mc_due(epoch, self.options.mc_every, self.epochs):
            return 0
        return max(asked, LATE_SAMPLES) if epoch > LATE * self.epochs else asked

    @property
    def _scored(self) -> tuple[str, Split]:
        """What curves and MC dropout are about: the held-out reviews where there are any, else the test set."""
        return ("test", self.test) if self.valid is None else ("valid", self.valid)

    def final_metrics(self, model: SentimentModel) -> Metrics:
        """What the last epoch measures, and the test error also where reviews are held out (with fewer samples)."""
        samples, epoch = self.samples(self.epochs), self.epochs
        name, part = self._scored
        found = {**self._train_errors(model, samples, epoch), **self._errors(model, name, part, samples, epoch)}
        if self.valid is not None:
            found |= self._errors(model, "test", self.test, self.options.mc_samples, epoch)
        return found

    def _train_errors(self, model: SentimentModel, samples: int, epoch: int) -> Metrics:
        """On a fixed random part of the training set, by the dropout approximation and by MC where the test error is.

        By MC not where reviews are held out: it chooses nothing, and would add more than half to the time of a grid.
        Differs: the authors' train curves show the first 100 segments only (42 reviews); those are `train_rmse_100`.
        """
        found = {}
        for name, part in self.train_parts.items():
            found[name] = part.rmse(self._ratings(deterministic_predictions(model, part.x)))
            if samples and self.drops and self.valid is None:
                drawn = self._ratings(mc_predictions(model, part.x, samples, (self.seed, epoch, part.number)))
                found[f"{name}_mc"] = part.rmse(drawn.mean(0))
        return found

    def _errors(self, model: SentimentModel, name: str, split: Split, samples: int, epoch: int) -> Metrics:
        """RMSE in units of the ratings by the approximation and by the MC mean, and the log-likelihood."""
        single = self._ratings(deterministic_predictions(model, split.x)).unsqueeze(0)
        found = {f"{name}_rmse": split.rmse(single[0])}
        if not self.drops:
            return {**found, f"{name}_ll": split.log_likelihood(single)}
        if samples:
            drawn = self._ratings(mc_predictions(model, split.x, samples, (self.seed, epoch, split.number)))
            found |= {f"{name}_rmse_mc": split.rmse(drawn.mean(0)), f"{name}_ll": split.log_likelihood(drawn)}
        return found

    def _ratings(self, standardised: Tensor) -> Tensor:
        """Back to the units of the ratings."""
        return standardised * self.data.std + self.data.mean

    def reference_metrics(self) -> Metrics:
        """The constant predictor, ridge regression on a bag of words, and the best possible error where it is known."""
        found = {"constant_rmse": baselines.constant_rmse(self.data), "ridge_rmse": baselines.ridge(self.data).rmse}
        return found if self.data.best_rmse is None else {**found, "possible_rmse": self.data.best_rmse}

    def headline(self, row: Metrics) -> str:
        """Train error and what it generalises to."""
        name = "test" if self.valid is None else "valid"
        shown = {name: row[f"{name}_rmse"], "MC": row.get(f"{name}_rmse_mc")}
        errors = "  ".join(f"{key} {value:.4f}" for key, value in shown.items() if value is not None)
        return f"train loss {row['train_loss']:.4f}  rmse: train {row['train_rmse']:.4f}  {errors}"

    def mc(
        self, model: SentimentModel, config: schema.RunConfig, folder: Path, monitor: Any
    ) -> tuple[Metrics, dict[str, Any], ResumedWork]:
        """MC dropout of the reported model, of the held-out reviews where there are any, else of the test set.

        Takes a minute, so nothing is saved on the way.
        """
        samples, (name, part) = config.mc.samples, self._scored
        monitor.start(samples * part.x.numel())

        def tick(count: int) -> None:
            monitor.advance(count)
            monitor.stop_if_requested()

        stream = (self.seed, 0, part.number)  # epoch 0: the draws of no epoch
        drawn = self._ratings(mc_predictions(model, part.x, samples, stream, config.mc.word_dropout, tick))
        rmse, likelihood = part.rmse(drawn.mean(0)), part.log_likelihood(drawn)
        return (
            {f"{name}_rmse_mc{samples}": rmse, f"{name}_ll_mc{samples}": likelihood, "mc_samples": samples},
            {},
            ResumedWork(),
        )


def train_eval_indices(count: int) -> Tensor:
    """Which training segments are measured: random, but the same in all runs."""
    return torch.from_numpy(np.sort(np.random.RandomState(0).permutation(count)[:TRAIN_SAMPLE]))


def read(options: schema.SentimentConfig) -> Reviews:
    """The reviews by their name."""
    if options.reviews == "cornell":
        return cornell.load(options.path)
    if options.reviews == "synthetic":
        return synthetic.load()
    if options.csv is None:
        raise UserError("task=reviews: no file; set task.path=file.csv, a CSV file with the columns text and rating")
    if options.path not in (None, options.csv):
        raise UserError(f"task.path={options.path} and task.csv={options.csv}: two names of one option; give one file")
    return csv_reviews.load(options.csv)


def check(options: schema.SentimentConfig) -> None:
    """Refuse values that nothing here understands."""
    for key, allowed in ALLOWED.items():
        if getattr(options, key) not in allowed:
            raise UserError(f"task.{key}={getattr(options, key)}: allowed are {', '.join(allowed)}")
    for key, least in (("mc_samples", 0), ("mc_every", 1)):
        if getattr(options, key) < least:
            raise UserError(f"task.{key}={getattr(options, key)}: must be at least {least}")
    if not options.recurrent_gain > 0:
        raise UserError(f"task.recurrent_gain={options.recurrent_gain}: must be above 0")
