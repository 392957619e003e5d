"""Packed sequences are computed on the rows that have not ended: equal to the reference, without memory for padding."""

from functools import partial

import pytest
import torch
from helpers.fused_cells import emulate
from helpers.variants import VARIANTS
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pack_sequence

from varrnn import DropoutRates, VariationalGRU, VariationalLSTM, VariationalRNN
from varrnn.kernels import c_call, c_library, matmul, record_backends
from varrnn.kernels.step_rows import StepRows

I, H = 5, 7
CELLS = {
    "lstm": VariationalLSTM,
    "gru": VariationalGRU,
    "gru_before": partial(VariationalGRU, reset_after=False),
    "rnn": VariationalRNN,
}
PAIRS = [(c, v) for c in CELLS for v in VARIANTS if c == "lstm" or not VARIANTS[v].p_c]
LENGTHS = [3, 9, 1, 6, 6, 2]
needs_c = pytest.mark.skipif(c_library.get_library() is None, reason=c_library.load_status()[1])


def pack(lengths: list[int], inputs: int = I, dtype: torch.dtype = torch.float64) -> PackedSequence:
    packed = pack_sequence([torch.randn(n, inputs, dtype=dtype) for n in lengths], enforce_sorted=False)
    return packed._replace(data=packed.data.requires_grad_())


def states(layer: nn.Module, batch: int, dtype: torch.dtype) -> tuple[Tensor, ...]:
    shape = (layer.num_layers * layer.directions, batch, layer.hidden_size)
    return tuple(torch.randn(shape, dtype=dtype, requires_grad=True) for _ in range(layer.cell.num_states))


def results(layer: nn.Module, x: PackedSequence, hx: tuple[Tensor, ...], masks: object) -> list[Tensor]:
    """Outputs, final states, and the gradients of everything from a loss that uses all of them."""
    out, final = layer(x, hx if len(hx) > 1 else hx[0], masks=masks)
    final = final if isinstance(final, tuple) else (final,)
    weight = torch.linspace(-1, 1, out.data.numel(), dtype=out.data.dtype).view_as(out.data)
    loss = (out.data * weight).sum() + sum((h * h).sum() for h in final)
    return [out.data, *final, *torch.autograd.grad(loss, [x.data, *hx, *layer.parameters()])]


def assert_same(cell: str, rates: DropoutRates, backend: str, dtype: torch.dtype, lengths: list[int], units: int = H):
    """Two layers in both directions on ``backend`` and on the reference."""
    options = {"dropout": rates, "dtype": dtype, "bidirectional": True}
    layer, reference = (CELLS[cell](I, units, 2, backend=name, **options) for name in (backend, "reference"))
    reference.load_state_dict(layer.state_dict())
    x, hx, masks = (
        pack(lengths, I, dtype),
        states(layer, len(lengths), dtype),
        layer.sample_masks(len(lengths), max(lengths)),
    )
    with record_backends() as used:
        found = results(layer, x, hx, masks)
    assert used == [backend] * 4
    tolerance = 1e-11 if dtype == torch.float64 else 3e-5
    for one, other in zip(found, results(reference, x, hx, masks), strict=True):
        torch.testing.assert_close(one, other, rtol=tolerance, atol=tolerance * (1 + other.abs().max().item()))


@pytest.mark.costly
@pytest.mark.parametrize("rows", [1024, 4], ids=["one_chunk", "many_chunks"])
@pytest.mark.parametrize(("cell", "variant"), PAIRS)
def test_torch_operations_equal_the_reference(cell, variant, rows, monkeypatch):
    monkeypatch.setattr(matmul, "CHUNK_ROWS", rows)
    assert_same(cell, VARIANTS[variant], "torch", torch.float64, LENGTHS)


@pytest.mark.costly
@needs_c
@pytest.mark.parametrize("rows", [512, 4], ids=["one_chunk", "many_chunks"])
@pytest.mark.parametrize(("cell", "variant"), PAIRS)
def test_c_equals_the_reference(cell, variant, rows, monkeypatch):
    monkeypatch.setattr(c_call, "CHUNK_ROWS", rows)
    assert_same(cell, VARIANTS[variant], "c", torch.float32, LENGTHS, units=35)


@pytest.mark.parametrize("cell", ["lstm", "gru", "rnn"])
@pytest.mark.parametrize("variant", ["none", "naive"])
def test_builtin_equals_the_reference(cell, variant):
    assert_same(cell, VARIANTS[variant], "builtin", torch.float64, LENGTHS)


