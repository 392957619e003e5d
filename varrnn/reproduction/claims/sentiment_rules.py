"""Rules of the claims about sentiment analysis; test error is the RMSE by MC dropout, in rating units.

final = mean over the last 10 % of epochs, gap = final - min; statistics are taken per seed and averaged over seeds.
MC is measured at some epochs only, and not for models without dropout: the models of a claim are compared at the
epochs that were measured for all of them. Statistics of neighbouring epochs use the dropout approximation.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from varrnn.records.store import Group
from varrnn.reproduction.claims.verdict import Evidence, Outcome
from varrnn.reproduction.statistics import (
    TRAIN,
    final_mean,
    kendall,
    local_maximum,
    lowest,
    overfitting_gap,
    per_seed,
    pooled_sd,
    roughness,
    seed_mean,
    shared_epochs,
    spearman,
)

Rule = Callable[[Evidence], Outcome | None]
OPTIMAL = "optimal model"
NAMES = {final_mean: "final", overfitting_gap: "gap"}  # as the rules call them
MC, APPROXIMATION = "test_rmse_mc", "test_rmse"


def statistics(
    evidence: Evidence, statistic: Callable, column: str | None = None, at: np.ndarray | None = None
) -> dict[str, float] | None:
    """A statistic for every role at the epochs they share; None if one cannot be computed."""
    groups = evidence.groups
    epochs = shared_epochs(groups.values(), (column,)) if at is None else at
    values = {role: seed_mean(group, statistic, column, epochs) for role, group in groups.items()}
    return None if np.isnan(list(values.values())).any() else values


def format_values(values: Mapping[str, float], digits: int = 4) -> str:
    return ", ".join(f"{role} {value:.{digits}f}" for role, value in values.items())


def lowest_final(winner: str) -> Rule:
    """One model ends below all others."""

    def rule(evidence: Evidence) -> Outcome | None:
        ends = statistics(evidence, final_mean)
        if ends is None:
            return None
        others = [value for role, value in ends.items() if role != winner]
        return Outcome(ends[winner] < min(others), f"final: {format_values(ends)}")

    return rule


def only_one_not_overfitting(winner: str) -> Rule:
    """C27: only the variational model does not overfit, the others fit the training data."""

    def rule(evidence: Evidence) -> Outcome | None:
        gaps = statistics(evidence, overfitting_gap)
        train = statistics(evidence, lowest, TRAIN)
        if gaps is None or train is None:
            return None
        others = [role for role in gaps if role != winner]
        agrees = gaps[winner] <= 0.003 and all(gaps[role] > 0.005 and train[role] < 0.05 for role in others)
        return Outcome(agrees, f"gap: {format_values(gaps)}; lowest train: {format_values(train)}")

    return rule


def does_not_overfit(role: str, most: float = 0.003) -> Rule:
    """C28b: one model does not overfit: its gap is at most `most`."""

    def rule(evidence: Evidence) -> Outcome | None:
        gaps = statistics(evidence, overfitting_gap)
        return None if gaps is None else Outcome(gaps[role] <= most, f"gap: {format_values(gaps)}")

    return rule


def early_minimum(role: str, by_epoch: int) -> Rule:
    """C29: the lowest point of all curves belongs to one model in its first epochs."""

    def rule(evidence: Evidence) -> Outcome | None:
        lowest: dict[str, tuple[float, int]] = {}
        shared = shared_epochs(evidence.groups.values())
        for name, group in evidence.groups.items():
            curve = group.curve(group.records[0].error_column)
            use = np.isin(curve.epochs, shared)
            if not use.any():
                return None
            at = curve.mean[use].argmin()
            lowest[name] = (float(curve.mean[use][at]), int(curve.epochs[use][at]))
        best = min(lowest, key=lambda name: lowest[name][0])
        text = ", ".join(f"{name} {value:.4f} at epoch {epoch}" for name, (value, epoch) in lowest.items())
        return Outcome(best == role and lowest[best][1] <= by_epoch, f"lowest point: {text}")

    return rule


def less_smooth(rough: Sequence[str], smooth: Sequence[str], factor: float = 1.5) -> Rule:
    """Each of the first curves is at least `factor` times as rough as each of the second."""

    def rule(evidence: Evidence) -> Outcome | None:
        values = statistics(evidence, roughness, APPROXIMATION)
        if values is None:
            return None
        agrees = min(values[role] for role in rough) >= factor * max(values[role] for role in smooth)
        return Outcome(agrees, f"roughness: {format_values(values)}")

    return rule


def best_final_and_gap(winner: str) -> Rule:
    """C31: one setting has the lowest final error and the smallest gap."""

    def rule(evidence: Evidence) -> Outcome | None:
        ends, gaps = statistics(evidence, final_mean), statistics(evidence, overfitting_gap)
        if ends is None or gaps is None:
            return None
        agrees = min(ends, key=lambda r: ends[r]) == winner and min(gaps, key=lambda r: gaps[r]) == winner
        return Outcome(agrees, f"final: {format_values(ends)}; gap: {format_values(gaps)}")

    return rule


def has_local_maximum(role: str, prominence: float = 0.003) -> Rule:
    """C32: "test error decreases and then increases before decreasing again"."""

    def rule(evidence: Evidence) -> Outcome | None:
        curve = evidence[role].curve(APPROXIMATION)  # every epoch: a median filter needs even steps
        if len(curve.mean) < 5:
            return None
        height = local_maximum(curve.mean)
        return Outcome(height >= prominence, f"largest maximum between two minima: prominence {height:.4f}")

    return rule


def trend(statistic: Callable, sign: int, least: float, spread: float = 0.0) -> Rule:
    """Spearman's rank correlation between the swept value (the role) and a statistic, on seed means."""

    def rule(evidence: Evidence) -> Outcome | None:
        values = statistics(evidence, statistic)
        if values is None:
            return None
        rho = spearman([float(role) for role in values], list(values.values()))
        width = max(values.values()) - min(values.values())
        text = f"Spearman {rho:+.2f}, spread {width:.4f}; {NAMES[statistic]}: {format_values(values)}"
        return Outcome(sign * rho >= least and width >= spread, text)

    return rule


