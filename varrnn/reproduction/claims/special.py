"""Claims that are not decided by single runs: ensembles (C20), benchmarks (C22) and unit tests (C44, C45)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from varrnn.config.identity import identity_of
from varrnn.records.store import Records
from varrnn.reproduction.claims.verdict import (
    BY_TEST,
    INDICATIVE,
    MC_SAMPLES,
    NOT_APPLICABLE,
    NOT_REPRODUCED,
    NOT_RUN,
    REPRODUCED,
    Verdict,
)
from varrnn.reproduction.runs import command, language_model

ENSEMBLE_SIZE = 10


def ensembles(records: Records, size: str, variational: bool) -> dict[int, float]:
    """Test perplexity of model averaging by number of members: untied variational models with MC, or naive ones.

    If there are several ensembles of one number of members (other seeds or rates), none of them is used.

    Differs: the paper does not say whether its ten models were tied; here they are untied, its best with MC.
    """
    wanted = identity_of(language_model(size, "variational_untied" if variational else "naive")).choices
    free = ("model.p_",) if size == "small" else ()  # small: the rates were chosen on validation data
    found: dict[int, list[float]] = {}
    for ensemble in records.ensembles:
        chosen = all(ensemble["choices"].get(group) == name for group, name in wanted.items())
        default_rates = all(key.startswith(free) for key in ensemble.get("diff") or ())
        sampled = _is_valid_mc(ensemble) if variational else not any(ensemble.get("member_mc") or [ensemble["mc"]])
        value = ensemble["metrics"].get("test_ppl")
        if chosen and default_rates and sampled and value is not None:
            found.setdefault(ensemble["members"], []).append(value)
    return {members: values[0] for members, values in found.items() if len(values) == 1}  # none of several


def _is_valid_mc(ensemble: Mapping[str, Any]) -> bool:
    """Whether every member has enough samples, without word dropout, as required of single models."""
    enough = (ensemble.get("mc_samples") or 0) >= MC_SAMPLES
    return bool(ensemble["mc"]) and enough and ensemble.get("mc_word_dropout") is False


def judge_ensembles(records: Records) -> Verdict:
    """C20: model averaging; the members are the seeds, so one ensemble of ten decides."""
    variational, naive = (ensembles(records, "large", kind) for kind in (True, False))
    small_size = "; ".join(filter(None, (scaled_ensembles(records, size) for size in ("medium", "small"))))
    if ENSEMBLE_SIZE not in variational or ENSEMBLE_SIZE not in naive:
        seeds = range(1, ENSEMBLE_SIZE + 1)
        train = [command(language_model("large", "naive,variational_untied"), seeds)]
        train += ["python scripts/ensemble.py RUN_DIR...  (the ten runs of each model; variational ones with --mc)"]
        return Verdict(NOT_RUN, commands=tuple(train), small_size=small_size)
    ours, theirs = variational[ENSEMBLE_SIZE], naive[ENSEMBLE_SIZE]
    agrees = abs(ours / 68.7 - 1) <= 0.01 and ours < theirs
    text = f"ten variational MC {ours:.2f}, ten naive {theirs:.2f}"
    return Verdict(REPRODUCED if agrees else NOT_REPRODUCED, agrees, text, ENSEMBLE_SIZE, small_size=small_size)


def scaled_ensembles(records: Records, size: str) -> str:
    """The scaled claim: n variational models below n naive ones, n >= 3."""
    variational, naive = (ensembles(records, size, kind) for kind in (True, False))
    common = [n for n in variational.keys() & naive.keys() if n >= 3]
    if not common:
        return ""
    n = max(common)
    word = "agrees" if variational[n] < naive[n] else "disagrees"
    return f"{size} model {word} ({n} variational MC {variational[n]:.2f}, {n} naive {naive[n]:.2f})"


def latest_benchmark(records: Records) -> Mapping[str, Any]:
    """The last benchmark record. One file is one machine; numbers of different machines are never combined.

    A claim about speed is therefore indicative only: it is valid for this machine.
    """
    return records.benchmarks[-1] if records.benchmarks else {}


def speeds(benchmark: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """Words per second by candidate, for each size of Table 1."""
    return {size: benchmark[size] for size in ("medium", "large") if isinstance(benchmark.get(size), Mapping)}


def on_cuda(benchmark: Mapping[str, Any]) -> bool:
    return bool((benchmark.get("machine") or {}).get("gpu"))


def untied_to_tied(speed: Mapping[str, Any]) -> float | None:
    """Our words per second, untied / tied: the median of paired ratios if the benchmark has it."""
    if speed.get("untied_to_tied"):
        return speed["untied_to_tied"]
    tied, untied = speed.get("variational_tied"), speed.get("variational_untied")
    return untied / tied if tied and untied else None


def judge_loop_speed(records: Records) -> Verdict:
    """C22: the paper's four small products against one; a matter of GPU kernels."""
    how = ("python scripts/benchmark.py --device cuda --record",)
    on_gpu = Records(benchmarks=tuple(filter(on_cuda, records.benchmarks)))
    benchmark = latest_benchmark(on_gpu) or latest_benchmark(records)
    found = {size: s["loop_tied"] / s["loop_untied"] for size, s in speeds(benchmark).items() if s.get("loop_untied")}
    text = "loop, tied / untied: " + ", ".join(f"{size} {ratio:.2f}" for size, ratio in found.items())
    if not found:
        return Verdict(NOT_RUN, commands=how)
    if not on_cuda(benchmark):
        return Verdict(NOT_APPLICABLE, numbers=f"CPU only; {text}", commands=how)
    agrees = all(ratio >= 1.4 for ratio in found.values())
    return Verdict(INDICATIVE, agrees, text, 1)


def judge_kernel_speed(records: Records) -> Verdict:
    """C22b: with one kernel for all gates, untied is as fast as tied, on every machine with a record."""

    def lowest(*sizes: str) -> dict[str, float]:
        found = {size: [untied_to_tied(one.get(size) or {}) for one in records.benchmarks] for size in sizes}
        measured = {size: [ratio for ratio in ratios if ratio is not None] for size, ratios in found.items()}
        return {size: min(ratios) for size, ratios in measured.items() if ratios}

    def text(ratios: Mapping[str, float]) -> str:
        return ", ".join(f"{size} {ratio:.3f}" for size, ratio in ratios.items())

    judged, others = lowest("medium", "large"), lowest("small", "sentiment")
    if not judged:
        how = "python scripts/benchmark.py --record"
        return Verdict(NOT_RUN, commands=(how,))
    machines = len(records.benchmarks)
    where = f"untied / tied, lowest of {machines} machines" if machines > 1 else "untied / tied"
    numbers = f"{where}: {text(judged)} (paper 0.57 and 0.67)" + (f"; not judged: {text(others)}" if others else "")
    return Verdict(INDICATIVE, all(ratio >= 0.95 for ratio in judged.values()), numbers, machines)


def unit_test(files: str) -> Callable[[Records], Verdict]:
    """C44 and C45 are properties of the code; `make test` decides them."""
    verdict = Verdict(BY_TEST, numbers="holds while the tests pass", commands=(f"python -m pytest {files}",))
    return lambda records: verdict
