"""Known counts of the real corpora, and the cache; needs VARRNN_DATA."""

import os
import time

import numpy as np
import pytest

from varrnn.data import cornell, ptb
from varrnn.data.corpus import batchify, count_windows
from varrnn.data.reviews import cut_segments
from varrnn.tasks import baselines

pytestmark = [
    pytest.mark.data,
    pytest.mark.skipif(not os.environ.get("VARRNN_DATA"), reason="needs the real corpora: set VARRNN_DATA"),
]


@pytest.fixture(scope="module")
def corpus():
    return ptb.load()


@pytest.fixture(scope="module")
def reviews():
    return cornell.load()


def test_ptb_counts(corpus):
    assert (len(corpus.train), len(corpus.valid), len(corpus.test)) == (929_589, 73_760, 82_430)
    assert corpus.num_words == 10_000 == len(np.unique(corpus.train))
    assert corpus.words.index("<eos>") == 24 and corpus.words.index("<unk>") == 26
    unknown = [int((split == 26).sum()) for split in (corpus.train, corpus.valid, corpus.test)]
    assert unknown == [45_020, 3_485, 4_794]
    assert [int((split == 24).sum()) for split in (corpus.train, corpus.valid, corpus.test)] == [42_068, 3_370, 3_761]


def test_ptb_windows(corpus):
    train, valid = batchify(corpus.train, 20), batchify(corpus.valid, 20)
    assert (len(train), len(valid)) == (46_479, 3_688)
    assert [count_windows(len(train), 35), count_windows(len(train), 20)] == [1327, 2323]
    assert [count_windows(len(valid), 35), count_windows(len(valid), 20)] == [105, 184]


def test_ptb_is_ready_in_under_a_second(corpus):
    start = time.perf_counter()
    again = ptb.load()
    assert time.perf_counter() - start < 1
    assert np.array_equal(again.train, corpus.train) and again.words == corpus.words


def test_cornell_counts(reviews):
    assert len(reviews.texts) == len(reviews.ratings) == 5_006
    assert sum(map(len, reviews.texts)) == 2_153_170
    assert len({word for text in reviews.texts for word in text}) == 55_450
    assert all(text[-1] == "\n" for text in reviews.texts)
    assert reviews.ratings.mean() == pytest.approx(0.5814, abs=5e-5)
    assert reviews.ratings.std() == pytest.approx(0.1817, abs=5e-5)


TABLE = [
    (20, 88_223, 22_056, 0.59061, 0.18458, 0.19168, 0.1364),
    (50, 36_491, 9_123, 0.59036, 0.18444, 0.19187, 0.1491),
    (200, 10_620, 2_655, 0.58917, 0.18391, 0.19146, 0.1759),
    (400, 6_373, 1_594, 0.58765, 0.18320, 0.19136, 0.1743),
]


@pytest.mark.parametrize(("steps", "train", "test", "mean", "std", "constant", "first"), TABLE)
def test_cornell_segments(reviews, steps, train, test, mean, std, constant, first):
    data = cut_segments(reviews, steps)
    assert (len(data.train_x), len(data.test_x), data.num_words) == (train, test, 20_003)
    assert (round(data.mean, 5), round(data.std, 5)) == (mean, std)
    assert round(baselines.constant_rmse(data), 5) == constant
    assert round(baselines.rmse(0, data.train_y[:100]) * data.std, 4) == first
    assert int((data.train_x == 2).sum() + (data.test_x == 2).sum()) == 51_146
    assert not np.isin([3, 20_000, 20_001, 20_002], data.train_x).any()


def test_cornell_first_hundred_and_held_out(reviews):
    data = cut_segments(reviews, 200)
    assert len(set(data.train_review[:100].tolist())) == 42
    assert len(set(data.train_review.tolist()) & set(data.test_review.tolist())) <= 1
    held = cut_segments(reviews, 200, hold_out=0.1)
    assert (len(held.train_x), len(held.valid_x)) == (9_578, 1_042)
    assert np.array_equal(held.train_x[:100], data.train_x[:100])


def test_cornell_ridge(reviews, monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    found = baselines.ridge(cut_segments(reviews, 200))
    assert round(found.rmse, 3) == 0.152 and found.penalty == 100
