"""Traces, transforms and dispatch modes get the reference: the same numbers as from backend="reference"."""

import io
from functools import partial

import pytest
import torch
from torch import Tensor, nn
from torch.autograd import forward_ad
from torch.func import functional_call
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils.flop_counter import FlopCounterMode

from varrnn import DropoutRates, VariationalGRU, VariationalLSTM, WordEmbedding
from varrnn.kernels import softmax

CELLS = {
    "lstm": VariationalLSTM,
    "gru": VariationalGRU,
    "gru, reset before": partial(VariationalGRU, reset_after=False),
}
DTYPES = [torch.float32, torch.float64]  # the kernels in C, and in torch's operations


def layer_and_reference(cell: str, dtype: torch.dtype = torch.float32) -> tuple[nn.Module, nn.Module, Tensor]:
    fast, slow = (CELLS[cell](3, 4, backend=backend, dtype=dtype).eval() for backend in ("auto", "reference"))
    slow.load_state_dict(fast.state_dict())
    return fast, slow, torch.randn(3, 2, 3, dtype=dtype)


def weight_gradient(layer: nn.Module, x: Tensor) -> object:
    return torch.func.grad(lambda w: functional_call(layer, w, (x,))[0].sum())(dict(layer.named_parameters()))


def saved_trace(layer: nn.Module, x: Tensor) -> object:
    file = io.BytesIO()
    torch.jit.save(torch.jit.trace(layer, x), file)
    file.seek(0)
    return torch.jit.load(file)(x + 1)


def forward_mode(layer: nn.Module, x: Tensor) -> object:
    with forward_ad.dual_level():
        return forward_ad.unpack_dual(layer(forward_ad.make_dual(x, torch.ones_like(x)))[0]).tangent


def counted(layer: nn.Module, x: Tensor) -> object:
    with FlopCounterMode(display=False) as counter:
        layer(x)
    assert counter.get_total_flops() > 0
    return torch.tensor(counter.get_total_flops())


FOLLOWERS = {
    "torch.func.grad": weight_gradient,
    "torch.func.jvp": lambda layer, x: torch.func.jvp(lambda x: layer(x)[0], (x,), (torch.ones_like(x),)),
    "torch.func.jacrev": lambda layer, x: torch.func.jacrev(lambda x: layer(x)[0])(x),
    "torch.func.vmap": lambda layer, x: torch.func.vmap(lambda x: layer(x)[0], 1)(x),
    "forward mode": forward_mode,
    "make_fx": lambda layer, x: make_fx(lambda x: layer(x)[0])(x)(x + 1),
    "trace": saved_trace,
    "flops": counted,
}


@pytest.mark.costly
@pytest.mark.filterwarnings("ignore")  # a trace warns of every condition on shapes
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("follower", FOLLOWERS)
@pytest.mark.parametrize("cell", CELLS)
def test_same_as_the_reference(cell: str, follower: str, dtype: torch.dtype) -> None:
    fast, slow, x = layer_and_reference(cell, dtype)
    torch.testing.assert_close(FOLLOWERS[follower](fast, x), FOLLOWERS[follower](slow, x))


@pytest.mark.parametrize("cell", CELLS)
def test_masks_may_be_mapped_over(cell: str) -> None:
    """One function from q(omega) for each element of the map; no value of a mask is read."""
    layer, _, x = layer_and_reference(cell)
    layer.dropout = 0.5
    masks = [layer.sample_masks(2) for _ in range(3)]
    stacked = torch.utils._pytree.tree_map(lambda *z: torch.stack(z), *masks)
    found = torch.func.vmap(lambda z: layer(x, masks=z)[0])(stacked)
    torch.testing.assert_close(found, torch.stack([layer(x, masks=z)[0] for z in masks]))


@pytest.mark.parametrize("cell", CELLS)
def test_gradients_of_each_sequence_with_its_masks(cell: str) -> None:
    layer, _, x = layer_and_reference(cell)
    layer.dropout = 0.5
    layer.train()
    weights, same = dict(layer.named_parameters()), x[:, :1].expand(-1, 6, -1)
    gradient = torch.func.grad(lambda w, row: functional_call(layer, w, (row.unsqueeze(1),))[0].sum())
    found = torch.func.vmap(gradient, (None, 1), randomness="different")(weights, same)["weight_ih_l0"]
    assert found.shape == (6, *layer.weight_ih_l0.shape) and len(found.unique(dim=0)) > 1
    embedding = WordEmbedding(9, 4, p_E=0.5)
    words = torch.randint(9, (3, 5))
    assert torch.func.vmap(embedding, 1, randomness="different")(words).shape == (5, 3, 4)


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.slow
def test_export(cell: str, strict: bool) -> None:
    if strict and torch.__version__.startswith("2.6."):
        pytest.skip("the strict export of torch 2.6 cannot mark a tensor; strict=False, or to_torch")
    fast, _, x = layer_and_reference(cell)
    exported = torch.export.export(fast, (x,), strict=strict).module()
    torch.testing.assert_close(exported(x + 1), fast(x + 1))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("cell", CELLS)
