"""Section 4 of the paper: which units are dropped, and over what a mask is shared.

Sharing is broadcasting. Every mask has axes (time, gate, batch, unit), and an axis over which the mask is shared has
size 1: "the same mask at every step" is a time axis of 1, "tied" is a gate axis of 1. No dropout is the mask of ones.

Names of the probabilities elsewhere: p_E / p_W / p_U / p_y are dropout_x / _i / _h / _o in the authors' Lua code and
p_emb / p_W / p_U / p_dense in their Keras fork. Ours always mean the probability of DROPPING.
"""

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from numbers import Real
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from varrnn.followed import transformed

CELL_SCALINGS = ("read", "step", "inverted")


@dataclass(frozen=True)
class Dropout:
    """Drop probabilities of word types (E), layer inputs (W), recurrent states (U), memory (c) and outputs (y).

    ``per_step`` draws a new mask at every time step (Zaremba et al.); ``per_gate`` draws one for every gate ("untied");
    ``per_batch`` draws one for all sequences of a batch (as DropConnect on U does in AWD-LSTM) instead of one for each:
    torch's own layers (cuDNN) can then run recurrent dropout. It concerns the layers and what reads the output.
    """

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
                object.__setattr__(self, field.name, float(value))  # from NumPy's kinds too
            elif not isinstance(value, bool):
                raise TypeError(f"{field.name}={value!r} must be True or False")

    @classmethod
    def none(cls) -> "Dropout":
        """The deterministic LSTM of equation non-tied-weights."""
        return cls()

    @classmethod
    def naive(cls, p: float) -> "Dropout":
        """Zaremba et al.: inputs and outputs, sampled anew every time step (equation tied-weights-naive-dropout)."""
        return cls(p_W=p, p_y=p, per_step=True)

    @classmethod
    def moon(cls, p: float, p_E: float = 0.0) -> "Dropout":
        """Moon et al.: the internal cell is masked (equation tied-weights-rnn-dropout), inputs and outputs too."""
        return cls(p_E=p_E, p_W=p, p_c=p, p_y=p)

    @classmethod
    def variational(
        cls, *, p_W: float = 0.0, p_U: float = 0.0, p_E: float = 0.0, p_y: float = 0.0, tied: bool = True
    ) -> "Dropout":
        """The paper's variant: masks repeated at all time steps (equation tied-weights-dropout; untied: per gate)."""
        return cls(p_E=p_E, p_W=p_W, p_U=p_U, p_y=p_y, per_gate=not tied)

    @property
    def drops(self) -> bool:
        """Whether anything is dropped at all."""
        return any((self.p_E, self.p_W, self.p_U, self.p_c, self.p_y))

    def for_layers(self) -> "Dropout":
        """The part that recurrent layers apply: p_E belongs to WordEmbedding, p_y to whatever reads the last layer."""
        return replace(self, p_E=0.0, p_y=0.0)


def check_probability(name: str, value: float) -> None:
    """Refuse what is not a drop probability; p = 1 would drop everything and has no inverse scaling."""
    if isinstance(value, bool) or not isinstance(value, Real):
        raise TypeError(f"{name}={value!r} must be a number in [0, 1): the probability of dropping")
    if not 0.0 <= value < 1.0:
        raise ValueError(f"{name}={value!r} is outside [0, 1): it is the probability of DROPPING a unit")


class Masks(NamedTuple):
    """The masks of one layer in one direction, axes (time, gate, batch, unit), size 1 where shared.

    The time axis counts the steps that the direction takes: a reverse direction takes its first at the last input.
    ``z_c`` has no gates; its gate axis tells the mask on the memory c_t (index 0) from the factor on h_t where it is
    read (index 1).
    """

    z_x: Tensor
    z_h: Tensor
    z_c: Tensor


def like(weight: Tensor) -> dict[str, Any]:
    """Where and in what precision the masks of a weight's inputs are made."""
    return {"device": weight.device, "dtype": weight.dtype}


def bernoulli(shape: tuple[int, ...], p: float, generator: torch.Generator | None = None, **where) -> Tensor:
    """One mask with inverted scaling: 0 with probability p, else 1/(1-p), so that its mean is one."""
    if transformed():  # vmap(randomness="different") allows no draw in place
        return torch.bernoulli(torch.full(shape, 1.0 - p, **where), generator=generator) / (1.0 - p)
    return torch.empty(shape, **where).bernoulli_(1.0 - p, generator=generator).div_(1.0 - p)


def ones(**where) -> Tensor:
    """No dropout: the mask of ones, shared over every axis. It is marked, so that a kernel need not multiply by it."""
    with torch.inference_mode(False):  # a version counter, which tells whether somebody wrote into the mask
        one = torch.ones(1, 1, 1, 1, **where)
    one.varrnn_ones = True  # type: ignore[attr-defined]
    return one


