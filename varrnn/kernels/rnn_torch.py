"""The simple RNN in torch operations, for every device and dtype."""

from collections.abc import Sequence

import torch
from torch import Tensor

from varrnn.cells import RNNCell, Weights
from varrnn.dropout import Masks
from varrnn.kernels.matmul import (
    GateGradient,
    InputGradients,
    Recurrence,
    bias_grads,
    chunks,
    input_projection,
    live_rows,
    masked_input,
    to_weight_layout,
)
from varrnn.kernels.pointwise import APPLY, activation_backward, fill_rows
from varrnn.kernels.rnn import Saved
from varrnn.kernels.step_rows import StepRows


def run_forward(cell: RNNCell, x: Tensor, rows: StepRows, h0: Tensor, w: Weights, masks: Masks) -> Tensor:
    """Chunk by chunk: the input products of some steps at once, then their steps, in the memory of h."""
    size, shape = w.w_hh.shape[1], x.shape[:-1]
    x = x.reshape(-1, x.shape[-1])
    h, h_prev = x.new_empty(x.shape[0], size), h0
    bias = None if w.b_ih is None or w.b_hh is None else w.b_ih + w.b_hh
    recurrence = Recurrence(w.w_hh, masks.z_h, 1, (rows.steps, rows.batch))
    apply = APPLY[cell.nonlinearity]
    for start, stop in chunks(x, size, rows):
        part, sizes = rows.rows(start, stop), rows.sizes[start:stop]
        masked = masked_input(rows.view(x, start, stop), rows.mask(masks.z_x, start, stop))
        preact = input_projection(masked, w.w_ih, bias, 1, out=h[part])
        for t, (preact_t, h_t) in enumerate(zip(preact.split(sizes), h[part].split(sizes)), start):
            h_prev = apply(recurrence.forward(preact_t, live_rows(h_prev, h_t.shape[0]), t), h_t)
    return h.view(*shape, size)


def run_backward(s: Saved, dh_out: Tensor, needs_grad: Sequence[bool]) -> tuple[Tensor | None, ...]:
    """Chunks in reverse; the gradient of the activation's input exists for one chunk only."""
    rows, size = s.rows, s.h.shape[-1]
    x, h, grads = (t.reshape(-1, t.shape[-1]) for t in (s.x, s.h, dh_out))
    dh = x.new_zeros(0, size)
    inputs = InputGradients(x, s.w.w_ih, rows, (needs_grad[0], needs_grad[2], needs_grad[4] or needs_grad[5]))
    dw_hh = None
    recurrence = Recurrence(s.w.w_hh, s.masks.z_h, 1, (rows.steps, rows.batch), backwards=True)
    for start, stop in reversed(chunks(h, size, rows)):
        part, sizes = rows.rows(start, stop), rows.sizes[start:stop]
        z_x, z_h = rows.mask(s.masks.z_x, start, stop), rows.mask(s.masks.z_h, start, stop)
        da = torch.empty_like(h[part])
        steps = list(zip(da.split(sizes), grads[part].split(sizes), h[part].split(sizes)))
        for t in reversed(range(len(steps))):
            da_t, grad, h_t = steps[t]
            activation_backward(s.cell.nonlinearity, fill_rows(dh, sizes[t]).add_(grad), h_t, grad_input=da_t)
            dh = recurrence.backward(da_t, start + t)
        gradient = GateGradient(da, 1)
        inputs.add(gradient, z_x, start, stop)
        if needs_grad[3]:
            h_prev = rows.previous(h, s.h0, start, stop).view(rows.view(h, start, stop).shape)
            dw_hh = gradient.weight_grad(masked_input(h_prev, z_h), dw_hh)
    dx = None if inputs.dx is None else inputs.dx.view(s.x.shape)
    return dx, dh, inputs.dw, to_weight_layout(dw_hh), *bias_grads(inputs.db, *needs_grad[4:6])
