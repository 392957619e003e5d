"""Whole-sequence forward and backward passes: the fast twins of cells.py, a file per cell."""

from collections.abc import Callable

from torch import Tensor

from varrnn.cells import Cell, GRUCell, LSTMCell, Weights
from varrnn.dropout import Masks
from varrnn.kernels.gru import gru_sequence, gru_sequence_reset_before
from varrnn.kernels.lstm import lstm_sequence
from varrnn.kernels.uncompiled import uncompiled

# x, state, weights, masks, and whether every c_t is wanted or only the last
Kernel = Callable[[Tensor, tuple[Tensor, ...], Weights, Masks, bool], tuple[Tensor, ...]]


# A cell that is not here, with other activations for one, runs on the reference path.
KERNELS: dict[Cell, Kernel] = {
    LSTMCell(): uncompiled(lstm_sequence),
    GRUCell(): uncompiled(gru_sequence),
    GRUCell(reset_after=False): uncompiled(gru_sequence_reset_before),
}
