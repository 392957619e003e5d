"""The LSTM over a whole sequence, forward and backward: the fast twin of ``cells.LSTMCell``.

a_t = (x_t o z_x) W + (h_{t-1} o z_h) U + b;  i, f, o = sigm(a), g = tanh(a);  c_t = z_c o (f o c_{t-1} + i o g);
h_t = z_r o o o tanh(c_t). Saved are the four gates, c and h; everything else is cheaper to compute again.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from varrnn.autocast import without_autocast
from varrnn.cells import Weights
from varrnn.dropout import Masks, is_ones
from varrnn.followed import check_gradients
from varrnn.kernels import c_library, lstm_c
from varrnn.kernels.matmul import (
    GateGradient,
    Recurrence,
    as_weight,
    chunks,
    for_both,
    large,
    onednn,
    operand,
    over,
    project,
)
from varrnn.kernels.pointwise import activate, before, sigmoid_backward, tanh, tanh_backward


def lstm_sequence(x: Tensor, state: tuple[Tensor, ...], w: Weights, masks: Masks, whole: bool) -> tuple[Tensor, ...]:
    """Every h_t and c_t, (T, B, H), of x (T, B, I); of the c_t maybe the last alone, unless the ``whole`` is wanted."""
    if not whole and torch_is_faster(w, masks):
        return torch_lstm(x, state, w, masks)
    x = x.contiguous()
    inputs = (x, *state, *w)
    if torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in inputs):
        return LSTM.apply(*inputs, *masks)
    return forward(x, state[0], state[1], w, masks, keep=False)[:2]


def torch_is_faster(w: Weights, masks: Masks) -> bool:
    """Whether torch's own kernel applies: it cannot mask h, is slower than our C code, and no faster from LARGE on."""
    if c_library.usable(*w, *masks):
        return False
    inputs_only = is_ones(masks.z_h) and is_ones(masks.z_c) and masks.z_x.shape[1] == 1
    return inputs_only and onednn(w.w_hh) and not large(w.w_hh)


def torch_lstm(x: Tensor, state: tuple[Tensor, ...], w: Weights, masks: Masks) -> tuple[Tensor, ...]:
    """torch's LSTM on masked inputs: what is left of every variant in eval, and of naive dropout in training."""
    x = x if is_ones(masks.z_x) else x * masks.z_x[:, 0]
    h0, c0 = (s.unsqueeze(0).contiguous() for s in state)
    weights = [t for t in w if t is not None]
    h, _, c = torch._VF.lstm(x, (h0, c0), weights, w.b_ih is not None, 1, 0.0, True, False, False)
    return h, c


class LSTM(torch.autograd.Function):
    """Masks are data here: a mask that wants a gradient runs on the reference path."""

    @staticmethod
    def forward(ctx, x, h0, c0, w_ih, w_hh, b_ih, b_hh, z_x, z_h, z_c):  # type: ignore[no-untyped-def]
        w, masks = Weights(w_ih, w_hh, b_ih, b_hh), Masks(z_x, z_h, z_c)
        h, c, gates = forward(x, h0, c0, w, masks, keep=True)
        ctx.save_for_backward(x, h0, c0, *w, *masks, h, c, gates)
        ctx.set_materialize_grads(False)
        return h, c

    @staticmethod
    def backward(ctx, dh, dc):  # type: ignore[no-untyped-def]
        check_gradients("fast=False", dh, dc)
        x, h0, c0, w_ih, w_hh, b_ih, b_hh, z_x, z_h, z_c, h, c, gates = ctx.saved_tensors
        saved = Saved(x, h0, c0, Weights(w_ih, w_hh, b_ih, b_hh), Masks(z_x, z_h, z_c), h, c, gates)
        with without_autocast(x.device.type):  # which may be on here and not have been on before
            return (*backward(saved, dh, dc, ctx.needs_input_grad), None, None, None)


@dataclass
class Saved:
    """What the forward pass leaves for the backward pass."""

    x: Tensor
    h0: Tensor
    c0: Tensor
    w: Weights
    masks: Masks
    h: Tensor
    c: Tensor
    gates: Tensor


