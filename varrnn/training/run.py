"""One run from beginning to end: task -> model -> fit -> evaluate -> summary. Repeating it goes on, or does nothing."""

import contextlib
import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch

from varrnn.config import compose
from varrnn.config.schema import Config
from varrnn.errors import UserError
from varrnn.records.schema import FINISHED, GOING_ON, SUMMARY_FILE, UNSTABLE
from varrnn.tasks import base
from varrnn.tasks.base import Numbers, Task
from varrnn.tasks.model import SequenceModel
from varrnn.training import checkpoint, device, loggers
from varrnn.training import summary as run_summary
from varrnn.training.progress import Bar
from varrnn.training.signals import Interrupts
from varrnn.training.trainer import BEST, CHECKPOINT, Progress, Trainer, Unstable

VOCABULARY = "vocabulary.json"
PATHS = ("runs_root", "run_dir", "logger")


def run(config: Config, folder: Path | None = None, describe: bool = True) -> dict[str, Any]:
    """Train and evaluate what the config says, or whatever of it is still missing; returns the summary.

    `describe` prints all final numbers.
    """
    folder = compose.run_dir(config) if folder is None else folder
    with checkpoint.locked(folder):
        (folder / "error.txt").unlink(missing_ok=True)
        try:
            return _run(config, folder, describe)
        except UserError as error:
            note(folder, error)
            raise
        except Unstable as error:
            note(folder, error)
            raise UserError(f"{folder}: {error}") from error
        except RuntimeError as error:
            if not device.out_of_memory(error):
                raise
            note(folder, UserError(device.too_large(config)))
            # not kept under a name: its traceback, which holds all that is on the GPU, would hold it too
            raise UserError(f"{folder}: {device.too_large(config)}") from error


def note(folder: Path, error: Exception) -> None:
    """Leave the reason beside a run that has no result; one that has is none the worse for a mistaken question."""
    with contextlib.suppress(UserError):  # a full disk, or a damaged summary: the first error is the one to tell
        if not run_summary.is_finished(run_summary.read(folder)):
            checkpoint.write_text(folder / "error.txt", f"{error}\n")


def _run(config: Config, folder: Path, describe: bool) -> dict[str, Any]:
    run_summary.code()  # asked now: see results.commit
    place = device.choose_device(config)
    run_summary.forget_peak_memory(place)
    begun = any((folder / name).is_file() for name in (CHECKPOINT, SUMMARY_FILE))
    if begun and (folder / "config.yaml").is_file():
        saved = compose.load_config(folder)
        checkpoint.refuse_changes(folder, compose.of_a_folder(saved), compose.of_a_folder(config))
    ended, goes_on = run_summary.read(folder), False
    if run_summary.is_finished(ended):
        asked = config.optim.epochs
        config, goes_on = horizon(config, ended)
        if not goes_on and mc_done(ended, config):
            return show_again(ended, config, folder, asked, describe)
        if goes_on and not (folder / CHECKPOINT).is_file():
            raise UserError(
                f"{folder / CHECKPOINT}: is missing, so this run cannot go on; choose run_dir= to train anew"
            )
    if not begun:  # so that a run that cannot begin is listed with its command
        compose.save(config, folder / "config.yaml")
    how = f"stopped and saved in {folder}; the same command goes on from here"
    with Interrupts() as interrupts, Bar(interrupts, config.progress, config.train.checkpoint_minutes, how) as bar:
        bar.logger = loggers.make_logger(config, folder, bar.line)
        task = base.build(config, place)
        check_task(task, config, folder, ended)
        save_vocabulary(task, folder)
        model = task.model(config)
        if ended is not None and goes_on:  # from now on its numbers are not those of the checkpoint
            bar.line("going on: the result with fewer epochs gives way (another run_dir= would keep it)")
            run_summary.write(folder, ended | {"status": GOING_ON})
        compose.save(config, folder / "config.yaml")
        if goes_on or not run_summary.is_finished(ended):
            bar.line(f"run: {folder}")
            ended = train(task, model, config, folder, bar, place)
        ended = add_mc(ended, task, model, config, folder, bar)
        bar.logger.finish({name: value for name, value in ended["metrics"].items() if isinstance(value, int | float)})
        if describe:
            print(run_summary.describe(ended, config))
        bar.leave_if_asked()
    return ended


