"""Section 4 of the paper: which units are dropped, and over which axes a mask is shared.

Masks are shared by broadcasting. Every mask has axes (time, gate, batch, unit), and an axis over which the mask is
shared has size 1: "the same mask at every step" is a time axis of 1, "tied" is a gate axis of 1. Without dropout the
mask is all ones.

p_E / p_W / p_U / p_y are called dropout_x / _i / _h / _o in the authors' Lua code and p_emb / p_W / p_U / p_dense in
their Keras fork. In this package p is always the probability of DROPPING.
"""

import functools
import threading
import warnings
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from numbers import Real
from typing import Any, ClassVar, NamedTuple, TypeVar

import torch
from torch import Tensor, nn
from torch.nn.modules.dropout import _DropoutNd

from varrnn.torch_modes import current_backward, disable_dynamo, in_functorch, is_traced_or_transformed

R = TypeVar("R")

CELL_SCALINGS = ("read", "step", "inverted")


@dataclass(frozen=True, kw_only=True)
class DropoutRates:
    """The dropout probabilities of each kind of unit, and the axes over which masks are shared. Keyword-only.

    Recurrent layers apply p_W, p_U and p_c, ``WordEmbedding`` p_E, ``SequenceDropout`` p_y. Layers also accept a
    mapping with these keys, for example from YAML or JSON. ``torch.load(weights_only=True)`` loads this class once it
    has been imported (``from varrnn import DropoutRates``).

    Args:
        p_E: the probability of dropping a word type, for each sequence separately.
        p_W: the probability of dropping a unit of a layer's input, in every layer.
        p_U: the probability of dropping a unit of the recurrent state h in the recurrent product.
        p_c: the probability of dropping a unit of the LSTM's memory cell (Moon et al.).
        p_y: the probability of dropping a unit of the last layer's output.
        per_step: True draws a new mask at every time step (Zaremba et al.), False one per sequence.
        per_gate: True draws a mask for every gate ("untied"), False one for all of them ("tied").
        per_batch: True draws one mask for all sequences of a batch (as DropConnect on U does in AWD-LSTM), so that
            torch's own layers (cuDNN) can run recurrent dropout. False draws one mask per sequence. Only recurrent
            layers use it.

    Example:
        >>> DropoutRates.variational(p_W=0.3, p_U=0.2, tied=False)
        DropoutRates(p_E=0.0, p_W=0.3, p_U=0.2, p_c=0.0, p_y=0.0, per_step=False, per_gate=True, per_batch=False)
    """

    _implied: ClassVar[tuple[str, ...]] = ()  # rates set by a preset, not by the caller
    p_E: float = 0.0
    p_W: float = 0.0
    p_U: float = 0.0
    p_c: float = 0.0
    p_y: float = 0.0
    per_step: bool = False
    per_gate: bool = False
    per_batch: bool = False

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if field.name.startswith("p_"):
                check_probability(field.name, value)
                object.__setattr__(self, field.name, float(value))  # NumPy scalars too
            elif not isinstance(value, bool):
                raise TypeError(f"{field.name}={value!r} must be True or False")

    @classmethod
    def none(cls) -> "DropoutRates":
        """The deterministic LSTM of equation non-tied-weights."""
        return cls()

    @classmethod
    def naive(cls, p: float) -> "DropoutRates":
        """Zaremba et al.: inputs and outputs, sampled anew every time step (equation tied-weights-naive-dropout).

        A recurrent layer drops its inputs; the outputs of the last layer (p_y) are dropped by the model.
        """
        return cls(p_W=p, p_y=p, per_step=True)._with_implied("p_y")

    @classmethod
    def moon(cls, p: float, p_E: float = 0.0) -> "DropoutRates":
        """Moon et al.: the internal cell is masked (equation tied-weights-rnn-dropout), inputs and outputs too.

        A recurrent layer drops its inputs and memory; p_y needs a ``SequenceDropout`` after the last layer, and p_E a
        ``WordEmbedding``.
        """
        return cls(p_E=p_E, p_W=p, p_c=p, p_y=p)._with_implied("p_y")

    @classmethod
    def variational(
        cls, *, p_W: float = 0.0, p_U: float = 0.0, p_E: float = 0.0, p_y: float = 0.0, tied: bool = True
    ) -> "DropoutRates":
        """The paper's variant: masks repeated at all time steps (equation tied-weights-dropout; untied: per gate)."""
        return cls(p_E=p_E, p_W=p_W, p_U=p_U, p_y=p_y, per_gate=not tied)

    @classmethod
    def from_mapping(cls, rates: Mapping[str, Any]) -> "DropoutRates":
        """The rates of a mapping such as ``{"p_W": 0.3, "p_U": 0.2}``."""
        allowed = [field.name for field in fields(cls)]
        unknown = [str(key) for key in rates if key not in allowed]
        if unknown:
            raise ValueError(f"unknown dropout rate {', '.join(unknown)}: choose from {', '.join(allowed)}")
        return cls(**{str(key): value for key, value in rates.items()})

    def _with_implied(self, *names: str) -> "DropoutRates":
        object.__setattr__(self, "_implied", names)
        return self

    @property
    def is_active(self) -> bool:
        """Whether any dropout rate is positive."""
        return any((self.p_E, self.p_W, self.p_U, self.p_c, self.p_y))

    def for_layers(self) -> "DropoutRates":
        """The rates that recurrent layers apply, without p_E (WordEmbedding) and p_y (SequenceDropout)."""
        return replace(self, p_E=0.0, p_y=0.0)


