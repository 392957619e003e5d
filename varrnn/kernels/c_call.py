"""A call of the C kernels: the arguments that all layers share (csrc/layer.h), and the memory that they work in."""

import ctypes

import torch
from torch import Tensor

from varrnn.cells import Cell, RNNCell, Weights
from varrnn.dropout import Masks, is_identity
from varrnn.kernels import c_library, cpu_cache
from varrnn.kernels.pointwise import CANDIDATE_KINDS, GATE_KINDS
from varrnn.kernels.step_rows import StepRows

CHUNK_ROWS = 512  # rows of a chunk of steps, about: their gates fit into the second-level cache
# Rows of x and h that are multiplied into a weight's gradient at once (csrc/layer.h: depth): their panels hold at most
# PANEL_NUMBERS numbers, which fit into that cache too.
PANEL_NUMBERS, MIN_DEPTH, MAX_DEPTH = 3 * 2**16, 64, 512
SPLIT_TILE_ROWS, SPLIT_PANEL_NUMBERS = 32, 2**18  # of csrc/split_tiles.h


class Mask(ctypes.Structure):
    """A mask (time, gate, batch, unit); a mask of ones is a NULL pointer."""

    _fields_ = (("data", ctypes.c_void_p), ("step_stride", ctypes.c_int64), ("num_gates", ctypes.c_int64))


def int_fields(*names: str) -> list[tuple[str, type]]:
    return [(name, ctypes.c_int64) for name in names]


def ptr_fields(*names: str) -> list[tuple[str, type]]:
    return [(name, ctypes.c_void_p) for name in names]


LAYER_FIELDS = (
    *int_fields("steps", "batch", "inputs", "size", "num_gates", "threads"),
    *ptr_fields("begins"),
    *int_fields("chunk_rows", "split_units", "save_gates"),
    *int_fields("gate_activation", "candidate_activation"),
    *ptr_fields("x", "w_ih", "w_hh", "bias", "h0"),
    *(("z_x", Mask), ("z_h", Mask)),
    *ptr_fields("gates", "h", "packed_ih", "packed_hh", "masked_x", "masked_h"),
    *ptr_fields("dh_out", "da", "factor_da", "dh", "dx", "dw_ih", "dw_hh", "db"),
    *int_fields("depth", "packed_columns"),
    *ptr_fields("packed_x", "row_begins"),
    *int_fields("chunk_start", "chunk_end"),
)


