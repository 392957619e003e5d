"""What a task brings to the one training loop: its data, network, loss and metrics. The loop knows none of them.

A task is an object with the attributes and methods of `Task`. Metrics are flat names with numbers; the names are the
columns of log.csv and the keys of summary.json.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from varrnn.config import schema
from varrnn.dropout import DropoutRates
from varrnn.errors import UserError
from varrnn.tasks.model import SequenceModel

Metrics = dict[str, float]
ProgressFn = Callable[[int], None]  # told how many words are done


def build_dropout(chosen: schema.ModelConfig, per_gate: bool) -> DropoutRates:
    """The rates and sharing rules of a variant as the layers take them."""
    rates = {name: getattr(chosen, name) for name in schema.DROP_RATES}
    return DropoutRates(**rates, per_step=chosen.per_step, per_gate=per_gate, per_batch=chosen.per_batch)


def reject_unused_options(options: schema.TaskConfig, sources: Mapping[str, Sequence[str]], chosen: str) -> None:
    """A file that the chosen data do not read was meant for others: training on the wrong text helps nobody."""
    for name in dict.fromkeys(name for names in sources.values() for name in names):
        value = getattr(options, name)
        if value is not None and name not in sources[chosen]:
            takers = " or ".join(f"task={task}" for task, names in sources.items() if name in names)
            raise UserError(f"task.{name}={value}: task={options.name} does not read it; only with {takers}")


def to_device(value: Any, device: torch.device) -> Any:
    """The same tree with its tensors on the device."""
    if isinstance(value, dict):
        return {key: to_device(entry, device) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(to_device(entry, device) for entry in value)
    return value.to(device) if isinstance(value, torch.Tensor) else value


class Step(NamedTuple):
    """One training step: what is minimised, what is shown (a mean, without penalties), and the state to carry on."""

    objective: Tensor
    loss_for_log: Tensor
    state: Any


class ResumedWork(NamedTuple):
    """What earlier starts have done of an evaluation: with which code, and for how long."""

    commits: tuple[str, ...] = ()
    seconds: float = 0.0


class Task(Protocol):
    """What the training loop asks of a task; `model` is always the network that the task itself has made."""

    name: str
    example_command: str  # a first use of a finished run, with {folder} for its folder
    sha256: str  # of the data
    updates_per_epoch: int
    selection_metric: str | None  # its lowest validation value is the best epoch; None without validation data
    log_batch_losses: bool  # does the record keep the loss of every update?

    def model(self, config: schema.RunConfig) -> SequenceModel:
        """The network, initialised from config.seed, on the task's device."""

    def words(self, update: int) -> int:
        """How many words an update reads, for words per second."""

    def prepare_batch(self, model: Any, epoch: int, update: int, generator: torch.Generator | None) -> Any:
        """What one update reads, a tree of tensors: words, targets, and masks drawn from the generator."""

    def compute_loss(self, model: Any, batch: Any, state: Any) -> Step:
        """The loss of what `prepare_batch` returned. Nothing here is random or depends on the update's number."""

    def loss(self, model: Any, epoch: int, update: int, state: Any, generator: torch.Generator | None) -> Step:
        """The loss of one update: `compute_loss` of `prepare_batch`."""

    def train_metrics(self, mean_loss: float) -> Metrics:
        """The epoch's mean of `loss_for_log` in the task's own words."""

    def epoch_metrics(self, model: Any, epoch: int) -> Metrics:
        """What is measured at the end of every epoch. A metric that is due only now and then is left out elsewhere."""

    def final_metrics(self, model: Any) -> Metrics:
        """What is measured once, on the last and on the best epoch's parameters."""

    def mc(
        self, model: Any, config: schema.RunConfig, folder: Path, monitor: Any
    ) -> tuple[Metrics, dict[str, Any], ResumedWork]:
        """MC dropout: metrics (`mc_samples` among them), and further entries of the summary.

        May stop and go on through a file in `folder`, which knows what earlier starts have done.
        """

    def vocabulary(self) -> dict[str, Any]:
        """What new texts need to be read as the training texts were: `words`, and how targets were scaled."""

    def reference_metrics(self) -> Metrics:
        """Yardsticks computed from the data alone."""

    def headline(self, row: Metrics) -> str:
        """An epoch in a few words."""


def build(config: schema.RunConfig, device: torch.device) -> Task:
    """The task that the config describes, its data loaded."""
    if isinstance(config.task, schema.LanguageModelConfig):
        from varrnn.tasks.language_model import LanguageModelTask

        return LanguageModelTask.load(config.task, device)
    if isinstance(config.task, schema.SentimentConfig):
        from varrnn.tasks.sentiment import SentimentTask

        return SentimentTask.load(config, device)
    raise TypeError(f"no task for {type(config.task).__name__}")
