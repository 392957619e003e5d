"""Rules of the claims about perplexity: each maps evidence to an Outcome, or to None without the metric."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from varrnn.reproduction.claims.verdict import Evidence, Outcome
from varrnn.reproduction.runs import FIGURE3_MODELS
from varrnn.reproduction.statistics import pooled_sd

Rule = Callable[[Evidence], Outcome | None]
Levels = Mapping[str, float | None]  # metric -> published value

VALID, TEST, MC = "valid_ppl_authors", "test_ppl", "test_ppl_mc"
SIGN_ONLY = "for the small model only the sign is judged"
WORDS = {VALID: "valid (authors' normaliser)", TEST: "test", MC: "test MC", "valid_ppl": "valid"}


def less_than(low: str, high: str, metric: str, margin: float = 0.0, sds: float = 0.0) -> Rule:
    """`low` is below `high` by at least the margin and by more than `sds` pooled standard deviations."""

    def rule(evidence: Evidence) -> Outcome | None:
        a, b = (list(evidence[role].by_seed(metric).values()) for role in (low, high))
        if not a or not b:
            return None
        difference, sd = float(np.mean(b) - np.mean(a)), pooled_sd([a, b])
        enough = difference >= margin and difference > sds * sd if evidence.margins else True
        text = f"{WORDS[metric]}: {low} {np.mean(a):.2f} against {high} {np.mean(b):.2f}, difference {difference:.2f}"
        if not evidence.margins and 0 < difference < margin:
            text += f", less than the rule's {margin:g}: {SIGN_ONLY}"
        return Outcome(difference > 0 and enough, text + (f", sd {sd:.2f}" if sds and sd else ""))

    return rule


def all_of(*rules: Rule) -> Rule:
    """All the rules together."""

    def rule(evidence: Evidence) -> Outcome | None:
        outcomes = [one(evidence) for one in rules]
        found = [outcome for outcome in outcomes if outcome is not None]
        if len(found) < len(outcomes):
            return None
        return Outcome(all(o.agrees for o in found), "; ".join(dict.fromkeys(o.numbers for o in found)))

    return rule


def approx_equal(a: str, b: str, metric: str, tolerance: float) -> Rule:
    """Two means differ by no more than the tolerance."""

    def rule(evidence: Evidence) -> Outcome | None:
        x, y = evidence[a].mean(metric), evidence[b].mean(metric)
        if x is None or y is None:
            return None
        return Outcome(abs(x - y) <= tolerance, f"{WORDS[metric]}: {a} {x:.2f}, {b} {y:.2f}, difference {x - y:+.2f}")

    return rule


def mc_gain(role: str, least: float, most: float = np.inf) -> Rule:
    """How much MC dropout lowers the test perplexity of the same checkpoint."""

    def rule(evidence: Evidence) -> Outcome | None:
        both = evidence[role].with_metric(TEST).with_metric(MC)
        plain, mc = both.mean(TEST), both.mean(MC)
        if plain is None or mc is None:
            return None
        gain = plain - mc
        agrees = least <= gain <= most if evidence.margins else gain > 0
        text = f"{role}: test {plain:.2f}, MC {mc:.2f}, gain {gain:.2f}"
        if not evidence.margins and agrees and not least <= gain <= most:
            bounds = f"{least:g} to {most:g}" if np.isfinite(most) else f"{least:g} or more"
            text += f", outside the rule's {bounds}: {SIGN_ONLY}"
        return Outcome(agrees, text)

    return rule


def mc_untied_wins(evidence: Evidence) -> Outcome | None:
    """C7: with MC, untied is below tied and gains more."""
    both = {role: group.with_metric(TEST).with_metric(MC) for role, group in evidence.groups.items()}
    means = {(role, metric): group.mean(metric) for role, group in both.items() for metric in (TEST, MC)}
    if any(value is None for value in means.values()):
        return None
    tied, untied = (means[f"variational_{kind}", MC] or 0.0 for kind in ("tied", "untied"))
    gain_tied = (means["variational_tied", TEST] or 0.0) - tied
    gain_untied = (means["variational_untied", TEST] or 0.0) - untied
    text = f"MC: untied {untied:.2f}, tied {tied:.2f}; gains {gain_untied:.2f} and {gain_tied:.2f}"
    return Outcome(untied < tied and gain_untied > gain_tied, text)


def within_percent(role: str, levels: Levels, percent: float, small: Levels | None = None) -> Rule:
    """The absolute level is within some per cent of the published one."""

    def rule(evidence: Evidence) -> Outcome | None:
        target = levels if evidence.margins else (small or {})
        ours = {metric: evidence[role].mean(metric) for metric, value in target.items() if value is not None}
        if not ours or any(value is None for value in ours.values()):
            return None
        off = {metric: 100 * ((value or 0.0) / (target[metric] or 1.0) - 1) for metric, value in ours.items()}
        text = ", ".join(f"{WORDS[m]} {ours[m]:.2f} (published {target[m]:g}, {off[m]:+.1f} %)" for m in ours)
        return Outcome(all(abs(value) <= percent for value in off.values()), text)

    return rule


def paired(a: str, b: str, metrics: tuple[str, ...], test: Callable[[float], bool]) -> Rule:
    """Differences a - b of the same seeds; `test` gets each mean difference."""

    def rule(evidence: Evidence) -> Outcome | None:
        texts, answers, pairs = [], [], []
        for metric in metrics:
            x, y = evidence[a].by_seed(metric), evidence[b].by_seed(metric)
            differences = [x[seed] - y[seed] for seed in sorted(x.keys() & y.keys())]
            if not differences:
                return None
            mean = float(np.mean(differences))
            pairs.append(len(differences))
            answers.append(test(mean))
            texts.append(f"{WORDS[metric]} {mean:+.2f} over {len(differences)} paired seeds")
        return Outcome(all(answers), f"{a} - {b}: " + ", ".join(texts), min(pairs))

    return rule


def best_level(limit: float) -> Rule:
    """C15: the best single model."""

    def rule(evidence: Evidence) -> Outcome | None:
        levels = {role: evidence[role].mean(MC) for role in evidence.groups}
        found = {role: level for role, level in levels.items() if level is not None}
        if len(found) < len(levels):
            return None
        best = min(found, key=lambda role: found[role])
        return Outcome(found[best] <= limit, f"best: {best} with MC {found[best]:.2f}")

    return rule


def overfits_from_16(evidence: Evidence) -> Outcome | None:
    """C18: the valid curve of Moon's large model turns at epoch 16 and reaches 125 by epoch 30."""
    curve = evidence["moon"].curve(VALID)
    if not len(curve.epochs) or curve.epochs[-1] < 30:
        return None
    turn = int(curve.epochs[curve.mean.argmin()])
    later = (curve.epochs >= turn) & (curve.epochs <= 30)
    height = float(curve.mean[later].max()) if later.any() else float("nan")
    text = f"lowest valid {curve.mean.min():.1f} at epoch {turn}, {height:.1f} at most from there to epoch 30"
    return Outcome(abs(turn - 16) <= 5 and height >= 125, text)


