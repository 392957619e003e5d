"""RNN, LSTM and GRU: one function for a time step of each, and one time loop for all of them.

This is the reference implementation (``backend="reference"``); the kernels are tested against it. A cell always gets
masks as tensors, without dropout a mask of ones; it knows neither ``training`` nor probabilities. Gates keep torch's
order and layout.

Shapes: x (B, I), h and c (B, H), masks of one step (gate or 1, B or 1, unit or 1).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, NamedTuple

import torch
from torch import Tensor

from varrnn.dropout import Masks
from varrnn.torch_modes import autocast_disabled

if TYPE_CHECKING:
    from varrnn.kernels.step_rows import StepRows

Activation = Callable[[Tensor], Tensor]
State = tuple[Tensor, ...]


class Weights(NamedTuple):
    """W, U and the two biases of one layer and direction, in torch's layout: gates stacked on the first axis."""

    w_ih: Tensor
    w_hh: Tensor
    b_ih: Tensor | None = None
    b_hh: Tensor | None = None


def hard_sigmoid(x: Tensor) -> Tensor:
    """The gate activation of the authors' Keras fork: slope 0.2 (torch's hardsigmoid has slope 1/6)."""
    return (0.2 * x + 0.5).clamp(0.0, 1.0)


GATE_ACTIVATIONS: dict[str, Activation] = {"sigmoid": torch.sigmoid, "hard_sigmoid": hard_sigmoid}
CANDIDATE_ACTIVATIONS: dict[str, Activation] = {"tanh": torch.tanh, "sigmoid": torch.sigmoid, "relu": torch.relu}


def gated_linear(x: Tensor, z: Tensor, weight: Tensor, bias: Tensor | None, gates: int) -> Tensor:
    """(x o z) W + b for each gate: dropping a unit of x is dropping a row of W. Returns (G, B, H)."""
    out = (x * z) @ weight.unflatten(0, (gates, -1)).transpose(1, 2)
    return out if bias is None else out + bias.view(gates, 1, -1)


@dataclass(frozen=True)
class RNNCell:
    """h_t = sigma(x_t W + h_{t-1} U + b), with x_t o z_x and h_{t-1} o z_h under dropout."""

    num_gates: ClassVar[int] = 1
    num_states: ClassVar[int] = 1
    nonlinearity: Activation = torch.tanh

    def step(self, x: Tensor, state: State, w: Weights, z: Masks) -> State:
        """One time step of a simple RNN."""
        (h,) = state
        a = gated_linear(x, z.z_x, w.w_ih, w.b_ih, 1) + gated_linear(h, z.z_h, w.w_hh, w.b_hh, 1)
        return (self.nonlinearity(a[0]),)


@dataclass(frozen=True)
class LSTMCell:
    """The LSTM of equation non-tied-weights; untied dropout is the same equation with a different mask per gate."""

    num_gates: ClassVar[int] = 4
    num_states: ClassVar[int] = 2
    gate_activation: Activation = torch.sigmoid
    candidate_activation: Activation = torch.tanh

    def step(self, x: Tensor, state: State, w: Weights, z: Masks) -> State:
        """One time step; z_c masks the memory cell (equation tied-weights-rnn-dropout) and scales the output h."""
        h, c = state
        a_i, a_f, a_g, a_o = gated_linear(x, z.z_x, w.w_ih, w.b_ih, 4) + gated_linear(h, z.z_h, w.w_hh, w.b_hh, 4)
        i, f, o = self.gate_activation(a_i), self.gate_activation(a_f), self.gate_activation(a_o)
        c = (f * c + i * self.candidate_activation(a_g)) * z.z_c[0]
        # as in the paper and in the Keras fork, the output uses tanh with every candidate activation
        return o * torch.tanh(c) * z.z_c[-1], c


