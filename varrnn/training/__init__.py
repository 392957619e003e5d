"""One run: training, checkpoints, evaluation, and opening a finished run again."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from varrnn.training.trained import TrainedRun


def open_run(folder: str | Path, overrides: Sequence[str] = ()) -> TrainedRun:
    """A finished run, or exported weights, as one object: model, vocabulary, config and metrics."""
    from varrnn.training import trained  # imported here, since it loads the tasks

    return trained.open_run(folder, overrides)
