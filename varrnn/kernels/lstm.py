"""The LSTM over a whole sequence as one operation of autograd; lstm_torch.py, lstm_c.py and lstm_fused.py compute it.

a_t = (x_t o z_x) W + (h_{t-1} o z_h) U + b;  i, f, o = sigm(a), g = tanh(a);  c_t = z_c o (f o c_{t-1} + i o g);
h_t = z_r o o o tanh(c_t). The four gates, c and h are saved; everything else is cheaper to compute again.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from varrnn.cells import LSTMCell, State, Weights, reference_gradients
from varrnn.dropout import Masks
from varrnn.kernels.step_rows import StepRows
from varrnn.torch_modes import autocast_disabled, needs_gradient, needs_reference


@dataclass
class Saved:
    """What the forward pass leaves for the backward pass."""

    cell: LSTMCell
    x: Tensor
    rows: StepRows
    h0: Tensor
    c0: Tensor
    w: Weights
    masks: Masks
    h: Tensor
    c: Tensor
    gates: Tensor


class Backend(Protocol):
    """The interface of lstm_torch.py, lstm_c.py and lstm_fused.py."""

    def run_forward(
        self,
        cell: LSTMCell,
        x: Tensor,
        rows: StepRows,
        h0: Tensor,
        c0: Tensor,
        w: Weights,
        masks: Masks,
        save_gates: bool,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Every h_t and c_t, (..., H), and the gates (..., 4H), which are lost without ``save_gates``.

        x is (T, B, I), or (N, I) of packed sequences, and so are they.
        """

    def run_backward(
        self, saved: Saved, dh_out: Tensor | None, dc_out: Tensor | None, needs_grad: Sequence[bool]
    ) -> tuple[Any, ...]:
        """The gradients of x, h0, c0 and the weights, from those of every h_t and c_t."""


def run(backend: Backend, cell: LSTMCell, x: Tensor, rows: StepRows, state: State, w: Weights, masks: Masks) -> State:
    """Every h_t and c_t, (T, B, H) or of packed sequences (N, H)."""
    x = x.contiguous()
    inputs = (x, *state, *w)
    if needs_gradient(inputs):
        return LSTMFunction.apply(*inputs, *masks, cell, backend, rows)
    return backend.run_forward(cell, x, rows, state[0], state[1], w, masks, save_gates=False)[:2]


class LSTMFunction(torch.autograd.Function):
    """Masks are data here: a mask that needs a gradient runs on the reference."""

    @staticmethod
    def forward(ctx, x, h0, c0, w_ih, w_hh, b_ih, b_hh, z_x, z_h, z_c, cell, backend, rows):  # type: ignore[no-untyped-def]
        w, masks = Weights(w_ih, w_hh, b_ih, b_hh), Masks(z_x, z_h, z_c)
        h, c, gates = backend.run_forward(cell, x, rows, h0, c0, w, masks, save_gates=True)
        ctx.save_for_backward(x, h0, c0, *w, *masks, h, c, gates)
        ctx.cell, ctx.backend, ctx.rows = cell, backend, rows
        ctx.set_materialize_grads(False)
        return h, c

    @staticmethod
    def backward(ctx, dh, dc):  # type: ignore[no-untyped-def]
        x, h0, c0, w_ih, w_hh, b_ih, b_hh, z_x, z_h, z_c, h, c, gates = ctx.saved_tensors
        if needs_reference(dh, dc):
            inputs, masks = (x, h0, c0, w_ih, w_hh, b_ih, b_hh), Masks(z_x, z_h, z_c)
            found = reference_gradients(ctx.cell, inputs, masks, (dh, dc), ctx.needs_input_grad, ctx.rows)
            return (*found, None, None, None, None, None, None)
        w, masks = Weights(w_ih, w_hh, b_ih, b_hh), Masks(z_x, z_h, z_c)
        saved = Saved(ctx.cell, x, ctx.rows, h0, c0, w, masks, h, c, gates)
        with autocast_disabled(x.device.type):  # autocast may be on here and not have been on in the forward pass
            gradients = ctx.backend.run_backward(saved, dh, dc, ctx.needs_input_grad)
        return (*gradients, None, None, None, None, None, None)
