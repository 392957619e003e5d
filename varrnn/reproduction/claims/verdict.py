"""Claims, and the verdicts on them from records.

Rules were written before the runs that they judge, except for those that report.py lists. A verdict is one of
reproduced / not reproduced  enough seeds (and epochs) for the rule to decide;
indicative                   the rule was applied, but to one seed (sentiment: fewer than three), or it agrees on models
                             that learnt nothing;
few epochs                   sentiment only: fewer than 100 epochs;
not run                      a needed record is missing; the commands that would decide it are given.
The small model never decides a claim of the paper: it "agrees" or "disagrees", in addition to the verdict.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

from varrnn.records.store import Group, Records
from varrnn.reproduction.grids import best_on_validation, grid_coverage
from varrnn.reproduction.runs import SEEDS, Run, commands
from varrnn.reproduction.statistics import no_better_than_constant

REPRODUCED, NOT_REPRODUCED = "reproduced", "not reproduced"
INDICATIVE, FEW_EPOCHS, NOT_RUN = "indicative", "few epochs", "not run"
NOT_APPLICABLE, BY_TEST = "not applicable", "unit test"
VERDICTS = (REPRODUCED, NOT_REPRODUCED, INDICATIVE, FEW_EPOCHS, NOT_RUN, NOT_APPLICABLE, BY_TEST)

MC_SAMPLES, MC_ERROR = 1000, 0.05


@dataclass(frozen=True)
class Outcome:
    """A rule's result: whether the evidence agrees with the claim, and the numbers."""

    agrees: bool
    numbers: str
    n: int | None = None  # for rules that count paired seeds


@dataclass(frozen=True)
class Evidence:
    """Groups of records by role.

    `margins` is off for the small model: the margin by which one model must win is meant for the stated size. The
    tolerance of equality stays, since equality means nothing without it.
    """

    groups: Mapping[str, Group]
    margins: bool = True

    def __getitem__(self, role: str) -> Group:
        return self.groups[role]


@dataclass(frozen=True)
class Verdict:
    """A verdict with our numbers, the number of seeds, and the commands for missing runs."""

    status: str
    agrees: bool | None = None
    numbers: str = ""
    n: int = 0
    epochs: int = 0
    unstable: int = 0
    commands: tuple[str, ...] = ()
    small_size: str = ""
    warning: str = ""  # which models learnt nothing

    def label(self) -> str:
        """The verdict as shown in a table, "indicative: agrees", always with its warning."""
        answer = f": {'agrees' if self.agrees else 'disagrees'}" if self.status in (INDICATIVE, FEW_EPOCHS) else ""
        count = f" ({self.epochs})" if self.status == FEW_EPOCHS else ""
        return f"{self.status}{count}{answer}" + (f" ({self.warning})" if self.warning else "")


@dataclass(frozen=True)
class Claim:
    """One testable sentence of the paper: statement, the paper's numbers, the runs it needs, the rule."""

    id: str
    statement: str
    paper: str
    runs: Mapping[str, Run] = field(default_factory=dict)
    rule: Callable[[Evidence], Outcome | None] | None = None
    seeds: int = 2  # the minimum for a verdict; fewer are indicative
    epochs: int = 0  # the minimum number of epochs for a verdict
    mc: bool = False  # compares MC values: 1000 samples, word dropout off, standard error below 0.05
    small_size: bool = False  # also judged for the small model, see Evidence.margins
    rates_of: str = ""  # small model: the role whose chosen dropout rates all roles use
    whole: bool = False  # no verdict, not even "few epochs", until every run has `epochs`
    is_extra: bool = False  # not a claim of the paper, not counted
    judge_fn: Callable[[Records], Verdict] | None = None  # for evidence that is not a set of runs
    rule_text: str = ""


def judge(claim: Claim, records: Records) -> Verdict:
    """The verdict on one claim."""
    if claim.judge_fn is not None:
        return claim.judge_fn(records)
    verdict = _judge_runs(claim, records)
    return replace(verdict, small_size=_judge_small(claim, records)) if claim.small_size else verdict


def _judge_runs(claim: Claim, records: Records) -> Verdict:
    assert claim.rule is not None, claim.id
    groups = {role: records.group(run) for role, run in claim.runs.items()}
    unstable = sum(group.unstable for group in groups.values())
    missing = [
        (run, records.missing(run, SEEDS) or SEEDS) for role, run in claim.runs.items() if not groups[role].records
    ]
    if missing:
        return Verdict(NOT_RUN, unstable=unstable, commands=tuple(commands(missing)))
    lengths = {role: group.epochs for role, group in groups.items()}
    if claim.whole and min(lengths.values()) < claim.epochs:
        found = ", ".join(f"{role} {epochs}" for role, epochs in lengths.items())
        more = tuple(commands((run, SEEDS) for run in claim.runs.values()))
        return Verdict(
            NOT_RUN, numbers=f"open until all have {claim.epochs} epochs: {found}", unstable=unstable, commands=more
        )
    tried, groups = groups, _with_mc(claim, groups)
    problem = _mc_problem(groups) if claim.mc else ""
    outcome = None if problem else claim.rule(Evidence(groups))
    if outcome is None:
        redo = tuple(_commands(claim, ((run, tried[role].seeds()) for role, run in claim.runs.items())))
        return Verdict(NOT_RUN, numbers=problem or "not measured in these records", unstable=unstable, commands=redo)
    n = _seeds(outcome, groups)
    epochs = min(group.epochs for group in groups.values())
    warning = no_better_than_constant(groups)
    status = _status(claim, outcome, n, epochs, warning)
    more = () if status in (REPRODUCED, NOT_REPRODUCED) else tuple(_further_commands(claim, records, status, groups))
    return Verdict(status, outcome.agrees, outcome.numbers, n, epochs, unstable, more, warning=warning)


