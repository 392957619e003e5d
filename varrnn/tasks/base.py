"""The interface between a task and the training loop: data, network, loss and metrics.

A task is an object with the attributes and methods of `Task`. Metrics are a flat mapping of names to numbers; the names
are the columns of log.csv and the keys of summary.json.
"""

import importlib
from collections.abc import Mapping
from types import ModuleType
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from varrnn.config import schema
from varrnn.data.registry import Source
from varrnn.dropout import DropoutRates
from varrnn.errors import UserError
from varrnn.tasks.model import SequenceModel

Metrics = dict[str, float]


def build_dropout(chosen: schema.ModelConfig, per_gate: bool) -> DropoutRates:
    """The dropout rates and sharing rules of a variant, as the layers take them."""
    rates = {name: getattr(chosen, name) for name in schema.DROP_RATES}
    return DropoutRates(**rates, per_step=chosen.per_step, per_gate=per_gate, per_batch=chosen.per_batch)


def reject_unused_options(options: schema.TaskConfig, sources: Mapping[str, Source[Any]], chosen: str) -> None:
    """Raise for a data option that the chosen corpus does not read: the run would train on the wrong data."""
    for name in dict.fromkeys(name for source in sources.values() for name in source.options):
        value = getattr(options, name)
        if value is not None and name not in sources[chosen].options:
            readers = " or ".join(f"task={source.task}" for source in sources.values() if name in source.options)
            raise UserError(f"task.{name}={value}: task={options.name} does not read it; only with {readers}")


class Step(NamedTuple):
    """One training step: the loss to minimise, the loss to log (a mean, without penalties), and the carried state."""

    objective: Tensor
    loss_for_log: Tensor
    state: Any


class Sampler(Protocol):
    """MC dropout of a trained model, in small steps; its state can be saved between steps. It uses no files."""

    @property
    def done(self) -> int:
        """The number of complete samples."""

    def words(self, samples: int) -> int:
        """The total work for `samples` samples, in samples x words, for the progress bar."""

    def words_done(self) -> int:
        """The work done so far, in samples x words."""

    def advance(self, samples: int) -> int:
        """One step towards a total of `samples` samples; returns its work in samples x words."""

    def metrics(self) -> Metrics:
        """The metrics of the complete samples, including their number (`mc_samples`)."""

    def curves(self) -> dict[str, Any]:
        """Further entries of the summary."""

    def state_dict(self) -> dict[str, Any]:
        """The state that `resume` needs."""

    def resume(self, state: dict[str, Any], samples: int, same_device: bool) -> None:
        """Continue from `state` towards `samples` samples, if the same masks would be drawn."""


class Task(Protocol):
    """The interface of a task; `model` is always the network from the task's `build_model`."""

    name: str
    example_command: str  # an example of using a finished run; {folder} is its folder
    sha256: str  # of the data
    updates_per_epoch: int
    selection_metric: str | None  # its lowest validation value is the best epoch; None without validation data
    log_batch_losses: bool  # whether the record keeps the loss of every update

    def model(self, config: schema.RunConfig) -> SequenceModel:
        """The network, initialised from config.seed, on the task's device."""

    def words(self, update: int) -> int:
        """The number of words of an update, for words per second."""

    def prepare_batch(self, model: Any, epoch: int, update: int, generator: torch.Generator | None) -> Any:
        """What one update reads, a tree of tensors: words, targets, and masks drawn from the generator."""

    def compute_loss(self, model: Any, batch: Any, state: Any) -> Step:
        """The loss of what `prepare_batch` returned. Nothing here is random or depends on the update's number."""

    def train_metrics(self, mean_loss: float) -> Metrics:
        """The epoch's mean of `loss_for_log` as the task's metric, e.g. perplexity."""

    def epoch_metrics(self, model: Any, epoch: int) -> Metrics:
        """The metrics after an epoch. A metric that is not measured after every epoch is left out of the others."""

    def final_metrics(self, model: Any, row: Metrics | None = None) -> Metrics:
        """The final metrics, once for the last and once for the best epoch's parameters.

        `row`, if given, is what was measured after the epoch of these parameters; it need not be measured again.
        """

    def sampler(self, model: Any, config: schema.RunConfig) -> Sampler:
        """A new MC dropout sampler of the model on the test data."""

    def vocabulary(self) -> dict[str, Any]:
        """The preprocessing of new texts: `words`, and the scaling of targets."""

    def reference_metrics(self) -> Metrics:
        """Baselines computed from the data alone."""

    def headline(self, row: Metrics) -> str:
        """An epoch in a few words."""


def build(config: schema.RunConfig, device: torch.device) -> Task:
    """The task that the config describes, with its data loaded."""
    return task_module(config).load(config, device)


def build_model(config: schema.RunConfig, vocabulary: Mapping[str, Any]) -> SequenceModel:
    """The network of a task without its data, from the content of vocabulary.json."""
    return task_module(config).build_model(config, vocabulary)


def task_module(config: schema.RunConfig) -> ModuleType:
    """A kind of task is a module of this package, with the functions `load` and `build_model`."""
    return importlib.import_module(f"varrnn.tasks.{config.task.kind}")
