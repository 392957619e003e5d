"""The LSTM in C (c/lstm.c), called as kernels/lstm.py calls its torch operations: same arguments, same results."""

import ctypes
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from varrnn.cells import Weights
from varrnn.dropout import Masks, is_ones
from varrnn.kernels import native

ROWS = 512  # rows of a chunk: its gates fit into the second cache

_SIZES = ("steps", "batch", "inputs", "size", "threads", "chunk", "kept")
_INPUTS = ("x", "w_ih", "w_hh", "bias", "h0", "c0")
_MASKS = ("z_x", "z_h", "z_c")
_FORWARD = ("gates", "h", "c", "packed_ih", "packed_hh", "masked_x", "masked_h")
_BACKWARD = ("dh_out", "dc_out", "da", "dh", "dc", "dx", "dw_ih", "dw_hh", "db")


class Arguments(ctypes.Structure):
    """``lstm`` of c/lstm.c."""

    _fields_ = (
        *((name, ctypes.c_int64) for name in _SIZES),
        *((name, ctypes.c_void_p) for name in _INPUTS),
        *((name, native.Mask) for name in _MASKS),
        *((name, ctypes.c_void_p) for name in (*_FORWARD, *_BACKWARD)),
        ("now", ctypes.c_int64),
    )


class Call:
    """One call: the arguments, and the tensors that they point into."""

    def __init__(self, x: Tensor, w: Weights, masks: Masks) -> None:
        self.steps, self.batch, inputs = x.shape
        size = w.w_hh.shape[1]
        self.chunk = -(-self.steps // max(1, round(self.steps * self.batch / ROWS)))
        code = native.library()
        assert code is not None
        self.code = code
        threads = native.threads(self.batch, size)
        self.arguments = Arguments(self.steps, self.batch, inputs, size, threads, self.chunk)
        self.tensors: dict[str, Tensor | None] = {}
        self.set(x=x, w_ih=w.w_ih.contiguous(), w_hh=w.w_hh.contiguous())
        for name, z, units in zip(_MASKS, masks, (inputs, size, size)):
            whole = None if is_ones(z) else native.expanded(z, self.batch, units)
            setattr(self.arguments, name, native.as_mask(whole))
            self.tensors[name] = whole
        floats = code.packed_floats
        floats.argtypes, floats.restype = (ctypes.c_int64, ctypes.c_int64), ctypes.c_int64
        self.set(packed_ih=x.new_empty(floats(inputs, size)), packed_hh=x.new_empty(floats(size, size)))

    def set(self, **tensors: Tensor | None) -> None:
        for name, tensor in tensors.items():
            setattr(self.arguments, name, native.address(tensor))
        self.tensors.update(tensors)

    def copies(self, name: str) -> int:
        z = self.tensors[name]
        return 0 if z is None else z.shape[1]

    def run(self, function: str) -> None:
        getattr(self.code, function)(ctypes.byref(self.arguments))


def forward(x: Tensor, h0: Tensor, c0: Tensor, w: Weights, masks: Masks, keep: bool) -> tuple[Tensor, Tensor, Tensor]:
    """h, c and the gates, (T, B, 4H); without ``keep`` the gates are lost."""
    call = Call(x, w, masks)
    size = w.w_hh.shape[1]
    h, c = (x.new_empty(call.steps, call.batch, size) for _ in range(2))
    gates = x.new_empty(call.steps if keep else call.chunk, call.batch, 4 * size)
    call.arguments.kept = keep
    call.set(
        bias=None if w.b_ih is None or w.b_hh is None else w.b_ih + w.b_hh,
        h0=h0.contiguous(),
        c0=c0.contiguous(),
        gates=gates,
        h=h,
        c=c,
        masked_x=x.new_empty(call.copies("z_x"), call.chunk, call.batch, x.shape[2]),
        masked_h=x.new_empty(call.copies("z_h"), call.batch, size),
    )
    call.run("lstm_forward")
    return h, c, gates


def backward(saved: Any, dh_out: Tensor | None, dc_out: Tensor | None, needs: Sequence[bool]) -> tuple[Any, ...]:
    """The gradients of x, h0, c0, W, U and both biases, where they are needed, from ``lstm.Saved``."""
    s = saved
    call = Call(s.x, s.w, s.masks)
    dh, dc = torch.zeros_like(s.h0), torch.zeros_like(s.c0)
    dx = torch.empty_like(s.x) if needs[0] else None
    dw_ih, dw_hh = (torch.zeros_like(w) if need else None for w, need in zip(s.w, needs[3:5]))
    db = s.x.new_zeros(s.gates.shape[-1]) if needs[5] or needs[6] else None
    call.arguments.kept = True
    call.set(
        h0=s.h0.contiguous(),
        c0=s.c0.contiguous(),
        gates=s.gates,
        h=s.h,
        c=s.c,
        dh_out=None if dh_out is None else dh_out.contiguous(),
        dc_out=None if dc_out is None else dc_out.contiguous(),
        da=s.x.new_empty(call.chunk, call.batch, s.gates.shape[-1]),
    )
    call.set(dh=dh, dc=dc, dx=dx, dw_ih=dw_ih, dw_hh=dw_hh, db=db)
    call.run("lstm_backward")
    return dx, dh, dc, dw_ih, dw_hh, db if needs[5] else None, db if needs[6] else None
