"""One run from beginning to end: task, model, fit, evaluate, MC dropout, summary.

The same command resumes an interrupted run, extends a finished one, or finds that nothing is left to do.
"""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from varrnn.config import compose
from varrnn.config.schema import RunConfig
from varrnn.errors import UserError
from varrnn.records.schema import FINISHED, UNSTABLE
from varrnn.tasks import base
from varrnn.tasks.base import Task
from varrnn.tasks.model import SequenceModel
from varrnn.training import checkpoint, evaluation, loggers, mc_evaluation, provenance, resume
from varrnn.training import device as devices
from varrnn.training import summary as run_summary
from varrnn.training.progress import RunMonitor
from varrnn.training.resume import RemainingWork
from varrnn.training.signals import Interrupts
from varrnn.training.trainer import Trainer, TrainingDiverged
from varrnn.training.vocabulary import save_vocabulary


def run(config: RunConfig, folder: Path | None = None, describe: bool = True) -> dict[str, Any]:
    """Train and evaluate the config's run, or the remaining parts of it; returns the summary.

    `describe` prints all final metrics.
    """
    folder = compose.run_dir(config) if folder is None else folder
    with checkpoint.lock_run_dir(folder), recorded_errors(config, folder):
        provenance.code_version()  # read and cache it before the code can change
        device = devices.choose_device(config)
        devices.check_cuda_graph(config, device)
        devices.check_memory(config, device)
        provenance.reset_peak_memory(device)
        requested, work = config.optim.epochs, resume.find_work(config, folder)
        config = work.config
        if work.done:
            return print_finished(work, folder, requested, describe)
        if not work.started:  # first, so that a run that fails to start is listed with its command
            compose.save_config(config, folder / resume.CONFIG)
        with open_monitor(config, folder) as monitor:
            task = base.build(config, device)
            resume.check_task(task, config, folder, work.summary)
            save_vocabulary(task, folder)
            model = task.model(config)
            if work.summary is not None and not work.train:
                summary = work.summary
                monitor.logger.resume(len(summary["history"]["epoch"]) * task.updates_per_epoch)
            else:
                summary = train(task, model, work, folder, monitor, device)
            if not resume.mc_up_to_date(summary, config):
                summary = add_mc(summary, task, model, config, folder, monitor)
            monitor.logger.finish(run_summary.numeric_metrics(summary))
            if describe:
                monitor.log(run_summary.describe(summary, config))
                monitor.log("\n".join(run_summary.next_steps(summary, task.example_command, config, folder)))
            monitor.stop_if_requested()
    return summary


def train(
    task: Task,
    model: SequenceModel,
    work: RemainingWork,
    folder: Path,
    monitor: RunMonitor,
    device: torch.device,
) -> dict[str, Any]:
    """Fit, evaluate the last and the best epoch, and write the summary (MC dropout is added later)."""
    config, code = work.config, provenance.code_version()
    monitor.log(f"run: {folder}")
    if code.endswith("+dirty"):
        where = ", ".join(provenance.TRACKED_PATHS)
        monitor.log(
            f"warning: uncommitted changes in {where}: this run cannot be published; to publish it, commit first"
        )
    trainer = Trainer(task, model, config, folder, monitor, device)
    trainer.restore()
    if work.extends and work.summary is not None:  # only now: a damaged checkpoint costs no finished result
        monitor.log("extending this run: this replaces its result with fewer epochs (another run_dir= keeps it)")
        resume.mark_extended(folder, work.summary)
    compose.save_config(config, folder / resume.CONFIG)
    summary = {"status": FINISHED, **run_summary.run_identity(config, task.name, task.sha256)}
    try:
        progress = trainer.fit(code)
    except TrainingDiverged as error:
        failed = {"status": UNSTABLE, "reason": str(error), "metrics": {}}
        run_summary.write(folder, summary | failed | run_summary.training_record(trainer.progress, device))
        raise
    started = monitor.seconds()
    monitor.log("evaluating on the test set")
    metrics = evaluation.final_metrics(task, model, config, folder, progress)
    summary |= {"metrics": metrics, **run_summary.training_record(progress, device)}
    summary["duration"]["eval_seconds"] = monitor.seconds() - started
    if task.log_batch_losses:
        summary["batches"] = {"train_loss": progress.batches}
    run_summary.write(folder, summary)
    monitor.stop_if_requested()
    return summary


def add_mc(
    summary: dict[str, Any], task: Task, model: SequenceModel, config: RunConfig, folder: Path, monitor: RunMonitor
) -> dict[str, Any]:
    """Evaluate the reported parameters by MC dropout and add the metrics to the summary."""
    compose.save_config(config, folder / resume.CONFIG)
    evaluation.load_reported_weights(model, config, folder)
    model.eval()
    monitor.log(f"MC dropout with {config.mc.samples} sample{'s' if config.mc.samples > 1 else ''}")
    sampler, commits, seconds = mc_evaluation.evaluate(task, model, config, folder, monitor)
    summary = summary | sampler.curves() | provenance.commit_record([*summary["commits"], *commits])
    earlier = resume.comparable_metrics(summary, config)
    summary["metrics"] = earlier | sampler.metrics()
    summary["mc"] = {"samples": sampler.done, "word_dropout": config.mc.word_dropout}
    summary["duration"] |= {"mc_seconds": seconds}
    run_summary.write(folder, summary)
    return summary


def print_finished(work: RemainingWork, folder: Path, requested: int, describe: bool) -> dict[str, Any]:
    """Report a finished run; `requested`, the requested number of epochs, may be below the run's."""
    config, summary = work.config, work.summary
    assert summary is not None
    resume.check_user_files(config, folder, summary)
    longer = f", with {config.optim.epochs} epochs ({requested} requested)" if config.optim.epochs > requested else ""
    print(f"finished already{longer}: {folder}")
    if describe:
        print(run_summary.describe(summary, config))
    return summary


@contextlib.contextmanager
def open_monitor(config: RunConfig, folder: Path) -> Iterator[RunMonitor]:
    """The run's progress bar, signals and live curves."""
    message = f"stopped and saved in {folder}; the same command resumes it"
    with (
        Interrupts() as interrupts,
        RunMonitor(interrupts, config.progress, config.train.checkpoint_minutes, message) as monitor,
    ):
        monitor.logger = loggers.make_logger(config, folder, monitor.log)
        yield monitor


@contextlib.contextmanager
def recorded_errors(config: RunConfig, folder: Path) -> Iterator[None]:
    """Write the reason of a failure to error.txt in the run's folder."""
    (folder / "error.txt").unlink(missing_ok=True)
    try:
        yield
    except UserError as error:
        write_error(folder, error)
        raise
    except TrainingDiverged as error:
        write_error(folder, error)
        raise UserError(f"{folder}: {error}") from error
    except RuntimeError as error:
        if not devices.out_of_memory(error):
            raise
        write_error(folder, UserError(devices.oom_hint(config)))
        # do not store the error in a variable: its traceback keeps the run's GPU tensors alive
        raise UserError(f"{folder}: {devices.oom_hint(config)}") from error


def write_error(folder: Path, error: Exception) -> None:
    """Write error.txt for a run without a result; a finished run keeps its result."""
    with contextlib.suppress(UserError):  # a full disk or a damaged summary: report the first error
        if not run_summary.is_finished(run_summary.read(folder)):
            checkpoint.write_text(folder / "error.txt", f"{error}\n")
