"""Compute several MC samples in one pass: copies of the inputs become additional rows of the batch."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

from varrnn.cell_modules import VariationalCellBase
from varrnn.dropout import MaskedModule, Masks, is_identity
from varrnn.embedding import WordEmbedding
from varrnn.layers import VariationalRNNBase
from varrnn.sequence_dropout import SequenceDropout
from varrnn.sequence_input import Sequences
from varrnn.tensor_trees import tensors
from varrnn.torch_modes import autocast_enabled, disable_dynamo

TF32_TOLERANCE = 1e-2  # relative error bound of products in TF32 or bf16; mixed-up rows differ by much more
PASSED_THROUGH = (bool, int, float, complex, str, bytes, type(None), torch.dtype, torch.device)  # have no batch axis


@contextmanager
def record_batch_sizes(
    modules: list[MaskedModule], samples: int, others: Iterable[nn.Module] = ()
) -> Iterator[list[int]]:
    """Record the batch size of each call of these modules, and the size of the input of each call of the others.

    The others are modules of torch with dropout, which do not know their batch axis.

    With several samples, masks that the model passes to a layer need one row per sequence: a mask of one row would be
    shared by all samples, and raises.
    """
    sizes: list[int] = []

    @disable_dynamo
    def hook(layer: MaskedModule, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        x = args[0] if args else kwargs["words" if isinstance(layer, WordEmbedding) else "input"]
        if isinstance(layer, WordEmbedding):  # words (T,) are one sequence
            sizes.append(x.shape[0 if layer.batch_first else 1] if x.dim() > 1 else 1)
        elif isinstance(layer, VariationalCellBase):
            sizes.append(x.shape[0] if x.dim() == 2 else 1)
        elif isinstance(x, PackedSequence):
            sizes.append(int(x.batch_sizes[0]))
        elif isinstance(layer, SequenceDropout):
            if layer.p and x.dim() > 2:  # otherwise the layer raises
                sizes.append(x.shape[0 if layer.batch_first else 1])
        elif isinstance(layer, VariationalRNNBase):
            sizes.append(Sequences.from_input(x, layer.batch_first, layer.input_size, type(layer).__name__).batch_size)

    @disable_dynamo
    def size_hook(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        sizes.append(sum(tensor.numel() for tensor in tensors((args, kwargs))))

    layers = [module for module in modules if isinstance(module, VariationalRNNBase | WordEmbedding | SequenceDropout)]
    hooks = [layer.register_forward_pre_hook(hook, with_kwargs=True) for layer in layers]
    hooks += [module.register_forward_pre_hook(size_hook, with_kwargs=True) for module in others]
    if samples > 1:
        hooks += [module.register_forward_pre_hook(reject_broadcast_masks, with_kwargs=True) for module in modules]
    try:
        yield sizes
    finally:
        for handle in hooks:
            handle.remove()


def reject_broadcast_masks(module: MaskedModule, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Raise for a mask of one row, which acts on the whole batch: all samples of the pass would be the same."""
    rows: list[tuple[Tensor, int]] = []  # masks with their batch axes
    if isinstance(module, VariationalRNNBase):
        masks = kwargs.get("masks", args[2] if len(args) > 2 else None)
        if masks is None and module.dropout.per_batch:
            raise ValueError(
                f"{type(module).__name__} draws one mask for the whole batch (per_batch=True), which all samples of a "
                "chunk would share; use chunk=1, or per_batch=False"
            )
        layers = (masks,) if isinstance(masks, Masks) else masks or ()
        rows = [(z, -2) for layer in layers for z in layer if may_drop(z, module)]
    elif isinstance(module, WordEmbedding | SequenceDropout):
        mask = kwargs.get("mask", args[1] if len(args) > 1 else None)
        axis = 1 if isinstance(module, WordEmbedding) and mask is not None and mask.dim() == 3 else 0
        rows = [] if mask is None or mask.numel() == 1 else [(mask, 0 if module.batch_first else axis)]
    if any(mask.shape[axis] == 1 for mask, axis in rows):
        raise ValueError(
            f"{type(module).__name__} was given a mask of one row, which all samples of a pass would share; draw one "
            "row for every sequence of the batch, or use chunk=1"
        )


def may_drop(z: Tensor, layer: VariationalRNNBase) -> bool:
    """Whether a mask may be one of dropout: one factor for all units is not, unless there is only one unit."""
    if z.shape[-1] > 1:
        return True
    return 1 in (layer.input_size, layer.hidden_size) and not is_identity(z) and bool((z != 1).any())


