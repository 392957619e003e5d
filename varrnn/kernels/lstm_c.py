"""The LSTM in C (csrc/lstm.c), called as kernels/lstm.py calls its torch operations: same arguments, same results."""

import ctypes
from collections.abc import Sequence
from typing import Any

from torch import Tensor

from varrnn.cells import Weights
from varrnn.dropout import Masks
from varrnn.kernels.c_call import LAYER, Call, Mask, pointers
from varrnn.kernels.matmul import for_both


class Arguments(ctypes.Structure):
    """``lstm`` of csrc/lstm.c."""

    _fields_ = (*LAYER, *pointers("c0"), ("z_c", Mask), *pointers("c", "dc_out", "dc"))


def call(x: Tensor, h0: Tensor, c0: Tensor, w: Weights, masks: Masks) -> Call:
    prepared = Call(Arguments(), x, w, masks)
    prepared.mask("z_c", masks.z_c, w.w_hh.shape[1])
    prepared.set(h0=h0, c0=c0)
    return prepared


def forward(x: Tensor, h0: Tensor, c0: Tensor, w: Weights, masks: Masks, keep: bool) -> tuple[Tensor, Tensor, Tensor]:
    """h, c and the gates, (T, B, 4H); without ``keep`` the gates are lost."""
    prepared = call(x, h0, c0, w, masks)
    size = w.w_hh.shape[1]
    h, c = (x.new_empty(*x.shape[:2], size) for _ in range(2))
    gates = x.new_empty(prepared.steps if keep else prepared.chunk, prepared.batch, 4 * size)
    prepared.numbers(kept=keep)
    prepared.masked()
    bias = None if w.b_ih is None or w.b_hh is None else w.b_ih + w.b_hh
    prepared.set(bias=bias, gates=gates, h=h, c=c)
    prepared.run("lstm_forward")
    return h, c, gates


def backward(saved: Any, dh_out: Tensor | None, dc_out: Tensor | None, needs: Sequence[bool]) -> tuple[Any, ...]:
    """The gradients of x, h0, c0, W, U and both biases, where they are needed, from ``lstm.Saved``."""
    s = saved
    prepared = call(s.x, s.h0, s.c0, s.w, s.masks)
    dh, dc = (s.x.new_zeros(state.shape) for state in (s.h0, s.c0))  # not zeros_like: they must be contiguous
    dx = s.x.new_empty(s.x.shape) if needs[0] else None
    dw_ih, dw_hh = (prepared.gradient(w) if need else None for w, need in zip(s.w, needs[3:5]))
    db = s.x.new_zeros(s.gates.shape[-1]) if needs[5] or needs[6] else None
    prepared.numbers(kept=True)
    da = s.x.new_empty(prepared.chunk, *s.gates.shape[1:])
    prepared.set(gates=s.gates, h=s.h, c=s.c, da=da, dh_out=dh_out, dc_out=dc_out)
    prepared.set(dh=dh, dc=dc, dx=dx, dw_ih=dw_ih, dw_hh=dw_hh, db=db)
    prepared.run("lstm_backward")
    return dx, dh, dc, dw_ih, dw_hh, *for_both(db, *needs[5:7])
