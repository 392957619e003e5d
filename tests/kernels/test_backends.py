"""choose_backend: torch's own layers equal the reference, requests are honoured or raise, masks per batch fold."""

import types
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import pytest
import torch
from helpers.layers import assert_equal, problem, results
from torch.nn.utils.rnn import pack_padded_sequence

from varrnn import DropoutRates, VariationalGRU, VariationalLSTM, VariationalRNN, mc_predict
from varrnn.cells import RNNCell, Weights
from varrnn.dropout import Masks
from varrnn.kernels import builtin, c_library, record_backends
from varrnn.kernels.matmul import has_onednn
from varrnn.tasks.sentiment_model import SentimentModel

T, B, I, H = 9, 3, 5, 7
LAYERS = {
    "lstm": VariationalLSTM,
    "gru": VariationalGRU,
    "rnn": VariationalRNN,
    "relu": partial(VariationalRNN, nonlinearity="relu"),
}
FOLDING = {
    "none": DropoutRates.none(),
    "naive": DropoutRates.naive(0.4).for_layers(),
    "inputs": DropoutRates(p_W=0.4),
    "per_batch": DropoutRates(p_W=0.3, p_U=0.4, per_batch=True),
    "per_batch_untied": DropoutRates(p_W=0.3, p_U=0.4, per_batch=True, per_gate=True),
    "naive_inputs_shared": DropoutRates(p_W=0.4, per_batch=True, per_step=True),
}


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("rates", FOLDING)
@pytest.mark.parametrize("name", LAYERS)
def test_builtin_equals_reference(name, rates, bias, dtype):
    """Two layers, both directions: outputs, states and every gradient."""
    options = {"dropout": FOLDING[rates], "dtype": dtype, "bias": bias, "bidirectional": True}
    layer, reference = (LAYERS[name](I, H, 2, backend=backend, **options) for backend in ("builtin", "reference"))
    reference.load_state_dict(layer.state_dict())
    masks = layer.sample_masks(B, T)
    x, state = problem(layer, dtype)
    with record_backends() as used:
        found = results(layer, x, state, masks)
    assert used == ["builtin"] * 4
    tolerance = 1e-12 if dtype == torch.float64 else 2e-5
    assert_equal(found, results(reference, x, state, masks), tolerance)


@pytest.mark.parametrize("backend", ["torch", "c"])
@pytest.mark.parametrize("rates", [name for name in FOLDING if "per_batch" in name])
@pytest.mark.parametrize("name", ["lstm", "gru", "rnn"])
def test_masks_of_a_batch_equal_the_reference(name, rates, backend):
    if backend == "c" and c_library.get_library() is None:
        pytest.skip(c_library.load_status()[1])
    layer, reference = (LAYERS[name](I, H, 2, dropout=FOLDING[rates], backend=one) for one in (backend, "reference"))
    reference.load_state_dict(layer.state_dict())
    masks = layer.sample_masks(B, T)
    x, state = problem(layer, torch.float32)
    assert_equal(results(layer, x, state, masks), results(reference, x, state, masks), 2e-5)


def test_masks_of_a_batch_are_shared_by_it():
    masks = VariationalLSTM(I, H, dropout=DropoutRates(p_W=0.5, p_U=0.5, p_c=0.5, per_batch=True)).sample_masks(B)[0]
    assert [z.shape[2] for z in masks] == [1, 1, 1]
    layer = VariationalLSTM(I, H, dropout=FOLDING["per_batch"])
    same = torch.randn(T, 1, I).expand(T, B, I)
    out, _ = layer(same)
    torch.testing.assert_close(out[:, :1].expand_as(out), out)


UNSUPPORTED = [
    ("builtin", {"dropout": 0.3}, "cannot mask h"),
    ("builtin", {"dropout": DropoutRates(p_W=0.3, per_gate=True)}, "masks of x per gate"),
    ("builtin", {"dropout": DropoutRates(p_c=0.3, per_batch=True)}, "cannot mask its memory"),
    ("builtin", {"gate_activation": "hard_sigmoid"}, "the usual activations"),
    ("c", {"dtype": torch.float64}, "float32 on a CPU, not torch.float64"),
]


