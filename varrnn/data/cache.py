"""A cache of prepared arrays, keyed by the hash of their source; a damaged entry is rebuilt."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import stat
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from varrnn.data.files import sha256_of

Arrays = dict[str, np.ndarray]
BROKEN = (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile, zlib.error, NotImplementedError)


def load_or_build(key: str, build: Callable[[], Arrays], data_dir: Path | None = None) -> Arrays:
    """The arrays cached under `key` (which contains the hash of their source); built and cached if missing."""
    name = f"{key}-{source_hash()}.npz"
    for folder in cache_dirs(data_dir):
        try:
            return _read(folder / name)
        except BROKEN:
            continue
    arrays = build()
    for folder in cache_dirs(data_dir):
        try:
            _write(folder, name, arrays)
            break
        except OSError:
            continue
    return arrays


@functools.cache
def source_hash() -> str:
    """A hash of the code that prepares data: entries written by other code are not used."""
    sources = sorted(Path(__file__).parent.glob("*.py"))
    return sha256_of(b"".join(source.read_bytes() for source in sources))[:12]


def cache_dirs(data_dir: Path | None) -> Iterator[Path]:
    """Next to the data if that folder is writable, else the user's cache folder."""
    # A folder without any write bit is read-only on purpose, even if root could write into it.
    if data_dir is not None and data_dir.stat().st_mode & 0o222 and os.access(data_dir, os.W_OK):
        yield data_dir / ".varrnn-cache"
    with contextlib.suppress(RuntimeError):  # no home folder
        yield Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "varrnn"


def _digest(arrays: Arrays) -> np.ndarray:
    """A checksum over names, dtypes, shapes and contents, to detect a damaged entry."""
    sha = hashlib.sha256()
    for name in sorted(arrays):
        sha.update(f"{name} {arrays[name].dtype} {arrays[name].shape};".encode())
        sha.update(np.ascontiguousarray(arrays[name]).data)
    return np.frombuffer(sha.digest(), np.uint8)


def _read(path: Path) -> Arrays:
    if path.stat().st_uid not in (os.getuid(), 0):
        raise ValueError(f"{path}: belongs to another user")
    with np.load(path, allow_pickle=False) as file:
        arrays = {name: file[name] for name in file.files}
    kept = arrays.pop("digest")
    if not np.array_equal(kept, _digest(arrays)):
        raise ValueError(f"{path}: does not match its checksum")
    return arrays


def _write(folder: Path, name: str, arrays: Arrays) -> None:
    """Write to a temporary name, then rename: two runs that start together never see half a file."""
    folder.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=folder, prefix=".new-")
    try:
        with os.fdopen(handle, "wb") as file:
            np.savez(file, allow_pickle=False, digest=_digest(arrays), **arrays)
        Path(temporary).chmod(stat.S_IRUSR | stat.S_IWUSR | stat.S_IRGRP | stat.S_IROTH)
        Path(temporary).replace(folder / name)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def pack(strings: list[str]) -> np.ndarray:
    """Strings as one array of bytes; they must not contain a newline."""
    return np.frombuffer("\n".join(strings).encode(), np.uint8)


def unpack(packed: np.ndarray) -> list[str]:
    """The strings that `pack` was given."""
    return packed.tobytes().decode().split("\n")
