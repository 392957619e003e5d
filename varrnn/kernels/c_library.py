"""The kernels in C: compiled once for this machine's processor, loaded with ctypes, used for float32 on a CPU.

Where there is no C compiler, no AVX2 or no OpenMP, torch operations (lstm_torch.py, gru_torch.py, softmax.py) do the
same work, somewhat slower; ``load_status`` says which of the two this machine uses and why, and scripts/benchmark.py
prints it. VARRNN_C_KERNELS=0 disables the C code.
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

from varrnn.kernels import cpu_cache
from varrnn.torch_modes import is_traced_or_transformed

SOURCES = Path(__file__).parent / "csrc"
FLAGS = (
    *("-O3", "-march=native", "-std=gnu11", "-fPIC", "-shared"),
    *("-fopenmp-simd", "-ffp-contract=fast", "-fno-math-errno", "-fno-trapping-math"),
)
SPLIT_FLAGS = ("-DSPLIT_BFLOAT16",)
SPLIT_CPU_FLAGS = {"amx_tile", "amx_bf16", "avx512_bf16", "avx512bw", "avx512vl"}
ENV_VAR = "VARRNN_C_KERNELS"
MIN_UNITS_PER_THREAD = 2000  # fewer units in a step than this are not worth a second thread

_disabled = False


class Unavailable(Exception):
    """The C code cannot be used on this machine; the message is the reason."""


def unsupported(*tensors: Tensor | None) -> str | None:
    """Why the C code cannot take these tensors, or None: it takes plain float32 tensors on a CPU."""
    for t in tensors:
        if t is None:
            continue
        if type(t) not in (Tensor, torch.nn.Parameter):
            return f"the C code takes plain tensors, not {type(t).__name__}"
        if t.dtype != torch.float32 or t.device.type != "cpu":
            return f"the C code takes float32 on a CPU, not {t.dtype} on {t.device}"
    if is_traced_or_transformed():
        return "a trace, a dispatch mode or a transform of torch.func is active"
    if _disabled:
        return "the C code is disabled"
    return None if get_library() is not None else load_status()[1]


def supports(*tensors: Tensor | None) -> bool:
    """Whether the C code takes these tensors."""
    return unsupported(*tensors) is None


@contextmanager
def disabled() -> Iterator[None]:
    """Disable the C code, for tests and comparisons."""
    global _disabled
    before, _disabled = _disabled, True
    try:
        yield
    finally:
        _disabled = before


def panel_cache_size() -> int:
    """Bytes of a weight that the C code multiplies with all rows before it goes to the next part of the weight."""
    return cpu_cache.cache_sizes()[2] // 2


@contextmanager
def panel_cache(size: int) -> Iterator[None]:
    """Set this size, for tests and comparisons: it affects the speed only."""
    lib = get_library()
    assert lib is not None
    lib.set_panel_cache(size)
    try:
        yield
    finally:
        lib.set_panel_cache(panel_cache_size())


def threads(batch: int, units: int, split_units: bool = False) -> int:
    """How many threads work on a step: they share its rows, or with ``split_units`` the units of all rows."""
    if split_units:
        return min(torch.get_num_threads(), -(-units // tile_width()))
    return min(torch.get_num_threads(), batch) if batch * units >= MIN_UNITS_PER_THREAD else 1


def get_library() -> ctypes.CDLL | None:
    """The compiled code, or None."""
    return load_status()[0]


def get_library_for_precision() -> ctypes.CDLL | None:
    """The compiled code, with split products where torch's precision of products allows them, or None."""
    if needs_float32_products() or get_library() is None:
        return get_library()
    return split_status()[0] or get_library()


def needs_float32_products() -> bool:
    """Whether products on a CPU are float32: torch's precision, or that of its CPU code where that can be set alone.

    torch.get_float32_matmul_precision() raises if the latter differs from the precision on a GPU.
    """
    of_cpu = getattr(torch.backends.mkldnn, "matmul", None)  # torch 2.9
    if of_cpu is None:
        return torch.get_float32_matmul_precision() == "highest"
    return of_cpu.fp32_precision not in ("tf32", "bf16")


def uses_split_products() -> bool:
    """Whether products are computed with sums of two bfloat16 numbers now (csrc/split_tiles.h)."""
    return get_library() is not None and get_library_for_precision() is not get_library()


@functools.cache
def load_status() -> tuple[ctypes.CDLL | None, str]:
    """The compiled code or None, and a description: the file of the C code, or why torch operations are used."""
    try:
        check_machine()
        lib, file = build_and_load(FLAGS)
    except (Unavailable, OSError, RuntimeError, ValueError, AttributeError) as reason:
        return None, f"torch operations: {reason}"
    return lib, f"C code: {file}"


