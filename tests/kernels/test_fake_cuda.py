"""The code of a GPU on fake CUDA tensors: shapes and devices of every operation, without a GPU (`make test-fake-cuda`).

A tensor that was left on the CPU is noticed, as on a GPU. Needs a CUDA build of torch. Where the build has no fake
implementation (fused cells, fused SGD), or asks the driver (cuDNN, the engine of autograd), something else stands in:
results of the right shapes, and backward passes that are called directly.
"""

from collections import Counter

import pytest
import torch
from helpers.variants import VARIANTS
from torch._subclasses.fake_tensor import FakeTensorMode

from varrnn import VariationalGRU, VariationalLSTM, kernels
from varrnn.benchmark import candidates, launches
from varrnn.dropout import Masks
from varrnn.kernels import builtin, fused, gru, lstm
from varrnn.kernels.step_rows import StepRows
from varrnn.training import optim

pytestmark = pytest.mark.fake_cuda
T, B, I, H = 6, 3, 5, 4
EVERY = [
    (make, name, backend)
    for make in (VariationalLSTM, VariationalGRU)
    for name in VARIANTS
    for backend in ("torch", "fused")
    if make is VariationalLSTM or not VARIANTS[name].p_c
]


def assert_cuda(*tensors):
    assert tensors and all(t.device.type == "cuda" for t in tensors if t is not None)


@pytest.fixture
def fake(monkeypatch):
    """Fake tensors, a GPU's branches, and stand-ins for what only a driver can run; returns what was launched."""
    count: Counter[str] = Counter()
    cells = launches._empty_cells(count)

    def same_device(function):
        def run(*args):
            assert_cuda(*(a for a in args if isinstance(a, torch.Tensor)))
            return function(*args)

        return run

    def whole(x, hx, weights, *_):
        states = hx if isinstance(hx, tuple) else (hx,)
        assert_cuda(x, *states, *weights)
        return launches.WholeSequence.apply(count, x, len(states), *states, *weights)

    checked = {names: [same_device(one) for one in pair] for names, pair in cells.items()}
    monkeypatch.setattr(fused, "operations", checked.__getitem__)
    monkeypatch.setattr(builtin, "FUNCTIONS", dict.fromkeys(builtin.FUNCTIONS, whole))
    monkeypatch.setattr(kernels, "is_traced_or_transformed", lambda: False)
    with FakeTensorMode(allow_non_fake_inputs=True):
        yield count


def made(make, variant):
    layer = make(I, H, dropout=VARIANTS[variant], device="cuda")
    (masks,) = layer.sample_masks(B, T)
    return layer, masks, torch.randn(T, B, I, device="cuda")


@pytest.mark.parametrize(("make", "variant", "backend"), EVERY)
def test_forward_and_hand_written_backward(make, variant, backend, fake):
    layer, masks, x = made(make, variant)
    cell, weights = layer.cell, layer._weights(0, x.dtype)
    if backend == "fused" and fused.unsupported(cell, x, masks):
        pytest.skip(fused.unsupported(cell, x, masks))
    module, rows = (kernels.LSTM if make is VariationalLSTM else kernels.GRU)[backend], StepRows(x)
    h0, c0, dh = (torch.zeros(*shape, H, device="cuda") for shape in ((B,), (B,), (T, B)))
    with torch.no_grad():
        if make is VariationalLSTM:
            h, c, gates = module.run_forward(cell, x, rows, h0, c0, weights, masks, save_gates=True)
            saved = lstm.Saved(cell, x, rows, h0, c0, weights, masks, h, c, gates)
            gradients = module.run_backward(saved, dh, None, [True] * 7)
            inputs = (x, h0, c0, *weights)
        else:
            h, gates, h_n = module.run_forward(cell, x, rows, h0, weights, masks, save_gates=True)
            saved = gru.Saved(cell, x, rows, h0, weights, masks, h, gates, h_n)
            gradients = module.run_backward(saved, dh, [True] * 6)
            inputs = (x, h0, *weights)
    assert_cuda(h, gates, *gradients)
    assert [g.shape for g in gradients] == [one.shape for one in inputs] and h.shape == (T, B, H)
    assert bool(fake) == (backend == "fused")


@pytest.mark.parametrize("variant", VARIANTS)
def test_layers_choose_a_backend_of_a_gpu(variant, fake):
    layer, masks, x = made(VariationalLSTM, variant)
    with torch.no_grad(), kernels.record_backends() as used:
        out, state = layer(x, masks=(masks,))
    assert_cuda(out, *state)
    assert used[0] == "builtin" if variant in ("none", "naive") else used[0] in ("fused", "torch")


@pytest.mark.parametrize("size", ["small", "sentiment"])
def test_the_networks_of_the_paper(size, fake):
    shape = candidates.SHAPES[size]
    for dropout in candidates.variants(shape).values():
        with torch.device("cuda"):
            model = candidates.ours(shape, dropout).train()
        words = torch.zeros(shape.steps + 1, shape.batch, dtype=torch.int64, device="cuda")
        with torch.no_grad():
            features, state = model.features(words[:-1], None, model.sample_masks(words[:-1]))
            assert_cuda(features, *state)
            if not shape.last_only:
                assert_cuda(model.target_log_probabilities(features, words[1:]))


@pytest.mark.parametrize("fused_step", [True, False])
@pytest.mark.parametrize("lr", [0.5, "tensor"])
def test_sgd(fused_step, lr, fake, monkeypatch):
    """With clipping and weight decay; the one fused pass takes the rate as a tensor on the GPU."""
    calls = []

    def fused_sgd(parameters, gradients, moments, lr, **rest):
        assert_cuda(*parameters, *gradients, lr)
        calls.append(len(parameters))

    monkeypatch.setattr(torch, "_fused_sgd_", fused_sgd)
    monkeypatch.setattr(optim, "FUSED_DEVICES", ("cuda",) if fused_step else ())
    parameters = [torch.nn.Parameter(torch.randn(3, 4, device="cuda")) for _ in range(2)]
    for parameter in parameters:
        parameter.grad = torch.randn(3, 4, device="cuda")
    norm = optim.SGD(parameters, 5.0, 1e-4).step(torch.full((), 0.5, device="cuda") if lr == "tensor" else lr)
    assert_cuda(norm, *parameters)
    assert calls == ([2] if fused_step else []) and all(parameter.grad is None for parameter in parameters)


def test_a_tensor_that_was_left_on_the_cpu_is_detected(fake):
    layer, masks, x = made(VariationalLSTM, "tied")
    stray = Masks(masks.z_x, torch.ones(1, 1, B, H), masks.z_c)
    weights, zeros = layer._weights(0, x.dtype), torch.zeros(B, H, device="cuda")
    with pytest.raises(RuntimeError, match="same device"), torch.no_grad():
        kernels.LSTM["torch"].run_forward(layer.cell, x, StepRows(x), zeros, zeros, weights, stray, True)
