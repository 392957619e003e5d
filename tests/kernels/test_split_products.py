"""precision=high on a CPU with AMX: products of sums of two bfloat16 numbers, close to the same call in float32.

Without AMX, but with AVX512 and bfloat16, the tests emulate the tile registers (emulated_tiles.h).
"""

import ctypes
import functools
import os
import shlex
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
import torch
from torch import Tensor

from varrnn import DropoutRates, VariationalGRU, VariationalLSTM, VariationalRNN
from varrnn.kernels import c_library
from varrnn.kernels.softmax import target_log_probabilities

CPU_FLAGS = f"flags\t\t: fpu {' '.join(sorted(c_library.SPLIT_CPU_FLAGS))}\n"
TILE_FLAGS = {"amx_tile", "amx_bf16"}
needs_split_products = pytest.mark.usefixtures("split_products")
TOLERANCE = 1e-4  # of the largest number of a tensor; the products' own error is 2^-16 = 1.5e-5 of theirs

LAYERS = {
    "lstm": VariationalLSTM,
    "gru": VariationalGRU,
    "gru reset before": functools.partial(VariationalGRU, reset_after=False),
    "rnn": VariationalRNN,
}
RATES = {
    "none": DropoutRates(),
    "naive": DropoutRates.naive(0.3),
    "tied": DropoutRates.variational(p_W=0.3, p_U=0.3),
    "untied": DropoutRates.variational(p_W=0.3, p_U=0.3, tied=False),
    "untied inputs": DropoutRates(p_W=0.3, per_gate=True),
    "moon": DropoutRates.moon(0.3),
}
SHAPES = [
    (7, 5, 9, 13),
    (35, 20, 65, 70),
    (5, 40, 32, 64),
    (4, 3, 33, 31),
    (3, 1, 20, 130),
    (2, 100, 40, 50),
    (1, 8, 3, 4),
]


@pytest.fixture(scope="session")
def split_status(tmp_path_factory: pytest.TempPathFactory) -> tuple[ctypes.CDLL, str]:
    library, reason = c_library.split_status()
    if library is not None:
        return library, reason
    missing = sorted(c_library.SPLIT_CPU_FLAGS - TILE_FLAGS - set(c_library.cpu_signature().split()))
    if missing or c_library.get_library() is None:
        pytest.skip(f"{reason}; emulation needs {', '.join(missing) or 'the C code'}")
    flags = (*c_library.FLAGS, *c_library.SPLIT_FLAGS, "-include", str(Path(__file__).with_name("emulated_tiles.h")))
    compiler = shlex.split(os.environ.get("CC", "cc"))
    file = c_library.build_with(compiler, tmp_path_factory.mktemp("kernels"), flags)
    return c_library.load(file, c_library.torch_openmp()), "emulated"


