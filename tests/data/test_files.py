"""The search for data files, their checksums, and the verified cache."""

import os
import stat
from pathlib import Path

import numpy as np
import pytest

from varrnn.data import cache, cornell, files, ptb
from varrnn.errors import UserError

SPLITS = {"ptb.train.txt": b"a b <unk>\nb a\n", "ptb.valid.txt": b"b\n", "ptb.test.txt": b"a a\n"}


@pytest.fixture(autouse=True)
def alone(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "user"))
    monkeypatch.setenv("VARRNN_DATA", str(tmp_path / "named"))
    monkeypatch.setattr(files, "default_data_dir", lambda: tmp_path / "data")


@pytest.fixture
def small_ptb(tmp_path, monkeypatch):
    """Three short files with their checksums, in place of a corpus."""
    folder = tmp_path / "named" / "ptb"
    folder.mkdir(parents=True)
    for name, content in SPLITS.items():
        (folder / name).write_bytes(content)
    monkeypatch.setattr(ptb, "SHA256", {name: files.sha256_of(content) for name, content in SPLITS.items()})
    monkeypatch.setattr(ptb, "TOKENS", {"ptb.train.txt": 7, "ptb.valid.txt": 2, "ptb.test.txt": 3})
    return folder


def test_data_are_searched_in_the_given_folder_then_the_variable_then_data(small_ptb, tmp_path, monkeypatch):
    assert ptb.load().words == ["a", "b", "<unk>", "<eos>"]
    assert ptb.load(str(small_ptb)).train.tolist() == ptb.load(str(small_ptb.parent)).train.tolist()
    (tmp_path / "data").mkdir()
    (tmp_path / "named" / "ptb").rename(tmp_path / "data" / "ptb")
    assert ptb.load().test.tolist() == [0, 0, 3]
    monkeypatch.delenv("VARRNN_DATA")
    assert ptb.load().test.tolist() == [0, 0, 3]
    with pytest.raises(UserError, match=r"task\.path=.*named.*download_data\.py ptb"):
        ptb.load(str(tmp_path / "named"))


def test_missing_data_lists_the_folders_and_what_to_do(tmp_path):
    with pytest.raises(UserError) as error:
        cornell.load()
    for part in (
        str(tmp_path / "named/cornell"),
        str(tmp_path / "data/cornell"),
        "download_data.py cornell",
        "VARRNN_DATA",
    ):
        assert part in str(error.value)


def test_a_changed_file_is_rejected_with_both_checksums(small_ptb):
    ptb.load()
    (small_ptb / "ptb.valid.txt").write_bytes(b"c\n")
    with pytest.raises(UserError) as error:
        ptb.load()
    found, expected = files.sha256_of(b"c\n"), files.sha256_of(SPLITS["ptb.valid.txt"])
    assert "ptb.valid.txt" in str(error.value) and found in str(error.value) and expected in str(error.value)


def entries(folder):
    return sorted(path for path in folder.rglob("*") if path.is_file() and path.suffix == ".npz")


def test_the_cache_is_next_to_the_data_and_is_used(small_ptb, monkeypatch):
    first = ptb.load()
    assert len(entries(small_ptb)) == 1
    monkeypatch.setattr(ptb, "_build", lambda *_: pytest.fail("not cached"))
    second = ptb.load()
    assert np.array_equal(first.train, second.train) and first.words == second.words


def test_nothing_is_written_into_a_read_only_folder(small_ptb, tmp_path):
    small_ptb.chmod(0o555)
    try:
        ptb.load()
        assert not entries(small_ptb) and len(entries(tmp_path / "user")) == 1
    finally:
        small_ptb.chmod(0o755)


@pytest.mark.parametrize("damage", ["empty", "short", "flipped", "foreign", "text"])
def test_a_broken_entry_is_rebuilt(small_ptb, damage):
    expected = ptb.load()
    (entry,) = entries(small_ptb)
    content = bytearray(entry.read_bytes())
    if damage == "foreign":  # a well-formed entry with other contents, and the old sum
        with np.load(entry) as kept:
            arrays = dict(kept)
        arrays["train"] = arrays["train"][::-1]
        np.savez(entry, **arrays)
    else:
        content[len(content) // 3] ^= 0xFF
        new = {"empty": b"", "short": entry.read_bytes()[:200], "flipped": bytes(content), "text": b"hello"}
        entry.write_bytes(new[damage])
    assert ptb.load().train.tolist() == expected.train.tolist()
    assert ptb.load().words == expected.words


@pytest.mark.parametrize(("owner", "trusted"), [(1000, True), (0, True), (1001, False)], ids=["own", "root", "other"])
def test_an_entry_of_another_user_is_rebuilt(tmp_path, monkeypatch, owner, trusted):
    assert cache.load_or_build("key", lambda: {"x": np.zeros(1)}, data_dir=tmp_path)["x"] == 0
    original = Path.stat

    def owned(path, **options):
        found = list(original(path, **options))
        found[stat.ST_UID] = owner
        return os.stat_result(found)

    monkeypatch.setattr(os, "getuid", lambda: 1000)
    monkeypatch.setattr(Path, "stat", owned)
    assert (cache.load_or_build("key", lambda: {"x": np.ones(1)}, data_dir=tmp_path)["x"] == 0) == trusted


def test_an_entry_written_by_other_code_is_rebuilt(tmp_path, monkeypatch):
    """Otherwise the numbers would come from code that is not in the run's commit."""
    assert cache.load_or_build("key", lambda: {"x": np.zeros(1)}, data_dir=tmp_path)["x"] == 0
    assert cache.load_or_build("key", lambda: {"x": np.ones(1)}, data_dir=tmp_path)["x"] == 0
    monkeypatch.setattr(cache, "source_hash", lambda: "changed")
    assert cache.load_or_build("key", lambda: {"x": np.ones(1)}, data_dir=tmp_path)["x"] == 1


def test_a_cache_that_cannot_be_written_is_not_an_error(small_ptb, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    small_ptb.chmod(0o555)
    try:
        assert ptb.load().words[0] == "a"
    finally:
        small_ptb.chmod(0o755)


def test_a_failed_write_leaves_nothing_behind(tmp_path, monkeypatch):
    monkeypatch.setattr(np, "savez", lambda *_, **__: (_ for _ in ()).throw(OSError("disk full")))
    assert cache.load_or_build("key", lambda: {"x": np.ones(1)}, data_dir=tmp_path)["x"] == 1
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_strings_survive_packing():
    words = ["a", "é", "<unk>", "'s"]
    assert cache.unpack(cache.pack(words)) == words


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-32-le", "utf-32-be"])
def test_utf_16_and_32_are_named_with_the_command_that_converts_them(tmp_path, encoding):
    content = ("a few words of text\n" * 5).encode(encoding)
    with pytest.raises(
        UserError, match=r"the text is (\S+), not UTF-8; convert the file: `iconv -f (\S+) -t UTF-8`"
    ) as message:
        files.decode(tmp_path / "a.txt", content)
    named = str(message.value).split("iconv -f ")[1].split()[0]
    assert content.decode(named).lstrip("\ufeff") == "a few words of text\n" * 5
