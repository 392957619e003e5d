"""Synthetic reviews, a substitute for the Cornell data without a download, with a known best possible error."""

from __future__ import annotations

import numpy as np

from varrnn.data.files import sha256_of
from varrnn.data.reviews import Reviews
from varrnn.errors import UserError

NOISE = 0.05  # the standard deviation of a rating given its text, hence the lowest possible RMSE
SPREAD = 0.17  # of ratings over texts; with the noise about the 0.18 of the Cornell ratings


def load(seed: int = 0, count: int = 2000, max_length: int = 29, neutral: int = 400, sentiment: int = 100) -> Reviews:
    """`count` reviews of 10 to `max_length` words; the rating is 0.5 plus the weights of its words plus noise.

    Neutral words (`w17`) have weight 0 and follow Zipf's law; sentiment words (`s8`) have fixed weights, drawn from a
    normal distribution. Every fourth word, on average, is a sentiment word. `best_rmse` is valid for steps >
    max_length, where no review is cut.
    """
    if count < 10 or max_length < 10 or neutral < 1 or sentiment < 1:
        raise UserError(
            f"task=synthetic_reviews: {count=}, {max_length=}, {neutral=}, {sentiment=}; "
            "the first two must be at least 10, the others at least 1"
        )
    random = np.random.default_rng(seed)
    vocabulary = [f"w{i}" for i in range(neutral)] + [f"s{i}" for i in range(sentiment)]
    frequency = _frequencies(neutral, sentiment)
    lengths = random.integers(10, max_length + 1, count)
    words = random.choice(len(vocabulary), int(lengths.sum()), p=frequency)
    texts = np.split(words, np.cumsum(lengths)[:-1])
    weights = np.concatenate((np.zeros(neutral), random.standard_normal(sentiment)))
    score = np.array([weights[text].sum() for text in texts])
    ratings = 0.5 + SPREAD * (score - score.mean()) / score.std() + NOISE * random.standard_normal(count)
    tokens = [[vocabulary[word] for word in text] for text in texts]
    content = "\n".join(f"{rating:.12f} {' '.join(text)}" for rating, text in zip(ratings, tokens))
    return Reviews("synthetic_reviews", tokens, ratings, sha256_of(content.encode()), best_rmse=NOISE)


def _frequencies(neutral: int, sentiment: int) -> np.ndarray:
    zipf = 1 / np.arange(1, neutral + 1)
    return np.concatenate((0.75 * zipf / zipf.sum(), np.full(sentiment, 0.25 / sentiment)))
