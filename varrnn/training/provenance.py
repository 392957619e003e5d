"""The provenance of a run's numbers: commit, versions, CPU or GPU, memory."""

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

TRACKED_PATHS = ("varrnn", "configs", "run.py")  # the code that computes a run's numbers


@functools.cache
def commit() -> tuple[str | None, bool]:
    """The commit of the running code, and whether TRACKED_PATHS have uncommitted changes; (None, False) without git.

    It is read once, when a run starts: later edits and commits are not the code that this process has loaded. Changes
    of tables, figures and the README are ignored: `make paper` rewrites them between runs.
    """

    def git(*words: str) -> str:
        return subprocess.run(
            ["git", "-C", str(PROJECT_ROOT), *words], capture_output=True, text=True, check=True
        ).stdout.strip()

    try:
        this = str(Path(__file__).resolve().relative_to(PROJECT_ROOT))
        git("ls-files", "--error-unmatch", this)  # fails if the package is installed inside another repository
        return git("rev-parse", "HEAD"), bool(
            git("status", "--porcelain", "--untracked-files=normal", "--", *TRACKED_PATHS)
        )
    except (OSError, subprocess.CalledProcessError):
        return None, False


def code_version() -> str:
    """The commit of the running code, with `+dirty` if it has uncommitted changes."""
    name, dirty = commit()
    return f"{name or 'unknown'}{'+dirty' if dirty else ''}"


def commit_record(commits: Sequence[str]) -> dict[str, Any]:
    """Every commit that computed a part of a summary, each once."""
    return {"commits": list(dict.fromkeys(commits)), "dirty": any(one.endswith("+dirty") for one in commits)}


def versions() -> dict[str, str]:
    """The versions of the packages that affect numbers."""
    return {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": np.__version__,
        "varrnn": __version__,
    }


def hardware(device: torch.device, earlier: Sequence[str] = ()) -> dict[str, Any]:
    """CPU or GPU model and number of cores, without the machine's name; `earlier` lists those of earlier starts."""
    gpu = torch.cuda.get_device_name(device) if device.type == "cuda" else None
    numbers = {"cores": os.cpu_count(), "threads": torch.get_num_threads()}
    before = {"earlier": list(earlier)} if earlier else {}
    processor = {"cpu": cpu_model(), "instructions": torch.backends.cpu.get_cpu_capability()}
    used = precision(device)
    products = {} if used is None else {"precision": used}
    return {**processor, "gpu": gpu, **numbers, "kernels": kernels(device), **products, **before}


def kernels(device: torch.device) -> str:
    """The kind of kernels: C, or torch's operations."""
    return "C" if device.type == "cpu" and c_library.get_library() is not None else "torch"


def environment(device: torch.device) -> str:
    """The environment that bitwise equality depends on: rounding (CPU, threads, kernels) and masks (device type)."""
    if device.type == "cuda":
        return f"cuda, {torch.cuda.get_device_name(device)}, precision {precision(device)}"
    processor = f"{cpu_model()}, {torch.backends.cpu.get_cpu_capability()}"
    used = precision(device)
    products = "" if used is None else f", precision {used}"
    return f"{device.type}, {processor}, {torch.get_num_threads()} threads, kernels in {kernels(device)}{products}"


def cpu_model() -> str:
    """The processor's name."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.machine())


def reset_peak_memory(device: torch.device) -> None:
    """Reset the peak GPU memory, so that several runs in one process are counted separately."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)


def peak_memory_mb(device: torch.device) -> float:
    """The peak memory of this process, on the GPU if one is used."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device) / 2**20
    used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return used / (2**20 if platform.system() == "Darwin" else 2**10)
