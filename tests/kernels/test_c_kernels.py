"""The kernels in C against the same in torch operations: every shape of tile, every mask, every missing piece."""

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.utils.rnn import pack_sequence

from varrnn import DropoutRates, VariationalGRU, VariationalLSTM, VariationalRNN
from varrnn.kernels import c_call, c_library, cpu_cache
from varrnn.kernels.c_call import Call

CELLS = {
    "lstm": VariationalLSTM,
    "gru": VariationalGRU,
    "gru, reset before": partial(VariationalGRU, reset_after=False),
    "rnn": VariationalRNN,
    "rnn, relu": partial(VariationalRNN, nonlinearity="relu"),
    "lstm, hard": partial(VariationalLSTM, gate_activation="hard_sigmoid"),
    "gru, authors": partial(
        VariationalGRU, reset_after=False, gate_activation="hard_sigmoid", candidate_activation="sigmoid"
    ),
}
needs_c = pytest.mark.skipif(c_library.get_library() is None, reason=c_library.load_status()[1])

VARIANTS = {
    "none": DropoutRates.none(),
    "naive": DropoutRates.naive(0.4).for_layers(),
    "moon": DropoutRates.moon(0.4).for_layers(),
    "tied": DropoutRates.variational(p_W=0.3, p_U=0.4),
    "untied": DropoutRates.variational(p_W=0.3, p_U=0.4, tied=False),
    "inputs untied": DropoutRates.variational(p_W=0.3, tied=False),
    "states untied": DropoutRates.variational(p_U=0.4, tied=False),
    "every step": DropoutRates(p_W=0.3, p_U=0.4, per_step=True, per_gate=True),
    "memory at every step": DropoutRates(p_W=0.3, p_U=0.4, p_c=0.2, per_step=True, per_gate=True),
}
# (steps, batch, inputs, units): a single unit, whole tiles, ends of tiles, more rows than a chunk, more than a gradient
SHAPES = [
    (1, 1, 1, 1),
    (3, 2, 5, 7),
    (4, 12, 32, 32),
    (5, 13, 33, 40),
    (9, 25, 17, 48),
    (3, 600, 3, 16),
    (70, 20, 9, 21),
]


def states(layer: torch.nn.Module, batch: int) -> tuple[Tensor, ...]:
    return tuple(torch.randn(1, batch, layer.hidden_size) for _ in range(layer.cell.num_states))


def outcome(layer: torch.nn.Module, x: Tensor, hx: tuple[Tensor, ...], masks: object) -> list[Tensor]:
    """Outputs, final states, and every gradient."""
    layer.zero_grad()
    inputs = [t.detach().clone().requires_grad_() for t in (x, *hx)]
    out, final = layer(inputs[0], tuple(inputs[1:]) if len(hx) > 1 else inputs[1], masks=masks)
    made = (out, *final) if isinstance(final, tuple) else (out, final)
    weights = torch.Generator().manual_seed(7)
    sum((t * torch.randn(t.shape, generator=weights)).sum() for t in made).backward()
    return [t.detach() for t in made] + [t.grad for t in (*inputs, *layer.parameters())]


def close(found: list[Tensor], wanted: list[Tensor]) -> None:
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5 * (1 + other.abs().max().item()))


@needs_c
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize(
    ("cell", "variant"),
    [(c, v) for c in CELLS for v, rates in VARIANTS.items() if c.startswith("lstm") or not rates.p_c],
)
def test_equals_torch_operations(cell: str, variant: str, shape: tuple[int, int, int, int]) -> None:
    steps, batch, inputs, units = shape
    torch.manual_seed(0)
    layer = CELLS[cell](inputs, units, dropout=VARIANTS[variant])
    x, hx, masks = torch.randn(steps, batch, inputs), states(layer, batch), layer.sample_masks(batch, steps)
    with c_library.disabled():
        wanted = outcome(layer, x, hx, masks)
    layer.backend = "c"  # for one step, or without gradients, torch's own cell or layer may be chosen
    found = outcome(layer, x, hx, masks)
    close(found, wanted)
    with torch.no_grad():  # gates are not kept, and only a chunk of them exists
        again = layer(x, hx if len(hx) > 1 else hx[0], masks=masks)[0]
    assert torch.equal(again, found[0])


