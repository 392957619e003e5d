"""Choose the best of several settings by a score (lower is better), on the seeds that they share."""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import TypeVar

import numpy as np

Point = TypeVar("Point")


def shared_seeds(scores: Iterable[Mapping[int, float]]) -> set[int]:
    """The seeds on which settings (seed -> score) are compared, since means over different seeds are not comparable.

    These are the seeds that all settings have, or the most frequent seed if none is common to all.
    """
    scored = [of_seed for of_seed in scores if of_seed]
    counts = Counter(seed for of_seed in scored for seed in sorted(of_seed))
    shared = {seed for seed, count in counts.items() if count == len(scored)}
    return shared or {seed for seed, _ in counts.most_common(1)}


def lowest(scores: Mapping[Point, Mapping[int, float]]) -> Point | None:
    """The setting (of setting -> seed -> score) with the lowest mean over the shared seeds; None without scores."""
    seeds = shared_seeds(scores.values())
    compared = {point: of_seed for point, of_seed in scores.items() if of_seed and seeds <= {*of_seed}}
    means = {point: np.mean([of_seed[seed] for seed in seeds]) for point, of_seed in compared.items()}
    return min(means, key=means.__getitem__, default=None)