@dataclass(frozen=True)
class GRUCell:
    """The GRU in torch's gate order r, z, n; ``reset_after=True`` is torch's variant, False that of Cho et al.

    Masks act on the inputs of the recurrent products only, not on h_{t-1} in the leak term u o h_{t-1}.
    """

    num_gates: ClassVar[int] = 3
    num_states: ClassVar[int] = 1
    gate_activation: Activation = torch.sigmoid
    candidate_activation: Activation = torch.tanh
    reset_after: bool = True

    def step(self, x: Tensor, state: State, w: Weights, z: Masks) -> State:
        """One time step; u is the update gate, which keeps the old state (z in the literature; here z is a mask)."""
        (h,) = state
        x_r, x_u, x_n = gated_linear(x, z.z_x, w.w_ih, w.b_ih, 3)
        h_r, h_u, h_n = gated_linear(h, z.z_h, w.w_hh, w.b_hh, 3)
        r, u = self.gate_activation(x_r + h_r), self.gate_activation(x_u + h_u)
        if self.reset_after:
            h_n = r * h_n
        else:
            size = h.shape[-1]
            bias = None if w.b_hh is None else w.b_hh[2 * size :]
            h_n = gated_linear(r * h, z.z_h[-1:], w.w_hh[2 * size :], bias, 1)[0]
        return ((1 - u) * self.candidate_activation(x_n + h_n) + u * h,)


Cell = RNNCell | LSTMCell | GRUCell


def masks_at(masks: Masks, t: int) -> Masks:
    """The masks of step t: a time axis of size 1 means the same mask at every step."""
    return Masks(*(z[t if z.shape[0] > 1 else 0] for z in masks))


def unroll(cell: Cell, x: Tensor, state: State, w: Weights, masks: Masks, lengths: Tensor | None = None) -> State:
    """Run the cell over x (T, B, I). Returns every h_t, and every c_t for an LSTM, as (T, B, H).

    After its length in ``lengths`` (B,) a sequence keeps its state: without input the state could overflow.
    """
    history = []
    for t in range(x.shape[0]):
        new = cell.step(x[t], state, w, masks_at(masks, t))
        if lengths is not None:
            active = (t < lengths).unsqueeze(1)
            new = tuple(torch.where(active, after, before) for after, before in zip(new, state))
        state = new
        history.append(state)
    return tuple(torch.stack(steps) for steps in zip(*history))


def unroll_rows(cell: Cell, x: Tensor, rows: "StepRows", state: State, w: Weights, masks: Masks) -> State:
    """``unroll`` for x (T, B, I), or for the rows (N, I) of packed sequences, which are padded for it."""
    if not rows.packed:
        return unroll(cell, x, state, w, masks)
    lengths = rows.lengths.to(x.device, non_blocking=True)
    return tuple(rows.unpad(h) for h in unroll(cell, rows.pad(x), state, w, masks, lengths))


def reference_gradients(
    cell: Cell,
    inputs: tuple[Tensor | None, ...],
    masks: Masks,
    gradients: tuple[Tensor | None, ...],
    needs_grad: tuple[bool, ...],
    rows: "StepRows",
) -> tuple[Tensor | None, ...]:
    """The gradients of (x, *state, *weights) from those of ``unroll``'s outputs; they can be differentiated again.

    A kernel's backward pass calls this; it recomputes the forward pass with the reference implementation.
    """
    create_graph = torch.is_grad_enabled()  # True: these gradients will be differentiated in turn
    with torch.enable_grad(), autocast_disabled(masks.z_x.device.type):
        # a view of each input: if one input was computed from another, no gradient may flow from one to the other
        views = [None if t is None else t.view_as(t) if t.requires_grad else t for t in inputs]
        x, *rest = views
        state, weights = rest[: cell.num_states], rest[cell.num_states :]
        history = unroll_rows(cell, x, rows, tuple(state), Weights(*weights), masks)  # type: ignore[arg-type]
        pairs = [(out, gradient) for out, gradient in zip(history, gradients) if gradient is not None]
        wanted = [view for view, needed in zip(views, needs_grad) if needed and view is not None]
        if not pairs:  # the loss does not depend on the outputs
            return (None,) * len(inputs)
        outputs, given = zip(*pairs)
        found = iter(torch.autograd.grad(outputs, wanted, given, create_graph=create_graph, allow_unused=True))
    return tuple(next(found) if needed and view is not None else None for view, needed in zip(views, needs_grad))
