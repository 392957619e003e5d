"""A finished run as one object: model, vocabulary, config and metrics. It does not need the corpus."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from varrnn.config import compose, schema
from varrnn.data.corpus import split_lines
from varrnn.data.csv_reviews import WORD
from varrnn.data.reviews import FIRST_RANK, OOV, START, segment
from varrnn.errors import UserError
from varrnn.tasks import base, generation
from varrnn.tasks.language_model import TEST_STEPS
from varrnn.tasks.perplexity import MCPerplexity, choose_batch, perplexity
from varrnn.tasks.sentiment import deterministic_predictions, mc_predictions
from varrnn.training import evaluation
from varrnn.training import summary as run_summary
from varrnn.training.device import choose_device
from varrnn.training.vocabulary import Vocabulary, read_vocabulary
from varrnn.training.weights import METRICS, WEIGHTS, load_weights, read_metrics

PREDICTIONS = 2  # the random stream of `predict`: those of the test and validation sets are 0 and 1


class Rating(NamedTuple):
    """A predicted rating with its interval and the model's uncertainty."""

    mean: float
    low: float
    high: float
    model_sd: float  # standard deviation over the MC samples: epistemic uncertainty
    unknown_words: list[str]


@dataclass
class TrainedRun:
    """What `open_run` returns."""

    folder: Path
    config: schema.RunConfig
    model: Any
    metrics: dict[str, Any]
    content: dict[str, Any]  # of vocabulary.json
    data: dict[str, Any]  # name and sha256 of the training data

    @property
    def is_language_model(self) -> bool:
        return self.config.task.kind == schema.LANGUAGE_MODEL

    @property
    def device(self) -> torch.device:
        return next(self.model.parameters()).device

    @property
    def vocabulary(self) -> Vocabulary:
        return Vocabulary(self.content["words"])

    def _require(self, language_model: bool, method: str) -> None:
        if self.is_language_model != language_model:
            kind = "language model" if language_model else "sentiment model"
            raise UserError(f"{self.folder}: {method} needs a {kind}; this run is of task={self.config.task.name}")

    def encode(self, text: str, least: int = 1) -> Tensor:
        """Word ids (N,) of a text; newlines become <eos>, unknown words <unk>."""
        self._require(True, "reading a text")
        words = split_lines(text)
        if len(words) < least:
            raise UserError(f"the text has {len(words)} words; give at least {least}")
        return torch.tensor(self.vocabulary.encode(words), device=self.device)

    def perplexity(self, text: str, samples: int = 0) -> float:
        """Perplexity of every word after the first, read from a zero state as the test text is.

        By the dropout approximation, or by MC dropout with `samples` passes.
        """
        ids = self.encode(text, least=2)
        if samples < 0:
            raise UserError(f"samples={samples}: must be at least 0")
        if not samples:
            return perplexity(self.model, ids.unsqueeze(1), TEST_STEPS)
        self.require_dropout("samples")
        rows, memory = choose_batch(0, 0, len(self.content["words"]), self.device)
        sampler = MCPerplexity(self.model, ids, self.config.seed, self.config.mc.word_dropout, rows, memory)
        while sampler.done < samples:
            sampler.advance(samples)
        return sampler.result()[0]

    def require_dropout(self, requested: str) -> None:
        """Raise for a model without dropout, which has nothing to sample."""
        if not self.config.model.has_dropout:
            raise UserError(
                f"{requested}: model={self.config.model.name} has no dropout, so it has nothing to sample; choose a "
                "model with dropout"
            )

    def generate(
        self,
        prompt: str,
        words: int = 60,
        temperature: float = 0.8,
        top_k: int = 40,
        samples: int = 1,
        mc: bool = False,
        seed: int = 0,
    ) -> list[generation.Generated]:
        """Continue a prompt `samples` times; with `mc` every text comes from one function from q(omega)."""
        self._require(True, "generating text")
        if not prompt.split():
            raise UserError("the prompt is empty; give at least one word of the vocabulary")
        if mc:
            self.require_dropout("mc")
        vocabulary = self.vocabulary
        options = generation.Options(
            words, temperature, top_k, samples, seed, mc, self.config.mc.word_dropout, vocabulary.unknown
        )
        start = vocabulary.encode(split_lines(prompt))
        return generation.generate(self.model, start, options, before=vocabulary.end)

    def predict(self, texts: Sequence[str], samples: int = 50, level: float = 0.95) -> list[Rating]:
        """Ratings of texts by MC dropout, each with an interval that contains a share `level` of unseen ratings.

        The interval is Gaussian. Its variance is that of the samples plus the squared error of the run on unseen
        reviews. That error already includes the average model uncertainty, so the interval is slightly too wide.
        The rating of a text longer than the training segments is the mean over its segments.
        """
        self._require(False, "predicting a rating")
        if not 0 < level < 1:
            raise UserError(f"level={level}: must lie between 0 and 1")
        noise, width = self._noise_sd(), math.sqrt(2) * float(torch.erfinv(torch.tensor(level, dtype=torch.float64)))
        ratings = []
        for text in texts:
            tokens = WORD.findall(text.lower())
            if not tokens:
                raise UserError(f"the text {text!r} has no words; give a review")
            x, unknown = self._segments(tokens)
            drawn = self._rate(x, samples).mean(1)  # (S,): the mean over the text's segments
            mean, spread = float(drawn.mean()), float(drawn.std(correction=0))
            half = width * math.sqrt(spread**2 + noise**2)
            ratings.append(Rating(mean, mean - half, mean + half, spread, unknown))
        return ratings

    def _segments(self, tokens: list[str]) -> tuple[Tensor, list[str]]:
        """Word ids as in training, (segments, T), and the words that are not in the vocabulary."""
        ids = {word: number for number, word in enumerate(self.content["words"], FIRST_RANK + 1)}
        numbers = np.array([START, *(ids.get(token, OOV) for token in tokens)])
        x, _ = segment([numbers], self.config.task.steps)
        return torch.from_numpy(x).to(self.device), list(dict.fromkeys(t for t in tokens if t not in ids))

    def _rate(self, x: Tensor, samples: int) -> Tensor:
        """Ratings in rating units, (S, segments); one row for a model without dropout."""
        if self.config.model.has_dropout and samples:
            stream = (self.config.seed, 0, PREDICTIONS)
            drawn = mc_predictions(self.model, x, samples, stream, self.config.mc.word_dropout)
        else:
            drawn = deterministic_predictions(self.model, x).unsqueeze(0)
        return drawn.double() * self.content["std"] + self.content["mean"]

    def _noise_sd(self) -> float:
        """The error on unseen reviews, by MC dropout if it was measured."""
        names = [f"test_rmse_mc{self.metrics.get('mc_samples', 0):.0f}", "test_rmse_mc", "test_rmse"]
        found = [self.metrics[name] for name in names if self.metrics.get(name) is not None]
        if not found:
            raise UserError(f"{self.folder}: its summary has no test error, so no interval can be given")
        return float(found[0])


def open_run(folder: str | Path, overrides: Sequence[str] = ()) -> TrainedRun:
    """Read a finished run, or weights exported by scripts/export_weights.py; mc.*, device and threads may change.

    A run from before vocabulary.json existed needs its corpus, to build the vocabulary.
    """
    folder = Path(folder)
    config = compose.load_config(folder, overrides)
    exported = (folder / WEIGHTS).is_file()
    summary = read_metrics(folder / METRICS) if exported else run_summary.load_finished(folder)
    content = read_vocabulary(folder)
    device = choose_device(config)
    if content is None:
        if exported:
            raise UserError(f"{folder}: vocabulary.json is missing; export the weights again")
        task = base.build(config, device)
        if task.sha256 != summary["data"]["sha256"]:
            raise UserError(
                f"{folder}: was trained on another version of {task.name}, and has no vocabulary.json; restore that "
                "version, or train it again"
            )
        content = task.vocabulary()
    model = base.build_model(config, content).to(device)
    if exported:
        load_weights(model, folder / WEIGHTS)
    else:
        evaluation.load_reported_weights(model, config, folder)
    return TrainedRun(folder, config, model.eval(), summary["metrics"], content, summary["data"])
