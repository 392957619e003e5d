"""One run from beginning to end: task -> model -> fit -> evaluate -> summary. Repeating it resumes, or does nothing."""

import contextlib
import json
import shlex
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch

from varrnn.config import compose
from varrnn.config.schema import RunConfig
from varrnn.errors import UserError
from varrnn.records.schema import FINISHED, GOING_ON, SUMMARY_FILE, UNSTABLE
from varrnn.tasks import base
from varrnn.tasks.base import Metrics, Task
from varrnn.tasks.model import SequenceModel
from varrnn.training import checkpoint, device, loggers
from varrnn.training import summary as run_summary
from varrnn.training.progress import RunMonitor
from varrnn.training.signals import Interrupts
from varrnn.training.trainer import BEST, CHECKPOINT, Progress, Trainer, TrainingDiverged

VOCABULARY = "vocabulary.json"
PATHS = ("runs_root", "run_dir", "logger")


def run(config: RunConfig, folder: Path | None = None, describe: bool = True) -> dict[str, Any]:
    """Train and evaluate what the config says, or whatever of it is still missing; returns the summary.

    `describe` prints all final numbers.
    """
    folder = compose.run_dir(config) if folder is None else folder
    with checkpoint.lock_run_dir(folder):
        (folder / "error.txt").unlink(missing_ok=True)
        try:
            return _run(config, folder, describe)
        except UserError as error:
            write_error(folder, error)
            raise
        except TrainingDiverged as error:
            write_error(folder, error)
            raise UserError(f"{folder}: {error}") from error
        except RuntimeError as error:
            if not device.out_of_memory(error):
                raise
            write_error(folder, UserError(device.oom_hint(config)))
            # not kept under a name: its traceback, which holds all that is on the GPU, would hold it too
            raise UserError(f"{folder}: {device.oom_hint(config)}") from error


def write_error(folder: Path, error: Exception) -> None:
    """Leave the reason beside a run that has no result; a finished run keeps its result."""
    with contextlib.suppress(UserError):  # a full disk, or a damaged summary: the first error is the one to tell
        if not run_summary.is_finished(run_summary.read(folder)):
            checkpoint.write_text(folder / "error.txt", f"{error}\n")


def _run(config: RunConfig, folder: Path, describe: bool) -> dict[str, Any]:
    run_summary.code_version()  # asked now: see summary.commit
    torch_device = device.choose_device(config)
    device.check_cuda_graph(config, torch_device)
    device.check_memory(config, torch_device)
    run_summary.reset_peak_memory(torch_device)
    started = any((folder / name).is_file() for name in (CHECKPOINT, SUMMARY_FILE))
    if started and (folder / "config.yaml").is_file():
        saved = compose.load_config(folder)
        checkpoint.require_same_config(folder, compose.folder_identity(saved), compose.folder_identity(config))
    summary, extend = run_summary.read(folder), False
    if summary is not None:
        told = {"identity": compose.identity(summary["config"])}
        checkpoint.check_identity(folder / SUMMARY_FILE, told, compose.folder_identity(config))
    if run_summary.is_finished(summary):
        asked = config.optim.epochs
        config, extend = resolve_epochs(config, summary)
        if not extend and mc_up_to_date(summary, config):
            return print_finished(summary, config, folder, asked, describe)
        if extend and not (folder / CHECKPOINT).is_file():
            raise UserError(
                f"{folder / CHECKPOINT}: is missing, so this run cannot go on; choose run_dir= to train anew"
            )
    if not started:  # so that a run that cannot begin is listed with its command
        compose.save(config, folder / "config.yaml")
    how = f"stopped and saved in {folder}; the same command resumes it"
    with (
        Interrupts() as interrupts,
        RunMonitor(interrupts, config.progress, config.train.checkpoint_minutes, how) as monitor,
    ):
        monitor.logger = loggers.make_logger(config, folder, monitor.log)
        task = base.build(config, torch_device)
        check_task(task, config, folder, summary)
        save_vocabulary(task, folder)
        model = task.model(config)
        if summary is not None and extend:  # from now on its numbers are not those of the checkpoint
            monitor.log("continuing: the result with fewer epochs is replaced (another run_dir= would keep it)")
            run_summary.write(folder, summary | {"status": GOING_ON})
        compose.save(config, folder / "config.yaml")
        if extend or not run_summary.is_finished(summary):
            monitor.log(f"run: {folder}")
            summary = train(task, model, config, folder, monitor, torch_device)
        summary = add_mc(summary, task, model, config, folder, monitor)
        monitor.logger.finish(
            {name: value for name, value in summary["metrics"].items() if isinstance(value, int | float)}
        )
        if describe:
            print(run_summary.describe(summary, config))
            print("\n".join(next_steps(task, config, folder, summary)))
        monitor.stop_if_requested()
    return summary


