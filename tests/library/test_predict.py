"""mc_predict against a plain average: any model, any chunk, one axis for the batch."""

import math
import weakref
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from datetime import date
from itertools import pairwise

import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import pack_sequence
from torch.utils.data import DataLoader

from varrnn import (
    DropoutRates,
    SequenceDropout,
    VariationalGRU,
    VariationalLSTM,
    WordEmbedding,
    calibration,
    mc_predict,
    predict,
    uncertainty,
)
from varrnn.tasks.model import SequenceModel

pytestmark = pytest.mark.filterwarnings("ignore:.* is off, as in eval")


class Tagger(nn.Module):
    """A user's model."""

    def __init__(self, batch_first: bool = False, last_only: bool = False) -> None:
        super().__init__()
        self.words = WordEmbedding(11, 6, p_E=0.3, batch_first=batch_first)
        self.rnn = VariationalGRU(6, 8, batch_first=batch_first, dropout=0.4)
        self.out, self.last_only = nn.Sequential(nn.Dropout(0.5), nn.Linear(8, 4)), last_only

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        h, final = self.rnn(self.words(words))
        return self.out(final[0] if self.last_only else h)


def softmax(logits: torch.Tensor) -> torch.Tensor:
    return logits.softmax(-1)


@pytest.fixture
def words() -> torch.Tensor:
    return torch.randint(11, (5, 3))


@pytest.mark.parametrize("chunk", [1, 4, 7, 100])
@pytest.mark.parametrize("last_only", [False, True])
@pytest.mark.parametrize("batch_first", [False, True])
def test_mean_is_the_mean_of_the_samples(words, chunk, last_only, batch_first):
    model = Tagger(batch_first, last_only)
    inputs = words.t() if batch_first else words
    got = mc_predict(model, inputs, samples=9, chunk=chunk, apply=softmax)
    samples = list(got)
    assert len(samples) == len(got) == 9
    assert samples[0].shape == model.eval()(inputs).shape
    torch.testing.assert_close(got.mean, torch.stack(samples).mean(0))
    torch.testing.assert_close(torch.stack(samples), torch.stack(list(got)))  # the same samples again
    assert len(torch.stack(samples).unique(dim=0)) == 9


def test_the_model_and_the_random_state_stay_as_they_were(words):
    model = Tagger().train()
    model.words.eval()
    modes = [module.training for module in model.modules()]
    before = torch.get_rng_state()
    first = mc_predict(model, words, samples=3)
    assert not first.mean.requires_grad
    assert [module.training for module in model.modules()] == modes
    assert torch.equal(torch.get_rng_state(), before)
    assert not torch.equal(mc_predict(model, words, samples=3, seed=1).mean, first.mean)
    model.eval()
    assert torch.equal(model(words), model(words))  # masks are off again


def test_the_mean_of_many_samples_in_low_precision():
    """A running sum in bfloat16 stops growing when a sample is smaller than half of its last digit."""
    layer = VariationalLSTM(2, 2, dropout=0.5, dtype=torch.bfloat16)
    x = torch.ones(2, 1, 2, dtype=torch.bfloat16)
    ones = mc_predict(layer, x, samples=700, apply=torch.ones_like).mean
    assert ones.dtype == torch.bfloat16 and (ones == 1).all()


def test_classes_have_no_mean(words):
    classes = mc_predict(Tagger(), words, samples=3, apply=lambda y: y.argmax(-1))
    assert [one.dtype for one in classes] == 3 * [torch.int64]
    with pytest.raises(TypeError, match=r"samples of torch\.int64 have no mean.*apply"):
        _ = classes.mean


def test_only_our_masks_are_random(words):
    """nn.Dropout in the user's model is off, as in eval; without our masks nothing is random."""
    model = Tagger()
    model.words.p_E, model.rnn.dropout = 1e-12, DropoutRates.none()  # a rate of zero raises
    samples = list(mc_predict(model, words, samples=3))
    torch.testing.assert_close(samples[0], samples[1], rtol=1e-5, atol=1e-6)  # chunks of other sizes round differently


