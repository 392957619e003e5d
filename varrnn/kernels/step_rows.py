"""Which rows belong to which step: all sequences at every step, or of packed sequences those that have not ended."""

from functools import cached_property

import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence, pad_packed_sequence


class StepRows:
    """The rows of each step of x, which is (T, B, I), or (N, I) with the ``batch_sizes`` of packed sequences.

    Step t has the rows ``begins[t]`` to ``begins[t + 1]`` of all rows. Their number never grows, because the longest
    sequence comes first: row b of a step continues row b of the step before.
    """

    def __init__(self, x: Tensor, batch_sizes: Tensor | None = None) -> None:
        self.packed = batch_sizes is not None
        self.batch_sizes = batch_sizes
        if batch_sizes is None:
            self.steps, self.batch = x.shape[0], x.shape[1]
        else:
            self.steps, self.batch = batch_sizes.shape[0], int(batch_sizes[0])

    @cached_property
    def sizes(self) -> list[int]:
        """The number of rows of each step."""
        return [self.batch] * self.steps if self.batch_sizes is None else self.batch_sizes.tolist()

    @cached_property
    def begins(self) -> list[int]:
        if self.batch_sizes is None:
            return [t * self.batch for t in range(self.steps + 1)]
        return [0, *self.batch_sizes.cumsum(0).tolist()]

    @property
    def total(self) -> int:
        return self.begins[-1] if self.packed else self.steps * self.batch

    def rows(self, start: int, stop: int) -> slice:
        """The rows of some steps."""
        return slice(self.begins[start], self.begins[stop])

    def chunks(self, rows: int) -> list[tuple[int, int]]:
        """Cut the steps into parts of at most ``rows`` rows, at least one step each."""
        if not self.packed:
            size = max(1, rows // max(1, self.batch))
            return [(start, min(start + size, self.steps)) for start in range(0, self.steps, size)]
        parts, start = [], 0
        for t in range(1, self.steps + 1):
            if t == self.steps or self.begins[t + 1] - self.begins[start] > rows:
                parts.append((start, t))
                start = t
        return parts

    def view(self, x: Tensor, start: int, stop: int) -> Tensor:
        """Some steps of all rows x (N, ...) as (k, B, ...); of packed sequences as one step with all these rows."""
        part = x[self.rows(start, stop)]
        return part.unsqueeze(0) if self.packed else part.unflatten(0, (stop - start, self.batch))

    def mask(self, z: Tensor, start: int, stop: int) -> Tensor:
        """The part of a mask (time, gate, batch, unit) for ``view``."""
        if not self.packed:
            return z if z.shape[0] == 1 else z[start:stop]
        if z.shape[0] == 1 and z.shape[2] == 1:
            return z
        t, b = (index[self.rows(start, stop)] for index in self.index[1:])
        t, b = (index if size > 1 else torch.zeros_like(index) for index, size in ((t, z.shape[0]), (b, z.shape[2])))
        t, b = (index.to(z.device, non_blocking=True) for index in (t, b))
        return z[t, :, b].transpose(0, 1).unsqueeze(0)

    def previous(self, history: Tensor, first: Tensor, start: int, stop: int) -> Tensor:
        """The states before some steps, one for each of their rows: of all states (N, H) and the initial ones."""
        if not self.packed and start:
            return history[self.rows(start - 1, stop - 1)]
        begins, sizes = self.begins, self.sizes
        before = [history[begins[t - 1] : begins[t - 1] + sizes[t]] if t else first for t in range(start, stop)]
        return torch.cat(before if self.packed else [first, history[: begins[stop - 1]]])

    @cached_property
    def lengths(self) -> Tensor:
        """(B,) the length of each sequence, the longest first, on the CPU."""
        if self.batch_sizes is None:
            return torch.full((self.batch,), self.steps)
        return (self.batch_sizes.unsqueeze(1) > torch.arange(self.batch)).sum(0)

    @cached_property
    def index(self) -> tuple[Tensor, Tensor, Tensor]:
        """The first row of each step, and the step and the sequence of each row of packed sequences."""
        assert self.batch_sizes is not None
        begins = self.batch_sizes.cumsum(0) - self.batch_sizes
        t = torch.repeat_interleave(self.batch_sizes)
        return begins, t, torch.arange(len(t)) - begins[t]

    def reversed_index(self) -> Tensor:
        """For each row of packed sequences, the one that takes its place when every sequence is reversed."""
        begins, t, b = self.index
        return begins[self.lengths[b] - 1 - t] + b

    def last_index(self) -> Tensor:
        """(B,) the row of the last step of each packed sequence."""
        begins = self.index[0]
        return begins[self.lengths - 1] + torch.arange(self.batch)

    def last(self, history: Tensor) -> Tensor:
        """The state after each sequence's last step, (B, H)."""
        if not self.packed:
            return history[-1]
        return history.index_select(0, self.last_index().to(history.device, non_blocking=True))

    def pad(self, x: Tensor) -> Tensor:
        """Packed rows (N, I) as (T, B, I), zeros at the end."""
        assert self.batch_sizes is not None
        padded = pad_packed_sequence(PackedSequence(x, self.batch_sizes))[0]
        if torch.jit.is_tracing():  # the trace holds one copy of the step for each time step of this input
            padded = padded.unflatten(0, (self.steps, 1)).squeeze(1)  # another length raises
        return padded

    def unpad(self, history: Tensor) -> Tensor:
        """The inverse of ``pad``."""
        _, t, b = self.index
        return history.flatten(0, 1).index_select(0, (t * self.batch + b).to(history.device, non_blocking=True))