def next_steps(task: Task, config: RunConfig, folder: Path, summary: dict[str, Any]) -> list[str]:
    """What a user may do with a finished run: look at it, and publish it where it can be published."""
    where = shlex.quote(str(folder))
    steps = [f"look at it with: {task.example_command.format(folder=where)}"]
    if not config.task.own_files and not summary["dirty"]:
        steps.append(f"publish it with: python scripts/publish.py {where}")
    return steps


def save_vocabulary(task: Task, folder: Path) -> None:
    """So that a trained model reads new texts without its corpus."""
    if not (folder / VOCABULARY).is_file():
        checkpoint.write_text(folder / VOCABULARY, json.dumps(task.vocabulary(), ensure_ascii=False) + "\n")


def print_finished(
    summary: dict[str, Any], config: RunConfig, folder: Path, asked: int, describe: bool
) -> dict[str, Any]:
    """There is nothing left to do; `asked` epochs may be fewer than it has."""
    check_own_files(config, folder, summary)
    longer = f", with {config.optim.epochs} epochs ({asked} asked for)" if config.optim.epochs > asked else ""
    print(f"finished already{longer}: {folder}")
    if describe:
        print(run_summary.describe(summary, config))
    return summary


def resolve_epochs(config: RunConfig, summary: dict[str, Any]) -> tuple[RunConfig, bool]:
    """A finished run is continued when more epochs are asked for; when fewer are, it keeps those it has."""
    trained = summary["config"]["optim"]["epochs"]
    extend = summary["history"]["epoch"][-1] == trained < config.optim.epochs
    kept = config.optim.epochs if extend else trained
    return replace(config, optim=replace(config.optim, epochs=kept)), extend


def check_own_files(config: RunConfig, folder: Path, summary: dict[str, Any]) -> None:
    """A finished run of a user's own files is that of today's only as long as nobody changed them."""
    if not config.task.own_files:
        return
    try:
        task = base.build(config, torch.device("cpu"))
    except UserError as error:
        print(f"warning: the data are not what they were ({error})")
        return
    check_task(task, config, folder, summary)


def check_task(task: Task, config: RunConfig, folder: Path, summary: dict[str, Any] | None) -> None:
    """Refuse, before anything is computed, what the task's data do not allow."""
    if summary is not None and summary["data"]["sha256"] != task.sha256:
        raise UserError(f"{folder}: trained on other data than {task.name} is now; choose run_dir=")
    if task.selection_metric is None and (config.train.early_stopping or config.train.patience):
        raise UserError(
            f"task={config.task.name}: train.early_stopping and train.patience need a validation set; hold some data "
            "out (task.hold_out=0.1) or leave them off"
        )


def train(
    task: Task, model: SequenceModel, config: RunConfig, folder: Path, monitor: RunMonitor, device: torch.device
) -> dict[str, Any]:
    """Fit, measure the last and the best epoch, and write the summary (MC dropout is added to it later)."""
    trainer, code = Trainer(task, model, config, folder, monitor, device), run_summary.code_version()
    if code.endswith("+dirty"):
        where = ", ".join(run_summary.TRACKED_PATHS)
        monitor.log(
            f"warning: uncommitted changes in {where}: this run cannot be published; commit first if it should be"
        )
    summary = {"status": FINISHED, **run_identity(config, task)}
    try:
        progress = trainer.fit(code)
    except TrainingDiverged as error:
        failed = {"status": UNSTABLE, "reason": str(error), "metrics": {}}
        run_summary.write(folder, summary | failed | training_record(trainer.progress, device))
        raise
    started = monitor.seconds()
    monitor.log("measuring the test set")
    metrics = final_metrics(task, model, config, folder, progress)
    summary |= {"metrics": metrics, **training_record(progress, device)}
    summary["duration"]["eval_seconds"] = monitor.seconds() - started
    if task.log_batch_losses:
        summary["batches"] = {"train_loss": progress.batches}
    run_summary.write(folder, summary)
    monitor.stop_if_requested()
    return summary


