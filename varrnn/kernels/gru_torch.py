"""What the GRU's three gates do not share: r and u see h, the candidate sees h and r; and the sums of gradients."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from varrnn.cells import Weights
from varrnn.kernels.matmul import GateGradient, Recurrence, as_weight


class Recurrences:
    """The recurrent products of r and u, and that of the candidate, which sees r in one of two places."""

    def __init__(
        self, w: Weights, z_h: Tensor, shape: Sequence[int], reset_after: bool, backwards: bool = False
    ) -> None:
        size = w.w_hh.shape[1]
        z_ru, z_n = split(z_h)
        self.ru = Recurrence(w.w_hh[: 2 * size], z_ru, 2, shape, backwards)
        self.n = Recurrence(w.w_hh[2 * size :], z_n, 1, shape, backwards)
        self.reset_after = reset_after


def split(z_h: Tensor) -> tuple[Tensor, Tensor]:
    """The recurrent masks of r and u, and of the candidate."""
    return (z_h, z_h) if z_h.shape[1] == 1 else (z_h[:, :2], z_h[:, 2:])


def input_bias(w: Weights, reset_after: bool) -> Tensor | None:
    """b_ih + b_hh, but for the b_hh of a candidate that is reset after its product."""
    if w.b_ih is None or w.b_hh is None:
        return None
    bias = w.b_ih + w.b_hh
    if reset_after:
        size = w.w_hh.shape[1]
        bias[2 * size :] = w.b_ih[2 * size :]
    return bias


@dataclass
class Sums:
    """The gradients of the weights, summed over the chunks."""

    w_ih: Tensor | None = None
    w_ru: Tensor | None = None
    w_n: Tensor | None = None
    b_ih: Tensor | None = None
    b_hh: Tensor | None = None

    def add_biases(self, of_x: GateGradient, of_ru: GateGradient, of_q: GateGradient) -> None:
        now = of_x.rows.sum(0), torch.cat([of_ru.rows.sum(0), of_q.rows.sum(0)])
        first = self.b_ih is None or self.b_hh is None
        self.b_ih, self.b_hh = now if first else (self.b_ih + now[0], self.b_hh + now[1])  # type: ignore[operator]

    def weights(self) -> tuple[Tensor | None, Tensor | None]:
        ru, n = as_weight(self.w_ru), as_weight(self.w_n)
        return as_weight(self.w_ih), None if ru is None or n is None else torch.cat([ru, n])