def _seeds(outcome: Outcome, groups: Mapping[str, Group]) -> int:
    """The number of seeds behind an outcome."""
    return outcome.n if outcome.n is not None else min(map(len, groups.values()))


def _status(claim: Claim, outcome: Outcome, n: int, epochs: int, warning: str) -> str:
    if epochs < claim.epochs:
        return FEW_EPOCHS
    if n < claim.seeds or (outcome.agrees and warning):  # models that learnt nothing may agree with anything
        return INDICATIVE
    return REPRODUCED if outcome.agrees else NOT_REPRODUCED


def _further_commands(claim: Claim, records: Records, status: str, used: Mapping[str, Group]) -> list[str]:
    """The commands that would turn an indicative result into a verdict: missing runs, and MC of runs without it."""
    if status == FEW_EPOCHS:
        return commands((run, SEEDS) for run in claim.runs.values())
    wanted = []
    for role, run in claim.runs.items():
        unsampled = set(records.group(run).seeds()) - set(used[role].seeds())
        wanted.append((run, tuple(sorted({*records.missing(run, SEEDS), *unsampled}))))
    return _commands(claim, ((run, seeds) for run, seeds in wanted if seeds))


def _commands(claim: Claim, runs: Iterable[tuple[Run, tuple[int, ...]]]) -> list[str]:
    """Commands for runs, some of which may exist; for a claim about MC with the number of samples."""
    return [line + (f" mc.samples={MC_SAMPLES}" if claim.mc else "") for line in commands(runs)]


def _with_mc(claim: Claim, groups: Mapping[str, Group]) -> dict[str, Group]:
    """For a claim about MC, only the runs that have it: MC claims compare the SAME checkpoints."""
    return {role: group.with_metric("test_ppl_mc") if claim.mc else group for role, group in groups.items()}


def _mc_problem(groups: Mapping[str, Group]) -> str:
    """Why the MC values of these records cannot decide a claim; "" if they can."""
    for record in (record for group in groups.values() for record in group.records):
        samples = record.metric("mc_samples") or 0
        if samples < MC_SAMPLES:
            return f"MC with {samples:.0f} samples, the rule requires {MC_SAMPLES}"
        if record.mc_word_dropout:
            return "MC with word dropout on, the rule requires off"
        error = record.metric("test_ppl_mc_se")
        if error is None or error >= MC_ERROR:
            known = "unknown" if error is None else f"{error:.3f}"
            return f"MC standard error {known}, the rule requires below {MC_ERROR}"
    return ""


def _judge_small(claim: Claim, records: Records) -> str:
    """The claim's rule for the small model: every model with the dropout rates chosen on validation data."""
    assert claim.rule is not None
    groups = _with_mc(claim, _small_groups(claim, records))
    if not all(group.records for group in groups.values()):
        return ""
    problem = _mc_problem(groups) if claim.mc else ""
    outcome = None if problem else claim.rule(Evidence(groups, margins=False))
    if outcome is None:
        return f"small model open ({problem})" if problem else ""
    n = _seeds(outcome, groups)
    parts = outcome.numbers.replace(" medium", "").replace(" large", "").split("; ")
    text = "; ".join(dict.fromkeys(parts))  # both sizes of a claim map to the same small model
    missing = _grids(claim, records)
    seeds = f"n={n}" + (f", {INDICATIVE}" if n < claim.seeds or missing else "") + missing
    return f"small model {'agrees' if outcome.agrees else 'disagrees'} ({text}; {seeds})"


def _grids(claim: Claim, records: Records) -> str:
    """The models with fewer grid points than planned: "; grid of naive: 1 of 3"."""
    models = dict.fromkeys(word.split("=")[1] for run in claim.runs.values() for word in run if "model=" in word)
    tried = {model: grid_coverage(records, model) for model in models}
    left = [f"{model}: {done} of {planned}" for model, (done, planned) in tried.items() if done < planned]
    return f"; grid of {', '.join(left)}" if left else ""


def _small_groups(claim: Claim, records: Records) -> dict[str, Group]:
    """Every role with its best dropout rates, or all with those of one role, so that only the role differs."""
    if not claim.rates_of:
        return {role: best_on_validation(records, _at_small(run)) for role, run in claim.runs.items()}
    chosen = best_on_validation(records, _at_small(claim.runs[claim.rates_of]))
    point = chosen.records[0].rates if chosen.records else ()
    return {role: records.grid(_at_small(run)).get(point, Group()) for role, run in claim.runs.items()}


def _at_small(run: Run) -> Run:
    """The same run with the small model."""
    return tuple("experiment=ptb_small" if o.startswith("experiment=ptb_") else o for o in run)