torch.serialization.add_safe_globals([DropoutRates])  # hyper-parameters in a checkpoint load with weights_only=True


def check_probability(name: str, value: float) -> None:
    """Raise unless the value is in [0, 1); p = 1 would drop everything, and 1/(1-p) would be infinite."""
    if isinstance(value, bool) or not isinstance(value, Real):
        raise TypeError(f"{name}={value!r} must be a number in [0, 1): the probability of dropping")
    if not 0.0 <= value < 1.0:
        raise ValueError(f"{name}={value!r} is outside [0, 1): it is the probability of DROPPING a unit")


Rates = float | DropoutRates | Mapping[str, Any]  # what layers accept as ``dropout``
_float_explained = False


def as_rates(dropout: Rates, layer: str, memory: bool, stacklevel: int) -> DropoutRates:
    """The rates of a recurrent layer from its ``dropout`` argument; only an LSTM has ``memory``, which p_c needs."""
    if isinstance(dropout, Mapping):
        dropout = DropoutRates.from_mapping(dropout)
    elif not isinstance(dropout, DropoutRates):
        check_probability("dropout", dropout)
        if dropout:
            _explain_float(layer, float(dropout), stacklevel + 1)
        dropout = DropoutRates.variational(p_W=dropout, p_U=dropout)
    if dropout.p_c and not memory:
        raise ValueError(f"{layer}: dropout on the memory (p_c={dropout.p_c}) needs an LSTM; use an LSTM or set p_c=0")
    owners = {"p_E": "belongs to WordEmbedding", "p_y": "belongs to SequenceDropout on the output"}
    unused = [n for n in owners if getattr(dropout, n) and n not in dropout._implied]
    if unused:
        ignored = "; ".join(f"{name}={getattr(dropout, name)} {owners[name]}" for name in unused)
        warnings.warn(
            f"{layer} applies p_W, p_U and p_c only; {ignored}. Pass dropout.for_layers() to silence this warning.",
            stacklevel=stacklevel,
        )
    return dropout


def _explain_float(layer: str, p: float, stacklevel: int) -> None:
    """Warn once per process that a float has another meaning in torch's layers."""
    global _float_explained
    if not _float_explained:
        _float_explained = True
        warnings.warn(
            f"{layer}: dropout={p:g} drops the input of every layer and the recurrent state with one mask per sequence "
            "(tied, p_W = p_U); torch's layers drop between layers only, with a new mask at every step. Pass "
            f"dropout=DropoutRates.variational(p_W={p:g}, p_U={p:g}) to silence this warning",
            stacklevel=stacklevel,
        )


