"""The simple RNN over a whole sequence as one operation of autograd; rnn_torch.py and rnn_c.py compute it.

h_t = sigma((x_t o z_x) W + (h_{t-1} o z_h) U + b). Only h is saved: the derivative of sigma follows from its value.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from varrnn.cells import RNNCell, State, Weights, reference_gradients
from varrnn.dropout import Masks
from varrnn.kernels.step_rows import StepRows
from varrnn.torch_modes import autocast_disabled, needs_gradient, needs_reference


@dataclass
class Saved:
    """What the forward pass leaves for the backward pass."""

    cell: RNNCell
    x: Tensor
    rows: StepRows
    h0: Tensor
    w: Weights
    masks: Masks
    h: Tensor


class Backend(Protocol):
    """The interface of rnn_torch.py and rnn_c.py."""

    def run_forward(self, cell: RNNCell, x: Tensor, rows: StepRows, h0: Tensor, w: Weights, masks: Masks) -> Tensor:
        """Every h_t: (T, B, H), or (N, H) of packed sequences, as x is."""

    def run_backward(self, saved: Saved, dh_out: Tensor, needs_grad: Sequence[bool]) -> tuple[Any, ...]:
        """The gradients of x, h0 and the weights, from those of every h_t."""


def run(backend: Backend, cell: RNNCell, x: Tensor, rows: StepRows, state: State, w: Weights, masks: Masks) -> State:
    """Every h_t, (T, B, H) or of packed sequences (N, H)."""
    x = x.contiguous()
    inputs = (x, *state, *w)
    if needs_gradient(inputs):
        return (RNNFunction.apply(*inputs, *masks, cell, backend, rows),)
    return (backend.run_forward(cell, x, rows, state[0], w, masks),)


class RNNFunction(torch.autograd.Function):
    """Masks are data here: a mask that needs a gradient runs on the reference."""

    @staticmethod
    def forward(ctx, x, h0, w_ih, w_hh, b_ih, b_hh, z_x, z_h, z_c, cell, backend, rows):  # type: ignore[no-untyped-def]
        w, masks = Weights(w_ih, w_hh, b_ih, b_hh), Masks(z_x, z_h, z_c)
        h = backend.run_forward(cell, x, rows, h0, w, masks)
        ctx.save_for_backward(x, h0, *w, *masks, h)
        ctx.cell, ctx.backend, ctx.rows = cell, backend, rows
        return h

    @staticmethod
    def backward(ctx, dh):  # type: ignore[no-untyped-def]
        x, h0, w_ih, w_hh, b_ih, b_hh, z_x, z_h, z_c, h = ctx.saved_tensors
        w, masks = Weights(w_ih, w_hh, b_ih, b_hh), Masks(z_x, z_h, z_c)
        if needs_reference(dh):
            found = reference_gradients(ctx.cell, (x, h0, *w), masks, (dh,), ctx.needs_input_grad, ctx.rows)
            return (*found, None, None, None, None, None, None)
        saved = Saved(ctx.cell, x, ctx.rows, h0, w, masks, h)
        with autocast_disabled(x.device.type):  # autocast may be on here and not have been on in the forward pass
            gradients = ctx.backend.run_backward(saved, dh, ctx.needs_input_grad)
        return (*gradients, None, None, None, None, None, None)
