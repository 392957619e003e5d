"""MC dropout for any model with this package's layers: averaged stochastic passes (equation 4 of the paper)."""

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from numbers import Integral
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence
from torch.utils.data import DataLoader, Dataset

from varrnn import rng, sample_batching
from varrnn.dropout import (
    Classes,
    DropoutRates,
    MaskedModule,
    find_others,
    hold_masks,
    is_torch_dropout,
    mc_dropout,
    warn_of_inactive,
)
from varrnn.layers import VariationalRNNBase
from varrnn.tensor_trees import tensors
from varrnn.uncertainty import Heteroscedastic

CHUNK_BYTES = 2**28  # limit on the bytes of modules' outputs in one pass, for chunk=None


class Prediction:
    """Samples from the approximate predictive distribution, computed lazily.

    Iterating yields the outputs one by one, the same in every iteration as long as the model's weights and the inputs
    do not change. ``mean`` and ``std`` are computed once and cached. Only ``stack`` and ``quantiles`` keep more than
    one chunk of samples in memory.

    Attributes:
        samples: the number of samples.
        chunk: the number of samples in one pass; None until the first pass has measured the memory of one sample.

    Example:
        >>> model = VariationalGRU(3, 4, dropout=DropoutRates.variational(p_W=0.5, p_U=0.5))
        >>> prediction = mc_predict(model, torch.randn(5, 2, 3), samples=8)
        >>> prediction.mean.shape, prediction.std.shape, prediction.stack().shape
        (torch.Size([5, 2, 4]), torch.Size([5, 2, 4]), torch.Size([8, 5, 2, 4]))
    """

    def __init__(self, passes: "ForwardPasses", samples: int, chunk: int | None) -> None:
        self._passes, self.samples, self.chunk = passes, samples, chunk
        self._single_from: int | None = None  # the first sample that could not be computed in a chunk
        self._chooses = chunk is None
        self._moments: tuple[Tensor, Tensor] | None = None

    def __len__(self) -> int:
        return self.samples

    def __iter__(self) -> Iterator[Tensor]:
        """The first pass computes one sample: its shape shows along which axis a chunk's outputs are concatenated."""
        first = self._passes.sample(0, 1)
        shape = first.shape
        yield first
        del first
        if self.chunk is None:
            self.chunk = self._passes.choose_chunk(self.samples)
        start = 1
        while start < self.samples:
            whole = self._single_from is None or start < self._single_from
            count = min(self.chunk if whole else 1, self.samples - start)
            try:
                parts = sample_batching.split_samples(self._passes.sample(start, count), count, shape)
            except Exception:  # mixed rows, masks shared by all samples, out of memory: chunk=1 always works
                if count == 1 or not self._chooses:
                    raise
                if start == 1:
                    self.chunk = 1
                self._single_from = start  # the next iteration changes at the same sample
                continue
            start += count
            yield from parts
            del parts  # otherwise two chunks would be in memory during the next pass

    @property
    def mean(self) -> Tensor:
        """The MC estimate: the mean over samples, summed in double precision and returned in the samples' dtype."""
        return self._mean_and_std()[0]

    @property
    def std(self) -> Tensor:
        """The standard deviation over samples, with divisor ``samples`` (so it is 0 for one sample)."""
        return self._mean_and_std()[1]

    def stack(self) -> Tensor:
        """All samples in one tensor, with a first axis of ``samples``."""
        return torch.stack(list(self))

    def quantiles(self, q: float | Sequence[float]) -> Tensor:
        """Quantiles over samples, with linear interpolation: (...) for a number, (len(q), ...) for a sequence.

        Example:
            >>> layer = VariationalLSTM(3, 4, dropout=DropoutRates.variational(p_W=0.5))
            >>> low, high = mc_predict(layer, torch.randn(5, 2, 3), samples=20).quantiles((0.05, 0.95))
            >>> low.shape, bool((low <= high).all())
            (torch.Size([5, 2, 4]), True)
        """
        levels = torch.as_tensor(q, dtype=torch.float64)
        if levels.dim() > 1 or not bool(((levels >= 0) & (levels <= 1)).all()):
            raise ValueError(f"q={q!r} must be a number from 0 to 1, or a sequence of them")
        ordered = self.stack().sort(dim=0).values  # torch.quantile rejects more than 16 million numbers
        positions = (levels.flatten() * (self.samples - 1)).to(ordered.device)
        below = positions.floor().long().clamp(max=max(0, self.samples - 2))
        above = (below + 1).clamp(max=self.samples - 1)
        share = (positions - below).to(ordered.dtype).view(-1, *[1] * (ordered.dim() - 1))
        found = ordered[below].lerp(ordered[above], share)
        return found if levels.dim() else found[0]

    def _mean_and_std(self) -> tuple[Tensor, Tensor]:
        if self._moments is None:
            total = sum_sq = None
            for number, output in enumerate(self, 1):
                y = to_accumulator_dtype(output)
                if total is None or sum_sq is None:
                    total, sum_sq = y, torch.zeros_like(y.abs())
                    continue
                before, total = total / (number - 1), total + y  # a sum, so that infinite outputs have a mean
                # Welford: accurate also when the spread is small
                sum_sq = sum_sq + ((y - before) * (y - total / number).conj()).real
            assert total is not None and sum_sq is not None
            self._moments = (
                (total / self.samples).to(output.dtype),
                (sum_sq / self.samples).sqrt().to(output.abs().dtype),
            )
        return self._moments


