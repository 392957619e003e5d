"""A path that cannot be written raises one clear message before any work is done."""

import errno
import os
import resource

import pytest

from varrnn import fileio
from varrnn.errors import UserError


def test_folders_are_made_and_files_written(tmp_path):
    assert fileio.make_folder(tmp_path / "a" / "b") == tmp_path / "a" / "b"
    fileio.write_text(tmp_path / "c" / "d.txt", "é")
    assert (tmp_path / "c" / "d.txt").read_text(encoding="utf-8") == "é"
    assert not list((tmp_path / "a" / "b").iterdir())  # the check leaves no files


@pytest.mark.parametrize("path", ["a.txt", "a.txt/deep", "a.txt/deep/deeper"])
def test_a_file_where_a_folder_should_be(tmp_path, path):
    (tmp_path / "a.txt").write_text("kept")
    with pytest.raises(UserError) as message:
        fileio.make_folder(tmp_path / path)
    reason = f"{tmp_path / 'a.txt'} is a file, not a folder"
    assert str(message.value).startswith(f"{tmp_path / path}: cannot be written ({reason});")
    assert (tmp_path / "a.txt").read_text() == "kept"


def test_a_folder_where_a_file_should_be(tmp_path):
    with pytest.raises(UserError, match="is a folder; give the name of a file"):
        fileio.write_text(tmp_path, "text")


def test_a_full_disk_leaves_the_old_text(tmp_path):
    file = tmp_path / "README.md"
    file.write_text("old")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[1]))
    try:
        with pytest.raises(UserError, match="cannot be written"):
            fileio.write_text(file, "new" * 1000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert file.read_text() == "old" and list(tmp_path.iterdir()) == [file]


def test_two_writers_of_one_file_do_not_share_a_temporary_file(tmp_path):
    """With one name for both, the second would overwrite the first one's temporary file and then rename it."""
    file = tmp_path / "summary.json"
    with fileio.replacing(file) as slow:
        slow.write_text("slow")
        with fileio.replacing(file) as fast:
            fast.write_text("fast")
        assert file.read_text() == "fast" and slow.read_text() == "slow"
    assert file.read_text() == "slow" and list(tmp_path.iterdir()) == [file]
    with pytest.raises(KeyError), fileio.replacing(file) as broken:
        broken.write_text("half")
        raise KeyError
    assert file.read_text() == "slow" and list(tmp_path.iterdir()) == [file]


def test_links_modes_and_devices_are_preserved(tmp_path):
    file, link, pipe = tmp_path / "file", tmp_path / "link", tmp_path / "pipe"
    file.write_text("old")
    file.chmod(0o750)
    link.symlink_to(file)
    fileio.write_text(link, "new")
    assert link.is_symlink() and file.read_text() == "new" and file.stat().st_mode & 0o777 == 0o750
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    fileio.write_text(pipe, "said")
    assert os.read(reader, 10) == b"said" and pipe.is_fifo()
    os.close(reader)


def test_a_full_disk_has_its_message(tmp_path):
    with pytest.raises(UserError, match=r"No space left on device\); free some space"), fileio.writing(tmp_path):
        raise OSError(errno.ENOSPC, "No space left on device")
