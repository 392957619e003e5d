"""A run's folder: atomic writes, a lock against a second process, and a check that the config has not changed."""

import errno
import fcntl
import hashlib
import pickle
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from varrnn import fileio
from varrnn.config.schema import OTHER_FOLDER
from varrnn.errors import UserError
from varrnn.training.device import is_device_error

DISK_FULL = r"unexpected pos|file write failed|No space left|[Dd]isk quota"  # torch's messages for a full disk
LOCK_ATTEMPTS, LOCK_SECONDS = 5, 0.1
TRAIN_AGAIN = "remove checkpoint.pt, best.pt and summary.json (if they exist) to train this run again"


def write_text(file: Path, text: str) -> None:
    """Write a text file atomically."""
    with fileio.replacing(file, OTHER_FOLDER) as temporary:
        temporary.write_text(text, encoding="utf-8")


def save(state: dict[str, Any], file: Path) -> None:
    """Write a checkpoint atomically: if the process is killed, the old or the new file remains."""
    with fileio.replacing(file, OTHER_FOLDER) as temporary:
        try:
            torch.save(state, temporary)
        except RuntimeError as error:
            if is_device_error(error):
                raise
            message = next(iter(str(error).splitlines()), "nothing")
            raise OSError(errno.ENOSPC if re.search(DISK_FULL, message) else None, f"torch says: {message}") from error


def load(file: Path) -> dict[str, Any]:
    """Read a checkpoint into CPU memory, since a GPU may be full; weights_only=True, so no code is executed."""
    if not file.is_file():
        raise UserError(f"{file}: is missing; {TRAIN_AGAIN}")
    try:
        return torch.load(file, map_location="cpu", weights_only=True)
    except (RuntimeError, LookupError, EOFError, OSError, TypeError, ValueError, pickle.UnpicklingError) as error:
        if is_device_error(error):
            raise
        raise corrupt_error(file, error) from error


def load_weights(model: torch.nn.Module, saved: dict[str, Any], file: Path) -> None:
    """Load a checkpoint's parameters into the model."""
    with checkpoint_errors(file):
        model.load_state_dict(saved["model"])


@contextmanager
def checkpoint_errors(file: Path) -> Iterator[None]:
    """Turn errors from the content of a loaded file into a UserError: it may not be a checkpoint of this run."""
    try:
        yield
    except (RuntimeError, LookupError, TypeError, ValueError, AttributeError) as error:
        if is_device_error(error):
            raise
        raise corrupt_error(file, error) from error


def corrupt_error(file: Path, error: Exception) -> UserError:
    hint = "remove it to sample again" if file.name.startswith("mc") else TRAIN_AGAIN
    return UserError(f"{file}: not a checkpoint of this run, or damaged ({type(error).__name__}); {hint}")


@contextmanager
def lock_run_dir(folder: Path) -> Iterator[None]:
    """Lock the folder against a second process. The operating system frees the lock when the process dies."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        handle = (folder / "lock").open("w")
    except OSError as error:
        raise fileio.unwritable_error(folder, error, OTHER_FOLDER) from error
    with handle:
        for attempt in range(LOCK_ATTEMPTS):  # a command that lists runs holds the lock for a moment
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except OSError as error:
                if attempt == LOCK_ATTEMPTS - 1:
                    message = f"{folder}: another process is running here; wait for it, or choose run_dir="
                    raise UserError(message) from error
                time.sleep(LOCK_SECONDS)
        fileio.remove_leftovers(folder)
        yield


def require_same_config(folder: Path, saved: dict[str, Any], requested: dict[str, Any]) -> None:
    """Raise if the folder's run has another config, and list the differences."""
    lines = [
        f"  {key}: {saved.get(key)} there, {requested.get(key)} requested"
        for key in sorted(saved.keys() | requested.keys())
        if saved.get(key) != requested.get(key)
    ]
    if lines:
        raise UserError("\n".join([f"{folder} holds a run with another config:", *lines, "choose another run_dir="]))


def check_identity(file: Path, saved: Any, requested: dict[str, Any]) -> None:
    """Reject a checkpoint of another seed or config that was copied into this folder.

    Only keys that both have are compared, since an option may be newer than the file. Files of early versions have no
    identity and are accepted.
    """
    with checkpoint_errors(file):
        found = dict(saved.get("identity", {}))
        lines = [
            f"  {key}: {found[key]} there, {requested[key]} requested"
            for key in sorted(found.keys() & requested.keys())
            if found[key] != requested[key]
        ]
    if lines:
        raise UserError(
            "\n".join([f"{file}: belongs to another run:", *lines, "restore this run's file, or", TRAIN_AGAIN])
        )


def fingerprint(model: torch.nn.Module) -> str:
    """A hash of all parameters, which identifies the model of a saved evaluation."""
    digest = hashlib.sha256()
    for tensor in model.state_dict().values():
        digest.update(tensor.detach().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()
