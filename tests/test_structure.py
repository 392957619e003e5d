"""The structure of the package: which package imports which, and a help text for every option."""

import ast
import subprocess
import sys
from graphlib import TopologicalSorter
from pathlib import Path

import pytest
from helpers import ROOT

from varrnn.cli.errors import option_docs
from varrnn.config import compose

FOLDERS = ("varrnn", "scripts", "experiments", "tests")
PYTHON = [ROOT / "run.py", *sorted(file for folder in FOLDERS for file in (ROOT / folder).rglob("*.py"))]

# A package imports packages of an earlier row only; "library" is the modules in varrnn/ itself.
ROWS = (
    ("library", "kernels"),
    ("config", "data", "reporting"),
    ("records", "tasks"),
    ("training", "reproduction"),
    ("analysis", "cli", "benchmark"),
    ("sweeps",),
)
RANK = {package: number for number, row in enumerate(ROWS) for package in row}
# Tables, figures and verdicts are made from records, without networks.
FROM_RECORDS = ("records", "reporting", "reproduction")
NETWORKS = ("varrnn.cells", "varrnn.kernels", "varrnn.layers", "varrnn.embedding", "varrnn.tasks", "varrnn.training")


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


def package(name: str) -> str:
    parts = name.split(".")
    return parts[1] if len(parts) > 1 and parts[1] in RANK else "library"


def points_up(name: str, other: str) -> bool:
    here, there = package(name), package(other)
    return here != there and RANK[there] >= max(RANK[here], 1)


@pytest.mark.slow
def test_imports_point_to_earlier_packages_only():
    folders = {folder.name for folder in (ROOT / "varrnn").iterdir() if (folder / "__init__.py").is_file()}
    assert folders | {"library"} == RANK.keys(), "every package has its row"
    wrong = {
        (name, other)
        for name, file in MODULES.items()
        for other in imports(file)
        if other in MODULES and points_up(name, other)
    }
    assert not wrong


@pytest.mark.slow
def test_no_module_imports_itself_in_a_circle():
    graph = {name: imports(file, inside_functions=False) & MODULES.keys() for name, file in MODULES.items()}
    TopologicalSorter(graph).prepare()  # raises CycleError


def test_hydra_is_imported_for_configuration_and_sweeps_only():
    allowed = ("config", "cli", "sweeps", "training", "records", "reproduction", "benchmark", "analysis")
    assert not [
        n for n, file in MODULES.items() if package(n) not in allowed and imports(file) & {"hydra", "omegaconf"}
    ]


def test_tables_and_plots_never_import_a_network():
    bad = {
        name: sorted(other for other in closure(name) if other.startswith(NETWORKS))
        for name in MODULES
        if package(name) in FROM_RECORDS
    }
    assert not {name: others for name, others in bad.items() if others}


@pytest.mark.slow
def test_the_library_needs_torch_and_numpy_only():
    outside = {name for name in closure("varrnn") if not name.startswith("varrnn")} - set(sys.stdlib_module_names)
    assert outside <= {"torch", "numpy"}
    code = "import sys, varrnn; print(*{'hydra', 'omegaconf', 'pandas', 'matplotlib'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not done.stdout.split()


@pytest.mark.parametrize("task", sorted(file.stem for file in (ROOT / "configs" / "task").glob("*.yaml")))
def test_every_option_of_a_task_has_a_help_string(task):
    docs = option_docs()
    assert not [key for key in compose.flatten(compose.compose([f"task={task}"])) if len(docs.get(key, "")) < 10]