def longer_is_better(evidence: Evidence) -> Outcome | None:
    """C37: T = 400 ends no worse than 200, which ends below 50, which ends below 20."""
    ends = statistics(evidence, final_mean)
    if ends is None:
        return None
    agrees = ends["400"] <= ends["200"] + 0.002 and ends["200"] < ends["50"] < ends["20"]
    best = ", ".join(f"T={role}: {_best_point(group)}" for role, group in evidence.groups.items())
    return Outcome(agrees, f"final: {format_values(ends)}; best point: {best}")


def _best_point(group: Group) -> str:
    """Epochs and updates to the lowest test error, over seeds."""
    epochs = [float(e[v.argmin()]) for e, v in (r.column(r.error_column) for r in group.records) if len(e)]
    epoch = float(np.mean(epochs)) if epochs else float("nan")
    batches = group.records[0].content.get("batches") or {}
    per_epoch = len(batches.get("train_loss", [])) * batches.get("every", 1) / max(1, group.records[0].epochs)
    return f"epoch {epoch:.0f}" + (f", update {epoch * per_epoch:.0f}" if per_epoch else "")


def approximation_agrees(evidence: Evidence) -> Outcome | None:
    """C40, C41: the dropout approximation gives the same errors as MC dropout, and the same ranking of the settings.

    The optimal model is not a setting of the figure: it counts for the difference only.
    """
    at = shared_epochs(evidence.groups.values(), (MC, APPROXIMATION))
    mc, plain = (statistics(evidence, final_mean, column, at) for column in (MC, APPROXIMATION))
    if mc is None or plain is None:
        return None
    largest = max(abs(mc[role] - plain[role]) for role in mc)
    ranked = [role for role in mc if role != OPTIMAL]
    tau = kendall([mc[role] for role in ranked], [plain[role] for role in ranked])
    compared = f"MC: {format_values(mc)}; approximation: {format_values(plain)}"
    text = f"largest difference {largest:.4f}, Kendall {tau:.2f}; {compared}"
    return Outcome(largest <= 0.005 and round(tau, 2) >= 0.67, text)  # .67 is one swap among four


def identical(a: str, b: str) -> Rule:
    """C42: two models that overfit and end at the same error."""

    def rule(evidence: Evidence) -> Outcome | None:
        at = shared_epochs(evidence.groups.values())
        x, y = (per_seed(evidence[role], final_mean, at=at) for role in (a, b))
        gaps = statistics(evidence, overfitting_gap)
        if not x or not y or gaps is None:
            return None
        difference, sd = float(np.mean(x) - np.mean(y)), pooled_sd([x, y])
        agrees = abs(difference) <= max(2 * sd, 0.003) and min(gaps[a], gaps[b]) > 0.005
        return Outcome(agrees, f"difference of finals {difference:+.4f}, sd {sd:.4f}; gap: {format_values(gaps)}")

    return rule


def batch_losses(group: Group) -> list[np.ndarray]:
    """Train loss per batch, penalty excluded, for each seed that recorded it."""
    found = ((record.content.get("batches") or {}).get("train_loss") or [] for record in group.records)
    return [np.asarray(losses, dtype=float) for losses in found if len(losses) >= 20]


def _tenths(losses: np.ndarray) -> tuple[float, float]:
    """Mean of the last but one and of the last 10 % of batches."""
    tenth = len(losses) // 10
    return float(losses[-2 * tenth : -tenth].mean()), float(losses[-tenth:].mean())


def converged(evidence: Evidence) -> Outcome | None:
    """C43: the train loss is stable: the last tenth of the batches within 2 % of the tenth before.

    Absolute changes are averaged, so that a falling seed does not cancel a rising one.
    """
    changes = {}
    for role, group in evidence.groups.items():
        losses = batch_losses(group)
        if not losses:
            return None
        changes[role] = float(np.mean([abs(_tenths(one)[1] / _tenths(one)[0] - 1) for one in losses]))
    return Outcome(max(changes.values()) <= 0.02, f"change as a fraction: {format_values(changes, 3)}")


def near_zero(evidence: Evidence) -> Outcome | None:
    """C49: "all models have converged, with the loss getting near zero"."""
    ends = {}
    for role, group in evidence.groups.items():
        losses = batch_losses(group)
        if not losses:
            return None
        ends[role] = float(np.mean([_tenths(one)[1] for one in losses]))
    return Outcome(max(ends.values()) < 0.05, f"train loss at the end: {format_values(ends, 3)}")
