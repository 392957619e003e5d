"""Notebooks are committed with outputs and without a trace of the machine they ran on; `make test` executes them."""

import json
import tempfile
from pathlib import Path

import pytest
from helpers import ROOT

NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))


@pytest.mark.parametrize("file", NOTEBOOKS, ids=lambda file: file.stem)
def test_outputs_are_committed_and_clean(file):
    cells = [cell for cell in json.loads(file.read_text())["cells"] if cell["cell_type"] == "code"]
    assert [cell["execution_count"] for cell in cells] == list(range(1, len(cells) + 1)), (
        "execute it from top to bottom"
    )
    outputs = [output for cell in cells for output in cell["outputs"]]
    assert outputs and not [output for output in outputs if output["output_type"] == "error"]
    assert not [output for output in outputs if output.get("name") == "stderr"]
    written = json.dumps([{k: v for k, v in o.get("data", o).items() if k != "image/png"} for o in outputs])
    assert not [path for path in (str(ROOT), tempfile.gettempdir(), str(Path.home())) if f"{path}/" in written]


def test_all_are_there():
    assert {"forecast", "quickstart", "reproduce", "uncertainty"} <= {file.stem for file in NOTEBOOKS}
