"""The one training loop, for every task: update, look, save, measure."""

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from varrnn import rng
from varrnn.config import schema
from varrnn.errors import UserError
from varrnn.tasks.base import Step, Task, to_device
from varrnn.tasks.model import SequenceModel
from varrnn.training import checkpoint, optim
from varrnn.training import summary as run_summary
from varrnn.training.progress import Bar

CHECKPOINT, BEST = "checkpoint.pt", "best.pt"
ADVICE = "the last good checkpoint is kept. Try another seed=, a lower optim.lr or a smaller optim.clip"


class Unstable(Exception):
    """The loss or the gradient is no longer a number."""


@dataclass
class Progress:
    """Where a run stands; saved with the parameters, so that a killed run goes on as if nothing had happened."""

    epoch: int = 1  # the epoch under way
    update: int = 0  # updates done in it
    state: Any = None  # the carried hidden state
    looked_at: Tensor | None = None  # (updates, 2): loss and gradient norm of the epoch's updates
    history: dict[str, list[Any]] = field(default_factory=lambda: {"epoch": []})
    batches: list[float] = field(default_factory=list)  # the loss of every update, where the task keeps it
    best_epoch: int = 0
    best_score: float = math.inf
    words: int = 0
    epoch_seconds: float = 0.0
    train_seconds: float = 0.0
    total_seconds: float = 0.0
    commits: list[str] = field(default_factory=list)
    places: list[str] = field(default_factory=list)  # where it was trained, in the order of the starts

    def add_row(self, row: dict[str, Any]) -> None:
        """One more epoch; a column that this epoch did not measure gets None."""
        rows = len(self.history["epoch"])
        for name in dict.fromkeys([*self.history, *row]):  # in the order in which columns appeared
            self.history.setdefault(name, [None] * rows).append(row.get(name))


