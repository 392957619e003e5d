"""ATen's fused cells, which nn.LSTMCell and nn.GRUCell run on a GPU: one launch for all the pointwise work of a step.

They are private operations of torch: where one is missing, the torch backend does the same with plain operations.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from varrnn.cells import Cell, GRUCell, LSTMCell
from varrnn.dropout import Masks, is_identity, is_read_mask
from varrnn.kernels.matmul import gate_view, input_projection, masked_input

_aten = torch.ops.aten
DEVICES = ("cuda",)  # where torch has these operations
# (input gates, hidden gates, c, input bias, hidden bias) -> h, c, gates;
# (dh, dc, c before, c, gates, has bias) -> d gates, d c before, d bias
LSTM = ("_thnn_fused_lstm_cell", "_thnn_fused_lstm_cell_backward_impl")
# (input gates, hidden gates, h, input bias, hidden bias) -> h, workspace;
# (dh, workspace, has bias) -> d input gates, d hidden gates, d h before, two d biases
GRU = ("_thnn_fused_gru_cell", "_thnn_fused_gru_cell_backward")


def operations(names: Sequence[str]) -> list[Callable[..., Any]] | None:
    """The forward and the backward operation, or None where this torch does not have both."""
    found = [getattr(_aten, name, None) for name in names]
    return None if None in found else [one.default for one in found]  # type: ignore[union-attr]


def unsupported(cell: Cell, x: Tensor, masks: Masks) -> str | None:
    """Why no fused cell can compute this, or None."""
    if x.device.type not in DEVICES:
        return f"torch has fused cells for {', '.join(DEVICES)} only, not for {x.device.type}"
    if cell not in (LSTMCell(), GRUCell()):
        return "torch's fused cells have the usual activations, and their GRU resets after the product"
    names = LSTM if isinstance(cell, LSTMCell) else GRU
    if operations(names) is None:
        return f"torch {torch.__version__} has no {' and '.join(names)}"
    if not (is_identity(masks.z_c) or is_read_mask(masks.z_c)):
        return "torch's fused LSTM cell allows a mask on c_t only where the same units of h_t are dropped"
    return None if x.numel() else "the batch is empty"


def input_gates(x: Tensor, z_x: Tensor, w_ih: Tensor, bias: Tensor | None, gates: int) -> Tensor:
    """The input products of some steps at once: x (k, B, I) -> (k, B, G*H)."""
    out = x.new_empty(x.shape[0] * x.shape[1], len(w_ih))
    return input_projection(masked_input(x, z_x), w_ih, bias, gates, out=out).view(*x.shape[:2], -1)


class FusedRecurrence:
    """(h o z_h) U of one step after another in few launches, and its backward pass."""

    def __init__(self, w_hh: Tensor, z_h: Tensor, gates: int) -> None:
        self.gates, self.tied, self.plain = gates, z_h.shape[1] == 1, is_identity(z_h)
        self.masks = [z[0] if self.tied else z for z in z_h.unbind(0)]
        self.weight = w_hh if self.tied else w_hh.view(gates, -1, w_hh.shape[1])
        self.transposed = self.weight.transpose(-2, -1)
        self.masked: Tensor | None = None
        self.product: Tensor | None = None

    def mask_at(self, t: int) -> Tensor:
        return self.masks[t if len(self.masks) > 1 else 0]

    def forward(self, h: Tensor, t: int) -> Tensor:
        """(h o z_h) U of step t, (B, G*H), in the same memory at every step."""
        if self.masked is None or self.product is None:
            self.masked = h.new_empty(h.shape if self.tied else (self.gates, *h.shape))
            self.product = h.new_empty(h.shape[0], self.gates * h.shape[1])
        masked = h if self.plain else torch.mul(h, self.mask_at(t), out=self.masked)
        if self.tied:
            return torch.mm(masked, self.transposed, out=self.product)
        torch.bmm(masked, self.transposed, out=gate_view(self.product, self.gates))
        return self.product

    def backward(self, d: Tensor, t: int, total: Tensor | None) -> Tensor:
        """``total`` + the gradient of h from the gradient d (B, G*H) of step t's product."""
        if self.tied and self.plain:
            return torch.mm(d, self.weight) if total is None else torch.addmm(total, d, self.weight)
        if self.tied:
            dh = torch.mm(d, self.weight)
            return dh.mul_(self.mask_at(t)) if total is None else torch.addcmul(total, dh, self.mask_at(t))
        dh = torch.bmm(gate_view(d, self.gates), self.weight).mul_(self.mask_at(t)).sum(0)
        return dh if total is None else dh.add_(total)
