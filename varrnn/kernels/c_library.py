"""The kernels in C: compiled once for this machine's processor, loaded with ctypes, used for float32 on a CPU.

Where there is no C compiler, no AVX2 or no OpenMP the torch operations beside it (lstm.py, gru.py, softmax.py) do the
same work, somewhat slower; ``status`` says which of the two this machine uses and why, and scripts/benchmark.py prints
it. VARRNN_C_KERNELS=0 switches the C code off.
"""

import atexit
import ctypes
import functools
import hashlib
import os
import platform
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import torch
from torch import Tensor

from varrnn.followed import followed

SOURCES = Path(__file__).parent / "csrc"
FLAGS = (
    *("-O3", "-march=native", "-std=gnu11", "-fPIC", "-shared"),
    *("-fopenmp-simd", "-ffp-contract=fast", "-fno-math-errno", "-fno-trapping-math"),
)
OFF = "VARRNN_C_KERNELS"
SMALL = 2000  # fewer units in a step than this are not worth a second thread

_switched_off = False


class NotAvailable(Exception):
    """Why this machine does without the C code."""


def usable(*tensors: Tensor | None) -> bool:
    """Whether the C code takes these: plain float32 tensors on a CPU, and nobody who follows torch's operations."""
    plain = all(
        t is None or (type(t) in (Tensor, torch.nn.Parameter) and t.dtype == torch.float32 and t.device.type == "cpu")
        for t in tensors
    )
    return plain and not followed() and not _switched_off and library() is not None


@contextmanager
def switched_off() -> Iterator[None]:
    """Torch operations only, for tests and comparisons."""
    global _switched_off
    before, _switched_off = _switched_off, True
    try:
        yield
    finally:
        _switched_off = before


def threads(batch: int, units: int) -> int:
    """How many threads a step of so many rows deserves."""
    return min(torch.get_num_threads(), batch) if batch * units >= SMALL else 1


def library() -> ctypes.CDLL | None:
    """The compiled code, or None."""
    return status()[0]


@functools.cache
def status() -> tuple[ctypes.CDLL | None, str]:
    """The compiled code, if any, and a sentence about it. Whatever goes wrong here, torch operations do the work."""
    try:
        check_machine()
        pool = thread_pool()
        file = build()
        try:
            code = load(file, pool)
        except OSError:  # cut short by a full disk or a crash
            file.unlink()
            code = load(build(), pool)
    except (NotAvailable, OSError, RuntimeError, ValueError, AttributeError) as reason:
        return None, f"torch operations: {reason}"
    return code, f"C code: {file}"


def padded(columns: int) -> int:
    """Columns of a weight in panels: whole tiles of the C code."""
    code = library()
    assert code is not None
    width = code.width_of_a_tile()
    return -(-columns // width) * width


def check_machine() -> None:
    """Is this code wanted, and written for this machine?"""
    if os.environ.get(OFF, "1") == "0":
        raise NotAvailable(f"{OFF}=0")
    if platform.machine() not in ("x86_64", "AMD64") or platform.system() != "Linux":
        raise NotAvailable(f"written for x86-64 on Linux, this is {platform.machine()} on {platform.system()}")


def build() -> Path:
    """The shared library for this processor, from the cache or compiled now (a second or two)."""
    compiler = shlex.split(os.environ.get("CC", "")) or ["cc"]
    if shutil.which(compiler[0]) is None:
        raise NotAvailable(f"no C compiler ({compiler[0]}) on the PATH")
    return build_with(compiler, cache())


def build_with(compiler: Sequence[str], folder: Path, flags: tuple[str, ...] = FLAGS) -> Path:
    """Compile into a folder, unless the same sources were compiled there for the same processor before."""
    sources = sorted(file for file in SOURCES.iterdir() if file.suffix in (".c", ".h"))
    key = hashlib.sha256(repr((*compiler, flags, processor(), platform.libc_ver())).encode())
    for source in sources:
        key.update(source.read_bytes())
    target = folder / f"kernels-{key.hexdigest()[:16]}.so"
    if target.is_file():
        return target
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        made = Path(scratch) / target.name
        command = [*compiler, *flags, "-o", str(made), *(str(file) for file in sources if file.suffix == ".c"), "-lm"]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            first = next((line for line in done.stderr.splitlines() if "error" in line), done.stderr.strip()[:200])
            raise NotAvailable(f"{compiler[0]} failed: {first}")
        if not target.is_file():  # another process may have built the same, and use it
            made.replace(target)
    return target


def cache() -> Path:
    """Where compiled code is kept: it is run, so nobody else may write there; otherwise a folder of this process."""
    try:
        folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "varrnn"
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = folder.stat()
        if found.st_uid == os.geteuid() and not found.st_mode & 0o022 and os.access(folder, os.W_OK):
            return folder
    except (OSError, RuntimeError):  # read-only, no folder, no home
        pass
    own = tempfile.mkdtemp(prefix="varrnn-")
    atexit.register(shutil.rmtree, own, ignore_errors=True)
    return Path(own)


def processor() -> str:
    """What -march=native depends on: a home folder may be shared by machines of several kinds."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    return "".join(sorted({line for line in lines if line.startswith(("flags", "model name"))}))


def load(file: Path, pool: ctypes.CDLL) -> ctypes.CDLL:
    """Load the library and hand it torch's threads."""
    code = ctypes.CDLL(str(file))
    code.use_threads.argtypes = (ctypes.c_void_p,) * len(THREADS)
    code.use_threads(*(ctypes.cast(getattr(pool, name), ctypes.c_void_p) for name in THREADS))
    return code


THREADS = ("GOMP_parallel", "omp_get_thread_num", "omp_get_num_threads")


def thread_pool() -> ctypes.CDLL:
    """Torch's own library, through which its threads are found: a second pool would fight with them for the cores."""
    torch_library = ctypes.CDLL(str(Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"))
    if not all(hasattr(torch_library, name) for name in THREADS):
        raise NotAvailable("this build of torch does not use OpenMP threads")
    return torch_library
