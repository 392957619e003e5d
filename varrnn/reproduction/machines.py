"""Names of the machines that benchmark records were measured on."""

from collections.abc import Mapping
from typing import Any


def describe_machine(benchmark: Mapping[str, Any]) -> str:
    """CPU or GPU, threads and torch, as the benchmark recorded them."""
    info = benchmark.get("machine") or {}
    names = ("gpu", "cpu", "instructions", "cores", "threads", "torch")
    caches = [f"{name[:-3].upper()} {kb} KB" for name, kb in (info.get("caches") or {}).items()]
    return ", ".join([*(f"{name} {info[name]}" for name in names if info.get(name)), *caches])
