"""The log-probability of the target words, log softmax(x W^T + b) at one word of each row: what a language model costs.

Ten thousand words make the output layer as expensive as all recurrent layers together, in training and even more so
in MC evaluation. The C code (csrc/softmax.c) writes the logits once in training and never in evaluation; otherwise
torch's product and cross entropy are used one after the other.
"""

import ctypes
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from varrnn.kernels import c_library
from varrnn.kernels.c_call import int_fields, ptr_fields
from varrnn.torch_modes import disable_dynamo, needs_gradient, require_first_order


@disable_dynamo
def target_log_probabilities(x: Tensor, weight: Tensor, bias: Tensor | None, targets: Tensor) -> Tensor:
    """x (n, H), weight (V, H), bias (V), targets (n) -> log p (n)."""
    check(x, weight, bias, targets)
    if not (c_library.supports(x, weight, bias) and targets.device == x.device and targets.dtype == torch.int64):
        return -F.cross_entropy(F.linear(x, weight, bias), targets, reduction="none", ignore_index=IGNORE_NONE)
    if len(targets) and not (int(targets.min()) >= 0 and int(targets.max()) < len(weight)):
        raise IndexError(
            f"targets from {int(targets.min())} to {int(targets.max())}; the words are 0 to {len(weight) - 1}"
        )
    inputs = (x, weight, bias)
    if needs_gradient(inputs):
        return TargetLogProbabilities.apply(*inputs, targets)
    return run_forward(*inputs, targets, save_logits=False)[0]


IGNORE_NONE = torch.iinfo(torch.int64).min  # no target is ignored: torch's default of -100 would hide a mistake


def check(x: Tensor, weight: Tensor, bias: Tensor | None, targets: Tensor) -> None:
    """Check the shapes: the C code does not."""
    fits = x.dim() == weight.dim() == 2 and x.shape[1] == weight.shape[1] and targets.shape == x.shape[:1]
    if not fits or (bias is not None and bias.shape != weight.shape[:1]):
        inputs = {"x": x, "weight": weight, "bias": bias, "targets": targets}
        shapes = ", ".join(f"{name} {tuple(t.shape)}" for name, t in inputs.items() if t is not None)
        raise ValueError(f"{shapes}: expected x (n, H), weight (V, H), bias (V), targets (n)")


class Arguments(ctypes.Structure):
    """``softmax`` of csrc/softmax.c."""

    _fields_ = (
        *int_fields("rows", "size", "words", "threads", "save_logits"),
        *ptr_fields(
            *("x", "weight", "bias", "targets", "factor_x", "packed", "logits", "logsumexp"),
            *("out", "d_out", "d", "dx", "dw", "db"),
        ),
        *int_fields("block", "block_start"),
        *ptr_fields("packed_words"),
    )


class TargetLogProbabilities(torch.autograd.Function):
    """Saves the logits and their logsumexp for the backward pass."""

    @staticmethod
    def forward(ctx, x, weight, bias, targets):  # type: ignore[no-untyped-def]
        out, logits, logsumexp = run_forward(x, weight, bias, targets, save_logits=True)
        ctx.save_for_backward(x, weight, targets, logits, logsumexp)
        return out

    @staticmethod
    def backward(ctx, d_out):  # type: ignore[no-untyped-def]
        require_first_order("cross_entropy", d_out)
        x, weight, targets, logits, logsumexp = ctx.saved_tensors
        lib, (rows, size) = c_library.get_library_for_precision(), x.shape
        assert lib is not None
        num_threads = c_library.threads(rows, len(weight))
        block = -(-rows // max(1, -(-rows // lib.sum_block_size())))
        dx = x.new_zeros(num_threads, rows, size) if ctx.needs_input_grad[0] else None  # a sum for each thread
        dw = (x.new_empty if rows else x.new_zeros)(weight.shape) if ctx.needs_input_grad[1] else None
        db = x.new_zeros(len(weight)) if ctx.needs_input_grad[2] else None
        inputs = {"x": x, "weight": weight, "targets": targets, "logits": logits, "logsumexp": logsumexp}
        scratch = {
            "d": x.new_empty(num_threads, block, lib.word_slice_size()),
            "packed": x.new_empty(c_library.padded_depth(lib, block), c_library.padded_columns(size)),
            "packed_words": x.new_empty(num_threads, lib.word_slice_size(), c_library.padded_columns(size)),
        }
        wanted = {"d_out": d_out, "dx": dx, "dw": dw, "db": db}
        run(lib.softmax_backward, x, weight, {**inputs, **scratch, **wanted}, block)
        return None if dx is None else dx.sum(0) if num_threads > 1 else dx[0], dw, db, None


def run_forward(
    x: Tensor, weight: Tensor, bias: Tensor | None, targets: Tensor, save_logits: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """log p, the logits and their logsumexp; without ``save_logits`` the logits are lost."""
    lib = c_library.get_library_for_precision()
    assert lib is not None
    rows, size = x.shape
    depth = c_library.padded_depth(lib, size)
    piece = c_library.threads(rows, len(weight)) * lib.logits_piece_size()
    logits = x.new_empty(rows, len(weight)) if save_logits else x.new_empty(piece)
    packed = x.new_empty(depth * c_library.padded_columns(len(weight)))
    factor_x = None if lib is c_library.get_library() else x.new_empty(rows, depth)
    out, logsumexp = x.new_empty(rows), x.new_empty(rows)
    made = {"factor_x": factor_x, "packed": packed, "logits": logits, "logsumexp": logsumexp, "out": out}
    run(
        lib.softmax_forward,
        x,
        weight,
        {"x": x, "weight": weight, "bias": bias, "targets": targets, **made},
        save_logits=save_logits,
    )
    return out, logits, logsumexp


def run(
    function: Callable[[object], object],
    x: Tensor,
    weight: Tensor,
    tensors: dict[str, Tensor | None],
    block: int = 1,
    save_logits: bool = True,
) -> None:
    """Call a function of the C code with contiguous tensors, which are kept alive until it returns."""
    arguments = Arguments(*x.shape, len(weight), c_library.threads(len(x), len(weight)), save_logits, block=block)
    keepalive = {name: None if tensor is None else tensor.contiguous() for name, tensor in tensors.items()}
    for name, tensor in keepalive.items():
        setattr(arguments, name, None if tensor is None else tensor.data_ptr())
    function(ctypes.byref(arguments))
