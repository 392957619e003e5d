"""The fast path equals the reference: outputs, states and every gradient, for every cell, variant and precision."""

from contextlib import nullcontext

import pytest
import torch
from conftest import VARIANTS
from torch import Tensor

from varrnn import VariationalGRU, VariationalLSTM
from varrnn.dropout import Masks
from varrnn.kernels import c_library, matmul

T, B, I, H = 9, 3, 5, 7
CELLS = {
    "lstm": VariationalLSTM,
    "gru": VariationalGRU,
    "gru_before": lambda *sizes, **options: VariationalGRU(*sizes, reset_after=False, **options),
}
TOLERANCE = {torch.float64: 1e-12, torch.float32: 2e-5}
PAIRS = [(c, v) for c in CELLS for v in VARIANTS if c == "lstm" or not VARIANTS[v].p_c]


def twins(cell: str, variant: str, dtype: torch.dtype = torch.float64, **options):
    """The same layer on the fast path and on the reference path."""
    fast = CELLS[cell](I, H, 2, dropout=VARIANTS[variant], dtype=dtype, **options)
    slow = CELLS[cell](I, H, 2, dropout=VARIANTS[variant], dtype=dtype, fast=False, **options)
    slow.load_state_dict(fast.state_dict())
    return fast, slow


def problem(layer, dtype: torch.dtype = torch.float64, batch_size: int = B) -> tuple[Tensor, tuple[Tensor, ...]]:
    x = torch.randn(T, batch_size, I, dtype=dtype)
    count = layer.num_layers * layer.directions
    return x, tuple(torch.randn(count, batch_size, H, dtype=dtype) for _ in range(layer.cell.states))


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


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize(("rows", "pack"), [(1024, 400), (6, 400), (6, 1)], ids=["one_chunk", "many_chunks", "packed"])
@pytest.mark.parametrize(("cell", "variant"), PAIRS)
def test_fast_equals_reference(cell, variant, rows, pack, dtype, monkeypatch):
    monkeypatch.setattr(matmul, "ROWS", rows)
    monkeypatch.setattr(matmul, "LARGE", pack)
    fast, slow = twins(cell, variant, dtype)
    masks = fast.sample_masks(B, T)
    x, state = problem(fast, dtype)
    assert_equal(results(fast, x, state, masks), results(slow, x, state, masks), TOLERANCE[dtype])


@pytest.mark.parametrize(("cell", "variant"), PAIRS)
def test_fast_equals_reference_in_both_directions_without_bias(cell, variant):
    fast, slow = twins(cell, variant, bidirectional=True, bias=False)
    masks = fast.sample_masks(B, T)
    x, state = problem(fast)
    assert_equal(results(fast, x, state, masks), results(slow, x, state, masks), 1e-12)


@pytest.mark.parametrize("shape", [(1, 1, 1, 1), (T, 1, 1, 1), (1, "G", 1, 1), (1, 1, B, 1), (T, "G", B, "U")])
@pytest.mark.parametrize("cell", CELLS)
def test_any_mask_of_any_sharing(cell, shape):
    """Masks are data: any values, any axis shared."""
    fast, slow = twins(cell, "none")
    sizes = [(fast.cell.gates, I), (fast.cell.gates, H), (2, H)]
    layers = []
    for inputs in (I, H):
        sizes[0] = (fast.cell.gates, inputs)
        layers.append(Masks(*(torch.randn([{"G": g, "U": u}.get(n, n) for n in shape]).double() for g, u in sizes)))
    if fast.cell.states < 2:
        layers = [masks._replace(z_c=torch.ones(1, 1, 1, 1).double()) for masks in layers]
    x, state = problem(fast)
    assert_equal(results(fast, x, state, tuple(layers)), results(slow, x, state, tuple(layers)), 1e-10)


@pytest.mark.parametrize(("cell", "variant"), PAIRS)
def test_gradcheck(cell, variant):
    layer = CELLS[cell](2, 3, dropout=VARIANTS[variant], dtype=torch.float64)
    masks = layer.sample_masks(2, 4)
    names = [name for name, _ in layer.named_parameters()]
    state = [torch.randn(1, 2, 3, dtype=torch.float64, requires_grad=True) for _ in range(layer.cell.states)]
    x = torch.randn(4, 2, 2, dtype=torch.float64, requires_grad=True)

    def call(x, *rest):
        hx = rest[: layer.cell.states]
        weights = dict(zip(names, rest[layer.cell.states :]))
        hx = hx if len(hx) > 1 else hx[0]
        out, final = torch.func.functional_call(layer, weights, (x, hx), {"masks": masks})
        return (out, *final) if isinstance(final, tuple) else (out, final)

    assert torch.autograd.gradcheck(call, (x, *state, *layer.parameters()))


@pytest.mark.parametrize(("cell", "variant"), PAIRS)
@pytest.mark.parametrize("dtype", TOLERANCE)
def test_nothing_in_the_batch(cell, variant, dtype, monkeypatch):
    fast, _ = twins(cell, variant, dtype)
    x, state = problem(fast, dtype, batch_size=0)
    for pack, without_c in ((400, nullcontext()), (400, c_library.switched_off()), (1, c_library.switched_off())):
        monkeypatch.setattr(matmul, "LARGE", pack)
        with without_c:
            out, *others = results(fast, x, state, fast.sample_masks(0, T))
        assert out.shape == (T, 0, H) and all(not gradient.any() for gradient in others)


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize(("cell", "variant"), PAIRS)
def test_gradients_lie_in_memory_as_torchs_do(cell, variant, dtype):
    """Many an optimiser flattens them with view(-1)."""
    fast, _ = twins(cell, variant, dtype)
    x, state = problem(fast, dtype)
    assert all(gradient.is_contiguous() for gradient in results(fast, x, state, fast.sample_masks(B, T)))


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("cell", CELLS)
def test_no_two_gradients_share_memory(cell, dtype):
    """Somebody scales them in place, each by itself."""
    fast, _ = twins(cell, "none", dtype)
    x, state = problem(fast, dtype)
    places = [gradient.data_ptr() for gradient in results(fast, x, state, fast.ones_masks())[1 + fast.cell.states :]]
    assert len(set(places)) == len(places)
