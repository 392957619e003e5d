"""Convert torch's recurrent layers in any model to this package's and back; the parameters stay the same objects."""

import copy
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from varrnn.cell_modules import VariationalGRUCell, VariationalLSTMCell, VariationalRNNCell
from varrnn.cells import GRUCell, LSTMCell, RNNCell
from varrnn.dropout import DropoutRates, Rates, is_identity
from varrnn.embedding import WordEmbedding
from varrnn.layers import VariationalGRU, VariationalLSTM, VariationalRNN, VariationalRNNBase
from varrnn.sequence_dropout import SequenceDropout

LAYERS = {nn.LSTM: VariationalLSTM, nn.GRU: VariationalGRU, nn.RNN: VariationalRNN}
CELLS = {nn.LSTMCell: VariationalLSTMCell, nn.GRUCell: VariationalGRUCell, nn.RNNCell: VariationalRNNCell}
TORCH: dict[type, Any] = {ours: theirs for theirs, ours in {**LAYERS, **CELLS}.items()}
SIZES = ("num_embeddings", "embedding_dim")
EMBEDDING_OPTIONS = (*SIZES, "padding_idx", "max_norm", "norm_type", "scale_grad_by_freq", "sparse")
HOOKS = (
    *("_forward_hooks", "_forward_hooks_with_kwargs", "_forward_hooks_always_called"),
    *("_forward_pre_hooks", "_forward_pre_hooks_with_kwargs", "_backward_hooks", "_backward_pre_hooks"),
)


def from_torch(
    module: nn.Module, dropout: Rates, *, embeddings: bool = False, batch_first: bool | None = None
) -> nn.Module:
    """A copy of a model with this package's layers in place of every nn.LSTM, nn.GRU, nn.RNN and their cells.

    The copy shares its parameters with the model, which keeps its layers: an optimizer of one holds the parameters of
    the other, and ``.to()``, ``.half()`` or ``.double()`` on one change both. Buffers (BatchNorm's) are copied.
    torch's dropout between layers is replaced by ``dropout``. Cells need ``hold_masks`` around the loop that calls
    them. In eval() the copy computes what the model computes.

    Args:
        module: a model, or one of these layers.
        dropout: the rates of all layers: a ``DropoutRates``, a mapping, or a float p for tied p_W = p_U = p.
        embeddings: whether every nn.Embedding becomes a ``WordEmbedding`` with the rate p_E of ``dropout``.
        batch_first: for these embeddings, whether words are (B, T); by default as in the recurrent layers.

    Example:
        >>> model = nn.ModuleDict({"rnn": nn.LSTM(3, 4), "out": nn.Linear(4, 2)})
        >>> converted = from_torch(model, DropoutRates.variational(p_W=0.3, p_U=0.3))
        >>> type(converted["rnn"]).__name__, converted["rnn"].weight_ih_l0 is model["rnn"].weight_ih_l0
        ('VariationalLSTM', True)
    """
    rates = DropoutRates.from_mapping(dropout) if isinstance(dropout, Mapping) else dropout
    if embeddings and not isinstance(rates, DropoutRates):
        raise ValueError(f"from_torch: embeddings=True needs a rate p_E, and dropout={dropout!r} has none; give "
                         "DropoutRates(p_E=..., p_W=..., p_U=...)")  # fmt: skip
    layer_rates = replace(rates, p_E=0.0) if isinstance(rates, DropoutRates) and embeddings else rates
    _reject_subclasses(module, embeddings)
    found = [m for m in module.modules() if type(m) in LAYERS or type(m) in CELLS]
    if not found and not (embeddings and any(type(m) is nn.Embedding for m in module.modules())):
        raise ValueError(f"from_torch: {type(module).__name__} contains no nn.LSTM, nn.GRU, nn.RNN or cell of these")
    if batch_first is None:
        flags = {m.batch_first for m in found if type(m) in LAYERS}
        if embeddings and len(flags) != 1:
            raise ValueError("from_torch: give batch_first=, True if the words of embeddings are (B, T), else False")
        batch_first = flags == {True}

    def convert(name: str, old: nn.Module) -> nn.Module | None:
        if type(old) in LAYERS:
            return _layer_from_torch(name, old, layer_rates)
        if type(old) in CELLS:
            options = {"nonlinearity": old.nonlinearity} if isinstance(old, nn.RNNCell) else {}
            made = CELLS[type(old)]  # type: ignore[index]
            return made(old.input_size, old.hidden_size, bool(old.bias), dropout=layer_rates, device="meta", **options)
        if embeddings and type(old) is nn.Embedding:
            p_E = rates.p_E if isinstance(rates, DropoutRates) else 0.0
            return WordEmbedding(**_options(old), p_E=p_E, batch_first=batch_first, device="meta")
        return None

    return _replace(module, convert)