def is_ones(z: Tensor) -> bool:
    """Whether z is still what ``ones`` made; False only costs a multiplication, and asks the device nothing."""
    return getattr(z, "varrnn_ones", False) and z._version == 0


def is_read_mask(z_c: Tensor) -> bool:
    """Whether z_c is still a mask that ``scale_cell`` made with "read": it drops units of c_t and the same of h_t."""
    return hasattr(z_c, "varrnn_read") and z_c.varrnn_read == z_c._version


def cast(z: Tensor, dtype: torch.dtype) -> Tensor:
    """A mask in another type; ones stay marked."""
    if z.dtype == dtype or z.requires_grad or torch.compiler.is_compiling() or not is_ones(z):
        return z.to(dtype)
    return ones(device=z.device, dtype=dtype)


def sample(
    dropout: Dropout,
    gates: int,
    batch_size: int,
    input_size: int,
    hidden_size: int,
    steps: int | None = None,
    generator: torch.Generator | None = None,
    cell_scaling: str = "read",
    **where,
) -> Masks:
    """Draw z_x, z_h and z_c of one layer: one draw per sequence (or batch), held over its steps unless ``per_step``."""
    if dropout.per_step and steps is None:
        raise ValueError("per_step=True draws a mask at every time step: give steps= (the length of the input)")
    rows = 1 if dropout.per_batch else batch_size
    shape = (steps if dropout.per_step and steps else 1, gates if dropout.per_gate else 1, rows)
    z_x = bernoulli((*shape, input_size), dropout.p_W, generator, **where) if dropout.p_W else ones(**where)
    z_h = bernoulli((*shape, hidden_size), dropout.p_U, generator, **where) if dropout.p_U else ones(**where)
    if not dropout.p_c:
        return Masks(z_x, z_h, ones(**where))
    z_c = bernoulli((shape[0], 1, rows, hidden_size), dropout.p_c, generator, **where)
    return Masks(z_x, z_h, scale_cell(z_c, dropout.p_c, cell_scaling))


def scale_cell(z_c: Tensor, p_c: float, cell_scaling: str) -> Tensor:
    """Moon's mask, as a factor on c_t and a factor on h_t (stacked on the gate axis).

    Differs: the paper's c_t = c_t o z_c does not say how the mean is kept. A factor 1/(1-p) on c at every step makes
    the memory explode ("inverted"); (1-p) at test makes it forget within two steps ("step"). A 0/1 mask is idempotent:
    it drops whole units, so the mean is kept by scaling h where it is READ ("read").
    """
    if cell_scaling == "inverted":
        return torch.cat([z_c, torch.ones_like(z_c)], dim=1)
    kept = z_c * (1.0 - p_c)
    scaled = torch.cat([kept, z_c if cell_scaling == "read" else torch.ones_like(z_c)], dim=1)
    if cell_scaling == "read" and not scaled.is_inference() and not torch.compiler.is_compiling():
        scaled.varrnn_read = scaled._version  # type: ignore[attr-defined]
    return scaled


def approximation(dropout: Dropout, cell_scaling: str = "read", **where) -> Masks:
    """The dropout approximation: masks of ones, the mean of those with inverted scaling (Moon's: see scale_cell)."""
    z_x, z_h, z_c = (ones(**where) for _ in range(3))  # tensors of their own: writing into one leaves the others alone
    if cell_scaling == "step" and dropout.p_c:
        z_c = torch.cat([z_c * (1.0 - dropout.p_c), z_c], dim=1)
    return Masks(z_x, z_h, z_c)


class MaskedModule(nn.Module):
    """A module that draws masks by itself while it trains or under ``mc_dropout``, and never keeps them."""

    def __init__(self) -> None:
        super().__init__()
        self.mc_dropouts = 0  # how many ``mc_dropout`` are open

    def __getstate__(self) -> dict[str, Any]:
        """A copy made inside ``mc_dropout`` is in none: nothing would ever turn its masks off."""
        return {**super().__getstate__(), "mc_dropouts": 0}  # type: ignore[misc]

    @property
    def masks_on(self) -> bool:
        return self.training or self.mc_dropouts > 0


_counting = threading.Lock()


def count(modules: Sequence[MaskedModule], by: int) -> None:
    """Threads may open and close at once."""
    with _counting:
        for module in modules:
            module.mc_dropouts += by


@contextmanager
def mc_dropout(model: nn.Module) -> Iterator[nn.Module]:
    """Keep the masks on in eval (MC dropout): each call inside samples another function from q(omega).

    Only modules of this package change, and masks are off again when the last of several ends, in whatever order they
    do; a model without any such module is refused, since nothing in it would be random.
    """
    masked = [module for module in model.modules() if isinstance(module, MaskedModule)]
    if not masked:
        raise ValueError(f"mc_dropout: {type(model).__name__} has no layer of varrnn in it, and no masks to keep on")
    count(masked, +1)
    try:
        yield model
    finally:
        count(masked, -1)
