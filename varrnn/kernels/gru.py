"""The GRU over a whole sequence, forward and backward: the fast twin of ``cells.GRUCell``.

r, u = sigm((x_t o z_x) W + (h_{t-1} o z_h) U + b);  h_t = (1 - u) o n + u o h_{t-1}, and with q the third product of h
n = tanh(x W_n + b_n + r o q), q = (h_{t-1} o z_n) U_n + b_q  (reset after the product, torch's variant), or
n = tanh(x W_n + b_n + q),     q = (r o h_{t-1} o z_n) U_n    (reset before it, as in the authors' Keras fork).
Saved are r, u, n, h, and q where the reset comes after it.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from varrnn.autocast import without_autocast
from varrnn.cells import Weights
from varrnn.dropout import Masks
from varrnn.followed import check_gradients
from varrnn.kernels import c_library, gru_c
from varrnn.kernels.gru_torch import Recurrences, Sums, input_bias, split
from varrnn.kernels.matmul import GateGradient, chunks, operand, over, project
from varrnn.kernels.pointwise import before, sigmoid_backward, tanh


def gru_sequence(x: Tensor, state: tuple[Tensor, ...], w: Weights, masks: Masks, whole: bool) -> tuple[Tensor, ...]:
    """Every h_t, (T, B, H), of x (T, B, I), with the reset after the product."""
    return _run(x, state, w, masks, True)


def gru_sequence_reset_before(
    x: Tensor, state: tuple[Tensor, ...], w: Weights, masks: Masks, whole: bool
) -> tuple[Tensor, ...]:
    """Every h_t, (T, B, H), of x (T, B, I), with the reset before the product."""
    return _run(x, state, w, masks, False)


def _run(x: Tensor, state: tuple[Tensor, ...], w: Weights, masks: Masks, reset_after: bool) -> tuple[Tensor, ...]:
    x = x.contiguous()
    inputs = (x, *state, *w)
    if torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in inputs):
        return (GRU.apply(*inputs, *masks, reset_after),)
    return (forward(x, state[0], w, masks, reset_after, keep=False)[0],)


class GRU(torch.autograd.Function):
    """Masks are data here: a mask that wants a gradient runs on the reference path."""

    @staticmethod
    def forward(ctx, x, h0, w_ih, w_hh, b_ih, b_hh, z_x, z_h, z_c, reset_after):  # type: ignore[no-untyped-def]
        w, masks = Weights(w_ih, w_hh, b_ih, b_hh), Masks(z_x, z_h, z_c)
        h, gates, q = forward(x, h0, w, masks, reset_after, keep=True)
        ctx.save_for_backward(x, h0, *w, *masks, h, gates, q)
        ctx.reset_after = reset_after
        ctx.set_materialize_grads(False)
        return h

    @staticmethod
    def backward(ctx, dh):  # type: ignore[no-untyped-def]
        check_gradients("fast=False", dh)
        x, h0, w_ih, w_hh, b_ih, b_hh, z_x, z_h, z_c, h, gates, q = ctx.saved_tensors
        saved = Saved(x, h0, Weights(w_ih, w_hh, b_ih, b_hh), Masks(z_x, z_h, z_c), h, gates, q, ctx.reset_after)
        with without_autocast(x.device.type):  # which may be on here and not have been on before
            return (*backward(saved, dh, ctx.needs_input_grad), None, None, None, None)


@dataclass
class Saved:
    """What the forward pass leaves for the backward pass."""

    x: Tensor
    h0: Tensor
    w: Weights
    masks: Masks
    h: Tensor
    gates: Tensor
    q: Tensor | None
    reset_after: bool


def forward(
    x: Tensor, h0: Tensor, w: Weights, masks: Masks, reset_after: bool, keep: bool
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Every h_t, the gates, and q where the reset comes after it; without ``keep`` only h is worth having."""
    compute = gru_c.forward if c_library.usable(x, h0, *w, *masks) else torch_forward
    return compute(x, h0, w, masks, reset_after, keep)


