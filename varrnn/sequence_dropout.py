"""Dropout with one mask per sequence for any (T, B, ...) tensor, such as the last layer's output (p_y)."""

import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence

from varrnn.dropout import MaskedModule, check_probability, sample_mask


class SequenceDropout(MaskedModule):
    """Drop the same units at every time step of a sequence: the paper's p_y, on the output of the last layer.

    ``nn.Dropout`` draws a mask at every step. This module draws one mask per sequence, in train() and under
    ``mc_dropout``. In a ``hold_masks`` block all calls share the mask, so that it also works one step at a time.

    Args:
        p: the probability of dropping a unit; the remaining units are scaled by 1/(1-p).
        batch_first: whether inputs are (B, T, ...) instead of (T, B, ...).

    Shape:
        - input: (T, B, ...), (B, T, ...) with ``batch_first``, or a ``PackedSequence``. Two axes raise ValueError,
          since the first could be time or batch. Give one step as (1, B, H), an unbatched sequence as (T, 1, H).
        - mask (optional): one factor for each sequence and unit, (B, ...) or (1, ...), applied in train() and eval().
        - output: like the input.

    Example:
        >>> drop = SequenceDropout(0.5)
        >>> out = drop(torch.ones(7, 2, 4))
        >>> out.shape, bool((out == out[0]).all())  # the same units at each of the 7 steps
        (torch.Size([7, 2, 4]), True)
    """

    def __init__(self, p: float = 0.5, batch_first: bool = False) -> None:
        super().__init__()
        if not isinstance(batch_first, bool):
            raise TypeError(f"SequenceDropout: batch_first={batch_first!r} must be True or False")
        self.p, self.batch_first = p, batch_first

    @property
    def p(self) -> float:
        """The probability of dropping a unit; it can be set, and is checked as in the constructor."""
        return self._p

    @p.setter
    def p(self, p: float) -> None:
        check_probability("p", p)
        self._p = float(p)

    def forward(self, input: Tensor | PackedSequence, mask: Tensor | None = None) -> Tensor | PackedSequence:
        """Apply the mask; see the class for shapes."""
        if isinstance(input, PackedSequence):
            return self._forward_packed(input, mask)
        if not isinstance(input, Tensor):
            raise TypeError(f"SequenceDropout: input is a {type(input).__name__}; give a tensor or a PackedSequence")
        if input.dim() < 3:
            raise ValueError(
                f"SequenceDropout: input has {input.dim()} axes; give (T, B, H), or (B, T, H) with batch_first: "
                "one step as (1, B, H), an unbatched sequence as (T, 1, H)"
            )
        time = 1 if self.batch_first else 0
        found = self._mask(input, (input.shape[1 - time], *input.shape[2:]), mask)
        return input if found is None else input * found.unsqueeze(time)

    def sample_mask(
        self, shape: tuple[int, ...], like: Tensor | None = None, generator: torch.Generator | None = None
    ) -> Tensor:
        """One factor for each sequence and unit, ``shape`` being (B, ...), with the device and dtype of ``like``."""
        where = {} if like is None else {"device": like.device, "dtype": like.dtype}
        return sample_mask(shape, self.p, generator, **where)

    def _mask(self, x: Tensor, shape: tuple[int, ...], mask: Tensor | None) -> Tensor | None:
        if mask is not None:
            if mask.dim() != len(shape) or any(n not in (1, size) for n, size in zip(mask.shape, shape)):
                raise ValueError(
                    f"SequenceDropout: a mask of shape {tuple(mask.shape)}; expected {shape}, or 1 on an axis"
                )
            return mask
        if not (self.p and self.dropout_active):
            return None
        return self.sample_unless_held((shape, self.p, x.device, x.dtype), self.sample_mask, shape, x)

    def _forward_packed(self, packed: PackedSequence, mask: Tensor | None) -> PackedSequence:
        data, sizes = packed.data, packed.batch_sizes
        found = self._mask(data, (int(sizes[0]), *data.shape[1:]), mask)
        if found is None:
            return packed
        if packed.sorted_indices is not None and found.shape[0] > 1:
            found = found.index_select(0, packed.sorted_indices)
        if found.shape[0] > 1:  # packed data hold, for each time step, the first `size` rows of the sorted batch
            rows = torch.cat([torch.arange(int(size)) for size in sizes]).to(data.device)
            found = found.index_select(0, rows)
        return packed._replace(data=data * found)

    def extra_repr(self) -> str:
        return f"p={self.p}" + (", batch_first=True" if self.batch_first else "")