def test_the_samples_are_those_of_mc_dropout():
    """Closed form: a linear readout of one masked input has mean w x and variance (w x)^2 p / (1 - p)."""

    class OneInput(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.words = WordEmbedding(1, 1, p_E=0.25)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.words(x).squeeze(-1)

    model = OneInput()
    nn.init.constant_(model.words.weight, 3.0)
    got = uncertainty.regression(mc_predict(model, torch.zeros(1, 1000, dtype=torch.long), 40, 10), precision=2.0)
    assert float(got.mean.mean()) == pytest.approx(3.0, abs=0.03)
    assert float(got.epistemic.mean()) * 40 / 39 == pytest.approx(9 * 0.25 / 0.75, rel=0.03)
    torch.testing.assert_close(got.variance, got.epistemic + 0.5)


def test_sequence_model_and_other_calls():
    dropout = DropoutRates.variational(p_W=0.3, p_U=0.2, p_E=0.2, p_y=0.3, tied=False)
    for last_only, shape in ((False, (5, 3, 7)), (True, (3, 7))):
        model = SequenceModel(11, 8, 2, 7, dropout, last_only=last_only)
        assert mc_predict(model, torch.randint(11, (5, 3)), samples=5, chunk=2).mean.shape == shape
    layer = VariationalLSTM(4, 6, dropout=0.5)
    x, state = torch.randn(5, 3, 4), (torch.zeros(1, 3, 6), torch.zeros(1, 3, 6))
    a = mc_predict(layer, (x, state), samples=4, chunk=3).mean
    b = mc_predict(layer, {"input": x, "hx": state}, samples=4, chunk=3).mean
    torch.testing.assert_close(a, b)
    named = mc_predict(Tagger(), {"words": torch.randint(11, (5, 3))}, samples=4, chunk=3)  # by its own model's names
    assert named.mean.shape == (5, 3, 4)
    packed = mc_predict(layer, pack_sequence([x[:, 0], x[:3, 1]]), samples=2)
    assert packed.mean.shape == (8, 6)


def test_every_gpu_draws_separate_masks(monkeypatch):
    """Copies of a chunk on two GPUs would be the same samples; the check does not change the current device."""
    generators = tuple(torch.Generator() for _ in range(3))
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 3)
    monkeypatch.setattr(torch.cuda, "default_generators", generators)
    monkeypatch.setattr(torch.random, "fork_rng", lambda devices: nullcontext())
    monkeypatch.setattr(torch.cuda, "device", lambda _: pytest.fail("switched to a GPU"))
    with predict.fork_rng(5):
        drawn = [float(torch.rand((), generator=generator)) for generator in generators]
    assert len(set(drawn)) == 3 and drawn[0] == float(torch.rand((), generator=torch.Generator().manual_seed(5)))


@pytest.mark.cuda
def test_on_a_gpu(words):
    model = Tagger().cuda()
    before = torch.cuda.get_rng_state()
    predicted = mc_predict(model, words.cuda(), samples=5, chunk=2, apply=softmax)
    known = uncertainty.classification(predicted)
    torch.testing.assert_close(known.mean.float(), predicted.mean)
    assert known.mutual_information.is_cuda and torch.equal(torch.cuda.get_rng_state(), before)
    assert calibration.Reliability().add(known.mean, words.cuda() % 4).ece >= 0


def test_users_mistakes_are_named(words):
    with pytest.raises(ValueError, match="samples=0 must be"):
        mc_predict(Tagger(), words, samples=0)
    with pytest.raises(ValueError, match="seed=-1 must be a whole number from 0"):
        mc_predict(Tagger(), words, seed=-1)
    with pytest.raises(ValueError, match="batch_dim=-2 must be a whole number from 0"):
        mc_predict(Tagger(), words, chunk=2, batch_dim=-2)
    with pytest.raises(TypeError, match=r"takes a model, an nn\.Module, not a function"):
        mc_predict(softmax, words)
    layer, state = VariationalLSTM(4, 6, batch_first=True, dropout=0.5), (torch.zeros(1, 3, 6),) * 2
    with pytest.raises(ValueError, match="hx has shapes") as found:  # a state's first axis is that of the layers
        list(mc_predict(layer, (torch.randn(3, 5, 4), state), samples=5, chunk=2))
    assert "2 samples" in found.value.__notes__[0] and "chunk=1 always works" in found.value.__notes__[0]
    with pytest.raises(ValueError, match="no layer of varrnn"):
        mc_predict(nn.Linear(2, 2), torch.ones(1, 2))
    with pytest.raises(ValueError, match="only layers without dropout"):
        mc_predict(nn.Sequential(WordEmbedding(11, 4), VariationalLSTM(4, 6)), words)
    with pytest.raises(ValueError, match="only layers without dropout"), pytest.warns(UserWarning, match=r"p_E=0\.5"):
        mc_predict(VariationalLSTM(4, 6, dropout=DropoutRates(p_E=0.5)), torch.ones(2, 1, 4))
    with pytest.raises(ValueError, match="axis 0 of the inputs is not the batch"):
        list(mc_predict(Tagger(last_only=True), words, samples=5, chunk=4, batch_dim=0))
    with pytest.raises(TypeError, match="date needs chunk=1"):
        list(mc_predict(Optional(), (torch.ones(3, 2, 4), date.today()), samples=5, chunk=2))
    for many in (iter([words]), (words for _ in range(2)), DataLoader(words)):
        with pytest.raises(TypeError, match=f"inputs of one call, not a {type(many).__name__}: loop over its batches"):
            mc_predict(Tagger(), many)
    mixed = nn.ModuleList([VariationalLSTM(1, 1, dropout=0.5), VariationalLSTM(1, 1, batch_first=True)])
    with pytest.raises(ValueError, match="give batch_dim"):
        mc_predict(mixed, words, samples=5, chunk=2)


