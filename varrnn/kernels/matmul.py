"""The products that all gates share, tied or untied: whole chunks of steps at once, and one step after another.

Shapes: k steps of B rows make k*B rows; gates are adjacent in a row, (rows, G*H), so that a tied product is ONE
matrix product and its backward sums over the gates by itself. Untied products use a view with the gate axis in front.
"""

from collections.abc import Sequence
from functools import cached_property

import torch
from torch import Tensor

from varrnn.dropout import is_identity
from varrnn.kernels.step_rows import StepRows

# Steps are handled in chunks of about this many rows: large enough for a good matrix product, small enough to stay in
# the cache between the product and the pointwise work. A GPU pays for every chunk and is limited by memory alone.
CHUNK_ROWS, GPU_CHUNK_NUMBERS = 1024, 2**25

# oneDNN's products pay off from about this many units on, packing U for them from these many steps and rows on.
ONEDNN_MIN_UNITS, PACK_MIN_STEPS, PACK_MIN_ROWS = 400, 8, 3

_ONEDNN = torch.backends.mkldnn.is_available() and all(
    hasattr(torch.ops.mkldnn, name) for name in ("_linear_pointwise", "_reorder_linear_weight")
)


def has_onednn(x: Tensor) -> bool:
    """Whether oneDNN multiplies x: measured 10 to 40 % faster than torch's default product on AMD, packed or not."""
    fits = x.dtype == torch.float32 and x.device.type == "cpu" and x.numel() > 0
    return bool(_ONEDNN and fits and torch.backends.mkldnn.enabled)


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """x W^T + b for rows x (n, I); W may be packed."""
    if has_onednn(x):
        return torch.ops.mkldnn._linear_pointwise.default(x, weight, bias, "none", [], "")
    return torch.nn.functional.linear(x, weight, bias)


def prefer_onednn(x: Tensor) -> bool:
    """Whether oneDNN is worth its copies for products with x (..., units); below, plain products are faster."""
    return has_onednn(x) and x.shape[-1] >= ONEDNN_MIN_UNITS


