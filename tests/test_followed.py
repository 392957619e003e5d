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

from varrnn import VariationalGRU, VariationalLSTM, WordEmbedding
from varrnn.kernels import softmax

CELLS = {
    "lstm": VariationalLSTM,
    "gru": VariationalGRU,
    "gru, reset before": partial(VariationalGRU, reset_after=False),
}
DTYPES = [torch.float32, torch.float64]  # the kernels in C, and in torch's operations


def twins(cell: str, dtype: torch.dtype = torch.float32) -> tuple[nn.Module, nn.Module, Tensor]:
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


@pytest.mark.filterwarnings("ignore")  # a trace warns of every condition on shapes
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("follower", FOLLOWERS)
@pytest.mark.parametrize("cell", CELLS)
def test_same_as_the_reference(cell: str, follower: str, dtype: torch.dtype) -> None:
    fast, slow, x = twins(cell, dtype)
    torch.testing.assert_close(FOLLOWERS[follower](fast, x), FOLLOWERS[follower](slow, x))


@pytest.mark.parametrize("cell", CELLS)
def test_masks_may_be_mapped_over(cell: str) -> None:
    """One function from q(omega) for each element of the map; no value of a mask is asked for."""
    layer, _, x = twins(cell)
    layer.dropout = 0.5
    masks = [layer.sample_masks(2) for _ in range(3)]
    stacked = torch.utils._pytree.tree_map(lambda *z: torch.stack(z), *masks)
    found = torch.func.vmap(lambda z: layer(x, masks=z)[0])(stacked)
    torch.testing.assert_close(found, torch.stack([layer(x, masks=z)[0] for z in masks]))


@pytest.mark.parametrize("cell", CELLS)
def test_gradients_of_each_sequence_with_masks_of_its_own(cell: str) -> None:
    layer, _, x = twins(cell)
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
def test_export(cell: str, strict: bool) -> None:
    fast, _, x = twins(cell)
    exported = torch.export.export(fast, (x,), strict=strict).module()
    torch.testing.assert_close(exported(x + 1), fast(x + 1))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("cell", CELLS)
def test_many_gradients_at_once_need_the_reference(cell: str, dtype: torch.dtype) -> None:
    """The forward pass is a plain one here; that gradients come in a batch is seen in the backward pass."""
    fast, slow, x = twins(cell, dtype)
    jacobian = partial(torch.autograd.functional.jacobian, inputs=x, vectorize=True)
    with pytest.raises(RuntimeError, match=r'one gradient at a time.*use backend="reference"'):
        jacobian(lambda x: fast(x)[0])
    torch.testing.assert_close(jacobian(lambda x: slow(x)[0]), torch.func.jacrev(lambda x: fast(x)[0])(x))
    x.requires_grad_()
    out = fast(x)[0]
    with pytest.raises(RuntimeError, match=r'one gradient at a time.*use backend="reference"'):
        torch.func.vmap(lambda v: torch.autograd.grad(out, x, v))(torch.randn(2, *out.shape, dtype=dtype))


def test_the_softmax_too() -> None:
    x, weight, targets = torch.randn(6, 4), torch.randn(9, 4), torch.randint(9, (6,))

    def wanted(x: Tensor) -> Tensor:
        return -nn.functional.cross_entropy(x @ weight.t(), targets, reduction="none")

    def found(x: Tensor) -> Tensor:
        return softmax.target_log_probabilities(x, weight, None, targets)

    torch.testing.assert_close(torch.func.jacrev(found)(x), torch.func.jacrev(wanted)(x))
    torch.testing.assert_close(make_fx(found)(x)(x + 1), wanted(x + 1))
