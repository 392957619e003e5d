"""The GRU in C (csrc/gru.c), called as kernels/gru.py calls its torch operations: same arguments, same results."""

import ctypes
from collections.abc import Sequence
from typing import Any

from torch import Tensor

from varrnn.cells import Weights
from varrnn.dropout import Masks
from varrnn.kernels.c_call import LAYER, Call, numbers, pointers
from varrnn.kernels.gru_torch import input_bias
from varrnn.kernels.matmul import for_both


class Arguments(ctypes.Structure):
    """``gru`` of csrc/gru.c."""

    _fields_ = (*LAYER, *numbers("reset_after"), *pointers("bias_q", "q", "read", "packed_n", "dq", "db_hh"))


def call(x: Tensor, h0: Tensor, w: Weights, masks: Masks, reset_after: bool) -> Call:
    prepared = Call(Arguments(), x, w, masks)
    prepared.numbers(reset_after=reset_after)
    prepared.set(h0=h0, read=None if reset_after else x.new_empty(h0.shape))
    return prepared


def forward(
    x: Tensor, h0: Tensor, w: Weights, masks: Masks, reset_after: bool, keep: bool
) -> tuple[Tensor, Tensor, Tensor | None]:
    """h, the gates (T, B, 3H) and q."""
    prepared = call(x, h0, w, masks, reset_after)
    size = w.w_hh.shape[1]
    steps = prepared.steps if keep else prepared.chunk
    h, gates = x.new_empty(*x.shape[:2], size), x.new_empty(steps, prepared.batch, 3 * size)
    q = x.new_empty(steps, prepared.batch, size) if reset_after else None
    prepared.numbers(kept=keep)
    prepared.masked()
    bias_q = w.b_hh[2 * size :] if reset_after and w.b_hh is not None else None
    prepared.set(bias=input_bias(w, reset_after), bias_q=bias_q, gates=gates, h=h, q=q)
    prepared.run("gru_forward")
    return h, gates, q


def backward(saved: Any, dh_out: Tensor | None, needs: Sequence[bool]) -> tuple[Any, ...]:
    """The gradients of x, h0, W, U and both biases, where they are needed, from ``gru.Saved``."""
    s = saved
    prepared = call(s.x, s.h0, s.w, s.masks, s.reset_after)
    size = s.w.w_hh.shape[1]
    dh = s.x.new_zeros(s.h0.shape)  # not zeros_like: it must be contiguous
    dx = s.x.new_empty(s.x.shape) if needs[0] else None
    dw_ih, dw_hh = (prepared.gradient(w) if need else None for w, need in zip(s.w, needs[2:4]))
    b_ih = s.x.new_zeros(3 * size) if needs[4] or (needs[5] and not s.reset_after) else None
    b_hh = s.x.new_zeros(3 * size) if needs[5] and s.reset_after else None
    rows = (prepared.chunk, prepared.batch)
    prepared.numbers(kept=True)
    prepared.set(gates=s.gates, h=s.h, q=s.q, dh_out=dh_out)
    prepared.set(da=s.x.new_empty(*rows, 3 * size), dq=s.x.new_empty(*rows, size) if s.reset_after else None)
    prepared.set(packed_n=prepared.packed(1, size, size), dh=dh, dx=dx, dw_ih=dw_ih, dw_hh=dw_hh, db=b_ih, db_hh=b_hh)
    prepared.run("gru_backward")
    biases = (b_ih, b_hh) if s.reset_after else for_both(b_ih, *needs[4:6])
    return dx, dh, dw_ih, dw_hh, *biases
