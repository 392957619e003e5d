"""A CUDA graph on the CPU: the operations of a function are recorded and replayed on the same tensors.

As on a GPU, a capture rejects operations that synchronise or draw random numbers, Python code runs only once, and
every replay overwrites the results of the previous one.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten

from helpers.fused_cells import emulate
from varrnn import kernels
from varrnn.kernels import c_library
from varrnn.training import cuda_graph, device, optim

R = TypeVar("R")
REJECTED = {
    "_local_scalar_dense",
    "nonzero",
    "equal",
    "masked_select",
    "bernoulli_",
    "sample_mask",
    "uniform_",
    "normal_",
}
ALLOCATIONS = {"empty", "new_empty", "empty_like", "empty_strided", "new_empty_strided"}


class Call(NamedTuple):
    """One operation as it was called, and whether gradients were enabled, which some operations depend on."""

    function: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    results: list[Any]
    grad_enabled: bool


class Recording(TorchDispatchMode):
    """Every operation that computes something, with its arguments and results."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[Call] = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        name, kwargs = function.overloadpacket.__name__, kwargs or {}
        if name in REJECTED:
            raise RuntimeError(f"operation not permitted when stream is capturing: {name}")
        out = function(*args, **kwargs)
        if not function.is_view and name not in ALLOCATIONS:
            self.calls.append(Call(function, args, kwargs, tree_flatten(out)[0], torch.is_grad_enabled()))
        return out


class Emulation:
    """The substitute for ``cuda_graph.CUDARecorder``."""

    def __init__(self, *_: object) -> None:
        self.calls: list[Call] = []
        self.replays = 0

    def warm_up(self, function: Callable[[], R]) -> R:
        return [function() for _ in range(cuda_graph.WARM_UP)][-1]

    def capture(self, function: Callable[[], R]) -> R:
        """Unlike on a GPU this also computes; the caller restores what it changes in either case."""
        with Recording() as recording:
            out = function()
        self.calls = recording.calls
        return out

    def replay(self) -> None:
        self.replays += 1
        for call in self.calls:
            with torch._C._AutoDispatchBelowAutograd(), torch.set_grad_enabled(call.grad_enabled):  # as recorded
                again = tree_flatten(call.function(*call.args, **call.kwargs))[0]
            with torch.no_grad():
                for old, new in zip(call.results, again):
                    if isinstance(old, Tensor) and old.numel() and old.data_ptr() != new.data_ptr():
                        old.copy_(new)


def pretend_gpu(monkeypatch: pytest.MonkeyPatch) -> list[Emulation]:
    """The CPU takes a GPU's branches and captures a "CUDA graph"; returns the recorders that are made from now on."""
    made: list[Emulation] = []

    def make(_: torch.device) -> Emulation:
        made.append(Emulation())
        return made[-1]

    emulate(monkeypatch, ("cpu",))
    monkeypatch.setattr(kernels, "is_traced_or_transformed", lambda: False)
    monkeypatch.setattr(c_library, "get_library", lambda: None)
    monkeypatch.setattr(optim, "HOST_DEVICES", ())
    monkeypatch.setattr(optim, "FUSED_DEVICES", ("cpu", "cuda"))
    monkeypatch.setattr(device, "check_cuda_graph", lambda *_: None)
    monkeypatch.setattr(cuda_graph, "make_recorder", make)
    return made
