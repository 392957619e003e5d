"""The statistics that the rules of the claims need."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from varrnn.config.schema import mc_due
from varrnn.records.store import Group, Record

TRAIN = "train error"  # by MC for models with dropout; not the name of a column
LEARNED = 0.99  # of the constant predictor's error: a model that is never below has learnt nothing


def pooled_sd(groups: Iterable[Sequence[float]]) -> float:
    """Pooled standard deviation over seeds; zero when no group has two."""
    arrays = [np.asarray(values, dtype=float) for values in groups]
    freedom = sum(len(values) - 1 for values in arrays)
    return float(np.sqrt(sum(((v - v.mean()) ** 2).sum() for v in arrays) / freedom)) if freedom > 0 else 0.0


def final_mean(epochs: np.ndarray, values: np.ndarray, num_epochs: int) -> float:
    """The mean over the measured epochs among the last 10 %."""
    late = epochs > 0.9 * num_epochs
    return float(values[late].mean()) if late.any() else float(values[-1])


def lowest(epochs: np.ndarray, values: np.ndarray) -> float:
    return float(values.min())


def overfitting_gap(epochs: np.ndarray, values: np.ndarray, num_epochs: int) -> float:
    """The distance from the curve's lowest point to its end: overfitting."""
    return final_mean(epochs, values, num_epochs) - lowest(epochs, values)


def roughness(epochs: np.ndarray, values: np.ndarray, after: int = 5) -> float:
    """Standard deviation of epoch-to-epoch differences after epoch 5.

    In late epochs MC dropout is measured at every fifth epoch, the dropout approximation at every epoch: compare models
    with the latter. A difference is used if both neighbours were measured.
    """
    neighbours = (np.diff(epochs) == 1) & (epochs[1:] > after)
    differences = np.diff(values)[neighbours]
    return float(differences.std(ddof=1)) if len(differences) > 1 else float("nan")


def ranks(values: Sequence[float]) -> np.ndarray:
    """Ranks from 1, ties share their mean rank."""
    array = np.asarray(values, dtype=float)
    return np.array([(array < v).sum() + ((array == v).sum() + 1) / 2 for v in array])


def spearman(x: Sequence[float], y: Sequence[float]) -> float:
    """Spearman's rank correlation, rounded so that rounding errors do not miss a limit; nan if one side is constant."""
    rank_x, rank_y = ranks(x), ranks(y)
    if rank_x.std() == 0 or rank_y.std() == 0:
        return float("nan")
    return round(float(np.corrcoef(rank_x, rank_y)[0, 1]), 9)


def kendall(x: Sequence[float], y: Sequence[float]) -> float:
    """Kendall's tau between two rankings (no correction for ties)."""
    pairs = [(i, j) for i in range(len(x)) for j in range(i)]
    return float(np.mean([np.sign(x[i] - x[j]) * np.sign(y[i] - y[j]) for i, j in pairs]))


def median_filter(values: np.ndarray, width: int = 5) -> np.ndarray:
    """Running median; the window shrinks at both ends."""
    half = width // 2
    return np.array([np.median(values[max(0, i - half) : i + half + 1]) for i in range(len(values))])


def local_maximum(values: np.ndarray) -> float:
    """The largest maximum between two minima: it "decreases and then increases before decreasing again".

    Its height is the smallest of the three moves: a curve that rises from its start has no minimum there. The first
    fall is measured on the unfiltered curve, since most of it happens in epochs that the filter flattens.
    """
    smooth = median_filter(values)
    moves = []
    for i in range(1, len(smooth) - 1):
        before, after = smooth[:i].min(), smooth[i + 1 :].min()
        moves.append(min(values[0] - before, smooth[i] - before, smooth[i] - after))
    return float(max(moves, default=0.0))


def column_of(record: Record, column: str | None) -> str:
    """The curve of a column; None: the test error, TRAIN: the train error, both by MC for models with dropout."""
    return record.error_column if column is None else record.train_column if column == TRAIN else column


def mc_epochs(group: Group) -> np.ndarray:
    """The epochs at which MC is measured, also for models without dropout, so that all are averaged alike."""
    measured = []
    for record in group.records:
        epochs = record.column(record.error_column)[0]
        every = int(record.options.get("task.mc_every", 1))
        measured.append({int(epoch) for epoch in epochs if mc_due(int(epoch), every, record.epochs)})
    return np.array(sorted(set.intersection(*measured)) if measured else [], dtype=int)


def shared_epochs(groups: Iterable[Group], columns: Sequence[str | None] = (None,)) -> np.ndarray:
    """The epochs at which all runs of a comparison measured all these columns (None: the test curve)."""
    measured = [
        set(record.column(column_of(record, column))[0].tolist())
        for group in groups
        for record in group.records
        for column in columns
    ]
    found = [epochs for epochs in measured if epochs]  # a seed without the column is left out, as in per_seed
    return np.array(sorted(set.intersection(*found)) if found else [], dtype=int)


def no_better_than_constant(groups: Mapping[str, Group]) -> str:
    """A warning that names the models which are never better than a constant prediction; "" if all learn."""
    flat = []
    for role, group in groups.items():
        constant = group.mean("constant_rmse")
        if constant is not None and seed_mean(group, lowest) > LEARNED * constant:
            flat.append(role)
    return f"no better than a constant: {', '.join(flat)}" if flat else ""


def per_seed(group: Group, statistic, column: str | None = None, at: np.ndarray | None = None) -> list[float]:
    """A statistic of the test curve (or of another column) for each seed; seeds without that column are left out.

    `at` restricts the curves to epochs that all runs of a comparison measured; the last of them is the final epoch.
    """
    values = []
    for record in group.records:
        epochs, curve = record.column(column_of(record, column))
        num_epochs = record.epochs
        if at is not None:
            use = np.isin(epochs, at)
            epochs, curve, num_epochs = epochs[use], curve[use], int(max(at, default=0))
        if len(epochs):
            with_epochs = (num_epochs,) if statistic in (final_mean, overfitting_gap) else ()
            values.append(float(statistic(epochs, curve, *with_epochs)))
    return values


def seed_mean(group: Group, statistic, column: str | None = None, at: np.ndarray | None = None) -> float:
    """The mean of `per_seed` over seeds; nan without values."""
    values = per_seed(group, statistic, column, at)
    return float(np.mean(values)) if values else float("nan")
