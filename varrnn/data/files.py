"""Find the corpora on this machine; read and verify their files."""

from __future__ import annotations

import codecs
import hashlib
import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from varrnn.errors import UserError
from varrnn.fileio import PROJECT_ROOT

DATA_VARIABLE = "VARRNN_DATA"


def sha256_of(content: bytes) -> str:
    """The SHA-256 of some bytes, in hex."""
    return hashlib.sha256(content).hexdigest()


def sha256_of_files(sums: Mapping[str, str]) -> str:
    """One SHA-256 for several files: that of the output of `sha256sum` for them."""
    return sha256_of("".join(f"{found}  {name}\n" for name, found in sums.items()).encode())


def default_data_dir() -> Path:
    """The folder data/ of this checkout, or of the working directory if the package is installed elsewhere."""
    return (PROJECT_ROOT if (PROJECT_ROOT / "pyproject.toml").is_file() else Path.cwd()) / "data"


def locate(corpus: str, names: Iterable[str], path: str | None) -> Path:
    """The folder with the files of `corpus`: `path` if given (and nowhere else), $VARRNN_DATA/..., then data/..."""
    names = list(names)
    folders = _folders(corpus, path)
    for folder in folders:
        if all((folder / name).is_file() for name in names):
            return folder
    searched = ", ".join(map(str, folders))
    missing = next(name for name in names if not (folders[0] / name).is_file())
    key = f"task.path={path}: " if path else ""
    raise UserError(
        f"{key}the {corpus} files ({missing}, ...) are not in {searched}; fetch them with "
        f"`python scripts/download_data.py {corpus}`, or set {DATA_VARIABLE} to the folder that holds {corpus}/"
    )


def _folders(corpus: str, path: str | None) -> list[Path]:
    if path:
        return [Path(path).expanduser(), Path(path).expanduser() / corpus]
    named = [Path(os.environ[DATA_VARIABLE]).expanduser() / corpus] if os.environ.get(DATA_VARIABLE) else []
    return [*named, default_data_dir() / corpus]


def read(path: Path) -> bytes:
    """The bytes of a file; a missing, unreadable or empty file raises a UserError."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror or error}); check the path") from error
    if not content.strip():
        raise UserError(f"{path}: the file is empty; give a text with at least a few words")
    return content


def wide_encoding(content: bytes) -> str:
    """UTF-16 or UTF-32, detected by the byte order mark or by zero bytes; "" for other encodings."""
    if content.startswith((codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE)):
        return "UTF-32"
    if content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "UTF-16"
    start = content[:1000]
    if start.count(0) < len(start) / 3:
        return ""
    wide = "UTF-32" if start.count(0) > len(start) / 1.6 else "UTF-16"
    return f"{wide}{'BE' if start[0] == 0 else 'LE'}"


def decode(path: Path, content: bytes) -> str:
    """Decode UTF-8 and nothing else: a wrong guess of the encoding would give wrong words."""
    wide = wide_encoding(content)
    if wide:
        raise UserError(f"{path}: the text is {wide}, not UTF-8; convert the file: `iconv -f {wide} -t UTF-8`")
    try:
        return content.decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        raise UserError(
            f"{path}, line {line}: byte 0x{content[error.start]:02x} at offset {error.start} is not UTF-8; "
            f"convert the file, e.g. `iconv -f latin1 -t utf-8`"
        ) from error


def read_checked(folder: Path, sums: Mapping[str, str], hint: str) -> dict[str, bytes]:
    """Read the files named in `sums` and verify their SHA-256; `hint` says what to do if one differs."""
    contents = {name: read(folder / name) for name in sums}
    for name, content in contents.items():
        found = sha256_of(content)
        if found != sums[name]:
            raise UserError(f"{folder / name}: SHA-256 {found}, expected {sums[name]}; {hint}")
    return contents
