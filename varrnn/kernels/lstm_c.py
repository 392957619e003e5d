"""The LSTM in C (csrc/lstm.c), with the interface of lstm_torch.py: same arguments, same results."""

import ctypes
from collections.abc import Sequence
from typing import Any

from torch import Tensor

from varrnn.cells import LSTMCell, Weights
from varrnn.dropout import Masks
from varrnn.kernels import c_library, lstm_torch
from varrnn.kernels.c_call import LAYER_FIELDS, Call, Mask, ptr_fields
from varrnn.kernels.lstm import Saved
from varrnn.kernels.matmul import bias_grads
from varrnn.kernels.step_rows import StepRows


class Arguments(ctypes.Structure):
    """``lstm`` of csrc/lstm.c."""

    _fields_ = (*LAYER_FIELDS, *ptr_fields("c0"), ("z_c", Mask), *ptr_fields("c", "dc_out", "dc"))


def prepare(cell: LSTMCell, x: Tensor, rows: StepRows, h0: Tensor, c0: Tensor, w: Weights, masks: Masks) -> Call:
    call = Call(Arguments(), cell, x, rows, w, masks)
    call.set_mask("z_c", masks.z_c, w.w_hh.shape[1])
    call.set_tensors(h0=h0, c0=c0)
    return call


def run_forward(
    cell: LSTMCell, x: Tensor, rows: StepRows, h0: Tensor, c0: Tensor, w: Weights, masks: Masks, save_gates: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """h, c and the gates, (..., 4H); without ``save_gates`` the gates are lost."""
    call = prepare(cell, x, rows, h0, c0, w, masks)
    size = w.w_hh.shape[1]
    h, c = (x.new_empty(*x.shape[:-1], size) for _ in range(2))
    gates = x.new_empty(*(x.shape[:-1] if save_gates else (call.chunk_rows,)), 4 * size)
    call.set_ints(save_gates=save_gates)
    call.alloc_masked()
    bias = None if w.b_ih is None or w.b_hh is None else w.b_ih + w.b_hh
    call.set_tensors(bias=bias, gates=gates, h=h, c=c)
    call.run("lstm_forward")
    return h, c, gates


def run_backward(s: Saved, dh_out: Tensor | None, dc_out: Tensor | None, needs_grad: Sequence[bool]) -> tuple[Any, ...]:
    """The gradients of x, h0, c0, W, U and both biases, where they are needed.

    What C cannot read, such as a subclass of Tensor from a hook, goes to lstm_torch.py: it saves the same tensors.
    """
    if c_library.unsupported(s.x, s.h0, s.c0, *s.w, *s.masks, dh_out, dc_out):
        return lstm_torch.run_backward(s, dh_out, dc_out, needs_grad)
    call = prepare(s.cell, s.x, s.rows, s.h0, s.c0, s.w, s.masks)
    dh, dc = (s.x.new_zeros(state.shape) for state in (s.h0, s.c0))  # not zeros_like: they must be contiguous
    dx = s.x.new_empty(s.x.shape) if needs_grad[0] else None
    dw_ih, dw_hh = (call.alloc_grad(w) if need else None for w, need in zip(s.w[:2], needs_grad[3:5]))
    db = s.x.new_zeros(s.gates.shape[-1]) if needs_grad[5] or needs_grad[6] else None
    call.set_ints(save_gates=True)
    call.alloc_panels()
    call.alloc_da()
    call.set_tensors(gates=s.gates, h=s.h, c=s.c, dh_out=dh_out, dc_out=dc_out)
    call.set_tensors(dh=dh, dc=dc, dx=dx, dw_ih=dw_ih, dw_hh=dw_hh, db=db)
    call.run("lstm_backward")
    return dx, dh, dc, dw_ih, dw_hh, *bias_grads(db, *needs_grad[5:7])
