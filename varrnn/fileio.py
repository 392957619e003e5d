"""Atomic writes; an output path that cannot be written is reported before the work starts, in one line."""

import errno
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from varrnn.errors import UserError

PROJECT_ROOT = Path(__file__).resolve().parents[1]  # the checkout, for an editable install
FULL = (errno.ENOSPC, errno.EDQUOT)
ELSEWHERE = "choose another path"


def unwritable(path: Path, error: OSError, otherwise: str = ELSEWHERE) -> UserError:
    """One clear line for a full disk, a read-only folder, or a file where a folder is expected."""
    reason = error.strerror or str(error)
    if isinstance(error, FileExistsError | NotADirectoryError):
        in_the_way = [part for part in (path, *path.parents) if part.is_file()]
        reason = f"{in_the_way[0]} is a file, not a folder" if in_the_way else reason
    hint = "free some space" if error.errno in FULL else otherwise
    return UserError(f"{path}: cannot be written ({reason}); {hint} and start the same command again")


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn an OSError on writing this file or folder into a UserError."""
    try:
        yield
    except OSError as error:
        raise unwritable(path, error) from error


def folder(path: Path) -> Path:
    """Create a folder and check that it is writable."""
    with writing(path):
        path.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path):
            return path


def file(path: Path) -> Path:
    """Create the folder of an output file and check that it is writable."""
    with writing(path):
        if path.is_dir():
            raise UserError(f"{path}: is a folder; give the name of a file in it")
    folder(path.parent)
    return path


@contextmanager
def replacing(path: Path, otherwise: str = ELSEWHERE) -> Iterator[Path]:
    """Yield a temporary path to write to; it replaces `path` after the data have been synced to disk.

    A symbolic link stays a link. A path that is not a regular file (/dev/stdout) is written directly.
    """
    path = path.resolve()
    if path.exists() and not path.is_file():
        with writing(path):
            yield path
        return
    temporary = path.with_name(f".{path.name}.part")
    try:
        yield temporary
        with temporary.open("rb+") as handle:
            os.fsync(handle.fileno())
        if path.exists():
            shutil.copymode(path, temporary)
        temporary.replace(path)
    except BaseException as error:
        with suppress(OSError):  # a disk that has become read-only
            temporary.unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise unwritable(path, error, otherwise) from error
        raise


def write_text(path: Path, text: str, otherwise: str = ELSEWHERE) -> None:
    """Write a text file atomically; create its folder if necessary."""
    with replacing(file(path), otherwise) as temporary:
        temporary.write_text(text, encoding="utf-8")
