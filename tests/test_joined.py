"""Samples side by side: what counts as equal rows."""

import subprocess
import sys

import pytest
import torch
from torch import nn

from varrnn import joined


def test_reduced_precision_is_not_taken_for_mixed_rows():
    wanted, model = torch.randn(20, 30), nn.Linear(1, 1)
    mixed, rounded = wanted.roll(1, 0), wanted * 1.002

    def accepts(found, like=wanted, by=model):
        return joined.same(found, like, by)

    assert not accepts(rounded) and not accepts(mixed)
    assert accepts(rounded, by=nn.Linear(1, 1).bfloat16())
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert accepts(wanted * 1.02) and not accepts(mixed)
    torch.set_float32_matmul_precision("high")
    try:
        assert accepts(rounded) and not accepts(mixed) and not accepts(rounded.double(), wanted.double())
    finally:
        torch.set_float32_matmul_precision("highest")


@pytest.mark.skipif(not hasattr(torch.backends.cuda.matmul, "fp32_precision"), reason="an older torch")
def test_torchs_newer_option_for_tf32_does_not_stop_anything():
    """Who has used it may not read the older ones; in a process of its own, for it cannot be taken back."""
    code = """
import torch
from varrnn import VariationalLSTM, mc_predict
torch.backends.cuda.matmul.fp32_precision = "tf32"
model = VariationalLSTM(3, 4, dropout=0.5)
print(mc_predict(model, torch.randn(5, 2, 3), samples=4, chunk=2).mean.shape)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0 and "torch.Size([5, 2, 4])" in done.stdout, done.stderr
