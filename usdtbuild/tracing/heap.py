"""Where a process has its heap: memory that texts are read from without being tried first.

Only brk(2) makes the heap shorter, and the C library, which is who calls it, keeps where the heap ends in a word of its
own, `__curbrk`. A trampoline that looks there before it reads is as safe as one that asks the kernel before it does.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from ..elf.image import Image
from ..elf.layout import SHT_DYNSYM, SHT_SYMTAB
from ..errors import InputError
from ..inspection.process import load_biases, mapped_files, open_mapped
from .maps import PAGE, Area, Memory
from .running import stat_fields

_HEAP = "[heap]"  # what the kernel calls it
_END = "__curbrk"
_LIBRARIES = ("libc.so.6", "libc-2.")
_START = 44  # the field of `stat_fields` that says where the heap begins


def heap_of(pid: int, mapped: Sequence[Area], memory: Memory) -> tuple[int, int] | None:
    """Return where a process' heap begins, and the address of the word that says where it ends; None where what the
    kernel says and what the C library says are not the same, or the heap is not in one piece."""
    heap = [area for area in mapped if area.name == _HEAP]
    try:
        start = int(stat_fields(pid)[_START])
        words = list(_words(pid))
    except (OSError, InputError, ValueError, IndexError):
        return None
    if len(heap) > 1 or not start or any(area.flags[:2] != "rw" for area in heap):
        return None
    ends = [(word, memory.word(word, 8) or 0) for word in words if _is_writable(word, mapped)]
    if not heap:  # it begins with the first allocation, and before that its end is 0
        return (start, ends[0][0]) if len(ends) == 1 and not ends[0][1] else None
    return next(((start, word) for word, end in ends if start <= end <= heap[0].end < end + PAGE), None)


def _words(pid: int) -> Iterator[int]:
    """Yield the addresses of each such word, of C libraries that are loaded, or of a program that has its own. Raises
    InputError."""
    files = mapped_files(pid)
    libraries = [file for file in files if Path(file.path).name.startswith(_LIBRARIES)]
    for file in libraries or files[:1]:
        with open_mapped(pid, file) as opened:
            image = Image(opened.view, file.path)
            kind = SHT_DYNSYM if libraries else SHT_SYMTAB
            for _, symbol in image.symbols_with(kind, _END.encode()):
                if symbol.name == _END and symbol.value:
                    yield from (bias + symbol.value for bias in load_biases(image, file.mappings))


def _is_writable(word: int, mapped: Sequence[Area]) -> bool:
    return any(area.start <= word <= area.end - 8 and area.flags[:2] == "rw" for area in mapped)
