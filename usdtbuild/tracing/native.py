"""Machine code of our own in this process, for the few instructions that Python has no words for (x86-64)."""

from __future__ import annotations

import ctypes
import os
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from ..machines.x86_64 import INT3
from .errors import TracerError

if TYPE_CHECKING:
    from typing import Callable

_READ_EXECUTE, _PRIVATE, _PAGE, _ALIGNED = 5, 2, 4096, 32
# rdtsc; shl $32,%rdx; or %rdx,%rax; ret
_TICKS = bytes.fromhex("0f 31 48 c1 e2 20 48 09 d0 c3")
# mov %rsi,%rax; lock cmpxchg %rdx,(%rdi); jne 1f; mov %rdx,(%rcx); 1: sete %al; movzbl %al,%eax; ret
_SKIP = bytes.fromhex("48 89 f0 f0 48 0f b1 17 75 03 48 89 11 0f 94 c0 0f b6 c0 c3")
_WORD = ctypes.c_uint64


@lru_cache(maxsize=1)
def _page() -> int:
    """Return the address of a page with all of it."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    number = ctypes.c_int
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, number, number, number, ctypes.c_long]
    file = os.memfd_create("usdtbuild-native")
    try:
        os.write(file, (_TICKS.ljust(_ALIGNED, INT3) + _SKIP).ljust(_PAGE, INT3))
        address = libc.mmap(None, _PAGE, _READ_EXECUTE, _PRIVATE, file, 0)
    finally:
        os.close(file)
    if address is None or address == ctypes.c_void_p(-1).value:
        raise TracerError("this process may not run code that reads the processor's clock")
    return int(address)


@lru_cache(maxsize=1)
def ticks() -> Callable[[], int]:
    """Return a function that returns what rdtsc says. Raises TracerError."""
    return ctypes.CFUNCTYPE(_WORD)(_page())


@lru_cache(maxsize=1)
def skip() -> Callable[[int, int, int, int], int]:
    """Return a function `(head, from, to, tail)` of two addresses of words and two numbers: where the first word is
    still `from`, it and the second become `to`; returns whether. Raises TracerError."""
    made: Any = ctypes.CFUNCTYPE(ctypes.c_int, _WORD, _WORD, _WORD, _WORD)(_page() + _ALIGNED)
    return made  # type: ignore[no-any-return]