class Masks(NamedTuple):
    """The masks of one layer in one direction, axes (time, gate, batch, unit), size 1 where shared.

    The time axis is in the order of the direction: in the reverse direction, step 0 reads the last input.
    ``z_c`` has no gates; its second axis holds the mask on the memory cell c_t (index 0) and the factor on the output
    h_t (index 1).

    Change a mask with torch's operations (``masks.z_x.mul_(2)``) or build a new one. Do not edit a mask of ones through
    ``.numpy()`` or ``.data``: kernels skip the multiplication by such a mask, and recognise it by its version counter,
    which these edits do not advance. On the CPU the value is compared as well; on a GPU the edit may be ignored.

    Attributes:
        z_x: on the layer's input, (T or 1, gates or 1, B or 1, I or 1).
        z_h: on the recurrent state, (T or 1, gates or 1, B or 1, H or 1).
        z_c: on the memory cell of an LSTM, (T or 1, 2 or 1, B or 1, H or 1).

    Example:
        >>> layer = VariationalGRU(3, 4, dropout=DropoutRates.variational(p_W=0.5, p_U=0.5, tied=False))
        >>> (masks,) = layer.sample_masks(batch_size=2)
        >>> masks.z_x.shape  # (time, gate, batch, unit): shared over time, a mask for each of the three gates
        torch.Size([1, 3, 2, 3])
        >>> no_dropout_of_inputs = masks._replace(z_x=torch.ones(1, 1, 1, 1))
    """

    z_x: Tensor
    z_h: Tensor
    z_c: Tensor


def device_and_dtype(weight: Tensor) -> dict[str, Any]:
    """The device and dtype of a weight, for the masks of its inputs."""
    return {"device": weight.device, "dtype": weight.dtype}


def sample_mask(shape: tuple[int, ...], p: float, generator: torch.Generator | None = None, **factory_kwargs) -> Tensor:
    """One mask with inverted scaling: 0 with probability p, else 1/(1-p), so that its mean is one."""
    if in_functorch():  # vmap(randomness="different") rejects in-place sampling
        return torch.bernoulli(torch.full(shape, 1.0 - p, **factory_kwargs), generator=generator) / (1.0 - p)
    from varrnn.kernels import bernoulli  # imports this module

    mask = torch.empty(shape, **factory_kwargs)
    if generator is not None and bernoulli.can_sample(mask, generator):
        return bernoulli.sample(mask, p, generator)
    if mask.device.type == "cpu" and mask.dtype in (torch.float32, torch.float64):
        return bernoulli.sample_with_torch(mask, p, generator)
    return mask.bernoulli_(1.0 - p, generator=generator).div_(1.0 - p)


def identity_mask(**factory_kwargs) -> Tensor:
    """A mask of ones (no dropout), shared over every axis. Kernels recognise its mark and skip the multiplication."""
    with torch.inference_mode(False):  # only a normal tensor has a version counter, which shows later writes
        one = torch.ones(1, 1, 1, 1, **factory_kwargs)
    one.varrnn_ones = True  # type: ignore[attr-defined]
    return one


@functools.cache
def shared_identity_masks(device: torch.device, dtype: torch.dtype) -> Masks:
    """Masks of ones for internal use: creating three tensors at every call would cost as much as a small step."""
    return Masks(*(identity_mask(device=device, dtype=dtype) for _ in range(3)))


def is_identity(z: Tensor) -> bool:
    """Whether z is an unmodified ``identity_mask``. It reads no values; a wrong False only costs a multiplication."""
    return getattr(z, "varrnn_ones", False) and not z.is_inference() and z._version == 0  # such a tensor has no version


def unmark_edited(z: Tensor) -> Tensor:
    """Remove the mark from a mask of ones that was edited through ``.numpy()`` or ``.data``.

    The version counter does not show such an edit, so the value is compared; on the CPU only, since reading a value
    would synchronise a GPU.
    """
    if (
        z.device.type == "cpu"
        and is_identity(z)
        and not torch.compiler.is_compiling()
        and not is_traced_or_transformed()
        and z.item() != 1
    ):
        return z.clone()
    return z


