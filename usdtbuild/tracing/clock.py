"""From what rdtsc says to nanoseconds of CLOCK_MONOTONIC, by looking at both at the same moment, again and again."""

from __future__ import annotations

import ctypes
import os
import time
from functools import lru_cache
from typing import TYPE_CHECKING

from ..machines.x86_64 import INT3
from .errors import TracerError

if TYPE_CHECKING:
    from typing import Callable

# rdtsc; shl $32,%rdx; or %rdx,%rax; ret
_CODE = bytes.fromhex("0f 31 48 c1 e2 20 48 09 d0 c3")
_READ_EXECUTE, _PRIVATE = 5, 2


@lru_cache(maxsize=1)
def _ticks() -> Callable[[], int]:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    number = ctypes.c_int
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, number, number, number, ctypes.c_long]
    file = os.memfd_create("usdtbuild-clock")
    try:
        os.write(file, _CODE.ljust(4096, INT3))
        address = libc.mmap(None, 4096, _READ_EXECUTE, _PRIVATE, file, 0)
    finally:
        os.close(file)
    if address is None or address == ctypes.c_void_p(-1).value:
        raise TracerError("this process may not run code that reads the processor's clock")
    return ctypes.CFUNCTYPE(ctypes.c_uint64)(address)


def now() -> tuple[int, int]:
    """Return the time as rdtsc and as CLOCK_MONOTONIC have it, taken as close together as can be."""
    read = _ticks()
    best = (1 << 62, 0, 0)
    for _ in range(5):
        before = time.monotonic_ns()
        ticks = read()
        after = time.monotonic_ns()
        best = min(best, (after - before, ticks, (before + after) // 2))
    return best[1], best[2]
