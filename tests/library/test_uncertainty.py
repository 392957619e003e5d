"""Uncertainty and calibration against closed forms, a plain average, and torchmetrics."""

import math

import pytest
import torch
from torch import nn
from torchmetrics.functional import kl_divergence
from torchmetrics.functional.classification import multiclass_calibration_error
from torchmetrics.functional.text import perplexity

from varrnn import calibration, uncertainty


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


def test_samples_with_a_graph_are_not_kept():
    """As in a user's loop under mc_dropout: the graphs of a hundred passes would stay in memory."""
    p = torch.randn(4, 3, requires_grad=True).softmax(-1)
    found = uncertainty.Classification().add(p).add(p)
    spread = uncertainty.Regression(1.0, torch.zeros(4, 3)).add(p).add(p)
    reliability = calibration.Reliability().add(p, torch.zeros(4, dtype=torch.long))
    for tensor in (found.mean, found.mutual_information, spread.mean, spread.log_likelihood, reliability.confidence):
        assert not tensor.requires_grad
    assert uncertainty.fit_precision([p, p], torch.rand(4, 3)) > 0


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


@pytest.mark.slow
def test_fitted_precision_is_that_of_the_noise():
    """One sample: the likelihood is a normal's, whose best precision is one over the mean squared error."""
    mean = torch.randn(5000)
    targets = mean + 0.3 * torch.randn(5000)
    assert uncertainty.fit_precision([mean], targets) == pytest.approx(1 / 0.09, rel=0.1)
    spread = [mean + 0.3 * torch.randn(5000) for _ in range(100)]  # samples that include the noise
    assert uncertainty.fit_precision(spread, targets) > 3 / 0.09
    with pytest.raises(ValueError, match="targets of shape"):
        uncertainty.fit_precision([mean], targets[:, None])


@pytest.mark.parametrize("values", [[-0.5, 1.5], [0.2, 0.2], [2.0, 3.0], [math.nan, 1.0]])
def test_logits_raise(values):
    with pytest.raises(ValueError, match=r"not probabilities.*apply=lambda y: y.softmax\(-1\)"):
        uncertainty.classification([torch.tensor([[0.5, 0.5], values])])


def test_logits_raise_at_the_second_try_too():
    """A cell of a notebook is run again."""
    result, logits = uncertainty.Classification(), torch.tensor([2.0, -1.0])
    for _ in range(2):
        with pytest.raises(ValueError, match="probabilities"):
            result.add(logits)
    assert result.add(logits.softmax(-1)).samples == 1


def test_half_precision_probabilities_are_probabilities():
    p = torch.randn(20, 10_000).softmax(-1)
    for dtype in (torch.float16, torch.bfloat16):
        uncertainty.classification([p.to(dtype)])


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_equal_samples_of_any_precision_have_no_mutual_information(dtype):
    p = torch.randn(20, 100).softmax(-1).to(dtype)
    for got in (uncertainty.classification([p] * 3), uncertainty.Classification().add(p.expand(3, -1, -1), 0)):
        torch.testing.assert_close(got.mean, p.double())
        torch.testing.assert_close(got.predictive_entropy, got.expected_entropy)
        assert float(got.mutual_information.max()) < 1e-12


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


def test_calibration_raises_for_logits():
    logits, targets = 3 * torch.randn(100, 4), torch.randint(4, (100,))
    for measure in (calibration.Reliability().add, calibration.nll, calibration.brier):
        with pytest.raises(ValueError, match="not probabilities"):
            measure(logits, targets)


def test_padded_positions_raise():
    """Counted as wrong predictions, padded positions would make any model look overconfident."""
    p, target = torch.randn(10, 4).softmax(-1), torch.randint(4, (10,))
    for padding in (-100, -1, 4):
        target[3] = padding
        for measure in (calibration.Reliability().add, calibration.nll, calibration.brier):
            with pytest.raises(ValueError, match=rf"targets from .*{padding}.* drop padded positions first"):
                measure(p, target)
    real = target < 4
    assert calibration.Reliability().add(p[real], target[real]).counts.sum() == 9
    calibration.nll(p[:0], target[:0])


def test_one_distribution_alone_and_no_bins():
    assert calibration.Reliability().add(torch.tensor([0.2, 0.8]), torch.tensor(1)).ece == pytest.approx(0.2)
    for bins in (0, -1, 2.5, True):
        with pytest.raises(ValueError, match=f"bins={bins} must be a whole number from 1"):
            calibration.Reliability(bins)


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
    certain = torch.zeros(4)
    assert calibration.coverage(certain, certain, torch.tensor([0.0, 0.0, 0.0, 1.0]), [0.5]).tolist() == [0.75]
