"""Where the numbers of a run come from: the commit of the code, versions, processor or GPU, memory."""

import functools
import os
import platform
import resource
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from varrnn.fileio import PROJECT_ROOT
from varrnn.kernels import c_library
from varrnn.training.device import precision
from varrnn.version import __version__

TRACKED_PATHS = ("varrnn", "configs", "run.py")  # what computes a run's numbers


@functools.cache
def commit() -> tuple[str | None, bool]:
    """The commit of the code that runs, and whether what computes differs from it; (None, False) outside a checkout.

    Asked once, when a run begins: what is edited or committed later is not the code that this process has loaded.
    Tables, figures and the README may differ: `make paper` rewrites them between runs.
    """

    def git(*words: str) -> str:
        return subprocess.run(
            ["git", "-C", str(PROJECT_ROOT), *words], capture_output=True, text=True, check=True
        ).stdout.strip()

    try:
        this = str(Path(__file__).resolve().relative_to(PROJECT_ROOT))
        git("ls-files", "--error-unmatch", this)  # not installed into a folder of another repository
        return git("rev-parse", "HEAD"), bool(
            git("status", "--porcelain", "--untracked-files=normal", "--", *TRACKED_PATHS)
        )
    except (OSError, subprocess.CalledProcessError):
        return None, False


def code_version() -> str:
    """The commit that is running, with `+dirty` where what computes differs from it."""
    name, dirty = commit()
    return f"{name or 'unknown'}{'+dirty' if dirty else ''}"


def commit_record(commits: Sequence[str]) -> dict[str, Any]:
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


def environment(device: torch.device) -> str:
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


def reset_peak_memory(device: torch.device) -> None:
    """A run in the process of another one counts its own GPU memory."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)


def peak_memory_mb(device: torch.device) -> float:
    """The most memory that this process has held: on the GPU where there is one, else in all."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device) / 2**20
    used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return used / (2**20 if platform.system() == "Darwin" else 2**10)
