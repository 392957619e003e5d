"""Where a run computes, and what to do when it does not fit there."""

import re

import torch

from varrnn.errors import UserError
from varrnn.schema import Config


def choose_device(config: Config) -> torch.device:
    """As the config says, with its number of CPU threads; `auto` takes the GPU where there is one."""
    if config.threads:
        torch.set_num_threads(config.threads)
    return device_named(config.device)


def device_named(name: str) -> torch.device:
    """The device; refused where torch does not have it."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    if not re.fullmatch(r"cpu|cuda(:\d+)?", name):
        raise UserError(f"device={name}: allowed are auto, cpu, cuda and cuda:N")
    device, gpus = torch.device(name), torch.cuda.device_count()
    if device.type == "cuda" and not torch.cuda.is_available():
        raise UserError(f"device={name}: this machine has no CUDA GPU that torch can use; set device=cpu")
    if (device.index or 0) >= gpus and device.type == "cuda":
        raise UserError(f"device={name}: this machine has {gpus} GPU{'s' if gpus > 1 else ''}, counted from cuda:0")
    return device


def out_of_memory(error: RuntimeError) -> bool:
    """A GPU says so in an exception of its own, a CPU's allocator in words."""
    return isinstance(error, torch.OutOfMemoryError) or "allocate memory" in str(error)


def too_large(config: Config) -> str:
    """What to lower."""
    size, task, mc = config.size, config.task, config.mc
    return (
        f"not enough memory for size.units={size.units}, task.batch_size={task.batch_size} and task.steps={task.steps} "
        f"(MC dropout: mc.rows={mc.rows}, mc.memory_mb={mc.memory_mb}); lower one of them, what is done is kept"
    )
