"""Masks drawn in C: bit by bit those that torch draws from the same generator, which ends in the same state."""

import pytest
import torch

from varrnn import DropoutRates, VariationalLSTM
from varrnn.dropout import sample_mask
from varrnn.kernels import bernoulli, c_library

pytestmark = pytest.mark.skipif(c_library.get_library() is None, reason=c_library.load_status()[1])


def generators() -> tuple[torch.Generator, torch.Generator]:
    return torch.Generator().manual_seed(5), torch.Generator().manual_seed(5)


@pytest.mark.parametrize("p", [0.5, 0.25, 0.1, 1 / 3, 0.999, 1e-9])
def test_they_are_the_numbers_of_torch(p: float) -> None:
    ours, torchs = generators()
    for shape in ((1,), (623,), (1, 1), (624,), (9, 4, 33, 5), (1248,), (20_000,), (7,)):
        found = bernoulli.sample(torch.empty(shape), p, ours)
        wanted = bernoulli.sample_with_torch(torch.empty(shape), p, torchs)
        assert torch.equal(found, wanted), shape
        assert torch.equal(ours.get_state(), torchs.get_state())
    assert torch.equal(torch.randn(5, generator=ours), torch.randn(5, generator=torchs))


def test_a_normal_number_that_waits_in_the_generator_is_kept() -> None:
    ours, torchs = generators()
    for generator, draw in ((ours, bernoulli.sample), (torchs, bernoulli.sample_with_torch)):
        torch.randn(1, generator=generator, dtype=torch.float64)
        draw(torch.empty(5000), 0.5, generator)
    assert torch.equal(ours.get_state(), torchs.get_state())
    assert torch.equal(torch.randn(3, generator=ours), torch.randn(3, generator=torchs))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16])
def test_layers_draw_the_same_masks_with_and_without_the_c_code(dtype: torch.dtype) -> None:
    layer = VariationalLSTM(40, 40, dropout=DropoutRates(p_W=0.3, per_step=True, per_gate=True), dtype=dtype)
    ours, torchs = generators()
    (found,) = layer.sample_masks(30, 20, generator=ours)
    with c_library.disabled():
        (wanted,) = layer.sample_masks(30, 20, generator=torchs)
    assert found.z_x.shape == (20, 4, 30, 40) and torch.equal(found.z_x, wanted.z_x)


def test_when_masks_are_drawn_in_c(monkeypatch: pytest.MonkeyPatch) -> None:
    """Large masks from a generator of the caller's; the default generator may serve other threads."""
    drawn = []
    real = bernoulli.sample
    monkeypatch.setattr(bernoulli, "sample", lambda mask, *rest: drawn.append(mask.shape) or real(mask, *rest))
    generator = torch.Generator()
    sample_mask((100, 100), 0.5, generator)
    sample_mask((100, 100), 0.5)
    sample_mask((10, 10), 0.5, generator)
    sample_mask((100, 100), 0.5, generator, dtype=torch.float64)
    assert drawn == [(100, 100)]


def test_a_torch_with_another_generator_draws_its_own_masks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bernoulli, "sample", lambda mask, *_: mask.zero_())
    assert bernoulli.knows_generator.__wrapped__() is False
    monkeypatch.setattr(bernoulli, "knows_generator", lambda: False)
    assert sample_mask((100, 100), 0.5, torch.Generator()).any()
