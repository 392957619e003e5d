"""The log-probability of target words in C against torch's product and cross entropy."""

import pytest
import torch
from torch import Tensor

from varrnn.kernels import native
from varrnn.kernels.softmax import target_log_probabilities

needs_c = pytest.mark.skipif(native.library() is None, reason=native.status()[1])


def log_probabilities(x: Tensor, weight: Tensor, bias: Tensor | None, targets: Tensor) -> list[Tensor]:
    """The result and every gradient."""
    leaves = [t.detach().clone().requires_grad_() for t in (x, weight, bias) if t is not None]
    out = target_log_probabilities(leaves[0], leaves[1], leaves[2] if bias is not None else None, targets)
    (out * torch.linspace(-1, 2, len(out))).sum().backward(retain_graph=True)
    (out.sum() * 0).backward()  # the saved logits are not used up by the first
    return [out.detach(), *(t.grad for t in leaves)]


@needs_c
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(
    "shape", [(1, 1, 1), (13, 5, 7), (25, 40, 300), (30, 16, 1025), (900, 6, 260), (3, 33, 2100)], ids=str
)
def test_log_probabilities(shape: tuple[int, int, int], bias: bool) -> None:
    rows, units, words = shape
    torch.manual_seed(0)
    inputs = torch.randn(rows, units), torch.randn(words, units), torch.randn(words) if bias else None
    targets = torch.randint(0, words, (rows,))
    found = log_probabilities(*inputs, targets)
    with native.switched_off():
        wanted = log_probabilities(*inputs, targets)
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5 * (1 + other.abs().max().item()))
    with torch.no_grad():
        assert torch.equal(target_log_probabilities(*inputs, targets), found[0])


@needs_c
def test_log_probabilities_of_extreme_logits() -> None:
    """A sum of exponentials that overflows when it is taken naively, words that cannot be, and what is not a number."""
    weight = torch.zeros(1500, 1)
    x = torch.ones(4, 1)
    bias = torch.zeros(1500)
    bias[:3] = torch.tensor([500.0, 499.0, -1e30])
    x[3] = float("nan")
    targets = torch.tensor([0, 1, 2, 0])
    found = target_log_probabilities(x, weight, bias, targets)
    with native.switched_off():
        torch.testing.assert_close(found, target_log_probabilities(x, weight, bias, targets), equal_nan=True)


@needs_c
@pytest.mark.parametrize("target", [-1, 7])
def test_targets_outside_the_words(target: int) -> None:
    with pytest.raises(IndexError, match="0 to 6"):
        target_log_probabilities(torch.randn(2, 3), torch.randn(7, 3), None, torch.tensor([0, target]))


def test_no_second_derivative_of_log_probabilities() -> None:
    x, weight = torch.randn(2, 3, requires_grad=True), torch.randn(7, 3)
    out = target_log_probabilities(x, weight, None, torch.tensor([0, 1])).sum()
    if native.library() is not None:
        with pytest.raises(RuntimeError, match="second derivative"):
            torch.autograd.grad(out, x, create_graph=True)


def test_compiled_callers() -> None:
    """A break in the graph is fine, a wrong result is not."""
    x, weight, targets = torch.randn(5, 3), torch.randn(7, 3), torch.randint(0, 7, (5,))

    def loss(x: Tensor) -> Tensor:
        return -target_log_probabilities(x * 2, weight, None, targets).mean()

    torch.testing.assert_close(torch.compile(loss, backend="eager")(x), loss(x))
