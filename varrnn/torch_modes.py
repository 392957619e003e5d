"""Detect torch's modes: autocast, tracing, torch.compile, torch.func, higher derivatives.

A kernel writes its results into memory that it allocates, in C or with ``out=``; tracing, functorch and forward-mode AD
do not record such writes. Some modes can be detected only through private functions of torch; where a torch version
lacks one of these functions, the mode counts as off.
"""

import sys
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from functools import wraps
from typing import Any, ParamSpec, TypeVar

import torch
from torch import Tensor
from torch.autograd import forward_ad

P = ParamSpec("P")
R = TypeVar("R")

# call it only where dynamo is not disabled
is_exporting = getattr(torch.compiler, "is_exporting", lambda: False)
_dispatch_mode_depth = getattr(torch._C, "_len_torch_dispatch_stack", lambda: 0)
current_backward = getattr(torch._C, "_current_graph_task_id", lambda: -1)  # -1 outside of a backward pass
in_functorch = getattr(torch._C, "_are_functorch_transforms_active", lambda: False)  # inside torch.func
_batched = [
    getattr(torch._C._functorch, name)
    for name in ("is_batchedtensor", "is_legacy_batchedtensor")
    if hasattr(torch._C._functorch, name)
]


def is_traced_or_transformed() -> bool:
    """Whether a trace, an export, a dispatch mode, a transform of torch.func or forward-mode AD is active.

    In all of these modes the layers run the reference implementation in cells.py.
    """
    forward_mode = getattr(forward_ad, "_current_level", -1) >= 0
    return forward_mode or torch.jit.is_tracing() or _dispatch_mode_depth() > 0 or in_functorch()


def needs_gradient(tensors: Iterable[Tensor | None]) -> bool:
    """Whether autograd records an operation on these tensors."""
    return torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in tensors)


def needs_reference(*gradients: Tensor | None) -> bool:
    """Whether a backward pass will itself be differentiated, or receives a batch of gradients for each output.

    A kernel's backward pass supports neither; the reference implementation supports both
    (``cells.reference_gradients``).
    """
    batched = any(is_batched(gradient) for gradient in gradients if gradient is not None for is_batched in _batched)
    return batched or torch.is_grad_enabled()


def require_first_order(instead: str, *gradients: Tensor | None) -> None:
    """Raise unless a backward pass is first-order with one gradient per output: for kernels without a reference."""
    if torch.is_grad_enabled():
        raise RuntimeError(f"the fast path has no second derivative (create_graph=True); use {instead} for it")
    if any(is_batched(gradient) for gradient in gradients if gradient is not None for is_batched in _batched):
        raise RuntimeError(
            f"the fast path takes one gradient at a time (vectorize=True, is_grads_batched=True); use {instead}"
        )


def autocast_enabled(device_type: str) -> bool:
    """Whether autocast is on; devices such as meta do not support it."""
    return torch.amp.is_autocast_available(device_type) and torch.is_autocast_enabled(device_type)


def autocast_disabled(device_type: str) -> AbstractContextManager[Any]:
    return torch.autocast(device_type, enabled=False) if autocast_enabled(device_type) else nullcontext()


def disable_dynamo(kernel: Callable[P, R]) -> Callable[P, R]:
    """Make the kernel a graph break when torch.compile compiles its caller.

    ``torch.compiler.disable`` would import the compiler, which takes seconds, even where nothing is compiled.
    """
    disabled: list[Callable[P, R]] = []

    @wraps(kernel)
    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        if "torch._dynamo" not in sys.modules:
            return kernel(*args, **kwargs)
        if not disabled:
            disabled.append(torch.compiler.disable(kernel))
        return disabled[0](*args, **kwargs)

    run._torchdynamo_disable = True  # type: ignore[attr-defined]
    return run