@needs_c
def test_the_c_code_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """If it were never called, the other tests of this file would compare torch with torch."""
    real, called = Call.run, []
    monkeypatch.setattr(Call, "run", lambda call, name: called.append(name) or real(call, name))
    for cell in CELLS.values():
        cell(4, 4, dropout=0.5)(torch.randn(3, 2, 4))[0].sum().backward()
    assert called == [f"{name.split(',')[0]}_{way}" for name in CELLS for way in ("forward", "backward")]
    assert not c_library.supports(torch.zeros(1, dtype=torch.float64))
    assert not c_library.supports(torch.zeros(1, device="meta"))
    with c_library.disabled():
        assert not c_library.supports(torch.zeros(1))


@needs_c
@pytest.mark.parametrize("cell", [name for name in CELLS if name != "gru, authors"])  # whose states are near a half
def test_tiny_states_keep_their_digits(cell: str) -> None:
    """An absolute error of 1e-7 would be all of a state of 1e-6."""
    torch.manual_seed(0)
    layer = CELLS[cell](16, 32)
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.mul_(1e-5)
    exact = CELLS[cell](16, 32, backend="reference", dtype=torch.float64)
    exact.load_state_dict(layer.state_dict())
    x = torch.randn(20, 4, 16)
    found, wanted = layer(x)[0], exact(x.double())[0]
    assert wanted.abs().max() < 1e-3
    torch.testing.assert_close(found.double(), wanted, rtol=1e-4, atol=1e-6 * wanted.abs().max().item())


def with_threads(counts: tuple[int, ...], call: Callable[[], Any]) -> list[Any]:
    """What a call returns with each number of threads."""
    before, found = torch.get_num_threads(), []
    try:
        for threads in counts:
            torch.set_num_threads(threads)
            found.append(call())
    finally:
        torch.set_num_threads(before)
    return found


def same(found: list[Tensor], wanted: list[Tensor]) -> bool:
    return all(torch.equal(one, other) for one, other in zip(found, wanted, strict=True))


@needs_c
@pytest.mark.parametrize("cell", CELLS)
def test_threads_change_nothing(cell: str) -> None:
    """Bit by bit: a row is summed in the same order by every thread."""
    torch.manual_seed(0)
    layer = CELLS[cell](30, 100, dropout=VARIANTS["untied"])
    x, hx, masks = torch.randn(20, 29, 30), states(layer, 29), layer.sample_masks(29)
    alone, *shared = with_threads((1, 2, 3), lambda: outcome(layer, x, hx, masks))
    assert all(same(found, alone) for found in shared)


