"""Machine code of our own in this process, for the few instructions that Python has no words for."""

from __future__ import annotations

import ctypes
import os
import time
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from .errors import TracerError
from .hosts import HOST

_READ_EXECUTE, _PRIVATE, _PAGE, _ALIGNED = 5, 2, 4096, 64
_CODES = (HOST.ticks, HOST.skip, HOST.ticks_a_second, HOST.fence)
_TICKS, _SKIP, _RATE, _FENCE = (_ALIGNED * index for index in range(len(_CODES)))
_WORD = ctypes.c_uint64
_USUAL_RATE = 3_000_000_000  # of processors that don't tell


@lru_cache(maxsize=1)
def _page() -> int:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    number = ctypes.c_int
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, number, number, number, ctypes.c_long]
    file = os.memfd_create("usdtbuild-native")
    try:
        os.write(file, b"".join(code.ljust(_ALIGNED, b"\0") for code in _CODES).ljust(_PAGE, b"\0"))
        address = libc.mmap(None, _PAGE, _READ_EXECUTE, _PRIVATE, file, 0)
    finally:
        os.close(file)
    if address is None or address == ctypes.c_void_p(-1).value:
        raise TracerError("this process may not run code that reads the processor's clock")
    return int(address)


@lru_cache(maxsize=1)
def ticks() -> Callable[[], int]:
    """Return a function that returns what the processor's clock says, or where no trampoline reads that, the kernel's.
    Raises TracerError."""
    if not HOST.ticks:
        return time.monotonic_ns
    return ctypes.CFUNCTYPE(_WORD)(_page() + _TICKS)


@lru_cache(maxsize=1)
def ticks_a_second() -> int:
    """Return how fast that clock is, roughly where the processor doesn't tell. Raises TracerError."""
    if not HOST.ticks:
        return 10**9
    return ctypes.CFUNCTYPE(_WORD)(_page() + _RATE)() if HOST.ticks_a_second else _USUAL_RATE


@lru_cache(maxsize=1)
def fence() -> Callable[[], object]:
    """Return a function that keeps loads and stores before it before those behind it. Raises TracerError."""
    return ctypes.CFUNCTYPE(None)(_page() + _FENCE) if HOST.fence else lambda: None


@lru_cache(maxsize=1)
def skip() -> Callable[[int, int, int, int], int]:
    """Return a function `(head, from, to, tail)` of two addresses of words and two numbers: where the first word is
    still `from`, it and the second become `to`; returns whether. Raises TracerError."""
    made: Any = ctypes.CFUNCTYPE(ctypes.c_int, _WORD, _WORD, _WORD, _WORD)(_page() + _SKIP)
    return made  # type: ignore[no-any-return]
