"""The regression network of section 5.2: embedding -> one recurrent layer -> its last state -> one number."""

import math
from typing import Any

import torch
from torch import Tensor, nn

from varrnn.config import schema
from varrnn.dropout import DropoutRates, Masks, device_and_dtype, is_held
from varrnn.layers import VariationalRNNBase
from varrnn.tasks.base import build_dropout
from varrnn.tasks.model import ModelMasks, SequenceModel, concat_masks, repeat_rows


class SentimentModel(SequenceModel):
    """A `SequenceModel` with an output at the last step only, optionally with the masks of the authors' Keras fork.

    ``shared_words``: one word mask for all sequences of a minibatch instead of one per sequence.
    ``retain``: masks of 0 and 1, and the factor 1 - p in the dropout approximation, instead of inverted scaling.
    """

    def __init__(
        self,
        num_words: int,
        units: int,
        layers: int,
        dropout: DropoutRates,
        cell: str = "lstm",
        word_tokens: bool = False,
        shared_words: bool = False,
        retain: bool = False,
        **layer_options: Any,
    ) -> None:
        super().__init__(num_words, units, layers, 1, dropout, cell, word_tokens, last_only=True, **layer_options)
        self.shared_words, self.retain = shared_words, retain

    def features(self, words: Tensor, state: Any = None, masks: ModelMasks | None = None) -> tuple[Tensor, Any]:
        """The last state, with masks scaled as the model was trained, also under ``mc_dropout`` and ``hold_masks``."""
        if masks is None and self.dropout_active:
            masks = self._held_masks(words) if is_held(self) else self.sample_masks(words)
        return super().features(words, state, masks)

    def _held_masks(self, words: Tensor) -> ModelMasks:
        """The masks of a ``hold_masks`` block. What is drawn per step or per token is drawn anew at every call."""
        if self.dropout.per_step:
            return self.sample_masks(words)
        batch = words.shape[1]
        key = (batch, *device_and_dtype(self.output.weight).values())
        masks = self.sample_unless_held(key, self.sample_document_masks, batch, True)
        if self.embedding.per_token and self.dropout.p_E:
            masks = masks._replace(words=self.sample_word_mask(words))
        return self._scale(masks)

    def sample_masks(self, words: Tensor, generator: torch.Generator | None = None) -> ModelMasks:
        """Draw masks for each column of words (T, B)."""
        return self._scale(super().sample_masks(words, generator))

    def sample_mc_masks(self, words: Tensor, samples: int, generator: torch.Generator | None = None) -> ModelMasks:
        """The masks of several passes over words (T, n), as the rows of one batch, pass by pass."""
        if self.dropout.per_batch:  # one draw per pass
            passes = [super(SentimentModel, self).sample_masks(words, generator) for _ in range(samples)]
            masks = concat_masks([repeat_rows(one, words.shape[1]) for one in passes])
        else:
            masks = super().sample_masks(words.repeat(1, samples), generator)
        if self.shared_words and self.dropout.p_E:
            masks = masks._replace(words=self._shared_word_mask(words, samples, generator))
        return self._scale(masks)

    def sample_word_mask(self, words: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """Drop word types of each sequence (section 4.2), or of the whole minibatch."""
        if self.shared_words:
            return self._shared_word_mask(words, 1, generator)
        return super().sample_word_mask(words, generator)

    def _shared_word_mask(self, words: Tensor, samples: int, generator: torch.Generator | None) -> Tensor:
        """One factor per word type and pass, expanded to (T, samples * n, 1)."""
        types = self.embedding.sample_type_mask(samples, generator)  # (samples, V)
        return types[:, words].transpose(0, 1).reshape(len(words), -1, 1)

    def mean_masks(self) -> ModelMasks:
        """The masks of the dropout approximation: every mask at its mean."""
        return self._scale(super().mean_masks())

    def _scale(self, masks: ModelMasks) -> ModelMasks:
        """Multiply by 1 - p: inverted masks become masks of 0 and 1, and the mask of ones becomes 1 - p."""
        if not self.retain:
            return masks
        p = self.dropout

        def kept(mask: Tensor, rate: float) -> Tensor:
            return mask * (1.0 - rate) if rate else mask

        layers = tuple(Masks(kept(z.z_x, p.p_W), kept(z.z_h, p.p_U), z.z_c) for z in masks.layers)
        return ModelMasks(kept(masks.words, p.p_E), layers, kept(masks.output, p.p_y))


def build(config: schema.RunConfig, num_words: int) -> SentimentModel:
    """The network of a config, initialised from its seed."""
    task, chosen, size = config.task, config.model, config.size
    assert isinstance(task, schema.SentimentConfig)
    per_gate = chosen.per_gate or (chosen.per_step and task.untied_naive)
    dropout = build_dropout(chosen, per_gate)
    shared_words, retain = task.word_mask == "minibatch", task.scaling == "retain"
    sizes = (num_words, size.units, size.layers)
    options = _layer_options(config, task)
    model = SentimentModel(*sizes, dropout, config.cell, chosen.word_tokens, shared_words, retain, **options)
    initialise(model, size.init, task.recurrent_gain, config.seed)
    return model


def _layer_options(config: schema.RunConfig, task: schema.SentimentConfig) -> dict[str, Any]:
    """The options of the three kinds of layers.

    The GRU resets h BEFORE the product, as Cho et al. and the authors' Keras fork do; torch resets after it.
    """
    if config.cell == "lstm":
        return {"cell_scaling": config.model.cell_scaling, "gate_activation": task.gate_activation}
    if config.cell == "gru":
        return {
            "reset_after": False,
            "gate_activation": task.gate_activation,
            "candidate_activation": task.gru_candidate,
        }
    return {}


def initialise(model: SentimentModel, bound: float, gain: float, seed: int) -> None:
    """The Keras defaults: embeddings U(-bound, bound), Glorot for W and the output, orthogonal U, zero biases.

    The LSTM has a forget bias of 1. torch's layers have two biases, the paper's equation one; the second stays zero
    without a gradient, so that it is excluded from the number of parameters and from the penalty.
    """
    draws = torch.Generator().manual_seed(seed)  # on the CPU, so that every device starts from the same numbers
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
        model.embedding.weight.copy_(_uniform(model.embedding.weight, bound, draws))
        _initialise_layers(model.layers, gain, draws)
        model.output.weight.copy_(_glorot(model.output.weight, draws))


def _initialise_layers(layers: VariationalRNNBase, gain: float, draws: torch.Generator) -> None:
    """Initialise each gate's matrix separately."""
    size = layers.hidden_size
    for name, parameter in layers.named_parameters():
        gates = parameter.split(size)
        if name.startswith("weight_ih"):
            parameter.copy_(torch.cat([_glorot(gate, draws) for gate in gates]))
        elif name.startswith("weight_hh"):
            parameter.copy_(torch.cat([gain * _orthogonal(size, draws) for _ in gates]))
        elif name.startswith("bias_hh"):
            parameter.requires_grad_(False)
        elif layers.cell.num_gates == 4:
            gates[1].fill_(1.0)  # the forget gate


def _uniform(like: Tensor, bound: float, draws: torch.Generator) -> Tensor:
    return torch.empty(like.shape).uniform_(-bound, bound, generator=draws)


def _glorot(like: Tensor, draws: torch.Generator) -> Tensor:
    return _uniform(like, math.sqrt(6.0 / sum(like.shape)), draws)


def _orthogonal(size: int, draws: torch.Generator) -> Tensor:
    return nn.init.orthogonal_(torch.empty(size, size), generator=draws)
