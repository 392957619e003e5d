"""The products that all gates share, tied or untied, and the pieces of pointwise work that decide the speed.

Shapes: k steps of B rows make k*B rows; gates lie side by side in a row, (rows, G*H), so that a tied product is ONE
matrix product and its backward sums over the gates by itself. An untied product is a batched product over a view with
the gate axis in front, on the same memory.
"""

import torch
from torch import Tensor

from varrnn.dropout import is_ones

# Steps are handled in chunks of about this many rows: large enough for a good matrix product, small enough to stay in
# the cache between the product and the pointwise work.
ROWS = 1024

_PRECISE = (torch.float32, torch.float64)


def chunks(steps: int, batch_size: int) -> list[tuple[int, int]]:
    """Cut the time axis into pieces of about ROWS rows."""
    size = max(1, ROWS // max(1, batch_size))
    return [(start, min(start + size, steps)) for start in range(0, steps, size)]


def over(z: Tensor, start: int, stop: int) -> Tensor:
    """The part of a mask (time, gate, batch, unit) that belongs to some steps."""
    return z if z.shape[0] == 1 else z[start:stop]


def operand(x: Tensor, z: Tensor) -> Tensor:
    """x o z for x (k, B, I): rows (k*B, I) when tied, (G, k*B, I) when the mask has a gate axis."""
    steps, batch, size = x.shape
    if is_ones(z):
        return x.reshape(steps * batch, size)
    if z.shape[1] == 1:
        return (x * z[:, 0]).view(steps * batch, size)
    out = x.new_empty(z.shape[1], steps, batch, size)
    return torch.mul(x, z.transpose(0, 1), out=out).view(-1, steps * batch, size)


def by_gate(rows: Tensor, gates: int) -> Tensor:
    """Rows (n, G*H) seen as (G, n, H), a view."""
    return rows.view(rows.shape[0], gates, -1).transpose(0, 1)


def project(x: Tensor, weight: Tensor, bias: Tensor | None, out: Tensor, gates: int) -> None:
    """Write x W^T + b into rows ``out`` (n, G*H) for an operand x, tied (n, I) or untied (G, n, I)."""
    if x.dim() == 2:
        torch.mm(x, weight.t(), out=out) if bias is None else torch.addmm(bias, x, weight.t(), out=out)
        return
    weight = weight.view(gates, -1, weight.shape[1]).transpose(1, 2)  # a view is as fast as a copy, and free
    if bias is None:
        torch.bmm(x, weight, out=by_gate(out, gates))
    else:
        torch.baddbmm(bias.view(gates, 1, -1), x, weight, out=by_gate(out, gates))


def unproject(d: Tensor, weight: Tensor, z: Tensor, out: Tensor, gates: int) -> None:
    """Write the gradient of x into ``out`` (k, B, I) from the gradient d (k*B, G*H) of its product."""
    if z.shape[1] == 1:
        torch.mm(d, weight, out=out.view(d.shape[0], -1))
        if not is_ones(z):
            out.mul_(z[:, 0])
        return
    back = torch.bmm(by_gate(d, gates), weight.view(gates, -1, weight.shape[1])).view(gates, *out.shape)
    torch.sum(back.mul_(z.transpose(0, 1)), dim=0, out=out)


def add_weight_gradient(total: Tensor, d: Tensor, x: Tensor, gates: int) -> None:
    """Add d^T x to ``total`` (G*H, I) for an operand x, tied or untied."""
    if x.dim() == 2:
        total.addmm_(d.t(), x)
    else:
        total.view(gates, -1, total.shape[1]).baddbmm_(by_gate(d, gates).transpose(1, 2), x)


def tanh(x: Tensor, out: Tensor) -> Tensor:
    """tanh x as 2 sigm(2x) - 1 where that is precise enough: torch's sigmoid is about six times faster on a CPU."""
    if x.dtype not in _PRECISE or x.device.type != "cpu":
        return torch.tanh(x, out=out)
    torch.mul(x, 2.0, out=out).sigmoid_()
    return torch.mul(out, 2.0, out=out).sub_(1.0)


class Recurrence:
    """(h o z_h) U of one step after another, and its way back, with one buffer for the masked copies."""

    def __init__(self, w_hh: Tensor, z_h: Tensor, h: Tensor, gates: int) -> None:
        self.gates, self.tied, self.plain = gates, z_h.shape[1] == 1, is_ones(z_h)
        self.masks = [z[0] if self.tied else z for z in z_h.unbind(0)]
        self.weight = w_hh if self.tied else w_hh.view(gates, -1, w_hh.shape[1])
        self.buffer = h.new_empty(h.shape if self.tied else (gates, *h.shape))

    def at(self, t: int) -> Tensor:
        return self.masks[t if len(self.masks) > 1 else 0]

    def add(self, a: Tensor, h: Tensor, t: int) -> None:
        """Add the product of step t to a (B, G*H)."""
        masked = h if self.plain else torch.mul(h, self.at(t), out=self.buffer)
        if self.tied:
            a.addmm_(masked, self.weight.t())
        else:
            by_gate(a, self.gates).baddbmm_(masked, self.weight.transpose(1, 2))

    def back(self, d: Tensor, t: int) -> Tensor:
        """The gradient of h from the gradient d (B, G*H) of step t's product."""
        if self.tied:
            dh = torch.mm(d, self.weight)
            return dh if self.plain else dh.mul_(self.at(t))
        torch.bmm(by_gate(d, self.gates), self.weight, out=self.buffer)
        return self.buffer.mul_(self.at(t)).sum(0)
