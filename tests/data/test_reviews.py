"""Segments as the authors cut them, synthetic reviews, a user's CSV file, the reference errors."""

import csv
from dataclasses import replace

import numpy as np
import pytest

from varrnn.data import csv_reviews, synthetic
from varrnn.data.reviews import Reviews, build_vocabulary, cut_segments, segment, shuffle_indices
from varrnn.errors import UserError
from varrnn.tasks import baselines


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def test_ids_are_ranks_plus_three_after_a_start():
    ids, rows = build_vocabulary([["b", "a", "a"], ["a", "c", "b"]], max_words=100)
    assert ids[0].tolist() == [1, 5, 4, 4] and ids[1].tolist() == [1, 4, 6, 5]
    assert rows == 7 + 3


def test_rare_words_become_oov_and_the_embedding_keeps_three_spare_rows():
    ids, rows = build_vocabulary([["b", "a", "a"], ["a", "c", "b"]], max_words=6)
    assert ids[1].tolist() == [1, 4, 2, 5] and rows == 9


def test_segments_are_padded_on_the_left_and_short_ends_are_kept():
    x, review = segment([np.arange(1, 6), np.arange(1, 5), np.array([1])], 4)
    assert x.tolist() == [[1, 2, 3, 4], [0, 0, 0, 5], [1, 2, 3, 4], [0, 0, 0, 1]]
    assert review.tolist() == [0, 0, 1, 2]


def test_the_shuffle_is_numpys_legacy_one_with_seed_0():
    assert shuffle_indices(5006)[:5].tolist() == [1261, 939, 575, 666, 2686]


def test_split_and_standardisation():
    reviews = synthetic.load(count=200)
    data = cut_segments(reviews, 8)
    total = len(data.train_x) + len(data.test_x)
    assert len(data.train_x) == int(0.8 * total) and len(data.valid_x) == 0
    raw = reviews.ratings[data.train_review]
    assert data.mean == pytest.approx(raw.mean()) and data.std == pytest.approx(raw.std(ddof=0))
    assert np.allclose(data.train_y * data.std + data.mean, raw, atol=1e-6)
    assert np.allclose(data.test_y, reviews.ratings[data.test_review])
    assert data.train_x.dtype == np.int64 and data.train_y.dtype == np.float32
    assert data.train_x.max() < data.num_words
    assert data.best_rmse is None, "a part of a review cannot reach the best error of the whole"


def test_whole_training_reviews_are_held_out_and_the_rest_is_unchanged():
    reviews = synthetic.load(count=200)
    full, data = cut_segments(reviews, 8), cut_segments(reviews, 8, hold_out=0.1)
    distinct = len(set(full.train_review.tolist()))
    assert len(set(data.valid_review.tolist())) == round(0.1 * distinct)
    assert not set(data.valid_review.tolist()) & set(data.train_review.tolist())
    assert np.array_equal(np.concatenate((data.train_x, data.valid_x)), full.train_x)
    assert np.array_equal(data.test_x, full.test_x)
    assert data.mean == pytest.approx(reviews.ratings[data.train_review].mean()) and data.mean != full.mean
    assert np.allclose(data.valid_y, reviews.ratings[data.valid_review])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"steps": 1}, r"task\.steps=1: .*my\.csv"),
        ({"max_words": 4}, r"task\.max_words=4: must be at least 5 .*my\.csv"),
        ({"hold_out": 1.0}, r"task\.hold_out=1\.0: .*my\.csv"),
    ],
)
def test_impossible_arguments_are_named(arguments, message):
    with pytest.raises(UserError, match=message):
        cut_segments(replace(synthetic.load(count=20), source="some/my.csv"), **({"steps": 30} | arguments))


def test_too_few_reviews_or_equal_ratings():
    with pytest.raises(UserError, match="at least 3"):
        cut_segments(Reviews("mine", [["a"]], np.array([0.5]), ""), 5)
    with pytest.raises(UserError, match=r"mine: all training ratings equal 0\.5"):
        cut_segments(Reviews("mine", [["a"]] * 10, np.full(10, 0.5), ""), 5)


def test_the_best_possible_error_of_synthetic_reviews_is_the_noise():
    reviews = synthetic.load(seed=3, count=4000)
    counts = np.zeros((4000, 101))
    for row, text in enumerate(reviews.texts):
        counts[row, 100] = 1
        for word in text:
            if word[0] == "s":
                counts[row, int(word[1:])] += 1
    weights = np.linalg.lstsq(counts[:3000], reviews.ratings[:3000])[0]
    error = baselines.rmse(counts[3000:] @ weights, reviews.ratings[3000:])
    assert error == pytest.approx(reviews.best_rmse, rel=0.06)
    assert reviews.ratings.std() == pytest.approx(0.18, abs=0.01)
    assert cut_segments(reviews, 30).best_rmse == 0.05


def test_synthetic_reviews_follow_the_seed():
    assert synthetic.load(seed=1).sha256 == synthetic.load(seed=1).sha256 != synthetic.load(seed=2).sha256


