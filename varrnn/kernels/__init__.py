"""Whole-sequence forward and backward passes: the fast twins of cells.py, a file per cell."""

import sys
from collections.abc import Callable
from functools import wraps

import torch
from torch import Tensor

from varrnn.cells import Cell, GRUCell, LSTMCell, Weights
from varrnn.dropout import Masks
from varrnn.kernels.gru import gru_sequence, gru_sequence_reset_before
from varrnn.kernels.lstm import lstm_sequence

# x, state, weights, masks, and whether every c_t is wanted or only the last
Kernel = Callable[[Tensor, tuple[Tensor, ...], Weights, Masks, bool], tuple[Tensor, ...]]


def uncompiled(kernel: Kernel) -> Kernel:
    """Keep torch.compile out of a kernel, which already says what to compute in which memory.

    ``torch.compiler.disable`` itself would import the compiler, seconds of it, for everybody.
    """
    disabled: list[Kernel] = []

    @wraps(kernel)
    def run(x: Tensor, state: tuple[Tensor, ...], w: Weights, masks: Masks, whole: bool) -> tuple[Tensor, ...]:
        if "torch._dynamo" not in sys.modules:
            return kernel(x, state, w, masks, whole)
        if not disabled:
            disabled.append(torch.compiler.disable(kernel))
        return disabled[0](x, state, w, masks, whole)

    run._torchdynamo_disable = True  # type: ignore[attr-defined]
    return run


# A cell that is not here, with other activations for one, runs on the reference path.
KERNELS: dict[Cell, Kernel] = {
    LSTMCell(): uncompiled(lstm_sequence),
    GRUCell(): uncompiled(gru_sequence),
    GRUCell(reset_after=False): uncompiled(gru_sequence_reset_before),
}
