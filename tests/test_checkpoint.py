"""What torch says about a checkpoint that cannot be written is told as it is."""

import pytest
import torch

from varrnn import checkpoint
from varrnn.errors import UserError


@pytest.mark.parametrize(
    ("said", "hint"),
    [
        ("[enforce fail at inline_container.cc:672] . unexpected pos 704 vs 598\nframe 0", "free some space"),
        ("PytorchStreamWriter failed writing file data/0: file write failed", "free some space"),
        ("Tried to serialize something\nframe 0", "choose another folder with runs_root= or run_dir="),
        ("", "choose another folder with runs_root= or run_dir="),
    ],
)
def test_only_a_full_disk_is_called_full(tmp_path, monkeypatch, said, hint):
    def refuse(*_):
        raise RuntimeError(said)

    monkeypatch.setattr(torch, "save", refuse)
    with pytest.raises(UserError) as told:
        checkpoint.save({}, tmp_path / "checkpoint.pt")
    first = said.split("\n")[0] or "nothing"
    assert f"(torch says: {first}); {hint} and start the same command again" in str(told.value)
    assert not list(tmp_path.iterdir())