def test_many_gradients_at_once(cell: str, dtype: torch.dtype) -> None:
    """The forward pass is an ordinary one; only the backward pass can detect that gradients come in a batch."""
    fast, slow, x = layer_and_reference(cell, dtype)
    jacobian = partial(torch.autograd.functional.jacobian, inputs=x, vectorize=True)
    torch.testing.assert_close(jacobian(lambda x: fast(x)[0]), jacobian(lambda x: slow(x)[0]))
    x.requires_grad_()
    out, many = fast(x)[0], torch.randn(2, *fast(x)[0].shape, dtype=dtype)
    found = torch.func.vmap(lambda v: torch.autograd.grad(out, x, v))(many)[0]
    torch.testing.assert_close(found, torch.stack([torch.autograd.grad(slow(x)[0], x, v)[0] for v in many]))
    (found,) = torch.autograd.grad(fast(x)[0], x, many, is_grads_batched=True)
    torch.testing.assert_close(found, torch.stack([torch.autograd.grad(slow(x)[0], x, v)[0] for v in many]))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("cell", CELLS)
def test_second_derivatives(cell: str, dtype: torch.dtype) -> None:
    """A gradient penalty, with masks, whose gradients by the weights and the input are those of the reference."""
    fast, slow, x = layer_and_reference(cell, dtype)
    fast.dropout = DropoutRates.variational(p_W=0.3, p_U=0.3, tied=False)
    masks = fast.sample_masks(x.shape[1])
    found = []
    for layer in (fast, slow):
        given = x.clone().requires_grad_()
        out = layer(given, masks=masks)[0]
        (gradient,) = torch.autograd.grad(out.square().sum(), given, create_graph=True)
        found.append(torch.autograd.grad(gradient.square().sum(), [given, *layer.parameters()]))
    for a, b in zip(*found, strict=True):
        assert b.abs().sum() > 0
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("cell", CELLS)
def test_inputs_that_depend_on_each_other(cell: str) -> None:
    """The gradient by a weight from which the input was computed too is counted once."""
    fast, slow, x = layer_and_reference(cell, torch.float64)
    found = []
    for layer in (fast, slow):
        given = x * layer.weight_ih_l0.sum()  # the input is a function of a weight
        loss = layer(given)[0].square().sum()
        found.append(torch.autograd.grad(loss, list(layer.parameters()), create_graph=True))
    for a, b in zip(*found, strict=True):
        torch.testing.assert_close(a, b)


@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.slow
def test_gradgradcheck(cell: str) -> None:
    layer = CELLS[cell](2, 2, dtype=torch.float64)
    x = torch.randn(3, 2, 2, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradgradcheck(lambda x, *_: layer(x)[0], (x, *layer.parameters()))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("cell", CELLS)
def test_a_trace_called_with_another_length_raises(cell: str) -> None:
    layer, _, x = layer_and_reference(cell)
    traced = torch.jit.trace(layer, x)
    torch.testing.assert_close(traced(x + 1), layer(x + 1))
    for length in (1, 2, 6):
        with pytest.raises(RuntimeError, match="unflatten"):
            traced(torch.randn(length, 2, 3))


def test_the_softmax_too() -> None:
    x, weight, targets = torch.randn(6, 4), torch.randn(9, 4), torch.randint(9, (6,))

    def wanted(x: Tensor) -> Tensor:
        return -nn.functional.cross_entropy(x @ weight.t(), targets, reduction="none")

    def found(x: Tensor) -> Tensor:
        return softmax.target_log_probabilities(x, weight, None, targets)

    torch.testing.assert_close(torch.func.jacrev(found)(x), torch.func.jacrev(wanted)(x))
    torch.testing.assert_close(make_fx(found)(x)(x + 1), wanted(x + 1))
