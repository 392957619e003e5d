"""torch's own LSTM, GRU and RNN: cuDNN on a GPU, oneDNN on a CPU, one call for a whole sequence.

They cannot mask h. They apply where h has no mask (no dropout, naive dropout, every eval), and where a mask is the same
at all steps and for the whole batch (``per_batch``): such a mask scales the columns of a weight, so it is folded into
the weight, tied or untied, and the result is exact.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from varrnn.cells import Cell, GRUCell, LSTMCell, RNNCell, State, Weights
from varrnn.dropout import Masks, is_ones

NAMES: dict[Cell, str] = {
    LSTMCell(): "lstm",
    GRUCell(): "gru",
    RNNCell(): "rnn_tanh",
    RNNCell(nonlinearity=torch.relu): "rnn_relu",
}


def find_functions() -> dict[Cell, Callable[..., Any]]:
    """torch's function for each cell; a cell whose private name a version of torch does not have is left out."""
    functions = getattr(torch, "_VF", None)  # private
    found = {cell: getattr(functions, name, None) for cell, name in NAMES.items()}
    return {cell: function for cell, function in found.items() if function is not None}


FUNCTIONS = find_functions()


def folds(z: Tensor) -> bool:
    """Whether a mask (time, gate, batch, unit) is the same at all steps and for the whole batch."""
    return z.shape[0] == 1 and z.shape[2] == 1


def unsupported(cell: Cell, x: Tensor, masks: Masks) -> str | None:
    """Why torch's own layer cannot compute this, or None."""
    if cell in NAMES and cell not in FUNCTIONS:
        return f"torch {torch.__version__} has no torch._VF.{NAMES[cell]}"
    if cell not in NAMES:
        return "torch's own layers have the usual activations, and their GRU resets after the product"
    if not (is_ones(masks.z_h) or folds(masks.z_h)):
        return "torch's own layers cannot mask h, unless one mask serves all steps and the whole batch (per_batch)"
    if not is_ones(masks.z_c):
        return "torch's own LSTM cannot mask its memory"
    if not (masks.z_x.shape[1] == 1 or folds(masks.z_x)):
        return "torch's own layers take one input for all gates; masks of x per gate need per_batch"
    return None if x.numel() else "torch's own layers refuse an empty batch"


def fold(weight: Tensor, z: Tensor, gates: int) -> Tensor:
    """The columns of a weight (G*H, I) times a mask (1, gate, 1, unit): its product with x is that of x o z with W."""
    if is_ones(z):
        return weight
    return (weight.unflatten(0, (gates, -1)) * z[0]).flatten(0, 1)


def run(cell: Cell, x: Tensor, state: State, w: Weights, masks: Masks) -> State:
    """Every h_t, and the LAST c_t of an LSTM as (1, B, H)."""
    if folds(masks.z_x):
        w = w._replace(w_ih=fold(w.w_ih, masks.z_x, cell.gates))
    else:
        x = x * masks.z_x[:, 0]
    w = w._replace(w_hh=fold(w.w_hh, masks.z_h, cell.gates))
    hx = tuple(s.unsqueeze(0).contiguous() for s in state)
    train = torch.is_grad_enabled()  # cuDNN has no backward pass otherwise
    weights = one_buffer(w) if x.is_cuda else [t for t in w if t is not None]
    arguments = (weights, w.b_ih is not None, 1, 0.0, train, False, False)
    if cell.states == 1:
        return (FUNCTIONS[cell](x, hx[0], *arguments)[0],)
    h, _, c = FUNCTIONS[cell](x, hx, *arguments)
    return h, c


def one_buffer(w: Weights) -> list[Tensor]:
    """The weights as parts of one tensor, in cuDNN's order: it would copy them into one itself, and warn."""
    given = [t for t in w if t is not None]
    whole = torch.cat([t.reshape(-1) for t in given])
    return [part.view_as(t) for part, t in zip(whole.split([t.numel() for t in given]), given)]