def is_read_mask(z_c: Tensor) -> bool:
    """Whether z_c is an unmodified mask of ``scale_cell_mask`` with "read": the same units of c_t and h_t."""
    return hasattr(z_c, "varrnn_read") and z_c.varrnn_read == z_c._version


def cast_mask(z: Tensor, dtype: torch.dtype) -> Tensor:
    """A mask in another dtype; a mask of ones keeps its mark."""
    if z.dtype == dtype:
        return z
    if z.requires_grad or torch.compiler.is_compiling() or not is_identity(z):
        return z.to(dtype)
    return identity_mask(device=z.device, dtype=dtype)


def sample_masks(
    dropout: DropoutRates,
    gates: int,
    batch_size: int,
    input_size: int,
    hidden_size: int,
    steps: int | None = None,
    generator: torch.Generator | None = None,
    cell_scaling: str = "read",
    **factory_kwargs,
) -> Masks:
    """Draw z_x, z_h and z_c of one layer: one mask per sequence (or batch) for all steps, unless ``per_step``."""
    if dropout.per_step and steps is None:
        raise ValueError("per_step=True draws a mask at every time step: give steps= (the length of the input)")
    rows = 1 if dropout.per_batch else batch_size
    shape = (steps if dropout.per_step and steps else 1, gates if dropout.per_gate else 1, rows)
    sizes = (
        ((*shape, input_size), dropout.p_W),
        ((*shape, hidden_size), dropout.p_U),
        ((shape[0], 1, rows, hidden_size), dropout.p_c),
    )
    z_x, z_h, z_c = (
        sample_mask(size, p, generator, **factory_kwargs) if p else identity_mask(**factory_kwargs) for size, p in sizes
    )
    return Masks(z_x, z_h, scale_cell_mask(z_c, dropout.p_c, cell_scaling) if dropout.p_c else z_c)


def scale_cell_mask(z_c: Tensor, p_c: float, cell_scaling: str) -> Tensor:
    """Moon's mask, as a factor on c_t and a factor on h_t (stacked on the gate axis).

    Differs: the paper's c_t = c_t o z_c does not say how the mean is kept. A factor 1/(1-p) on c at every step makes
    the memory explode ("inverted"); a factor (1-p) at test time makes it forget within two steps ("step"). A 0/1 mask
    is idempotent: it drops whole units, so scaling the output h by 1/(1-p) keeps the mean ("read").
    """
    if cell_scaling == "inverted":
        return torch.cat([z_c, torch.ones_like(z_c)], dim=1)
    kept = z_c * (1.0 - p_c)
    scaled = torch.cat([kept, z_c if cell_scaling == "read" else torch.ones_like(z_c)], dim=1)
    if cell_scaling == "read" and not scaled.is_inference() and not torch.compiler.is_compiling():
        scaled.varrnn_read = scaled._version  # type: ignore[attr-defined]
    return scaled


def mean_masks(dropout: DropoutRates, cell_scaling: str = "read", **factory_kwargs) -> Masks:
    """The masks of eval(): ones, the mean of masks with inverted scaling (for p_c see scale_cell_mask)."""
    # separate tensors: the caller may write into one of them
    z_x, z_h, z_c = (identity_mask(**factory_kwargs) for _ in range(3))
    if cell_scaling == "step" and dropout.p_c:
        z_c = torch.cat([z_c * (1.0 - dropout.p_c), z_c], dim=1)
    return Masks(z_x, z_h, z_c)


class MaskedModule(nn.Module):
    """A module that draws masks in train() and under ``mc_dropout``, and does not store them."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._mc_depth = 0  # the number of open ``mc_dropout`` blocks

    def __getstate__(self) -> dict[str, Any]:
        """A copy made inside an ``mc_dropout`` block starts outside it: the block's end would not reset the copy."""
        return {**super().__getstate__(), "_mc_depth": 0}  # type: ignore[misc]

    @property
    def dropout_active(self) -> bool:
        return self.training or self._mc_depth > 0

    def sample_unless_held(self, key: Hashable, draw: Callable[..., R], *args: Any) -> R:
        """``draw(*args)``; in a ``hold_masks`` block, the result of the first call with this key."""
        return _draw_once(self, key, draw, *args) if _blocks else draw(*args)


