"""The backend with ATen's fused cells equals the reference, and torch operations are used where it cannot run."""

import pytest
import torch
from helpers.fused_cells import emulate, pretend_cuda
from helpers.layers import B, H, I, T, assert_equal, problem, results
from helpers.variants import VARIANTS

from varrnn import DropoutRates, VariationalGRU, VariationalLSTM
from varrnn.dropout import is_read_mask
from varrnn.kernels import fused, matmul, record_backends

LAYERS = {"lstm": VariationalLSTM, "gru": VariationalGRU}
PAIRS = [(c, v) for c in LAYERS for v in VARIANTS if c == "lstm" or not VARIANTS[v].p_c]


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("rows", [1024, 6])
@pytest.mark.parametrize(("name", "variant"), PAIRS)
def test_equals_reference(name, variant, rows, bias, monkeypatch):
    emulate(monkeypatch)
    monkeypatch.setattr(matmul, "CHUNK_ROWS", rows)
    options = {"dropout": VARIANTS[variant], "dtype": torch.float64, "bias": bias, "bidirectional": True}
    layer, reference = (LAYERS[name](I, H, 2, backend=backend, **options) for backend in ("fused", "reference"))
    reference.load_state_dict(layer.state_dict())
    masks = layer.sample_masks(B, T)
    x, state = problem(layer)
    with record_backends() as used:
        found = results(layer, x, state, masks)
    assert used == ["fused"] * 4
    assert_equal(found, results(reference, x, state, masks), 1e-12)
    with torch.no_grad():
        hx = state if len(state) > 1 else state[0]
        torch.testing.assert_close(layer(x, hx, masks=masks)[0], found[0], rtol=0, atol=0)


def test_gradients_without_outputs_or_states():
    """Only the last memory is used, or only h."""
    with pytest.MonkeyPatch.context() as patch:
        emulate(patch)
        layer, reference = (VariationalLSTM(I, H, dtype=torch.float64, backend=b) for b in ("fused", "reference"))
        reference.load_state_dict(layer.state_dict())
        x = torch.randn(T, B, I, dtype=torch.float64)
        for pick in (lambda out: out[1][1].square().sum(), lambda out: out[0][2].square().sum()):
            grads = [torch.autograd.grad(pick(one(x)), list(one.parameters())) for one in (layer, reference)]
            assert_equal(list(grads[0]), list(grads[1]), 1e-12)


@pytest.mark.parametrize("scaling", ["read", "step", "inverted"])
def test_only_moons_mask_that_is_read_fits(scaling, monkeypatch):
    emulate(monkeypatch)
    layer = VariationalLSTM(I, H, dropout=DropoutRates(p_c=0.5), cell_scaling=scaling, dtype=torch.float64)
    masks = layer.sample_masks(B)
    assert is_read_mask(masks[0].z_c) == (scaling == "read")
    x = torch.randn(T, B, I, dtype=torch.float64)
    with record_backends() as used:
        layer(x, masks=masks)
        masks[0].z_c.mul_(0.5)  # no such mask any more
        layer(x, masks=masks)
    assert used == ["fused" if scaling == "read" else "torch", "torch"]


@pytest.mark.parametrize("missing", [*fused.LSTM, *fused.GRU])
def test_torch_operations_where_torch_has_no_fused_cell(missing, monkeypatch):
    """The operations are private: another version of torch may not have them."""
    real = torch.ops.aten

    class Without:
        def __getattr__(self, name):
            if name == missing:
                raise AttributeError(name)
            return getattr(real, name)

    assert fused.operations(fused.LSTM) is not None and fused.operations(fused.GRU) is not None
    monkeypatch.setattr(fused, "DEVICES", ("cpu",))
    monkeypatch.setattr(fused, "_aten", Without())
    name, names = ("lstm", fused.LSTM) if missing in fused.LSTM else ("gru", fused.GRU)
    assert fused.operations(names) is None
    with record_backends() as used:
        LAYERS[name](I, H, dropout=0.3, dtype=torch.float64)(torch.randn(T, B, I, dtype=torch.float64))
    assert used == ["torch"]
    with pytest.raises(ValueError, match=f"backend='fused': torch .* has no .*{missing}"):
        LAYERS[name](I, H, backend="fused", dtype=torch.float64)(torch.randn(T, B, I, dtype=torch.float64))


def test_empty_batches_and_cpus_take_other_backends(monkeypatch):
    with record_backends() as used:
        VariationalLSTM(I, H, dropout=0.3, dtype=torch.float64)(torch.randn(T, B, I, dtype=torch.float64))
        emulate(monkeypatch)
        VariationalLSTM(I, H, dropout=0.3, dtype=torch.float64)(torch.randn(T, 0, I, dtype=torch.float64))
    assert used == ["torch", "torch"]
    with pytest.raises(ValueError, match="backend='fused': the batch is empty"):
        VariationalLSTM(I, H, dtype=torch.float64, backend="fused")(torch.randn(T, 0, I, dtype=torch.float64))


def test_on_a_gpu_masked_layers_take_the_fused_cells(monkeypatch):
    pretend_cuda(monkeypatch)
    with record_backends() as used:
        for layer in LAYERS.values():
            layer(I, H, dropout=0.3, device="meta")(torch.randn(T, B, I, device="meta"))[0].sum().backward()
        VariationalGRU(I, H, dropout=0.3, reset_after=False, device="meta")(torch.randn(T, B, I, device="meta"))
        VariationalLSTM(I, H, gate_activation="hard_sigmoid", device="meta")(torch.randn(T, B, I, device="meta"))
    assert used == ["fused", "fused", "torch", "torch"]
