"""mc_predict, uncertainty and calibration against closed forms, a plain average, and torchmetrics."""

import math
import weakref

import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import pack_sequence
from torchmetrics.functional import kl_divergence
from torchmetrics.functional.classification import multiclass_calibration_error
from torchmetrics.functional.text import perplexity

import varrnn
from varrnn import Dropout, VariationalGRU, VariationalLSTM, WordEmbedding, calibration, mc_predict, uncertainty
from varrnn.model import SequenceModel


class Tagger(nn.Module):
    """Somebody's own model."""

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


def test_only_our_masks_are_random(words):
    """nn.Dropout of the user's own model is off, as in eval; without our masks nothing is random."""
    model = Tagger()
    model.words.p_E, model.rnn.dropout = 0.0, Dropout.none()
    samples = list(mc_predict(model, words, samples=3))
    torch.testing.assert_close(samples[0], samples[1], rtol=0, atol=0)


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
    assert float(got.model_variance.mean()) * 40 / 39 == pytest.approx(9 * 0.25 / 0.75, rel=0.03)
    torch.testing.assert_close(got.variance, got.model_variance + 0.5)


def test_sequence_model_and_other_calls():
    dropout = Dropout.variational(p_W=0.3, p_U=0.2, p_E=0.2, p_y=0.3, tied=False)
    for last_only, shape in ((False, (5, 3, 7)), (True, (3, 7))):
        model = SequenceModel(11, 8, 2, 7, dropout, last_only=last_only)
        assert mc_predict(model, torch.randint(11, (5, 3)), samples=5, chunk=2).mean.shape == shape
    layer = VariationalLSTM(4, 6, dropout=0.5)
    x, state = torch.randn(5, 3, 4), (torch.zeros(1, 3, 6), torch.zeros(1, 3, 6))
    a = mc_predict(layer, (x, state), samples=4, chunk=3).mean
    b = mc_predict(layer, {"x": x, "hx": state}, samples=4, chunk=3).mean
    torch.testing.assert_close(a, b)
    packed = mc_predict(layer, pack_sequence([x[:, 0], x[:3, 1]]), samples=2)
    assert packed.mean.shape == (8, 6)


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
    with pytest.raises(ValueError, match="no layer of varrnn"):
        mc_predict(nn.Linear(2, 2), torch.ones(1, 2))
    with pytest.raises(ValueError, match="is batch_dim the batch axis"):
        list(mc_predict(Tagger(last_only=True), words, samples=5, chunk=4, batch_dim=0))
    with pytest.raises(TypeError, match="PackedSequence needs chunk=1"):
        list(mc_predict(VariationalLSTM(4, 6), pack_sequence([torch.ones(2, 4)]), samples=5, chunk=2))
    mixed = nn.ModuleList([VariationalLSTM(1, 1), VariationalLSTM(1, 1, batch_first=True)])
    with pytest.raises(ValueError, match="give batch_dim"):
        mc_predict(mixed, words, samples=5, chunk=2)


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
    uncertainty.classification(mc_predict(layer, torch.ones(3, 1, 2), samples=60, apply=count))
    assert most <= 2


# ---- uncertainty -----------------------------------------------------------------------------------------------------


def test_entropies_in_closed_form():
    """Two certain samples that disagree: one bit, all of it about the model. Two that agree on 1/2: none of it."""
    disagree = uncertainty.classification([torch.tensor([[1.0, 0.0]]), torch.tensor([[0.0, 1.0]])])
    assert float(disagree.predictive_entropy) == pytest.approx(math.log(2))
    assert float(disagree.expected_entropy) == 0
    assert float(disagree.mutual_information) == pytest.approx(math.log(2))
    assert float(disagree.variation_ratio) == 0.5
    agree = uncertainty.classification([torch.tensor([[0.5, 0.5]])] * 3)
    assert float(agree.predictive_entropy) == pytest.approx(math.log(2))
    assert float(agree.mutual_information) == pytest.approx(0, abs=1e-12)
    assert float(agree.variation_ratio) == 0


def test_entropies_against_the_whole_array_and_torchmetrics():
    p = torch.randn(50, 6, 5, 9, dtype=torch.float64).softmax(-1)  # (samples, T, B, K)
    got = uncertainty.classification(p)
    mean = p.mean(0)
    torch.testing.assert_close(got.mean, mean)
    torch.testing.assert_close(got.predictive_entropy, -(mean * mean.log()).sum(-1))
    torch.testing.assert_close(got.expected_entropy, -(p * p.log()).sum(-1).mean(0))
    # mutual information is the mean divergence of a sample from the mean
    flat = p.movedim(0, 2)[0, 0]  # (samples, K)
    divergence = kl_divergence(flat, mean[0, 0].expand_as(flat), reduction="mean")
    torch.testing.assert_close(got.mutual_information[0, 0], divergence)
    winners = p.argmax(-1)
    share = (winners == winners.mode(0).values).double().mean(0)
    torch.testing.assert_close(got.variation_ratio, 1 - share)


def test_many_samples_at_once_are_the_same_sums():
    p = torch.randn(4, 7, 3, 9).softmax(-1)
    at_once = uncertainty.Classification().add(p[:, :5], sample_dim=1).add(p[:, 5:], sample_dim=1)
    one_by_one = uncertainty.classification(p.movedim(1, 0))
    assert at_once.samples == one_by_one.samples == 7
    for name in ("mean", "predictive_entropy", "expected_entropy", "mutual_information", "variation_ratio"):
        torch.testing.assert_close(getattr(at_once, name), getattr(one_by_one, name))