def torch_forward(
    x: Tensor, h0: Tensor, w: Weights, masks: Masks, reset_after: bool, keep: bool
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Chunk by chunk: the input products of some steps at once, then their steps."""
    steps, batch, _ = x.shape
    size = w.w_hh.shape[1]
    h = x.new_empty(steps, batch, size)
    gates = x.new_empty(steps, batch, 3 * size) if keep else x.new_empty(1, batch, 3 * size).expand(steps, -1, -1)
    q = (torch.empty_like(h) if keep else torch.empty_like(h[:1]).expand_as(h)) if reset_after else None
    bias = input_bias(w, reset_after)
    bias_q = x.new_zeros(size) if w.b_hh is None else w.b_hh[2 * size :]
    recur = Recurrences(w, masks.z_h, x.shape, reset_after)
    pieces = chunks(x)
    buffer = x.new_empty(pieces[0][1], batch, 3 * size)
    h_prev = h0
    for start, stop in pieces:
        masked = operand(x[start:stop], over(masks.z_x, start, stop))
        scratch = buffer[: stop - start]
        a = project(masked, w.w_ih, bias, 3, out=scratch.view(-1, 3 * size)).view_as(scratch)
        rests = torch.empty_like(h[start:stop]).copy_(bias_q) if reset_after else a[..., 2 * size :]
        history = (gates[start:stop], h[start:stop], rests if q is None else q[start:stop])
        h_prev = run_steps(a, rests, start, history, h_prev, recur)
    return h, gates, q


def run_steps(
    a: Tensor, rests: Tensor, start: int, history: tuple[Tensor, ...], h_prev: Tensor, recur: Recurrences
) -> Tensor:
    """The steps of one chunk from its input products a (k, B, 3H); fills gates, h and q.

    ``rests`` is what the candidate's recurrent product is added to: b_q, or the candidate's input product itself.
    """
    gates, h, q = history
    size = h.shape[-1]
    views = (a[..., : 2 * size], a[..., 2 * size :], rests, gates[..., : 2 * size])
    views += (*gates.unflatten(-1, (3, size)).unbind(2), h, q)
    for t, (a_ru, a_n, rest, ru, r, u, n, h_t, q_t) in enumerate(zip(*(v.unbind(0) for v in views)), start):
        torch.sigmoid(recur.ru.add(a_ru, h_prev, t), out=ru)
        if recur.reset_after:
            q_t.copy_(recur.n.add(rest, h_prev, t))
            tanh(torch.addcmul(a_n, r, q_t, out=n), out=n)
        else:
            tanh(recur.n.add(rest, r * h_prev, t), out=n)
        h_prev = torch.lerp(n, h_prev, u, out=h_t)
    return h_prev


def backward(s: Saved, dh_out: Tensor | None, needs: tuple[bool, ...]) -> tuple[Tensor | None, ...]:
    """The gradients of x, h0 and the weights, from those of every h_t."""
    compute = gru_c.backward if c_library.usable(s.x, s.h0, *s.w, *s.masks, dh_out) else torch_backward
    return compute(s, dh_out, needs)


def torch_backward(s: Saved, dh_out: Tensor | None, needs: tuple[bool, ...]) -> tuple[Tensor | None, ...]:
    """Chunks in reverse; the gates' gradient lives for one chunk only and goes into the weights from the cache."""
    dh = torch.zeros_like(s.h0)
    dx = torch.empty_like(s.x) if needs[0] else None
    sums = Sums()
    recur = Recurrences(s.w, s.masks.z_h, s.x.shape, s.reset_after, backwards=True)
    for start, stop in reversed(chunks(s.h)):
        now = slice(start, stop)
        z_x, z_h = over(s.masks.z_x, start, stop), over(s.masks.z_h, start, stop)
        h_prev = before(s.h, s.h0, start, stop)
        q = None if s.q is None else s.q[now]
        d_ru, d_n, d_q = derivatives(s.gates[now], h_prev, q)
        given = None if dh_out is None else dh_out[now]
        dh = run_back((d_ru, d_n, d_q, s.gates[now]), start, dh, given, recur)
        of_x = GateGradient(torch.cat([d_ru, d_n], dim=-1).flatten(0, 1), 3)
        of_ru, of_q = GateGradient(d_ru.flatten(0, 1), 2), GateGradient(d_q.flatten(0, 1), 1)
        if needs[2]:
            sums.w_ih = of_x.of_weight(operand(s.x[now], z_x), sums.w_ih)
        if needs[3]:
            z_ru, z_n = split(z_h)
            read = h_prev if s.reset_after else h_prev * s.gates[now, :, : h_prev.shape[-1]]
            sums.w_ru = of_ru.of_weight(operand(h_prev, z_ru), sums.w_ru)
            sums.w_n = of_q.of_weight(operand(read, z_n), sums.w_n)
        if needs[4] or needs[5]:
            sums.add_biases(of_x, of_ru, of_q)
        if dx is not None:
            of_x.of_input(s.w.w_ih, z_x, dx[now])
    return dx, dh, *sums.weights(), sums.b_ih if needs[4] else None, sums.b_hh if needs[5] else None


def derivatives(gates: Tensor, h_prev: Tensor, q: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    """Local derivatives of a chunk by the inputs of r, u (side by side), of n and of q.

    All are of h_t, except that of r where the reset comes before the product: there it is of r o h_{t-1}.
    """
    r, u, n = gates.unflatten(-1, (3, -1)).unbind(2)
    d_ru = gates.new_empty(*gates.shape[:2], 2 * r.shape[-1])
    d_r, d_u = d_ru.unflatten(-1, (2, -1)).unbind(2)
    sigmoid_backward(h_prev - n, u, grad_input=d_u)
    d_n = torch.ops.aten.tanh_backward(1 - u, n)
    if q is None:
        sigmoid_backward(h_prev, r, grad_input=d_r)
        return d_ru, d_n, d_n
    sigmoid_backward(d_n * q, r, grad_input=d_r)
    return d_ru, d_n, d_n * r


def run_back(
    chunk: tuple[Tensor, Tensor, Tensor, Tensor], start: int, dh: Tensor, given: Tensor | None, recur: Recurrences
) -> Tensor:
    """The steps of one chunk backwards: local derivatives turn into gradients in place."""
    d_ru, d_n, d_q, gates = chunk
    by_gate = d_ru.unflatten(-1, (2, -1))
    r, u, _ = gates.unflatten(-1, (3, -1)).unbind(2)
    views = (d_ru, by_gate, by_gate[:, :, 0], by_gate[:, :, 1], d_n, d_q, r, u)
    steps = list(zip(*(view.unbind(0) for view in views)))
    for t in reversed(range(len(steps))):
        d_ru_t, both, d_r, d_u, d_n_t, d_q_t, r_t, u_t = steps[t]
        if given is not None:
            dh.add_(given[t])
        d_n_t.mul_(dh)
        if recur.reset_after:
            d_q_t.mul_(dh)
            both.mul_(dh.unsqueeze(1))
            dh = recur.n.back(d_q_t, start + t).addcmul_(dh, u_t)
        else:
            d_reset = recur.n.back(d_n_t, start + t)
            d_r.mul_(d_reset)
            d_u.mul_(dh)
            dh = d_reset.mul_(r_t).addcmul_(dh, u_t)
        dh = dh.add_(recur.ru.back(d_ru_t, start + t))
    return dh