class GaussianPrediction(Prediction):
    """Samples of (mean, log variance), from ``mc_predict(..., log_variance=True)`` (Kendall & Gal, 2017).

    Iterating gives tensors of shape (2, ...): the mean and the log variance that one sampled function predicts. The
    predictive distribution is the mixture of these Gaussians.

    Example:
        >>> model = VariationalGRU(3, 2, dropout=DropoutRates.variational(p_W=0.5, p_U=0.5))
        >>> x = torch.randn(5, 7, 3)  # the last axis of the output, of size 2, holds mean and log variance
        >>> prediction = mc_predict(model, x, samples=8, log_variance=True, apply=lambda out: out[0])
        >>> prediction.aleatoric.shape, torch.equal(prediction.variance, prediction.aleatoric + prediction.epistemic)
        (torch.Size([5, 7]), True)
        >>> low, high = prediction.interval(0.9)
    """

    def __init__(self, passes: "ForwardPasses", samples: int, chunk: int | None) -> None:
        super().__init__(passes, samples, chunk)
        self._sums: Heteroscedastic | None = None

    @property
    def moments(self) -> Heteroscedastic:
        """The running sums behind the other properties, in double precision."""
        if self._sums is None:
            self._sums = Heteroscedastic()
            for mean, log_variance in self:
                self._sums.add(mean, log_variance)
        return self._sums

    @property
    def mean(self) -> Tensor:
        """The predictive mean: the mean over samples of the predicted means."""
        return self.moments.mean

    @property
    def aleatoric(self) -> Tensor:
        """The noise of the data: the mean over samples of the predicted variances."""
        return self.moments.aleatoric

    @property
    def epistemic(self) -> Tensor:
        """The uncertainty of the model: the variance over samples of the predicted means."""
        return self.moments.epistemic

    @property
    def variance(self) -> Tensor:
        """The total variance, aleatoric + epistemic."""
        return self.moments.variance

    @property
    def std(self) -> Tensor:
        """The square root of the total variance."""
        return self.variance.sqrt()

    def interval(self, level: float) -> tuple[Tensor, Tensor]:
        """Lower and upper end of the central interval of N(mean, variance) with probability ``level``."""
        return self.moments.interval(level)

    def quantiles(self, q: float | Sequence[float]) -> Tensor:
        """Not defined for samples of (mean, log variance)."""
        raise TypeError("samples of (mean, log variance) have no quantiles; use interval(level)")


