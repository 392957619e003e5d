"""The fast path equals the reference: outputs, states and every gradient, for every cell, variant and precision."""

from contextlib import nullcontext
from functools import partial

import pytest
import torch
from helpers.layers import B, H, I, T, assert_equal, problem, results
from helpers.variants import VARIANTS

from varrnn import VariationalGRU, VariationalLSTM, VariationalRNN
from varrnn.dropout import Masks
from varrnn.kernels import c_library, matmul, record_backends

CELLS = {
    "lstm": VariationalLSTM,
    "gru": VariationalGRU,
    "gru_before": partial(VariationalGRU, reset_after=False),
    "lstm_hard": partial(VariationalLSTM, gate_activation="hard_sigmoid"),
    "lstm_relu": partial(VariationalLSTM, candidate_activation="relu"),
    "gru_authors": partial(
        VariationalGRU, reset_after=False, gate_activation="hard_sigmoid", candidate_activation="sigmoid"
    ),
    "rnn": VariationalRNN,
    "rnn_relu": partial(VariationalRNN, nonlinearity="relu"),
    "gru_hard_relu": partial(VariationalGRU, gate_activation="hard_sigmoid", candidate_activation="relu"),
}
TOLERANCE = {torch.float64: 1e-12, torch.float32: 2e-5}
PAIRS = [(c, v) for c in CELLS for v in VARIANTS if c.startswith("lstm") or not VARIANTS[v].p_c]


def make_layers(cell: str, variant: str, dtype: torch.dtype = torch.float64, **options):
    """The same layer on the fast path and on the reference path."""
    fast = CELLS[cell](I, H, 2, dropout=VARIANTS[variant], dtype=dtype, **options)
    slow = CELLS[cell](I, H, 2, dropout=VARIANTS[variant], dtype=dtype, backend="reference", **options)
    slow.load_state_dict(fast.state_dict())
    return fast, slow


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize(("rows", "pack"), [(1024, 400), (6, 400), (6, 1)], ids=["one_chunk", "many_chunks", "packed"])
@pytest.mark.parametrize(("cell", "variant"), PAIRS)
def test_fast_equals_reference(cell, variant, rows, pack, dtype, monkeypatch):
    monkeypatch.setattr(matmul, "CHUNK_ROWS", rows)
    monkeypatch.setattr(matmul, "ONEDNN_MIN_UNITS", pack)
    fast, slow = make_layers(cell, variant, dtype)
    masks = fast.sample_masks(B, T)
    x, state = problem(fast, dtype)
    assert_equal(results(fast, x, state, masks), results(slow, x, state, masks), TOLERANCE[dtype])


@pytest.mark.costly
@pytest.mark.parametrize(("cell", "variant"), PAIRS)
def test_fast_equals_reference_in_both_directions_without_bias(cell, variant):
    fast, slow = make_layers(cell, variant, bidirectional=True, bias=False)
    masks = fast.sample_masks(B, T)
    x, state = problem(fast)
    assert_equal(results(fast, x, state, masks), results(slow, x, state, masks), 1e-12)


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("cell", [name for name in CELLS if "hard" in name or "authors" in name])
def test_clipped_gates(cell, dtype):
    """With large weights hard sigmoids are 0, 1 and between; a clipped gate passes no gradient."""
    fast, slow = make_layers(cell, "untied", dtype)
    with torch.no_grad():
        for layer in (fast, slow):
            for parameter in layer.parameters():
                parameter.mul_(10)
    masks = fast.sample_masks(B, T)
    x, state = problem(fast, dtype)
    with record_backends() as used:
        found = results(fast, x, state, masks)
    assert set(used) <= {"torch", "c"}
    assert_equal(found, results(slow, x, state, masks), 100 * TOLERANCE[dtype])
    preact = x @ fast.weight_ih_l0.t()
    assert (preact.abs() > 2.5).any() and (preact.abs() < 2.5).any()


@pytest.mark.parametrize("shape", [(1, 1, 1, 1), (T, 1, 1, 1), (1, "G", 1, 1), (1, 1, B, 1), (T, "G", B, "U")])
@pytest.mark.parametrize("cell", CELLS)
def test_any_mask_of_any_sharing(cell, shape):
    """Masks are data: any values, any axis shared."""
    fast, slow = make_layers(cell, "none")
    sizes = [(fast.cell.num_gates, I), (fast.cell.num_gates, H), (2, H)]
    layers = []
    for inputs in (I, H):
        sizes[0] = (fast.cell.num_gates, inputs)
        layers.append(Masks(*(torch.randn([{"G": g, "U": u}.get(n, n) for n in shape]).double() for g, u in sizes)))
    if fast.cell.num_states < 2:
        layers = [masks._replace(z_c=torch.ones(1, 1, 1, 1).double()) for masks in layers]
    x, state = problem(fast)
    assert_equal(results(fast, x, state, tuple(layers)), results(slow, x, state, tuple(layers)), 1e-10)


@pytest.mark.parametrize(("cell", "variant"), PAIRS)
@pytest.mark.slow
def test_gradcheck(cell, variant):
    layer = CELLS[cell](2, 3, dropout=VARIANTS[variant], dtype=torch.float64)
    masks = layer.sample_masks(2, 3)
    names = [name for name, _ in layer.named_parameters()]
    state = [torch.randn(1, 2, 3, dtype=torch.float64, requires_grad=True) for _ in range(layer.cell.num_states)]
    x = torch.randn(3, 2, 2, dtype=torch.float64, requires_grad=True)

    def call(x, *rest):
        hx = rest[: layer.cell.num_states]
        weights = dict(zip(names, rest[layer.cell.num_states :]))
        hx = hx if len(hx) > 1 else hx[0]
        out, final = torch.func.functional_call(layer, weights, (x, hx), {"masks": masks})
        return (out, *final) if isinstance(final, tuple) else (out, final)

    assert torch.autograd.gradcheck(call, (x, *state, *layer.parameters()))


@pytest.mark.parametrize(("cell", "variant"), PAIRS)
@pytest.mark.parametrize("dtype", TOLERANCE)
def test_nothing_in_the_batch(cell, variant, dtype, monkeypatch):
    fast, _ = make_layers(cell, variant, dtype)
    x, state = problem(fast, dtype, batch_size=0)
    for pack, without_c in ((400, nullcontext()), (400, c_library.disabled()), (1, c_library.disabled())):
        monkeypatch.setattr(matmul, "ONEDNN_MIN_UNITS", pack)
        with without_c:
            out, *others = results(fast, x, state, fast.sample_masks(0, T))
        assert out.shape == (T, 0, H) and all(not gradient.any() for gradient in others)


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize(("cell", "variant"), PAIRS)
def test_gradients_have_the_strides_of_torchs(cell, variant, dtype):
    """Some optimizers flatten them with view(-1)."""
    fast, _ = make_layers(cell, variant, dtype)
    x, state = problem(fast, dtype)
    assert all(gradient.is_contiguous() for gradient in results(fast, x, state, fast.sample_masks(B, T)))


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("cell", CELLS)
def test_no_two_gradients_share_memory(cell, dtype):
    """The caller may scale each of them in place."""
    fast, _ = make_layers(cell, "none", dtype)
    x, state = problem(fast, dtype)
    places = [
        gradient.data_ptr() for gradient in results(fast, x, state, fast.mean_masks())[1 + fast.cell.num_states :]
    ]
    assert len(set(places)) == len(places)