def run_identity(config: RunConfig, task: Task) -> dict[str, Any]:
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


def training_record(progress: Progress, device: torch.device) -> dict[str, Any]:
    """What training has measured on its way, finished or not."""
    return {
        "history": progress.history,
        "commit": progress.commits[-1].removesuffix("+dirty"),
        **run_summary.commit_record(progress.commits),
        "duration": {"train_seconds": progress.train_seconds, "total_seconds": progress.total_seconds},
        "hardware": run_summary.hardware(device, progress.environments[:-1]) | progress.graph_record(),
        "peak_memory_mb": run_summary.peak_memory_mb(device),
    }


def final_metrics(task: Task, model: SequenceModel, config: RunConfig, folder: Path, progress: Progress) -> Metrics:
    """Everything for the last epoch and for the best one; the plain names are those of the reported epoch."""
    model.eval()
    last = task.final_metrics(model)
    best = last
    if progress.best_epoch not in (0, progress.epoch - 1):
        load_parameters(model, config, folder / BEST, progress.best_epoch)
        best = task.final_metrics(model)
    reported = best if config.train.early_stopping else last
    metrics = dict(reported)
    if task.selection_metric is not None:
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


def load_parameters(model: SequenceModel, config: RunConfig, file: Path, epoch: int | None) -> None:
    """Put the parameters in checkpoint.pt or best.pt into the model; rejected if of another run or another epoch."""
    saved = checkpoint.load(file)
    checkpoint.check_identity(file, saved, compose.folder_identity(config))
    with checkpoint.checkpoint_errors(file):
        found = saved["epoch"] if file.name == BEST else saved["progress"]["epoch"] - 1
    if epoch is not None and found != epoch:
        raise UserError(
            f"{file}: holds epoch {found}, the numbers of this run are of epoch {epoch}; {checkpoint.AGAIN}"
        )
    checkpoint.load_weights(model, saved, file)


def load_reported_weights(model: SequenceModel, config: RunConfig, folder: Path) -> None:
    """The parameters behind the reported numbers of a finished run."""
    summary = run_summary.finished(folder)
    if config.train.early_stopping:
        load_parameters(model, config, folder / BEST, summary["metrics"].get("best_epoch"))
    else:
        load_parameters(model, config, folder / CHECKPOINT, summary["history"]["epoch"][-1])


def mc_up_to_date(summary: dict[str, Any], config: RunConfig) -> bool:
    """Has MC dropout been evaluated as this config asks?"""
    if config.mc.samples == 0 or not config.model.drops:
        return True
    done, asked = summary.get("mc", {}), {"samples": config.mc.samples, "word_dropout": config.mc.word_dropout}
    if config.mc.word_dropout != done.get("word_dropout"):
        return False
    # more samples than asked for are better evidence, and may have cost hours
    return done == asked or (done["samples"] > asked["samples"] and "mc_curve" in summary)


def add_mc(
    summary: dict[str, Any], task: Task, model: SequenceModel, config: RunConfig, folder: Path, monitor: RunMonitor
) -> dict[str, Any]:
    """Evaluate the reported parameters by MC dropout and add the numbers to the summary."""
    if mc_up_to_date(summary, config):
        return summary
    load_reported_weights(model, config, folder)
    model.eval()
    started = monitor.seconds()
    monitor.log(f"MC dropout with {config.mc.samples} sample{'s' if config.mc.samples > 1 else ''}")
    metrics, extras, earlier = task.mc(model, config, folder, monitor)
    summary = (
        summary
        | extras
        | run_summary.commit_record([*summary["commits"], *earlier.commits, run_summary.code_version()])
    )
    summary["metrics"] = summary["metrics"] | metrics
    summary["mc"] = {"samples": int(metrics["mc_samples"]), "word_dropout": config.mc.word_dropout}
    summary["duration"] |= {"mc_seconds": earlier.seconds + monitor.seconds() - started}
    run_summary.write(folder, summary)
    return summary
