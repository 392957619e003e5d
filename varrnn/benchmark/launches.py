"""Count the kernels that a GPU would launch for one training step. Meta tensors are used, so no GPU is needed.

Small recurrent layers are launch-bound on a GPU, so the count decides their speed. Views and allocations launch
nothing. An operation that exists on a GPU only (ATen's fused cells, cuDNN's layers) is replaced by an empty result and
counts as one, though cuDNN launches several kernels inside a call.
"""

import functools
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, TypeVar
from unittest.mock import patch

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from varrnn import kernels
from varrnn.benchmark import candidates, chart
from varrnn.benchmark.candidates import Shape
from varrnn.kernels import builtin, fused
from varrnn.tasks.base import Step
from varrnn.tasks.model import SequenceModel
from varrnn.training import optim
from varrnn.training.cuda_graph import GraphedStep

R = TypeVar("R")
META = torch.device("meta")
FREE = {"empty", "new_empty", "empty_like", "empty_strided", "new_empty_strided", "_unsafe_view", "detach", "set_"}
NO_META = {"_fused_sgd_"}  # changes its arguments, returns nothing, and has no implementation for meta tensors


class Launches(TorchDispatchMode):
    """A dispatch mode that counts the operations that launch a kernel, by name."""

    def __init__(self) -> None:
        super().__init__()
        self.count: Counter[str] = Counter()

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = function.overloadpacket.__name__
        if not (function.is_view or name in FREE):
            self.count[name] += 1
        return None if name in NO_META else function(*args, **(kwargs or {}))


class WholeSequence(torch.autograd.Function):
    """cuDNN's LSTM or GRU over all steps and layers: one call forward, one backward."""

    @staticmethod
    def forward(ctx: Any, count: Counter[str], x: Tensor, states: int, *tensors: Tensor) -> Any:
        count["cudnn_rnn"] += 1
        ctx.set_materialize_grads(False)  # a gradient that is not needed stays None
        ctx.count, ctx.shapes = count, (x.shape, [t.shape for t in tensors])
        h = tensors[0]
        return (x.new_empty(*x.shape[:2], h.shape[-1]), *(torch.empty_like(h) for _ in range(states)))

    @staticmethod
    def backward(ctx: Any, grad: Tensor, *_: Tensor) -> Any:
        ctx.count["cudnn_rnn_backward"] += 1
        x, others = ctx.shapes
        return None, grad.new_empty(x), None, *(grad.new_empty(shape) for shape in others)