def test_threads_draw_the_same_samples_and_leave_everything_as_it_was(words):
    model = Tagger().eval()
    wanted, before = torch.stack(list(mc_predict(model, words, samples=20))), torch.get_rng_state()
    with ThreadPoolExecutor(4) as threads:
        for found in threads.map(lambda _: torch.stack(list(mc_predict(model, words, samples=20))), range(8)):
            assert torch.equal(found, wanted)
    assert torch.equal(torch.get_rng_state(), before) and not model.rnn.dropout_active


def test_an_output_that_is_not_a_tensor(words):
    class Named(Tagger):
        def forward(self, words: torch.Tensor) -> dict[str, torch.Tensor]:
            return {"logits": super().forward(words)}

    with pytest.raises(TypeError, match=r"Named gives a dict.*apply="):
        list(mc_predict(Named(), words, samples=2))
    assert mc_predict(Named(), words, samples=5, chunk=2, apply=lambda given: softmax(given["logits"])).mean.sum() > 0


def test_nothing_in_the_batch(words):
    assert mc_predict(Tagger(), words[:, :0], samples=5, chunk=2).mean.shape == (5, 0, 4)


class Turned(nn.Module):
    """The model takes (B, T, I), but its layer is not batch_first: the batch axis must be given."""

    def __init__(self) -> None:
        super().__init__()
        self.rnn = VariationalLSTM(4, 6, dropout=0.5)

    def forward(self, x: torch.Tensor, lengths: torch.Tensor | None = None) -> torch.Tensor:
        assert lengths is None or len(lengths) == len(x)
        return self.rnn(x.transpose(0, 1))[0].transpose(0, 1)


def test_samples_are_never_batched_along_time():
    """Parts of one long sequence would share their masks and be mistaken for samples."""
    x = torch.randn(3, 12, 4)
    with pytest.raises(ValueError, match=r"axis 1 of the inputs.*batch_dim="):
        list(mc_predict(Turned(), x, samples=5, chunk=2))
    found = list(mc_predict(Turned(), (x, torch.tensor([12, 3, 5])), samples=5, chunk=2, batch_dim=0))
    assert [tuple(one.shape) for one in found] == 5 * [(3, 12, 6)]
    assert not any(torch.equal(one, other) for one, other in pairwise(found))


class Optional(nn.Module):
    """A model whose inputs include values without a batch axis."""

    def __init__(self) -> None:
        super().__init__()
        self.rnn = VariationalLSTM(4, 6, dropout=0.5)

    def forward(self, x: torch.Tensor, *options: object, negate: bool = False) -> torch.Tensor:
        assert all(not isinstance(option, torch.Tensor) for option in options)
        return -self.rnn(x)[0] if negate else self.rnn(x)[0]


def test_inputs_that_are_not_tensors_are_passed_through():
    x = torch.randn(5, 3, 4)
    wanted = mc_predict(Optional(), x, samples=5, chunk=2)
    model = wanted._passes.model
    assert torch.equal(mc_predict(model, (x, True, None, "text", 3), samples=5, chunk=2).mean, wanted.mean)
    torch.testing.assert_close(mc_predict(model, {"x": x, "negate": True}, samples=5, chunk=2).mean, -wanted.mean)


