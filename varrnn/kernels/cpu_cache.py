"""The sizes of this processor's caches, read once: on them depends which kernel is the fastest for a large weight."""

import functools
import os
from pathlib import Path

FOLDER = Path("/sys/devices/system/cpu/cpu0/cache")
SYSCONF = {1: 188, 2: 191, 3: 194}  # glibc's _SC_LEVEL1_DCACHE_SIZE, _SC_LEVEL2_CACHE_SIZE, _SC_LEVEL3_CACHE_SIZE
DEFAULTS = {1: 32 * 2**10, 2: 2**20, 3: 32 * 2**20}  # where the system does not report them
UNITS = {"K": 2**10, "M": 2**20, "G": 2**30}


@functools.cache
def cache_sizes() -> dict[int, int]:
    """Bytes of the first-level data cache, and of the caches of level 2 and 3."""
    return {
        level: size for level, size in (DEFAULTS | _from_sysconf() | _from_sys(FOLDER)).items() if level in DEFAULTS
    }


def last_level() -> int:
    """Bytes of the largest cache; a processor without a third level has the second one."""
    return max(cache_sizes().values())


def _from_sys(folder: Path) -> dict[int, int]:
    """Linux: one folder for each cache."""
    found: dict[int, int] = {}
    for cache in sorted(folder.glob("index*")):
        try:
            kind, level, size = (
                (cache / name).read_text(encoding="utf-8").strip() for name in ("type", "level", "size")
            )
            if kind != "Instruction":
                found[int(level)] = int(size[:-1]) * UNITS[size[-1]] if size[-1] in UNITS else int(size)
        except (OSError, ValueError, IndexError):
            continue
    return found


def _from_sysconf() -> dict[int, int]:
    """What the C library reports; 0 and -1 mean unknown."""
    if not hasattr(os, "confstr_names") or "CS_GNU_LIBC_VERSION" not in os.confstr_names:
        return {}  # SYSCONF has glibc's numbers
    found = {}
    for level, number in SYSCONF.items():
        try:
            found[level] = os.sysconf(number)
        except (OSError, ValueError):
            continue
    return {level: size for level, size in found.items() if size > 0}


def describe() -> dict[str, int]:
    """For a benchmark's record: kilobytes by name."""
    return {f"l{level}_kb": size // 2**10 for level, size in cache_sizes().items()}