def _empty_cells(count: Counter[str]) -> dict[Sequence[str], list[Callable[..., Any]]]:
    """Empty results of the fused cells, with the right shapes."""

    def counted(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def run(*args: Any) -> Any:
            count[name] += 1
            return function(*args)

        return run

    def lstm(gi: Tensor, gh: Tensor, c: Tensor, *_: Any) -> Any:
        return torch.empty_like(c), torch.empty_like(c), torch.empty_like(gi)

    def lstm_backward(dh: Any, dc: Any, c: Tensor, cy: Tensor, gates: Tensor, *_: Any) -> Any:
        return torch.empty_like(gates), torch.empty_like(c), None

    def gru(gi: Tensor, gh: Tensor, h: Tensor, *_: Any) -> Any:
        return torch.empty_like(h), h.new_empty(h.shape[0], 5 * h.shape[1])

    def gru_backward(dh: Tensor, *_: Any) -> Any:
        gates = dh.shape[0], 3 * dh.shape[1]
        return dh.new_empty(gates), dh.new_empty(gates), torch.empty_like(dh), None, None

    return {
        fused.LSTM: [counted("fused_lstm_cell", lstm), counted("fused_lstm_cell_backward", lstm_backward)],
        fused.GRU: [counted("fused_gru_cell", gru), counted("fused_gru_cell_backward", gru_backward)],
    }


@contextmanager
def count_launches() -> Iterator[Counter[str]]:
    """Count the launches of the operations on meta tensors inside the block, which take the code paths of a GPU."""
    launches = Launches()
    cells = _empty_cells(launches.count)

    def whole(x: Tensor, hx: Any, weights: list[Tensor], *_: Any) -> Any:
        states = hx if isinstance(hx, tuple) else (hx,)
        return WholeSequence.apply(launches.count, x, len(states), *states, *weights)

    with ExitStack() as patches:
        for target, name, value in (
            (torch.Tensor, "is_cuda", property(lambda tensor: tensor.device.type == "meta")),
            (fused, "DEVICES", ("meta",)),
            (fused, "operations", cells.__getitem__),
            (kernels, "is_traced_or_transformed", lambda: False),
            (builtin, "FUNCTIONS", {cell: whole for cell in builtin.FUNCTIONS}),
            (torch._VF, "lstm", whole),  # type: ignore[attr-defined]
            (optim, "FUSED_DEVICES", ("meta",)),
        ):
            patches.enter_context(patch.object(target, name, value))
        with launches:
            yield launches.count


def models(shape: Shape) -> dict[str, nn.Module]:
    """The language models and sentiment models whose launches are counted, by their names in the benchmark."""
    rates = candidates.variants(shape)
    gru = {} if not shape.last_only else {"reset_after": False}  # as the sentiment task has it
    sizes = (shape.words, shape.units, shape.layers, shape.outputs)
    return {
        "nn_lstm": candidates.TorchModel(shape),
        "loop_tied": candidates.LoopModel(shape, tied=True),
        "loop_untied": candidates.LoopModel(shape, tied=False),
        **{name: candidates.ours(shape, dropout) for name, dropout in rates.items()},
        **{
            f"gru_{name.removeprefix('variational_')}": SequenceModel(
                *sizes, rates[name], "gru", last_only=shape.last_only, **gru
            )
            for name in ("variational_tied", "variational_untied")
        },
    }


def count_window_launches(model: nn.Module, shape: Shape) -> int:
    """The launches of one training step: masks, embedding, layers, loss, backward pass, clipping and SGD."""
    step = candidates.training_step(model, shape, META)
    with count_launches() as count:
        step()
    return count.total()


class CountedReplay:
    """A recorder whose replay is one launch."""

    def __init__(self) -> None:
        self.count: Counter[str] = Counter()

    def warm_up(self, function: Callable[[], R]) -> R:
        return function()

    capture = warm_up

    def replay(self) -> None:
        self.count["graph"] += 1


def launches_with_a_graph(model: SequenceModel, shape: Shape) -> int:
    """The launches of one update with ``train.cuda_graph``: masks, copies into the static buffers, and one replay."""
    words = torch.zeros(shape.steps + 1, shape.batch, dtype=torch.int64, device=META)
    model.to(META).train()
    optimizer = optim.SGD(model.parameters(), shape.clip, 0.0)

    def compute(batch: Any, state: Any, lr: float | Tensor) -> tuple[Step, Tensor]:
        text, masks = batch
        features, state = model.features(text[:-1], state, masks)
        loss = features.sum()
        loss.backward()
        carried = None if shape.last_only else tuple(part.detach() for part in state)
        return Step(loss.detach(), loss.detach(), carried), optimizer.step(lr)

    recorder = CountedReplay()
    with count_launches():
        graph = GraphedStep(compute, recorder, (words, model.sample_masks(words[:-1])), META)
    with count_launches() as count:
        graph((words, model.sample_masks(words[:-1])), graph.state, 1.0)
    return (count + recorder.count).total()


LABELS = {
    **{name: chart.LABELS[name] for name in ("nn_lstm", "loop_tied", "loop_untied")},
    **{name: chart.LABELS[name] for name in ("naive", "moon", "variational_tied", "variational_untied")},
    "gru_tied": "ours, GRU, variational tied",
    "gru_untied": "ours, GRU, variational untied",
    "graph": "ours, variational untied, train.cuda_graph=true",
}
# the windows of the paper; those of the Penn Treebank launch as many kernels at every number of units
WINDOWS = {"Penn Treebank": candidates.SHAPES["small"], "sentiment": candidates.SHAPES["sentiment"]}


@functools.cache
def count_window(shape: Shape) -> dict[str, int]:
    """Launches of a training step by candidate; ``graph``: the untied model's update with a CUDA graph."""
    with META:  # nothing is initialised
        made = models(shape)
    found = {name: count_window_launches(model, shape) for name, model in made.items()}
    untied = made["variational_untied"]
    assert isinstance(untied, SequenceModel)
    return found | {"graph": launches_with_a_graph(untied, shape)}
