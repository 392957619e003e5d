"""The log-probability of target words in C against torch's product and cross entropy."""

from contextlib import nullcontext

import pytest
import torch
from torch import Tensor
from torch.autograd import forward_ad

from varrnn.kernels import c_library
from varrnn.kernels.softmax import target_log_probabilities

needs_c = pytest.mark.skipif(c_library.get_library() is None, reason=c_library.load_status()[1])


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
    with c_library.disabled():
        wanted = log_probabilities(*inputs, targets)
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5 * (1 + other.abs().max().item()))
    with torch.no_grad():
        assert torch.equal(target_log_probabilities(*inputs, targets), found[0])


@needs_c
def test_size_of_the_cache_changes_nothing() -> None:
    """Bit by bit, with and without a gradient; more rows than a block, more words than a slice."""
    torch.manual_seed(0)
    inputs = torch.randn(500, 70), torch.randn(1100, 70), torch.randn(1100)
    targets = torch.randint(0, 1100, (500,))
    wanted = log_probabilities(*inputs, targets)
    with c_library.panel_cache(1):
        found = [*log_probabilities(*inputs, targets), target_log_probabilities(*inputs, targets)]
    assert all(torch.equal(one, other) for one, other in zip(found, [*wanted, wanted[0]], strict=True))


@needs_c
def test_log_probabilities_of_extreme_logits() -> None:
    """A sum of exponentials that overflows when computed naively, words of probability zero, and NaN."""
    weight = torch.zeros(1500, 1)
    x = torch.ones(4, 1)
    bias = torch.zeros(1500)
    bias[:3] = torch.tensor([500.0, 499.0, -1e30])
    x[3] = float("nan")
    targets = torch.tensor([0, 1, 2, 0])
    found = target_log_probabilities(x, weight, bias, targets)
    with c_library.disabled():
        torch.testing.assert_close(found, target_log_probabilities(x, weight, bias, targets), equal_nan=True)


@needs_c
def test_logits_of_minus_infinity_and_nan() -> None:
    """All words of the first piece of logits, the target, or all words have probability zero; and a piece with NaN."""
    bias = torch.randn(4, 1500)
    bias[0, :1100] = bias[1, 1200] = bias[2] = bias[3, :1100] = float("-inf")
    bias[3, 7] = float("nan")
    x, weight, targets = torch.randn(5, 2), torch.randn(1500, 2), torch.tensor([1200, 1400, 1200, 3, 1499])
    for one in bias:
        found = target_log_probabilities(x, weight, one, targets)
        with c_library.disabled():
            wanted = target_log_probabilities(x, weight, one, targets)
        torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-5, equal_nan=True)


@pytest.mark.parametrize(
    "shapes",
    [
        ((5, 3), (7, 5), (7,), (5,)),
        ((5, 3), (7, 3), (2,), (5,)),
        ((5, 3), (7, 3), (7,), (2,)),
        ((3,), (7, 3), (7,), ()),
    ],
    ids=str,
)
def test_shapes_that_do_not_fit(shapes: tuple[tuple[int, ...], ...]) -> None:
    x, weight, bias = (torch.randn(shape) for shape in shapes[:3])
    with pytest.raises(ValueError, match="expected x"):
        target_log_probabilities(x, weight, bias, torch.zeros(shapes[3], dtype=torch.int64))


@needs_c
def test_strided_inputs() -> None:
    x, weight, targets = torch.randn(3, 5).t(), torch.randn(3, 7).t(), torch.randint(0, 7, (10,))[::2]
    for bias in (torch.randn(7, 4)[:, 0], torch.ones(1).expand(7)):
        found = log_probabilities(x, weight, bias, targets)
        with c_library.disabled():
            wanted = log_probabilities(x, weight, bias, targets)
        with torch.no_grad():
            torch.testing.assert_close(target_log_probabilities(x, weight, bias, targets), wanted[0])
        for one, other in zip(found, wanted, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


@needs_c
@pytest.mark.filterwarnings("ignore")
@pytest.mark.slow
def test_forward_mode_and_traces() -> None:
    """Forward-mode AD and tracing get torch operations."""
    x, other, weight, targets = torch.randn(5, 3), torch.randn(5, 3), torch.randn(7, 3), torch.randint(0, 7, (5,))

    def call(x: Tensor) -> Tensor:
        return target_log_probabilities(x, weight, None, targets)

    with forward_ad.dual_level():
        tangent = forward_ad.unpack_dual(call(forward_ad.make_dual(x, other))).tangent
    jacobian = torch.autograd.functional.jacobian(call, x)
    torch.testing.assert_close(tangent, (jacobian * other).sum((1, 2)))
    torch.testing.assert_close(torch.jit.trace(call, x)(other), call(other))


@pytest.mark.parametrize("c", [True, False])
@pytest.mark.parametrize("target", [-100, -1, 7])
def test_targets_outside_the_words(target: int, c: bool) -> None:
    with pytest.raises(IndexError), nullcontext() if c else c_library.disabled():
        target_log_probabilities(torch.randn(2, 3), torch.randn(7, 3), None, torch.tensor([0, target]))


def test_no_second_derivative_of_log_probabilities() -> None:
    x, weight = torch.randn(2, 3, requires_grad=True), torch.randn(7, 3)
    out = target_log_probabilities(x, weight, None, torch.tensor([0, 1])).sum()
    if c_library.get_library() is not None:
        with pytest.raises(RuntimeError, match="second derivative"):
            torch.autograd.grad(out, x, create_graph=True)


@pytest.mark.slow
def test_compiled_callers() -> None:
    """A break in the graph is fine, a wrong result is not."""
    x, weight, targets = torch.randn(5, 3), torch.randn(7, 3), torch.randint(0, 7, (5,))

    def loss(x: Tensor) -> Tensor:
        return -target_log_probabilities(x * 2, weight, None, targets).mean()

    torch.testing.assert_close(torch.compile(loss, backend="eager")(x), loss(x))
