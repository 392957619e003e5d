"""Convert every input form of torch's layers (batched, batch first, unbatched, packed) to (T, B, ...) and back."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence


@dataclass
class Sequences:
    """The input as (T, B, I), with the inverse conversion. Packed sequences are padded at the end, in unsorted order.

    In both directions padded steps come after the end of their sequence, so no returned value depends on them.
    """

    steps: Tensor
    batch_first: bool
    batched: bool = True
    packed: PackedSequence | None = None
    lengths: Tensor | None = None  # (B,) of packed sequences, on the CPU

    @classmethod
    def read(cls, x: Tensor | PackedSequence, batch_first: bool, input_size: int, name: str = "") -> "Sequences":
        """Convert the input of the layer ``name`` to (T, B, I)."""
        if not isinstance(x, Tensor | PackedSequence):
            raise TypeError(f"{name}: input is a {type(x).__name__}; give a tensor or a PackedSequence")
        if isinstance(x, PackedSequence):
            steps, lengths = pad_packed_sequence(x)
            sequences = cls(steps, batch_first, packed=x, lengths=lengths)
        elif x.dim() == 2:
            sequences = cls(x.unsqueeze(1), batch_first, batched=False)
        elif x.dim() == 3:
            sequences = cls(x.transpose(0, 1) if batch_first else x, batch_first)
        else:
            raise ValueError(f"the input has {x.dim()} axes; give (T, I), (T, B, I) or with batch_first (B, T, I)")
        if sequences.steps.shape[-1] != input_size:
            raise ValueError(f"the input has {sequences.steps.shape[-1]} features; this layer has {input_size=}")
        if sequences.steps.shape[0] == 0:
            raise ValueError("the input has no time steps; give at least one")
        if torch.jit.is_tracing():  # the trace holds one copy of the step for each time step of this input
            length = int(sequences.steps.shape[0])
            sequences.steps = sequences.steps.unflatten(0, (length, 1)).squeeze(1)  # another length raises
        return sequences

    @property
    def batch_size(self) -> int:
        return self.steps.shape[1]

    def turn(self, x: Tensor) -> Tensor:
        """Reverse every sequence within its length; reversing twice gives the input."""
        if self.lengths is None:
            return x.flip(0)
        lengths = self.lengths.to(x.device, non_blocking=True)
        t = torch.arange(x.shape[0], device=x.device).unsqueeze(1)
        index = torch.where(t < lengths, lengths - 1 - t, t)
        return x.gather(0, index.unsqueeze(-1).expand(-1, -1, x.shape[-1]))

    def last(self, history: Tensor) -> Tensor:
        """The state after each sequence's last step, (B, H)."""
        if self.lengths is None:
            return history[-1]
        last = (self.lengths - 1).to(history.device, non_blocking=True)
        return history.gather(0, last.view(1, -1, 1).expand(1, -1, history.shape[-1]))[0]

    def initial(self, hx: Any, size: tuple[int, int], states: int, name: str) -> tuple[Tensor, ...]:
        """The initial states as (layers, B, H), where `size` is (layers, H); zeros without hx."""
        shape = (size[0], self.batch_size, size[1])
        if hx is None:
            return (self.steps.new_zeros(shape),) * states
        if isinstance(hx, Tensor) == (states > 1):
            wanted = "(h_0, c_0), two tensors" if states > 1 else "h_0, a tensor"
            raise TypeError(f"{name}: hx is a {type(hx).__name__}; give {wanted}")
        given = tuple(hx) if states > 1 else (hx,)
        if not all(isinstance(h, Tensor) for h in given):
            kinds = ", ".join(type(h).__name__ for h in given)
            raise TypeError(f"{name}: hx holds {kinds}; give tensors, and masks as masks=")
        state = tuple(h if self.batched else h.unsqueeze(1) for h in given)
        if len(state) != states or any(tuple(h.shape) != shape for h in state):
            shapes = [tuple(h.shape) for h in given]
            wanted = f"{shape}" if self.batched else f"{shape[::2]}, for the input is unbatched"
            raise ValueError(f"{name}: hx has shapes {shapes}, expected {states} of {wanted}")
        return state

    def restore_state(self, h: Tensor) -> Tensor:
        """The inverse of ``initial``: with unbatched input a state is (layers, H)."""
        return h if self.batched else h.squeeze(1)

    def restore(self, out: Tensor) -> Tensor | PackedSequence:
        """Convert outputs (T, B, H) to the form of the input."""
        if self.packed is None:
            return (out.transpose(0, 1) if self.batch_first else out) if self.batched else out.squeeze(1)
        assert self.lengths is not None
        order, lengths = self.packed.sorted_indices, self.lengths
        if order is not None:
            out, lengths = out.index_select(1, order), lengths.sort(descending=True).values
        data = pack_padded_sequence(out, lengths).data
        return PackedSequence(data, self.packed.batch_sizes, order, self.packed.unsorted_indices)
