"""Compare a run's folder with its config, and determine which parts of the run remain to be done."""

import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from varrnn.config import compose
from varrnn.config.identity import config_identity, folder_identity
from varrnn.config.schema import RunConfig
from varrnn.errors import UserError
from varrnn.records.schema import EXTENDED, SUMMARY_FILE
from varrnn.tasks import base
from varrnn.tasks.base import Task
from varrnn.training import checkpoint
from varrnn.training import summary as run_summary
from varrnn.training.trainer import CHECKPOINT

CONFIG = "config.yaml"


@dataclass
class RemainingWork:
    """The remaining parts of a run."""

    config: RunConfig  # the given config, with at least as many epochs as a finished run has
    summary: dict[str, Any] | None  # of an earlier start that finished
    started: bool  # whether the folder contains a run
    extends: bool  # a finished run is trained for more epochs

    @property
    def train(self) -> bool:
        return self.extends or not run_summary.is_finished(self.summary)

    @property
    def done(self) -> bool:
        """Whether nothing remains to be done."""
        return not self.train and self.summary is not None and mc_up_to_date(self.summary, self.config)


def find_work(config: RunConfig, folder: Path) -> RemainingWork:
    """Compare the config with the content of the folder; raises if the folder belongs to another run."""
    started = any((folder / name).is_file() for name in (CHECKPOINT, SUMMARY_FILE))
    if started and (folder / CONFIG).is_file():
        saved = compose.load_config(folder)
        checkpoint.require_same_config(folder, folder_identity(saved), folder_identity(config))
    summary, extends = run_summary.read(folder), False
    if summary is not None:
        saved_identity = {"identity": config_identity(summary["config"])}
        checkpoint.check_identity(folder / SUMMARY_FILE, saved_identity, folder_identity(config))
    if run_summary.is_finished(summary):
        config, extends = resolve_epochs(config, summary)
        if extends and not (folder / CHECKPOINT).is_file():
            raise UserError(
                f"{folder / CHECKPOINT}: is missing, so this run cannot be extended; choose run_dir= to train anew"
            )
    return RemainingWork(config, summary, started, extends)


def resolve_epochs(config: RunConfig, summary: dict[str, Any]) -> tuple[RunConfig, bool]:
    """The number of epochs: a finished run is extended to more epochs, but never shortened."""
    trained = summary["config"]["optim"]["epochs"]
    extends = summary["history"]["epoch"][-1] == trained < config.optim.epochs
    kept = config.optim.epochs if extends else trained
    return replace(config, optim=replace(config.optim, epochs=kept)), extends


def mc_up_to_date(summary: dict[str, Any], config: RunConfig) -> bool:
    """Whether MC dropout has been evaluated with this config."""
    if config.mc.samples == 0 or not config.model.has_dropout:
        return True
    done, requested = summary.get("mc", {}), {"samples": config.mc.samples, "word_dropout": config.mc.word_dropout}
    if config.mc.word_dropout != done.get("word_dropout"):
        return False
    # more samples than requested are kept: they are better evidence, and may have taken hours
    return done == requested or (done["samples"] > requested["samples"] and "mc_curve" in summary)


def comparable_metrics(summary: dict[str, Any], config: RunConfig) -> dict[str, Any]:
    """The metrics, without those of `mc_samples` samples that were drawn with the other setting of word dropout."""
    if summary.get("mc", {}).get("word_dropout") == config.mc.word_dropout:
        return summary["metrics"]
    return {name: value for name, value in summary["metrics"].items() if not re.search(r"_mc\d+$", name)}


def check_task(task: Task, config: RunConfig, folder: Path, summary: dict[str, Any] | None) -> None:
    """Raise, before anything is computed, if the task's data do not fit the config or the folder."""
    if summary is not None and summary["data"]["sha256"] != task.sha256:
        raise UserError(f"{folder}: trained on other data than {task.name} is now; choose run_dir=")
    if task.selection_metric is None and (config.train.early_stopping or config.train.patience):
        raise UserError(
            f"task={config.task.name}: train.early_stopping and train.patience need a validation set; set "
            "task.hold_out=0.1, or leave both off"
        )


def check_user_files(config: RunConfig, folder: Path, summary: dict[str, Any]) -> None:
    """Warn if the user's files have changed since a finished run was trained."""
    if not config.task.user_files:
        return
    try:
        task = base.build(config, torch.device("cpu"))
    except UserError as error:
        print(f"warning: the data have changed since training ({error})")
        return
    check_task(task, config, folder, summary)


def mark_extended(folder: Path, summary: dict[str, Any]) -> None:
    """Mark the summary as being extended: its metrics are no longer those of the checkpoint."""
    run_summary.write(folder, summary | {"status": EXTENDED})
