"""The GRU in torch operations, for every device and dtype."""

from collections.abc import Sequence

import torch
from torch import Tensor

from varrnn.cells import GRUCell, Weights
from varrnn.dropout import Masks, is_identity
from varrnn.kernels.gru import Saved
from varrnn.kernels.matmul import (
    GateGradient,
    InputGradients,
    Recurrence,
    chunks,
    input_projection,
    live_rows,
    masked_input,
    to_weight_layout,
)
from varrnn.kernels.pointwise import APPLY, activation_backward, fill_rows
from varrnn.kernels.step_rows import StepRows


class GRURecurrence:
    """The recurrent products of r and u, and that of the candidate, which sees r in one of two places."""

    def __init__(self, cell: GRUCell, w: Weights, z_h: Tensor, shape: Sequence[int], backwards: bool = False) -> None:
        size = w.w_hh.shape[1]
        z_ru, z_n = split_mask(z_h)
        self.ru = Recurrence(w.w_hh[: 2 * size], z_ru, 2, shape, backwards)
        self.n = Recurrence(w.w_hh[2 * size :], z_n, 1, shape, backwards)


def split_mask(z_h: Tensor) -> tuple[Tensor, Tensor]:
    """The recurrent masks of r and u, and of the candidate."""
    return (z_h, z_h) if z_h.shape[1] == 1 else (z_h[:, :2], z_h[:, 2:])


def input_bias(w: Weights, reset_after: bool) -> Tensor | None:
    """b_ih + b_hh, without the b_hh of a candidate that is reset after its product."""
    if w.b_ih is None or w.b_hh is None:
        return None
    bias = w.b_ih + w.b_hh
    if reset_after:
        size = w.w_hh.shape[1]
        bias[2 * size :] = w.b_ih[2 * size :]
    return bias


