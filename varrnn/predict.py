"""MC dropout for any model with these layers in it: many stochastic passes, averaged (equation approx_predictive)."""

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from numbers import Integral
from typing import Any

import torch
from torch import Tensor, nn

from varrnn import rng
from varrnn.dropout import Dropout, MaskedModule, mc_dropout
from varrnn.layers import VariationalRNNBase
from varrnn.sample_batching import apart, batches, find_batch_dim, same, side_by_side


class Prediction:
    """`samples` draws from the approximate predictive distribution, computed when they are asked for.

    Iterating gives the outputs one by one, the same ones every time as long as the model's weights and the inputs stay
    as they are; ``mean`` adds them up as they come, once, and is kept. Nothing keeps more than one chunk of them, so
    memory does not grow with their number.
    """

    def __init__(self, draw: Callable[[int, int], Any], samples: int, chunk: int) -> None:
        self._draw, self.samples, self.chunk = draw, samples, chunk
        self._mean: Tensor | None = None

    def __len__(self) -> int:
        return self.samples

    def __iter__(self) -> Iterator[Tensor]:
        """The first pass holds one sample: its shape tells along which axis a chunk's outputs lie side by side."""
        first = self._draw(0, 1)
        shape = first.shape
        yield first
        del first
        for start in range(1, self.samples, self.chunk):
            count = min(self.chunk, self.samples - start)
            yield from apart(self._draw(start, count), count, shape)

    @property
    def mean(self) -> Tensor:
        """The MC estimate: the mean over samples, added up in double precision and given back in their own."""
        if self._mean is None:
            total: Tensor | None = None
            for output in self:
                total = wide(output) if total is None else total.add_(output)
                dtype = output.dtype
            assert total is not None
            self._mean = total.div_(self.samples).to(dtype)
        return self._mean


def wide(output: Tensor) -> Tensor:
    """A copy to add samples to: a sum of bfloat16 stands still after a few hundred of them."""
    if not (output.is_floating_point() or output.is_complex()):
        raise TypeError(f"samples of {output.dtype} have no mean; iterate over them, or let apply give probabilities")
    widest = torch.float32 if output.device.type == "mps" else torch.float64  # mps has no more
    return output.to(torch.promote_types(output.dtype, widest), copy=True)


def mc_predict(
    model: nn.Module,
    inputs: Any,
    samples: int = 50,
    chunk: int = 1,
    *,
    apply: Callable[[Tensor], Tensor] | None = None,
    batch_dim: int | None = None,
    seed: int = 0,
) -> Prediction:
    """Stochastic forward passes through the model, masks on in this package's layers and everything else in eval.

    Nothing is computed before it is asked for: read the mean before you write into the memory of the inputs.
    ``inputs`` is what the model is called with: one argument, a tuple of arguments or a mapping of named ones. Where
    the model returns a tuple, its first part is the output. ``apply`` acts on every output before it is averaged: for
    a classifier give the softmax, since the mean of probabilities is meant, not of logits. ``chunk`` samples are
    computed side by side, as more rows of the batch along ``batch_dim`` of the inputs (from the layers' ``batch_first``
    if not given). The global random state stays as it was; another ``seed`` gives other samples, and so do another GPU
    and another ``chunk``, since the masks of a chunk are drawn together. Threads take turns, pass by pass; one that
    trains the same model meanwhile would find it in eval.
    """
    numbers = (("samples", samples, 1), ("chunk", chunk, 1), ("seed", seed, 0), ("batch_dim", batch_dim or 0, 0))
    for name, value, lowest in numbers:
        if isinstance(value, bool) or not isinstance(value, Integral) or value < lowest:
            raise ValueError(f"{name}={value!r} must be a whole number from {lowest}")
    if not isinstance(model, nn.Module):
        raise TypeError(f"mc_predict takes a model, an nn.Module, not a {type(model).__name__}")
    masked = [module for module in model.modules() if isinstance(module, MaskedModule)]
    if not any(map(drops, masked)):
        why = "only layers without dropout" if masked else "no layer of varrnn in it"
        raise ValueError(f"{type(model).__name__} has {why}: every sample would be the same")
    axis = find_batch_dim(masked) if batch_dim is None and chunk > 1 else batch_dim or 0
    return Prediction(Passes(model, inputs, axis, apply, seed, masked if chunk > 1 else []).draw, samples, chunk)


_one_at_a_time = threading.RLock()  # threads share the random state, and may share the model


