"""The examples in docstrings run and show what they say; every public name has one."""

import doctest
import importlib
import inspect
import re
import warnings
from pathlib import Path

import pytest
import torch
from torch import nn

import varrnn
from varrnn import calibration, uncertainty

MODULES = (
    "calibration",
    "cell_modules",
    "convert",
    "dropout",
    "embedding",
    "layers",
    "predict",
    "sequence_dropout",
    "uncertainty",
)
NAMES = {name: getattr(varrnn, name) for name in varrnn.__all__}


@pytest.mark.parametrize("name", MODULES)
def test_examples(name):
    module = importlib.import_module(f"varrnn.{name}")
    found = doctest.testmod(module, extraglobs={**NAMES, "torch": torch, "nn": nn}, optionflags=doctest.ELLIPSIS)
    assert found.attempted > 0 and found.failed == 0


def public() -> dict[str, object]:
    """The public functions and classes: those of the package, and of `uncertainty` and `calibration`."""
    names = {f"varrnn.{name}": value for name, value in NAMES.items()}
    for module in (calibration, uncertainty):
        own = [item for item in vars(module).items() if getattr(item[1], "__module__", "") == module.__name__]
        names |= {f"{module.__name__}.{name}": value for name, value in own if not name.startswith("_")}
    without = {varrnn.UserError, calibration.check_probabilities, uncertainty.log_density}
    return {name: value for name, value in names.items() if callable(value) and value not in without}


@pytest.mark.parametrize("name", public())
def test_every_public_name_has_an_example(name):
    value = public()[name]
    assert ">>> " in (inspect.getdoc(value) or ""), f"{name} has no example"


def test_the_guide(capsys):
    """The library's README: its example runs, its table names everything public, and what it says raises, raises."""
    guide = (Path(varrnn.__file__).parent / "README.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"^```python\n(.*?)^```", guide, re.DOTALL | re.MULTILINE)
    exec(compile(example, "varrnn/README.md", "exec"), {"__name__": "guide"})
    assert capsys.readouterr().out == "torch.Size([5, 8, 100])\n"
    hidden = {"UserError", "Prediction", "GaussianPrediction", "__version__"}
    assert not [name for name in varrnn.__all__ if f"`{name}`" not in guide and name not in hidden]
    layer = varrnn.VariationalLSTM(3, 4)
    assert not isinstance(layer, nn.LSTM) and isinstance(varrnn.WordEmbedding(3, 4), nn.Embedding)
    with pytest.raises(Exception, match="VariationalLSTM"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.jit.script(layer)


def test_arguments_and_shapes_of_modules_are_documented():
    for value in NAMES.values():
        if inspect.isclass(value) and issubclass(value, nn.Module):
            docs = inspect.getdoc(value)
            assert "Args:" in docs and "Shape:" in docs, value
            missing = [name for name in inspect.signature(value).parameters if name.strip("_") not in docs]
            assert not [name for name in missing if not name.startswith("_")], (value, missing)