@pytest.mark.parametrize(("backend", "options", "reason"), UNSUPPORTED)
def test_a_forced_backend_that_cannot_compute_this_raises(backend, options, reason):
    layer = VariationalLSTM(I, H, backend=backend, **options)
    with pytest.raises(ValueError, match=f"backend='{backend}': .*{reason}"):
        layer(torch.randn(T, B, I, dtype=options.get("dtype")))


@dataclass(frozen=True)
class HalvedRNNCell(RNNCell):
    """A subclass of a cell that has kernels, with another step."""

    def step(self, x, state, w, z):
        return (super().step(x, state, w, z)[0] / 2,)


@dataclass(frozen=True)
class LeakyCell:
    """A cell with nothing in common with the package's."""

    num_gates: ClassVar[int] = 1
    num_states: ClassVar[int] = 1

    def step(self, x, state, w, z):
        (h,) = state
        return (0.5 * h + 0.5 * torch.tanh((x * z.z_x[0]) @ w.w_ih.T + (h * z.z_h[0]) @ w.w_hh.T),)


@pytest.mark.parametrize("steps", [1, T])
@pytest.mark.parametrize("rates", [0.0, 0.3])
@pytest.mark.parametrize("cell", [HalvedRNNCell(), LeakyCell()], ids=lambda cell: type(cell).__name__)
def test_a_new_cell_runs_on_the_reference(cell, rates, steps):
    """A kernel computes its own cell only."""
    layer = VariationalRNN(I, H, dropout=rates)
    layer.cell = cell
    x, masks = torch.randn(steps, B, I), layer.sample_masks(B)
    with record_backends() as used:
        out, h = layer(x, masks=masks)
    assert used == ["reference"]
    w, z = Weights(*layer.parameters()), Masks(*(mask[0] for mask in masks[0]))
    state = (torch.zeros(B, H),)
    for t in range(steps):
        state = cell.step(x[t], state, w, z)
        torch.testing.assert_close(out[t], state[0])
    torch.testing.assert_close(h[0], state[0])
    layer.backend = "torch"
    with pytest.raises(ValueError, match=f"backend='torch': .*{type(cell).__name__}"):
        layer(x)


def test_unknown_backends():
    with pytest.raises(ValueError, match="backend='fast'; choose one of auto, reference, torch, c, fused, builtin"):
        VariationalGRU(I, H, backend="fast")
    layer = VariationalGRU(I, H)
    assert layer.backend == "auto" and "backend" not in repr(layer)
    layer.backend = "reference"
    assert "backend=reference" in repr(layer)
    with record_backends() as used:
        layer(torch.randn(T, B, I))
    assert used == ["reference"]


def test_the_rnn_has_kernels():
    """Masked or not; the unrolled reference is many times slower."""
    for rates in (DropoutRates.naive(0.3).for_layers(), 0.3):
        with record_backends() as used:
            VariationalRNN(I, H, dropout=rates)(torch.randn(T, B, I))
            VariationalRNN(I, 500, dropout=rates, dtype=torch.float64)(torch.randn(T, B, I, dtype=torch.float64))
        assert used == ["c" if c_library.get_library() is not None else "torch", "torch"]


