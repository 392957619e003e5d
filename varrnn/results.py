"""What a run leaves behind: summary.json, with everything that a reader needs to trust the numbers."""

import functools
import json
import math
import os
import platform
import resource
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeGuard

import numpy as np
import torch

from varrnn import checkpoint, record_shape
from varrnn.device import precision
from varrnn.errors import UserError
from varrnn.kernels import c_library
from varrnn.record_shape import FINISHED, SUMMARY_FILE
from varrnn.schema import HORIZON, Config, leaves
from varrnn.version import SCHEMA, __version__

COMPUTES = ("varrnn", "configs", "run.py")


def read(folder: Path) -> dict[str, Any] | None:
    """The summary of a run that has ended, or None."""
    file = folder / SUMMARY_FILE
    if not file.is_file():
        return None
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise UserError(f"{file}: not readable ({error}); remove it and start the same command again") from error
    fault = record_shape.fault(found, record_shape.RUN) if isinstance(found, dict) else "no JSON object"
    if fault or not found.get("data") or HORIZON not in leaves(found["config"]):
        why = f" ({fault})" if fault else ""
        raise UserError(f"{file}: not the summary of a run{why}; remove it and start the same command again")
    return found


def is_finished(summary: dict[str, Any] | None) -> TypeGuard[dict[str, Any]]:
    """Trained to its horizon, and its checkpoint is that of its numbers."""
    return summary is not None and summary["status"] == FINISHED


def finished(folder: Path) -> dict[str, Any]:
    """The summary of a finished run, whose parameters can be used."""
    summary = read(folder)
    if not is_finished(summary):
        state = "" if summary is None else f" ({summary['status']})"
        raise UserError(f"{folder}: this run has not finished{state}; the command that started it goes on")
    return summary


def write(folder: Path, summary: dict[str, Any]) -> None:
    """Replace the summary in one step; what is not a finite number becomes null, since JSON knows no infinity."""
    checkpoint.write_text(folder / SUMMARY_FILE, json.dumps(finite({"schema": SCHEMA, **summary}), indent=1) + "\n")


def finite(value: Any) -> Any:
    """The same tree with null for every number that is not finite."""
    if isinstance(value, dict):
        return {key: finite(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [finite(entry) for entry in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def describe(summary: dict[str, Any], config: Config) -> str:
    """The final numbers in a few lines."""
    shown = {name: value for name, value in summary["metrics"].items() if not name.endswith(("_last", "_best"))}
    if getattr(config.task, "headline", "") == "authors" and "valid_ppl_authors" in shown:
        shown = {"valid_ppl_authors": shown["valid_ppl_authors"], **shown}
    return "\n".join(f"  {name:20} {spelled(value)}" for name, value in shown.items() if value is not None)


def spelled(value: float) -> str:
    """Four digits, and never an exponent for a large number."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


@functools.cache
def commit() -> tuple[str | None, bool]:
    """The commit of the code that runs, and whether what computes differs from it; (None, False) outside a checkout.

    Asked once, when a run begins: what is edited or committed later is not the code that this process has loaded.
    Tables, figures and the README may differ: `make paper` rewrites them between runs.
    """
    root = Path(__file__).resolve().parent.parent

    def git(*words: str) -> str:
        return subprocess.run(
            ["git", "-C", str(root), *words], capture_output=True, text=True, check=True
        ).stdout.strip()

    try:
        git("ls-files", "--error-unmatch", "varrnn/results.py")  # not installed into a folder of another repository
        return git("rev-parse", "HEAD"), bool(git("status", "--porcelain", "--untracked-files=no", "--", *COMPUTES))
    except (OSError, subprocess.CalledProcessError):
        return None, False


def code() -> str:
    """The commit that is running, with `+dirty` where what computes differs from it."""
    name, dirty = commit()
    return f"{name or 'unknown'}{'+dirty' if dirty else ''}"


def worked_on(commits: Sequence[str]) -> dict[str, Any]:
    """Every code that has computed something of a summary, each once."""
    return {"commits": list(dict.fromkeys(commits)), "dirty": any(one.endswith("+dirty") for one in commits)}


def versions() -> dict[str, str]:
    """The versions that numbers depend on."""
    return {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": np.__version__,
        "varrnn": __version__,
    }


def hardware(device: torch.device, earlier: Sequence[str] = ()) -> dict[str, Any]:
    """Model and number of cores, nothing that names the machine; and the `earlier` places of a run that has moved."""
    gpu = torch.cuda.get_device_name(device) if device.type == "cuda" else None
    numbers = {"cores": os.cpu_count(), "threads": torch.get_num_threads()}
    moved = {"earlier": list(earlier)} if earlier else {}
    processor = {"cpu": cpu_model(), "instructions": torch.backends.cpu.get_cpu_capability()}
    products = {"precision": precision(device)} if gpu else {}
    return {**processor, "gpu": gpu, **numbers, "kernels": kernels(device), **products, **moved}


def kernels(device: torch.device) -> str:
    """Who computes: the C code, or torch's operations."""
    return "C" if device.type == "cpu" and c_library.get_library() is not None else "torch"


def place(device: torch.device) -> str:
    """What exact repetition depends on: rounding (processor, threads, kernels) and masks (the kind of device)."""
    if device.type == "cuda":
        return f"cuda, {torch.cuda.get_device_name(device)}, precision {precision(device)}"
    processor = f"{cpu_model()}, {torch.backends.cpu.get_cpu_capability()}"
    return f"{device.type}, {processor}, {torch.get_num_threads()} threads, kernels in {kernels(device)}"


def cpu_model() -> str:
    """The processor's name."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.machine())


def forget_peak_memory(device: torch.device) -> None:
    """A run in the process of another one counts its own GPU memory."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)


def peak_memory_mb(device: torch.device) -> float:
    """The most memory that this process has held: on the GPU where there is one, else in all."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device) / 2**20
    used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return used / (2**20 if platform.system() == "Darwin" else 2**10)
