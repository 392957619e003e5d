"""The sizes of the caches: what Linux says, what the C library says, and the default."""

import pytest

from varrnn.kernels import cpu_cache


def write(folder, caches):
    for number, (kind, level, size) in enumerate(caches):
        cache = folder / f"index{number}"
        cache.mkdir()
        for name, value in (("type", kind), ("level", level), ("size", size)):
            (cache / name).write_text(f"{value}\n")


@pytest.fixture(autouse=True)
def _read_again():
    cpu_cache.cache_sizes.cache_clear()
    yield
    cpu_cache.cache_sizes.cache_clear()


def test_sizes_from_the_system(tmp_path, monkeypatch):
    monkeypatch.setattr(cpu_cache, "FOLDER", tmp_path)
    write(tmp_path, [("Data", 1, "48K"), ("Instruction", 1, "32K"), ("Unified", 2, "2M"), ("Unified", 3, "266240K")])
    assert cpu_cache.cache_sizes() == {1: 48 * 2**10, 2: 2**21, 3: 266240 * 2**10}
    assert cpu_cache.describe() == {"l1_kb": 48, "l2_kb": 2048, "l3_kb": 266240}
    assert cpu_cache.last_level() == 266240 * 2**10


def test_what_cannot_be_read_has_the_default(tmp_path, monkeypatch):
    monkeypatch.setattr(cpu_cache, "FOLDER", tmp_path)
    monkeypatch.setattr(cpu_cache, "_from_sysconf", dict)
    write(tmp_path, [("Unified", 2, "lots"), ("Unified", "x", "1M"), ("Unified", 4, "1G")])
    assert cpu_cache.cache_sizes() == cpu_cache.DEFAULTS


def test_the_c_library_is_asked_where_the_folder_is_missing(tmp_path, monkeypatch):
    monkeypatch.setattr(cpu_cache, "FOLDER", tmp_path / "none")
    monkeypatch.setattr(cpu_cache.os, "confstr_names", {"CS_GNU_LIBC_VERSION": 2}, raising=False)
    monkeypatch.setattr(cpu_cache.os, "sysconf", {188: 1024, 191: 0, 194: -1}.get)
    assert cpu_cache.cache_sizes() == {**cpu_cache.DEFAULTS, 1: 1024}
