"""Text from a language model: each word drawn from the model's distribution given all words before it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from varrnn import rng
from varrnn.errors import UserError
from varrnn.tasks.model import ModelMasks, SequenceModel
from varrnn.tasks.perplexity import sample_mask_batch


class Generated(NamedTuple):
    """One text: all its word ids, of which the first `prompt` were given."""

    ids: list[int]
    prompt: int


@dataclass(frozen=True)
class Options:
    """How to draw the words."""

    words: int = 60
    temperature: float = 0.8  # logits are divided by it: below 1 likely words become likelier
    top_k: int = 40  # only the k likeliest words are drawn; 0 draws from all
    samples: int = 1  # number of texts
    seed: int = 0
    mc: bool = False  # one function drawn from q per text, instead of the dropout approximation
    word_dropout: bool = False  # with mc: drop word types too
    never: int | None = None  # an id that is never drawn: <unk> tells the reader nothing

    def __post_init__(self) -> None:
        for name, least in (("words", 1), ("samples", 1), ("top_k", 0), ("seed", 0)):
            if getattr(self, name) < least:
                raise UserError(f"{name}={getattr(self, name)}: must be at least {least}")
        if not self.temperature > 0:
            raise UserError(f"temperature={self.temperature:g}: must be above 0; 0.01 always takes the likeliest word")


@torch.no_grad()
def generate(model: SequenceModel, prompt: list[int], options: Options, before: int | None = None) -> list[Generated]:
    """Continue a prompt, all texts as rows of one batch. `before` (<eos>) is read first, as every sentence follows one.

    With `mc` the masks of a text are drawn once and held from its first word to its last: it is written by ONE function
    of the approximate posterior. Text i is the same however many texts are asked for.
    """
    if not prompt:
        raise UserError("the prompt is empty; give at least one word of the vocabulary")
    device = model.output.weight.device
    masks = _masks(model, options)
    read = prompt if before is None else [before, *prompt]
    words = torch.tensor(read, device=device).unsqueeze(1).expand(-1, options.samples)  # (P, B)
    draws = [rng.make_generator("cpu", rng.GENERATION, options.seed, number) for number in range(options.samples)]
    texts = [list(prompt) for _ in range(options.samples)]
    state = None
    for _ in range(options.words):
        features, state = model.features(words, state, masks)
        chosen = _draw(model.output(features[-1]), options, draws)  # (B,)
        for text, word in zip(texts, chosen.tolist()):
            text.append(word)
        words = chosen.unsqueeze(0)
    return [Generated(text, len(prompt)) for text in texts]


def _masks(model: SequenceModel, options: Options) -> ModelMasks:
    if not options.mc:
        return model.ones_masks()
    if model.dropout.per_step:
        raise UserError(
            "mc: this model draws new masks at every step (naive dropout), so no single function writes a text; leave "
            "mc out, or use a variational model"
        )
    return sample_mask_batch(model, range(options.samples), options.seed, options.word_dropout, 0, 1)


def _draw(logits: Tensor, options: Options, draws: list[torch.Generator]) -> Tensor:
    """One word per row of logits (B, V); every row has its own random numbers."""
    logits = logits.double() / options.temperature
    if options.never is not None:
        logits[:, options.never] = -torch.inf
    if 0 < options.top_k < logits.shape[1]:
        smallest = logits.topk(options.top_k).values[:, -1:]
        logits = logits.masked_fill(logits < smallest, -torch.inf)
    cumulative = logits.softmax(-1).cumsum(-1)
    uniform = torch.stack([torch.rand(1, generator=one, dtype=torch.float64) for one in draws])  # (B, 1)
    place = torch.searchsorted(cumulative, uniform.to(logits.device) * cumulative[:, -1:], right=True)
    return place.clamp(max=logits.shape[1] - 1).squeeze(1)