def run_forward(
    cell: GRUCell, x: Tensor, rows: StepRows, h0: Tensor, w: Weights, masks: Masks, save_gates: bool
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Chunk by chunk: the input products of some steps at once, then their steps."""
    size, shape = w.w_hh.shape[1], x.shape[:-1]
    x = x.reshape(-1, x.shape[-1])
    h = x.new_empty(x.shape[0], size)
    parts = chunks(x, 3 * size, rows)
    most = max(rows.begins[stop] - rows.begins[start] for start, stop in parts)
    kept = x.shape[0] if save_gates else most
    gates = x.new_empty(kept, 3 * size)
    h_n = x.new_empty(kept, size) if cell.reset_after else None
    bias = input_bias(w, cell.reset_after)
    bias_hn = x.new_zeros(size) if w.b_hh is None else w.b_hh[2 * size :]
    recurrence = GRURecurrence(cell, w, masks.z_h, (rows.steps, rows.batch))
    buffer = x.new_empty(most, 3 * size)
    h_prev = h0
    for start, stop in parts:
        part = rows.rows(start, stop)
        to = part if save_gates else slice(0, part.stop - part.start)
        masked = masked_input(rows.view(x, start, stop), rows.mask(masks.z_x, start, stop))
        preact = input_projection(masked, w.w_ih, bias, 3, out=buffer[: part.stop - part.start])
        base = torch.empty_like(h[part]).copy_(bias_hn) if cell.reset_after else preact[..., 2 * size :]
        history = (gates[to], h[part], base if h_n is None else h_n[to])
        h_prev = forward_steps(cell, preact, base, start, rows.sizes[start:stop], history, h_prev, recurrence)
    if not save_gates:
        return h.view(*shape, size), gates, h_n
    return h.view(*shape, size), gates.view(*shape, 3 * size), None if h_n is None else h_n.view(*shape, size)


def forward_steps(
    cell: GRUCell,
    preact: Tensor,
    candidate_base: Tensor,
    start: int,
    sizes: list[int],
    history: tuple[Tensor, ...],
    h_prev: Tensor,
    recurrence: GRURecurrence,
) -> Tensor:
    """The steps of one chunk from its input products (n, 3H); fills gates, h and h_n.

    ``candidate_base`` is what the candidate's recurrent product is added to: b_hn, or the candidate's input product.
    """
    gates, h, h_n = history
    size = h.shape[-1]
    apply_gate, apply_candidate = APPLY[cell.gate_activation], APPLY[cell.candidate_activation]
    views = (preact[..., : 2 * size], preact[..., 2 * size :], candidate_base, gates[..., : 2 * size])
    views += (*gates.unflatten(-1, (3, size)).unbind(1), h, h_n)
    steps = zip(*(view.split(sizes) for view in views))
    for t, (preact_ru, preact_n, base, ru, r, u, n, h_t, h_n_t) in enumerate(steps, start):
        h_prev = live_rows(h_prev, h_t.shape[0])
        apply_gate(recurrence.ru.forward(preact_ru, h_prev, t), ru)
        if cell.reset_after:
            h_n_t.copy_(recurrence.n.forward(base, h_prev, t))
            apply_candidate(torch.addcmul(preact_n, r, h_n_t, out=n), n)
        else:
            apply_candidate(recurrence.n.forward(base, r * h_prev, t), n)
        h_prev = torch.lerp(n, h_prev, u, out=h_t)
    return h_prev


def run_backward(s: Saved, dh_out: Tensor | None, needs_grad: Sequence[bool]) -> tuple[Tensor | None, ...]:
    """Chunks in reverse; the gates' gradient exists for one chunk only and is still in the cache for the weights."""
    rows, size = s.rows, s.h.shape[-1]
    x, h, gates = (t.reshape(-1, t.shape[-1]) for t in (s.x, s.h, s.gates))
    all_h_n = None if s.h_n is None else s.h_n.reshape(-1, size)
    grads = None if dh_out is None else dh_out.reshape(-1, size)
    dh = x.new_zeros(0, size)
    inputs = InputGradients(x, s.w.w_ih, rows, (needs_grad[0], needs_grad[2], needs_grad[4]))
    dw_ru = dw_n = db_hh = None
    recurrence = GRURecurrence(s.cell, s.w, s.masks.z_h, (rows.steps, rows.batch), backwards=True)
    for start, stop in reversed(chunks(h, 3 * size, rows)):
        part, sizes = rows.rows(start, stop), rows.sizes[start:stop]
        z_x, z_h = rows.mask(s.masks.z_x, start, stop), rows.mask(s.masks.z_h, start, stop)
        h_prev = rows.previous(h, s.h0, start, stop)
        h_n = None if all_h_n is None else all_h_n[part]
        d_ru, d_n, d_hn = local_gradients(s.cell, gates[part], h_prev, h_n)
        grad_output = None if grads is None else grads[part].split(sizes)
        dh = backward_steps(s.cell, (d_ru, d_n, d_hn, gates[part]), start, sizes, dh, grad_output, recurrence)
        inputs.add(GateGradient(torch.cat([d_ru, d_n], dim=-1), 3), z_x, start, stop)
        if needs_grad[3]:
            z_ru, z_n = split_mask(z_h)
            read = h_prev if s.cell.reset_after else h_prev * gates[part, :size]
            shape = rows.view(h, start, stop).shape
            dw_ru = GateGradient(d_ru, 2).weight_grad(masked_input(h_prev.view(shape), z_ru), dw_ru)
            dw_n = GateGradient(d_hn, 1).weight_grad(masked_input(read.view(shape), z_n), dw_n)
        if needs_grad[5]:
            db = torch.cat([d_ru.sum(0), d_hn.sum(0)])
            db_hh = db if db_hh is None else db_hh.add_(db)
    dx = None if inputs.dx is None else inputs.dx.view(s.x.shape)
    ru, n = to_weight_layout(dw_ru), to_weight_layout(dw_n)
    return dx, dh, inputs.dw, None if ru is None or n is None else torch.cat([ru, n]), inputs.db, db_hh


def local_gradients(cell: GRUCell, gates: Tensor, h_prev: Tensor, h_n: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    """Local derivatives of a chunk by the inputs of r and u (in one tensor), of n and of h_n.

    All are of h_t, except that of r where the reset comes before the product: there it is of r o h_{t-1}.
    """
    r, u, n = gates.unflatten(-1, (3, -1)).unbind(1)
    d_ru = gates.new_empty(gates.shape[0], 2 * r.shape[-1])
    d_r, d_u = d_ru.unflatten(-1, (2, -1)).unbind(1)
    activation_backward(cell.gate_activation, h_prev - n, u, grad_input=d_u)
    d_n = 1 - u
    activation_backward(cell.candidate_activation, d_n, n, grad_input=d_n)
    if h_n is None:
        activation_backward(cell.gate_activation, h_prev, r, grad_input=d_r)
        return d_ru, d_n, d_n
    activation_backward(cell.gate_activation, d_n * h_n, r, grad_input=d_r)
    return d_ru, d_n, d_n * r


def backward_steps(
    cell: GRUCell,
    chunk: tuple[Tensor, Tensor, Tensor, Tensor],
    start: int,
    sizes: list[int],
    dh: Tensor,
    grad_output: Sequence[Tensor] | None,
    recurrence: GRURecurrence,
) -> Tensor:
    """The steps of one chunk backwards: local derivatives turn into gradients in place."""
    d_ru, d_n, d_hn, gates = chunk
    by_gate = d_ru.unflatten(-1, (2, -1))
    r, u, _ = gates.unflatten(-1, (3, -1)).unbind(1)
    views = (d_ru, by_gate, by_gate[:, 0], by_gate[:, 1], d_n, d_hn, r, u)
    steps = list(zip(*(view.split(sizes) for view in views)))
    for t in reversed(range(len(steps))):
        d_ru_t, both, d_r, d_u, d_n_t, d_hn_t, r_t, u_t = steps[t]
        dh = fill_rows(dh, sizes[t])
        if grad_output is not None:
            dh.add_(grad_output[t])
        d_n_t.mul_(dh)
        if cell.reset_after:
            d_hn_t.mul_(dh)
            both.mul_(dh.unsqueeze(1))
            dh = recurrence.n.backward(d_hn_t, start + t).addcmul_(dh, u_t)
        else:
            d_reset = recurrence.n.backward(d_n_t, start + t)
            d_r.mul_(d_reset)
            d_u.mul_(dh)
            dh = d_reset.mul_(r_t).addcmul_(dh, u_t)
        dh = dh.add_(recurrence.ru.backward(d_ru_t, start + t))
    return dh


def can_step(cell: GRUCell, rows: StepRows, x: Tensor) -> bool:
    """Whether ``run_step`` computes this: a single step on a CPU, the reset after the product."""
    return rows.steps == 1 and cell.reset_after and x.device.type == "cpu"


def run_step(cell: GRUCell, x: Tensor, h: Tensor, w: Weights, masks: Masks) -> Tensor:
    """One step of x (B, I) under autograd: for a single step its graph costs less than the buffers of many steps."""
    x_ru, x_n = split_gates(step_product(x, masks.z_x, w.w_ih, w.b_ih))
    h_ru, h_n = split_gates(step_product(h, masks.z_h, w.w_hh, w.b_hh))
    r, u = cell.gate_activation(x_ru + h_ru).chunk(2, dim=-1)
    return torch.lerp(cell.candidate_activation(torch.addcmul(x_n, r, h_n)), h, u)


def step_product(x: Tensor, z: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """(x o z) W + b of one step for all gates, (B, 3H)."""
    if z.shape[1] == 1:
        return torch.nn.functional.linear(x if is_identity(z) else x * z[0, 0], weight, bias)
    parts = (x * z[0]) @ weight.unflatten(0, (3, -1)).transpose(1, 2)
    out = parts.transpose(0, 1).flatten(1)
    return out if bias is None else out + bias


def split_gates(a: Tensor) -> tuple[Tensor, Tensor]:
    """r and u, and the candidate, of (B, 3H)."""
    size = a.shape[-1] // 3
    return a[:, : 2 * size], a[:, 2 * size :]