def chunk_rows(rows: StepRows) -> int:
    """The rows of a chunk: whole steps, about CHUNK_ROWS in parts of equal size, and those of any one step."""
    if rows.packed:
        return min(rows.total, max(CHUNK_ROWS, rows.batch))
    return max(1, -(-rows.steps // max(1, round(rows.total / CHUNK_ROWS)))) * rows.batch


def share_units(w_hh: Tensor, batch: int, split: bool) -> bool:
    """Whether threads share the units of a step instead of its rows (csrc/layer.h).

    They do if no cache holds all of U, and if split products would have fewer rows than a tile in a step that is worth
    more than one thread.
    """
    enough_units = batch * w_hh.shape[1] >= c_library.MIN_UNITS_PER_THREAD
    few_rows = split and enough_units and batch < SPLIT_TILE_ROWS * torch.get_num_threads()
    return few_rows or w_hh.nbytes > cpu_cache.last_level()


class Call:
    """One call: its arguments, and the tensors that they point into."""

    def __init__(
        self, arguments: ctypes.Structure, cell: Cell, x: Tensor, rows: StepRows, w: Weights, masks: Masks
    ) -> None:
        self.arguments, self.x, self.rows, self.batch = arguments, x, rows, rows.batch
        self.keepalive: dict[str, Tensor | None] = {}
        lib = c_library.get_library_for_precision()
        assert lib is not None
        self.lib = lib
        inputs, size = x.shape[-1], w.w_hh.shape[1]
        split_units = share_units(w.w_hh, self.batch, self.split)
        threads = c_library.threads(self.batch, size, split_units)
        self.chunk_rows = chunk_rows(rows)
        self.set_ints(steps=rows.steps, batch=self.batch, inputs=inputs, size=size, chunk_rows=self.chunk_rows)
        gates = w.w_hh.shape[0] // size
        self.set_ints(num_gates=gates, threads=threads, split_units=threads > 1 and split_units)
        self.set_tensors(begins=torch.tensor(rows.begins) if rows.packed else None)
        self.set_tensors(row_begins=torch.empty(threads + 1, dtype=torch.int64))
        gate, candidate = (
            (torch.sigmoid, cell.nonlinearity)
            if isinstance(cell, RNNCell)
            else (cell.gate_activation, cell.candidate_activation)
        )
        self.set_ints(gate_activation=GATE_KINDS[gate], candidate_activation=CANDIDATE_KINDS[candidate])
        self.set_tensors(x=x, w_ih=w.w_ih, w_hh=w.w_hh)
        self.set_mask("z_x", masks.z_x, inputs)
        self.set_mask("z_h", masks.z_h, size)
        self.set_tensors(packed_ih=self.pack_buffer(gates, inputs, size), packed_hh=self.pack_buffer(gates, size, size))

    def set_ints(self, **values: int) -> None:
        for name, value in values.items():
            setattr(self.arguments, name, value)

    def set_tensors(self, **tensors: Tensor | None) -> None:
        """Tensors by the names of the arguments, made contiguous; None is NULL. Results are contiguous already."""
        for name, tensor in tensors.items():
            self.keepalive[name] = whole = None if tensor is None else tensor.contiguous()
            setattr(self.arguments, name, None if whole is None else whole.data_ptr())

    def set_mask(self, name: str, z: Tensor, units: int) -> None:
        """A mask, expanded along batch and units only: time and gate axes of size 1 keep that size."""
        self.keepalive[name] = whole = None if is_identity(z) else z.expand(-1, -1, self.batch, units).contiguous()
        if whole is None:
            setattr(self.arguments, name, Mask(None, 0, 1))
        else:
            stride = whole[0].numel() if whole.shape[0] > 1 else 0
            setattr(self.arguments, name, Mask(whole.data_ptr(), stride, whole.shape[1]))

    def pack_buffer(self, gates: int, units: int, size: int) -> Tensor:
        """Memory for a weight in panels, forward or backward."""
        columns, depth = c_library.padded_columns, self.padded
        return self.x.new_empty(gates * max(depth(units) * columns(size), depth(size) * columns(units)))

    def padded(self, depth: int) -> int:
        return c_library.padded_depth(self.lib, depth)

    @property
    def split(self) -> bool:
        """Whether first factors are copies in another format."""
        return self.lib is not c_library.get_library()

    def alloc_masked(self) -> None:
        """Memory for the masked inputs of a forward pass."""
        z_x, z_h = (self.keepalive[name] for name in ("z_x", "z_h"))
        self.set_tensors(
            masked_x=self.alloc_masked_factor(z_x, self.chunk_rows, self.x.shape[-1]),
            masked_h=self.alloc_masked_factor(z_h, self.batch, self.arguments.size),
        )

    def alloc_masked_factor(self, z: Tensor | None, rows: int, units: int) -> Tensor | None:
        """Memory for x or h under a mask as a first factor; None where that is the tensor itself."""
        return self.alloc_factor(rows, units) if z is None else self.x.new_empty(z.shape[1], rows, self.padded(units))

    def alloc_factor(self, rows: int, *units: int) -> Tensor | None:
        """Memory for a tensor (rows, units) or (rows, gates, units) as a first factor; None where it is one."""
        return self.x.new_empty(rows, *units[:-1], self.padded(units[-1])) if self.split else None

    def alloc_da(self) -> None:
        """Memory for the gradient of a chunk's gates."""
        shape = (self.chunk_rows, self.arguments.num_gates, self.arguments.size)
        self.set_tensors(da=self.x.new_empty(shape), factor_da=self.alloc_factor(*shape))

    def alloc_panels(self) -> None:
        """Memory of each thread for some rows of x or h in panels, which a weight's gradient is computed from."""
        arguments = self.arguments
        columns = c_library.padded_columns(max(arguments.inputs, arguments.size))
        depth = max(MIN_DEPTH, min(MAX_DEPTH, PANEL_NUMBERS // columns))
        if self.split:  # parts of equal depth: a sum that is continued costs more beside faster products
            depth = max(MIN_DEPTH, min(MAX_DEPTH, SPLIT_PANEL_NUMBERS // columns))
            depth = -(-self.chunk_rows // max(1, -(-self.chunk_rows // depth)))
        self.set_ints(depth=depth, packed_columns=columns)
        self.set_tensors(packed_x=self.x.new_empty(arguments.threads, self.padded(depth), columns))

    def alloc_grad(self, weight: Tensor) -> Tensor:
        """Memory for the gradient of a weight: C overwrites it, unless there are no rows at all."""
        return (self.x.new_empty if self.x.numel() else self.x.new_zeros)(weight.shape)

    def run(self, function: str) -> None:
        getattr(self.lib, function)(ctypes.byref(self.arguments))
