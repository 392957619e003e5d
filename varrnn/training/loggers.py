"""Live curves in TensorBoard or Weights & Biases, in addition to log.csv, which is always written.

A logger works in a separate thread and uses numbers that training has already read from the device: training does not
wait for it. If it fails (no package, no network, a full disk), it prints one line and the run continues.
"""

from __future__ import annotations

import math
import queue
import threading
import uuid
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from varrnn import fileio
from varrnn.config.schema import RunConfig, flatten
from varrnn.errors import UserError

CLOSE_SECONDS = 20.0  # maximum wait for the last points at the end of a run
PRIVATE = ("runs_root", "run_dir", "logger.")  # not hyper-parameters
Scalars = Mapping[str, float | None]


class Logger:
    """The logger of `logger=csv`: it writes nothing, since the training loop writes log.csv."""

    def resume(self, step: int) -> None:
        """Start or resume training after update `step`; later points of an earlier start are replaced."""

    def log(self, step: int, values: Scalars) -> None:
        """Log training metrics after `step` updates."""

    def resume_mc(self, samples: int) -> None:
        """Start or resume MC dropout after `samples` samples."""

    def log_mc(self, samples: int, values: Scalars) -> None:
        """Log metrics of MC dropout after `samples` samples."""

    def finish(self, metrics: Scalars) -> None:
        """Log the final metrics, with the config as hyper-parameters."""

    def close(self) -> None:
        """Write the remaining points and close."""


class BackgroundLogger(Logger):
    """Passes every call to a backend in another thread; the first error stops the logger, not the run."""

    def __init__(self, name: str, make_backend: Callable[[], Logger], print_line: Callable[[str], None]) -> None:
        self.name, self.make_backend, self.print_line = name, make_backend, print_line
        self.calls: queue.SimpleQueue[tuple[str, tuple[Any, ...]] | None] = queue.SimpleQueue()
        self.failed = False
        self.thread: threading.Thread | None = None

    def _call(self, method: str, *arguments: Any) -> None:
        if self.failed:
            return
        if self.thread is None:
            self.thread = threading.Thread(target=self._work, name=f"logger={self.name}", daemon=True)
            self.thread.start()
        self.calls.put((method, arguments))

    def _work(self) -> None:
        try:
            backend = self.make_backend()
            while (call := self.calls.get()) is not None:
                method, arguments = call
                getattr(backend, method)(*arguments)
            backend.close()
        except Exception as error:  # a backend may raise any error, and none may end the run
            self.failed = True
            reason = describe(error, self.name)
            self.print_line(f"warning: logger={self.name}: {reason}; the run continues, its curves are in log.csv")

    def resume(self, step: int) -> None:
        self._call("resume", step)

    def log(self, step: int, values: Scalars) -> None:
        self._call("log", step, finite(values))

    def resume_mc(self, samples: int) -> None:
        self._call("resume_mc", samples)

    def log_mc(self, samples: int, values: Scalars) -> None:
        self._call("log_mc", samples, finite(values))

    def finish(self, metrics: Scalars) -> None:
        self._call("finish", finite(metrics))

    def close(self) -> None:
        if self.thread is None:
            return
        self.calls.put(None)
        self.thread.join(CLOSE_SECONDS)
        if self.thread.is_alive():
            self.print_line(
                f"warning: logger={self.name}: the last points were not written in {CLOSE_SECONDS:.0f} seconds"
            )
        self.thread = None


def finite(values: Scalars) -> dict[str, float]:
    """The entries that are finite numbers."""
    return {name: float(value) for name, value in values.items() if value is not None and math.isfinite(value)}


def describe(error: Exception, extra: str) -> str:
    """The reason for an error, in one line."""
    if isinstance(error, ImportError):
        return f"the package {error.name or error} is not installed (pip install 'varrnn[{extra}]')"
    first = next((line.strip() for line in str(error).splitlines() if line.strip()), "")
    return f"{type(error).__name__}{f': {first}' if first else ''}"


def hyper_parameters(config: RunConfig) -> dict[str, Any]:
    """Every option by its dotted name, without paths and logging."""
    return {key: value for key, value in flatten(asdict(config)).items() if not key.startswith(PRIVATE)}


