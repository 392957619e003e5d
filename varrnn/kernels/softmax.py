"""The log-probability of the target words, log softmax(x W^T + b) at one word of each row: what a language model costs.

Ten thousand words make the output layer as expensive as all recurrent layers together, in training and even more so
in MC evaluation. The C code (csrc/softmax.c) writes the logits once in training and never in evaluation; otherwise
torch's product and cross entropy are used one after the other.
"""

import ctypes

import torch
import torch.nn.functional as F
from torch import Tensor

from varrnn.followed import check_gradients
from varrnn.kernels import c_library
from varrnn.kernels.c_call import numbers, pointers
from varrnn.kernels.uncompiled import uncompiled


@uncompiled
def target_log_probabilities(x: Tensor, weight: Tensor, bias: Tensor | None, targets: Tensor) -> Tensor:
    """x (n, H), weight (V, H), bias (V), targets (n) -> log p (n)."""
    check(x, weight, bias, targets)
    if not (c_library.usable(x, weight, bias) and targets.device == x.device and targets.dtype == torch.int64):
        return -F.cross_entropy(F.linear(x, weight, bias), targets, reduction="none", ignore_index=NO_WORD)
    if len(targets) and not (int(targets.min()) >= 0 and int(targets.max()) < len(weight)):
        raise IndexError(
            f"targets from {int(targets.min())} to {int(targets.max())}; the words are 0 to {len(weight) - 1}"
        )
    inputs = (x, weight, bias)
    if torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in inputs):
        return TargetLogProbabilities.apply(*inputs, targets)
    return forward(*inputs, targets, keep=False)[0]


NO_WORD = torch.iinfo(torch.int64).min  # no target is left out: torch's usual -100 is a mistake here


def check(x: Tensor, weight: Tensor, bias: Tensor | None, targets: Tensor) -> None:
    """C reads as far as it is told, so shapes are looked at first."""
    fits = x.dim() == weight.dim() == 2 and x.shape[1] == weight.shape[1] and targets.shape == x.shape[:1]
    if not fits or (bias is not None and bias.shape != weight.shape[:1]):
        given = {"x": x, "weight": weight, "bias": bias, "targets": targets}
        shapes = ", ".join(f"{name} {tuple(t.shape)}" for name, t in given.items() if t is not None)
        raise ValueError(f"{shapes}: expected x (n, H), weight (V, H), bias (V), targets (n)")


class Arguments(ctypes.Structure):
    """``softmax`` of csrc/softmax.c."""

    _fields_ = (
        *numbers("rows", "size", "words", "threads", "kept"),
        *pointers("x", "weight", "bias", "targets", "packed", "logits", "norm", "out", "d_out", "d", "dx", "dw", "db"),
        *numbers("block", "now"),
    )


class TargetLogProbabilities(torch.autograd.Function):
    """Keeps the logits and the logarithm of their sum."""

    @staticmethod
    def forward(ctx, x, weight, bias, targets):  # type: ignore[no-untyped-def]
        out, logits, norm = forward(x, weight, bias, targets, keep=True)
        ctx.save_for_backward(x, weight, targets, logits, norm)
        return out

    @staticmethod
    def backward(ctx, d_out):  # type: ignore[no-untyped-def]
        check_gradients("cross_entropy", d_out)
        x, weight, targets, logits, norm = ctx.saved_tensors
        code, (rows, size) = c_library.library(), x.shape
        assert code is not None
        shares = c_library.threads(rows, len(weight))
        block = -(-rows // max(1, -(-rows // code.rows_of_a_sum())))
        dx = x.new_zeros(shares, rows, size) if ctx.needs_input_grad[0] else None  # a sum for each thread
        dw = (x.new_empty if rows else x.new_zeros)(weight.shape) if ctx.needs_input_grad[1] else None
        db = x.new_zeros(len(weight)) if ctx.needs_input_grad[2] else None
        given = {"x": x, "weight": weight, "targets": targets, "logits": logits, "norm": norm}
        room = {
            "d": x.new_empty(shares, block, code.slice_of_words()),
            "packed": x.new_empty(block, c_library.padded(size)),
        }
        wanted = {"d_out": d_out, "dx": dx, "dw": dw, "db": db}
        run("softmax_backward", x, weight, {**given, **room, **wanted}, block)
        return None if dx is None else dx.sum(0) if shares > 1 else dx[0], dw, db, None


def forward(
    x: Tensor, weight: Tensor, bias: Tensor | None, targets: Tensor, keep: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """log p, the logits and their norm; without ``keep`` the logits are lost."""
    code = c_library.library()
    assert code is not None
    rows, size = x.shape
    piece = c_library.threads(rows, len(weight)) * code.piece_of_logits()
    logits = x.new_empty(rows, len(weight)) if keep else x.new_empty(piece)
    packed = x.new_empty(size * c_library.padded(len(weight)))
    out, norm = x.new_empty(rows), x.new_empty(rows)
    made = {"packed": packed, "logits": logits, "norm": norm, "out": out}
    run("softmax_forward", x, weight, {"x": x, "weight": weight, "bias": bias, "targets": targets, **made}, keep=keep)
    return out, logits, norm


def run(
    function: str, x: Tensor, weight: Tensor, tensors: dict[str, Tensor | None], block: int = 1, keep: bool = True
) -> None:
    """Call the C code; what it reads is made one piece of memory, and lives until it is done."""
    arguments = Arguments(*x.shape, len(weight), c_library.threads(len(x), len(weight)), keep, block=block)
    held = {name: None if tensor is None else tensor.contiguous() for name, tensor in tensors.items()}
    for name, tensor in held.items():
        setattr(arguments, name, None if tensor is None else tensor.data_ptr())
    getattr(c_library.library(), function)(ctypes.byref(arguments))
