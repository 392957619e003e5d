"""How uncertain a language model is about every next word of a text, by MC dropout."""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from varrnn.tasks.model import SequenceModel
from varrnn.tasks.perplexity import sample_mask_batch, window_steps
from varrnn.uncertainty import Classification

MEASURES = {
    "predictive_entropy": "predictive entropy",
    "expected_entropy": "expected entropy",
    "mutual_information": "mutual information (BALD)",
    "variation_ratio": "variation ratio",
    "surprise": "surprise, -log p(word)",
}


class WordUncertainty(NamedTuple):
    """One number for every word but the first, (N - 1,), from the prediction BEFORE reading it. In nats."""

    predictive_entropy: Tensor
    expected_entropy: Tensor
    mutual_information: Tensor
    variation_ratio: Tensor
    surprise: Tensor  # -log of the word's averaged probability
    confidence: Tensor  # averaged probability of the most likely word
    correct: Tensor  # whether the most likely word is the next word


@torch.no_grad()
def read_text(
    model: SequenceModel,
    text: Tensor,
    samples: int = 50,
    seed: int = 0,
    word_dropout: bool = False,
    memory_mb: int = 128,
    tick: Callable[[int], object] | None = None,
) -> WordUncertainty:
    """Read a text of word ids (N,) from a zero state; every sample keeps its masks for the whole text.

    `samples=0` reads it once with the dropout approximation, which gives no model uncertainty. `tick` is called with
    the number of words read.
    """
    if len(text) < 2:
        raise ValueError(f"a text of {len(text)} words has no next word; give at least 2")
    windows = []
    for window in _windows(model, text, samples, seed, word_dropout, memory_mb):
        windows.append(window)
        if tick is not None:
            tick(len(window.surprise))
    return WordUncertainty(*(torch.cat(parts) for parts in zip(*windows)))


def _windows(
    model: SequenceModel, text: Tensor, samples: int, seed: int, word_dropout: bool, memory_mb: int
) -> Iterator[WordUncertainty]:
    rows = max(1, samples)
    steps = window_steps(3 * rows, model.output.out_features, memory_mb)  # logits, probabilities and p log p
    state, masks = None, None
    for start in range(0, len(text) - 1, steps):
        words = text[start : start + steps + 1]
        if masks is None or model.dropout.per_step:
            drawn = (range(samples), seed, word_dropout, start, len(words) - 1)
            masks = sample_mask_batch(model, *drawn) if samples else model.mean_masks()
        features, state = model.features(words[:-1].unsqueeze(1).expand(-1, rows), state, masks)
        yield _measure(model.output(features).softmax(-1), words[1:])


def _measure(probabilities: Tensor, targets: Tensor) -> WordUncertainty:
    """probabilities (W, samples, V), targets (W,)."""
    result = Classification().add(probabilities, sample_dim=1)
    mean = result.mean
    confidence, likeliest = mean.max(-1)
    surprise = -mean.gather(1, targets.unsqueeze(1)).squeeze(1).log()
    return WordUncertainty(
        result.predictive_entropy,
        result.expected_entropy,
        result.mutual_information,
        result.variation_ratio,
        surprise,
        confidence,
        likeliest == targets,
    )


def shuffled(text: Tensor, seed: int = 0) -> Tensor:
    """The same words in random order."""
    order = np.random.default_rng(seed).permutation(len(text))
    return text[torch.from_numpy(order).to(text.device)]


def random_words(text: Tensor, num_words: int, seed: int = 0) -> Tensor:
    """As many words, drawn uniformly from the vocabulary."""
    drawn = np.random.default_rng(seed).integers(num_words, size=len(text))
    return torch.from_numpy(drawn).to(text.device)


def auroc(out_of_domain: Tensor, in_domain: Tensor) -> float:
    """AUROC: the probability that an out-of-distribution word scores higher than an in-domain word; .5 is chance."""
    in_domain = in_domain.double().sort().values
    below = torch.searchsorted(in_domain, out_of_domain.double())
    up_to = torch.searchsorted(in_domain, out_of_domain.double(), right=True)
    return float((below + up_to).double().mean() / (2 * len(in_domain)))  # ties count one half