@needs_c
@pytest.mark.parametrize(("batch", "variant"), [(1, "none"), (3, "tied"), (29, "memory at every step")])
@pytest.mark.parametrize("cell", CELLS)
def test_threads_that_share_the_units(cell: str, batch: int, variant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bit by bit what one thread computes, and up to rounding torch operations; also with more threads than tiles."""
    rates = VARIANTS[variant] if cell.startswith("lstm") else replace(VARIANTS[variant], p_c=0.0)
    torch.manual_seed(0)
    layer = CELLS[cell](30, 100, dropout=rates)
    x, hx, masks = torch.randn(6, batch, 30), states(layer, batch), layer.sample_masks(batch, 6)
    with c_library.disabled():
        wanted = outcome(layer, x, hx, masks)
    layer.backend = "c"
    (alone,) = with_threads((1,), lambda: outcome(layer, x, hx, masks))
    close(alone, wanted)
    monkeypatch.setattr(c_call, "share_units", lambda *_: True)
    assert all(same(found, alone) for found in with_threads((2, 9), lambda: outcome(layer, x, hx, masks)))


@needs_c
@pytest.mark.parametrize("cell", CELLS)
def test_threads_that_share_the_units_of_packed_sequences(cell: str, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    layer = CELLS[cell](30, 100, dropout=VARIANTS["untied"], backend="c")
    x, masks = pack_sequence([torch.randn(length, 30) for length in (19, 8, 8, 3, 1)]), layer.sample_masks(5)

    def gradients() -> list[Tensor]:
        layer.zero_grad()
        out = layer(x, masks=masks)[0].data
        out.square().sum().backward()
        return [out.detach(), *(p.grad for p in layer.parameters())]

    (alone,) = with_threads((1,), gradients)
    monkeypatch.setattr(c_call, "share_units", lambda *_: True)
    (shared,) = with_threads((3,), gradients)
    assert same(shared, alone)


@needs_c
def test_when_threads_share_the_units(monkeypatch: pytest.MonkeyPatch) -> None:
    """If U is larger than the last-level cache; then even a single row has several threads."""
    monkeypatch.setattr(cpu_cache, "last_level", lambda: 4 * 4 * 100 * 100)
    real, calls = Call.run, []

    def record(call: Call, name: str) -> None:
        calls.append((call.arguments.split_units, call.arguments.threads))
        real(call, name)

    monkeypatch.setattr(Call, "run", record)

    def run() -> None:
        for units, batch in ((100, 1), (101, 1), (101, 40)):
            VariationalLSTM(8, units, backend="c")(torch.randn(3, batch, 8))

    with_threads((1, 2), run)
    assert calls == [(0, 1), (0, 1), (0, 1), (0, 1), (1, 2), (1, 2)]


@needs_c
@pytest.mark.parametrize(
    ("batch", "split", "shared"),
    [(20, True, True), (63, True, True), (64, True, False), (1, True, False), (20, False, False)],
)
def test_when_threads_share_the_units_of_split_products(batch: int, split: bool, shared: bool) -> None:
    """If there are fewer rows than a tile for each of them, but enough units for two threads."""
    (found,) = with_threads((2,), lambda: c_call.share_units(torch.empty(400, 100), batch, split))
    assert found is shared


@needs_c
@pytest.mark.parametrize("cell", CELLS)
def test_size_of_the_cache_changes_nothing(cell: str) -> None:
    """Bit by bit: with a tiny cache one panel of a weight is multiplied with all rows before the next one."""
    torch.manual_seed(0)
    layer = CELLS[cell](30, 100, dropout=VARIANTS["untied"])
    x, hx, masks = torch.randn(20, 29, 30), states(layer, 29), layer.sample_masks(29)
    wanted = outcome(layer, x, hx, masks)
    with c_library.panel_cache(1):
        found = outcome(layer, x, hx, masks)
    assert all(torch.equal(one, other) for one, other in zip(found, wanted, strict=True))


@needs_c
@pytest.mark.parametrize("threads", [1, 2])
def test_denormal_numbers_are_zero_in_c_only(threads: int) -> None:
    """A gradient that vanishes over the steps becomes zero; the caller's own arithmetic keeps denormal numbers."""
    layer, before = VariationalRNN(100, 100, nonlinearity="relu", backend="c"), torch.get_num_threads()
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.zero_()
        layer.weight_hh_l0.copy_(1e-4 * torch.eye(100))
    h0 = torch.ones(1, 40, 100, requires_grad=True)
    torch.set_flush_denormal(False)
    torch.set_num_threads(threads)
    try:
        states = layer(torch.zeros(12, 40, 100), h0)[0]
        states[-1].sum().backward()
    finally:
        torch.set_num_threads(before)
    assert states[8].min().item() == pytest.approx(1e-36) and not states[9:].any()  # 1e-40 is denormal
    assert h0.grad is not None and not h0.grad.any()
    tiny = torch.full((40_000,), 1e-40)  # in torch's threads too
    assert (tiny * 0.5).all()


@pytest.mark.slow
@needs_c
def test_fewer_threads_than_asked_for() -> None:
    """OMP_THREAD_LIMIT gives one thread where two were requested; no row may be left out."""
    program = """
import torch
from varrnn import VariationalLSTM
from varrnn.kernels import c_library
from varrnn.kernels.c_call import Call
torch.set_num_threads(2)
torch.manual_seed(0)
layer = VariationalLSTM(50, 50, dropout=0.3)
x = torch.randn(5, 100, 50)
masks = layer.sample_masks(100)
found = layer(x, masks=masks)[0]
with c_library.disabled():
    assert torch.allclose(found, layer(x, masks=masks)[0], atol=1e-5)
"""
    environment = os.environ | {"OMP_THREAD_LIMIT": "1"}
    subprocess.run([sys.executable, "-c", program], env=environment, check=True, timeout=120)


@needs_c
@pytest.mark.parametrize("frozen", ["weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0"])
@pytest.mark.parametrize("cell", CELLS)
def test_frozen_weights(cell: str, frozen: str) -> None:
    torch.manual_seed(0)
    layer, x = CELLS[cell](6, 9, dropout=0.4), torch.randn(5, 3, 6)
    getattr(layer, frozen).requires_grad_(False)
    masks = layer.sample_masks(3)
    layer(x, masks=masks)[0].sum().backward()
    found = {name: p.grad for name, p in layer.named_parameters()}
    layer.zero_grad()
    with c_library.disabled():
        layer(x, masks=masks)[0].sum().backward()
    for name, p in layer.named_parameters():
        assert (found[name] is None) == (name == frozen)
        if p.grad is not None:
            torch.testing.assert_close(found[name], p.grad, rtol=1e-4, atol=1e-5)


def shuffled(t: Tensor) -> Tensor:
    """The same values, in another order in memory."""
    return t.t().contiguous().t() if t.dim() == 2 else t.repeat_interleave(2)[::2]


@needs_c
@pytest.mark.parametrize("cell", CELLS)
def test_strided_tensors(cell: str) -> None:
    """States, weights, biases and masks that are not contiguous."""
    torch.manual_seed(0)
    layer, x = CELLS[cell](8, 8, dropout=0.4), torch.randn(3, 8, 5).transpose(1, 2)
    for name, value in list(layer.named_parameters()):
        setattr(layer, name, torch.nn.Parameter(shuffled(value.detach())))
    assert not any(p.is_contiguous() for p in layer.parameters())
    hx = (torch.randn(1, 8, 5).transpose(1, 2), torch.randn(1, 1, 8).expand(1, 5, 8))[: layer.cell.num_states]
    masks = layer.sample_masks(1)
    found = outcome(layer, x, hx, masks)
    with c_library.disabled():
        close(found, outcome(layer, x, hx, masks))


@needs_c
@pytest.mark.parametrize("cell", CELLS)
def test_saved_tensors_may_come_back_with_other_strides(cell: str) -> None:
    """Hooks on saved tensors may give back the same values in another order in memory."""
    torch.manual_seed(0)
    layer, x = CELLS[cell](6, 9, dropout=0.4), torch.randn(5, 3, 6)
    hx, masks = states(layer, 3), layer.sample_masks(3)
    wanted = outcome(layer, x, hx, masks)

    def unpack(t: Tensor) -> Tensor:
        return t.transpose(-1, 0).contiguous().transpose(-1, 0)

    with torch.autograd.graph.saved_tensors_hooks(lambda t: t, unpack):
        close(outcome(layer, x, hx, masks), wanted)


@needs_c
@pytest.mark.parametrize("cell", CELLS)
def test_no_bias_and_no_gradient_of_the_inputs(cell: str) -> None:
    torch.manual_seed(0)
    layer, x = CELLS[cell](6, 9, bias=False, dropout=0.4), torch.randn(5, 3, 6)
    masks = layer.sample_masks(3)
    out, final = layer(x, masks=masks)
    final[-1].sum().backward()  # of an LSTM that is c: the outputs themselves have no gradient
    found = [p.grad.clone() for p in layer.parameters()]
    layer.zero_grad()
    with c_library.disabled():
        wanted, final = layer(x, masks=masks)
        final[-1].sum().backward()
    close([out.detach(), *found], [wanted.detach(), *(p.grad for p in layer.parameters())])


@needs_c
@pytest.mark.parametrize("value", [float("nan"), float("inf"), 1e30, -1e30])
@pytest.mark.parametrize("cell", CELLS)
def test_extreme_values(cell: str, value: float) -> None:
    """Infinity and NaN are propagated, and saturated gates saturate as torch's do."""
    layer = CELLS[cell](3, 20)
    x = torch.zeros(2, 4, 3)
    x[0, 1] = value
    found = layer(x)[0]
    with c_library.disabled():
        wanted = layer(x)[0]
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-6, equal_nan=True)


@pytest.fixture(scope="module")
def older_build() -> Any:
    """The tiles of AVX2, which this machine may not choose by itself; kept in the usual cache."""
    flags = ("-mno-avx512f", *c_library.FLAGS, "-mno-avx512f")
    return c_library.load(c_library.build_with(["cc"], c_library.cache(), flags), c_library.torch_openmp())


@pytest.mark.slow
@needs_c
@pytest.mark.parametrize("cell", CELLS)
def test_a_build_for_older_processors(cell: str, older_build: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    layer, x = CELLS[cell](33, 45, dropout=VARIANTS["untied"]), torch.randn(9, 14, 33)
    hx, masks = states(layer, 14), layer.sample_masks(14)
    with c_library.disabled():
        wanted = outcome(layer, x, hx, masks)
    monkeypatch.setattr(c_library, "get_library", lambda: older_build)
    close(outcome(layer, x, hx, masks), wanted)
