"""What scripts and experiments write: a place that cannot be written is found before the work, and told in one line."""

import errno
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from varrnn.errors import UserError

PROJECT_ROOT = Path(__file__).resolve().parents[1]  # the checkout, where the package is not installed elsewhere
FULL = (errno.ENOSPC, errno.EDQUOT)
ELSEWHERE = "choose another place"


def unwritable(path: Path, error: OSError, otherwise: str = ELSEWHERE) -> UserError:
    """One clear line for a full disk, a folder that may not be written, or a file where a folder should be."""
    reason = error.strerror or str(error)
    if isinstance(error, FileExistsError | NotADirectoryError):
        in_the_way = [part for part in (path, *path.parents) if part.is_file()]
        reason = f"{in_the_way[0]} is a file, not a folder" if in_the_way else reason
    hint = "free some space" if error.errno in FULL else otherwise
    return UserError(f"{path}: cannot be written ({reason}); {hint} and start the same command again")


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Whatever keeps the file or folder from being written is the user's to mend."""
    try:
        yield
    except OSError as error:
        raise unwritable(path, error) from error


def folder(path: Path) -> Path:
    """Make a folder, and see that something can be written into it."""
    with writing(path):
        path.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path):
            return path


def file(path: Path) -> Path:
    """Make the folder of a file that is going to be written."""
    with writing(path):
        if path.is_dir():
            raise UserError(f"{path}: is a folder; give the name of a file in it")
    folder(path.parent)
    return path


@contextmanager
def replacing(path: Path, otherwise: str = ELSEWHERE) -> Iterator[Path]:
    """A temporary name to write to; it becomes `path` only when everything is on the disk.

    A link stays one, and what is no file (/dev/stdout) is written directly.
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
    """Replace a text file in one step,  making its folder if necessary."""
    with replacing(file(path), otherwise) as temporary:
        temporary.write_text(text, encoding="utf-8")