def save_vocabulary(task: Task, folder: Path) -> None:
    """So that a trained model reads new texts without its corpus."""
    if not (folder / VOCABULARY).is_file():
        checkpoint.write_text(folder / VOCABULARY, json.dumps(task.vocabulary(), ensure_ascii=False) + "\n")


def show_again(ended: dict[str, Any], config: Config, folder: Path, asked: int, describe: bool) -> dict[str, Any]:
    """There is nothing left to do; `asked` epochs may be fewer than it has."""
    check_own_files(config, folder, ended)
    longer = f", with {config.optim.epochs} epochs ({asked} asked for)" if config.optim.epochs > asked else ""
    print(f"finished already{longer}: {folder}")
    if describe:
        print(run_summary.describe(ended, config))
    return ended


def horizon(config: Config, ended: dict[str, Any]) -> tuple[Config, bool]:
    """A finished run goes on when more epochs are asked for; when fewer are, it stays the longer run that it is."""
    trained = ended["config"]["optim"]["epochs"]
    goes_on = ended["history"]["epoch"][-1] == trained < config.optim.epochs
    kept = config.optim.epochs if goes_on else trained
    return replace(config, optim=replace(config.optim, epochs=kept)), goes_on


def check_own_files(config: Config, folder: Path, ended: dict[str, Any]) -> None:
    """A finished run of a user's own files is that of today's only as long as nobody changed them."""
    if not config.task.own_files:
        return
    try:
        task = base.build(config, torch.device("cpu"))
    except UserError as error:
        print(f"warning: the data are not what they were ({error})")
        return
    check_task(task, config, folder, ended)


def check_task(task: Task, config: Config, folder: Path, ended: dict[str, Any] | None) -> None:
    """Refuse, before anything is computed, what the task's data do not allow."""
    if ended is not None and ended["data"]["sha256"] != task.sha256:
        raise UserError(f"{folder}: trained on other data than {task.name} is now; choose run_dir=")
    if task.score is None and (config.train.early_stopping or config.train.patience):
        raise UserError(
            f"task={config.task.name}: train.early_stopping and train.patience need a validation set; hold some data "
            "out (task.hold_out=0.1) or leave them off"
        )


def train(
    task: Task, model: SequenceModel, config: Config, folder: Path, bar: Bar, device: torch.device
) -> dict[str, Any]:
    """Fit, measure the last and the best epoch, and write the summary (MC dropout is added to it later)."""
    trainer, code = Trainer(task, model, config, folder, bar, device), run_summary.code()
    if code.endswith("+dirty"):
        where = ", ".join(run_summary.COMPUTES)
        bar.line(f"warning: uncommitted changes in {where}: this run cannot be published; commit first if it should be")
    summary = {"status": FINISHED, **identification(config, task)}
    try:
        progress = trainer.fit(code)
    except Unstable as error:
        failed = {"status": UNSTABLE, "reason": str(error), "metrics": {}}
        run_summary.write(folder, summary | failed | leftovers(trainer.progress, device))
        raise
    started = bar.seconds()
    bar.line("measuring the test set")
    metrics = final_metrics(task, model, config, folder, progress)
    summary |= {"metrics": metrics, **leftovers(progress, device)}
    summary["duration"]["eval_seconds"] = bar.seconds() - started
    if task.keeps_batches:
        summary["batches"] = {"train_loss": progress.batches}
    run_summary.write(folder, summary)
    bar.leave_if_asked()
    return summary