@pytest.mark.parametrize(
    "rates", [0.0, 0.3, DropoutRates(p_W=0.3, p_U=0.3, per_gate=True)], ids=["none", "tied", "untied"]
)
@pytest.mark.parametrize("batch", [1, B])
@pytest.mark.parametrize("backend", ["auto", "torch"])
@pytest.mark.parametrize("name", [*LAYERS, "gru_hard"])
def test_one_step_equals_the_reference(name, backend, batch, rates):
    """A decoder's call: torch's own cells, and a step of the GRU under autograd; a plain tensor and a packed one."""
    make = LAYERS.get(name) or partial(VariationalGRU, gate_activation="hard_sigmoid")
    layer, reference = (make(I, H, dropout=rates, dtype=torch.float64, backend=one) for one in (backend, "reference"))
    reference.load_state_dict(layer.state_dict())
    masks = layer.sample_masks(batch)
    x, state = (
        torch.randn(1, batch, I).double(),
        tuple(torch.randn(1, batch, H).double() for _ in range(layer.cell.num_states)),
    )
    found = results(layer, x, state, masks)
    assert_equal(found, results(reference, x, state, masks), 1e-12)
    packed = pack_padded_sequence(x, torch.ones(batch, dtype=torch.int64))
    out, _ = layer(packed, state if len(state) > 1 else state[0], masks=masks)
    torch.testing.assert_close(out.data, found[0][0])


@pytest.mark.skipif(not has_onednn(torch.ones(1)), reason="this torch has no oneDNN")
@pytest.mark.parametrize("rates", [0.0, 0.3], ids=["none", "tied"])
def test_one_step_of_many_rows_is_torchs_layer_without_gradients(rates, monkeypatch):
    """A plain tensor and a packed one, compared with the reference; with gradients torch's cell runs."""
    rows = builtin.LAYER_MIN_ROWS
    layer, reference = (VariationalLSTM(I, H, dropout=rates, backend=one) for one in ("auto", "reference"))
    reference.load_state_dict(layer.state_dict())
    masks, x, state = layer.sample_masks(rows), torch.randn(1, rows, I), tuple(torch.randn(2, 1, rows, H))
    packed = pack_padded_sequence(x, torch.ones(rows, dtype=torch.int64))
    monkeypatch.delitem(builtin.CELL_FUNCTIONS, layer.cell)
    monkeypatch.setattr(builtin, "unsupported", lambda *_: None)
    with torch.no_grad():
        expected = reference(x, state, masks)
        torch.testing.assert_close(layer(x, state, masks), expected)
        out, final = layer(packed, state, masks)
        torch.testing.assert_close((out.data, final), (expected[0][0], expected[1]))
    with pytest.raises(KeyError):
        layer(x, state, masks)
    with pytest.raises(KeyError), torch.no_grad():
        layer(x[:, 1:], tuple(s[:, 1:] for s in state), layer.sample_masks(rows - 1))


def test_a_gpu_runs_torchs_own_kernel_wherever_it_can(monkeypatch):
    """On meta tensors whose is_cuda is True: none of our kernels runs."""
    monkeypatch.setattr(torch.Tensor, "is_cuda", property(lambda t: True))
    monkeypatch.setattr(builtin, "FUNCTIONS", dict.fromkeys(builtin.FUNCTIONS, lambda x, *_: (x, x, x)))
    for name, layer in LAYERS.items():
        for rates in FOLDING.values():
            with record_backends() as used:
                layer(I, H, dropout=rates, device="meta")(torch.randn(T, B, I, device="meta"))
            assert used == ["builtin"], name


def test_weights_in_one_buffer():
    layer = VariationalLSTM(I, H)
    given = layer._weights(0, torch.float32)
    parts = builtin.join_weights(given)
    for part, weight in zip(parts, given, strict=True):
        assert torch.equal(part, weight) and part.untyped_storage().data_ptr() == parts[0].untyped_storage().data_ptr()


def test_samples_of_a_chunk_do_not_share_masks():
    layer = VariationalLSTM(I, H, dropout=FOLDING["per_batch"])
    with pytest.raises(ValueError, match=r"per_batch=True.*use chunk=1"):
        mc_predict(layer, torch.randn(T, B, I), samples=4, chunk=3, apply=lambda y: y[0]).mean  # noqa: B018
    model = SentimentModel(20, 8, 1, DropoutRates(p_W=0.5, p_U=0.5, p_y=0.5, per_batch=True))
    masks = model.sample_mc_masks(torch.randint(0, 20, (T, B)), samples=5)
    for z, axis in ((masks.layers[0].z_x, 2), (masks.layers[0].z_h, 2), (masks.output, 1)):
        passes = z.unflatten(axis, (5, B)).movedim(axis + 1, 0)
        assert torch.equal(passes, passes[:1].expand_as(passes))  # the same for the rows of a pass
        assert len(z.unflatten(axis, (5, B)).movedim(axis, 0).flatten(1).unique(dim=0)) == 5


