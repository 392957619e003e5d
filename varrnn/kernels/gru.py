"""The GRU over a whole sequence as one operation of autograd; gru_torch.py, gru_c.py and gru_fused.py compute it.

r, u = sigm((x_t o z_x) W + (h_{t-1} o z_h) U + b);  h_t = (1 - u) o n + u o h_{t-1}, with the candidate
n = tanh(x W_n + b_n + r o h_n), h_n = (h_{t-1} o z_n) U_n + b_hn  (reset after the product, torch's variant), or
n = tanh(x W_n + b_n + h_n),     h_n = (r o h_{t-1} o z_n) U_n     (reset before it, as in the authors' Keras fork).
r, u, n, h, and h_n where the reset comes after it, are saved.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from varrnn.cells import GRUCell, State, Weights, reference_gradients
from varrnn.dropout import Masks
from varrnn.kernels.step_rows import StepRows
from varrnn.torch_modes import autocast_disabled, needs_gradient, needs_reference


@dataclass
class Saved:
    """What the forward pass leaves for the backward pass."""

    cell: GRUCell
    x: Tensor
    rows: StepRows
    h0: Tensor
    w: Weights
    masks: Masks
    h: Tensor
    gates: Tensor
    h_n: Tensor | None


class Backend(Protocol):
    """The interface of gru_torch.py, gru_c.py and gru_fused.py."""

    def run_forward(
        self, cell: GRUCell, x: Tensor, rows: StepRows, h0: Tensor, w: Weights, masks: Masks, save_gates: bool
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """Every h_t, the gates (..., 3H), and h_n with the reset after it; without ``save_gates`` only h counts.

        x is (T, B, I), or (N, I) of packed sequences, and so are they.
        """

    def run_backward(self, saved: Saved, dh_out: Tensor | None, needs_grad: Sequence[bool]) -> tuple[Any, ...]:
        """The gradients of x, h0 and the weights, from those of every h_t."""


def run(backend: Backend, cell: GRUCell, x: Tensor, rows: StepRows, state: State, w: Weights, masks: Masks) -> State:
    """Every h_t, (T, B, H) or of packed sequences (N, H)."""
    x = x.contiguous()
    inputs = (x, *state, *w)
    if needs_gradient(inputs):
        return (GRUFunction.apply(*inputs, *masks, cell, backend, rows),)
    return (backend.run_forward(cell, x, rows, state[0], w, masks, save_gates=False)[0],)


class GRUFunction(torch.autograd.Function):
    """Masks are data here: a mask that needs a gradient runs on the reference."""

    @staticmethod
    def forward(ctx, x, h0, w_ih, w_hh, b_ih, b_hh, z_x, z_h, z_c, cell, backend, rows):  # type: ignore[no-untyped-def]
        w, masks = Weights(w_ih, w_hh, b_ih, b_hh), Masks(z_x, z_h, z_c)
        h, gates, h_n = backend.run_forward(cell, x, rows, h0, w, masks, save_gates=True)
        ctx.save_for_backward(x, h0, *w, *masks, h, gates, h_n)
        ctx.cell, ctx.backend, ctx.rows = cell, backend, rows
        ctx.set_materialize_grads(False)
        return h

    @staticmethod
    def backward(ctx, dh):  # type: ignore[no-untyped-def]
        x, h0, w_ih, w_hh, b_ih, b_hh, z_x, z_h, z_c, h, gates, h_n = ctx.saved_tensors
        if needs_reference(dh):
            inputs, masks = (x, h0, w_ih, w_hh, b_ih, b_hh), Masks(z_x, z_h, z_c)
            found = reference_gradients(ctx.cell, inputs, masks, (dh,), ctx.needs_input_grad, ctx.rows)
            return (*found, None, None, None, None, None, None)
        w, masks = Weights(w_ih, w_hh, b_ih, b_hh), Masks(z_x, z_h, z_c)
        saved = Saved(ctx.cell, x, ctx.rows, h0, w, masks, h, gates, h_n)
        with autocast_disabled(x.device.type):  # autocast may be on here and not have been on in the forward pass
            gradients = ctx.backend.run_backward(saved, dh, ctx.needs_input_grad)
        return (*gradients, None, None, None, None, None, None)