def test_regression_against_the_whole_array():
    y, target, tau = 1000 + torch.randn(30, 8), 1000 + torch.randn(8), 0.7
    got = uncertainty.regression(y, tau, target)
    torch.testing.assert_close(got.mean, y.double().mean(0))
    torch.testing.assert_close(got.variance, y.double().var(0, unbiased=False) + 1 / tau)
    normal = torch.distributions.Normal(y.double(), tau**-0.5)
    torch.testing.assert_close(got.log_likelihood, normal.log_prob(target.double()).logsumexp(0) - math.log(30))
    one = uncertainty.regression([torch.zeros(1)], 1.0, torch.zeros(1))
    assert float(one.log_likelihood) == pytest.approx(-0.5 * math.log(2 * math.pi))


def test_model_precision():
    assert uncertainty.model_precision(p=0.2, length_scale=2.0, data_size=100, weight_decay=0.01) == pytest.approx(1.6)
    with pytest.raises(ValueError, match="without weight decay"):
        uncertainty.model_precision(0.2, 1.0, 100, 0.0)


def test_fitted_precision_is_that_of_the_noise():
    """One sample: the likelihood is a normal's, whose best precision is one over the mean squared error."""
    mean = torch.randn(5000)
    targets = mean + 0.3 * torch.randn(5000)
    assert uncertainty.fit_precision([mean], targets) == pytest.approx(1 / 0.09, rel=0.1)
    spread = [mean + 0.3 * torch.randn(5000) for _ in range(100)]  # samples that hold the noise already
    assert uncertainty.fit_precision(spread, targets) > 3 / 0.09
    with pytest.raises(ValueError, match="targets of shape"):
        uncertainty.fit_precision([mean], targets[:, None])


@pytest.mark.parametrize("values", [[-0.5, 1.5], [0.2, 0.2], [2.0, 3.0], [math.nan, 1.0]])
def test_logits_are_refused(values):
    with pytest.raises(ValueError, match=r"not probabilities.*apply=lambda y: y.softmax\(-1\)"):
        uncertainty.classification([torch.tensor([[0.5, 0.5], values])])


def test_half_precision_probabilities_are_probabilities():
    p = torch.randn(20, 10_000).softmax(-1)
    for dtype in (torch.float16, torch.bfloat16):
        uncertainty.classification([p.to(dtype)])


def test_mistakes_in_streams():
    with pytest.raises(ValueError, match="no sample"):
        uncertainty.classification([])
    with pytest.raises(ValueError, match="no sample"):
        uncertainty.regression([], 1.0)
    with pytest.raises(ValueError, match="after samples of"):
        uncertainty.classification([torch.ones(2, 3) / 3, torch.ones(1, 3) / 3])
    with pytest.raises(ValueError, match="targets of shape"):
        uncertainty.regression([torch.ones(4, 1)], 1.0, torch.ones(4))
    with pytest.raises(ValueError, match="needs targets"):
        _ = uncertainty.regression([torch.ones(4)], 1.0).log_likelihood
    with pytest.raises(ValueError, match="precision=0"):
        uncertainty.Regression(0)


# ---- calibration -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bins", [5, 15])
def test_calibration_error_against_torchmetrics(bins):
    p, target = (2 * torch.randn(4000, 6)).softmax(-1), torch.randint(6, (4000,))
    got = calibration.Reliability(bins).add(p[:1000], target[:1000]).add(p[1000:], target[1000:])
    for ours, norm in ((got.ece, "l1"), (got.mce, "max")):
        theirs = multiclass_calibration_error(p, target, num_classes=6, n_bins=bins, norm=norm)
        assert ours == pytest.approx(float(theirs), abs=1e-5)


def test_reliability_in_closed_form():
    """A model that says .9 and is right 9 times in 10 is calibrated; one that says 1 is off by .1."""
    right = torch.tensor([True] * 9 + [False])
    calibrated = calibration.Reliability(10).add_answers(torch.full((10,), 0.9), right)
    assert calibrated.ece == pytest.approx(0, abs=1e-6)
    assert float(calibrated.accuracy[8]) == pytest.approx(0.9)  # (.8, .9]
    assert bool(calibrated.accuracy[0].isnan())
    assert calibration.Reliability(10).add_answers(torch.ones(10), right).ece == pytest.approx(0.1)
    with pytest.raises(ValueError, match="nothing has been added"):
        _ = calibration.Reliability().ece


def test_nll_and_brier():
    p, target = torch.randn(3, 8, 5).softmax(-1), torch.randint(5, (3, 8))
    theirs = perplexity(p.log(), target)
    assert float(calibration.nll(p, target).mean().exp()) == pytest.approx(float(theirs), rel=1e-5)
    one_hot = nn.functional.one_hot(target, 5)
    torch.testing.assert_close(calibration.brier(p, target), ((p - one_hot) ** 2).sum(-1))
    wrong = calibration.brier(torch.tensor([1.0, 0.0]), torch.tensor(1))
    assert float(wrong) == 2
    with pytest.raises(ValueError, match="one target each"):
        calibration.nll(p, target[0])


def test_coverage_of_a_true_normal():
    mean, variance = torch.randn(40_000), torch.rand(40_000) + 0.5
    targets = mean + variance.sqrt() * torch.randn(40_000)
    got = calibration.coverage(mean, variance, targets, [0.5, 0.95])
    torch.testing.assert_close(got, torch.tensor([0.5, 0.95], dtype=torch.float64), atol=0.01, rtol=0)
    with pytest.raises(ValueError, match="levels"):
        calibration.coverage(mean, variance, targets, [1.0])
    with pytest.raises(ValueError, match="one shape"):
        calibration.coverage(mean, variance, targets[:, None], [0.5])


def test_everything_is_exported():
    assert varrnn.mc_predict is mc_predict and varrnn.uncertainty is uncertainty
