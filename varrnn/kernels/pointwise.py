"""Pointwise work of the torch backend, written for few passes over memory."""

from collections.abc import Callable

import torch
from torch import Tensor

from varrnn.cells import Activation, hard_sigmoid

_aten = torch.ops.aten
sigmoid_backward = _aten.sigmoid_backward.grad_input  # grad * y * (1 - y)
tanh_backward = _aten.tanh_backward.grad_input  # grad * (1 - y * y)

_PRECISE = (torch.float32, torch.float64)
_MINUS_ONE = torch.tensor(-1.0, device="cpu")  # a Python number would cost one more operation at every step

# The activations that kernels exist for, with their numbers in csrc/tiles.h.
GATE_KINDS: dict[Activation, int] = {torch.sigmoid: 0, hard_sigmoid: 1}
CANDIDATE_KINDS: dict[Activation, int] = {torch.sigmoid: 0, torch.tanh: 2, torch.relu: 3}


def tanh_via_sigmoid(x: Tensor) -> bool:
    """Whether tanh x = 2 sigm(2x) - 1 is precise enough and pays: torch's sigmoid is six times faster on a CPU.

    The error is absolute, one unit in the last place of 1: states that are all tiny lose digits (C keeps them).
    """
    return x.device.type == "cpu" and x.dtype in _PRECISE


def tanh(x: Tensor, out: Tensor) -> Tensor:
    """tanh x; ``out`` may be x."""
    if not tanh_via_sigmoid(x):
        return torch.tanh(x, out=out)
    torch.add(x, x, out=out).sigmoid_()
    return torch.add(_MINUS_ONE, out, alpha=2, out=out)


def sigmoid(x: Tensor, out: Tensor) -> Tensor:
    """The sigmoid of x; ``out`` may be x."""
    return torch.sigmoid(x, out=out)


def hard_sigmoid_out(x: Tensor, out: Tensor) -> Tensor:
    """``cells.hard_sigmoid`` in two passes: torch's hardsigmoid has slope 1/6, and 1.2 / 6 = 0.2."""
    return torch.nn.functional.hardsigmoid(torch.mul(x, 1.2, out=out), inplace=True)


def relu(x: Tensor, out: Tensor) -> Tensor:
    """max(x, 0); ``out`` may be x."""
    return torch.clamp_min(x, 0, out=out)


APPLY: dict[Activation, Callable[[Tensor, Tensor], Tensor]] = {
    torch.sigmoid: sigmoid,
    hard_sigmoid: hard_sigmoid_out,
    torch.tanh: tanh,
    torch.relu: relu,
}


def activation_backward(function: Activation, grad: Tensor, y: Tensor, grad_input: Tensor) -> Tensor:
    """grad times the activation's derivative, from its value y, into ``grad_input``, which may be one of the two.

    A hard sigmoid of exactly 0 or 1 counts as clipped.
    """
    if function is torch.sigmoid:
        return sigmoid_backward(grad, y, grad_input=grad_input)
    if function is torch.tanh:
        return tanh_backward(grad, y, grad_input=grad_input)
    if function is torch.relu:
        return _aten.threshold_backward.grad_input(grad, y, 0, grad_input=grad_input)
    return _aten.hardtanh_backward.grad_input(grad, y, 0, 1, grad_input=grad_input).mul_(0.2)


def apply_activations(
    gate: Activation, candidate: Activation, preact: Tensor, preact_g: Tensor, gates: Tensor, g: Tensor
) -> None:
    """All gates of a step from their inputs (B, G*H), which are lost: ``candidate`` for g, ``gate`` for the others.

    ``gates`` may be the same memory as ``preact``; ``preact_g`` and g are the candidate's part of each.
    """
    if gate is torch.sigmoid and candidate is torch.tanh and tanh_via_sigmoid(preact):
        preact_g.add_(preact_g)
        torch.sigmoid(preact, out=gates)
        torch.add(_MINUS_ONE, g, alpha=2, out=g)
    else:
        value = APPLY[candidate](preact_g, torch.empty_like(preact_g))
        APPLY[gate](preact, gates)
        g.copy_(value)


def fill_rows(d: Tensor, rows: int) -> Tensor:
    """A gradient of the states of sequences that live at a later step, with zeros for those that end before it."""
    return d if d.shape[0] == rows else torch.cat([d, d.new_zeros(rows - d.shape[0], d.shape[1])])


def previous_states(history: Tensor, first: Tensor, start: int, stop: int) -> Tensor:
    """The states before the steps start to stop."""
    if start:
        return history[start - 1 : stop - 1]
    return torch.cat([first.unsqueeze(0), history[: stop - 1]])
