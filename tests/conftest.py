"""Shared fixtures and marks: `cuda` tests skip without a GPU, `data` tests without the real corpora.

torch is imported where it is used: the process that only hands out tests to others starts without it.
"""

import copy
import functools
import itertools
import os
from collections import defaultdict
from collections.abc import Iterator

import pytest

SMALL_GRID = 8  # a test with so many cases at most belongs to the fast tests as a whole


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    import torch

    no_gpu = pytest.mark.skip(reason="needs a CUDA GPU")
    no_cuda_build = pytest.mark.skip(reason="needs a CUDA build of torch (no GPU): make test-fake-cuda")
    needs_driver = pytest.mark.skip(reason=f"torch {torch.__version__} needs a driver even for fake CUDA tensors")
    no_data = pytest.mark.skip(reason="needs the real corpora; set VARRNN_DATA to a folder with ptb/ and cornell/")
    for item in items:
        if "cuda" in item.keywords and not torch.cuda.is_available():
            item.add_marker(no_gpu)
        if "fake_cuda" in item.keywords and not torch.backends.cuda.is_built():
            item.add_marker(no_cuda_build)
        elif "fake_cuda" in item.keywords and fake_tensors_need_a_driver():
            item.add_marker(needs_driver)
        if "data" in item.keywords and not os.environ.get("VARRNN_DATA"):
            item.add_marker(no_data)
    for item in beyond_representatives(items):
        item.add_marker(pytest.mark.slow)


@functools.cache
def fake_tensors_need_a_driver() -> bool:
    """Whether this torch calls the driver where nothing is computed: 2.6 does, 2.13 does not."""
    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode

    try:
        with FakeTensorMode():
            torch.empty(1, device="cuda").uniform_()
    except RuntimeError as error:
        if "driver" in str(error):
            return True
        raise
    return False


def beyond_representatives(items: list[pytest.Item]) -> Iterator[pytest.Item]:
    """The cases of large grids that the fast tests leave out.

    Those that stay cover every pair of values of two parameters, e.g. every cell with every variant and with every
    backend; of a test marked `costly` they cover every value, or are the first N with `costly(N)`.
    """
    grids = defaultdict(list)
    for item in items:
        if hasattr(item, "callspec"):
            grids[item.nodeid.partition("[")[0]].append(item)
    for grid in grids.values():
        costly = grid[0].get_closest_marker("costly")
        if costly and costly.args:
            yield from grid[costly.args[0] :]
        elif costly or len(grid) > SMALL_GRID:
            covered: set[object] = set()
            for item in grid:
                values = [(name, _key(value)) for name, value in sorted(item.callspec.params.items())]
                adds = set(values if costly or len(values) < 2 else itertools.combinations(values, 2)) - covered
                covered |= adds
                if not adds:
                    yield item


def _key(value: object) -> object:
    """A value as a member of a set: cases share their objects, and not all can be hashed."""
    try:
        return type(value), hash(value), value
    except TypeError:
        return id(value)


@pytest.fixture
def tiny(tmp_path):
    """The overrides of a run of about a second, on texts with a structure that can be learnt."""
    from helpers import runs as small_runs

    return [*small_runs.learnable_texts(tmp_path), f"runs_root={tmp_path / 'runs'}"]


@pytest.fixture
def records_of(tmp_path):
    """Synthetic records, loaded from files."""
    from helpers import records as synthetic_records

    from varrnn.records import store

    return lambda contents: store.load(synthetic_records.save(contents, tmp_path / "records"))


@pytest.fixture(autouse=True, scope="session")
def _compose_once() -> Iterator[None]:
    """The same words are composed once: that takes a tenth of a second, several times in each run of the tests."""
    from hydra.core.global_hydra import GlobalHydra

    from varrnn.config import compose

    original = compose.compose_raw
    remembered = functools.lru_cache(maxsize=2000)(lambda folder, words: original(words))

    def compose_raw(overrides):
        if GlobalHydra.instance().is_initialized():  # perhaps with other folders
            return original(overrides)
        return copy.deepcopy(remembered(compose.CONFIGS, tuple(overrides)))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compose, "compose_raw", compose_raw)
        patch.setattr(compose, "register_schema", functools.cache(compose.register_schema))
        yield


@pytest.fixture(autouse=True)
def _float32_on_a_gpu(request: pytest.FixtureRequest) -> Iterator[None]:
    """A test that compares a GPU with a CPU compares float32: torch's default lets cuDNN, not cuBLAS, take TF32."""
    if "cuda" not in request.keywords:
        yield
        return
    import torch

    from varrnn.training.device import set_precision

    before = torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32
    set_precision("highest", torch.device("cuda"))
    yield
    torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32 = before


@pytest.fixture(autouse=True)
def _seeded() -> None:
    import torch

    torch.manual_seed(0)
