"""torch's own LSTM, GRU and RNN: cuDNN on a GPU, oneDNN on a CPU, one call for a whole sequence.

One step on a CPU is a call of torch's own cell, which does not rearrange the weights for many steps. Cells take h from
outside, so that any tied mask can be applied to it before, where h has no other use in the step (LSTM, RNN).

They cannot mask h. They apply where h has no mask (no dropout, naive dropout, every eval), and where a mask is the same
at all steps and for the whole batch (``per_batch``): such a mask scales the columns of a weight, so it is folded into
the weight, tied or untied, and the result is exact.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from varrnn.cells import Cell, GRUCell, LSTMCell, RNNCell, State, Weights
from varrnn.dropout import Masks, is_identity
from varrnn.kernels.matmul import has_onednn
from varrnn.kernels.step_rows import StepRows
from varrnn.torch_modes import needs_gradient

LAYER_MIN_ROWS = 64  # measured, see ``layer_is_faster``
NAMES: dict[Cell, str] = {
    LSTMCell(): "lstm",
    GRUCell(): "gru",
    RNNCell(): "rnn_tanh",
    RNNCell(nonlinearity=torch.relu): "rnn_relu",
}


def find_functions(suffix: str = "") -> dict[Cell, Callable[..., Any]]:
    """torch's function for each cell; a cell whose private name a version of torch does not have is left out."""
    functions = getattr(torch, "_VF", None)  # private
    found = {cell: getattr(functions, name + suffix, None) for cell, name in NAMES.items()}
    return {cell: function for cell, function in found.items() if function is not None}


FUNCTIONS, CELL_FUNCTIONS = find_functions(), find_functions("_cell")  # of whole sequences, and of one step


def is_one_step(x: Tensor, rows: StepRows) -> bool:
    """Whether torch's own cell runs, and not its layer."""
    return rows.steps == 1 and x.device.type == "cpu"


def must_fold(cell: Cell, masks: Masks) -> bool:
    """Whether one step has to fold a mask into a weight, which costs more than the step itself."""
    leaks = isinstance(cell, GRUCell) and not is_identity(masks.z_h)  # h is used outside of its product
    return leaks or masks.z_x.shape[1] > 1 or masks.z_h.shape[1] > 1


def folds(z: Tensor) -> bool:
    """Whether a mask (time, gate, batch, unit) is the same at all steps and for the whole batch."""
    return z.shape[0] == 1 and z.shape[2] == 1


def unsupported(cell: Cell, x: Tensor, rows: StepRows, masks: Masks) -> str | None:
    """Why torch's own layer cannot compute this, or None."""
    if cell in NAMES and not (cell in FUNCTIONS and cell in CELL_FUNCTIONS):
        return f"torch {torch.__version__} has no torch._VF.{NAMES[cell]} or {NAMES[cell]}_cell"
    if cell not in NAMES:
        return "torch's own layers have the usual activations, and their GRU resets after the product"
    outside = is_one_step(x, rows) and masks.z_h.shape[1] == 1 and not isinstance(cell, GRUCell)
    if not (outside or is_identity(masks.z_h) or folds(masks.z_h)):
        return "torch's own layers cannot mask h, unless one mask serves all steps and the whole batch (per_batch)"
    if not is_identity(masks.z_c):
        return "torch's own LSTM cannot mask its memory"
    if not (masks.z_x.shape[1] == 1 or folds(masks.z_x)):
        return "torch's own layers take one input for all gates; masks of x per gate need per_batch"
    return None if x.numel() else "torch's own layers do not take an empty batch"


def fold(weight: Tensor, z: Tensor, gates: int) -> Tensor:
    """The columns of a weight (G*H, I) times a mask (1, gate, 1, unit): its product with x is that of x o z with W."""
    if is_identity(z):
        return weight
    return (weight.unflatten(0, (gates, -1)) * z[0]).flatten(0, 1)


def run(cell: Cell, x: Tensor, rows: StepRows, state: State, w: Weights, masks: Masks) -> tuple[Tensor, State]:
    """Every h_t, and the last states, (B, H)."""
    if is_one_step(x, rows):
        return run_cell(cell, x, rows, state, w, masks)
    if folds(masks.z_x):
        w = w._replace(w_ih=fold(w.w_ih, masks.z_x, cell.num_gates))
    elif rows.packed:
        x = x * rows.mask(masks.z_x, 0, rows.steps)[0, 0]
    else:
        x = x * masks.z_x[:, 0]
    w = w._replace(w_hh=fold(w.w_hh, masks.z_h, cell.num_gates))
    return run_layer(cell, x, state, w, rows.batch_sizes)


def run_layer(
    cell: Cell, x: Tensor, state: State, w: Weights, batch_sizes: Tensor | None = None
) -> tuple[Tensor, State]:
    """Call torch's layer; masks are applied already."""
    hx = tuple(s.unsqueeze(0).contiguous() for s in state)
    train = torch.is_grad_enabled()  # cuDNN has no backward pass otherwise
    weights = join_weights(w) if x.is_cuda else [t for t in w if t is not None]
    arguments = (hx if cell.num_states > 1 else hx[0], weights, w.b_ih is not None, 1, 0.0, train, False)
    if batch_sizes is not None:
        h, *final = FUNCTIONS[cell](x, batch_sizes, *arguments)
    else:
        h, *final = FUNCTIONS[cell](x, *arguments, False)
    return h, tuple(last[0] for last in final)


def layer_is_faster(cell: Cell, x_t: Tensor, state: State, w: Weights) -> bool:
    """Whether one step of many rows is faster in torch's LSTM layer (oneDNN) than in its cell; without gradients only.

    The layer rearranges the weights at every call, which many rows make up for.
    """
    if not isinstance(cell, LSTMCell) or x_t.shape[0] < LAYER_MIN_ROWS or not has_onednn(w.w_hh):
        return False
    return not needs_gradient((x_t, *state, *w))


def run_cell(cell: Cell, x: Tensor, rows: StepRows, state: State, w: Weights, masks: Masks) -> tuple[Tensor, State]:
    """One step; a mask is applied to what it masks where it has no gate axis, and else folded into the weight."""
    x_t, (h, *memory) = x if rows.packed else x[0], state
    if masks.z_x.shape[1] > 1:
        w = w._replace(w_ih=fold(w.w_ih, masks.z_x, cell.num_gates))
    elif not is_identity(masks.z_x):
        x_t = x_t * masks.z_x[0, 0]
    if masks.z_h.shape[1] > 1 or isinstance(cell, GRUCell):
        w = w._replace(w_hh=fold(w.w_hh, masks.z_h, cell.num_gates))
    elif not is_identity(masks.z_h):
        h = h * masks.z_h[0, 0]
    if layer_is_faster(cell, x_t, (h, *memory), w):
        out, last = run_layer(cell, x_t.unsqueeze(0), (h, *memory), w)
        return out[0] if rows.packed else out, last
    found = CELL_FUNCTIONS[cell](x_t, (h, *memory) if memory else h, *w)
    final = found if isinstance(found, tuple) else (found,)
    return final[0] if rows.packed else final[0].unsqueeze(0), final


def join_weights(w: Weights) -> list[Tensor]:
    """The weights as parts of one tensor, in cuDNN's order: it would copy them into one itself, and warn."""
    given = [t for t in w if t is not None]
    whole = torch.cat([t.reshape(-1) for t in given])
    return [part.view_as(t) for part, t in zip(whole.split([t.numel() for t in given]), given)]
