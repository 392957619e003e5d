"""Convert every input that torch's layers accept (batched, batch_first, unbatched, packed) to one form, and back."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence

from varrnn.kernels.step_rows import StepRows
from varrnn.torch_modes import disable_dynamo


@dataclass
class Sequences:
    """The input as (T, B, I), with the inverse conversion.

    Packed sequences stay as they are: ``data`` are then their rows (N, I), the longest sequence first. States and
    masks, which are in the caller's order, are sorted accordingly.
    """

    data: Tensor
    batch_first: bool
    batched: bool = True
    packed: PackedSequence | None = None
    reversal: Tensor | None = None  # the index that reverses packed rows; all layers use the same

    @classmethod
    def from_input(cls, x: Tensor | PackedSequence, batch_first: bool, input_size: int, name: str = "") -> "Sequences":
        """Convert the input of the layer ``name`` to (T, B, I), or take the rows of packed sequences."""
        if not isinstance(x, (Tensor, PackedSequence)):
            raise TypeError(f"{name}: input is a {type(x).__name__}; give a tensor or a PackedSequence")
        if isinstance(x, PackedSequence):
            sequences = cls(x.data, batch_first, packed=x)
        elif x.dim() == 2:
            sequences = cls(x.unsqueeze(1), batch_first, batched=False)
        elif x.dim() == 3:
            sequences = cls(x.transpose(0, 1) if batch_first else x, batch_first)
        else:
            raise ValueError(f"the input has {x.dim()} axes; give (T, I), (T, B, I) or with batch_first (B, T, I)")
        if sequences.data.shape[-1] != input_size:
            raise ValueError(f"the input has {sequences.data.shape[-1]} features; this layer has {input_size=}")
        if sequences.data.shape[0] == 0:
            raise ValueError("the input has no time steps; give at least one")
        if isinstance(x, PackedSequence) and not torch.jit.is_tracing():
            check_batch_sizes(x, name)
        if torch.jit.is_tracing() and not isinstance(x, PackedSequence):
            # the trace contains one copy of the step for each time step of this input
            length = int(sequences.data.shape[0])
            sequences.data = sequences.data.unflatten(0, (length, 1)).squeeze(1)  # another length raises
        return sequences

    @property
    def batch_size(self) -> int:
        return self.data.shape[1] if self.packed is None else int(self.packed.batch_sizes[0])

    @property
    def length(self) -> int:
        """The number of time steps, of the longest sequence."""
        return self.data.shape[0] if self.packed is None else self.packed.batch_sizes.shape[0]

    @property
    def batch_sizes(self) -> Tensor | None:
        return None if self.packed is None else self.packed.batch_sizes

    @property
    def order(self) -> Tensor | None:
        """The sequences from the longest to the shortest, where packing has sorted them."""
        return None if self.packed is None else self.packed.sorted_indices

    def reverse(self, x: Tensor) -> Tensor:
        """Reverse every sequence within its own length; reversing twice gives the input."""
        if self.packed is None:
            return x.flip(0)
        if self.reversal is None:
            self.reversal = reversed_rows(x, self.packed.batch_sizes)
        return x.index_select(0, self.reversal)

    def initial_state(self, hx: Any, size: tuple[int, int], states: int, name: str) -> tuple[Tensor, ...]:
        """The initial states as (layers, B, H), where `size` is (layers, H); zeros without hx."""
        shape = (size[0], self.batch_size, size[1])
        if hx is None:
            return (self.data.new_zeros(shape),) * states
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
            wanted = f"{shape}" if self.batched else f"{shape[::2]}, because the input is unbatched"
            raise ValueError(f"{name}: hx has shapes {shapes}, expected {states} of {wanted}")
        return state if self.order is None else tuple(h.index_select(1, self.order) for h in state)

    def unbatch_state(self, h: Tensor) -> Tensor:
        """The inverse of ``initial_state``, in the caller's order; a state is (layers, H) with unbatched input."""
        if self.packed is not None:
            back = self.packed.unsorted_indices
            return h if back is None else h.index_select(1, back)
        return h if self.batched else h.squeeze(1)

    def to_output(self, out: Tensor) -> Tensor | PackedSequence:
        """Convert outputs (T, B, H), or packed rows (N, H), to the form of the input."""
        if self.packed is None:
            return (out.transpose(0, 1) if self.batch_first else out) if self.batched else out.squeeze(1)
        given = self.packed
        return PackedSequence(out, given.batch_sizes, given.sorted_indices, given.unsorted_indices)


@disable_dynamo
def check_batch_sizes(packed: PackedSequence, name: str) -> None:
    """Raise unless the batch sizes describe the data: kernels take the rows of each step from them."""
    sizes, rows = packed.batch_sizes.tolist(), len(packed.data)
    falling = sizes == sorted(sizes, reverse=True)
    if sum(sizes) != rows or sizes[-1] < 1 or not falling:
        problem = (
            f"add up to {sum(sizes)}" if falling and sizes[-1] > 0 else "do not fall from step to step, to at least 1"
        )
        raise ValueError(
            f"{name}: the batch_sizes of the PackedSequence {problem}, and its data have {rows} rows; make it with "
            "pack_sequence or pack_padded_sequence, and change data only row by row"
        )


@disable_dynamo
def reversed_rows(x: Tensor, batch_sizes: Tensor) -> Tensor:
    """Where each row of packed sequences is found when every sequence is reversed, on the device of x."""
    return StepRows(x, batch_sizes).reversed_index().to(x.device, non_blocking=True)