def to_torch(module: nn.Module) -> nn.Module:
    """A copy of a model with torch's layers in place of this package's: for scripting, quantisation and ONNX.

    The copy is in eval(), shares its parameters with the model and gives the same outputs as the model in eval(); it
    has no dropout. ``WordEmbedding`` becomes nn.Embedding, ``SequenceDropout`` nn.Identity. A layer that torch does not
    have (other activations, reset_after=False, cell_scaling="step" with p_c) raises ValueError.

    Example:
        >>> layer = VariationalLSTM(3, 4, dropout=DropoutRates.variational(p_W=0.3)).eval()
        >>> x, plain = torch.randn(5, 2, 3), to_torch(layer)
        >>> type(plain).__name__, torch.allclose(plain(x)[0], layer(x)[0], atol=1e-6)
        ('LSTM', True)
    """
    if not any(isinstance(m, VariationalRNNBase | WordEmbedding | SequenceDropout) for m in module.modules()):
        raise ValueError(f"to_torch: {type(module).__name__} contains no layer of varrnn")

    def convert(name: str, old: nn.Module) -> nn.Module | None:
        if isinstance(old, VariationalRNNBase):
            return _layer_to_torch(name, old)
        if isinstance(old, WordEmbedding):
            return nn.Embedding(**_options(old), device="meta")
        return nn.Identity() if isinstance(old, SequenceDropout) else None

    return _replace(module, convert).eval()


def _layer_from_torch(name: str, old: nn.Module, rates: Rates) -> nn.Module:
    assert isinstance(old, nn.RNNBase)
    if old.proj_size:
        raise ValueError(f"from_torch: {name} has proj_size={old.proj_size}, which this package does not support")
    options = {"nonlinearity": old.nonlinearity} if isinstance(old, nn.RNN) else {}
    made: Any = LAYERS[type(old)]
    return made(**_layer_arguments(old), dropout=rates, **options)


def _layer_arguments(old: nn.RNNBase | VariationalRNNBase) -> dict[str, Any]:
    """The arguments that torch's layers and ours share; the parameters are copied later."""
    names = ("input_size", "hidden_size", "num_layers", "bias", "batch_first", "bidirectional")
    return {name: getattr(old, name) for name in names} | {"device": "meta"}


def _layer_to_torch(name: str, old: VariationalRNNBase) -> nn.Module:
    theirs = TORCH.get(type(old))
    plain = old.cell in (LSTMCell(), GRUCell(), RNNCell(), RNNCell(nonlinearity=torch.relu))
    if theirs is None or not plain:
        raise ValueError(f"to_torch: {name} is a {old}, which torch does not have")
    if not all(is_identity(z) for masks in old.mean_masks() for z in masks):
        raise ValueError(
            f"to_torch: {name} scales its memory cell in eval (cell_scaling={old.cell_scaling!r}), torch does not"
        )
    options = {"nonlinearity": old.nonlinearity} if isinstance(old, VariationalRNN | VariationalRNNCell) else {}
    if type(old) in CELLS.values():
        return theirs(old.input_size, old.hidden_size, bias=old.bias, device="meta", **options)
    return theirs(**_layer_arguments(old), **options)


def _options(old: nn.Embedding) -> dict[str, Any]:
    return {option: getattr(old, option) for option in EMBEDDING_OPTIONS}


def _replace(module: nn.Module, convert: Callable[[str, nn.Module], nn.Module | None]) -> nn.Module:
    """A copy of the model with converted modules, which shares its parameters. A module that occurs twice stays one."""
    memo: dict[int, Any] = {id(tensor): tensor for tensor in module.parameters()}
    for name, old in module.named_modules():
        new = convert(name or type(old).__name__, old)
        if new is not None:
            memo[id(old)] = _adopt(name or type(old).__name__, new, old)
    return copy.deepcopy(module, memo)  # deepcopy uses the objects in the memo instead of copying


def _adopt(name: str, new: nn.Module, old: nn.Module) -> nn.Module:
    """Give the parameters, the mode and the hooks of one module to another."""
    wanted, found = (dict(m.named_parameters(recurse=False)) for m in (new, old))
    if wanted.keys() != found.keys():
        extra = ", ".join(sorted(wanted.keys() ^ found.keys()))
        raise ValueError(f"{name} does not have the parameters of a {type(old).__name__} ({extra}); convert it by hand")
    for key, parameter in found.items():
        setattr(new, key, parameter)
    for hooks in HOOKS:
        setattr(new, hooks, getattr(old, hooks).copy())
    new._is_full_backward_hook = old._is_full_backward_hook  # without it torch ignores the backward hooks
    return new.train(old.training)


def _reject_subclasses(module: nn.Module, embeddings: bool) -> None:
    """Raise for subclasses of torch's layers, whose forward may differ."""
    kinds = (*LAYERS, *CELLS, *((nn.Embedding,) if embeddings else ()))
    for name, found in module.named_modules():
        if isinstance(found, kinds) and type(found) not in kinds and not isinstance(found, WordEmbedding):
            raise ValueError(
                f"from_torch: {name or 'the module'} is a {type(found).__name__}, a subclass; convert it by hand"
            )
