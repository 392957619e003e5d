"""Model averaging (section 5.1): average the PROBABILITIES of every next word over models and their mask samples."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from varrnn.config import compose
from varrnn.config.schema import CHOICE_GROUPS, LANGUAGE_MODEL, RunConfig
from varrnn.errors import UserError
from varrnn.tasks import language_model
from varrnn.tasks.language_model import TEST_STEPS, LanguageModelTask
from varrnn.tasks.perplexity import log_probabilities, safe_exp
from varrnn.training import checkpoint, evaluation, mc_evaluation, provenance
from varrnn.training import summary as run_summary
from varrnn.training.device import choose_device
from varrnn.training.progress import RunMonitor
from varrnn.training.signals import Interrupts
from varrnn.version import SCHEMA

MIXED = "mixed"


@dataclass(frozen=True)
class Member:
    """One trained model: deterministic (the dropout approximation), or averaged over mask samples first."""

    folder: Path
    config: RunConfig
    summary: dict[str, Any]
    mc: bool


@dataclass
class Average:
    """A running mean of probabilities; memory is one number per predicted word for any number of models."""

    log_sum: Tensor | None = None  # (N - 1,), float64
    members: int = 0

    def add(self, log_p: Tensor) -> float:
        """Add a model with equal weight; returns the perplexity of the average so far."""
        self.log_sum = log_p if self.log_sum is None else torch.logaddexp(self.log_sum, log_p)
        self.members += 1
        return safe_exp(math.log(self.members) - float(self.log_sum.mean()))


def load_member(folder: Path, mc: bool, overrides: Sequence[str] = ()) -> Member:
    """A finished language model; a model without dropout has nothing to sample and is always deterministic."""
    config = compose.load_config(folder, overrides)
    summary = run_summary.load_finished(folder)
    if config.task.kind != LANGUAGE_MODEL:
        raise UserError(f"{folder}: task={config.task.name} is not a language model; give language models only")
    if mc and config.model.has_dropout and not config.mc.samples:
        raise UserError(f"{folder}: this run skipped MC dropout (mc.samples=0); set the number, e.g. mc.samples=1000")
    return Member(folder, config, summary, mc and config.model.has_dropout)


def average(members: Sequence[Member]) -> dict[str, Any]:
    """Compute the record of an ensemble, with one model in memory at a time."""
    check(members)
    provenance.code_version()  # read and cache it before the code can change
    first = members[0].config
    device = choose_device(first)
    task = language_model.load(first, device)
    if task.sha256 != members[0].summary["data"]["sha256"]:
        raise UserError(
            f"{task.name}: the data has changed since {members[0].folder} was trained (another SHA-256); restore the "
            "data, or train the models again"
        )
    total, curve, alone, samples = Average(), [], [], []
    commits = [commit for one in members for commit in one.summary["commits"]]
    message = "stopped; finished samples are kept, the same command resumes"
    with (
        Interrupts() as interrupts,
        RunMonitor(interrupts, first.progress, first.train.checkpoint_minutes, message) as monitor,
    ):
        for one in members:
            log_p, count, sampled_by = test_log_probabilities(one, task, device, monitor)
            alone.append(safe_exp(-float(log_p.mean())))
            curve.append(total.add(log_p))
            samples.append(count)
            commits += sampled_by
            monitor.log(
                f"{total.members:3d} of {len(members)}: test ppl {alone[-1]:.3f} alone, {curve[-1]:.3f} together"
            )
    return make_record(members, task, device, commits) | {
        "mc_samples": min(samples),
        "member_samples": samples,
        "metrics": {"test_ppl": curve[-1]},
        "member_test_ppl": alone,
        "curve": {"members": list(range(1, len(members) + 1)), "test_ppl": curve},
    }


def check(members: Sequence[Member]) -> None:
    """Check that there is at least one model, none twice, and that all have the same text and vocabulary."""
    if not members:
        raise UserError("no runs given: python scripts/ensemble.py RUN_DIR RUN_DIR ...")
    folders = [one.folder.resolve() for one in members]
    for one, folder in zip(members, folders):
        if folders.count(folder) > 1:
            raise UserError(f"{one.folder}: given twice; give each model once")
    for one in members:
        if one.summary["data"] != members[0].summary["data"]:
            raise UserError(
                f"{one.folder} was trained on other data ({one.summary['data']['name']}) than {members[0].folder} "
                f"({members[0].summary['data']['name']}); only models of the same text can be averaged"
            )


@torch.no_grad()
def test_log_probabilities(
    one: Member, task: LanguageModelTask, device: torch.device, monitor: RunMonitor
) -> tuple[Tensor, int, list[str]]:
    """log p of every word of the test text under one model (N - 1,), its MC samples (0: none), and their commits."""
    model = task.model(one.config)
    evaluation.load_reported_weights(model, one.config, one.folder)
    model.eval()
    if not one.mc:
        return torch.cat([log_p.squeeze(1) for log_p in read_test_text(model, task)]), 0, []
    with checkpoint.lock_run_dir(one.folder):  # uses the samples of the run's MC evaluation
        sampler, commits, _ = mc_evaluation.evaluate(task, model, one.config, one.folder, monitor)
    return sampler.log_sums.logsumexp(0) - math.log(sampler.done), sampler.done, commits


def read_test_text(model: Any, task: LanguageModelTask) -> Iterator[Tensor]:
    """log p of every word of the test text as a single stream, window by window."""
    return log_probabilities(model, task.test.unsqueeze(1), TEST_STEPS)


def make_record(
    members: Sequence[Member], task: LanguageModelTask, device: torch.device, commits: Sequence[str]
) -> dict[str, Any]:
    """The models, their data, and the commits of their training, of their samples and of this average."""
    chosen = [compose.choices(one.config) for one in members]
    return {
        "schema": SCHEMA,
        "kind": "ensemble",
        "choices": {group: _common([one[group] for one in chosen]) for group in CHOICE_GROUPS},
        "diff": _common([one.summary["diff"] for one in members]),
        "members": len(members),
        "member_seeds": [one.config.seed for one in members],
        "mc": all(one.mc for one in members),
        "member_mc": [one.mc for one in members],
        "mc_word_dropout": any(one.mc and one.config.mc.word_dropout for one in members),
        "data": {"name": task.name, "sha256": task.sha256},
        "commit": provenance.commit()[0],
        **provenance.commit_record([*commits, provenance.code_version()]),
        "versions": provenance.versions(),
        "hardware": provenance.hardware(device),
    }


def file_name(record: dict[str, Any]) -> str:
    """`ptb_large_naive_lstm_paper_10`, then `mc` if every member was sampled or `part_mc` if some were.

    The changed options that all members share and their seeds follow, so that other ensembles have other names.
    """
    sampled = ["mc"] if record["mc"] else ["part_mc"] if any(record["member_mc"]) else []
    words = ["word_dropout"] if record["mc_word_dropout"] else []
    differs = MIXED if record["diff"] == MIXED else compose.format_overrides(record["diff"])
    seeds = f"seeds={','.join(map(str, record['member_seeds']))}"
    chosen = [*(record["choices"][group] for group in CHOICE_GROUPS), str(record["members"])]
    return compose.safe_file_name("_".join(filter(None, [*chosen, *sampled, *words, differs, seeds])))


def _common(values: Sequence[Any]) -> Any:
    return values[0] if all(value == values[0] for value in values) else MIXED
