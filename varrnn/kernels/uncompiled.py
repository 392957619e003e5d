"""Keep torch.compile out of a kernel, which already says what to compute in which memory."""

import sys
from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

import torch

Given = ParamSpec("Given")
Made = TypeVar("Made")


def uncompiled(kernel: Callable[Given, Made]) -> Callable[Given, Made]:
    """The kernel as a break in the graph of whoever compiles its caller.

    ``torch.compiler.disable`` itself would import the compiler, seconds of it, for everybody.
    """
    disabled: list[Callable[Given, Made]] = []

    @wraps(kernel)
    def run(*args: Given.args, **kwargs: Given.kwargs) -> Made:
        if "torch._dynamo" not in sys.modules:
            return kernel(*args, **kwargs)
        if not disabled:
            disabled.append(torch.compiler.disable(kernel))
        return disabled[0](*args, **kwargs)

    run._torchdynamo_disable = True  # type: ignore[attr-defined]
    return run
