"""Common uses of layers (copies, autocast, compile, devices), on the kernels and the reference."""

import copy
import io
import pickle

import pytest
import torch
from helpers.variants import VARIANTS
from torch import nn

from varrnn import DropoutRates, VariationalGRU, VariationalLSTM, VariationalRNN, WordEmbedding, mc_dropout
from varrnn import dropout as rules
from varrnn.kernels import c_library

T, B, I, H = 7, 4, 5, 6
LAYERS = [VariationalLSTM, VariationalGRU, VariationalRNN]
RATES = DropoutRates.variational(p_W=0.3, p_U=0.3, tied=False)
EVERY = [(layer, v) for layer in LAYERS for v in VARIANTS if not VARIANTS[v].p_c or layer is LAYERS[0]]

every_layer = pytest.mark.parametrize("make", LAYERS)


@every_layer
def test_no_grad_and_inference_mode(make):
    layer = make(I, H, 2, dropout=RATES)
    x, masks = torch.randn(T, B, I), layer.sample_masks(B)
    expected = layer(x, masks=masks)[0]
    for mode in (torch.no_grad, torch.inference_mode):
        with mode():
            out = layer(x, masks=masks)[0]
            assert not out.requires_grad
            torch.testing.assert_close(out, expected)
            layer(x)
            layer(x, masks=layer.sample_masks(B))
    with torch.inference_mode():
        masks = layer.sample_masks(B)
    layer(x, masks=tuple(type(m)(*(z.clone() for z in m)) for m in masks))[0].sum().backward()


@every_layer
def test_copies_are_equal_and_independent(make):
    layer = make(I, H, 2, dropout=RATES, bidirectional=True)
    x = torch.randn(T, B, I)
    masks = layer.sample_masks(B)
    for copied in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
        assert torch.equal(copied(x, masks=masks)[0], layer(x, masks=masks)[0])
        assert copied.dropout == layer.dropout
        with torch.no_grad():
            copied.weight_hh_l0.zero_()
        assert layer.weight_hh_l0.abs().sum() > 0
    for copied in (copy.deepcopy(masks), pickle.loads(pickle.dumps(masks))):
        assert torch.equal(layer(x, masks=copied)[0], layer(x, masks=masks)[0])


@every_layer
@pytest.mark.slow
def test_a_copy_made_inside_mc_dropout_is_an_ordinary_one(make):
    layer, x = make(I, H, dropout=RATES).eval(), torch.randn(T, B, I)
    with mc_dropout(layer):
        copies = copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))
        assert not torch.equal(layer(x)[0], layer(x)[0])
    for copied in copies:
        assert torch.equal(copied(x)[0], layer(x)[0])
    layer.compile()  # nn.Module leaves that out of a copy, which would call the original
    assert copy.deepcopy(layer)._compiled_call_impl is None and pickle.loads(pickle.dumps(layer))


@every_layer
@pytest.mark.parametrize("backend", ["auto", "reference"])
def test_parameters_of_another_size_raise(make, backend):
    """Parameters that were resized by hand: the C code would read memory behind the state."""
    layer, larger = make(I, H, backend=backend), make(I, 8 * H)
    for name, parameter in larger.named_parameters():
        setattr(layer, name, nn.Parameter(parameter.detach().clone()))
    with pytest.raises(ValueError, match=r"weight_ih_l0 has shape .* expected"):
        layer(torch.randn(T, B, I))
    for name, parameter in make(I, H).named_parameters():
        layer = make(I, H, backend=backend)
        setattr(layer, name, nn.Parameter(parameter.detach()[:-1].clone()))
        with pytest.raises(ValueError, match=rf"{name} has shape .* expected"):
            layer(torch.randn(T, B, I))


@every_layer
def test_save_and_load_weights_only(make):
    layer, other = make(I, H, 2, dropout=RATES), make(I, H, 2)
    buffer = io.BytesIO()
    torch.save(layer.state_dict(), buffer)
    buffer.seek(0)
    other.load_state_dict(torch.load(buffer, weights_only=True))
    x = torch.randn(T, B, I)
    torch.testing.assert_close(other(x)[0], layer.eval()(x)[0])


@every_layer
def test_to_dtype(make):
    layer = make(I, H, 2, dropout=RATES).double()
    out, _ = layer(torch.randn(T, B, I, dtype=torch.float64))
    assert out.dtype == torch.float64
    out.sum().backward()
    low = layer.to(torch.bfloat16).eval()
    exact = copy.deepcopy(low).float()
    x = torch.randn(T, B, I)
    torch.testing.assert_close(low(x.bfloat16())[0].float(), exact(x)[0], atol=0.05, rtol=0.05)


