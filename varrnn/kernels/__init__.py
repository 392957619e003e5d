"""Whole-sequence forward and backward passes: the fast twins of the LSTM and the GRU in cells.py."""

from collections.abc import Callable

from torch import Tensor

from varrnn.cells import Cell, GRUCell, LSTMCell, Weights, unroll
from varrnn.dropout import Masks
from varrnn.kernels.gru import gru_sequence, gru_sequence_reset_before
from varrnn.kernels.lstm import lstm_sequence
from varrnn.torch_modes import followed, uncompiled

# x, state, weights, masks, and whether every c_t is wanted or only the last
Kernel = Callable[[Tensor, tuple[Tensor, ...], Weights, Masks, bool], tuple[Tensor, ...]]


def unfollowed(cell: Cell, kernel: Kernel) -> Kernel:
    """The kernel, or the readable loop for those who follow torch's operations."""

    @uncompiled
    def run(x: Tensor, state: tuple[Tensor, ...], w: Weights, masks: Masks, whole: bool) -> tuple[Tensor, ...]:
        return unroll(cell, x, state, w, masks) if followed() else kernel(x, state, w, masks, whole)

    return run


# A cell that is not here, with other activations for one, runs on the reference path.
SEQUENCES: dict[Cell, Kernel] = {
    LSTMCell(): lstm_sequence,
    GRUCell(): gru_sequence,
    GRUCell(reset_after=False): gru_sequence_reset_before,
}
KERNELS = {cell: unfollowed(cell, kernel) for cell, kernel in SEQUENCES.items()}
