"""Names of the machines that benchmark records were measured on."""

from collections.abc import Mapping, Sequence
from string import ascii_uppercase
from typing import Any

Machines = Mapping[str, Mapping[str, Any]]  # benchmark records by letter


def describe_machine(benchmark: Mapping[str, Any]) -> str:
    """CPU or GPU, threads and torch, as the benchmark recorded them."""
    info = benchmark.get("machine") or {}
    names = ("gpu", "cpu", "instructions", "cores", "threads", "torch")
    caches = [f"{name[:-3].upper()} {kb} KB" for name, kb in (info.get("caches") or {}).items()]
    shown = [f"{name} {info[name]}" for name in names if info.get(name)]
    precision = info.get("precision", "highest")
    return ", ".join([*shown, *([f"precision {precision}"] if precision != "highest" else []), *caches])


def name_machines(benchmarks: Sequence[Mapping[str, Any]]) -> Machines:
    """The records as A, B and so on; numbers of different machines are never combined."""
    return dict(zip(ascii_uppercase, benchmarks))


def name_libraries(libraries: Sequence[Mapping[str, Any]], benchmarks: Sequence[Mapping[str, Any]]) -> Machines:
    """Records of the layers alone, with the letter of the benchmark record of the same machine, if there is one."""
    names = {describe_machine(one): letter for letter, one in name_machines(benchmarks).items()}
    free = iter(ascii_uppercase[len(benchmarks) :])
    return {names.pop(describe_machine(one), "") or next(free): one for one in libraries}


def list_machines(machines: Machines) -> str:
    """The sentence below a table that says which machine a letter means."""
    return f"Measured on: {'; '.join(f'{letter}: {describe_machine(one)}' for letter, one in machines.items())}."