@every_layer
def test_autocast(make):
    layer = make(I, H, 2, dropout=RATES)
    x, masks = torch.randn(T, B, I, requires_grad=True), layer.sample_masks(B)
    exact = layer(x, masks=masks)[0]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out, _ = layer(x, masks=masks)
        assert out.dtype == torch.bfloat16
        with pytest.raises(ValueError, match=r"got torch\.int64 input; cast one of them"):
            layer(torch.ones(T, B, I, dtype=torch.int64))
    torch.testing.assert_close(out.float(), exact, atol=0.05, rtol=0.05)
    out.float().sum().backward()
    assert x.grad.dtype == torch.float32
    assert all(parameter.grad.dtype == torch.float32 for parameter in layer.parameters())


@pytest.mark.parametrize("make", [VariationalLSTM, VariationalGRU])  # the kernels with a hand-written backward pass
@pytest.mark.parametrize("tied", [True, False])
def test_a_backward_pass_inside_autocast_keeps_its_precision(make, tied, monkeypatch):
    """The forward pass ran without autocast; more rows than one chunk, in torch operations."""
    monkeypatch.setattr(c_library, "unsupported", lambda *_: "off")
    layer = make(I, H, dropout=DropoutRates.variational(p_W=0.3, p_U=0.2, tied=tied))
    x, masks = torch.randn(9, 300, I), layer.sample_masks(300)

    def gradients(autocast: bool) -> list[torch.Tensor]:
        out = layer(x, masks=masks)[0].square().sum()
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=autocast):
            return list(torch.autograd.grad(out, list(layer.parameters())))

    for found, wanted in zip(gradients(True), gradients(False)):
        assert torch.equal(found, wanted)


@every_layer
def test_gradients_accumulate_over_two_forwards_and_backward_twice(make):
    layer = make(I, H, 2, dropout=RATES, dtype=torch.float64)
    first, second = torch.randn(2, T, B, I, dtype=torch.float64)
    masks, others = layer.sample_masks(B), layer.sample_masks(B)
    parameters = list(layer.parameters())

    def gradient(x, m):
        return torch.autograd.grad(layer(x, masks=m)[0].square().sum(), parameters)

    expected = [a + b for a, b in zip(gradient(first, masks), gradient(second, others))]
    one, two = layer(first, masks=masks)[0].square().sum(), layer(second, masks=others)[0].square().sum()
    (one + two).backward(retain_graph=True)
    for parameter, gradient_ in zip(parameters, expected):
        torch.testing.assert_close(parameter.grad, gradient_)
    (one + two).backward()
    for parameter, gradient_ in zip(parameters, expected):
        torch.testing.assert_close(parameter.grad, 2 * gradient_)


@every_layer
def test_frozen_weights_and_inputs_without_gradient(make):
    layer = make(I, H, dropout=RATES)
    x, masks = torch.randn(T, B, I, requires_grad=True), layer.sample_masks(B)
    names = [name for name, _ in layer.named_parameters()]
    full = dict(zip(["x", *names], torch.autograd.grad(layer(x, masks=masks)[0].sum(), [x, *layer.parameters()])))
    for wanted in ("x", *names):
        for name, parameter in layer.named_parameters():
            parameter.requires_grad_(name == wanted)
        source = x if wanted == "x" else x.detach()
        target = x if wanted == "x" else layer.get_parameter(wanted)
        (alone,) = torch.autograd.grad(layer(source, masks=masks)[0].sum(), target)
        torch.testing.assert_close(alone, full[wanted])
    for parameter in layer.parameters():
        parameter.requires_grad_(False)
    assert not layer(x.detach())[0].requires_grad


@every_layer
def test_second_derivatives_in_stacks_of_both_directions(make):
    slow, fast = (
        make(I, H, 2, bidirectional=True, backend=name, dtype=torch.float64) for name in ("reference", "auto")
    )
    fast.load_state_dict(slow.state_dict())
    fast.dropout = RATES
    masks, found = fast.sample_masks(B), []
    for layer in (slow, fast):
        x = torch.linspace(-1, 1, T * B * I, dtype=torch.float64).view(T, B, I).requires_grad_()
        (grad,) = torch.autograd.grad(layer(x, masks=masks)[0].sum(), x, create_graph=True)
        grad.square().sum().backward()
        found.append([x.grad, *(p.grad for p in layer.parameters() if p.grad is not None)])
    assert found[0][0].abs().sum() > 0
    for a, b in zip(*found, strict=True):
        torch.testing.assert_close(a, b)


