"""The C code is compiled once, stored where only this user can write; torch operations are used where it is missing."""

import os
import shlex
from pathlib import Path

import pytest
import torch
from helpers import processes

from varrnn.kernels import c_library

needs_c = pytest.mark.skipif(c_library.get_library() is None, reason=c_library.load_status()[1])
load_status = c_library.load_status.__wrapped__  # without functools.cache


def test_compiled_once(tmp_path: Path) -> None:
    compiler = tmp_path / "cc"
    compiler.write_text(
        '#!/bin/sh\necho compiled >> "$0.log"\nwhile [ "$1" != -o ]; do shift; done; echo made > "$2"\n'
    )
    compiler.chmod(0o755)
    first = c_library.build_with([str(compiler)], tmp_path)
    assert c_library.build_with([str(compiler)], tmp_path) == first
    assert (tmp_path / "cc.log").read_text() == "compiled\n"
    other = c_library.build_with([str(compiler)], tmp_path, ("-O1",))
    assert other != first


@pytest.mark.slow
@pytest.mark.parametrize(
    ("environment", "reason"),
    [
        ({"VARRNN_C_KERNELS": "0"}, "VARRNN_C_KERNELS=0"),
        ({"CC": "no-such-compiler -m64"}, "no C compiler"),
        ({"CC": "false"}, "failed"),
        ({"CC": "'cc"}, "quotation"),
    ],
)
def test_without_c(environment: dict[str, str], reason: str, tmp_path: Path) -> None:
    """Everything works without the C code, and `load_status` gives the reason."""
    program = (
        "import torch; from varrnn import DropoutRates, VariationalLSTM; from varrnn.kernels import c_library;"
        "layer = VariationalLSTM(3, 3, dropout=DropoutRates.variational(p_W=0.5, p_U=0.5));"
        "layer(torch.randn(2, 2, 3))[0].sum().backward();"
        "print(c_library.load_status()[1])"
    )
    environment = os.environ | {"XDG_CACHE_HOME": str(tmp_path)} | environment
    done = processes.run("-c", program, environment=environment)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("torch operations: ") and reason in done.stdout
    assert not done.stderr


@needs_c
@pytest.mark.parametrize(
    ("name", "error"),
    [
        ("cache", OSError(28, "No space left on device")),
        ("cpu_signature", RuntimeError("anything")),
        ("torch_openmp", AttributeError("no such symbol")),
        ("torch_openmp", c_library.Unavailable("no threads")),
    ],
)
def test_torch_operations_are_used_after_any_error(
    name: str, error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr(c_library, name, fail)
    assert load_status() == (None, f"torch operations: {error}")


def test_sources_that_were_not_packed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(c_library, "SOURCES", tmp_path / "missing")
    assert load_status()[0] is None


@pytest.fixture
def built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The library in a cache of this test, from a compiler that copies it: compiling takes seconds."""
    usual, compiler = c_library.build(), tmp_path / "cc"
    compiler.write_text(f'#!/bin/sh\nwhile [ "$1" != -o ]; do shift; done; cp {shlex.quote(str(usual))} "$2"\n')
    compiler.chmod(0o755)
    monkeypatch.setenv("CC", str(compiler))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return c_library.build()


@needs_c
def test_a_damaged_file_is_built_again(built: Path) -> None:
    file = built
    file.write_bytes(b"")
    assert load_status()[1] == f"C code: {file}" and file.stat().st_size > 1000


@needs_c
def test_missing_openmp_threads_do_not_delete_the_compiled_code(built: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = built
    before = file.stat().st_mtime_ns

    def missing() -> None:
        raise OSError("libtorch_cpu.so: cannot open shared object file")

    monkeypatch.setattr(c_library, "torch_openmp", missing)
    assert load_status()[1].startswith("torch operations: libtorch_cpu.so") and file.stat().st_mtime_ns == before


@needs_c
def test_the_threads_are_those_of_torch() -> None:
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(before + 3)
        assert c_library.torch_openmp().omp_get_max_threads() == before + 3
    finally:
        torch.set_num_threads(before)


def test_a_folder_for_the_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The code in the folder is executed, so a folder that others can write to is not used."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    folder = c_library.cache()
    assert folder == tmp_path / "varrnn" and folder.stat().st_mode & 0o777 == 0o700
    folder.chmod(0o777)
    other = c_library.cache()
    assert other.is_dir() and other != folder and other.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("home", ["a file", "none"])
def test_a_home_folder_that_cannot_be_written(home: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown() -> Path:
        raise RuntimeError("Could not determine home directory.")

    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file") if home == "a file" else "")
    if home == "none":
        monkeypatch.setattr(Path, "home", unknown)
    assert c_library.cache().is_dir()


@pytest.mark.slow
def test_the_folder_of_a_process_is_removed(tmp_path: Path) -> None:
    program = "from varrnn.kernels import c_library; print(c_library.cache())"
    environment = os.environ | {"XDG_CACHE_HOME": "/proc/none", "TMPDIR": str(tmp_path)}
    done = processes.run("-c", program, environment=environment)
    assert done.stdout.startswith(str(tmp_path)) and not list(tmp_path.iterdir())