@pytest.mark.parametrize("enforce_sorted", [False, True])
def test_packed_sequences_in_chunks(enforce_sorted):
    """Each sample comes out in the packed order of one; without dropout in effect all are the plain output."""
    x = [torch.randn(n, 4, dtype=torch.float64) for n in ((6, 4, 1) if enforce_sorted else (4, 6, 1))]
    layer = VariationalLSTM(4, 5, dropout=DropoutRates.variational(p_W=1e-12), dtype=torch.float64)
    inputs = pack_sequence(x, enforce_sorted)
    for sample in mc_predict(layer, inputs, samples=7, chunk=3):
        torch.testing.assert_close(sample, layer.eval()(inputs)[0].data)
    layer.dropout = 0.5
    assert len(mc_predict(layer, inputs, samples=7, chunk=3).stack().unique(dim=0)) == 7


def test_the_chunk_is_chosen_by_memory(words, monkeypatch):
    model = Tagger()
    prediction = mc_predict(model, words, samples=20)
    assert prediction.chunk is None
    first = prediction.stack()
    assert prediction.chunk == 19 and torch.equal(prediction.stack(), first)
    assert torch.equal(mc_predict(model, words, samples=20, chunk=19).stack(), first)
    monkeypatch.setattr(predict, "CHUNK_BYTES", 3 * prediction._passes.single_bytes + 1)
    prediction = mc_predict(model, words, samples=20)
    assert len(prediction.stack().unique(dim=0)) == 20 and prediction.chunk == 3
    outputs = 4 * 15 * (6 + 8 + 8 + 8 / 5 * 3 + 4 + 4 + 4)  # at least: embedding, layer, state, dropout, linear
    assert prediction._passes.single_bytes >= outputs / 2


def test_one_sample_at_a_time_where_rows_mix(words):
    for model, inputs in ((Flat(), torch.randn(12, 3, 4)), (Turned(), torch.randn(3, 12, 4))):
        prediction = mc_predict(model, inputs, samples=5)
        assert len(prediction.stack().unique(dim=0)) == 5 and prediction.chunk == 1
        torch.testing.assert_close(prediction.stack(), mc_predict(model, inputs, samples=5, chunk=1).stack())
    mixed = nn.ModuleList([VariationalLSTM(1, 1, dropout=0.5), VariationalLSTM(1, 1, batch_first=True)])
    assert mc_predict(mixed, words, samples=5).chunk == 1

    class Broken(Tagger):
        def forward(self, words: torch.Tensor) -> torch.Tensor:
            raise ZeroDivisionError("broken")

    with pytest.raises(ZeroDivisionError, match="broken"):
        list(mc_predict(Broken(), words, samples=5))


def test_spread_and_quantiles(words):
    prediction = mc_predict(Tagger(), words, samples=31, apply=softmax)
    stacked = prediction.stack()
    assert stacked.shape == (31, 5, 3, 4)
    torch.testing.assert_close(prediction.std, stacked.std(0, correction=0))
    levels = (0.0, 0.13, 0.5, 1.0)
    torch.testing.assert_close(prediction.quantiles(levels), stacked.quantile(torch.tensor(levels), dim=0))
    torch.testing.assert_close(prediction.quantiles(0.9), stacked.quantile(0.9, dim=0))
    alone = mc_predict(Tagger(), words, samples=1)
    assert (alone.std == 0).all() and torch.equal(alone.quantiles(0.3), alone.mean)
    for wrong in (1.5, (0.2, -0.1), [[0.5]]):
        with pytest.raises(ValueError, match="must be a number from 0 to 1"):
            prediction.quantiles(wrong)


class Noise(nn.Module):
    """Predicts a mean and a log variance."""

    def __init__(self, joined: bool = False) -> None:
        super().__init__()
        self.rnn, self.out, self.joined = VariationalLSTM(4, 6, dropout=0.5), nn.Linear(6, 2), joined

    def forward(self, x: torch.Tensor) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
        out = self.out(self.rnn(x)[0])
        return out if self.joined else (out[..., 0], out[..., 1])