@pytest.mark.slow
@pytest.mark.parametrize("options", [{}, {"backend": "reference"}, {"nonlinearity": "relu"}], ids=str)
def test_compiling_does_not_depend_on_the_number_of_steps(options):
    """The loop over time is not copied into the graph once per step: as many operations for 40 steps as for 5."""
    make = VariationalLSTM if "backend" in options else VariationalRNN
    sizes = []
    for steps in (5, 40):
        torch.compiler.reset()
        operations = 0

        def count(graph, _):
            nonlocal operations
            operations += len(graph.graph.nodes)
            return graph.forward

        layer, x = make(I, H, dropout=RATES, **options), torch.randn(steps, B, I)
        masks = layer.sample_masks(B)
        torch.testing.assert_close(torch.compile(layer, backend=count)(x, None, masks), layer(x, None, masks))
        sizes.append(operations)
    assert sizes[0] == sizes[1]


@every_layer
def test_weights_changed_between_forward_and_backward_are_noticed(make):
    layer = make(I, H, dropout=RATES)
    out = layer(torch.randn(T, B, I))[0]
    with torch.no_grad():
        layer.weight_hh_l0.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        out.sum().backward()


@pytest.mark.slow
@every_layer
def test_inside_a_compiled_model(make):
    torch.compiler.reset()

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer, self.head = make(I, H, dropout=RATES), nn.Linear(H, 2)

        def forward(self, x, masks):
            return self.head(self.layer(2 * x, masks=masks)[0])

    model = Model()
    compiled = torch.compile(model, backend="aot_eager")
    x, masks = torch.randn(T, B, I), model.layer.sample_masks(B)
    expected = torch.autograd.grad(model(x, masks).square().sum(), list(model.parameters()))
    actual = torch.autograd.grad(compiled(x, masks).square().sum(), list(model.parameters()))
    for a, b in zip(actual, expected):
        torch.testing.assert_close(a, b)


@pytest.mark.costly
@pytest.mark.parametrize(("make", "variant"), EVERY)
@pytest.mark.parametrize("backend", ["auto", "reference"])
def test_meta_device(make, variant, backend):
    """A tensor on the wrong device, or a synchronisation with the device, raises here."""
    layer = make(I, H, dropout=VARIANTS[variant], bidirectional=True, backend=backend, device="meta")
    x = torch.randn(3, B, I, device="meta", requires_grad=True)
    for masks in (None, layer.sample_masks(B, 3)):
        out, _ = layer(x, masks=masks)
        out.sum().backward()
        assert out.device.type == x.grad.device.type == "meta"
    layer.eval()(x)
    with torch.no_grad():
        layer.eval()(x)


def test_a_model_trains():
    torch.manual_seed(0)
    embedding, layer, head = WordEmbedding(10, 8, p_E=0.1), VariationalLSTM(8, 16, dropout=0.1), nn.Linear(16, 10)
    parameters = [p for module in (embedding, layer, head) for p in module.parameters()]
    optimizer = torch.optim.Adam(parameters, lr=0.02)
    words = (torch.arange(12).unsqueeze(1) + torch.arange(8)) % 10
    losses = []
    for _ in range(60):
        logits = head(layer(embedding(words[:-1]))[0])
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), words[1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.5 * losses[0]


def to_cuda(z):
    """A mask on the GPU; a mask of ones stays marked, so that the unmasked branch is compared too."""
    return rules.identity_mask(device="cuda", dtype=z.dtype) if rules.is_identity(z) else z.cuda()


@pytest.mark.cuda
@pytest.mark.parametrize(("make", "variant"), EVERY)
def test_cuda_equals_cpu_without_synchronising(make, variant):
    layer = make(I, H, 2, dropout=VARIANTS[variant], bidirectional=True, dtype=torch.float64)
    masks = layer.sample_masks(B, T)
    x = torch.randn(T, B, I, dtype=torch.float64)
    out = layer(x, masks=masks)[0]
    expected = torch.autograd.grad(out.square().sum(), list(layer.parameters()))
    copied, x = copy.deepcopy(layer).cuda(), x.cuda()
    masks = tuple(type(m)(*(to_cuda(z) for z in m)) for m in masks)
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        copied(x)
        out_cuda = copied(x, masks=masks)[0]
        actual = torch.autograd.grad(out_cuda.square().sum(), list(copied.parameters()))
    finally:
        torch.cuda.set_sync_debug_mode("default")
    torch.testing.assert_close(out_cuda.cpu(), out)
    for a, b in zip(actual, expected):
        torch.testing.assert_close(a.cpu(), b)


@pytest.mark.cuda
def test_cuda_fast_path_is_faster_than_the_reference():
    def seconds(layer):
        x = torch.randn(35, 20, 650, device="cuda")
        for _ in range(3):
            layer(x)[0].sum().backward()
        start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        for _ in range(10):
            layer(x)[0].sum().backward()
        stop.record()
        torch.cuda.synchronize()
        return start.elapsed_time(stop)

    fast, slow = (
        VariationalLSTM(650, 650, 2, dropout=RATES, device="cuda", backend=backend) for backend in ("auto", "reference")
    )
    assert seconds(fast) < seconds(slow)