def chunks(x: Tensor, width: int, rows: StepRows | None = None) -> list[tuple[int, int]]:
    """Cut the steps of x (T, B, ...) into parts of about CHUNK_ROWS rows; on a GPU by the memory of their gates.

    ``width`` is the number of all gates' units.
    """
    limit = max(1, GPU_CHUNK_NUMBERS // width) if x.is_cuda else CHUNK_ROWS
    return (StepRows(x) if rows is None else rows).chunks(limit)


def mask_steps(z: Tensor, start: int, stop: int) -> Tensor:
    """The part of a mask (time, gate, batch, unit) that belongs to some steps."""
    return z if z.shape[0] == 1 else z[start:stop]


def masked_input(x: Tensor, z: Tensor) -> Tensor:
    """x o z for x (k, B, I): rows (k*B, I) when tied, (G, k*B, I) when the mask has a gate axis."""
    steps, batch, size = x.shape
    if is_identity(z):
        return x.reshape(steps * batch, size)
    if z.shape[1] == 1:
        return (x * z[:, 0]).view(steps * batch, size)
    out = x.new_empty(z.shape[1], steps, batch, size)
    return torch.mul(x, z.transpose(0, 1), out=out).view(z.shape[1], steps * batch, size)


def gate_view(rows: Tensor, gates: int) -> Tensor:
    """Rows (n, G*H) seen as (G, n, H), a view."""
    return rows.view(rows.shape[0], gates, rows.shape[1] // gates).transpose(0, 1)


def bias_grads(db: Tensor | None, b_ih: bool, b_hh: bool) -> tuple[Tensor | None, Tensor | None]:
    """The gradient of b_ih + b_hh for each of the two that needs it; the two tensors never share memory."""
    return db if b_ih else None, (db.clone() if b_ih and db is not None else db) if b_hh else None


def masked_sum(parts: Sequence[Tensor], masks: Sequence[Tensor], out: Tensor) -> Tensor:
    """The sum over gates of part o mask, into ``out``, which may be the first part."""
    torch.mul(parts[0], masks[0], out=out)
    for part, mask in zip(parts[1:], masks[1:]):
        out.addcmul_(part, mask)
    return out


def input_projection(x: Tensor, weight: Tensor, bias: Tensor | None, gates: int, out: Tensor) -> Tensor:
    """x W^T + b as rows (n, G*H) of an operand x, tied (n, I) or untied (G, n, I); in ``out``, or made by oneDNN."""
    if x.dim() == 2:
        if prefer_onednn(weight):
            return linear(x, weight, bias)
        return torch.mm(x, weight.t(), out=out) if bias is None else torch.addmm(bias, x, weight.t(), out=out)
    w = weight.view(gates, -1, weight.shape[1])
    if prefer_onednn(weight):
        biases = [None] * gates if bias is None else bias.view(gates, -1).unbind(0)
        for gate, *parts in zip(gate_view(out, gates), x, w, biases):
            gate.copy_(linear(*parts))
    elif bias is None:
        torch.bmm(x, w.transpose(1, 2), out=gate_view(out, gates))
    else:
        torch.baddbmm(bias.view(gates, 1, -1), x, w.transpose(1, 2), out=gate_view(out, gates))
    return out


class GateGradient:
    """The gradient of a chunk's gates, (n, G*H), on its way to inputs and weights."""

    def __init__(self, rows: Tensor, gates: int) -> None:
        self.rows, self.gates = rows, gates

    @cached_property
    def copy(self) -> Tensor:
        """With the gate axis in front, (G, n, H): oneDNN is up to a thousand times slower on some strided operands."""
        return gate_view(self.rows, self.gates).contiguous()

    def input_grad(self, weight: Tensor, z: Tensor, out: Tensor) -> None:
        """Write the gradient of x into ``out`` (k, B, I): back through the product, then through the mask."""
        if z.shape[1] == 1:
            back = linear(self.rows, weight.t()).view_as(out)
            out.copy_(back) if is_identity(z) else torch.mul(back, z[:, 0], out=out)
            return
        w = weight.view(self.gates, -1, weight.shape[1])
        if prefer_onednn(weight):
            parts = [linear(*pair) for pair in zip(self.copy, w.transpose(1, 2))]
        else:
            parts = [torch.mm(*pair) for pair in zip(gate_view(self.rows, self.gates), w)]
        masked_sum([part.view_as(out) for part in parts], z.unbind(1), out)

    def weight_grad(self, x: Tensor, total: Tensor | None) -> Tensor:
        """Add x^T d for a masked input x, in the layout that is fastest to compute. See ``to_weight_layout``."""
        if weight_layout(x):
            if x.dim() == 2:
                return torch.mm(self.rows.t(), x) if total is None else total.addmm_(self.rows.t(), x)
            d = gate_view(self.rows, self.gates).transpose(1, 2)
            return torch.bmm(d, x) if total is None else total.baddbmm_(d, x)
        if prefer_onednn(x):
            if x.dim() == 2:
                now = linear(self.rows.t(), x.t()).t()
            else:
                now = torch.cat([linear(d.t(), one.t()) for d, one in zip(self.copy, x)]).t()
            return now if total is None else total.add_(now)
        if x.dim() == 2:
            return linear(x.t(), self.rows.t()) if total is None else total.addmm_(x.t(), self.rows)
        d = gate_view(self.rows, self.gates)
        return torch.bmm(x.transpose(1, 2), d) if total is None else total.baddbmm_(x.transpose(1, 2), d)


def weight_layout(x: Tensor) -> bool:
    """Whether a weight's gradient is computed as (G*H, I) at once; on a CPU its transpose is faster, (I, G*H)."""
    return x.device.type != "cpu"


def to_weight_layout(total: Tensor | None) -> Tensor | None:
    """The sum of ``GateGradient.weight_grad`` in the layout of the weight, (G*H, I)."""
    if total is not None and weight_layout(total):
        return total.flatten(0, 1) if total.dim() == 3 else total
    if total is None or total.dim() == 2:
        return None if total is None else total.t().contiguous()
    return total.transpose(1, 2).flatten(0, 1)


class InputGradients:
    """The gradients of x, W and b through the input product x W + b, chunk by chunk; None where not needed.

    ``needs_grad`` says which of the three are.
    """

    def __init__(self, x: Tensor, w_ih: Tensor, rows: StepRows, needs_grad: tuple[bool, bool, bool]) -> None:
        self.x, self.w_ih, self.rows, self.needs_grad = x, w_ih, rows, needs_grad
        self.dx = torch.empty_like(x) if needs_grad[0] else None
        self._dw: Tensor | None = None
        self.db: Tensor | None = None

    def add(self, da: GateGradient, z_x: Tensor, start: int, stop: int) -> None:
        """Add what comes from the gates of some steps, whose mask is z_x."""
        if self.needs_grad[1]:
            self._dw = da.weight_grad(masked_input(self.rows.view(self.x, start, stop), z_x), self._dw)
        if self.needs_grad[2]:
            db = da.rows.sum(0)
            self.db = db if self.db is None else self.db.add_(db)
        if self.dx is not None:
            da.input_grad(self.w_ih, z_x, self.rows.view(self.dx, start, stop))

    @property
    def dw(self) -> Tensor | None:
        return to_weight_layout(self._dw)


def live_rows(z: Tensor, rows: int) -> Tensor:
    """The first rows of a mask (..., batch, unit): the sequences that have not ended."""
    return z if z.shape[-2] in (1, rows) else z[..., :rows, :]


class Recurrence:
    """(h o z_h) U of one step after another, and its backward pass. U is packed once where many steps use it."""

    def __init__(self, w_hh: Tensor, z_h: Tensor, gates: int, shape: Sequence[int], backwards: bool = False) -> None:
        steps, rows = shape[:2]
        self.gates, self.tied, self.plain = gates, z_h.shape[1] == 1, is_identity(z_h)
        self.masks = [z[0] if self.tied else z for z in z_h.unbind(0)]
        self.weight = w_hh if self.tied else w_hh.view(gates, -1, w_hh.shape[1])
        self.transposed = self.weight.transpose(-2, -1)
        self.packed: list[Tensor] = []
        self.buffer: Tensor | None = None
        if prefer_onednn(w_hh) and steps >= PACK_MIN_STEPS and rows >= PACK_MIN_ROWS:
            parts = [w_hh] if self.tied else self.weight.unbind(0)
            pack = torch.ops.mkldnn._reorder_linear_weight
            self.packed = [pack(part.t() if backwards else part, None) for part in parts]

    def mask_at(self, t: int, rows: int) -> Tensor:
        return live_rows(self.masks[t if len(self.masks) > 1 else 0], rows)

    def apply_mask(self, h: Tensor, t: int) -> Tensor:
        """h o z_h, (B, H) or (G, B, H), in the same memory at every step with as many rows."""
        if self.buffer is None or self.buffer.shape[-2] != h.shape[0]:
            self.buffer = h.new_empty(h.shape if self.tied else (self.gates, *h.shape))
        return torch.mul(h, self.mask_at(t, h.shape[0]), out=self.buffer)

    def forward(self, a: Tensor, h: Tensor, t: int) -> Tensor:
        """a + (h o z_h) U for a (B, G*H); a itself may be overwritten."""
        masked = h if self.plain else self.apply_mask(h, t)
        if self.packed and self.tied:
            return torch.ops.mkldnn._linear_pointwise.binary(masked, a, self.packed[0], None, "add")
        if self.tied:
            return a.addmm_(masked, self.transposed)
        gates = gate_view(a, self.gates)
        if not self.packed:
            gates.baddbmm_(masked, self.transposed)
        for gate, one, weight in zip(gates, masked, self.packed):
            gate.add_(linear(one, weight))
        return a

    def backward(self, d: Tensor, t: int) -> Tensor:
        """The gradient of h from the gradient d (B, G*H) of step t's product."""
        if self.tied:
            dh = linear(d, self.packed[0]) if self.packed else torch.mm(d, self.weight)
            return dh if self.plain else dh.mul_(self.mask_at(t, d.shape[0]))
        gates = gate_view(d, self.gates)
        if self.packed:
            parts = [linear(part, weight) for part, weight in zip(gates, self.packed)]
        else:
            parts = list(torch.bmm(gates, self.weight).unbind(0))
        return masked_sum(parts, self.mask_at(t, d.shape[0]).unbind(0), parts[0])
