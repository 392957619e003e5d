"""Pointwise work of the kernels, written for few passes over memory."""

import torch
from torch import Tensor

sigmoid_backward = torch.ops.aten.sigmoid_backward.grad_input  # grad * y * (1 - y)
tanh_backward = torch.ops.aten.tanh_backward.grad_input  # grad * (1 - y * y)

_PRECISE = (torch.float32, torch.float64)
_MINUS_ONE = torch.tensor(-1.0, device="cpu")  # a Python number would cost an operation of its own at every step


def by_sigmoid(x: Tensor) -> bool:
    """Whether tanh x = 2 sigm(2x) - 1 is precise enough and pays: torch's sigmoid is six times faster on a CPU.

    The error is absolute, one unit in the last place of 1: states that are all tiny lose digits (C keeps them).
    """
    return x.device.type == "cpu" and x.dtype in _PRECISE


def tanh(x: Tensor, out: Tensor) -> Tensor:
    """tanh x, which may be written over x."""
    if not by_sigmoid(x):
        return torch.tanh(x, out=out)
    torch.add(x, x, out=out).sigmoid_()
    return torch.add(_MINUS_ONE, out, alpha=2, out=out)


def activate(a: Tensor, a_g: Tensor, gates: Tensor, g: Tensor) -> None:
    """The gates from their inputs a (B, G*H), which are lost: tanh for the candidate g, sigmoid for all others."""
    if by_sigmoid(a):
        a_g.add_(a_g)
        torch.sigmoid(a, out=gates)
        torch.add(_MINUS_ONE, g, alpha=2, out=g)
    else:
        candidate = torch.tanh(a_g)
        torch.sigmoid(a, out=gates)
        g.copy_(candidate)


def before(history: Tensor, first: Tensor, start: int, stop: int) -> Tensor:
    """The states that the steps start to stop begin with."""
    if start:
        return history[start - 1 : stop - 1]
    return torch.cat([first.unsqueeze(0), history[: stop - 1]])
