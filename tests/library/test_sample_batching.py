"""Batched samples: which rows count as equal."""

import pytest
import torch
from helpers import processes
from torch import nn

from varrnn import DropoutRates, VariationalLSTM, WordEmbedding, mc_predict, sample_batching


def test_reduced_precision_is_not_mistaken_for_mixed_rows():
    wanted, model = torch.randn(20, 30), nn.Linear(1, 1)
    mixed, rounded = wanted.roll(1, 0), wanted * 1.002

    def accepts(found, like=wanted, by=model):
        return sample_batching.allclose(found, like, by)

    assert not accepts(rounded) and not accepts(mixed)
    assert accepts(rounded, by=nn.Linear(1, 1).bfloat16())
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert accepts(wanted * 1.02) and not accepts(mixed)
    torch.set_float32_matmul_precision("high")
    try:
        assert accepts(rounded) and not accepts(mixed) and not accepts(rounded.double(), wanted.double())
    finally:
        torch.set_float32_matmul_precision("highest")


class Handed(nn.Module):
    """Draws masks of `rows` rows and passes them to its layers."""

    def __init__(self, rows: int, which: str, batch_first: bool = False) -> None:
        super().__init__()
        self.words = WordEmbedding(11, 6, p_E=0.5, batch_first=batch_first)
        self.rnn = VariationalLSTM(6, 8, dropout=0.5, batch_first=batch_first)
        self.rows, self.which = rows, which

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        batch = words.shape[0 if self.words.batch_first else 1] if self.rows == 0 else self.rows
        if not self.rnn.dropout_active or self.which == "none":
            return self.rnn(self.words(words))[0]
        if self.which == "masks":
            return self.rnn(self.words(words), None, self.rnn.sample_masks(batch))[0]
        if self.which == "types":
            return self.rnn(self.words(words, self.words.sample_type_mask(batch)))[0]
        one = words[:1] if self.words.batch_first else words[:, :1]
        return self.rnn(self.words(words, mask=self.words.sample_mask(one if self.rows else words)))[0]


@pytest.mark.parametrize("batch_first", [False, True])
@pytest.mark.parametrize("which", ["masks", "types", "occurrences"])
def test_a_mask_that_all_samples_of_a_pass_would_share_raises(which, batch_first):
    words = torch.randint(11, (7, 3))
    for rows, chunk in ((0, 4), (1, 1)):
        samples = list(mc_predict(Handed(rows, which, batch_first), words, samples=9, chunk=chunk))
        assert len({tuple(one.flatten().tolist()) for one in samples}) == 9
    with pytest.raises(ValueError, match="was given a mask of one row, which all samples of a pass would share"):
        list(mc_predict(Handed(1, which, batch_first), words, samples=9, chunk=4))


def test_a_mask_of_ones_may_be_shared_by_all_samples():
    class Ones(Handed):
        def forward(self, words: torch.Tensor) -> torch.Tensor:
            return self.rnn(self.words(words), masks=self.rnn.mean_masks())[0]

    model = Ones(0, "none")
    for rnn in (model.rnn, VariationalLSTM(6, 8, dropout=DropoutRates(p_c=0.5), cell_scaling="step")):
        model.rnn = rnn
        assert len(list(mc_predict(model, torch.randint(11, (7, 3)), samples=5, chunk=4))) == 5


def test_random_numbers_in_apply_are_repeated_and_the_random_state_is_restored():
    before = torch.get_rng_state()
    drawn = mc_predict(Handed(0, "none"), torch.randint(11, (7, 3)), 5, 2, apply=lambda y: y + torch.randn_like(y))
    torch.set_rng_state(before)
    for one, again in zip(drawn, drawn, strict=True):
        assert torch.equal(one, again)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(torch.backends.cuda.matmul, "fp32_precision"), reason="an older torch")
def test_torchs_newer_option_for_tf32_is_supported():
    """After it has been set, reading the older options raises; in a separate process, since it cannot be undone."""
    code = """
import torch
from varrnn import VariationalLSTM, mc_predict
torch.backends.cuda.matmul.fp32_precision = "tf32"
model = VariationalLSTM(3, 4, dropout=0.5)
print(mc_predict(model, torch.randn(5, 2, 3), samples=4, chunk=2).mean.shape)
"""
    done = processes.run("-c", code)
    assert done.returncode == 0 and "torch.Size([5, 2, 4])" in done.stdout, done.stderr
