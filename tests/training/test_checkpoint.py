"""A checkpoint that cannot be written: the message quotes torch's error."""

import pytest
import torch

from varrnn.errors import UserError
from varrnn.training import checkpoint


@pytest.mark.parametrize(
    ("said", "hint"),
    [
        ("[enforce fail at inline_container.cc:672] . unexpected pos 704 vs 598\nframe 0", "free some space"),
        ("PytorchStreamWriter failed writing file data/0: file write failed", "free some space"),
        ("Tried to serialize something\nframe 0", "choose another folder with runs_root= or run_dir="),
        ("", "choose another folder with runs_root= or run_dir="),
    ],
)
def test_only_a_full_disk_is_reported_as_full(tmp_path, monkeypatch, said, hint):
    def fail(*_):
        raise RuntimeError(said)

    monkeypatch.setattr(torch, "save", fail)
    with pytest.raises(UserError) as message:
        checkpoint.save({}, tmp_path / "checkpoint.pt")
    first = said.split("\n")[0] or "nothing"
    assert f"(torch says: {first}); {hint} and start the same command again" in str(message.value)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "error", [torch.OutOfMemoryError("CUDA out of memory"), RuntimeError("CUBLAS_STATUS_ALLOC_FAILED")]
)
def test_a_full_gpu_is_not_reported_as_a_damaged_checkpoint(tmp_path, monkeypatch, error):
    """The error is not one of the file: the message must not advise to remove the checkpoint or to use another disk."""

    def fail(*_, **__):
        raise error

    with pytest.raises(type(error)), checkpoint.checkpoint_errors(tmp_path / "checkpoint.pt"):
        fail()
    checkpoint.save({}, tmp_path / "checkpoint.pt")
    monkeypatch.setattr(torch, "save", fail)
    monkeypatch.setattr(torch, "load", fail)
    with pytest.raises(type(error)):
        checkpoint.save({}, tmp_path / "checkpoint.pt")
    with pytest.raises(type(error)):
        checkpoint.load(tmp_path / "checkpoint.pt")
