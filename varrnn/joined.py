"""Samples side by side: one pass over several copies of the inputs, as more rows of the batch."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from varrnn.autocast import autocast_on
from varrnn.dropout import MaskedModule, Masks
from varrnn.embedding import WordEmbedding
from varrnn.sequences import Sequences
from varrnn.stack import RecurrentLayers

REDUCED = 1e-2  # what products in TF32 or bf16 lose at most; rows that were mixed up differ by much more


@contextmanager
def batches(modules: list[MaskedModule], samples: int) -> Iterator[list[int]]:
    """How many sequences the recurrent layers among these are called with, one number per call.

    Masks that the model gives to a layer must tell the samples of a pass apart.
    """
    seen: list[int] = []

    def look(layer: RecurrentLayers, given: tuple[Any, ...], named: dict[str, Any]) -> None:
        given_input = given[0] if given else named["input"]
        if isinstance(given_input, PackedSequence):
            seen.append(int(given_input.batch_sizes[0]))
        else:
            seen.append(Sequences.read(given_input, layer.batch_first, layer.input_size).batch_size)

    layers = [module for module in modules if isinstance(module, RecurrentLayers)]
    hooks = [layer.register_forward_pre_hook(look, with_kwargs=True) for layer in layers]
    if samples > 1:
        hooks += [module.register_forward_pre_hook(refuse_shared, with_kwargs=True) for module in modules]
    try:
        yield seen
    finally:
        for hook in hooks:
            hook.remove()


def refuse_shared(module: MaskedModule, given: tuple[Any, ...], named: dict[str, Any]) -> None:
    """A mask of one row acts on the whole batch: all samples side by side would be one and the same."""
    rows: list[tuple[Tensor, int]] = []  # masks with their batch axes
    if isinstance(module, RecurrentLayers):
        masks = named.get("masks", given[2] if len(given) > 2 else None)
        if masks is None and module.dropout.per_batch:
            raise ValueError(
                f"{type(module).__name__} draws one mask for the whole batch (per_batch=True), which all samples of a "
                "chunk would share; use chunk=1, or per_batch=False"
            )
        layers = (masks,) if isinstance(masks, Masks) else masks or ()
        rows = [(z, -2) for layer in layers for z in layer if z.shape[-1] > 1]  # one for all units drops none of them
    elif isinstance(module, WordEmbedding):
        mask = named.get("mask", given[1] if len(given) > 1 else None)
        rows = [] if mask is None or mask.numel() == 1 else [(mask, 0 if mask.dim() == 2 or module.batch_first else 1)]
    if any(mask.shape[axis] == 1 for mask, axis in rows):
        raise ValueError(
            f"{type(module).__name__} was given a mask of one row, which samples side by side would share; draw one "
            "row for every sequence of the batch, or use chunk=1"
        )


def find_batch_dim(masked: list[MaskedModule]) -> int:
    """Where the layers say the batch is; they must agree."""
    said = {module.batch_first for module in masked if hasattr(module, "batch_first")}
    if len(said) > 1:
        raise ValueError("some layers are batch_first and some are not: give batch_dim=0 or 1 (or leave chunk at 1)")
    return 0 if said == {True} else 1


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
    if output.numel() == 0 and output.shape == one:  # nothing in the batch
        return (output,) * count
    grown = [axis for axis, (before, now) in enumerate(zip(one, output.shape)) if before != now]
    if output.dim() != len(one) or len(grown) != 1 or output.shape[grown[0]] != count * one[grown[0]]:
        raise ValueError(
            f"{count} samples side by side gave {tuple(output.shape)} where one gave {tuple(one)}: is batch_dim "
            "the batch axis of the inputs? chunk=1 always works"
        )
    return output.chunk(count, grown[0])


def same(found: Tensor, wanted: Tensor, model: nn.Module) -> bool:
    """Equal but for rounding: batches of two sizes are summed in two orders, on a GPU perhaps in two precisions."""
    if not (wanted.is_floating_point() or wanted.is_complex()):
        return torch.equal(found, wanted)
    largest = float(wanted.abs().nan_to_num(0, 0, 0).max()) if wanted.numel() else 0.0
    return torch.allclose(found, wanted, 0, rounding(wanted, model) * largest, equal_nan=True)


def rounding(outputs: Tensor, model: nn.Module) -> float:
    """By how much of the largest output two equal rows may differ: the coarsest type that may have computed says."""
    types = {outputs.dtype, *(p.dtype for p in model.parameters() if p.is_floating_point())}
    if autocast_on(outputs.device.type):
        types.add(torch.get_autocast_dtype(outputs.device.type))
    coarsest = max(torch.finfo(dtype).eps for dtype in types)
    return max(coarsest**0.5, REDUCED if reduced(outputs) else 0.0)


def reduced(outputs: Tensor) -> bool:
    """Whether products of float32 may be computed with fewer digits: TF32 on a GPU, bf16 on a CPU."""
    if outputs.dtype != torch.float32:
        return False
    try:
        tf32 = outputs.is_cuda and (torch.backends.cuda.matmul.allow_tf32 or torch.backends.cudnn.allow_tf32)
        return tf32 or torch.get_float32_matmul_precision() != "highest"
    except RuntimeError:  # who has set fp32_precision, torch's newer option, may not ask for the older ones
        return True
