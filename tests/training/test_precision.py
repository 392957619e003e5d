"""precision=: float32 or TF32 for cuBLAS and cuDNN alike, named in the record, and not part of a run's identity."""

import pytest
import torch

from varrnn.config import compose
from varrnn.config.identity import config_identity
from varrnn.errors import UserError
from varrnn.training import device, provenance

GPU = torch.device("cuda")


@pytest.fixture
def both(monkeypatch):
    """torch's defaults before, and after."""
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda _: "A100")
    torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32 = False, True
    yield
    torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32 = False, True


@pytest.mark.parametrize(("name", "tf32"), [("highest", False), ("high", True)])
def test_both_libraries(both, name, tf32):
    assert device.precision(GPU) == "mixed"  # torch's defaults
    device.set_precision(name, GPU)
    assert torch.backends.cuda.matmul.allow_tf32 is torch.backends.cudnn.allow_tf32 is tf32
    assert device.precision(GPU) == provenance.hardware(GPU)["precision"] == name
    assert provenance.environment(GPU) == f"cuda, A100, precision {name}"


def test_the_precision_of_a_cpu_does_not_change(both):
    device.set_precision("high", torch.device("cpu"))
    assert torch.backends.cuda.matmul.allow_tf32 is False
    assert device.precision(torch.device("cpu")) is None and "precision" not in provenance.hardware(torch.device("cpu"))


def test_unknown_precision():
    with pytest.raises(UserError, match="precision=tf32: allowed are highest, high"):
        device.set_precision("tf32", torch.device("cpu"))


@pytest.mark.slow
def test_it_is_not_part_of_the_identity():
    usual, fast = (compose.compose(["experiment=ptb_small", *more]) for more in ([], ["precision=high"]))
    assert config_identity(usual) == config_identity(fast)
