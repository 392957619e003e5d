"""precision=: float32 or faster products, on a GPU and on a CPU, named in the record, not part of a run's identity."""

import pytest
import torch

from varrnn.config import compose
from varrnn.config.identity import config_identity
from varrnn.errors import UserError
from varrnn.kernels import c_library
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


CPU = torch.device("cpu")
needs_precision_of_cpu = pytest.mark.skipif(not hasattr(torch.backends.mkldnn, "matmul"), reason="an older torch")


@pytest.fixture
def cpu_precision():
    yield
    torch.set_float32_matmul_precision("highest")


@pytest.mark.parametrize(
    ("name", "c_code", "amx", "used"),
    [
        ("highest", True, True, None),
        ("high", True, True, "high"),
        ("high", True, False, None),
        ("high", False, False, "high"),
        ("highest", False, False, None),
    ],
)
def test_the_precision_of_a_cpu(cpu_precision, monkeypatch, name, c_code, amx, used):
    """A record names it where products differ from float32: on a CPU with AMX, or perhaps in torch's operations."""
    monkeypatch.setattr(c_library, "get_library", lambda: "float32" if c_code else None)
    monkeypatch.setattr(c_library, "split_status", lambda: ("split", "") if amx else (None, "no AMX"))
    device.set_precision(name, CPU)
    assert device.precision(CPU) == used == provenance.hardware(CPU).get("precision")
    assert ("precision high" in provenance.environment(CPU)) is (used == "high")


@needs_precision_of_cpu
@pytest.mark.parametrize(
    ("of_gpu", "of_cpu", "used"),
    [("tf32", "ieee", None), ("ieee", "tf32", "high"), ("tf32", "bf16", "high"), ("none", "none", None)],
)
def test_the_precision_of_a_cpu_and_of_a_gpu_may_differ(monkeypatch, of_gpu, of_cpu, used):
    """Set by torch's newer options, with which get_float32_matmul_precision() raises."""
    monkeypatch.setattr(c_library, "get_library", lambda: "float32")
    monkeypatch.setattr(c_library, "split_status", lambda: ("split", ""))
    matmuls = torch.backends.cuda.matmul, torch.backends.mkldnn.matmul
    before = [matmul.fp32_precision for matmul in matmuls]
    try:
        matmuls[0].fp32_precision, matmuls[1].fp32_precision = of_gpu, of_cpu
        assert device.precision(CPU) == used
    finally:
        matmuls[0].fp32_precision, matmuls[1].fp32_precision = before


@needs_precision_of_cpu
def test_tf32_on_a_gpu_leaves_the_products_of_a_cpu_in_float32(both, monkeypatch):
    monkeypatch.setattr(c_library, "get_library", lambda: "float32")
    monkeypatch.setattr(c_library, "split_status", lambda: ("split", ""))
    device.set_precision("high", GPU)
    assert device.precision(CPU) is None


def test_unknown_precision():
    with pytest.raises(UserError, match="precision=tf32: allowed are highest, high"):
        device.set_precision("tf32", torch.device("cpu"))


@pytest.mark.slow
def test_it_is_not_part_of_the_identity():
    usual, fast = (compose.compose(["experiment=ptb_small", *more]) for more in ([], ["precision=high"]))
    assert config_identity(usual) == config_identity(fast)