def does_not_overfit(evidence: Evidence) -> Outcome | None:
    """C19: the valid curve of Moon with embedding dropout ends at its minimum."""
    curve = evidence["moon_emb"].curve(VALID)
    if not len(curve.epochs):
        return None
    rise = float(curve.mean[-1] - curve.mean.min())
    return Outcome(rise <= 1, f"valid at the end {curve.mean[-1]:.2f}, lowest {curve.mean.min():.2f}, rise {rise:.2f}")


def lowest(evidence: Evidence, role: str) -> float:
    values = evidence[role].curve(VALID).mean
    return float(values.min()) if len(values) else float("nan")


def no_decay_order(evidence: Evidence) -> Outcome | None:
    """C23: even with early stopping the variational model is lowest without learning-rate decay."""
    best = {role: lowest(evidence, role) for role in evidence.groups}
    if np.isnan(list(best.values())).any():
        return None
    text = ", ".join(f"{role} {value:.2f}" for role, value in best.items())
    return Outcome(best["variational_untied"] < min(best["naive"], best["none"]), f"lowest valid: {text}")


def decay_helps(evidence: Evidence) -> Outcome | None:
    """C24: each model's best point without decay lies above its value with decay."""
    pairs = {role: (lowest(evidence, f"{role}, no decay"), evidence[role].mean(VALID)) for role in FIGURE3_MODELS}
    if any(with_decay is None or np.isnan(without) for without, with_decay in pairs.values()):
        return None
    text = ", ".join(f"{role} {a:.2f} without, {b:.2f} with decay" for role, (a, b) in pairs.items())
    return Outcome(all(a > (b or 0.0) for a, b in pairs.values()), text)


def rise_order(evidence: Evidence) -> Outcome | None:
    """C25 (additional): the rise from the lowest point is largest for none, then naive, smallest for variational."""
    curves = [evidence[role].curve(VALID).mean for role in ("none", "naive", "variational_untied")]
    if not all(map(len, curves)):
        return None
    none, naive, variational = (float(values[-1] - values.min()) for values in curves)
    text = f"rise: none {none:.2f}, naive {naive:.2f}, variational {variational:.2f}"
    return Outcome(none > naive > variational, text)