@contextmanager
def record_bytes(model: nn.Module) -> Iterator[list[int]]:
    """Record the sizes of the modules' outputs, an estimate of the memory that one pass takes."""
    sizes: list[int] = []

    @disable_dynamo
    def hook(module: nn.Module, args: tuple[Any, ...], output: Any) -> None:
        copies = 1 + module.cell.num_gates if isinstance(module, VariationalRNNBase) else 1  # states and gates
        sizes.append(copies * sum(tensor.nbytes for tensor in tensors(output)))

    handles = [module.register_forward_hook(hook) for module in model.modules()]
    try:
        yield sizes
    finally:
        for handle in handles:
            handle.remove()


def infer_batch_dim(masked: list[MaskedModule]) -> int:
    """The batch axis according to the layers' ``batch_first``; they must agree."""
    flags = {
        module.batch_first
        for module in masked
        if hasattr(module, "batch_first") and not isinstance(module, VariationalCellBase)
    }
    if len(flags) > 1:
        raise ValueError("some layers are batch_first and some are not: give batch_dim=0 or 1, or chunk=1")
    return 0 if flags == {True} else 1


def repeat_inputs(inputs: Any, count: int, dim: int) -> Any:
    """Repeat every tensor `count` times along the batch axis; tensors of one axis, such as lengths, along that axis."""
    if count == 1 or isinstance(inputs, PASSED_THROUGH):
        return inputs
    if isinstance(inputs, Tensor):
        return torch.cat([inputs] * count, min(dim, inputs.dim() - 1)) if inputs.dim() else inputs
    if isinstance(inputs, PackedSequence):
        padded, lengths = pad_packed_sequence(inputs)
        return pack_padded_sequence(torch.cat([padded] * count, 1), lengths.repeat(count), enforce_sorted=False)
    if isinstance(inputs, Mapping):
        return {name: repeat_inputs(value, count, dim) for name, value in inputs.items()}
    if type(inputs) in (tuple, list):
        return type(inputs)(repeat_inputs(value, count, dim) for value in inputs)
    raise TypeError(f"chunk={count} repeats tensors along the batch; {type(inputs).__name__} needs chunk=1")


def packed_data(output: PackedSequence, count: int) -> Tensor:
    """The data of the packed outputs of `count` samples, one sample after the other."""
    if count == 1:
        return output.data
    padded, lengths = pad_packed_sequence(output)
    parts = zip(padded.chunk(count, 1), lengths.chunk(count))
    return torch.cat([pack_padded_sequence(x, n, enforce_sorted=False).data for x, n in parts])


def split_samples(output: Tensor, count: int, one: torch.Size) -> tuple[Tensor, ...]:
    """Split a chunk's outputs along the axis that is longer than in the output of a single sample."""
    if count == 1:
        return (output,)
    if output.numel() == 0 and output.shape == one:  # nothing in the batch
        return (output,) * count
    axis = [axis for axis, (before, now) in enumerate(zip(one, output.shape)) if before != now]
    if output.dim() != len(one) or len(axis) != 1 or output.shape[axis[0]] != count * one[axis[0]]:
        raise ValueError(
            f"{count} samples in one pass gave {tuple(output.shape)} where one gave {tuple(one)}: is batch_dim "
            "the batch axis of the inputs? chunk=1 always works"
        )
    return output.chunk(count, axis[0])


def allclose(found: Tensor, wanted: Tensor, model: nn.Module) -> bool:
    """Equal up to rounding: the batch size may change the order of a sum and, on a GPU, its precision."""
    if not (wanted.is_floating_point() or wanted.is_complex()):
        return torch.equal(found, wanted)
    largest = float(wanted.abs().nan_to_num(0, 0, 0).max()) if wanted.numel() else 0.0
    return torch.allclose(found, wanted, 0, tolerance(wanted, model) * largest, equal_nan=True)


def tolerance(outputs: Tensor, model: nn.Module) -> float:
    """The allowed difference of equal rows relative to the largest output, from the least precise dtype in use."""
    types = {outputs.dtype, *(p.dtype for p in model.parameters() if p.is_floating_point())}
    if autocast_enabled(outputs.device.type):
        types.add(torch.get_autocast_dtype(outputs.device.type))
    coarsest = max(torch.finfo(dtype).eps for dtype in types)
    return max(coarsest**0.5, TF32_TOLERANCE if reduced_precision(outputs) else 0.0)


def reduced_precision(outputs: Tensor) -> bool:
    """Whether products of float32 may be computed with fewer digits: TF32 on a GPU, bf16 on a CPU."""
    if outputs.dtype != torch.float32:
        return False
    try:
        tf32 = outputs.is_cuda and (torch.backends.cuda.matmul.allow_tf32 or torch.backends.cudnn.allow_tf32)
        return tf32 or torch.get_float32_matmul_precision() != "highest"
    except RuntimeError:  # with fp32_precision set, torch's newer option, reading the older options raises
        return True
