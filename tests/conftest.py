"""Shared fixtures and marks: `cuda` tests skip without a GPU, `data` tests without the real corpora."""

import os
from collections.abc import Iterator

import pytest
import torch
from helpers import records as synthetic_records
from helpers import runs as small_runs

from varrnn import DropoutRates
from varrnn.records import store
from varrnn.training.device import set_precision

VARIANTS = {
    "none": DropoutRates.none(),
    "naive": DropoutRates.naive(0.4).for_layers(),
    "moon": DropoutRates.moon(0.3).for_layers(),
    "tied": DropoutRates.variational(p_W=0.3, p_U=0.2),
    "untied": DropoutRates.variational(p_W=0.3, p_U=0.2, tied=False),
    "tied_per_step": DropoutRates(p_W=0.3, p_U=0.2, per_step=True),
    "untied_per_step": DropoutRates(p_W=0.3, p_U=0.2, per_step=True, per_gate=True),
    "everything": DropoutRates(p_W=0.3, p_U=0.2, p_c=0.2, per_step=True, per_gate=True),
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    no_gpu = pytest.mark.skip(reason="needs a CUDA GPU")
    no_cuda_build = pytest.mark.skip(reason="needs a CUDA build of torch (no GPU): make test-fake-cuda")
    no_data = pytest.mark.skip(reason="needs the real corpora; set VARRNN_DATA to a folder with ptb/ and cornell/")
    for item in items:
        if "cuda" in item.keywords and not torch.cuda.is_available():
            item.add_marker(no_gpu)
        if "fake_cuda" in item.keywords and not torch.backends.cuda.is_built():
            item.add_marker(no_cuda_build)
        if "data" in item.keywords and not os.environ.get("VARRNN_DATA"):
            item.add_marker(no_data)


@pytest.fixture
def tiny(tmp_path):
    """The overrides of a run of about a second, on texts with a structure that can be learnt."""
    return [*small_runs.learnable_texts(tmp_path), f"runs_root={tmp_path / 'runs'}"]


@pytest.fixture
def records_of(tmp_path):
    """Synthetic records, loaded from files."""
    return lambda contents: store.load(synthetic_records.save(contents, tmp_path / "records"))


@pytest.fixture(autouse=True)
def _float32_on_a_gpu(request: pytest.FixtureRequest) -> Iterator[None]:
    """A test that compares a GPU with a CPU compares float32: torch's default lets cuDNN, not cuBLAS, take TF32."""
    if "cuda" not in request.keywords:
        yield
        return
    before = torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32
    set_precision("highest", torch.device("cuda"))
    yield
    torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32 = before


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(0)
