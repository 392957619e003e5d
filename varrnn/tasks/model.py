"""Embedding -> recurrent layers -> output: the network of every table and figure."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from varrnn.dropout import DropoutRates, MaskedModule, Masks, device_and_dtype, is_identity, sample_mask
from varrnn.embedding import WordEmbedding
from varrnn.kernels import softmax
from varrnn.layers import LAYERS


class ModelMasks(NamedTuple):
    """One sample of all masks: word mask, the layers' masks, output mask (time or 1, B or 1, H or 1)."""

    words: Tensor
    layers: tuple[Masks, ...]
    output: Tensor


class SequenceModel(MaskedModule):
    """y_t = (h_t o z_y) W_y + b_y over the words' embeddings, with dropout on every weight matrix (section 4).

    With ``last_only`` only the last step has an output (sentiment); otherwise every step (language models).
    """

    def __init__(
        self,
        num_words: int,
        units: int,
        layers: int,
        outputs: int,
        dropout: DropoutRates,
        cell: str = "lstm",
        word_tokens: bool = False,
        last_only: bool = False,
        **layer_options: Any,
    ) -> None:
        super().__init__()
        if cell not in LAYERS:
            raise ValueError(f"cell={cell!r}: choose one of {', '.join(LAYERS)}")
        if layer_options.get("batch_first"):
            raise ValueError("SequenceModel: batch_first=True is not supported; give words as (T, B)")
        self.dropout, self.last_only = dropout, last_only
        self.embedding = WordEmbedding(num_words, units, p_E=dropout.p_E, per_token=word_tokens)
        self.layers = LAYERS[cell](units, units, layers, dropout=dropout.for_layers(), **layer_options)
        self.output = nn.Linear(units, outputs)

    def forward(self, words: Tensor, state: Any = None, masks: ModelMasks | None = None) -> tuple[Tensor, Any]:
        """words (T, B) -> outputs (T, B, V), or (B, V) with ``last_only``, and the final state."""
        features, state = self.features(words, state, masks)
        return self.output(features), state

    def features(self, words: Tensor, state: Any = None, masks: ModelMasks | None = None) -> tuple[Tensor, Any]:
        """The input of the output layer: h_t o z_y, (T, B, H), or (B, H) with ``last_only``."""
        if masks is None and not self.dropout_active:
            masks = self.mean_masks()
        if masks is None:  # every module draws its masks, or uses those of the hold_masks block
            h, state = self.layers(self.embedding(words), state)
            z_y = self._draw_output_mask(*words.shape)
        else:
            h, state = self.layers(self.embedding(words, masks.words), state, masks.layers)
            z_y = masks.output
        return (h[-1] * z_y[-1] if self.last_only else h * z_y), state

    def target_log_probabilities(self, features: Tensor, targets: Tensor) -> Tensor:
        """log softmax(features W_y + b_y) at the targets: (T, B, H) and (T, B) -> (T, B), without storing logits."""
        log_p = softmax.target_log_probabilities(
            features.flatten(0, 1), self.output.weight, self.output.bias, targets.flatten()
        )
        return log_p.view(targets.shape)

    def sample_masks(self, words: Tensor, generator: torch.Generator | None = None) -> ModelMasks:
        """Draw masks per sequence: one for each column of words (T, B), for all its steps."""
        steps, batch = words.shape
        word_mask = self.sample_word_mask(words, generator) if self.dropout.p_E else self._one()
        layers = self.layers.sample_masks(batch, steps if self.dropout.per_step else None, generator)
        return ModelMasks(word_mask, layers, self._output_mask(1 if self.last_only else steps, batch, generator))

    def sample_word_mask(self, words: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """The mask on words (T, B): drops word types of each sequence (section 4.2), or tokens."""
        return self.embedding.sample_mask(words, generator)

    def sample_document_masks(
        self, batch: int, word_dropout: bool = False, steps: int | None = None, generator: torch.Generator | None = None
    ) -> ModelMasks:
        """Masks for a whole text that is read in windows (MC dropout), with one factor per word type."""
        dropped = word_dropout and self.dropout.p_E > 0
        word_mask = self.embedding.sample_type_mask(batch, generator) if dropped else self._one()
        layers = self.layers.sample_masks(batch, steps, generator)
        return ModelMasks(word_mask, layers, self._output_mask(steps or 1, batch, generator))

    def mean_masks(self) -> ModelMasks:
        """The masks of the dropout approximation: every weight matrix at its mean."""
        return ModelMasks(self._one(), self.layers.mean_masks(), self._one())

    def _one(self) -> Tensor:
        return torch.ones(1, 1, 1, **device_and_dtype(self.output.weight))

    def _draw_output_mask(self, steps: int, batch: int) -> Tensor:
        if self.dropout.per_step:
            return self._output_mask(1 if self.last_only else steps, batch, None)
        key = (batch, *device_and_dtype(self.output.weight).values())
        return self.sample_unless_held(key, self._output_mask, 1, batch, None)

    def _output_mask(self, steps: int, batch: int, generator: torch.Generator | None) -> Tensor:
        if not self.dropout.p_y:
            return self._one()
        rows = 1 if self.dropout.per_batch else batch
        shape = (steps if self.dropout.per_step else 1, rows, self.output.in_features)
        return sample_mask(shape, self.dropout.p_y, generator, **device_and_dtype(self.output.weight))


def repeat_rows(masks: ModelMasks, rows: int) -> ModelMasks:
    """Repeat masks that a whole batch shares (``per_batch``) for each of its rows, except marked masks of ones."""
    layers = tuple(Masks(*(z if is_identity(z) else z.expand(-1, -1, rows, -1) for z in one)) for one in masks.layers)
    return masks._replace(layers=layers, output=masks.output.expand(-1, rows, -1))


def concat_masks(parts: Sequence[ModelMasks]) -> ModelMasks:
    """Concatenate the masks of several samples along the batch, except the layers' masks of ones."""

    def join(tensors: Sequence[Tensor], axis: int) -> Tensor:
        return tensors[0] if is_identity(tensors[0]) else torch.cat(list(tensors), axis)

    layers = tuple(Masks(*(join(kind, 2) for kind in zip(*masks))) for masks in zip(*(part.layers for part in parts)))
    word_axis = 0 if parts[0].words.dim() == 2 else 1
    return ModelMasks(join([p.words for p in parts], word_axis), layers, join([p.output for p in parts], 1))


def initialise(model: nn.Module, bound: float, seed: int) -> None:
    """Initialise every parameter, also biases, from U(-bound, bound) (Zaremba et al.), equally on every device."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            values = torch.empty(parameter.shape, dtype=parameter.dtype).uniform_(-bound, bound, generator=generator)
            parameter.copy_(values)
