"""The GRU in C (csrc/gru.c), with the interface of gru_torch.py: same arguments, same results."""

import ctypes
from collections.abc import Sequence
from typing import Any

from torch import Tensor

from varrnn.cells import GRUCell, Weights
from varrnn.dropout import Masks
from varrnn.kernels import c_library, gru_torch
from varrnn.kernels.c_call import LAYER_FIELDS, Call, int_fields, ptr_fields
from varrnn.kernels.gru import Saved
from varrnn.kernels.matmul import bias_grads
from varrnn.kernels.step_rows import StepRows


class Arguments(ctypes.Structure):
    """``gru`` of csrc/gru.c."""

    _fields_ = (
        *LAYER_FIELDS,
        *int_fields("reset_after"),
        *ptr_fields("bias_hn", "h_n", "read", "factor_read", "packed_n", "dh_n", "factor_dh_n", "db_hh"),
    )


def prepare(cell: GRUCell, x: Tensor, rows: StepRows, h0: Tensor, w: Weights, masks: Masks) -> Call:
    call = Call(Arguments(), cell, x, rows, w, masks)
    call.set_ints(reset_after=cell.reset_after)
    call.set_tensors(h0=h0, read=None if cell.reset_after else x.new_empty(h0.shape))
    return call


def run_forward(
    cell: GRUCell, x: Tensor, rows: StepRows, h0: Tensor, w: Weights, masks: Masks, save_gates: bool
) -> tuple[Tensor, Tensor, Tensor | None]:
    """h, the gates (..., 3H) and h_n."""
    call = prepare(cell, x, rows, h0, w, masks)
    size = w.w_hh.shape[1]
    kept = x.shape[:-1] if save_gates else (call.chunk_rows,)
    h, gates = x.new_empty(*x.shape[:-1], size), x.new_empty(*kept, 3 * size)
    h_n = x.new_empty(*kept, size) if cell.reset_after else None
    call.set_ints(save_gates=save_gates)
    call.alloc_masked()
    call.set_tensors(factor_read=None if cell.reset_after else call.alloc_factor(call.batch, size))
    bias_hn = w.b_hh[2 * size :] if cell.reset_after and w.b_hh is not None else None
    call.set_tensors(bias=gru_torch.input_bias(w, cell.reset_after), bias_hn=bias_hn, gates=gates, h=h, h_n=h_n)
    call.run("gru_forward")
    return h, gates, h_n


def run_backward(s: Saved, dh_out: Tensor | None, needs_grad: Sequence[bool]) -> tuple[Any, ...]:
    """The gradients of x, h0, W, U and both biases, where they are needed.

    What C cannot read, such as a subclass of Tensor from a hook, goes to gru_torch.py: it saves the same tensors.
    """
    if c_library.unsupported(s.x, s.h0, *s.w, *s.masks, dh_out):
        return gru_torch.run_backward(s, dh_out, needs_grad)
    call = prepare(s.cell, s.x, s.rows, s.h0, s.w, s.masks)
    reset_after, size = s.cell.reset_after, s.w.w_hh.shape[1]
    dh = s.x.new_zeros(s.h0.shape)  # not zeros_like: it must be contiguous
    dx = s.x.new_empty(s.x.shape) if needs_grad[0] else None
    dw_ih, dw_hh = (call.alloc_grad(w) if need else None for w, need in zip(s.w[:2], needs_grad[2:4]))
    b_ih = s.x.new_zeros(3 * size) if needs_grad[4] or (needs_grad[5] and not reset_after) else None
    b_hh = s.x.new_zeros(3 * size) if needs_grad[5] and reset_after else None
    call.set_ints(save_gates=True)
    call.alloc_panels()
    call.set_tensors(gates=s.gates, h=s.h, h_n=s.h_n, dh_out=dh_out)
    call.alloc_da()
    call.set_tensors(dh_n=s.x.new_empty(call.chunk_rows, size) if reset_after else None)
    call.set_tensors(factor_dh_n=call.alloc_factor(call.chunk_rows, size) if reset_after else None)
    call.set_tensors(packed_n=call.pack_buffer(1, size, size), dh=dh, dx=dx, dw_ih=dw_ih, dw_hh=dw_hh)
    call.set_tensors(db=b_ih, db_hh=b_hh)
    call.run("gru_backward")
    biases = (b_ih, b_hh) if reset_after else bias_grads(b_ih, *needs_grad[4:6])
    return dx, dh, dw_ih, dw_hh, *biases