def to_accumulator_dtype(output: Tensor) -> Tensor:
    """Outputs in double precision: a running sum in bfloat16 stops growing after a few hundred samples."""
    if not (output.is_floating_point() or output.is_complex()):
        raise TypeError(f"samples of {output.dtype} have no mean; iterate over them, or let apply give probabilities")
    widest = torch.float32 if output.device.type == "mps" else torch.float64  # mps does not support float64
    return output.to(torch.promote_types(output.dtype, widest))


def mc_predict(
    model: nn.Module,
    inputs: Any,
    samples: int = 50,
    chunk: int | None = None,
    *,
    apply: Callable[[Any], Tensor] | None = None,
    batch_dim: int | None = None,
    seed: int = 0,
    also: Classes | None = None,
    log_variance: bool = False,
) -> Prediction:
    """Stochastic forward passes through the model: masks are on in this package's layers, all else is in eval.

    One sample is one function from q(omega): all calls of a layer within a sample share their masks (``hold_masks``).
    Samples are computed lazily: read the mean before you modify the inputs in place. The global random state is
    restored. Threads that call mc_predict take turns, one pass at a time. Do not call or train the same model in
    another thread meanwhile: during a pass it is in eval, with its masks on.

    Args:
        model: any module that contains layers of this package.
        inputs: the model's inputs: one argument, a tuple of arguments or a mapping of keyword arguments.
        samples: the number of samples.
        chunk: how many samples one pass computes, as additional rows of the batch. None chooses the largest number that
            keeps the outputs of the model's modules below 256 MiB, and 1 where the rows of a batch depend on each
            other. The samples depend on chunk, since the masks of a chunk are drawn together.
        apply: a function of the model's output, applied before averaging. For a classifier give the softmax: the mean
            of probabilities is wanted, not the mean of logits. If the model returns a tuple, it gets the first element.
        batch_dim: the batch axis of the inputs; by default the one that the layers' ``batch_first`` implies.
        seed: the seed of the samples, which also depend on the device.
        also: classes of other modules to sample, such as ``nn.Dropout`` (see ``mc_dropout``).
        log_variance: True if the model (or ``apply``) returns (mean, log variance), as two tensors of one shape or as
            one tensor with a last axis of 2; the result is a ``GaussianPrediction``.

    Returns:
        a ``Prediction``: iterate over it, or read ``mean``, ``std``, ``quantiles(q)``, ``stack()``.

    Example:
        >>> model = VariationalLSTM(3, 4, dropout=DropoutRates.variational(p_W=0.5, p_U=0.5))
        >>> prediction = mc_predict(model, torch.randn(5, 2, 3), samples=20)
        >>> prediction.mean.shape, len(list(prediction))
        (torch.Size([5, 2, 4]), 20)
    """
    integer_args = [("samples", samples, 1), ("seed", seed, 0)]
    integer_args += [] if chunk is None else [("chunk", chunk, 1)]
    integer_args += [] if batch_dim is None else [("batch_dim", batch_dim, 0)]
    for name, value, lowest in integer_args:
        if isinstance(value, bool) or not isinstance(value, Integral) or value < lowest:
            raise ValueError(f"{name}={value!r} must be a whole number from {lowest}")
    if not isinstance(model, nn.Module):
        raise TypeError(f"mc_predict takes a model, an nn.Module, not a {type(model).__name__}")
    if isinstance(inputs, Iterator | DataLoader | Dataset):
        raise TypeError(
            f"mc_predict takes the inputs of one call, not a {type(inputs).__name__}: loop over its batches"
        )
    if log_variance and apply is None and isinstance(model, VariationalRNNBase):
        raise TypeError(
            f"log_variance=True takes (mean, log variance), and {type(model).__name__} returns (output, state); give "
            "apply= to make them from it"
        )
    masked = [module for module in model.modules() if isinstance(module, MaskedModule)]
    others = [module for module in find_others(model, also or ()) if is_stochastic(module)]
    if not any(map(is_stochastic, masked)) and not others:
        why = "only layers without dropout" if masked else "no layer of varrnn"
        raise ValueError(f"{type(model).__name__} has {why}: every sample would be the same")
    if also is None:
        warn_of_inactive(model, stacklevel=3, in_eval=True)
    if batch_dim is None and chunk != 1:
        try:
            batch_dim = sample_batching.infer_batch_dim(masked)
        except ValueError:
            if chunk is not None:
                raise
            chunk = 1
    passes = ForwardPasses(model, inputs, batch_dim or 0, apply, seed, masked, also or (), log_variance, chunk is None)
    return (GaussianPrediction if log_variance else Prediction)(passes, samples, chunk)