@functools.cache
def split_status() -> tuple[ctypes.CDLL | None, str]:
    """The code with split products or None, and a description: its file, or why float32 products are used."""
    try:
        check_machine()
        check_split_machine()
        lib, file = build_and_load((*FLAGS, *SPLIT_FLAGS))
        if error := lib.request_tiles():
            raise Unavailable(f"Linux does not let this process use AMX (arch_prctl returned {error})")
    except (Unavailable, OSError, RuntimeError, ValueError, AttributeError) as reason:
        return None, f"float32 products: {reason}"
    return lib, f"C code with split products: {file}"


def padded_columns(columns: int) -> int:
    """Columns of a weight in panels: whole tiles of the C code."""
    return -(-columns // tile_width()) * tile_width()


def tile_width() -> int:
    """The number of columns of a tile of the C code."""
    lib = get_library()
    assert lib is not None
    return int(lib.tile_width())


def padded_depth(lib: ctypes.CDLL, depth: int) -> int:
    """The depth of a factor of a product in the memory of this library."""
    return int(lib.padded_depth(depth))


def check_machine() -> None:
    """Raise ``Unavailable`` where the C code is disabled or not written for this machine."""
    if os.environ.get(ENV_VAR, "1") == "0":
        raise Unavailable(f"{ENV_VAR}=0")
    if platform.machine() not in ("x86_64", "AMD64") or platform.system() != "Linux":
        raise Unavailable(f"written for x86-64 on Linux, this is {platform.machine()} on {platform.system()}")


def check_split_machine() -> None:
    """Raise ``Unavailable`` where the processor has no AMX with bfloat16."""
    if missing := sorted(SPLIT_CPU_FLAGS - set(cpu_signature().split())):
        raise Unavailable(f"the processor does not have {', '.join(missing)}")


def build_and_load(flags: tuple[str, ...]) -> tuple[ctypes.CDLL, Path]:
    openmp = torch_openmp()
    file = build(flags)
    try:
        return load(file, openmp), file
    except OSError:  # cut short by a full disk or a crash
        file.unlink()
        file = build(flags)
        return load(file, openmp), file


def build(flags: tuple[str, ...] = FLAGS) -> Path:
    """The shared library for this processor, from the cache or compiled now (a second or two)."""
    compiler = shlex.split(os.environ.get("CC", "")) or ["cc"]
    if shutil.which(compiler[0]) is None:
        raise Unavailable(f"no C compiler ({compiler[0]}) on the PATH")
    return build_with(compiler, cache(), flags)


def build_with(compiler: Sequence[str], folder: Path, flags: tuple[str, ...] = FLAGS) -> Path:
    """Compile into a folder, unless the same sources were compiled there for the same processor before."""
    sources = sorted(file for file in SOURCES.iterdir() if file.suffix in (".c", ".h"))
    key = hashlib.sha256(repr((*compiler, flags, cpu_signature(), platform.libc_ver())).encode())
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
            raise Unavailable(f"{compiler[0]} failed: {first}")
        if not target.is_file():  # another process may have built the same, and use it
            made.replace(target)
    return target


def cache() -> Path:
    """The folder of compiled code, where only this user may write, since the code is run; else a temporary one."""
    try:
        folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "varrnn"
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = folder.stat()
        if found.st_uid == os.geteuid() and not found.st_mode & 0o022 and os.access(folder, os.W_OK):
            return folder
    except (OSError, RuntimeError):  # read-only, no folder, no home
        pass
    tmp = tempfile.mkdtemp(prefix="varrnn-")
    atexit.register(shutil.rmtree, tmp, ignore_errors=True)
    return Path(tmp)


def cpu_signature() -> str:
    """What -march=native depends on: machines with different processors may share a home folder."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    return "\n".join(sorted({line for line in lines if line.startswith(("flags", "model name"))}))


def load(file: Path, openmp: ctypes.CDLL) -> ctypes.CDLL:
    """Load the library and give it torch's OpenMP functions."""
    lib = ctypes.CDLL(str(file))
    lib.use_threads.argtypes = (ctypes.c_void_p,) * len(THREADS)
    lib.set_panel_cache.argtypes = lib.padded_depth.argtypes = (ctypes.c_int64,)
    lib.padded_depth.restype = ctypes.c_int64
    lib.use_threads(*(ctypes.cast(getattr(openmp, name), ctypes.c_void_p) for name in THREADS))
    lib.set_panel_cache(panel_cache_size())
    return lib


THREADS = ("GOMP_parallel", "omp_get_thread_num", "omp_get_num_threads")


def torch_openmp() -> ctypes.CDLL:
    """torch's library, whose OpenMP threads the C code uses: a second thread pool would compete for the cores."""
    torch_library = ctypes.CDLL(str(Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"))
    if not all(hasattr(torch_library, name) for name in THREADS):
        raise Unavailable("this build of torch does not use OpenMP threads")
    return torch_library