def identification(config: Config, task: Task) -> dict[str, Any]:
    """Which run this is."""
    everything = asdict(config)
    return {
        "choices": compose.choices(config),
        "diff": compose.diff(config),
        "seed": config.seed,
        "config": {key: value for key, value in everything.items() if key not in PATHS},
        "data": {"name": task.name, "sha256": task.sha256},
        "versions": run_summary.versions(),
    }


def leftovers(progress: Progress, device: torch.device) -> dict[str, Any]:
    """What training has measured on its way, finished or not."""
    return {
        "history": progress.history,
        "commit": progress.commits[-1].removesuffix("+dirty"),
        **run_summary.worked_on(progress.commits),
        "duration": {"train_seconds": progress.train_seconds, "total_seconds": progress.total_seconds},
        "hardware": run_summary.hardware(device, progress.places[:-1]),
        "peak_memory_mb": run_summary.peak_memory_mb(device),
    }


def final_metrics(task: Task, model: SequenceModel, config: Config, folder: Path, progress: Progress) -> Numbers:
    """Everything for the last epoch and for the best one; the plain names are those of the reported epoch."""
    model.eval()
    last = task.final_metrics(model)
    best = last
    if progress.best_epoch not in (0, progress.epoch - 1):
        load_best(model, folder)
        best = task.final_metrics(model)
    reported = best if config.train.early_stopping else last
    metrics = dict(reported)
    if task.score is not None:
        metrics |= {f"{name}_last": value for name, value in last.items()}
        metrics |= {f"{name}_best": value for name, value in best.items()}
        metrics["best_epoch"] = progress.best_epoch
    return metrics | {
        **task.reference_metrics(),
        "epochs": progress.epoch - 1,
        "wps_train": progress.words / progress.train_seconds,
        "wps_authors": progress.words / progress.total_seconds,
        "parameters": sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad),
    }


def load_best(model: SequenceModel, folder: Path) -> None:
    """The parameters of the epoch with the best validation value."""
    checkpoint.into(model, checkpoint.load(folder / BEST), folder / BEST)


def load_reported(model: SequenceModel, config: Config, folder: Path) -> None:
    """The parameters behind the reported numbers of a finished run."""
    if config.train.early_stopping:
        load_best(model, folder)
    else:
        checkpoint.into(model, checkpoint.load(folder / CHECKPOINT), folder / CHECKPOINT)


def mc_done(summary: dict[str, Any], config: Config) -> bool:
    """Has MC dropout been evaluated as this config asks?"""
    if config.mc.samples == 0 or not config.model.drops:
        return True
    done, asked = summary.get("mc", {}), {"samples": config.mc.samples, "word_dropout": config.mc.word_dropout}
    if config.mc.word_dropout != done.get("word_dropout"):
        return False
    # more samples than asked for are better evidence, and may have cost hours
    return done == asked or (done["samples"] > asked["samples"] and "mc_curve" in summary)


def add_mc(
    summary: dict[str, Any], task: Task, model: SequenceModel, config: Config, folder: Path, bar: Bar
) -> dict[str, Any]:
    """Evaluate the reported parameters by MC dropout and add the numbers to the summary."""
    if mc_done(summary, config):
        return summary
    load_reported(model, config, folder)
    model.eval()
    started = bar.seconds()
    bar.line(f"MC dropout with {config.mc.samples} samples")
    metrics, extras, earlier = task.mc(model, config, folder, bar)
    summary = summary | extras | run_summary.worked_on([*summary["commits"], *earlier.commits, run_summary.code()])
    summary["metrics"] = summary["metrics"] | metrics
    summary["mc"] = {"samples": int(metrics["mc_samples"]), "word_dropout": config.mc.word_dropout}
    summary["duration"] |= {"mc_seconds": earlier.seconds + bar.seconds() - started}
    run_summary.write(folder, summary)
    return summary