UNTIED = DropoutRates(p_W=0.3, p_U=0.3, per_gate=True)


@pytest.mark.skipif(c_library.get_library() is None, reason=c_library.load_status()[1])
@pytest.mark.parametrize(
    ("name", "shape", "rates", "training", "wanted"),
    [
        ("lstm", (35, 20, 200), 0.0, True, "c"),
        ("lstm", (35, 20, 200), 0.0, False, "builtin"),
        ("lstm", (35, 20, 200), 0.3, False, "c"),
        ("lstm", (10, 1, 64), 0.0, False, "c"),
        ("lstm", (1, 1, 512), 0.0, True, "builtin"),
        ("lstm", (1, 32, 512), 0.3, False, "builtin"),
        ("lstm", (1, 256, 128), 0.3, True, "builtin"),
        ("lstm", (1, 32, 512), UNTIED, True, "torch"),
        ("lstm", (1, 256, 128), UNTIED, True, "c"),
        ("lstm", (2, 32, 512), 0.0, True, "torch"),
        ("gru", (35, 20, 200), 0.0, False, "c"),
        ("gru", (35, 20, 200), 0.3, True, "c"),
        ("gru", (1, 1, 512), 0.0, False, "builtin"),
        ("gru", (1, 2, 512), 0.3, True, "torch"),
        ("gru", (1, 1, 512), 0.3, True, "torch"),
        ("gru", (1, 256, 128), 0.3, True, "torch"),
        ("gru", (1, 256, 128), UNTIED, True, "c"),
        ("gru", (1, 32, 512), UNTIED, True, "torch"),
        ("rnn", (35, 20, 200), 0.0, False, "c"),
        ("rnn", (35, 20, 200), 0.3, True, "c"),
        ("rnn", (1, 32, 512), 0.3, True, "builtin"),
        ("rnn", (1, 1, 64), 0.0, False, "builtin"),
    ],
)
def test_the_backend_that_measured_fastest_on_a_cpu(name, shape, rates, training, wanted):
    """Steps, rows and units; with gradients and without."""
    steps, rows, units = shape
    layer = LAYERS[name](8, units, dropout=rates)
    with record_backends() as used, torch.set_grad_enabled(training):
        layer(torch.randn(steps, rows, 8))
    assert used == [wanted]


@pytest.mark.parametrize("missing", ["lstm", "gru", "_VF"])
def test_torchs_own_layers_may_have_another_name(missing, monkeypatch):
    """`torch._VF` is private: without it our own kernels run, and give the same numbers."""
    functions = types.SimpleNamespace(**{name: getattr(torch._VF, name) for name in builtin.NAMES.values()})
    if missing == "_VF":
        monkeypatch.delattr(torch, "_VF")
    else:
        delattr(functions, missing)
        monkeypatch.setattr(torch, "_VF", functions)
    make = VariationalGRU if missing == "gru" else VariationalLSTM
    layer, x = make(5, 4, backend="builtin").eval(), torch.randn(6, 3, 5)
    expected = layer(x)[0]
    monkeypatch.setattr(builtin, "FUNCTIONS", builtin.find_functions())
    with pytest.raises(ValueError, match=r"backend='builtin': torch .* has no torch\._VF\.(lstm|gru)"):
        layer(x)
    layer.backend = "auto"
    with record_backends() as used:
        torch.testing.assert_close(layer(x)[0], expected)
    assert used != ["builtin"]


def test_recorders_of_nested_blocks_are_separate():
    layer, x = VariationalLSTM(3, 4), torch.randn(5, 2, 3)
    with record_backends() as outer:
        with record_backends() as inner:
            layer(x)
        layer(x)
    assert len(inner) == 1 and len(outer) == 2
