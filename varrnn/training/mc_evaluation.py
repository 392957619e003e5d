"""MC dropout of a trained model: samples are drawn in small steps and saved, and a later start continues them."""

from pathlib import Path
from typing import Any, NamedTuple

import torch

from varrnn.config.schema import RunConfig
from varrnn.tasks.base import Sampler, Task
from varrnn.tasks.model import SequenceModel
from varrnn.training import checkpoint, provenance
from varrnn.training.progress import RunMonitor


class MCEvaluation(NamedTuple):
    """A finished evaluation: its samples, the commits that drew them, and the total time over all starts."""

    sampler: Any
    commits: list[str]
    seconds: float


def samples_file(config: RunConfig) -> str:
    """The file of saved samples; the ablation with word dropout has a separate one, so that both are kept."""
    return "mc_word_dropout.pt" if config.mc.word_dropout else "mc.pt"


def evaluate(task: Task, model: SequenceModel, config: RunConfig, folder: Path, monitor: RunMonitor) -> MCEvaluation:
    """Draw samples up to the configured number, including those that an earlier start saved in `folder`."""
    samples, started = config.mc.samples, monitor.seconds()
    sampler, file = task.sampler(model, config), folder / samples_file(config)
    device = next(model.parameters()).device
    described = {
        "word_dropout": config.mc.word_dropout,
        "weights": checkpoint.fingerprint(model),
        "data": task.sha256,
    }
    commits, seconds = resume(sampler, file, described, samples, device)
    commits = list(dict.fromkeys([*commits, provenance.code_version()]))
    monitor.start(sampler.words(max(samples, sampler.done)), sampler.words_done())
    monitor.logger.resume_mc(sampler.done)
    while sampler.done < samples:
        before = sampler.done
        monitor.advance(sampler.advance(samples))
        if sampler.done != before:
            report(sampler, monitor)
        if monitor.save_due() or sampler.done == samples:
            spent = seconds + monitor.seconds() - started
            origin = {"described": described, "device": device.type, "seconds": spent, "commits": commits}
            checkpoint.save({**sampler.state_dict(), **origin}, file)
            monitor.stop_if_requested()
    return MCEvaluation(sampler, commits, seconds + monitor.seconds() - started)


def resume(
    sampler: Sampler, file: Path, described: dict[str, Any], samples: int, device: torch.device
) -> tuple[list[str], float]:
    """Continue from the file if it belongs to these weights and data; returns its commits and seconds."""
    if not file.is_file():
        return [], 0.0
    saved = checkpoint.load(file)
    with checkpoint.checkpoint_errors(file):
        if saved["described"] != described:
            return [], 0.0
        commits, seconds = saved["commits"], saved["seconds"]
        if not isinstance(commits, list) or not all(isinstance(commit, str) for commit in commits):
            raise ValueError("commits")
        if type(seconds) not in (int, float) or not seconds >= 0:
            raise ValueError("seconds")
        sampler.resume(saved, samples, saved["device"] == device.type)
        return commits, seconds


def report(sampler: Sampler, monitor: RunMonitor) -> None:
    """Show the metrics so far in the progress bar and log them."""
    metrics = {name: value for name, value in sampler.metrics().items() if name != "mc_samples"}
    shown = "  ".join(f"{name} {value:.4g}" for name, value in metrics.items())
    monitor.set_status(f"{sampler.done} samples: {shown}")
    monitor.logger.log_mc(sampler.done, metrics)
