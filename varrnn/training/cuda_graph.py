"""The training step as one CUDA graph (``train.cuda_graph=true``): one launch instead of hundreds.

The graph contains forward and backward pass, clipping and the optimizer's step. What differs between two updates (the
batch with its masks, the carried state, the learning rate) is copied into static buffers before a replay. Masks are
drawn outside of the graph from the seeds of an eager run, so no generator is captured and resuming stays exact. A batch
of another shape (the last one of a sentiment epoch) takes the eager step.

A graph is used only after one replay of it has been compared with one eager step from the same parameters.
"""

import math
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple, Protocol, TypeVar

import torch
from torch import Tensor, nn

from varrnn.dropout import is_identity, is_read_mask
from varrnn.tasks.base import Step
from varrnn.tensor_trees import leaves, map_tensors, tensors
from varrnn.training.optim import SGD, Adam, rate_tensor

R = TypeVar("R")
Outcome = tuple[Step, Tensor]  # of a training step, and the gradient's norm
TrainingStep = Callable[[Any, Any, float | Tensor], Outcome]  # of a batch, a carried state and a learning rate
WARM_UP = 3  # steps before the capture: libraries choose their algorithms and allocate their workspaces
ROUNDING = 1e-2  # largest relative difference of a change that counts as rounding; a wrong input differs by about 1
EQUAL, ROUNDED, UNUSED = "equal to eager steps to the bit", "equal to eager steps up to rounding", "not used"


class Recorder(Protocol):
    """Captures the operations that a function runs on the device, and replays them on the same tensors."""

    def warm_up(self, function: Callable[[], R]) -> R:
        """Run the function a few times; returns the last result."""

    def capture(self, function: Callable[[], R]) -> R:
        """Capture one call of the function. Every replay overwrites the tensors that this call returns."""

    def replay(self) -> None:
        """Repeat the captured operations."""


class CUDARecorder:
    """A CUDA graph on one device."""

    def __init__(self, device: torch.device) -> None:
        self.device, self.graph = device, torch.cuda.CUDAGraph()

    def warm_up(self, function: Callable[[], R]) -> R:
        """On a separate stream, as torch requires before a capture."""
        with torch.cuda.device(self.device):
            stream, current = torch.cuda.Stream(), torch.cuda.current_stream()
            stream.wait_stream(current)
            with torch.cuda.stream(stream):
                results = [function() for _ in range(WARM_UP)]
            current.wait_stream(stream)
        return results[-1]

    def capture(self, function: Callable[[], R]) -> R:
        with torch.cuda.device(self.device), torch.cuda.graph(self.graph):
            return function()

    def replay(self) -> None:
        self.graph.replay()


def make_recorder(device: torch.device) -> Recorder:
    """The recorder of a device; tests put an emulation in its place."""
    return CUDARecorder(device)


def signature(tree: Any) -> list[Any]:
    """What a capture depends on, apart from the values of tensors.

    For a tensor, its shape and type, and whether it is marked as a mask of ones or as Moon's mask;
    anything else, such as an integer, is part of the graph.
    """
    return [
        (leaf.shape, leaf.dtype, bool(is_identity(leaf)), is_read_mask(leaf)) if isinstance(leaf, Tensor) else leaf
        for leaf in leaves(tree)
    ]


def static_copy(tensor: Tensor) -> Tensor:
    """A buffer for tensors like this one, with its mark; a mask of ones never changes and is its own buffer."""
    if is_identity(tensor):
        return tensor
    made = tensor.clone()
    if is_read_mask(tensor):
        made.varrnn_read = made._version  # type: ignore[attr-defined]
    return made


