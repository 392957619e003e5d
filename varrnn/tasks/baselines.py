"""Baselines for sentiment: the constant predictor, and ridge regression on a bag of words."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np

from varrnn.data import cache
from varrnn.data.files import sha256_of
from varrnn.data.reviews import FIRST_RANK, Segments, count_held_out

PENALTIES = (3000.0, 2000.0, 1000.0, 700.0, 500.0, 300.0, 200.0, 100.0, 30.0, 10.0, 3.0, 1.0)
MAX_ID = 4000
HOLD_OUT = 0.1


def rmse(prediction: np.ndarray | float, target: np.ndarray) -> float:
    """The root mean squared error, in units of the ratings."""
    return float(np.sqrt(np.mean((np.asarray(prediction, np.float64) - target) ** 2)))


def constant_rmse(data: Segments) -> float:
    """Test error of always predicting the training mean."""
    return rmse(data.mean, data.test_y)


@dataclass(frozen=True)
class Ridge:
    """Test error of ridge regression, and the penalty that was chosen on held-out training reviews."""

    rmse: float
    penalty: float


def ridge(data: Segments) -> Ridge:
    """Ridge regression on the words (id < 4000) of a segment. The penalty is chosen without the test set."""
    arrays = {name: getattr(data, name) for name in ("train_x", "train_y", "valid_x", "valid_y", "test_x", "test_y")}
    code = Path(__file__).read_bytes()  # the cache itself only knows the code that prepares data
    key = sha256_of(b"".join([code, *(np.ascontiguousarray(array).tobytes() for array in arrays.values())]))
    kept = cache.load_or_build(f"ridge-{key}", lambda: {"rmse_penalty": np.array(_ridge(data))})
    error, penalty = kept["rmse_penalty"].tolist()
    return Ridge(error, penalty)


def _ridge(data: Segments) -> tuple[float, float]:
    penalty = choose_penalty(data if len(data.valid_x) else _hold_out(data))
    predict = next(fit_path(data, (penalty,)))
    return rmse(predict(data.test_x), data.test_y), penalty


def choose_penalty(data: Segments) -> float:
    """The best penalty on the held-out reviews; the search ends when their error rises."""
    best, chosen = np.inf, PENALTIES[0]
    for penalty, predict in zip(PENALTIES, fit_path(data, PENALTIES)):
        error = rmse(predict(data.valid_x), data.valid_y)
        if error >= best:
            break
        best, chosen = error, penalty
    return chosen


def _hold_out(data: Segments) -> Segments:
    """Hold out the last tenth of the training reviews, as `cut_segments(hold_out=0.1)` does."""
    border = len(data.train_review) - count_held_out(data.train_review, HOLD_OUT)
    raw = data.train_y[border:] * data.std + data.mean
    return replace(
        data, train_x=data.train_x[:border], train_y=data.train_y[:border], valid_x=data.train_x[border:], valid_y=raw
    )


def fit_path(data: Segments, penalties: tuple[float, ...]) -> Iterator[Callable[[np.ndarray], np.ndarray]]:
    """Predictors, in rating units, for decreasing penalties; each solution is the start of the next search."""
    bag = BagOfWords(data.train_x)
    share = bag.transpose_times(np.ones(bag.rows)) / bag.rows
    offset = float(data.train_y.mean(dtype=np.float64))
    target = data.train_y.astype(np.float64) - offset
    weights = np.zeros(MAX_ID)
    for penalty in penalties:
        weights = _solve(bag, share, target, penalty, weights)
        yield partial(_predict, data, weights, offset - float(share @ weights))


def _predict(data: Segments, weights: np.ndarray, offset: float, x: np.ndarray) -> np.ndarray:
    return data.mean + data.std * (offset + BagOfWords(x).times(weights))


def _solve(bag: BagOfWords, share: np.ndarray, target: np.ndarray, penalty: float, weights: np.ndarray) -> np.ndarray:
    """Conjugate gradients on (Z'Z + penalty) w = Z't, with Z the centred bag of words, which stays sparse."""

    def product(v: np.ndarray) -> np.ndarray:
        z = bag.times(v) - share @ v  # sums to zero, so the left factor needs no centring
        return bag.transpose_times(z) + penalty * v

    right = bag.transpose_times(target) - share * target.sum()
    residual = right - product(weights)
    direction, square = residual, residual @ residual
    while square > 1e-10 * (right @ right):
        image = product(direction)
        step = square / (direction @ image)
        weights = weights + step * direction
        residual = residual - step * image
        square, previous = residual @ residual, square
        direction = residual + (square / previous) * direction
    return weights


class BagOfWords:
    """The words that occur in each row of x, as a sparse 0/1 matrix (rows, MAX_ID)."""

    def __init__(self, x: np.ndarray) -> None:
        ids = np.sort(x, axis=1)
        kept = np.diff(ids, axis=1, prepend=-1) != 0
        kept &= (ids > FIRST_RANK) & (ids < MAX_ID)
        self.rows = len(x)
        self.row, position = np.nonzero(kept)
        self.word = ids[self.row, position]

    def times(self, v: np.ndarray) -> np.ndarray:
        """The matrix times a vector over words."""
        return np.bincount(self.row, v[self.word], self.rows)

    def transpose_times(self, u: np.ndarray) -> np.ndarray:
        """The transposed matrix times a vector over rows."""
        return np.bincount(self.word, u[self.row], MAX_ID)
