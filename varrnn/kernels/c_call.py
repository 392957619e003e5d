"""A call of the C kernels: what all layers pass (csrc/layer.h), and the memory that they work in."""

import ctypes

from torch import Tensor

from varrnn.cells import Weights
from varrnn.dropout import Masks, is_ones
from varrnn.kernels import c_library

ROWS = 512  # rows of a chunk: its gates fit into the second cache


class Mask(ctypes.Structure):
    """A mask (time, gate, batch, unit); ones are no mask at all."""

    _fields_ = (("at", ctypes.c_void_p), ("step", ctypes.c_int64), ("copies", ctypes.c_int64))


def numbers(*names: str) -> list[tuple[str, type]]:
    return [(name, ctypes.c_int64) for name in names]


def pointers(*names: str) -> list[tuple[str, type]]:
    return [(name, ctypes.c_void_p) for name in names]


LAYER = (
    *numbers("steps", "batch", "inputs", "size", "threads", "chunk", "kept"),
    *pointers("x", "w_ih", "w_hh", "bias", "h0"),
    *(("z_x", Mask), ("z_h", Mask)),
    *pointers("gates", "h", "packed_ih", "packed_hh", "masked_x", "masked_h"),
    *pointers("dh_out", "da", "dh", "dx", "dw_ih", "dw_hh", "db"),
    *numbers("now"),
)


class Call:
    """One call: its arguments, and the tensors that they point into."""

    def __init__(self, arguments: ctypes.Structure, x: Tensor, w: Weights, masks: Masks) -> None:
        self.arguments, self.x = arguments, x
        self.tensors: dict[str, Tensor | None] = {}
        code = c_library.library()
        assert code is not None
        self.code = code
        self.steps, self.batch, inputs = x.shape
        size = w.w_hh.shape[1]
        self.chunk = max(1, -(-self.steps // max(1, round(self.steps * self.batch / ROWS))))
        self.numbers(steps=self.steps, batch=self.batch, inputs=inputs, size=size, chunk=self.chunk)
        self.numbers(threads=c_library.threads(self.batch, size))
        self.set(x=x, w_ih=w.w_ih, w_hh=w.w_hh)
        self.mask("z_x", masks.z_x, inputs)
        self.mask("z_h", masks.z_h, size)
        gates = w.w_hh.shape[0] // size
        self.set(packed_ih=self.packed(gates, inputs, size), packed_hh=self.packed(gates, size, size))

    def numbers(self, **values: int) -> None:
        for name, value in values.items():
            setattr(self.arguments, name, value)

    def set(self, **tensors: Tensor | None) -> None:
        """Tensors by the names of the arguments, as one piece of memory; None is NULL. Results are one already."""
        for name, tensor in tensors.items():
            self.tensors[name] = whole = None if tensor is None else tensor.contiguous()
            setattr(self.arguments, name, None if whole is None else whole.data_ptr())

    def mask(self, name: str, z: Tensor, units: int) -> None:
        """A mask with its last two axes in full; over time and gates it stays shared."""
        self.tensors[name] = whole = None if is_ones(z) else z.expand(-1, -1, self.batch, units).contiguous()
        if whole is None:
            setattr(self.arguments, name, Mask(None, 0, 1))
        else:
            step = whole[0].numel() if whole.shape[0] > 1 else 0
            setattr(self.arguments, name, Mask(whole.data_ptr(), step, whole.shape[1]))

    def packed(self, gates: int, units: int, size: int) -> Tensor:
        """Room for a weight in panels, forward or backward."""
        return self.x.new_empty(gates * max(units * c_library.padded(size), size * c_library.padded(units)))

    def masked(self) -> None:
        """Room for the operands of a forward pass under their masks."""
        z_x, z_h = (self.tensors[name] for name in ("z_x", "z_h"))
        size = self.arguments.size
        self.set(
            masked_x=None if z_x is None else self.x.new_empty(z_x.shape[1], self.chunk, *self.x.shape[1:]),
            masked_h=None if z_h is None else self.x.new_empty(z_h.shape[1], self.batch, size),
        )

    def gradient(self, weight: Tensor) -> Tensor:
        """Room for the gradient of a weight, which the first chunk writes, if there is one."""
        return (self.x.new_empty if self.steps * self.batch else self.x.new_zeros)(weight.shape)

    def run(self, function: str) -> None:
        getattr(self.code, function)(ctypes.byref(self.arguments))