@pytest.mark.parametrize("chunk", [None, 1, 3])
def test_aleatoric_and_epistemic_variance(chunk):
    x, model = torch.randn(5, 3, 4), Noise()
    got = mc_predict(model, x, samples=40, chunk=chunk, log_variance=True)
    stacked = got.stack().double()
    assert stacked.shape == (40, 2, 5, 3)
    mean, log_variance = stacked.unbind(1)
    torch.testing.assert_close(got.mean, mean.mean(0))
    torch.testing.assert_close(got.epistemic, mean.var(0, correction=0))
    torch.testing.assert_close(got.aleatoric, log_variance.exp().mean(0))
    torch.testing.assert_close(got.variance, got.epistemic + got.aleatoric)
    torch.testing.assert_close(got.std, got.variance.sqrt())
    low, high = got.interval(0.9)
    torch.testing.assert_close((high - low) / got.std, torch.full_like(low, 2 * 1.6448536))
    model.joined = True
    torch.testing.assert_close(mc_predict(model, x, samples=40, chunk=chunk, log_variance=True).variance, got.variance)
    targets = torch.randn(5, 3)
    found = uncertainty.heteroscedastic(got, targets).log_likelihood
    normal = torch.distributions.Normal(mean, (log_variance / 2).exp())
    torch.testing.assert_close(found, normal.log_prob(targets.double()).logsumexp(0) - math.log(40))
    with pytest.raises(TypeError, match=r"have no quantiles.*interval"):
        got.quantiles(0.5)
    with pytest.raises(TypeError, match=r"takes \(mean, log variance\)"):
        list(mc_predict(model.rnn, x, samples=3, log_variance=True))
    gru = VariationalGRU(4, 6, dropout=DropoutRates.variational(p_W=0.5))
    with pytest.raises(TypeError, match=r"takes \(mean, log variance\).*VariationalGRU"):
        mc_predict(gru, torch.randn(1, 3, 4), samples=3, log_variance=True)  # whose state has the shape of its output


def test_a_chunk_that_fails_later_changes_no_sample_of_the_next_iteration():
    """For example, another program allocates memory during the computation."""
    model, calls = VariationalLSTM(3, 4, dropout=DropoutRates.variational(p_W=0.5)), []

    def fail(module, args):
        calls.append(1)
        if len(calls) == 4:
            raise RuntimeError("out of memory")

    model.register_forward_pre_hook(fail)
    prediction = mc_predict(model, torch.randn(5, 2, 3), samples=30, chunk=None)
    prediction.chunk = 5
    first = prediction.stack()
    assert len(calls) > 7 and torch.equal(prediction.stack(), first)


def test_unbatched_words_are_not_chunked():
    model = nn.Sequential(WordEmbedding(20, 4, p_E=0.5), nn.Linear(4, 2))
    prediction = mc_predict(model, torch.arange(6), samples=11)
    assert len(prediction.stack().unique(dim=0)) == 11 and prediction.chunk == 1


@pytest.mark.slow
def test_a_compiled_model_with_an_embedding():
    model = nn.Sequential(WordEmbedding(20, 4, p_E=0.5), VariationalLSTM(4, 3, dropout=0.5))
    compiled = torch.compile(model, backend="eager")
    assert mc_predict(compiled, torch.randint(0, 20, (5, 2)), samples=6).mean.shape == (5, 2, 3)


class Flat(nn.Module):
    """The layout of torch's word_language_model: rows (t, b) in one axis, which copies of the batch cut apart."""

    def __init__(self, batch_first: bool = False) -> None:
        super().__init__()
        self.rnn = VariationalLSTM(4, 6, batch_first=batch_first, dropout=0.5)
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        return self.rnn(x)[0].flatten(0, 1)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_model_that_mixes_rows_raises(dtype):
    x = torch.randn(12, 3, 4, dtype=dtype)
    with pytest.raises(ValueError, match=r"Flat mixes the rows .* flatten time and batch.* chunk=1"):
        list(mc_predict(Flat().to(dtype), x, samples=5, chunk=2))
    with pytest.raises(ValueError, match="LSTM mixes the rows"):
        list(mc_predict(Flat().to(dtype).rnn, x, samples=5, chunk=2, apply=lambda y: y.flatten(0, 1)))
    model = Flat(batch_first=True).to(dtype)  # rows (b, t): a copy of the batch stays in one piece
    samples = list(mc_predict(model, x, samples=5, chunk=2))
    assert [tuple(one.shape) for one in samples] == 5 * [(36, 6)]
    assert int(model.calls) == 3  # the check for shared rows leaves no state


def test_a_model_that_is_random_in_eval_is_not_mistaken_for_one_that_mixes_rows():
    class Noisy(Turned):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.rnn(x + torch.randn_like(x))[0]

    assert len(list(mc_predict(Noisy(), torch.randn(12, 3, 4), samples=5, chunk=2))) == 5


