"""Rated texts for sentiment regression, cut into segments as in the authors' code (the paper's section 5.2)."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from itertools import chain

import numpy as np

from varrnn.errors import UserError

PADDING, START, OOV = 0, 1, 2
FIRST_RANK = 3  # the most frequent word has rank 1, hence id 4; id 3 is never used
TEST_SHARE = 0.2


@dataclass
class Reviews:
    """Tokenised texts with one rating each; `best_rmse` is the lowest possible error, if it is known."""

    name: str
    texts: list[list[str]]
    ratings: np.ndarray
    sha256: str
    best_rmse: float | None = None
    source: str = ""  # the user's file, if there is one

    @property
    def where(self) -> str:
        """The name of the reviews in messages."""
        return self.source or self.name


@dataclass
class Segments:
    """Reviews cut to `steps` words. Training targets are standardised by `mean` and `std`, the others raw."""

    train_x: np.ndarray  # (N, T) int64, padded with zeros on the left
    train_y: np.ndarray  # (N,) float32
    test_x: np.ndarray
    test_y: np.ndarray
    mean: float
    std: float
    train_review: np.ndarray  # the review of each segment, an index into Reviews.texts
    test_review: np.ndarray
    num_words: int
    valid_x: np.ndarray
    valid_y: np.ndarray
    valid_review: np.ndarray
    best_rmse: float | None = None


def cut_segments(reviews: Reviews, steps: int, max_words: int = 20_000, hold_out: float = 0.0) -> Segments:
    """Shuffle the reviews, cut each into consecutive segments of `steps` words, and split 80 / 20 by segments.

    `hold_out` is the share of the training REVIEWS held out for choosing hyper-parameters: the last ones in the
    shuffled order. With 0 the training set is the authors'.
    Differs: the paper names no held-out set, and the authors' code chose on the test curve; here some of the training
    reviews can be held out (task.hold_out).
    """
    _check(reviews, steps, max_words, hold_out)
    ids, num_words = build_vocabulary(reviews.texts, max_words)
    order = shuffle_indices(len(ids))
    x, review = segment([ids[i] for i in order], steps)
    review = order[review]
    y = np.asarray(reviews.ratings, np.float64)[review]
    border = int((1 - TEST_SHARE) * len(x) + 1e-9)
    kept = border - count_held_out(review[:border], hold_out)
    if not 0 < kept <= border < len(x):
        raise UserError(
            f"{reviews.where}: {len(x)} segments are too few for train, held-out and test; give more reviews"
        )
    mean, std = _moments(reviews.where, y[:kept])
    train, valid, test = slice(0, kept), slice(kept, border), slice(border, None)
    return Segments(
        train_x=x[train],
        train_y=((y[train] - mean) / std).astype(np.float32),
        test_x=x[test],
        test_y=y[test].astype(np.float32),
        mean=mean,
        std=std,
        train_review=review[train],
        test_review=review[test],
        num_words=num_words,
        valid_x=x[valid],
        valid_y=y[valid].astype(np.float32),
        valid_review=review[valid],
        # A segment contains less information than its review: best_rmse is valid for uncut reviews only.
        best_rmse=reviews.best_rmse if len(x) == len(reviews.texts) else None,
    )


def frequent_words(texts: list[list[str]], max_words: int) -> list[str]:
    """The words that have a separate id, in the order of their ids, which start at FIRST_RANK + 1."""
    ranked = Counter(chain.from_iterable(texts)).most_common(max(0, max_words - FIRST_RANK - 1))
    return [word for word, _ in ranked]


def build_vocabulary(texts: list[list[str]], max_words: int) -> tuple[list[np.ndarray], int]:
    """Ids by descending frequency over all reviews, with a start id before each; ids >= max_words become OOV.

    Returns the ids of each review and the number of embedding rows.
    Differs: among equally frequent words the authors' order was that of a Python 2 dict; ours is first appearance.
    """
    counts = Counter(chain.from_iterable(texts))
    rank = {word: i + FIRST_RANK + 1 for i, (word, _) in enumerate(counts.most_common())}
    flat = np.fromiter((rank[word] for word in chain.from_iterable(texts)), np.int64, counts.total())
    flat[flat >= max_words] = OOV
    ends = np.cumsum([len(text) for text in texts])
    ids = [np.concatenate(([START], part)) for part in np.split(flat, ends[:-1])]
    # Three rows more than the ids need, as in the authors' code; they get no gradient from data.
    return ids, min(max_words, len(rank) + FIRST_RANK + 1) + 3


def shuffle_indices(count: int) -> np.ndarray:
    """The order of reviews in the authors' code: numpy's legacy generator, seed 0."""
    return np.random.RandomState(0).permutation(count)


def segment(ids: list[np.ndarray], steps: int) -> tuple[np.ndarray, np.ndarray]:
    """Consecutive segments of `steps` ids, including a short last one: (N, T), and the index of each segment's text.

    Padding is on the left and is an ordinary word for the network: the authors' code does not mask it.
    """
    pieces = [-(-len(text) // steps) for text in ids]
    review = np.repeat(np.arange(len(ids)), pieces)
    x = np.full((len(review), steps), PADDING, np.int64)
    row = 0
    for text in ids:
        for start in range(0, len(text), steps):
            piece = text[start : start + steps]
            x[row, steps - len(piece) :] = piece
            row += 1
    return x, review


def count_held_out(review: np.ndarray, share: float) -> int:
    """The number of segments that belong to the last `share` of the distinct reviews."""
    if share == 0:
        return 0
    first = np.flatnonzero(np.diff(review, prepend=-1))
    count = max(1, round(share * len(first)))
    return len(review) - int(first[-count])


def _moments(where: str, y: np.ndarray) -> tuple[float, float]:
    mean, std = float(y.mean()), float(y.std())  # the population's standard deviation
    if not std > 1e-12:
        raise UserError(f"{where}: all training ratings equal {mean:g}; there is nothing to learn")
    return mean, std


def _check(reviews: Reviews, steps: int, max_words: int, hold_out: float) -> None:
    if steps < 2:
        raise UserError(
            f"task.steps={steps}: must be at least 2, since a review of {reviews.where} begins with a start token"
        )
    if max_words < FIRST_RANK + 2:
        least = FIRST_RANK + 2
        raise UserError(
            f"task.max_words={max_words}: must be at least {least} ({reviews.where}); lower ids are reserved"
        )
    if not 0 <= hold_out < 1:
        raise UserError(f"task.hold_out={hold_out}: must be at least 0 and below 1, a share of {reviews.where}")
    if len(reviews.texts) < 3:
        raise UserError(f"{reviews.where}: {len(reviews.texts)} reviews; at least 3 are needed")
