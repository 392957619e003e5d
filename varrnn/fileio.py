"""Atomic writes; an output path that cannot be written is reported before the work starts, in one line."""

import errno
import os
import secrets
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from varrnn.errors import UserError

PROJECT_ROOT = Path(__file__).resolve().parents[1]  # the checkout, for an editable install
FULL = (errno.ENOSPC, errno.EDQUOT)
DEFAULT_HINT = "choose another path"
TOKEN_BYTES = 4  # of the unique part of a temporary name


def unwritable_error(path: Path, error: OSError, hint: str = DEFAULT_HINT) -> UserError:
    """The error for a full disk, a read-only folder, or a file where a folder is expected; `hint` says what to do."""
    reason = error.strerror or str(error)
    if isinstance(error, FileExistsError | NotADirectoryError):
        in_the_way = [part for part in (path, *path.parents) if part.is_file()]
        reason = f"{in_the_way[0]} is a file, not a folder" if in_the_way else reason
    what_to_do = "free some space" if error.errno in FULL else hint
    return UserError(f"{path}: cannot be written ({reason}); {what_to_do} and start the same command again")


@contextmanager
def writing(path: Path, hint: str = DEFAULT_HINT) -> Iterator[None]:
    """Turn an OSError on writing this file or folder into a UserError."""
    try:
        yield
    except OSError as error:
        raise unwritable_error(path, error, hint) from error


def make_folder(path: Path, hint: str = DEFAULT_HINT) -> Path:
    """Create a folder and check that it is writable."""
    with writing(path, hint):
        path.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path):
            return path


def prepare_file(path: Path) -> Path:
    """Create the folder of an output file and check that it is writable."""
    with writing(path):
        if path.is_dir():
            raise UserError(f"{path}: is a folder; give the name of a file in it")
    make_folder(path.parent)
    return path


@contextmanager
def replacing(path: Path, hint: str = DEFAULT_HINT) -> Iterator[Path]:
    """Yield a temporary path to write to; it replaces `path` after the data have been synced to disk.

    The temporary name is unique, so that two processes can write the same file: the last one to finish wins. If the
    block raises, the temporary file is removed. A symbolic link stays a link. A path that is not a regular file
    (/dev/stdout) is written directly.
    """
    path = path.resolve()
    if path.exists() and not path.is_file():
        with writing(path):
            yield path
        return
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(TOKEN_BYTES)}.part")
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
            raise unwritable_error(path, error, hint) from error
        raise


def remove_leftovers(folder: Path) -> None:
    """Remove the temporary files of processes that were killed; only where no other process is writing."""
    for file in folder.glob(f".*.{'[0-9a-f]' * 2 * TOKEN_BYTES}.part"):
        file.unlink(missing_ok=True)


def write_text(path: Path, text: str, hint: str = DEFAULT_HINT) -> None:
    """Write a text file atomically; create its folder if necessary."""
    with replacing(prepare_file(path), hint) as temporary:
        temporary.write_text(text, encoding="utf-8")
