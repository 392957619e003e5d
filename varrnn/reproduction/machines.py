"""Names of the machines that benchmark records were measured on."""

from collections.abc import Mapping
from typing import Any


def name_processor(benchmark: Mapping[str, Any]) -> str:
    """The name of a machine in a table; earlier records have the name of the processor only."""
    info = benchmark.get("machine") or {}
    if info.get("gpu"):
        return str(info["gpu"])
    last = (info.get("caches") or {}).get("l3_kb")
    parts = (info.get("cpu"), info.get("instructions"), f"L3 {last / 1024:.0f} MB" if last else None)
    return ", ".join(str(part) for part in parts if part)


def describe_machine(benchmark: Mapping[str, Any]) -> str:
    """CPU or GPU, threads and torch, as the benchmark recorded them."""
    info = benchmark.get("machine") or {}
    names = ("gpu", "cpu", "instructions", "cores", "threads", "torch")
    caches = [f"{name[:-3].upper()} {kb} KB" for name, kb in (info.get("caches") or {}).items()]
    return ", ".join([*(f"{name} {info[name]}" for name in names if info.get(name)), *caches])
