"""Whole-sequence implementations of the cells in cells.py, and ``choose_backend``, which decides which of them runs.

- ``reference``: the loop over the cell's step (cells.py) under autograd. Everywhere; needed for second derivatives,
  traces and torch.func.
- ``torch``: hand-written forward and backward passes in torch operations. LSTM, GRU and RNN, every device and dtype.
- ``c``: the same in C. LSTM, GRU and RNN, float32 on a CPU.
- ``fused``: the same with ATen's fused cells. LSTM and torch's GRU on a GPU.
- ``builtin``: torch's own layer (cuDNN, oneDNN). Where h is not masked, or one mask serves the whole batch.

All give the same numbers up to rounding; tests compare each with the reference.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from varrnn.cells import Cell, GRUCell, LSTMCell, RNNCell, State, Weights, unroll_rows
from varrnn.dropout import Masks
from varrnn.kernels import (
    builtin,
    c_library,
    fused,
    gru,
    gru_c,
    gru_fused,
    gru_torch,
    lstm,
    lstm_c,
    lstm_fused,
    lstm_torch,
    rnn,
    rnn_c,
    rnn_torch,
)
from varrnn.kernels.matmul import has_onednn, prefer_onednn
from varrnn.kernels.pointwise import CANDIDATE_KINDS, GATE_KINDS
from varrnn.kernels.step_rows import StepRows
from varrnn.torch_modes import disable_dynamo, is_exporting, is_traced_or_transformed, needs_gradient

# Where the C code is not the fastest on a CPU (measured, see ``_builtin_is_faster``).
FEW_STEPS, FEW_STEPS_MIN_UNITS, BUILTIN_MIN_ROWS = 2, 256, 64

RNN_KINDS = (torch.tanh, torch.relu)
BACKENDS = ("auto", "reference", "torch", "c", "fused", "builtin")
LSTM: dict[str, lstm.Backend] = {"torch": lstm_torch, "c": lstm_c, "fused": lstm_fused}
GRU: dict[str, gru.Backend] = {"torch": gru_torch, "c": gru_c, "fused": gru_fused}
RNN: dict[str, rnn.Backend] = {"torch": rnn_torch, "c": rnn_c}

_recorders: list[list[str]] = []


def choose_backend(
    cell: Cell,
    x: Tensor,
    rows: StepRows,
    state: State,
    w: Weights,
    masks: Masks,
    requested: str = "auto",
) -> str:
    """The name of the backend that runs x (T, B, I), or packed sequences (N, I), through a layer.

    Raises ValueError with the reason where a ``requested`` backend cannot compute this.
    """

    def unsupported(name: str) -> str | None:
        return _unsupported(name, cell, x, rows, state, w, masks)

    if requested != "auto":
        if reason := unsupported(requested):
            raise ValueError(f"backend={requested!r}: {reason}; use backend='auto' or 'reference'")
        return requested
    can_builtin = unsupported("builtin") is None
    if can_builtin and (x.is_cuda or (builtin.is_one_step(x, rows) and not builtin.must_fold(cell, masks))):
        return "builtin"
    own = next((name for name in ("c", "fused", "torch") if unsupported(name) is None), "reference")
    if own == "c" and _plain_products_are_faster(cell, x, rows, w, masks):
        own = "torch"
    return "builtin" if can_builtin and _builtin_is_faster(cell, x, rows, state, w, own) else own


def _unsupported(
    name: str, cell: Cell, x: Tensor, rows: StepRows, state: State, w: Weights, masks: Masks
) -> str | None:
    """Why a backend cannot compute this, or None."""
    if name == "reference":
        return None
    if is_traced_or_transformed():
        return "a trace, a dispatch mode, a transform of torch.func or forward-mode differentiation is active"
    if any(z.requires_grad for z in masks):
        return "a mask needs a gradient"
    if name == "builtin":
        return builtin.unsupported(cell, x, rows, masks)
    if reason := _no_kernel(cell):
        return reason
    if name == "c":
        return c_library.unsupported(x, *state, *w, *masks)
    return fused.unsupported(cell, x, masks) if name == "fused" else None


def _no_kernel(cell: Cell) -> str | None:
    """Why there is no hand-written kernel for this cell, or None; a subclass may compute something else."""
    if type(cell) not in (RNNCell, LSTMCell, GRUCell):
        return f"there is no kernel for a {type(cell).__name__}"
    if isinstance(cell, RNNCell):
        return None if cell.nonlinearity in RNN_KINDS else "there is no kernel for this nonlinearity"
    if cell.gate_activation not in GATE_KINDS or cell.candidate_activation not in CANDIDATE_KINDS:
        return "there is no kernel for these activations"
    return None


def _plain_products_are_faster(cell: Cell, x: Tensor, rows: StepRows, w: Weights, masks: Masks) -> bool:
    """Whether the C code would spend more time on packing the weights than plain products take for all steps.

    The GRU has a single step under autograd (``gru_torch.run_step``), which is faster at every size with tied masks.
    """
    if (
        isinstance(cell, GRUCell)
        and gru_torch.can_step(cell, rows, x)
        and masks.z_x.shape[1] == masks.z_h.shape[1] == 1
    ):
        return True
    return rows.steps <= FEW_STEPS and w.w_hh.shape[1] >= FEW_STEPS_MIN_UNITS


def _builtin_is_faster(cell: Cell, x: Tensor, rows: StepRows, state: State, w: Weights, own: str) -> bool:
    """Whether torch's own layer is faster than our ``own`` backend on a CPU, by what was measured (README.md here).

    Without gradients oneDNN's LSTM is faster than our C code, which wins in training, for every GRU and RNN, and for
    packed sequences, which oneDNN does not take.
    """
    if own == "reference":
        return True
    if own == "torch" and 1 < rows.steps <= FEW_STEPS:
        return not isinstance(cell, LSTMCell)
    if rows.steps == 1:
        return False
    training = needs_gradient((x, *state, *w))
    if own == "c":
        onednn = isinstance(cell, LSTMCell) and has_onednn(w.w_hh) and not rows.packed
        return onednn and not training and rows.total >= BUILTIN_MIN_ROWS
    if rows.packed:
        return not training
    return has_onednn(w.w_hh) and not prefer_onednn(w.w_hh)


def run_sequence(
    cell: Cell,
    x: Tensor,
    state: State,
    w: Weights,
    masks: Masks,
    batch_sizes: Tensor | None = None,
    requested: str = "auto",
) -> tuple[Tensor, State]:
    """Every h_t of x (T, B, I) as (T, B, H), and the state after each sequence's last step, (B, H) each.

    With ``batch_sizes``, those of packed sequences, x is (N, I) and every h_t (N, H).
    """
    if is_exporting():
        _record("reference")
        return _run_reference(cell, x, StepRows(x, batch_sizes), state, w, masks)
    return _run_chosen(cell, x, state, w, masks, batch_sizes, requested)


def _run_reference(
    cell: Cell, x: Tensor, rows: StepRows, state: State, w: Weights, masks: Masks
) -> tuple[Tensor, State]:
    history = unroll_rows(cell, x, rows, state, w, masks)
    return history[0], tuple(rows.last(one) for one in history)


@disable_dynamo
def _run_chosen(
    cell: Cell, x: Tensor, state: State, w: Weights, masks: Masks, batch_sizes: Tensor | None, requested: str
) -> tuple[Tensor, State]:
    rows = StepRows(x, batch_sizes)
    name = requested if requested == "reference" else choose_backend(cell, x, rows, state, w, masks, requested)
    _record(name)
    if name == "reference":
        return _run_reference(cell, x, rows, state, w, masks)
    if name == "builtin":
        return builtin.run(cell, x, rows, state, w, masks)
    if name == "fused" and rows.packed:  # on a GPU, where launches cost more than rows of zeros
        padded = rows.pad(x)
        history = _run_kernel(name, cell, padded, StepRows(padded), state, w, masks)
        history = tuple(rows.unpad(one) for one in history)
    else:
        history = _run_kernel(name, cell, x, rows, state, w, masks)
    return history[0], tuple(rows.last(one) for one in history)


def _run_kernel(name: str, cell: Cell, x: Tensor, rows: StepRows, state: State, w: Weights, masks: Masks) -> State:
    """Every state of a hand-written kernel."""
    if isinstance(cell, LSTMCell):
        return lstm.run(LSTM[name], cell, x, rows, state, w, masks)
    if isinstance(cell, GRUCell):
        if name == "torch" and gru_torch.can_step(cell, rows, x):
            h = gru_torch.run_step(cell, x.view(rows.batch, x.shape[-1]), state[0], w, masks)
            return (h.view(*x.shape[:-1], h.shape[-1]),)
        return gru.run(GRU[name], cell, x, rows, state, w, masks)
    return rnn.run(RNN[name], cell, x, rows, state, w, masks)


def _record(name: str) -> None:
    for recorder in _recorders:
        recorder.append(name)


@contextmanager
def record_backends() -> Iterator[list[str]]:
    """The names of the backends that run inside, one per layer and direction of every call."""
    used: list[str] = []
    _recorders.append(used)
    try:
        yield used
    finally:
        _recorders[:] = [recorder for recorder in _recorders if recorder is not used]  # equal lists stay
