"""The training loop of every task: update, check, save, evaluate."""

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from varrnn import rng
from varrnn.config import schema
from varrnn.config.identity import folder_identity
from varrnn.errors import UserError
from varrnn.records import schema as record_schema
from varrnn.tasks.base import Step, Task
from varrnn.tasks.model import SequenceModel
from varrnn.tensor_trees import map_tensors
from varrnn.training import checkpoint, cuda_graph, optim, provenance
from varrnn.training.progress import RunMonitor

CHECKPOINT, BEST = "checkpoint.pt", "best.pt"
SAVED_AS = {"losses_and_norms": "looked_at", "environments": "places"}  # fields with other names in checkpoint.pt
ADVICE = "the last good checkpoint is kept. Try another seed=, a lower optim.lr or a smaller optim.clip"


class TrainingDiverged(Exception):
    """The loss or the gradient is not finite."""


@dataclass
class Progress:
    """The progress of a run; saved with the parameters, so that a resumed run gives the same numbers."""

    epoch: int = 1  # the current epoch
    update: int = 0  # updates done in it
    state: Any = None  # the carried hidden state
    losses_and_norms: Tensor | None = None  # (updates, 2): loss and gradient norm of the epoch's updates
    history: dict[str, list[Any]] = field(default_factory=lambda: {"epoch": []})
    batches: list[float] = field(default_factory=list)  # the loss of every update, if the task logs it
    best_epoch: int = 0
    best_score: float = math.inf
    words: int = 0
    epoch_seconds: float = 0.0
    train_seconds: float = 0.0
    total_seconds: float = 0.0
    commits: list[str] = field(default_factory=list)
    environments: list[str] = field(default_factory=list)  # hardware and threads of each start, in order
    cuda_graph: str = ""  # whether a CUDA graph was used, if one was requested

    def add_row(self, row: dict[str, Any]) -> None:
        """Add an epoch to the history; columns that were not measured get None."""
        rows = len(self.history["epoch"])
        for name in dict.fromkeys([*self.history, *row]):  # in the order in which columns appeared
            self.history.setdefault(name, [None] * rows).append(row.get(name))

    def graph_record(self) -> dict[str, str]:
        """What a record says about the CUDA graph: nothing if it was not requested."""
        return {"cuda_graph": self.cuda_graph} if self.cuda_graph else {}

    def state_dict(self) -> dict[str, Any]:
        """All fields, by their names in checkpoint.pt."""
        return {SAVED_AS.get(name, name): value for name, value in vars(self).items()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what `state_dict` returned; a field that an older version did not save keeps its default."""
        names = {saved: name for name, saved in SAVED_AS.items()}
        self.__dict__.update({names.get(key, key): value for key, value in state.items()})


def progress_problem(saved: Any, updates: int, state_shape: tuple[int, ...]) -> str:
    """The first error in the progress of a loadable checkpoint, e.g. one edited by hand; "" without errors.

    `updates` is the number of updates of an epoch, `state_shape` the shape (layers, batch, units) of a carried state.
    """
    if not isinstance(saved, dict):
        return f"progress is a {type(saved).__name__}"
    filled = Progress().state_dict() | saved  # fields that are newer than the checkpoint keep their defaults
    for name in ("epoch", "update", "best_epoch", "words"):
        if type(filled[name]) is not int:
            return f"progress.{name} is {filled[name]!r}, not an integer"
    for name in ("best_score", "epoch_seconds", "train_seconds", "total_seconds"):
        value = filled[name]
        if type(value) not in (int, float) or math.isnan(value) or (value < 0 and name != "best_score"):
            return f"progress.{name} is {value!r}, not a number of its kind"
    for name, kind in (("commits", str), ("places", str), ("batches", float)):
        if not isinstance(filled[name], list) or not all(isinstance(entry, kind) for entry in filled[name]):
            return f"progress.{name} is not a list of {kind.__name__}"
    epoch, update, history = filled["epoch"], filled["update"], filled["history"]
    ranges = {"epoch": (1, math.inf), "update": (0, updates - 1), "best_epoch": (0, epoch - 1), "words": (0, math.inf)}
    for name, (least, most) in ranges.items():
        if not least <= filled[name] <= most:
            return f"progress.{name} is {filled[name]}, it should be from {least} to {most}"
    counted = history["epoch"] if record_schema.is_history(history) else None
    if counted is None or len(counted) != epoch - 1 or counted != list(range(1, epoch)):
        return f"progress.history does not have the {epoch - 1} epochs before epoch {epoch}"
    for name in ("words", "train_seconds", "total_seconds"):
        if epoch > 1 and not filled[name]:
            return f"progress.{name} is 0 in epoch {epoch}"
    state, looked_at = filled["state"], filled["looked_at"]
    fits = isinstance(looked_at, Tensor) and looked_at.shape == (updates, 2) if update else looked_at is None
    if not fits:
        return f"progress.looked_at does not fit update {update} of {updates}"
    parts = state if isinstance(state, tuple) else () if state is None else (state,)
    if any(not isinstance(part, Tensor) or part.shape != state_shape or not part.is_floating_point() for part in parts):
        return f"progress.state is not of the shape {state_shape}"
    return ""


class Trainer:
    """Trains a run from its current state to its last epoch."""

    def __init__(
        self,
        task: Task,
        model: SequenceModel,
        config: schema.RunConfig,
        folder: Path,
        monitor: RunMonitor,
        device: torch.device,
    ) -> None:
        self.task, self.model, self.config = task, model, config
        self.folder, self.monitor, self.device = folder, monitor, device
        self.optimizer = optim.build(config, model)
        self.progress = Progress()
        self.graph: cuda_graph.GraphedStep | None = None
        self.saved_environment = ""  # that of the checkpoint
        self.warned = False

    def fit(self, code: str) -> Progress:
        """Train up to the last epoch, or until `patience` is exceeded; `code` is the running commit.

        Call `restore` first where an earlier start may have left a checkpoint.
        """
        self.prepare_graph()
        progress, here = self.progress, self._environment()
        if self.saved_environment:
            self._warn_if_moved(here)
        progress.commits = [*(one for one in progress.commits if one != code), code]
        progress.environments = [*(one for one in progress.environments if one != here), here]
        self._start_bar()
        self.monitor.logger.resume(self._global_step())
        while not self.finished():
            self._train_epoch()
            self._end_epoch()
            self.save()
            self.monitor.log(self._describe_epoch())
            self.monitor.stop_if_requested()
        self.monitor.close()
        self.graph = None  # with the memory that it holds
        return progress

    def finished(self) -> bool:
        """Whether training is complete."""
        progress, patience = self.progress, self.config.train.patience
        waited = progress.epoch - 1 - progress.best_epoch if progress.best_epoch else 0
        out_of_patience = patience > 0 and self.task.selection_metric is not None and waited >= patience
        return progress.epoch > self.config.optim.epochs or out_of_patience

    def _train_epoch(self) -> None:
        progress, task, every = self.progress, self.task, self.config.train.log_every
        lr = optim.learning_rate(self.config.optim, progress.epoch)
        if progress.losses_and_norms is None:
            progress.losses_and_norms = torch.zeros(task.updates_per_epoch, 2, device=self.device)
        self.model.train()
        started, seen = self.monitor.seconds(), progress.update
        for update in range(progress.update, task.updates_per_epoch):
            step, norm = self.training_step(progress.epoch, update, progress.state, lr, self.mask_generator(update))
            progress.losses_and_norms[update, 0], progress.losses_and_norms[update, 1] = step.loss_for_log, norm
            progress.state, progress.update = step.state, update + 1
            progress.words += task.words(update)
            self.monitor.advance(task.words(update))
            if progress.update % every == 0 or progress.update == task.updates_per_epoch:
                self._check_finite(seen, lr)
                words, before = sum(map(task.words, range(seen, progress.update))), started
                seen, started = progress.update, self._add_time(started)
                self._log_updates(lr, words / max(started - before, 1e-9))
            if progress.update < task.updates_per_epoch and self.monitor.save_due():
                self._check_finite(seen, lr)
                seen = progress.update
                self._add_time(started)
                self.save()
                self.monitor.stop_if_requested()
                started = self.monitor.seconds()

    def training_step(
        self, epoch: int, update: int, state: Any, lr: float, draws: torch.Generator | None
    ) -> tuple[Step, Tensor]:
        """One training step, without synchronising with the device."""
        batch = self.task.prepare_batch(self.model, epoch, update, draws)
        return (self.graph or self._compute)(batch, state, lr)

    def _compute(self, batch: Any, state: Any, lr: float | Tensor) -> tuple[Step, Tensor]:
        """Loss, backward pass and update of a given batch: the part of a step that a CUDA graph captures."""
        step = self.task.compute_loss(self.model, batch, state)
        step.objective.backward()
        return step._replace(objective=step.objective.detach()), self.optimizer.step(lr)

    def prepare_graph(self) -> None:
        """Replace the training step by a CUDA graph of it, where one is requested and computes the same."""
        progress, task = self.progress, self.task
        if not self.config.train.cuda_graph or self.finished():
            return
        self.model.train()
        batches = [
            task.prepare_batch(self.model, progress.epoch, update, self.mask_generator(update))
            for update in range(min(2, task.updates_per_epoch))
        ]
        lr, recorder = optim.learning_rate(self.config.optim, progress.epoch), cuda_graph.make_recorder(self.device)
        made = cuda_graph.prepare(self._compute, self.model, self.optimizer, batches, lr, recorder)
        self.graph, progress.cuda_graph = made
        self.monitor.log(f"train.cuda_graph: {made.note}")

    def mask_generator(self, update: int) -> torch.Generator:
        """The source of the masks of an update of this epoch."""
        return rng.make_generator(self.device, rng.MASKS, self.config.seed, self.progress.epoch, update)

    def _environment(self) -> str:
        """What exact repetition depends on; a CUDA graph only where it rounds differently."""
        here = provenance.environment(self.device)
        return f"{here}, CUDA graph" if self.graph is not None and self.graph.rounds_differently else here

    def _add_time(self, started: float) -> float:
        """Add the time since `started`; called after `_check_finite`, which synchronises with the device."""
        now = self.monitor.seconds()
        self.progress.epoch_seconds += now - started
        self._warn_if_long()
        return now

    def _check_finite(self, since: int, lr: float) -> None:
        """Synchronise with the device, check that the updates since the last check are finite, and show them."""
        progress = self.progress
        assert progress.losses_and_norms is not None
        recent = progress.losses_and_norms[since : progress.update].tolist()
        for update, (loss, norm) in enumerate(recent, since + 1):
            if not (math.isfinite(loss) and math.isfinite(norm)):
                raise TrainingDiverged(
                    f"epoch {progress.epoch}, update {update} of {self.task.updates_per_epoch}: loss {loss:.4g}, "
                    f"gradient norm {norm:.4g} at learning rate {lr:.4g}; {ADVICE}"
                )
        if recent:
            mean = sum(loss for loss, _ in recent) / len(recent)
            shown = "  ".join(f"{k} {v:.2f}" for k, v in self.task.train_metrics(mean).items())
            self.monitor.set_status(
                f"epoch {progress.epoch}/{self.config.optim.epochs}  {shown}  norm {recent[-1][1]:.1f}"
            )

    def _global_step(self) -> int:
        """The number of updates since the beginning of the run."""
        return (self.progress.epoch - 1) * self.task.updates_per_epoch + self.progress.update

    def _log_updates(self, lr: float, words_per_second: float) -> None:
        """Log a point of the live curves: the mean of the last `log_every` updates.

        It is the same after a resume, since the checkpoint contains the updates before the stop.
        """
        progress, every = self.progress, self.config.train.log_every
        assert progress.losses_and_norms is not None
        loss, norm = (
            progress.losses_and_norms[(progress.update - 1) // every * every : progress.update].mean(0).tolist()
        )
        point = {"loss": loss, "grad_norm": norm, "lr": lr, "words_per_second": words_per_second}
        self.monitor.logger.log(self._global_step(), {f"update/{name}": value for name, value in point.items()})

    def _end_epoch(self) -> None:
        progress = self.progress
        assert progress.losses_and_norms is not None
        losses, norms = progress.losses_and_norms.double().mean(0).tolist()
        if self.task.log_batch_losses:
            progress.batches += [round(loss, 6) for loss in progress.losses_and_norms[:, 0].tolist()]
        started = self.monitor.seconds()
        self.model.eval()
        measured = self.task.epoch_metrics(self.model, progress.epoch)
        self._check_score(measured)
        progress.train_seconds += progress.epoch_seconds
        progress.total_seconds += progress.epoch_seconds + self.monitor.seconds() - started
        progress.add_row(
            {
                "epoch": progress.epoch,
                **self.task.train_metrics(losses),
                **measured,
                "lr": optim.learning_rate(self.config.optim, progress.epoch),
                "grad_norm": norms,
                "wps_train": progress.words / progress.train_seconds,
                "wps_authors": progress.words / progress.total_seconds,
                "seconds": progress.epoch_seconds,
            }
        )
        row = {f"epoch/{name}": values[-1] for name, values in progress.history.items()}
        self.monitor.logger.log(self._global_step(), row)
        self._keep_best(measured)
        progress.epoch, progress.update, progress.state = progress.epoch + 1, 0, None
        progress.losses_and_norms, progress.epoch_seconds = None, 0.0

    def _check_score(self, measured: dict[str, float]) -> None:
        metric = self.task.selection_metric
        if metric is not None and not math.isfinite(measured[metric]):
            raise TrainingDiverged(f"epoch {self.progress.epoch}: {metric} is {measured[metric]}; {ADVICE}")

    def _keep_best(self, measured: dict[str, float]) -> None:
        progress, metric = self.progress, self.task.selection_metric
        if metric is not None and measured[metric] < progress.best_score:
            progress.best_epoch, progress.best_score = progress.epoch, measured[metric]

    def save(self) -> None:
        """Write the checkpoint, and rewrite log.csv from the same history.

        best.pt is a copy of the parameters in checkpoint.pt after the best epoch. It is written second: `restore`
        repeats the copy if the process died between the two.
        """
        progress = self.progress
        state: dict[str, Any] = {"model": self.model.state_dict(), "optimiser": self.optimizer.state_dict()}
        state |= {
            "progress": progress.state_dict(),
            "place": self._environment(),
            "data": self.task.sha256,
        }
        checkpoint.save(state | {"identity": folder_identity(self.config)}, self.folder / CHECKPOINT)
        if self._is_best():
            self._save_best()
        names = list(progress.history)
        rows = [",".join(names)]
        rows += [
            ",".join("" if x is None else f"{x:.8g}" for x in row) for row in zip(*(progress.history[n] for n in names))
        ]
        checkpoint.write_text(self.folder / "log.csv", "\n".join(rows) + "\n")

    def _is_best(self) -> bool:
        """Whether the current parameters are those of the best epoch."""
        progress = self.progress
        return progress.update == 0 and progress.best_epoch == progress.epoch - 1 > 0

    def _save_best(self) -> None:
        state = {"epoch": self.progress.best_epoch, "model": self.model.state_dict()}
        checkpoint.save(state | {"identity": folder_identity(self.config)}, self.folder / BEST)

    def restore(self) -> None:
        """Resume from the checkpoint, if there is one."""
        file = self.folder / CHECKPOINT
        if not file.is_file():
            return
        saved = checkpoint.load(file)
        checkpoint.check_identity(file, saved, folder_identity(self.config))
        with checkpoint.checkpoint_errors(file):
            data, environment = saved["data"], saved["place"]
            saved_progress = map_tensors(lambda tensor: tensor.to(self.device), saved["progress"])
            self._check_progress(saved_progress)
        if data != self.task.sha256:
            raise UserError(f"{self.folder}: trained on other data than {self.task.name} is now; choose run_dir=")
        checkpoint.load_weights(self.model, saved, file)
        with checkpoint.checkpoint_errors(file):
            self.optimizer.load_state_dict(saved["optimiser"])
            self.progress.load_state_dict(saved_progress)
        progress, requested = self.progress, self.config.optim.epochs
        progress.environments = progress.environments or [environment]  # early versions stored only the last one
        self.saved_environment = environment
        if progress.epoch - 1 > requested or (progress.epoch > requested and progress.update):
            raise UserError(
                f"{self.folder}: optim.epochs={requested}, but the run is in epoch {progress.epoch} already; set more "
                "epochs, or choose run_dir="
            )
        self._restore_best()
        if not self.finished():
            self.monitor.log(f"resuming in epoch {self.progress.epoch} after update {self.progress.update}")

    def _warn_if_moved(self, here: str) -> None:
        if here != self.saved_environment:
            self.monitor.log(
                f"warning: started on {self.saved_environment}, resuming on {here}: the numbers will differ from "
                "those of an uninterrupted run, and words per second mix both (set device=, threads=)"
            )

    def _check_progress(self, progress: Any) -> None:
        size = self.config.size
        problem = progress_problem(
            progress, self.task.updates_per_epoch, (size.layers, self.config.task.batch_size, size.units)
        )
        if problem:
            raise UserError(f"{self.folder / CHECKPOINT}: damaged ({problem}); {checkpoint.TRAIN_AGAIN}")

    def _restore_best(self) -> None:
        """Make best.pt agree with checkpoint.pt, or report that the best epoch is lost."""
        progress, file = self.progress, self.folder / BEST
        if not progress.best_epoch:
            return
        problem = "is missing"
        if file.is_file():
            saved = checkpoint.load(file)
            checkpoint.check_identity(file, saved, folder_identity(self.config))
            with checkpoint.checkpoint_errors(file):
                problem = f"has epoch {saved['epoch']}, but epoch {progress.best_epoch} is the best in {CHECKPOINT}"
                if saved["epoch"] == progress.best_epoch:
                    return
        if self._is_best():
            self._save_best()
        elif self.finished():
            raise UserError(f"{file}: {problem}; {checkpoint.TRAIN_AGAIN}")
        else:
            progress.best_epoch, progress.best_score = 0, math.inf
            self.monitor.log(f"warning: {file} {problem}; only later epochs can become the best epoch")

    def _start_bar(self) -> None:
        words = sum(self.task.words(update) for update in range(self.task.updates_per_epoch))
        self.monitor.start(words * self.config.optim.epochs, self.progress.words, self.config.model.name)

    def _warn_if_long(self) -> None:
        """On a CPU, estimate the remaining hours from the first updates, and print them once."""
        progress = self.progress
        if self.warned or self.device.type != "cpu" or progress.update < min(10, self.task.updates_per_epoch):
            return
        self.warned = True
        updates_left = (self.config.optim.epochs - progress.epoch + 1) * self.task.updates_per_epoch - progress.update
        hours = updates_left * progress.epoch_seconds / progress.update / 3600
        if hours > 0.5:
            self.monitor.log(
                f"warning: about {hours:.1f} hours on this CPU; you can stop and resume the run at any time"
            )

    def _describe_epoch(self) -> str:
        history = self.progress.history
        row = {name: values[-1] for name, values in history.items()}
        return (
            f"epoch {row['epoch']:3d}/{self.config.optim.epochs}  {self.task.headline(row)}  lr {row['lr']:.4f}  "
            f"{row['wps_train']:,.0f} words/s"
        )
