"""Exported weights: half-precision safetensors with config, vocabulary, metrics and a model card."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch

from varrnn import fileio
from varrnn.errors import UserError

WEIGHTS, METRICS, CARD = "model.safetensors", "metrics.json", "README.md"
FOLDER = fileio.PROJECT_ROOT / "results" / "weights"
MAX_BYTES = 10_000_000  # these files are committed


def find_weights() -> Path | None:
    """The exported model in results/weights, the first by name if there are several, or None."""
    return next((file.parent for file in sorted(FOLDER.glob(f"*/{WEIGHTS}"))), None)


def _safetensors() -> Any:
    try:
        import safetensors.torch
    except ImportError as error:
        raise UserError("exported weights need safetensors: pip install 'varrnn[weights]'") from error
    return safetensors.torch


def save_weights(model: torch.nn.Module, file: Path) -> int:
    """Write every parameter in half precision and return the size in bytes; raises if it would be too large."""
    halves = {name: value.detach().to("cpu", torch.float16).contiguous() for name, value in model.state_dict().items()}
    overflowed = [name for name, value in halves.items() if not value.isfinite().all()]
    if overflowed:
        raise UserError(f"{', '.join(overflowed)}: values beyond the range of half precision; the run is not exported")
    content = _safetensors().save(halves)
    if len(content) > MAX_BYTES:
        size = f"{len(content) / 1e6:.1f} MB"
        raise UserError(
            f"{file}: would have {size}, at most {MAX_BYTES / 1e6:.0f} MB are allowed; export a smaller model"
        )
    with fileio.replacing(fileio.prepare_file(file)) as temporary:
        temporary.write_bytes(content)
    return len(content)


def load_weights(model: torch.nn.Module, file: Path) -> None:
    """Load the weights into a model in single precision; raises for a file of another model."""
    library = _safetensors()
    from safetensors import SafetensorError as safetensors_error

    try:
        saved = library.load_file(file)
        model.load_state_dict({name: value.float() for name, value in saved.items()})
    except (RuntimeError, ValueError, OSError, safetensors_error) as error:
        message = str(error).strip().splitlines()[0]
        raise UserError(f"{file}: not the weights of this model, or damaged ({message}); export it again") from error


def write_metrics(file: Path, content: dict[str, Any]) -> None:
    fileio.write_text(file, json.dumps(content, indent=1) + "\n")


def read_metrics(file: Path) -> dict[str, Any]:
    """`metrics` and `data` of the run behind exported weights."""
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
        return {"metrics": dict(content["metrics"]), "data": dict(content["data"])}
    except (OSError, ValueError, TypeError, LookupError) as error:
        raise UserError(f"{file}: not readable ({type(error).__name__}); export the weights again") from error
