"""MC dropout for any model with these layers in it: many stochastic passes, averaged (equation approx_predictive)."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from varrnn import seeds
from varrnn.dropout import Dropout, MaskedModule, mc_dropout
from varrnn.sequences import Sequences
from varrnn.stack import RecurrentLayers


class Prediction:
    """`samples` draws from the approximate predictive distribution, computed when they are asked for.

    Iterating gives the outputs one by one, the same ones every time; ``mean`` adds them up as they come. Nothing keeps
    more than one chunk of them, so memory does not grow with their number.
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
        """The MC estimate: the mean over samples."""
        if self._mean is None:
            total: Tensor | None = None
            for output in self:
                total = output.clone() if total is None else total.add_(output)
            assert total is not None
            self._mean = total.div_(self.samples)
        return self._mean


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

    ``inputs`` is what the model is called with: one argument, a tuple of arguments or a mapping of named ones. Where
    the model returns a tuple, its first part is the output. ``apply`` acts on every output before it is averaged: for
    a classifier give the softmax, since the mean of probabilities is meant, not of logits. ``chunk`` samples are
    computed side by side, as more rows of the batch along ``batch_dim`` of the inputs (from the layers' ``batch_first``
    if not given). The global random state stays as it was; another ``seed`` gives other samples.
    """
    for name, value in (("samples", samples), ("chunk", chunk)):
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise ValueError(f"{name}={value!r} must be a whole number from 1")
    masked = [module for module in model.modules() if isinstance(module, MaskedModule)]
    if not any(map(drops, masked)):
        why = "only layers without dropout" if masked else "no layer of varrnn in it"
        raise ValueError(f"{type(model).__name__} has {why}: every sample would be the same")
    axis = find_batch_dim(masked) if batch_dim is None and chunk > 1 else batch_dim or 0
    alone: list[int] = []

    @torch.no_grad()
    def draw(start: int, count: int) -> Tensor:
        stream = seeds.mix(seeds.MONTE_CARLO, seed, start)
        with in_eval(model), mc_dropout(model), seeded(stream), batches(masked if chunk > 1 else []) as seen:
            output = call(model, side_by_side(inputs, count, axis))
        if count == 1:
            alone[:] = seen
        elif seen != [count * size for size in alone]:
            raise ValueError(
                f"{count} samples side by side reached the layers as batches of {seen}, one as {alone}: axis {axis} of "
                "the inputs is not the batch; give batch_dim= (chunk=1 always works)"
            )
        while isinstance(output, tuple | list):  # (output, state), and a PackedSequence begins with its data
            output = output[0]
        return output if apply is None else apply(output)

    return Prediction(draw, samples, chunk)


def drops(module: MaskedModule) -> bool:
    """Whether its outputs are random; modules of others are trusted to be."""
    dropout = getattr(module, "dropout", None)
    return dropout.drops if isinstance(dropout, Dropout) else getattr(module, "p_E", 1.0) > 0


@contextmanager
def batches(modules: list[MaskedModule]) -> Iterator[list[int]]:
    """How many sequences the recurrent layers among these are called with, one number per call."""
    seen: list[int] = []

    def look(layer: RecurrentLayers, given: tuple[Any, ...], named: dict[str, Any]) -> None:
        x = given[0] if given else named["x"]
        seen.append(Sequences.read(x, layer.batch_first, layer.input_size).batch_size)

    layers = [module for module in modules if isinstance(module, RecurrentLayers)]
    hooks = [layer.register_forward_pre_hook(look, with_kwargs=True) for layer in layers]
    try:
        yield seen
    finally:
        for hook in hooks:
            hook.remove()


def find_batch_dim(masked: list[MaskedModule]) -> int:
    """Where the layers say the batch is; they must agree."""
    said = {module.batch_first for module in masked if hasattr(module, "batch_first")}
    if len(said) > 1:
        raise ValueError("some layers are batch_first and some are not: give batch_dim=0 or 1 (or leave chunk at 1)")
    return 0 if said == {True} else 1


def call(model: nn.Module, inputs: Any) -> Any:
    """One argument, several, or named ones. A PackedSequence is a tuple too, but one argument."""
    if isinstance(inputs, Mapping):
        return model(**inputs)
    return model(*inputs) if type(inputs) in (tuple, list) else model(inputs)


def side_by_side(inputs: Any, count: int, dim: int) -> Any:
    """Repeat every tensor `count` times along the batch, the only axis of lengths and the like."""
    if count == 1:
        return inputs
    if isinstance(inputs, Tensor):
        return torch.cat([inputs] * count, min(dim, inputs.dim() - 1)) if inputs.dim() else inputs
    if isinstance(inputs, Mapping):
        return {name: side_by_side(value, count, dim) for name, value in inputs.items()}
    if type(inputs) in (tuple, list):
        return type(inputs)(side_by_side(value, count, dim) for value in inputs)
    if inputs is None:
        return None
    raise TypeError(f"chunk={count} repeats tensors along the batch; {type(inputs).__name__} needs chunk=1")


def apart(output: Tensor, count: int, one: torch.Size) -> tuple[Tensor, ...]:
    """Cut a chunk's outputs along the axis that has grown against a single sample."""
    if count == 1:
        return (output,)
    grown = [axis for axis, (before, now) in enumerate(zip(one, output.shape)) if before != now]
    if output.dim() != len(one) or len(grown) != 1 or output.shape[grown[0]] != count * one[grown[0]]:
        raise ValueError(
            f"{count} samples side by side gave {tuple(output.shape)} where one gave {tuple(one)}: is batch_dim "
            "the batch axis of the inputs? chunk=1 always works"
        )
    return output.chunk(count, grown[0])


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
    """Draw from a seed of our own, and leave the caller's random state as it was."""
    devices = list(range(torch.cuda.device_count())) if torch.cuda.is_initialized() else []
    with torch.random.fork_rng(devices):
        torch.default_generator.manual_seed(seed)
        for device in devices:
            with torch.cuda.device(device):
                torch.cuda.manual_seed(seed)
        yield