_lock = threading.Lock()
_switched_on: dict[nn.Module, tuple[int, bool]] = {}  # modules of ``also``: open blocks, mode before


def _adjust_depth(modules: Iterable[MaskedModule], by: int) -> None:
    with _lock:  # several threads may open and close blocks
        for module in modules:
            module._mc_depth += by


def _switch_on(modules: Iterable[nn.Module]) -> None:
    with _lock:
        for module in modules:
            depth, before = _switched_on.get(module, (0, module.training))
            _switched_on[module] = (depth + 1, before)
            module.training = True


def _switch_back(modules: Iterable[nn.Module]) -> None:
    with _lock:
        for module in modules:
            depth, before = _switched_on.pop(module)
            if depth > 1:
                _switched_on[module] = (depth - 1, before)
            else:
                module.training = before


Classes = type[nn.Module] | tuple[type[nn.Module], ...]


@contextmanager
def mc_dropout(model: nn.Module, also: Classes | None = None) -> Iterator[nn.Module]:
    """Keep the masks on in eval (MC dropout): each call inside the block samples a function from q(omega).

    Only modules of this package change. Of several open blocks, the last one to end switches the masks off. The masks
    are on for all threads: do not call the same model elsewhere meanwhile to get its outputs without dropout. A model
    without any of these modules raises ValueError. A model that calls a layer several times for one prediction, such as
    a decoder, also needs ``hold_masks``; otherwise each of these calls samples a different function.

    Args:
        model: any module that contains layers of this package.
        also: classes of other modules to switch on: ``also=nn.Dropout`` or ``also=(nn.Dropout, nn.Dropout2d)``. Without
            it they do not change, with a warning if they are off; ``also=()`` silences the warning.

    Example:
        >>> layer = VariationalLSTM(3, 4, dropout=DropoutRates.variational(p_W=0.5)).eval()
        >>> x = torch.randn(5, 2, 3)
        >>> with mc_dropout(layer):
        ...     torch.equal(layer(x)[0], layer(x)[0])
        False
        >>> torch.equal(layer(x)[0], layer(x)[0])
        True
    """
    masked = [module for module in model.modules() if isinstance(module, MaskedModule)]
    others = find_others(model, () if also is None else also)
    if not masked and not others:
        raise ValueError(f"mc_dropout: {type(model).__name__} contains no layer of varrnn, so it has no masks")
    if also is None:
        warn_of_inactive(model, stacklevel=4)
    _adjust_depth(masked, +1)
    _switch_on(others)
    try:
        yield model
    finally:
        _switch_back(others)
        _adjust_depth(masked, -1)


def find_others(model: nn.Module, also: Classes) -> list[nn.Module]:
    """The modules of the classes ``also``, except those of this package."""
    classes = also if isinstance(also, tuple | list) else (also,)
    for one in classes:
        if not (isinstance(one, type) and issubclass(one, nn.Module)):
            raise TypeError(f"also={also!r}: give classes of modules, such as also=(nn.Dropout,)")
    return [m for m in model.modules() if isinstance(m, tuple(classes)) and not isinstance(m, MaskedModule)]


def is_torch_dropout(module: nn.Module) -> bool:
    """Whether this is a module of torch with dropout in train()."""
    if isinstance(module, _DropoutNd):
        return module.p > 0
    return isinstance(module, nn.RNNBase) and module.dropout > 0 and module.num_layers > 1


def warn_of_inactive(model: nn.Module, stacklevel: int, in_eval: bool = False) -> None:
    """Warn about the model's torch dropout modules that are off now, or will be when the model is ``in_eval``."""
    off = {n: m for n, m in model.named_modules() if is_torch_dropout(m) and (in_eval or not m.training)}
    if off:
        kinds = ", ".join(sorted({f"nn.{type(module).__name__}" for module in off.values()}))
        names = ", ".join(name or "the model itself" for name in list(off)[:3]) + (", ..." if len(off) > 3 else "")
        warnings.warn(
            f"{type(model).__name__}: {kinds} ({names}) is off (eval mode) and adds no uncertainty; "
            f"also=({kinds},) switches it on, also=() keeps it off without this warning",
            stacklevel=stacklevel,
        )


