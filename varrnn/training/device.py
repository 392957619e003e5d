"""The device of a run, its precision, and messages for insufficient memory."""

import os
import re

import torch

from varrnn.config.schema import LANGUAGE_MODEL, RunConfig
from varrnn.errors import UserError
from varrnn.kernels import c_library
from varrnn.layers import LAYERS


def choose_device(config: RunConfig) -> torch.device:
    """The config's device, with its number of CPU threads set; `auto` takes a GPU if there is one."""
    if config.threads:
        torch.set_num_threads(config.threads)
    device = parse_device(config.device)
    set_precision(config.precision, device)
    return device


def check_cuda_graph(config: RunConfig, device: torch.device) -> None:
    """Reject train.cuda_graph=true where there is no GPU to capture one on."""
    if config.train.cuda_graph and device.type != "cuda":
        raise UserError(
            f"train.cuda_graph=true: needs a CUDA GPU, this run computes on the {device.type}; leave train.cuda_graph "
            "out (or set device=cuda on a machine with a GPU)"
        )


PRECISIONS = ("highest", "high")


def set_precision(name: str, device: torch.device) -> None:
    """Set the precision of float32 products: of cuBLAS and cuDNN alike (torch's defaults differ), or of a CPU.

    A CPU without AMX computes in float32 whatever the precision is.
    """
    if name not in PRECISIONS:
        raise UserError(f"precision={name}: allowed are {', '.join(PRECISIONS)}")
    if device.type == "cuda":
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = name == "high"
    else:
        torch.set_float32_matmul_precision(name)


def precision(device: torch.device) -> str | None:
    """The precision of products: "mixed" if only one of cuBLAS and cuDNN uses TF32; None for float32 on a CPU.

    Without the C code it is "high" on every CPU that torch may use another format on, whether it does or not.
    """
    if device.type != "cuda":
        torch_decides = c_library.get_library() is None and not c_library.needs_float32_products()
        return "high" if torch_decides or c_library.uses_split_products() else None
    chosen = {torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32}
    return "mixed" if len(chosen) > 1 else "high" if chosen.pop() else "highest"


def parse_device(name: str) -> torch.device:
    """The device of that name; raises if torch does not have it."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    if not re.fullmatch(r"cpu|cuda(:\d+)?", name):
        raise UserError(f"device={name}: allowed are auto, cpu, cuda and cuda:N")
    device, gpus = torch.device(name), torch.cuda.device_count()
    if device.type == "cuda" and not torch.cuda.is_available():
        raise UserError(f"device={name}: this machine has no CUDA GPU that torch can use; set device=cpu")
    if (device.index or 0) >= gpus and device.type == "cuda":
        raise UserError(
            f"device={name}: this machine has {gpus} GPU{'s' if gpus > 1 else ''}, starting at cuda:0; set another one"
        )
    if device.type == "cuda" and not supports_capability(
        torch.cuda.get_device_capability(device), torch.cuda.get_arch_list()
    ):
        raise UserError(
            f"device={name}: this build of torch has no code for the {torch.cuda.get_device_name(device)}; install one "
            "that has (README, Two commands), or set device=cpu"
        )
    return device


def supports_capability(gpu: tuple[int, int], builds: list[str]) -> bool:
    """Whether a build for "sm_80" (same major version) or "compute_90" (this or older) runs on this GPU.

    Builds of other kinds (AMD's "gfx90a") are not checked.
    """
    known = [found for build in builds if (found := re.fullmatch(r"(sm|compute)_(\d+)\w*", build))]
    for kind, number in (found.groups() for found in known):
        made_for = divmod(int(number), 10)
        if made_for <= gpu and (kind == "compute" or made_for[0] == gpu[0]):
            return True
    return not known


def out_of_memory(error: Exception) -> bool:
    """Whether memory ran out: torch's GPU allocator has an exception for it, other allocators only a message."""
    words = ("allocate memory", "out of memory", "ALLOC_FAILED")
    return isinstance(error, torch.OutOfMemoryError) or any(word in str(error) for word in words)


def is_device_error(error: Exception) -> bool:
    """Whether the error is one of the device, not of its inputs."""
    return out_of_memory(error) or isinstance(error, getattr(torch, "AcceleratorError", ()))


def memory_gb(device: torch.device) -> float:
    """The total memory of the device, in GB."""
    if device.type == "cuda":
        return torch.cuda.get_device_properties(device).total_memory / 1e9
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9


def check_memory(config: RunConfig, device: torch.device) -> None:
    """Reject a network that cannot fit into memory before it is built, which can take minutes.

    The estimate is a lower bound: weights and gradients of the recurrent layers, and the gates for the backward pass.
    """
    size, gates = config.size, LAYERS[config.cell].cell_type.num_gates
    weights = 2 * gates * (size.units + 1) * size.units  # of one layer
    states = (gates + 1) * config.task.steps * config.task.batch_size * size.units
    needed, there = 4 * size.layers * (2 * weights + states) / 1e9, memory_gb(device)
    if needed > there:
        raise UserError(
            f"not enough memory for size.units={size.units}, size.layers={size.layers}, task.batch_size="
            f"{config.task.batch_size} and task.steps={config.task.steps}: the recurrent layers alone need about "
            f"{needed:,.0f} GB, {device} has {there:,.0f} GB; lower one of them"
        )


def oom_hint(config: RunConfig) -> str:
    """The message for insufficient memory, with the options to lower."""
    size, task = config.size, config.task
    sampling = " (for MC dropout set mc.rows=20 mc.memory_mb=64)" if task.kind == LANGUAGE_MODEL else ""
    return (
        f"not enough memory for size.units={size.units}, task.batch_size={task.batch_size} and task.steps={task.steps}"
        f"{sampling}; lower one of them (finished work is kept)"
    )
