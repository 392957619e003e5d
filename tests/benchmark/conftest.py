"""The benchmark flushes denormal numbers in its process; other tests need the default."""

from collections.abc import Iterator

import pytest
import torch


@pytest.fixture(autouse=True)
def _default_arithmetic() -> Iterator[None]:
    yield
    torch.set_flush_denormal(False)
