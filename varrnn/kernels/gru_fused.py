"""The GRU that resets after the product with ATen's fused cell (fused.py), with the interface of gru_torch.py."""

from collections.abc import Sequence

import torch
from torch import Tensor

from varrnn.cells import GRUCell, Weights
from varrnn.dropout import Masks
from varrnn.kernels import fused
from varrnn.kernels.gru import Saved
from varrnn.kernels.matmul import GateGradient, chunks, mask_steps, masked_input, to_weight_layout
from varrnn.kernels.pointwise import previous_states
from varrnn.kernels.step_rows import StepRows


def run_forward(
    cell: GRUCell, x: Tensor, rows: StepRows, h0: Tensor, w: Weights, masks: Masks, save_gates: bool
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Every h_t, and instead of the gates the fused cell's workspace (T, B, 5H)."""
    found = fused.operations(fused.GRU)
    assert found is not None
    size = w.w_hh.shape[1]
    recurrence = fused.FusedRecurrence(w.w_hh, masks.z_h, 3)
    h = h0.contiguous()
    history: list[tuple[Tensor, ...]] = []
    for start, stop in chunks(x, 3 * size):
        preact = fused.input_gates(x[start:stop], mask_steps(masks.z_x, start, stop), w.w_ih, None, 3)
        for t, preact_t in enumerate(preact.unbind(0), start):
            h, workspace = found[0](preact_t, recurrence.forward(h, t), h, w.b_ih, w.b_hh)
            history.append((h, workspace) if save_gates else (h,))
    hs, *saved = (torch.stack(steps) for steps in zip(*history))
    return hs, saved[0] if saved else hs, None


def run_backward(s: Saved, dh_out: Tensor | None, needs_grad: Sequence[bool]) -> tuple[Tensor | None, ...]:
    """Chunks in reverse, then the gradients of the weights and of x from all steps of a chunk."""
    found = fused.operations(fused.GRU)
    assert found is not None
    recurrence = fused.FusedRecurrence(s.w.w_hh, s.masks.z_h, 3)
    dx = torch.empty_like(s.x) if needs_grad[0] else None
    sums: dict[str, Tensor | None] = dict.fromkeys(("w_ih", "w_hh", "b_ih", "b_hh"))
    dh = torch.zeros_like(s.h[0]) if dh_out is None else dh_out[-1].contiguous()
    h0 = s.h0.contiguous()
    for start, stop in reversed(chunks(s.h, 3 * s.h.shape[-1])):
        steps: list[tuple[Tensor, Tensor]] = []
        for t in reversed(range(start, stop)):
            d_input, d_hidden, leak = found[1](dh, s.gates[t], False)[:3]
            steps.append((d_input, d_hidden))
            dh = recurrence.backward(d_hidden, t, leak)
            if dh_out is not None and t:
                dh = dh.add_(dh_out[t - 1])
        part = slice(start, stop)
        of_x, of_h = (GateGradient(torch.cat(rows), 3) for rows in zip(*steps[::-1]))
        z_x, z_h = mask_steps(s.masks.z_x, start, stop), mask_steps(s.masks.z_h, start, stop)
        if needs_grad[2]:
            sums["w_ih"] = of_x.weight_grad(masked_input(s.x[part], z_x), sums["w_ih"])
        if needs_grad[3]:
            h_prev = previous_states(s.h, h0, start, stop)
            sums["w_hh"] = of_h.weight_grad(masked_input(h_prev, z_h), sums["w_hh"])
        for name, gradient, needed in (("b_ih", of_x, needs_grad[4]), ("b_hh", of_h, needs_grad[5])):
            if needed:
                total = sums[name]
                sums[name] = gradient.rows.sum(0) if total is None else total.add_(gradient.rows.sum(0))
        if dx is not None:
            of_x.input_grad(s.w.w_ih, z_x, dx[part])
    return dx, dh, to_weight_layout(sums["w_ih"]), to_weight_layout(sums["w_hh"]), sums["b_ih"], sums["b_hh"]