def test_memory_does_not_grow_with_samples():
    """How many outputs of a model are alive when the next one is made."""
    alive: weakref.WeakSet[torch.Tensor] = weakref.WeakSet()
    most = 0

    def count(output: torch.Tensor) -> torch.Tensor:
        nonlocal most
        p = output.softmax(-1)
        alive.add(p)
        most = max(most, len(alive))
        return p

    layer = VariationalLSTM(2, 2, dropout=0.5)
    for chunk in (1, 7):
        uncertainty.classification(mc_predict(layer, torch.ones(3, 1, 2), samples=60, chunk=chunk, apply=count))
        assert most <= 2 if chunk == 1 else 4  # the check for mixed rows compares up to three


class SharedQueries(nn.Module):
    """Dropout on learned queries, which have no batch axis: one mask serves all rows of the batch."""

    def __init__(self, drop: nn.Module) -> None:
        super().__init__()
        self.rnn = VariationalLSTM(3, 4, dropout=DropoutRates.variational(p_W=0.01))
        self.queries, self.drop = nn.Parameter(torch.randn(6, 1, 4)), drop

    def forward(self, x):
        return self.rnn(x)[0][-1] @ self.drop(self.queries)[:, 0].t()


@pytest.mark.parametrize(("drop", "also"), [(SequenceDropout(0.5), None), (nn.Dropout(0.5), nn.Dropout)])
def test_samples_of_a_chunk_share_no_mask_on_a_tensor_without_batch(drop, also):
    model, x = SharedQueries(drop), torch.randn(5, 2, 3)
    prediction = mc_predict(model, x, samples=30, also=also)
    samples = prediction.stack()
    assert prediction.chunk == 1 and len(samples.round(decimals=1).unique(dim=0)) > 5
    with pytest.raises(ValueError, match="a tensor without a batch axis"):
        _ = mc_predict(model, x, samples=30, also=also, chunk=10).mean
    usual = mc_predict(nn.Sequential(model.rnn, First(), SequenceDropout(0.5), nn.Dropout(0.5)), x, 30, also=also or ())
    assert usual.mean is not None and usual.chunk == 29, "ordinary dropout does not prevent chunks"


class First(nn.Module):
    def forward(self, outputs):
        return outputs[0]


def test_masks_of_one_unit_are_masks_too():
    """Of a layer with one input; a factor of one for all units is no dropout."""

    class Shared(nn.Module):
        def __init__(self, mask):
            super().__init__()
            self.rnn, self.mask = VariationalLSTM(1, 4, dropout=DropoutRates.variational(p_W=0.5)), mask

        def forward(self, x):
            (masks,) = self.rnn.sample_masks(x.shape[1])
            return self.rnn(x, masks=masks._replace(z_x=self.mask))[0]

    x = torch.randn(5, 2, 1)
    with pytest.raises(ValueError, match="a mask of one row"):
        _ = mc_predict(Shared(torch.full((1, 1, 1, 1), 2.0)), x, 4, chunk=3).mean
    assert mc_predict(Shared(torch.ones(1, 1, 1, 1)), x, 4, chunk=3).mean.shape == (5, 2, 4)


def test_layers_may_be_called_with_keywords_in_any_order():
    class Keywords(nn.Module):
        def __init__(self):
            super().__init__()
            self.rnn = VariationalLSTM(3, 4, dropout=DropoutRates.variational(p_W=0.5))

        def forward(self, x):
            zeros = x.new_zeros(1, x.shape[1], 4)
            return self.rnn(hx=(zeros, zeros), input=x)[0]

    assert mc_predict(Keywords(), torch.randn(5, 2, 3), samples=4).mean.shape == (5, 2, 4)


def test_infinite_outputs_have_a_mean():
    """For example masked logits."""
    layer, x = VariationalLSTM(3, 4, dropout=DropoutRates.variational(p_W=0.5)), torch.randn(5, 2, 3)
    hidden = torch.tensor([True, False, False, False])
    prediction = mc_predict(layer, x, samples=6, apply=lambda out: out.masked_fill(hidden, -math.inf))
    torch.testing.assert_close(prediction.mean, prediction.stack().mean(0))
    assert bool((prediction.mean[..., 0] == -math.inf).all()) and bool(prediction.std[..., 1:].isfinite().all())