@pytest.mark.parametrize("variant", ["tied", "untied_per_step"])
@pytest.mark.parametrize("cell", ["lstm", "gru"])
def test_fused_equals_the_reference(cell, variant, monkeypatch):
    emulate(monkeypatch)
    assert_same(cell, VARIANTS[variant], "fused", torch.float64, LENGTHS)


@needs_c
@pytest.mark.parametrize("cell", CELLS)
def test_threads_share_the_rows_of_every_chunk(cell, monkeypatch):
    """Threads share the rows evenly, also where one sequence is as long as all others; the sums stay the same."""
    monkeypatch.setattr(c_call, "CHUNK_ROWS", 16)
    monkeypatch.setattr(c_library, "MIN_UNITS_PER_THREAD", 1)
    layer, before, found = CELLS[cell](I, 40, dropout=VARIANTS["untied"], backend="c"), torch.get_num_threads(), []
    x, masks = pack([40, 9, 8, 8, 5, 2, 1], I, torch.float32), layer.sample_masks(7)
    hx = states(layer, 7, torch.float32)
    try:
        for threads in (1, 2, 5):
            torch.set_num_threads(threads)
            found.append(results(layer, x, hx, masks))
    finally:
        torch.set_num_threads(before)
    for others in found[1:]:
        assert all(torch.equal(one, other) for one, other in zip(found[0], others, strict=True))


def allocated(call) -> int:
    """Bytes of all tensors that a call allocates, freed or not."""
    call()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as seen:
        call()
    return sum(max(0, event.self_cpu_memory_usage) for event in seen.events())


LONG_AND_SHORT = [100] + [1] * 127  # lengths


@pytest.mark.costly
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("backend", [pytest.param("c", marks=needs_c), "torch", "auto"])
@pytest.mark.parametrize("cell", ["lstm", "gru", "rnn"])
def test_memory_is_that_of_the_rows(cell, backend, training):
    """One long sequence among many short ones: padded, its h alone would be 3 MB and the rest many times that."""
    lengths, size = LONG_AND_SHORT, 64
    padded = max(lengths) * len(lengths) * size * 4
    layer = CELLS[cell](size, size, dropout=DropoutRates(p_W=0.2, p_U=0.2), backend=backend)
    x, masks = pack(lengths, size, torch.float32), layer.sample_masks(len(lengths))

    def call() -> None:
        with torch.set_grad_enabled(training):
            out = layer(x, masks=masks)[0].data
            if training:
                out.sum().backward()

    # every row takes part in a few buffers of up to 4 x 64 numbers
    assert sum(lengths) * size * 4 < allocated(call) < padded


@pytest.mark.slow
def test_memory_of_a_padded_batch_is_detected():
    lengths, size = LONG_AND_SHORT, 64
    layer = VariationalRNN(size, size, backend="reference")
    x = pack(lengths, size, torch.float32)
    assert allocated(lambda: layer(x)) > max(lengths) * len(lengths) * size * 4


def test_rows():
    x = pack([2, 4, 1])
    rows = StepRows(x.data, x.batch_sizes)
    assert (rows.steps, rows.batch, rows.total) == (4, 3, 7)
    assert rows.sizes == [3, 2, 1, 1] and rows.begins == [0, 3, 5, 6, 7]
    assert rows.lengths.tolist() == [4, 2, 1] and rows.last_index().tolist() == [6, 4, 2]
    assert rows.reversed_index().tolist() == [6, 4, 2, 5, 1, 3, 0]
    assert rows.chunks(3) == [(0, 1), (1, 3), (3, 4)] and rows.chunks(1) == [(0, 1), (1, 2), (2, 3), (3, 4)]
    assert torch.equal(rows.unpad(rows.pad(x.data)), x.data)
    z = torch.arange(12.0).view(4, 1, 3, 1)
    assert rows.mask(z, 0, 4).flatten().tolist() == [0, 1, 2, 3, 4, 6, 9]
    assert rows.mask(z[:1], 1, 3).flatten().tolist() == [0, 1, 0]
    first = torch.full((3, I), -1.0).double()
    before = rows.previous(x.data, first, 0, 4)
    assert torch.equal(before, torch.cat([first, x.data[:2], x.data[3:4], x.data[5:6]]))
