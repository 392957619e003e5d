"""The house rules that a machine can check: imports point down only, short files and functions, explained options."""

import ast
import subprocess
import sys
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

from varrnn import config
from varrnn.explain import sentences

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = ("varrnn", "scripts", "experiments", "tests")
PYTHON = [ROOT / "run.py", *sorted(file for folder in FOLDERS for file in (ROOT / folder).rglob("*.py"))]

# From the ground up: a module may import what stands before it in this list, never what stands after it.
ORDER = (
    *("errors", "version", "outputs", "marked", "schema", "device", "record_shape", "seeds", "allocator", "interrupt"),
    *(
        "followed",
        "dropout",
        "autocast",
        "sequences",
        "cells",
        "kernels",
        "stack",
        "layers",
        "embedding",
        "model",
        "joined",
        "predict",
    ),
    *("calibration", "uncertainty", "checkpoint", "results", "progress", "optim"),
    *(
        "evaluate",
        "mc",
        "data",
        "tasks",
        "train",
        "checks",
        "config",
        "runs",
        "ensemble",
        "explain",
        "command_line",
        "failures",
        "sweep_plan",
        "multirun",
        "help",
    ),
    *(
        "style",
        "paper_runs",
        "identity",
        "selection",
        "records",
        "record_places",
        "tables",
        "plots",
        "claims",
        "artefact",
    ),
    *("publish", "readme_block", "unfinished", "sweeps", "heat_map"),
    *("speed", "speed_chart", "side_by_side", "text_uncertainty", "uncertainty_plots"),
)
# What makes tables, figures and verdicts of records knows nothing of networks.
FROM_RECORDS = (
    *("records", "identity", "selection", "record_shape", "tables", "plots", "speed_chart", "heat_map", "sweeps"),
    *("artefact", "claims", "paper_runs", "style", "publish", "readme_block"),
)
NETWORKS = ("cells", "kernels", "stack", "layers", "embedding", "model", "mc", "tasks", "train", "runs")


def module_name(file: Path) -> str:
    parts = file.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_name(file): file for file in sorted((ROOT / "varrnn").rglob("*.py"))}


def imports(file: Path, inside_functions: bool = True) -> set[str]:
    """What a file imports: modules of this package by their full name, others by their first word."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    nodes = list(ast.walk(tree)) if inside_functions else tree.body
    names: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            whole = {f"{node.module}.{alias.name}" for alias in node.names}
            names |= {name if name in MODULES else node.module for name in whole}
    return {name if name.startswith("varrnn") else name.split(".")[0] for name in names}


def closure(start: str, inside_functions: bool = True) -> set[str]:
    """Everything that importing a module loads, its own package's modules and others."""
    found, todo = set(), [start]
    while todo:
        name = todo.pop()
        if name not in found:
            found.add(name)
            todo += imports(MODULES[name], inside_functions) if name in MODULES else []
    return found


def floor(name: str) -> str:
    return name.removeprefix("varrnn.").split(".")[0]


def test_imports_point_down_only():
    assert {floor(name) for name in MODULES} == {*ORDER, "varrnn"}, "every module has its place in ORDER"
    wrong = [
        f"{name} imports {other}"
        for name, file in MODULES.items()
        for other in imports(file)
        if other in MODULES and "varrnn" not in (name, other)
        if ORDER.index(floor(other)) > ORDER.index(floor(name))
    ]
    assert not wrong


def test_no_module_imports_itself_in_a_circle():
    graph = {name: imports(file, inside_functions=False) & MODULES.keys() for name, file in MODULES.items()}
    TopologicalSorter(graph).prepare()  # raises CycleError


def test_hydra_stays_at_the_door():
    """Configuration belongs to config.py and to what stands above it: nothing below knows Hydra."""
    below = ORDER[: ORDER.index("config")]
    assert not [n for n, file in MODULES.items() if floor(n) in below and imports(file) & {"hydra", "omegaconf"}]


def test_tables_and_plots_never_import_a_network():
    bad = {
        name: sorted(other for other in closure(name) if other.startswith("varrnn.") and floor(other) in NETWORKS)
        for name in MODULES
        if floor(name) in FROM_RECORDS
    }
    assert not {name: others for name, others in bad.items() if others}


def test_the_library_needs_torch_and_numpy_only():
    outside = {name for name in closure("varrnn") if not name.startswith("varrnn")} - set(sys.stdlib_module_names)
    assert outside <= {"torch", "numpy"}
    code = "import sys, varrnn; print(*{'hydra', 'omegaconf', 'pandas', 'matplotlib'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not done.stdout.split()


def test_no_file_over_250_lines():
    """Tests may have 300: they are read one by one."""
    lengths = {str(file.relative_to(ROOT)): len(file.read_text(encoding="utf-8").splitlines()) for file in PYTHON}
    assert not {file: n for file, n in lengths.items() if n > (300 if file.startswith("tests") else 250)}


def test_no_function_over_40_lines():
    long = {
        f"{file.relative_to(ROOT)}:{node.lineno} {node.name}": node.end_lineno - node.lineno + 1
        for file in PYTHON
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef) and node.end_lineno - node.lineno >= 40
    }
    assert not long


@pytest.mark.parametrize("task", sorted(file.stem for file in (ROOT / "configs" / "task").glob("*.yaml")))
def test_every_option_of_a_task_has_a_sentence(task):
    told = sentences()
    assert not [key for key in config.leaves(config.compose([f"task={task}"])) if len(told.get(key, "")) < 10]