_lock = threading.RLock()  # threads share the global random state, and may share the model


@dataclass
class ForwardPasses:
    """Forward passes through a model, for one sample or for several, batched along `axis` of the inputs."""

    model: nn.Module
    inputs: Any
    axis: int
    apply: Callable[[Any], Tensor] | None
    seed: int
    masked_modules: list[MaskedModule]
    also: Classes
    log_variance: bool
    measure: bool  # whether to measure the memory of a pass
    single_batch_sizes: list[int] = field(default_factory=list)
    single_bytes: int = 0
    checked: bool = False

    @torch.no_grad()
    def sample(self, start: int, count: int) -> Tensor:
        """The samples from `start` to `start + count`, each with separate masks."""
        with _lock, ExitStack() as block:
            if count > 1 and not self.checked:
                self.check_batch_independence()
            block.enter_context(eval_mode(self.model))
            block.enter_context(mc_dropout(self.model, self.also))
            if self.masked_modules:
                block.enter_context(hold_masks(self.model))
            block.enter_context(fork_rng(rng.derive_seed(rng.MONTE_CARLO, self.seed, start)))
            return self.postprocess(self.run(count))  # inside the block, since `apply` may be random too

    def run(self, count: int) -> Any:
        """One pass over `count` copies of the inputs."""
        copies = sample_batching.repeat_inputs(self.inputs, count, self.axis)
        try:
            with ExitStack() as block:
                others = find_others(self.model, self.also)
                sizes = block.enter_context(sample_batching.record_batch_sizes(self.masked_modules, count, others))
                measured = self.measure and count == 1
                taken = block.enter_context(sample_batching.record_bytes(self.model)) if measured else []
                output = call_model(self.model, copies)
        except Exception as error:
            if count > 1:
                error.add_note(
                    f"mc_predict: this pass computed {count} samples, with every tensor of the inputs (also states) "
                    f"repeated along axis {self.axis} (batch_dim=); chunk=1 always works"
                )
            raise
        if count == 1:
            self.single_batch_sizes, self.single_bytes = sizes, sum(taken) or self.single_bytes
        elif sizes != [count * size for size in self.single_batch_sizes]:
            raise ValueError(
                f"with {count} samples in one pass the layers got batches of {sizes}, with one sample "
                f"{self.single_batch_sizes}: axis {self.axis} of the inputs is not the batch axis (give batch_dim=), "
                "or dropout is applied to a tensor without a batch axis, whose mask all samples would share; chunk=1 "
                "always works"
            )
        if self.log_variance:
            return output
        while isinstance(output, tuple | list):  # (output, state)
            if isinstance(output, PackedSequence):
                return sample_batching.packed_data(output, count)
            output = output[0]
        return output

    def postprocess(self, output: Any) -> Tensor:
        """Apply `apply`; the result is averaged over samples."""
        result = output if self.apply is None else self.apply(output)
        if self.log_variance:
            return self.stack_gaussian(result)
        if not isinstance(result, Tensor):
            raise TypeError(
                f"{type(self.model).__name__} gives a {type(result).__name__}, but mc_predict averages a tensor; "
                "select it with apply=, for example apply=lambda output: output['logits'].softmax(-1)"
            )
        return result

    def stack_gaussian(self, output: Any) -> Tensor:
        """Mean and log variance as one tensor (2, ...)."""
        if isinstance(output, Tensor) and output.dim() and output.shape[-1] == 2:
            output = output.unbind(-1)
        if (
            not isinstance(output, tuple | list)
            or len(output) != 2
            or not all(isinstance(part, Tensor) for part in output)
            or output[0].shape != output[1].shape
        ):
            shapes = [tuple(t.shape) for t in tensors(output)]
            raise TypeError(
                f"{type(self.model).__name__} gives a {type(output).__name__} with tensors of {shapes}; "
                "log_variance=True takes (mean, log variance), two tensors of one shape, or one with a last axis of 2; "
                "convert it with apply=, for example apply=lambda output: output[:2]"
            )
        return torch.stack(tuple(output))

    def check_batch_independence(self) -> None:
        """Two copies of the inputs must give two copies of the output, otherwise samples would be mixed silently."""
        one = self.evaluate(1, seed=0)
        pair = sample_batching.split_samples(self.evaluate(2, seed=0), 2, one.shape)
        repeats = all(sample_batching.allclose(part, one, self.model) for part in pair)
        # a model whose output changes with the seed is random in eval too; then the comparison shows nothing
        if not repeats and sample_batching.allclose(self.evaluate(1, seed=1), one, self.model):
            raise ValueError(
                f"{type(self.model).__name__} mixes the rows of the batch: two copies of the inputs do not give its "
                "output twice (does it flatten time and batch?); return (T, B, ...) or use chunk=1"
            )
        self.checked = True

    @torch.no_grad()
    def evaluate(self, count: int, seed: int) -> Tensor:
        """The output without dropout, after `apply`; classes (integers) are not compared, since ties may flip."""
        with eval_mode(self.model), preserve_buffers(self.model), fork_rng(seed):
            output = self.run(count)
            processed = self.postprocess(output)
        return processed if processed.is_floating_point() else output

    def choose_chunk(self, samples: int) -> int:
        """As many samples as fit into CHUNK_BYTES: the same number on every machine for the same model and inputs."""
        return max(1, min(samples - 1, CHUNK_BYTES // max(1, self.single_bytes)))


def is_stochastic(module: nn.Module) -> bool:
    """Whether a module's outputs are random; modules from other packages are assumed to be."""
    if not isinstance(module, MaskedModule):
        return is_torch_dropout(module) or not isinstance(module, nn.modules.dropout._DropoutNd)
    dropout = getattr(module, "dropout", None)
    if isinstance(dropout, DropoutRates):
        return (dropout.for_layers() if isinstance(module, VariationalRNNBase) else dropout).is_active
    return getattr(module, "p_E", getattr(module, "p", 1.0)) > 0


def call_model(model: nn.Module, inputs: Any) -> Any:
    """Call the model with one argument, several, or keyword arguments; a PackedSequence is one argument."""
    if isinstance(inputs, Mapping):
        return model(**inputs)
    return model(*inputs) if type(inputs) in (tuple, list) else model(inputs)


@contextmanager
def eval_mode(model: nn.Module) -> Iterator[None]:
    """Put the model into eval(), then restore the mode of every module."""
    before = {module: module.training for module in model.modules()}
    try:
        model.eval()
        yield
    finally:
        for module, was_training in before.items():
            module.training = was_training


@contextmanager
def fork_rng(seed: int) -> Iterator[None]:
    """Seed the CPU and each GPU, then restore the caller's random state.

    The GPUs' generators are set without making a GPU current, which would allocate memory on unused GPUs.
    """
    devices = list(range(torch.cuda.device_count())) if torch.cuda.is_initialized() else []
    with torch.random.fork_rng(devices):
        torch.default_generator.manual_seed(seed)
        for device in devices:
            torch.cuda.default_generators[device].manual_seed(rng.derive_seed(seed, device) if device else seed)
        yield


@contextmanager
def preserve_buffers(model: nn.Module) -> Iterator[None]:
    """Restore the model's buffers after a pass that only checks something."""
    before = [(m, name, b, b.clone()) for m in model.modules() for name, b in m._buffers.items() if b is not None]
    try:
        yield
    finally:
        for module, name, buffer, values in before:
            module._buffers[name] = buffer
            if not torch.equal(buffer, values):
                buffer.copy_(values)