@dataclass
class Passes:
    """Forward passes through a model, of one sample or of several side by side along `axis` of the inputs."""

    model: nn.Module
    inputs: Any
    axis: int
    apply: Callable[[Tensor], Tensor] | None
    seed: int
    watched: list[MaskedModule]
    alone: list[int] = field(default_factory=list)  # the batches of a single sample
    checked: bool = False

    @torch.no_grad()
    def draw(self, start: int, count: int) -> Tensor:
        """Samples from `start` on, under masks of their own."""
        with _one_at_a_time:
            if count > 1 and not self.checked:
                self.check_rows()
            stream = rng.mix(rng.MONTE_CARLO, self.seed, start)
            with in_eval(self.model), mc_dropout(self.model), seeded(stream):
                return self.applied(self.run(count))  # which may be random too

    def run(self, count: int) -> Any:
        """One pass over so many copies of the inputs."""
        copies = side_by_side(self.inputs, count, self.axis)
        try:
            with batches(self.watched, count) as seen:
                output = call(self.model, copies)
        except Exception as error:
            if count > 1:
                error.add_note(
                    f"mc_predict: in a pass of {count} samples side by side, every tensor of the inputs repeated along "
                    f"its axis {self.axis} (batch_dim=), states too; chunk=1 always works"
                )
            raise
        if count == 1:
            self.alone = seen
        elif seen != [count * size for size in self.alone]:
            raise ValueError(
                f"{count} samples side by side reached the layers as batches of {seen}, one as {self.alone}: axis "
                f"{self.axis} of the inputs is not the batch; give batch_dim= (chunk=1 always works)"
            )
        while isinstance(output, tuple | list):  # (output, state), and a PackedSequence begins with its data
            output = output[0]
        return output

    def applied(self, output: Any) -> Tensor:
        """What is averaged."""
        made = output if self.apply is None else self.apply(output)
        if not isinstance(made, Tensor):
            raise TypeError(
                f"{type(self.model).__name__} gives a {type(made).__name__}, and mc_predict averages a tensor; apply= "
                "may pick it out: apply=lambda output: output['logits'].softmax(-1)"
            )
        return made

    def check_rows(self) -> None:
        """Two copies of the inputs must give two copies of the output; a wrong cut would mix samples, unseen."""
        one = self.evaluate(1, seed=0)
        pair = apart(self.evaluate(2, seed=0), 2, one.shape)
        repeats = all(same(part, one, self.model) for part in pair)
        # one that does not even repeat itself is random in eval too, and tells nothing
        if not repeats and same(self.evaluate(1, seed=1), one, self.model):
            raise ValueError(
                f"{type(self.model).__name__} mixes the rows of the batch: two copies of the inputs do not give its "
                "output twice (does it flatten time and batch?); return (T, B, ...) or use chunk=1"
            )
        self.checked = True

    def evaluate(self, count: int, seed: int) -> Tensor:
        """The dropout approximation. `apply` may move rows too; classes are not compared, for they may be tied."""
        with in_eval(self.model), buffers_kept(self.model), seeded(seed):
            output = self.run(count)
            applied = self.applied(output)
        return applied if applied.is_floating_point() else output


def drops(module: MaskedModule) -> bool:
    """Whether its outputs are random; modules of others are trusted to be."""
    if isinstance(module, VariationalRNNBase):
        return module.dropout.for_layers().drops  # p_E and p_y are for others to apply
    dropout = getattr(module, "dropout", None)
    return dropout.drops if isinstance(dropout, Dropout) else getattr(module, "p_E", 1.0) > 0


def call(model: nn.Module, inputs: Any) -> Any:
    """One argument, several, or named ones. A PackedSequence is a tuple too, but one argument."""
    if isinstance(inputs, Mapping):
        return model(**inputs)
    return model(*inputs) if type(inputs) in (tuple, list) else model(inputs)


@contextmanager
def in_eval(model: nn.Module) -> Iterator[None]:
    """eval() for a while; every module gets its own mode back."""
    before = {module: module.training for module in model.modules()}
    try:
        model.eval()
        yield
    finally:
        for module, was_training in before.items():
            module.training = was_training


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Draw from a seed of our own, another one on each GPU, and leave the caller's random state as it was.

    The GPUs' generators are set without switching to them: that would take memory on GPUs that nobody uses.
    """
    devices = list(range(torch.cuda.device_count())) if torch.cuda.is_initialized() else []
    with torch.random.fork_rng(devices):
        torch.default_generator.manual_seed(seed)
        for device in devices:
            torch.cuda.default_generators[device].manual_seed(rng.mix(seed, device) if device else seed)
        yield


@contextmanager
def buffers_kept(model: nn.Module) -> Iterator[None]:
    """A pass that only looks leaves no trace in buffers that passes change."""
    before = [(m, name, b, b.clone()) for m in model.modules() for name, b in m._buffers.items() if b is not None]
    try:
        yield
    finally:
        for module, name, buffer, values in before:
            module._buffers[name] = buffer
            if not torch.equal(buffer, values):
                buffer.copy_(values)