class GraphedStep:
    """A training step that is replayed. The tensors that it returns are overwritten by the next replay."""

    def __init__(
        self,
        step: TrainingStep,
        recorder: Recorder,
        batch: Any,
        device: torch.device,
        capturing: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        self.step, self.recorder, self.signature = step, recorder, signature(batch)
        self.rounds_differently = False  # than eager steps: then the numbers of a run depend on the graph
        self.batch, self.rate = map_tensors(static_copy, batch), rate_tensor(0.0, device)
        first, _ = recorder.warm_up(lambda: step(self.batch, None, self.rate))
        self.state = map_tensors(torch.zeros_like, first.state)
        with capturing():
            self.outcome = recorder.capture(lambda: step(self.batch, self.state, self.rate))

    def __call__(self, batch: Any, state: Any, lr: float) -> Outcome:
        """One update; eager where the batch has another shape than the captured one."""
        if signature(batch) != self.signature or not self._fits(state):
            return self.step(batch, state, lr)
        for buffer, value in zip(tensors(self.batch), tensors(batch)):
            if not is_identity(value):
                buffer.copy_(value)
        for buffer, value in zip(tensors(self.state), tensors(state)):
            buffer.copy_(value)
        if state is None:  # the first window of an epoch
            for buffer in tensors(self.state):
                buffer.zero_()
        self.rate.fill_(lr)
        self.recorder.replay()
        return self.outcome

    def _fits(self, state: Any) -> bool:
        return state is None or [t.shape for t in tensors(state)] == [t.shape for t in tensors(self.state)]


class Snapshot:
    """Everything that a training step changes, to be restored after a trial."""

    def __init__(self, model: nn.Module, optimizer: SGD | Adam) -> None:
        self.model, self.optimizer = model, optimizer
        self.values = {id(tensor): tensor.detach().clone() for tensor in self.tensors()}

    def tensors(self) -> list[Tensor]:
        return [*self.model.parameters(), *self.model.buffers(), *self.optimizer.state_tensors()]

    @torch.no_grad()
    def restore(self) -> None:
        """Restore all values; tensors that the optimizer has created since then become zeros, their initial values."""
        for tensor in self.tensors():
            if id(tensor) in self.values:
                tensor.copy_(self.values[id(tensor)])
            else:
                tensor.zero_()
        for parameter in self.model.parameters():
            parameter.grad = None

    def changes(self) -> list[Tensor]:
        """The difference of every tensor from its value in the snapshot."""
        zero = torch.zeros((), device=next(self.model.parameters()).device)
        return [tensor.detach() - self.values.get(id(tensor), zero) for tensor in self.tensors()]


class Prepared(NamedTuple):
    """A graph, or None if it cannot be used, and the result of comparing it with an eager step."""

    graph: GraphedStep | None
    note: str


def prepare(
    step: TrainingStep,
    model: nn.Module,
    optimizer: SGD | Adam,
    batches: Sequence[Any],
    lr: float,
    recorder: Recorder,
) -> Prepared:
    """Capture the step with the first batch and check it with the last one; model and optimizer stay as they are."""
    device = next(model.parameters()).device
    snapshot = Snapshot(model, optimizer)
    try:
        graph = GraphedStep(step, recorder, batches[0], device, optimizer.capturing)
    except RuntimeError as error:
        return Prepared(None, f"{UNUSED}: the capture failed ({first_line(error)})")
    finally:
        snapshot.restore()
    checked = next(batch for batch in reversed(batches) if signature(batch) == graph.signature)
    # another state than that of the capture, so that a graph that ignores its input differs
    state = map_tensors(lambda t: torch.full_like(t, 0.1), graph.state)
    difference = compare(graph, snapshot, checked, state, lr / 2)
    if not difference <= ROUNDING:  # also for NaN
        return Prepared(None, f"{UNUSED}: a replay differs from an eager step by {difference:.1e} of its change")
    graph.rounds_differently = difference > 0
    return Prepared(graph, f"{ROUNDED} ({difference:.1e})" if graph.rounds_differently else EQUAL)


def compare(graph: GraphedStep, snapshot: Snapshot, batch: Any, state: Any, lr: float) -> float:
    """The largest relative difference between a replay and an eager step from the same parameters; 0 to the bit.

    NaN where anything is NaN in one of them only.

    Compared are loss, norm, carried state, and the changes of parameters and of the optimizer's state.
    """
    found = []
    for run in (graph.step, graph):
        step, norm = run(batch, state, lr)
        outputs = [step.loss_for_log, norm, *tensors(step.state)]
        found.append([*(tensor.detach().clone() for tensor in outputs), *snapshot.changes()])
        snapshot.restore()
    differences = [relative_difference(replayed, eager) for eager, replayed in zip(*found)]
    return math.nan if any(map(math.isnan, differences)) else max(differences)  # max() may ignore a NaN


def relative_difference(found: Tensor, expected: Tensor) -> float:
    if torch.equal(found, expected):
        return 0.0
    return float((found - expected).double().norm() / expected.double().norm())


def first_line(error: Exception) -> str:
    """The first line of an error's message, short enough for a record."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:200]
