"""Autocast: everything is cast once, before the first step, and not again inside."""

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch


def autocast_on(device_type: str) -> bool:
    """Whether autocast is on; devices such as meta do not know it."""
    return torch.amp.is_autocast_available(device_type) and torch.is_autocast_enabled(device_type)


def without_autocast(device_type: str) -> AbstractContextManager[Any]:
    return torch.autocast(device_type, enabled=False) if autocast_on(device_type) else nullcontext()