@pytest.mark.slow
def test_ridge_is_the_closed_form_solution():
    data = cut_segments(synthetic.load(count=300), 30, hold_out=0.1)
    bag = baselines.BagOfWords(data.train_x)
    dense = np.zeros((bag.rows, baselines.MAX_ID))
    dense[bag.row, bag.word] = 1
    assert dense[0].sum() == len({word for word in data.train_x[0].tolist() if word > 3})
    z = dense - dense.mean(0)
    weights = np.linalg.solve(z.T @ z + 30 * np.eye(len(z.T)), z.T @ data.train_y)
    expected = data.mean + data.std * (z[:5] @ weights + data.train_y.mean())
    predict = next(baselines.fit_path(data, (30.0,)))
    assert np.allclose(predict(data.train_x[:5]), expected, atol=1e-5)


def test_ridge_does_not_use_the_test_ratings(monkeypatch):
    data = cut_segments(synthetic.load(), 30)
    found = baselines.ridge(data)
    assert 0.05 < found.rmse < 0.08 < baselines.constant_rmse(data)
    spoilt = replace(data, test_y=data.test_y[::-1].copy())
    assert baselines.ridge(spoilt).penalty == found.penalty
    monkeypatch.setattr(baselines, "_ridge", lambda data: pytest.fail("not cached"))
    assert baselines.ridge(data) == found


def write_csv(path, content):
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return str(path)


def test_a_users_csv(tmp_path):
    content = 'id,rating,text\n1,4.5,"Great, isn\'t it?\nYes!"\n2,1,Bad.\n3,-2e0,so so\n'
    reviews = csv_reviews.load(write_csv(tmp_path / "mine.csv", content))
    assert reviews.texts == [["great", ",", "isn't", "it", "?", "yes", "!"], ["bad", "."], ["so", "so"]]
    assert reviews.ratings.tolist() == [4.5, 1.0, -2.0] and reviews.name == "reviews"


@pytest.mark.parametrize(
    "header",
    ["text;rating", "text\trating", "text|rating", "Text,Rating", "text, rating", '"text";"rating"', "TEXT ,\tRATING"],
)
def test_other_delimiters_and_spellings_of_the_header(tmp_path, header):
    delimiter = next(sign for sign in ",;\t|" if sign in header)
    rows = [header, f'"so, so; it\tis | ok"{delimiter} 2', f"bad{delimiter}-1.5", f"fine{delimiter}3"]
    reviews = csv_reviews.load(write_csv(tmp_path / "mine.csv", "\n".join(rows) + "\n"))
    assert reviews.ratings.tolist() == [2.0, -1.5, 3.0]
    assert reviews.texts[0] == ["so", ",", "so", ";", "it", "is", "|", "ok"]


def test_a_text_longer_than_the_csv_modules_limit(tmp_path):
    before = csv.field_size_limit()
    content = "text,rating\n" + "word " * 40_000 + ",1\nb,2\nc,3\n"
    reviews = csv_reviews.load(write_csv(tmp_path / "mine.csv", content))
    assert len(reviews.texts[0]) == 40_000 and csv.field_size_limit() == before


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "empty"),
        ("text,rating\n", "no reviews"),
        ("words,rating\na,1\n", "no column 'text'.*words"),
        ("text,stars\na,1\n", "no column 'rating'"),
        ("text,rating\na,1\nb,good\n", "line 3: rating 'good' is not a number"),
        ("text,rating\na,nan\n", "line 2: rating 'nan'"),
        ("text,rating\na\n", "line 2: rating ''"),
        ("text,rating\na,1\nGood,bad,3\n", 'line 3: 3 fields, the header has 2; quote texts with "..."'),
        ("rating,text\n3,Good, but long\n", "line 2: 3 fields, the header has 2"),
        ("text,rating\n ,1\n", "line 2: the text is empty"),
        (b"text,rating\ncaf\xe9,1\n", "line 2: byte 0xe9"),
        ('text,rating\n"open,1\n', "line 2: not a valid CSV"),
        ('text,rating\na,1\n\n\n"open,1\nb,2\n', "line 5: not a valid CSV"),
        ('"text,rating\na,1\n', "line 1: not a valid CSV"),
        ('text,rating\n\n\n"a\nb",good\n', "line 4: rating 'good'"),
        ("text,rating\ngood,1\n", r"mine\.csv: 1 reviews; at least 3"),
        ("text,rating,rating\na,1,2\n", r"2 columns 'rating'; the first line names \['text', 'rating', 'rating'\]"),
        ("text,Text,rating\na,b,2\n", "2 columns 'text'"),
        ("text,rating\na,1\nb,1e39\n", "line 3: rating 1e39 is beyond 1e\\+18"),
        ("text;rating\na;1\nb;4,5\n", "line 3: rating '4,5' is not a number"),
    ],
    ids=range(20),
)
def test_a_bad_csv_gets_one_clear_message(tmp_path, content, message):
    with pytest.raises(UserError, match=message):
        cut_segments(csv_reviews.load(write_csv(tmp_path / "mine.csv", content)), 5)