class Trainer:
    """Carries a run from wherever it stands to its last epoch."""

    def __init__(
        self, task: Task, model: SequenceModel, config: schema.Config, folder: Path, bar: Bar, device: torch.device
    ) -> None:
        self.task, self.model, self.config = task, model, config
        self.folder, self.bar, self.device = folder, bar, device
        self.optimiser = optim.build(config, model)
        self.progress = Progress()
        self.warned = False

    def fit(self, code: str) -> Progress:
        """Train up to the last epoch, or until `patience` runs out; `code` says which commit is running."""
        self.restore()
        now, here = self.progress, run_summary.place(self.device)
        now.commits = [*(one for one in now.commits if one != code), code]
        now.places = [*(one for one in now.places if one != here), here]
        self._start_bar()
        self.bar.logger.resume(self._step())
        while not self.finished():
            self._train_epoch()
            self._end_epoch()
            self.save()
            self.bar.line(self._line())
            self.bar.leave_if_asked()
        self.bar.close()
        return now

    def finished(self) -> bool:
        """Is there nothing left to train?"""
        now, patience = self.progress, self.config.train.patience
        waited = now.epoch - 1 - now.best_epoch
        out_of_patience = patience > 0 and self.task.score is not None and waited >= patience
        return now.epoch > self.config.optim.epochs or out_of_patience

    def _train_epoch(self) -> None:
        now, task, every = self.progress, self.task, self.config.train.log_every
        lr = optim.learning_rate(self.config.optim, now.epoch)
        if now.looked_at is None:
            now.looked_at = torch.zeros(task.updates, 2, device=self.device)
        self.model.train()
        started, seen = self.bar.seconds(), now.update
        for update in range(now.update, task.updates):
            draws = rng.generator(self.device, rng.MASKS, self.config.seed, now.epoch, update)
            step, norm = self.update(now.epoch, update, now.state, lr, draws)
            now.looked_at[update, 0], now.looked_at[update, 1] = step.measured, norm
            now.state, now.update = step.state, update + 1
            now.words += task.words(update)
            self.bar.advance(task.words(update))
            if now.update % every == 0 or now.update == task.updates:
                self._look(seen, lr)
                words, before = sum(map(task.words, range(seen, now.update))), started
                seen, started = now.update, self._clock(started)
                self._log_updates(lr, words / max(started - before, 1e-9))
            if now.update < task.updates and self.bar.save_due():
                self._look(seen, lr)
                seen = now.update
                self._clock(started)
                self.save()
                self.bar.leave_if_asked()
                started = self.bar.seconds()

    def update(
        self, epoch: int, update: int, state: Any, lr: float, draws: torch.Generator | None
    ) -> tuple[Step, Tensor]:
        """One training step; nothing in it waits for the device."""
        step = self.task.loss(self.model, epoch, update, state, draws)
        step.objective.backward()
        return step, self.optimiser.step(lr)

    def _clock(self, started: float) -> float:
        """Add the time since `started`; called after a look, when the device has caught up."""
        now = self.bar.seconds()
        self.progress.epoch_seconds += now - started
        self._warn_if_long()
        return now

    def _look(self, since: int, lr: float) -> None:
        """Wait for the device, check that the updates since the last look are finite, and show them."""
        now = self.progress
        assert now.looked_at is not None
        recent = now.looked_at[since : now.update].tolist()
        for update, (loss, norm) in enumerate(recent, since + 1):
            if not (math.isfinite(loss) and math.isfinite(norm)):
                raise Unstable(
                    f"epoch {now.epoch}, update {update} of {self.task.updates}: loss {loss:.4g}, gradient norm "
                    f"{norm:.4g} at learning rate {lr:.4g}; {ADVICE}"
                )
        if recent:
            mean = sum(loss for loss, _ in recent) / len(recent)
            shown = "  ".join(f"{k} {v:.2f}" for k, v in self.task.train_metrics(mean).items())
            self.bar.show(f"epoch {now.epoch}/{self.config.optim.epochs}  {shown}  norm {recent[-1][1]:.1f}")

    def _step(self) -> int:
        """Updates since the beginning of the run."""
        return (self.progress.epoch - 1) * self.task.updates + self.progress.update

    def _log_updates(self, lr: float, words_per_second: float) -> None:
        """A point of the live curves: the mean of the last `log_every` updates. The device has caught up by now.

        It is the same after a stop, since the updates before the stop are in the checkpoint too.
        """
        now, every = self.progress, self.config.train.log_every
        assert now.looked_at is not None
        loss, norm = now.looked_at[(now.update - 1) // every * every : now.update].mean(0).tolist()
        point = {"loss": loss, "grad_norm": norm, "lr": lr, "words_per_second": words_per_second}
        self.bar.logger.log(self._step(), {f"update/{name}": value for name, value in point.items()})

    def _end_epoch(self) -> None:
        now = self.progress
        assert now.looked_at is not None
        losses, norms = now.looked_at.double().mean(0).tolist()
        if self.task.keeps_batches:
            now.batches += [round(loss, 6) for loss in now.looked_at[:, 0].tolist()]
        started = self.bar.seconds()
        self.model.eval()
        measured = self.task.epoch_metrics(self.model, now.epoch)
        self._check_score(measured)
        now.train_seconds += now.epoch_seconds
        now.total_seconds += now.epoch_seconds + self.bar.seconds() - started
        now.add_row(
            {
                "epoch": now.epoch,
                **self.task.train_metrics(losses),
                **measured,
                "lr": optim.learning_rate(self.config.optim, now.epoch),
                "grad_norm": norms,
                "wps_train": now.words / now.train_seconds,
                "wps_authors": now.words / now.total_seconds,
                "seconds": now.epoch_seconds,
            }
        )
        row = {f"epoch/{name}": values[-1] for name, values in now.history.items()}
        self.bar.logger.log(self._step(), row)
        self._keep_best(measured)
        now.epoch, now.update, now.state, now.looked_at, now.epoch_seconds = now.epoch + 1, 0, None, None, 0.0

    def _check_score(self, measured: dict[str, float]) -> None:
        score = self.task.score
        if score is not None and not math.isfinite(measured[score]):
            raise Unstable(f"epoch {self.progress.epoch}: {score} is {measured[score]}; {ADVICE}")

    def _keep_best(self, measured: dict[str, float]) -> None:
        now, score = self.progress, self.task.score
        if score is not None and measured[score] < now.best_score:
            now.best_epoch, now.best_score = now.epoch, measured[score]
            checkpoint.save({"epoch": now.epoch, "model": self.model.state_dict()}, self.folder / BEST)

    def save(self) -> None:
        """Everything that the next start needs; the log is rewritten from the same history."""
        now = self.progress
        state: dict[str, Any] = {"model": self.model.state_dict(), "optimiser": self.optimiser.state_dict()}
        state |= {"progress": vars(now), "place": run_summary.place(self.device), "data": self.task.sha256}
        checkpoint.save(state, self.folder / CHECKPOINT)
        names = list(now.history)
        rows = [",".join(names)]
        rows += [
            ",".join("" if x is None else f"{x:.8g}" for x in row) for row in zip(*(now.history[n] for n in names))
        ]
        checkpoint.write_text(self.folder / "log.csv", "\n".join(rows) + "\n")

    def restore(self) -> None:
        """Go on from the checkpoint, if there is one."""
        file = self.folder / CHECKPOINT
        if not file.is_file():
            return
        saved = checkpoint.load(file)
        with checkpoint.readable(file):
            data, place, progress = saved["data"], saved["place"], to_device(saved["progress"], self.device)
        if data != self.task.sha256:
            raise UserError(f"{self.folder}: trained on other data than {self.task.name} is now; choose run_dir=")
        checkpoint.into(self.model, saved, file)
        with checkpoint.readable(file):
            self.optimiser.load_state_dict(saved["optimiser"])
            self.progress.__dict__.update(progress)
        now, asked = self.progress, self.config.optim.epochs
        if now.best_epoch and not (self.folder / BEST).is_file():
            now.best_epoch, now.best_score = 0, math.inf
            self.bar.line(f"warning: {self.folder / BEST} is missing; the best epoch is looked for from here on")
        now.places = now.places or [place]  # early versions kept the last one only
        here = run_summary.place(self.device)
        if here != place:
            self.bar.line(
                f"warning: started on {place}, going on on {here}: the numbers will not be those of "
                "a run that was never stopped, and words per second mix both (set device=, threads=)"
            )
        if now.epoch - 1 > asked or (now.epoch > asked and now.update):
            raise UserError(
                f"{self.folder}: optim.epochs={asked}, but it is in epoch {now.epoch} already; ask for more, or choose "
                "run_dir="
            )
        if not self.finished():
            self.bar.line(f"going on in epoch {self.progress.epoch} after update {self.progress.update}")

    def _start_bar(self) -> None:
        words = sum(self.task.words(update) for update in range(self.task.updates))
        self.bar.start(words * self.config.optim.epochs, self.progress.words, self.config.model.name)

    def _warn_if_long(self) -> None:
        """On a CPU, say once how many hours the rest will take, from the first updates."""
        now = self.progress
        if self.warned or self.device.type != "cpu" or now.update < min(10, self.task.updates):
            return
        self.warned = True
        updates_left = (self.config.optim.epochs - now.epoch + 1) * self.task.updates - now.update
        hours = updates_left * now.epoch_seconds / now.update / 3600
        if hours > 0.5:
            self.bar.line(
                f"warning: about {hours:.1f} hours on this CPU; it can be stopped and started again at any time"
            )

    def _line(self) -> str:
        history = self.progress.history
        row = {name: values[-1] for name, values in history.items()}
        return (
            f"epoch {row['epoch']:3d}/{self.config.optim.epochs}  {self.task.headline(row)}  lr {row['lr']:.4f}  "
            f"{row['wps_train']:,.0f} words/s"
        )
