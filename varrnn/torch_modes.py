"""Who follows torch's operations, and what a kernel cannot do for them.

A kernel writes its results into memory of its own, in C or with ``out=``: whoever records or transforms one operation
after the other would miss them. The questions are torch's private ones; a torch without them is not followed.
"""

import torch
from torch import Tensor
from torch.autograd import forward_ad

exporting = getattr(torch.compiler, "is_exporting", lambda: False)  # to be asked outside of what is not compiled
_modes = getattr(torch._C, "_len_torch_dispatch_stack", lambda: 0)
transformed = getattr(torch._C, "_are_functorch_transforms_active", lambda: False)  # by torch.func
_batched = [
    getattr(torch._C._functorch, name)
    for name in ("is_batchedtensor", "is_legacy_batchedtensor")
    if hasattr(torch._C._functorch, name)
]


def followed() -> bool:
    """Whether there is a trace, an export, a dispatch mode, a transform of torch.func or forward-mode differentiation.

    All of these get the readable loop of cells.py.
    """
    forward_mode = getattr(forward_ad, "_current_level", -1) >= 0
    return forward_mode or torch.jit.is_tracing() or _modes() > 0 or transformed()


def check_gradients(instead: str, *gradients: Tensor | None) -> None:
    """A kernel's backward pass takes one gradient of each output, and cannot be differentiated itself."""
    if torch.is_grad_enabled():
        raise RuntimeError(f"the fast path has no second derivative (create_graph=True); use {instead} for it")
    if any(is_batched(gradient) for gradient in gradients if gradient is not None for is_batched in _batched):
        raise RuntimeError(
            f"the fast path takes one gradient at a time (vectorize=True, is_grads_batched=True); use {instead}"
        )
