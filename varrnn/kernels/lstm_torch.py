"""The LSTM in torch operations, for every device and dtype."""

from collections.abc import Sequence

import torch
from torch import Tensor

from varrnn.cells import LSTMCell, Weights
from varrnn.dropout import Masks, is_identity
from varrnn.kernels.lstm import Saved
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
from varrnn.kernels.pointwise import activation_backward, apply_activations, fill_rows, tanh, tanh_backward
from varrnn.kernels.step_rows import StepRows


def run_forward(
    cell: LSTMCell, x: Tensor, rows: StepRows, h0: Tensor, c0: Tensor, w: Weights, masks: Masks, save_gates: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Chunk by chunk: the input products of some steps at once, then their steps."""
    size, shape = w.w_hh.shape[1], x.shape[:-1]
    x = x.reshape(-1, x.shape[-1])
    h, c = x.new_empty(x.shape[0], size), x.new_empty(x.shape[0], size)
    parts = chunks(x, 4 * size, rows)
    most = max(rows.begins[stop] - rows.begins[start] for start, stop in parts)
    gates = x.new_empty(x.shape[0] if save_gates else most, 4 * size)
    bias = None if w.b_ih is None or w.b_hh is None else w.b_ih + w.b_hh
    recurrence = Recurrence(w.w_hh, masks.z_h, 4, (rows.steps, rows.batch))
    cell_mask = CellMask(masks.z_c)
    state = (h0, c0)
    for start, stop in parts:
        part = rows.rows(start, stop)
        chunk = gates[part] if save_gates else gates[: part.stop - part.start]
        masked = masked_input(rows.view(x, start, stop), rows.mask(masks.z_x, start, stop))
        preact = input_projection(masked, w.w_ih, bias, 4, out=chunk)
        history = (chunk, h[part], c[part])
        state = forward_steps(cell, preact, start, rows.sizes[start:stop], history, state, recurrence, cell_mask)
    return h.view(*shape, size), c.view(*shape, size), gates.view(*shape, 4 * size) if save_gates else gates


def forward_steps(
    cell: LSTMCell,
    preact: Tensor,
    start: int,
    sizes: list[int],
    history: tuple[Tensor, Tensor, Tensor],
    state: tuple[Tensor, Tensor],
    recurrence: Recurrence,
    cell_mask: "CellMask",
) -> tuple[Tensor, Tensor]:
    """The steps of one chunk from its input products (n, 4H); fills gates (perhaps the same memory), h and c."""
    gates, h, c = history
    h_prev, c_prev = state
    size = h.shape[-1]
    tanh_all = torch.empty_like(c_prev)
    views = (preact, gates, *gates.unflatten(-1, (4, size)).unbind(1), h, c)
    for t, (preact_t, gates_t, i, f, g, o, h_t, c_t) in enumerate(zip(*(view.split(sizes) for view in views)), start):
        h_prev, c_prev, tanh_c = (live_rows(one, h_t.shape[0]) for one in (h_prev, c_prev, tanh_all))
        preact_t = recurrence.forward(preact_t, h_prev, t)
        preact_g = preact_t[:, 2 * size : 3 * size]
        apply_activations(cell.gate_activation, cell.candidate_activation, preact_t, preact_g, gates_t, g)
        torch.mul(i, g, out=c_t).addcmul_(f, c_prev)
        cell_mask.apply(c_t, t)
        torch.mul(o, tanh(c_t, out=tanh_c), out=h_t)
        cell_mask.scale_output(h_t, t)
        h_prev, c_prev = h_t, c_t
    return h_prev, c_prev


class CellMask:
    """Moon's mask on c_t and the factor on h_t where it is read; no operation at all when they are ones."""

    def __init__(self, z_c: Tensor) -> None:
        self.plain = is_identity(z_c)
        self.steps = list(z_c.unbind(0))

    def mask_at(self, t: int) -> Tensor:
        return self.steps[t if len(self.steps) > 1 else 0][0]

    def output_at(self, t: int) -> Tensor:
        return self.steps[t if len(self.steps) > 1 else 0][-1]

    def apply(self, c: Tensor, t: int) -> None:
        if not self.plain:
            c.mul_(live_rows(self.mask_at(t), c.shape[0]))

    def scale_output(self, h: Tensor, t: int) -> None:
        if not self.plain:
            h.mul_(live_rows(self.output_at(t), h.shape[0]))


def run_backward(
    s: Saved, dh_out: Tensor | None, dc_out: Tensor | None, needs_grad: Sequence[bool]
) -> tuple[Tensor | None, ...]:
    """Chunks in reverse; the gates' gradient exists for one chunk only and is still in the cache for the weights."""
    rows, size = s.rows, s.h.shape[-1]
    x, h, c, gates = (t.reshape(-1, t.shape[-1]) for t in (s.x, s.h, s.c, s.gates))
    grads = tuple(None if d is None else d.reshape(-1, size) for d in (dh_out, dc_out))
    state = x.new_zeros(0, size), x.new_zeros(0, size)
    inputs = InputGradients(x, s.w.w_ih, rows, (needs_grad[0], needs_grad[3], needs_grad[5] or needs_grad[6]))
    dw_hh = None
    recurrence = Recurrence(s.w.w_hh, s.masks.z_h, 4, (rows.steps, rows.batch), backwards=True)
    cell_mask = CellMask(s.masks.z_c)
    parts = chunks(h, 4 * size, rows)
    buffer = gates.new_empty(max(rows.begins[stop] - rows.begins[start] for start, stop in parts), 4 * size)
    for start, stop in reversed(parts):
        part = rows.rows(start, stop)
        z_x, z_h, z_c = (rows.mask(z, start, stop) for z in s.masks)
        h_prev, c_prev = (rows.previous(*pair, start, stop) for pair in ((h, s.h0), (c, s.c0)))
        da = buffer[: part.stop - part.start]
        z_r = None if is_identity(s.masks.z_c) else z_c[:, -1]
        dh_dc = local_gradients(s.cell, gates[part], c[part], c_prev, z_r, da, rows.view(h, start, stop).shape)
        grad_output = tuple(None if d is None else d[part].split(rows.sizes[start:stop]) for d in grads)
        chunk = (da, dh_dc, gates[part])
        state = backward_steps(chunk, start, rows.sizes[start:stop], state, grad_output, recurrence, cell_mask)
        gradient = GateGradient(da, 4)
        inputs.add(gradient, z_x, start, stop)
        if needs_grad[4]:
            dw_hh = gradient.weight_grad(masked_input(h_prev.view(rows.view(h, start, stop).shape), z_h), dw_hh)
    dx = None if inputs.dx is None else inputs.dx.view(s.x.shape)
    return dx, *state, inputs.dw, to_weight_layout(dw_hh), *bias_grads(inputs.db, *needs_grad[5:7])


def local_gradients(
    cell: LSTMCell, gates: Tensor, c: Tensor, c_prev: Tensor, z_r: Tensor | None, da: Tensor, shape: Sequence[int]
) -> Tensor:
    """Local derivatives of a chunk: of c_t by i, f, g and of h_t by o into ``da``; returns that of h_t by c_t."""
    i, f, g, o = gates.unflatten(-1, (4, -1)).unbind(1)
    d_i, d_f, d_g, d_o = da.unflatten(-1, (4, -1)).unbind(1)
    dh_dc = tanh(c, out=torch.empty_like(c))
    activation_backward(cell.gate_activation, g, i, grad_input=d_i)
    activation_backward(cell.gate_activation, c_prev, f, grad_input=d_f)
    activation_backward(cell.candidate_activation, i, g, grad_input=d_g)
    activation_backward(cell.gate_activation, dh_dc, o, grad_input=d_o)
    tanh_backward(o, dh_dc, grad_input=dh_dc)
    if z_r is not None:
        d_o.unflatten(0, shape[:2]).mul_(z_r)
        dh_dc.view(shape).mul_(z_r)
    return dh_dc


def backward_steps(
    chunk: tuple[Tensor, Tensor, Tensor],
    start: int,
    sizes: list[int],
    state: tuple[Tensor, Tensor],
    grad_output: tuple[Sequence[Tensor] | None, ...],
    recurrence: Recurrence,
    cell_mask: CellMask,
) -> tuple[Tensor, Tensor]:
    """The steps of one chunk backwards: ``da`` turns from local derivatives into the gradient of the gates' inputs."""
    da, dh_dc, gates = chunk
    dh, dc = state
    d_ifgo = da.unflatten(-1, (4, -1))
    forget = gates.unflatten(-1, (4, -1))[:, 1]
    views = (da, d_ifgo[:, :3], d_ifgo[:, 3], dh_dc, forget)
    steps = list(zip(*(view.split(sizes) for view in views)))
    for t in reversed(range(len(steps))):
        d_t, d_ifg, d_o, dh_dc_t, f = steps[t]
        dh, dc = fill_rows(dh, sizes[t]), fill_rows(dc, sizes[t])
        if grad_output[0] is not None:
            dh.add_(grad_output[0][t])
        if grad_output[1] is not None:
            dc.add_(grad_output[1][t])
        dc.addcmul_(dh, dh_dc_t)
        cell_mask.apply(dc, start + t)
        d_ifg.mul_(dc.unsqueeze(1))
        d_o.mul_(dh)
        dc.mul_(f)
        dh = recurrence.backward(d_t, start + t)
    return dh, dc
