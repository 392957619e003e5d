"""Make glibc keep large buffers instead of returning them to the system after every step.

Getting new zeroed pages costs a training step up to a third of its time on a CPU. Only programs call this (run.py and
the scripts that compute): importing the library must not change the process.
"""

import ctypes
import platform

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # constants of glibc's malloc.h


def retain_heap() -> bool:
    """Serve every allocation from the heap and never trim it; False where the C library is not glibc."""
    if platform.libc_ver()[0] != "glibc":
        return False
    mallopt = ctypes.CDLL(None).mallopt
    # old versions of glibc reject more than 32 MiB
    kept = any(mallopt(M_MMAP_THRESHOLD, 1 << bits) == 1 for bits in (30, 25))
    return bool(mallopt(M_TRIM_THRESHOLD, 2**31 - 1)) and kept
