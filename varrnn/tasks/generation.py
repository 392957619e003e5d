"""Generate text with a language model: each word is drawn from its distribution given all words before it."""

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
    """One text: its word ids, of which the first `prompt` are the prompt."""

    ids: list[int]
    prompt: int


@dataclass(frozen=True)
class Options:
    """Options of the sampling of words."""

    words: int = 60
    temperature: float = 0.8  # divides the logits: below 1, likely words become more likely
    top_k: int = 40  # draw from the k most likely words; 0 draws from all
    samples: int = 1  # number of texts
    seed: int = 0
    mc: bool = False  # one function from q(omega) per text, instead of the dropout approximation
    word_dropout: bool = False  # with mc: drop word types too
    never: int | None = None  # an id that is never drawn, e.g. <unk>

    def __post_init__(self) -> None:
        for name, least in (("words", 1), ("samples", 1), ("top_k", 0), ("seed", 0)):
            if getattr(self, name) < least:
                raise UserError(f"{name}={getattr(self, name)}: must be at least {least}")
        if not self.temperature > 0:
            raise UserError(f"temperature={self.temperature:g}: must be above 0; 0.01 takes the most likely word")


@torch.no_grad()
def generate(model: SequenceModel, prompt: list[int], options: Options, before: int | None = None) -> list[Generated]:
    """Continue a prompt, with all texts as rows of one batch. `before` (<eos>) is read first, as before a sentence.

    With `mc` the masks of a text are drawn once and used for all its words: ONE function from the approximate posterior
    writes it. Text i does not depend on the number of texts.
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
        return model.mean_masks()
    if model.dropout.per_step:
        raise UserError(
            "mc: this model draws new masks at every step (naive dropout), so a text would not come from one function; "
            "leave mc out, or use a variational model"
        )
    return sample_mask_batch(model, range(options.samples), options.seed, options.word_dropout, 0, 1)


def _draw(logits: Tensor, options: Options, draws: list[torch.Generator]) -> Tensor:
    """One word per row of logits (B, V); every row has a separate random stream."""
    logits = logits.double() / options.temperature
    if options.never is not None:
        logits[:, options.never] = -torch.inf
    if 0 < options.top_k < logits.shape[1]:
        smallest = logits.topk(options.top_k).values[:, -1:]
        logits = logits.masked_fill(logits < smallest, -torch.inf)
    cumulative = logits.softmax(-1).cumsum(-1)
    uniform = torch.stack([torch.rand(1, generator=one, dtype=torch.float64) for one in draws])  # (B, 1)
    index = torch.searchsorted(cumulative, uniform.to(logits.device) * cumulative[:, -1:], right=True)
    return index.clamp(max=logits.shape[1] - 1).squeeze(1)
