"""The wheel builds and works in an empty environment that has torch and numpy only."""

import os
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest
import torch
from helpers import ROOT

import varrnn
from varrnn.config import schema, validation

TRY = """
import sys, torch, varrnn
layer = varrnn.VariationalLSTM(3, 4, num_layers=2, dropout=varrnn.DropoutRates.variational(p_W=.3, p_U=.2, tied=False))
mean = varrnn.mc_predict(layer, torch.randn(5, 2, 3), samples=3).mean
print(varrnn.__file__, varrnn.__version__, tuple(mean.shape), 'hydra' in sys.modules)
"""


def run(*command: str | Path, **options) -> str:
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, **options)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    """Built from a copy, since building leaves files behind; without isolation, so nothing is downloaded."""
    source = tmp_path_factory.mktemp("source")
    for name in ("varrnn", "pyproject.toml", "README.md", "LICENSE"):
        (source / name).symlink_to(ROOT / name)
    run(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", source / "dist", source)
    return next((source / "dist").glob("*.whl"))


@pytest.mark.slow
def test_what_is_in_the_wheel(wheel):
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        metadata = archive.read(next(name for name in names if name.endswith("METADATA"))).decode()
    modules = {str(file.relative_to(ROOT)) for file in (ROOT / "varrnn").rglob("*.py")}
    assert modules | {"varrnn/py.typed"} <= set(names)  # py.typed: type checkers read our annotations
    assert not [name for name in names if not name.startswith(("varrnn/", f"varrnn-{varrnn.__version__}.dist-info/"))]
    assert any(name.endswith("LICENSE") for name in names)
    assert f"Version: {varrnn.__version__}\n" in metadata
    assert all(f"Provides-Extra: {extra}\n" in metadata for extra in ("train", "slurm", "dev"))
    needed = [line for line in metadata.splitlines() if line.startswith("Requires-Dist") and "extra" not in line]
    assert sorted(line.split()[1].split(">")[0] for line in needed) == ["numpy", "torch"]


@pytest.mark.slow
def test_it_works_in_an_empty_environment(wheel, tmp_path):
    """torch comes from this environment's folder instead of a download; this package comes from the wheel alone."""
    venv.create(tmp_path / "empty", with_pip=False)
    python = tmp_path / "empty" / "bin" / "python"
    run(sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--no-deps", "--no-index", wheel)
    site = Path(torch.__file__).resolve().parents[1]
    environment = {**os.environ, "PYTHONPATH": str(site)}
    where, version, *shape, hydra = run(python, "-c", TRY, cwd=tmp_path, env=environment).split()
    assert Path(where).is_relative_to(tmp_path)
    assert (version, " ".join(shape), hydra) == (varrnn.__version__, "(5, 2, 4)", "False")


def test_public_names_are_imported_on_first_use():
    names = [name for name in varrnn.__all__ if name != "__version__"]
    assert all(getattr(varrnn, name) is not None for name in names) and set(varrnn.__all__) <= set(dir(varrnn))
    assert (
        varrnn.DropoutRates is varrnn.dropout.DropoutRates and varrnn.layers.VariationalLSTM is varrnn.VariationalLSTM
    )
    with pytest.raises(AttributeError, match="module 'varrnn' has no attribute 'Droput'"):
        _ = varrnn.Droput
    with pytest.raises(ImportError):
        exec("from varrnn import Droput")


def test_the_config_allows_the_cells_and_scalings_of_the_layers():
    assert validation.CELL_SCALINGS == varrnn.dropout.CELL_SCALINGS
    assert tuple(varrnn.layers.LAYERS) == schema.CELLS
    with_memory = [name for name, layer in varrnn.layers.LAYERS.items() if layer.cell_type.num_states > 1]
    assert tuple(with_memory) == schema.CELLS_WITH_MEMORY
    assert all(isinstance(layer(2, 3).cell, layer.cell_type) for layer in varrnn.layers.LAYERS.values())
