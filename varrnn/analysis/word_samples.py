"""A language model's predictions word by word, with the first 1, 2, ..., S samples of MC dropout."""

from __future__ import annotations

import base64
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from varrnn.analysis.word_uncertainty import shuffled
from varrnn.data.corpus import EOS
from varrnn.errors import UserError
from varrnn.tasks.model import SequenceModel
from varrnn.tasks.perplexity import sample_mask_batch, window_steps
from varrnn.training.trained import TrainedRun
from varrnn.uncertainty import entropy

LIKELIEST = 5
MEASURES = ("mutual_information", "predictive_entropy", "surprise")
LEVELS = 2**16 - 1


class WordSamples(NamedTuple):
    """Row k - 1: the measures from the first k samples for every word but the first, before reading it; in nats."""

    mutual_information: Tensor  # (S, N - 1)
    predictive_entropy: Tensor
    surprise: Tensor
    likeliest: Tensor  # (S, N - 1, 5), ids of the most likely words
    likeliest_p: Tensor  # their averaged probabilities


@torch.no_grad()
def read_samples(
    model: SequenceModel, text: Tensor, samples: int, seed: int = 0, word_dropout: bool = False, memory_mb: int = 128
) -> WordSamples:
    """Read a text (N,) with `samples` functions in one batch; row k - 1 equals `read_text` with k samples."""
    steps = window_steps(4 * samples, model.output.out_features, memory_mb)  # logits, p, their running mean, p log p
    state, masks, parts = None, None, []
    counts = torch.arange(1, samples + 1, dtype=torch.float64, device=text.device)
    for start in range(0, len(text) - 1, steps):
        words = text[start : start + steps + 1]
        if masks is None or model.dropout.per_step:
            masks = sample_mask_batch(model, range(samples), seed, word_dropout, start, len(words) - 1)
        features, state = model.features(words[:-1].unsqueeze(1).expand(-1, samples), state, masks)
        for row, target in zip(model.output(features).softmax(-1), words[1:]):  # (S, V) of one word
            p = row.double()
            mean = p.cumsum(0) / counts.unsqueeze(1)
            total, expected = entropy(mean), entropy(p).cumsum(0) / counts
            best = mean.topk(min(LIKELIEST, mean.shape[1]))
            surprise = -mean[:, target].log()
            parts.append(((total - expected).clamp(min=0), total, surprise, best.indices, best.values))
    return WordSamples(*(torch.stack(columns, 1) for columns in zip(*parts)))


def report_words(run: TrainedRun, text: str | None = None, words: int = 120, samples: int = 100) -> dict[str, Any]:
    """The report's section on words: a text, and the same words in random order, as compact numbers.

    Without a given text the model generates one, so that the corpus is not needed.
    """
    run.require_dropout("the words of the report")
    vocabulary = run.vocabulary
    if text is None:
        ids = torch.tensor(run.generate(vocabulary.words[0], words, samples=1, seed=1)[0].ids, device=run.device)
    else:
        ids = run.encode(text, least=2)[:words]
    texts = {"As written": ids, "The same words, shuffled": shuffled(ids)}
    measured = {
        title: read_samples(run.model, one, samples, run.config.seed, run.config.mc.word_dropout)
        for title, one in texts.items()
    }
    used = torch.cat([one.likeliest.flatten() for one in measured.values()]).unique()
    if len(used) > LEVELS:
        raise UserError(f"{len(used)} different likely words; choose a shorter text")
    scales = {name: max(float(getattr(one, name).max()) for one in measured.values()) or 1.0 for name in MEASURES}
    return {
        "samples": samples,
        "scales": scales,
        "vocabulary": [vocabulary.words[number] for number in used.tolist()],
        "texts": [
            {
                "title": title,
                "lines": title == "As written" and EOS in vocabulary.ids,
                "words": [vocabulary.words[number] for number in texts[title].tolist()],
                "measures": {name: _pack(getattr(one, name) / scales[name] * LEVELS) for name in MEASURES},
                "likeliest_ids": _pack(torch.searchsorted(used, one.likeliest)),
                "likeliest_p": _pack(one.likeliest_p * LEVELS),
            }
            for title, one in measured.items()
        ],
    }


def _pack(values: Tensor) -> str:
    """Integers below 2^16 as base64 of little-endian uint16."""
    return base64.b64encode(values.round().cpu().numpy().astype(np.dtype("<u2")).tobytes()).decode()
