"""The simple RNN in C (csrc/rnn.c), with the interface of rnn_torch.py: same arguments, same results."""

import ctypes
from collections.abc import Sequence
from typing import Any

from torch import Tensor

from varrnn.cells import RNNCell, Weights
from varrnn.dropout import Masks
from varrnn.kernels import c_library, rnn_torch
from varrnn.kernels.c_call import LAYER_FIELDS, Call
from varrnn.kernels.matmul import bias_grads
from varrnn.kernels.rnn import Saved
from varrnn.kernels.step_rows import StepRows


class Arguments(ctypes.Structure):
    """``layer`` of csrc/layer.h."""

    _fields_ = LAYER_FIELDS


def run_forward(cell: RNNCell, x: Tensor, rows: StepRows, h0: Tensor, w: Weights, masks: Masks) -> Tensor:
    call = Call(Arguments(), cell, x, rows, w, masks)
    size = w.w_hh.shape[1]
    h = x.new_empty(*x.shape[:-1], size)
    call.alloc_masked()
    bias = None if w.b_ih is None or w.b_hh is None else w.b_ih + w.b_hh
    call.set_tensors(h0=h0, bias=bias, gates=x.new_empty(call.chunk_rows, size), h=h)
    call.run("rnn_forward")
    return h


def run_backward(s: Saved, dh_out: Tensor, needs_grad: Sequence[bool]) -> tuple[Any, ...]:
    """The gradients of x, h0, W, U and both biases, where they are needed.

    What C cannot read, such as a subclass of Tensor from a hook, goes to rnn_torch.py: it saves the same tensors.
    """
    if c_library.unsupported(s.x, s.h0, *s.w, *s.masks, dh_out):
        return rnn_torch.run_backward(s, dh_out, needs_grad)
    call = Call(Arguments(), s.cell, s.x, s.rows, s.w, s.masks)
    size = s.w.w_hh.shape[1]
    dh = s.x.new_zeros(s.h0.shape)  # not zeros_like: it must be contiguous
    dx = s.x.new_empty(s.x.shape) if needs_grad[0] else None
    dw_ih, dw_hh = (call.alloc_grad(w) if need else None for w, need in zip(s.w[:2], needs_grad[2:4]))
    db = s.x.new_zeros(size) if needs_grad[4] or needs_grad[5] else None
    call.alloc_panels()
    call.alloc_da()
    call.set_tensors(h0=s.h0, h=s.h, dh_out=dh_out)
    call.set_tensors(dh=dh, dx=dx, dw_ih=dw_ih, dw_hh=dw_hh, db=db)
    call.run("rnn_backward")
    return dx, dh, dw_ih, dw_hh, *bias_grads(db, *needs_grad[4:6])
