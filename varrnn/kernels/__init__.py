"""Whole-sequence implementations of the cells in cells.py, and ``choose_backend``, which decides which of them runs.

- ``reference``: the loop over the cell's step (cells.py) under autograd. Everywhere; needed for second derivatives,
  traces and torch.func.
- ``torch``: hand-written forward and backward passes in torch operations. LSTM and GRU, every device and dtype.
- ``c``: the same in C. LSTM and GRU, float32 on a CPU.
- ``fused``: the same with ATen's fused cells. LSTM and torch's GRU on a GPU.
- ``builtin``: torch's own layer (cuDNN, oneDNN). Where h is not masked, or one mask serves the whole batch.

All give the same numbers up to rounding; tests compare each with the reference.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from varrnn.cells import Cell, GRUCell, LSTMCell, State, Weights, unroll
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
)
from varrnn.kernels.matmul import has_onednn, prefer_onednn
from varrnn.kernels.pointwise import CANDIDATE_KINDS, GATE_KINDS
from varrnn.torch_modes import exporting, followed, uncompiled

# Where the C code is not the fastest on a CPU (measured, see ``_builtin_is_faster``).
FEW_STEPS, FEW_STEPS_MIN_UNITS, BUILTIN_MIN_ROWS = 2, 256, 64

BACKENDS = ("auto", "reference", "torch", "c", "fused", "builtin")
LSTM: dict[str, lstm.Backend] = {"torch": lstm_torch, "c": lstm_c, "fused": lstm_fused}
GRU: dict[str, gru.Backend] = {"torch": gru_torch, "c": gru_c, "fused": gru_fused}

_recorders: list[list[str]] = []


def choose_backend(
    cell: Cell,
    x: Tensor,
    state: State,
    w: Weights,
    masks: Masks,
    packed: bool = False,
    requested: str = "auto",
) -> str:
    """The name of the backend that runs x (T, B, I) through a layer; ``packed``: sequences end at different steps.

    A ``requested`` backend that cannot do it is refused with the reason.
    """
    reasons = {
        "torch": _no_kernel(cell, masks),
        "c": _no_kernel(cell, masks) or c_library.unsupported(x, *state, *w, *masks),
        "fused": _no_kernel(cell, masks) or fused.unsupported(cell, x, masks),
        "builtin": _no_builtin(cell, x, masks, packed),
    }
    if requested != "auto":
        if reason := reasons.get(requested):
            raise ValueError(f"backend={requested!r}: {reason}; use backend='auto' or 'reference'")
        return requested
    own = next((name for name in ("c", "fused", "torch") if reasons[name] is None), "reference")
    if own == "c" and _few_steps(x, w):
        own = "torch"
    training = torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in (x, *state, *w))
    return "builtin" if reasons["builtin"] is None and _builtin_is_faster(cell, x, w, own, training) else own


def _no_kernel(cell: Cell, masks: Masks) -> str | None:
    """Why there is no hand-written kernel for this, or None."""
    if followed():
        return "a trace, a dispatch mode, a transform of torch.func or forward-mode differentiation is active"
    if any(z.requires_grad for z in masks):
        return "a mask needs a gradient"
    if not isinstance(cell, LSTMCell | GRUCell):
        return f"there is no kernel for {type(cell).__name__}"
    if cell.gate_activation not in GATE_KINDS or cell.candidate_activation not in CANDIDATE_KINDS:
        return "there is no kernel for these activations"
    return None


def _no_builtin(cell: Cell, x: Tensor, masks: Masks, packed: bool) -> str | None:
    if followed():
        return "a trace, a dispatch mode, a transform of torch.func or forward-mode differentiation is active"
    if any(z.requires_grad for z in masks):
        return "a mask needs a gradient"
    if packed:
        return "sequences of different lengths need every state, and torch's own layers return the last"
    return builtin.unsupported(cell, x, masks)


def _few_steps(x: Tensor, w: Weights) -> bool:
    """Whether the C code would spend more time on packing the weights than plain products take for all steps."""
    return x.shape[0] <= FEW_STEPS and w.w_hh.shape[1] >= FEW_STEPS_MIN_UNITS


def _builtin_is_faster(cell: Cell, x: Tensor, w: Weights, own: str, training: bool) -> bool:
    """Whether torch's own layer is faster than our ``own`` backend: on a GPU always, on a CPU by what was measured.

    One thread, Intel Xeon with AVX512, torch 2.13: without gradients oneDNN's LSTM is 1.05 to 1.3 times as fast as our
    C code, which wins in training and for every GRU, except over one or two steps.
    """
    if x.is_cuda or own == "reference":
        return True
    if own == "c":
        return isinstance(cell, LSTMCell) and not training and has_onednn(w.w_hh) and _rows(x) >= BUILTIN_MIN_ROWS
    if _few_steps(x, w):
        return isinstance(cell, GRUCell)
    return has_onednn(w.w_hh) and not prefer_onednn(w.w_hh)


def _rows(x: Tensor) -> int:
    return x.shape[0] * x.shape[1]


def run_sequence(
    cell: Cell,
    x: Tensor,
    state: State,
    w: Weights,
    masks: Masks,
    lengths: Tensor | None = None,
    requested: str = "auto",
) -> State:
    """Every h_t of x (T, B, I) as (T, B, H), and for an LSTM every c_t, or without ``lengths`` perhaps the last alone.

    ``lengths`` (B,) are those of packed sequences.
    """
    if exporting():
        _record("reference")
        return _run_reference(cell, x, state, w, masks, lengths)
    return _run_chosen(cell, x, state, w, masks, lengths, requested)


def _run_reference(
    cell: Cell, x: Tensor, state: State, w: Weights, masks: Masks, lengths: Tensor | None = None
) -> State:
    ends = None if lengths is None else lengths.to(x.device, non_blocking=True)
    return unroll(cell, x, state, w, masks, ends)


@uncompiled
def _run_chosen(
    cell: Cell, x: Tensor, state: State, w: Weights, masks: Masks, lengths: Tensor | None, requested: str
) -> State:
    if requested != "reference":
        requested = choose_backend(cell, x, state, w, masks, lengths is not None, requested)
    name = requested
    _record(name)
    if name == "reference":
        return _run_reference(cell, x, state, w, masks, lengths)
    if name == "builtin":
        return builtin.run(cell, x, state, w, masks)
    if isinstance(cell, LSTMCell):
        return lstm.run(LSTM[name], cell, x, state, w, masks)
    assert isinstance(cell, GRUCell)
    return gru.run(GRU[name], cell, x, state, w, masks)


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
        _recorders.remove(used)