def forward(x: Tensor, h0: Tensor, c0: Tensor, w: Weights, masks: Masks, keep: bool) -> tuple[Tensor, Tensor, Tensor]:
    """Every h_t and c_t, and the gates, which are lost without ``keep``."""
    compute = lstm_c.forward if c_library.usable(x, h0, c0, *w, *masks) else torch_forward
    return compute(x, h0, c0, w, masks, keep)


def torch_forward(
    x: Tensor, h0: Tensor, c0: Tensor, w: Weights, masks: Masks, keep: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Chunk by chunk: the input products of some steps at once, then their steps."""
    steps, batch, _ = x.shape
    size = w.w_hh.shape[1]
    h, c = x.new_empty(steps, batch, size), x.new_empty(steps, batch, size)
    pieces = chunks(x)
    gates = x.new_empty(steps if keep else pieces[0][1], batch, 4 * size)
    bias = None if w.b_ih is None or w.b_hh is None else w.b_ih + w.b_hh
    recur = Recurrence(w.w_hh, masks.z_h, 4, x.shape)
    memory = Memory(masks.z_c)
    state = (h0, c0)
    for start, stop in pieces:
        chunk = gates[start:stop] if keep else gates[: stop - start]
        masked = operand(x[start:stop], over(masks.z_x, start, stop))
        a = project(masked, w.w_ih, bias, 4, out=chunk.view(-1, 4 * size)).view_as(chunk)
        state = run_steps(a, start, (chunk, h[start:stop], c[start:stop]), state, recur, memory)
    return h, c, gates


def run_steps(
    a: Tensor,
    start: int,
    history: tuple[Tensor, Tensor, Tensor],
    state: tuple[Tensor, Tensor],
    recur: Recurrence,
    memory: "Memory",
) -> tuple[Tensor, Tensor]:
    """The steps of one chunk from its input products a (k, B, 4H); fills gates (perhaps a itself), h and c."""
    gates, h, c = history
    h_prev, c_prev = state
    size = h.shape[-1]
    tanh_c = torch.empty_like(c_prev)
    views = (a, gates, *gates.unflatten(-1, (4, size)).unbind(2), h, c)
    for t, (a_t, gates_t, i, f, g, o, h_t, c_t) in enumerate(zip(*(view.unbind(0) for view in views)), start):
        a_t = recur.add(a_t, h_prev, t)
        activate(a_t, a_t[:, 2 * size : 3 * size], gates_t, g)
        torch.mul(i, g, out=c_t).addcmul_(f, c_prev)
        memory.mask(c_t, t)
        torch.mul(o, tanh(c_t, out=tanh_c), out=h_t)
        memory.read(h_t, t)
        h_prev, c_prev = h_t, c_t
    return h_prev, c_prev


class Memory:
    """Moon's mask on c_t and the factor on h_t where it is read; nothing at all when they are ones."""

    def __init__(self, z_c: Tensor) -> None:
        self.plain = is_ones(z_c)
        self.steps = list(z_c.unbind(0))

    def mask(self, c: Tensor, t: int) -> None:
        if not self.plain:
            c.mul_(self.steps[t if len(self.steps) > 1 else 0][0])

    def read(self, h: Tensor, t: int) -> None:
        if not self.plain:
            h.mul_(self.steps[t if len(self.steps) > 1 else 0][-1])


def backward(
    s: Saved, dh_out: Tensor | None, dc_out: Tensor | None, needs: tuple[bool, ...]
) -> tuple[Tensor | None, ...]:
    """The gradients of x, h0, c0 and the weights, from those of every h_t and c_t."""
    given = (s.x, s.h0, s.c0, *s.w, *s.masks, dh_out, dc_out)
    compute = lstm_c.backward if c_library.usable(*given) else torch_backward
    return compute(s, dh_out, dc_out, needs)


def torch_backward(
    s: Saved, dh_out: Tensor | None, dc_out: Tensor | None, needs: tuple[bool, ...]
) -> tuple[Tensor | None, ...]:
    """Chunks in reverse; the gates' gradient lives for one chunk only and goes into the weights from the cache."""
    state = torch.zeros_like(s.h0), torch.zeros_like(s.c0)
    dx = torch.empty_like(s.x) if needs[0] else None
    dw_ih = dw_hh = db = None
    recur = Recurrence(s.w.w_hh, s.masks.z_h, 4, s.x.shape, backwards=True)
    memory = Memory(s.masks.z_c)
    pieces = chunks(s.h)
    buffer = torch.empty_like(s.gates[: pieces[0][1]])
    for start, stop in reversed(pieces):
        now = slice(start, stop)
        z_x, z_h, z_c = (over(z, start, stop) for z in s.masks)
        h_prev, c_prev = before(s.h, s.h0, start, stop), before(s.c, s.c0, start, stop)
        da = buffer[: stop - start]
        slope = derivatives(s.gates[now], s.c[now], c_prev, z_c, da)
        given = tuple(None if d is None else d[now] for d in (dh_out, dc_out))
        state = run_back((da, slope, s.gates[now]), start, state, given, recur, memory)
        rows = da.view(-1, da.shape[-1])
        gradient = GateGradient(rows, 4)
        if needs[3]:
            dw_ih = gradient.of_weight(operand(s.x[now], z_x), dw_ih)
        if needs[4]:
            dw_hh = gradient.of_weight(operand(h_prev, z_h), dw_hh)
        if needs[5] or needs[6]:
            db = rows.sum(0) if db is None else db.add_(rows.sum(0))
        if dx is not None:
            gradient.of_input(s.w.w_ih, z_x, dx[now])
    return dx, *state, as_weight(dw_ih), as_weight(dw_hh), *for_both(db, *needs[5:7])


def derivatives(gates: Tensor, c: Tensor, c_prev: Tensor, z_c: Tensor, da: Tensor) -> Tensor:
    """Local derivatives of a chunk: of c_t by i, f, g and of h_t by o into ``da``; returns that of h_t by c_t."""
    i, f, g, o = gates.unflatten(-1, (4, -1)).unbind(2)
    d_i, d_f, d_g, d_o = da.unflatten(-1, (4, -1)).unbind(2)
    slope = tanh(c, out=torch.empty_like(c))
    sigmoid_backward(g, i, grad_input=d_i)
    sigmoid_backward(c_prev, f, grad_input=d_f)
    tanh_backward(i, g, grad_input=d_g)
    sigmoid_backward(slope, o, grad_input=d_o)
    tanh_backward(o, slope, grad_input=slope)
    if not is_ones(z_c):
        d_o.mul_(z_c[:, -1])
        slope.mul_(z_c[:, -1])
    return slope


def run_back(
    chunk: tuple[Tensor, Tensor, Tensor],
    start: int,
    state: tuple[Tensor, Tensor],
    given: tuple[Tensor | None, ...],
    recur: Recurrence,
    memory: Memory,
) -> tuple[Tensor, Tensor]:
    """The steps of one chunk backwards: ``da`` turns from local derivatives into the gradient of the gates' inputs."""
    da, slope, gates = chunk
    dh, dc = state
    d_ifgo = da.unflatten(-1, (4, -1))
    forget = gates.unflatten(-1, (4, -1))[:, :, 1]
    views = (da, d_ifgo[:, :, :3], d_ifgo[:, :, 3], slope, forget)
    steps = list(zip(*(view.unbind(0) for view in views)))
    for t in reversed(range(len(steps))):
        d_t, d_ifg, d_o, slope_t, f = steps[t]
        if given[0] is not None:
            dh.add_(given[0][t])
        if given[1] is not None:
            dc.add_(given[1][t])
        dc.addcmul_(dh, slope_t)
        memory.mask(dc, start + t)
        d_ifg.mul_(dc.unsqueeze(1))
        d_o.mul_(dh)
        dc.mul_(f)
        dh = recur.back(d_t, start + t)
    return dh, dc