class _Block:
    """One open ``hold_masks`` block: its thread, its modules, and the masks of each module and batch size."""

    def __init__(self, modules: Iterable[MaskedModule]) -> None:
        self.thread, self.modules = threading.get_ident(), frozenset(modules)
        self.masks: dict[tuple[MaskedModule, Hashable], Any] = {}


_blocks: list[_Block] = []  # the innermost is the last


@contextmanager
def hold_masks(model: nn.Module) -> Iterator[nn.Module]:
    """Draw masks once and keep them until the block ends: all calls inside evaluate the same function.

    A decoder or a forecaster calls its layers once per time step. Without this block each call draws new masks, which
    is dropout per step, not the paper's. Inside it the calls of a sequence share their masks, so that step by step and
    the whole sequence at once give equal results. ``hold_masks`` does not switch masks on: ``train()`` and
    ``mc_dropout`` do. ``mc_predict`` opens a block for every sample.

    In a block each module draws once for every batch size (and device and dtype):

    - calls of one layer on different inputs of the same batch size share their masks, row by row;
    - a call with another batch size draws masks for that size; later calls with the first size use the first masks;
    - masks that are passed to a call (``masks=``, ``mask=``) are used unchanged;
    - rates with ``per_step=True`` and ``WordEmbedding(per_token=True)`` draw at every call, as they are meant to;
    - of nested blocks, the innermost one that contains the module is used; other threads are not affected.

    The masks are stored in the block, not on the modules. Open a new block for the next sequence. With
    ``torch.utils.checkpoint`` call ``backward()`` inside the block, because it calls the layers again.

    Example:
        Training a decoder step by step, one block per batch of sequences.

        >>> cell = VariationalLSTM(3, 4, dropout=DropoutRates.variational(p_W=0.5, p_U=0.5))
        >>> x, state = torch.randn(5, 2, 3), None
        >>> with hold_masks(cell):
        ...     outputs = []
        ...     for x_t in x.split(1):
        ...         out, state = cell(x_t, state)
        ...         outputs.append(out)
        ...     whole, _ = cell(x)
        >>> torch.allclose(torch.cat(outputs), whole, atol=1e-6)
        True
    """
    masked = [module for module in model.modules() if isinstance(module, MaskedModule)]
    if not masked:
        raise ValueError(f"hold_masks: {type(model).__name__} contains no layer of varrnn, so it has no masks")
    block = _Block(masked)
    _blocks.append(block)
    try:
        yield model
    finally:
        _blocks.remove(block)


@disable_dynamo
def find_block(module: MaskedModule) -> _Block | None:
    """The innermost block that contains this module and was opened in this thread.

    In a backward pass any thread matches: ``torch.utils.checkpoint`` calls layers again in autograd's thread.
    """
    thread = threading.get_ident()
    for block in reversed(tuple(_blocks)):  # a copy: other threads may open and close blocks
        if module in block.modules and (block.thread == thread or current_backward() >= 0):
            return block
    return None


def is_held(module: MaskedModule) -> bool:
    """Whether an open ``hold_masks`` block contains this module."""
    return bool(_blocks) and find_block(module) is not None


@disable_dynamo
def _draw_once(module: MaskedModule, key: Hashable, draw: Callable[..., R], *args: Any) -> R:
    block = find_block(module)
    if block is None:
        return draw(*args)
    if (module, key) not in block.masks:
        if in_functorch():
            raise RuntimeError(
                f"{type(module).__name__}: masks drawn inside torch.func (vmap, grad, jvp) cannot be held; pass masks= "
                "to the layer, or call it once in the hold_masks block before the transform"
            )
        with torch.inference_mode(False):  # the block may outlive inference mode, and autograd may need these masks
            block.masks[module, key] = draw(*args)
    return block.masks[module, key]