@pytest.fixture
def split_products(split_status: tuple[ctypes.CDLL, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(c_library, "split_status", lambda: split_status)


@pytest.fixture(autouse=True)
def _precision() -> Iterator[None]:
    yield
    torch.set_float32_matmul_precision("highest")


def compare(call: Callable[[], Sequence[Tensor]]) -> None:
    """Call it with both precisions and the same random numbers: results differ, but by less than TOLERANCE."""
    results = []
    for precision in ("highest", "high"):
        torch.set_float32_matmul_precision(precision)
        torch.manual_seed(0)
        results.append(call())
    exact, split = results
    assert any(not torch.equal(a, b) for a, b in zip(exact, split)), "both are float32"
    for index, (a, b) in enumerate(zip(exact, split)):
        assert b.shape == a.shape and (a - b).abs().max() <= TOLERANCE * a.abs().max(), index


def run_layer(
    cell: str, rates: DropoutRates, shape: tuple[int, ...], lengths: Sequence[int] = (), grad: bool = True
) -> list[Tensor]:
    """Outputs, final state and the gradients of everything."""
    steps, batch, inputs, size = shape
    layer = LAYERS[cell](inputs, size, dropout=rates)
    layer.backend = "c"
    x = torch.randn(steps, batch, inputs, requires_grad=grad)
    hidden = [torch.randn(1, batch, size, requires_grad=grad) for _ in range(1 + (cell == "lstm"))]
    packed = torch.nn.utils.rnn.pack_padded_sequence(x, torch.tensor(lengths), enforce_sorted=False) if lengths else x
    with torch.set_grad_enabled(grad):
        y, final = layer(packed, tuple(hidden) if len(hidden) > 1 else hidden[0])
        y, final = (y.data if lengths else y), (final if isinstance(final, tuple) else (final,))
        if not grad:
            return [y, *final]
        (y * torch.randn_like(y)).sum().add(sum((state * torch.randn_like(state)).sum() for state in final)).backward()
    grads = [p.grad for p in (x, *hidden, *layer.parameters())]
    assert all(g is not None for g in grads)
    return [y.detach(), *(state.detach() for state in final), *(g for g in grads if g is not None)]


def can_have(cell: str, name: str) -> bool:
    return cell == "lstm" or name != "moon"  # the others have no memory


CASES = [(cell, name) for cell in LAYERS for name in RATES if can_have(cell, name)]


@needs_split_products
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(("cell", "name"), CASES)
def test_layers(cell: str, name: str, shape: tuple[int, ...]) -> None:
    compare(functools.partial(run_layer, cell, RATES[name], shape))


@needs_split_products
@pytest.mark.parametrize("name", ["none", "untied"])
@pytest.mark.parametrize("cell", LAYERS)
def test_layers_without_gradients(cell: str, name: str) -> None:
    compare(functools.partial(run_layer, cell, RATES[name], (35, 20, 65, 70), grad=False))


@needs_split_products
@pytest.mark.parametrize("name", ["none", "tied", "untied"])
@pytest.mark.parametrize("cell", LAYERS)
@pytest.mark.parametrize("batch", [45, 70])  # two threads share the units, and the rows
def test_packed_sequences(cell: str, name: str, batch: int, monkeypatch: pytest.MonkeyPatch) -> None:
    lengths = [1 + k % 9 for k in range(batch)]
    monkeypatch.setattr(c_library, "MIN_UNITS_PER_THREAD", 0)
    compare(functools.partial(run_layer, cell, RATES[name], (9, batch, 33, 40), lengths))


@needs_split_products
@pytest.mark.parametrize("shape", [(1, 3, 2), (20, 30, 50), (33, 64, 257), (5, 17, 1030), (800, 40, 300), (40, 7, 40)])
def test_the_loss(shape: tuple[int, int, int]) -> None:
    rows, size, words = shape

    def call() -> list[Tensor]:
        x, weight, bias = (torch.randn(*s, requires_grad=True) for s in ((rows, size), (words, size), (words,)))
        out = target_log_probabilities(x, weight, bias, torch.randint(words, (rows,)))
        out.sum().backward()
        with torch.no_grad():
            again = target_log_probabilities(x, weight, bias, torch.randint(words, (rows,)))
        return [out.detach(), again, *(p.grad for p in (x, weight, bias) if p.grad is not None)]

    compare(call)


@needs_split_products
@pytest.mark.parametrize("name", ["none", "untied"])
@pytest.mark.parametrize("cell", LAYERS)
def test_the_bits_do_not_depend_on_threads(cell: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither on how threads share the work: by rows, or by units."""
    torch.set_float32_matmul_precision("high")
    results, before = [], torch.get_num_threads()
    try:
        for threads, height in ((1, 0), (2, 0), (2, 1000), (3, 1000)):
            monkeypatch.setattr("varrnn.kernels.c_call.SPLIT_TILE_ROWS", height)
            torch.set_num_threads(threads)
            torch.manual_seed(0)
            results.append(run_layer(cell, RATES[name], (20, 43, 70, 100)))
    finally:
        torch.set_num_threads(before)
    assert all(torch.equal(a, b) for other in results[1:] for a, b in zip(results[0], other))


@needs_split_products
def test_numbers_that_are_not_finite_stay_visible() -> None:
    torch.set_float32_matmul_precision("high")
    for bad in (float("nan"), float("inf"), -float("inf")):
        layer, x = VariationalLSTM(40, 40), torch.randn(3, 40, 40)
        layer.backend = "c"
        with torch.no_grad():
            layer.weight_ih_l0[0, 0] = bad
        assert not layer(x)[0].isfinite().all()


@needs_split_products
def test_an_empty_batch() -> None:
    torch.set_float32_matmul_precision("high")
    assert c_library.uses_split_products()
    y, *_, grad_w_ih, _, _, _ = run_layer("lstm", RATES["untied"], (3, 0, 4, 5))
    assert y.shape == (3, 0, 5) and not grad_w_ih.any()


def status_with(monkeypatch: pytest.MonkeyPatch, flags: str) -> tuple[object, str]:
    monkeypatch.setattr(c_library, "cpu_signature", lambda: flags)
    return c_library.split_status.__wrapped__()


def test_a_processor_without_amx_computes_in_float32(monkeypatch: pytest.MonkeyPatch) -> None:
    status = status_with(monkeypatch, CPU_FLAGS.replace("amx_bf16 ", ""))
    if c_library.get_library() is not None:
        assert status == (None, "float32 products: the processor does not have amx_bf16")
    monkeypatch.setattr(c_library, "split_status", lambda: status)
    torch.set_float32_matmul_precision("high")
    assert c_library.get_library_for_precision() is c_library.get_library() and not c_library.uses_split_products()


@pytest.mark.skipif(c_library.get_library() is None, reason=c_library.load_status()[1])
def test_a_compiler_that_does_not_know_amx(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    compiler = tmp_path / "cc"
    compiler.write_text("#!/bin/sh\necho 'cc: error: unrecognized option -mamx' >&2; exit 1\n")
    compiler.chmod(0o755)
    monkeypatch.setenv("CC", str(compiler))
    library, reason = status_with(monkeypatch, CPU_FLAGS)
    assert library is None and reason == f"float32 products: {compiler} failed: cc: error: unrecognized option -mamx"
