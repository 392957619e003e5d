"""The LSTM with ATen's fused cell (fused.py), with the interface of lstm_torch.py.

Moon's mask with cell_scaling="read" drops the same units of c_t and h_t and scales h_t alone, so that
z_r o o o tanh(z_c o c) = z_r o (o o tanh(c)): the fused cell computes the step, and two products apply the masks.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from varrnn.cells import LSTMCell, Weights
from varrnn.dropout import Masks
from varrnn.kernels import fused
from varrnn.kernels.lstm import Saved
from varrnn.kernels.lstm_torch import CellMask
from varrnn.kernels.matmul import (
    GateGradient,
    bias_grads,
    chunks,
    mask_steps,
    masked_input,
    to_weight_layout,
)
from varrnn.kernels.pointwise import previous_states
from varrnn.kernels.step_rows import StepRows


def run_forward(
    cell: LSTMCell, x: Tensor, rows: StepRows, h0: Tensor, c0: Tensor, w: Weights, masks: Masks, save_gates: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Chunk by chunk: the input products of some steps at once, then their steps."""
    found = fused.operations(fused.LSTM)
    assert found is not None
    size = w.w_hh.shape[1]
    bias = None if w.b_ih is None or w.b_hh is None else w.b_ih + w.b_hh
    recurrence, cell_mask = fused.FusedRecurrence(w.w_hh, masks.z_h, 4), CellMask(masks.z_c)
    h, c = h0.contiguous(), c0.contiguous()
    history: list[tuple[Tensor, ...]] = []
    for start, stop in chunks(x, 4 * size):
        preact = fused.input_gates(x[start:stop], mask_steps(masks.z_x, start, stop), w.w_ih, bias, 4)
        for t, preact_t in enumerate(preact.unbind(0), start):
            h, c, gates = found[0](preact_t, recurrence.forward(h, t), c, None, None)
            cell_mask.apply(c, t)
            cell_mask.scale_output(h, t)
            history.append((h, c, gates) if save_gates else (h, c))
    hs, cs, *saved = (torch.stack(steps) for steps in zip(*history))
    return hs, cs, saved[0] if saved else hs


def run_backward(
    s: Saved, dh_out: Tensor | None, dc_out: Tensor | None, needs_grad: Sequence[bool]
) -> tuple[Tensor | None, ...]:
    """Chunks in reverse, then the gradients of the weights and of x from all steps of a chunk."""
    found = fused.operations(fused.LSTM)
    assert found is not None
    recurrence, cell_mask = fused.FusedRecurrence(s.w.w_hh, s.masks.z_h, 4), CellMask(s.masks.z_c)
    dx = torch.empty_like(s.x) if needs_grad[0] else None
    dw_ih = dw_hh = db = None
    dh = torch.zeros_like(s.h[0]) if dh_out is None else dh_out[-1].contiguous()
    dc = torch.zeros_like(s.c[0])
    h0, c0 = s.h0.contiguous(), s.c0.contiguous()
    for start, stop in reversed(chunks(s.h, 4 * s.h.shape[-1])):
        steps: list[Tensor] = []
        for t in reversed(range(start, stop)):
            if dc_out is not None:
                dc = dc + dc_out[t]
            if not cell_mask.plain:
                dh, dc = dh * cell_mask.output_at(t), dc * cell_mask.mask_at(t)
            d_t, dc, _ = found[1](dh, dc, s.c[t - 1] if t else c0, s.c[t], s.gates[t], False)
            steps.append(d_t)
            dh = recurrence.backward(d_t, t, None if dh_out is None or t == 0 else dh_out[t - 1])
        part = slice(start, stop)
        rows = torch.cat(steps[::-1])
        gradient = GateGradient(rows, 4)
        z_x, z_h = mask_steps(s.masks.z_x, start, stop), mask_steps(s.masks.z_h, start, stop)
        if needs_grad[3]:
            dw_ih = gradient.weight_grad(masked_input(s.x[part], z_x), dw_ih)
        if needs_grad[4]:
            dw_hh = gradient.weight_grad(masked_input(previous_states(s.h, h0, start, stop), z_h), dw_hh)
        if needs_grad[5] or needs_grad[6]:
            db = rows.sum(0) if db is None else db.add_(rows.sum(0))
        if dx is not None:
            gradient.input_grad(s.w.w_ih, z_x, dx[part])
    return dx, dh, dc, to_weight_layout(dw_ih), to_weight_layout(dw_hh), *bias_grads(db, *needs_grad[5:7])
