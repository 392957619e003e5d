"""A small problem for a layer, and everything that two implementations must agree on."""

import torch
from torch import Tensor

T, B, I, H = 9, 3, 5, 7


def problem(layer, dtype: torch.dtype = torch.float64, batch_size: int = B) -> tuple[Tensor, tuple[Tensor, ...]]:
    x = torch.randn(T, batch_size, I, dtype=dtype)
    count = layer.num_layers * layer.directions
    return x, tuple(torch.randn(count, batch_size, H, dtype=dtype) for _ in range(layer.cell.num_states))


def results(layer, x: Tensor, state: tuple[Tensor, ...], masks) -> list[Tensor]:
    """Outputs, final states, and the gradients of x, h0, c0 and all weights of a loss that uses all of them."""
    x, state = x.clone().requires_grad_(), tuple(h.clone().requires_grad_() for h in state)
    out, final = layer(x, state if len(state) > 1 else state[0], masks=masks)
    final = final if isinstance(final, tuple) else (final,)
    weight = torch.linspace(-1, 1, out.numel(), dtype=out.dtype).view_as(out)
    loss = (out * weight).sum() + sum((h * h).sum() for h in final)
    return [out, *final, *torch.autograd.grad(loss, [x, *state, *layer.parameters()])]


def assert_equal(left: list[Tensor], right: list[Tensor], tolerance: float) -> None:
    assert len(left) == len(right)
    for a, b in zip(left, right):
        torch.testing.assert_close(a, b, rtol=tolerance, atol=tolerance)