class TensorBoard(Logger):
    """Event files in the run's folder: `tensorboard --logdir runs` shows all runs below it together.

    Points that an earlier start wrote after its last checkpoint are purged. MC dropout counts samples instead of
    updates, so it has a separate folder.
    """

    def __init__(self, folder: Path, config: RunConfig) -> None:
        from torch.utils import tensorboard

        self.make_writer = tensorboard.SummaryWriter
        self.folder, self.hyper_parameters = folder / "tensorboard", hyper_parameters(config)
        self.writer: Any = None
        self.mc_writer: Any = None
        self.step = 0

    def resume(self, step: int) -> None:
        self.step = step
        self.writer = self.make_writer(str(self.folder), purge_step=step + 1, flush_secs=10)

    def log(self, step: int, values: Scalars) -> None:
        self.step = step
        for name, value in values.items():
            self.writer.add_scalar(name, value, step)

    def resume_mc(self, samples: int) -> None:
        self.mc_writer = self.make_writer(str(self.folder / "mc"), purge_step=samples + 1, flush_secs=10)

    def log_mc(self, samples: int, values: Scalars) -> None:
        for name, value in values.items():
            self.mc_writer.add_scalar(name, value, samples)

    def finish(self, metrics: Scalars) -> None:
        """The table of TensorBoard's HPARAMS tab, one row per run."""
        from torch.utils.tensorboard.summary import hparams

        if self.writer is None:  # a finished run that only evaluates MC dropout
            self.writer = self.make_writer(str(self.folder), flush_secs=10)
        chosen = {
            key: value for key, value in self.hyper_parameters.items() if isinstance(value, bool | int | float | str)
        }
        final = {f"final/{name}": value for name, value in metrics.items()}
        for summary in hparams(chosen, final):
            self.writer.file_writer.add_summary(summary)
        for name, value in final.items():  # one step later, so that `resume` purges them when they are replaced
            self.writer.add_scalar(name, value, self.step + 1)

    def close(self) -> None:
        for writer in (self.writer, self.mc_writer):
            if writer is not None:
                writer.close()


class Wandb(Logger):
    """One run of Weights & Biases per run folder: its id is stored there, so that a later start continues it.

    wandb drops steps that it already has, so that no point is duplicated.
    """

    def __init__(self, folder: Path, config: RunConfig) -> None:
        import wandb

        settings = wandb.Settings(console="off", silent=True, save_code=False)
        self.run = wandb.init(
            project=config.logger.project,
            id=run_id(folder / "wandb_id.txt"),
            name=f"{config.task.name} {config.size.name} {config.model.name} {config.cell} seed {config.seed}",
            group=f"{config.task.name} {config.size.name}",  # groups the runs of a sweep
            dir=str(folder),
            config=hyper_parameters(config),
            resume="allow",
            mode=config.logger.mode,  # type: ignore[arg-type]
            settings=settings,
        )
        self.run.define_metric("mc/*", step_metric="mc/samples")
        self.step = 0

    def resume(self, step: int) -> None:
        self.step = step

    def log(self, step: int, values: Scalars) -> None:
        self.step = step
        self.run.log(dict(values), step=step)

    def log_mc(self, samples: int, values: Scalars) -> None:
        named = {f"mc/{name}": value for name, value in values.items()}
        self.run.log({"mc/samples": samples, **named}, step=self.step + samples)

    def finish(self, metrics: Scalars) -> None:
        self.run.summary.update({f"final/{name}": value for name, value in metrics.items()})

    def close(self) -> None:
        self.run.finish()


def run_id(file: Path) -> str:
    """The id of the run, created once per run folder."""
    if not file.is_file() or not file.read_text(encoding="utf-8").strip():
        fileio.write_text(file, f"{uuid.uuid4().hex[:16]}\n")
    return file.read_text(encoding="utf-8").strip()


BACKENDS: dict[str, Callable[[Path, RunConfig], Logger]] = {"tensorboard": TensorBoard, "wandb": Wandb}


def make_logger(config: RunConfig, folder: Path, print_line: Callable[[str], None]) -> Logger:
    """The logger that the config names."""
    name = config.logger.name
    if name == "csv":
        return Logger()
    if name not in BACKENDS:
        raise UserError(f"logger.name={name}: allowed are csv, {', '.join(BACKENDS)}")
    return BackgroundLogger(name, lambda: BACKENDS[name](folder, config), print_line)
