"""A running process: which files it has loaded as code, where, and what its memory holds now.

Reads /proc/PID/maps and /proc/PID/mem (proc(5)); attaches to nothing and stops nothing. Without the permission to read
the memory, files alone are read, and the caller is told so.
"""

from __future__ import annotations

import mmap
import os
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from ..errors import InputError

if TYPE_CHECKING:
    from .image import Image


class Module(NamedTuple):
    """One file mapped with execute permission. `readable` is a path that opens it, also when it was deleted."""

    path: str
    readable: str
    start: int  # lowest address of the file's mappings
    offset: int  # file offset of that mapping

    def bias(self, image: Image) -> int:
        """Return what the loader added to the addresses of `image`, this module's file."""
        for span in image.spans:
            if span.offset - self.offset < mmap.PAGESIZE and span.offset >= self.offset:
                return self.start - (span.start - (span.offset - self.offset))
        return 0


def modules(pid: int) -> list[Module]:
    """Return the files that process `pid` has mapped as code, by address. Raises InputError."""
    found: dict[str, Module] = {}
    executable: set[str] = set()
    try:
        lines = Path(f"/proc/{pid}/maps").read_text(errors="surrogateescape").splitlines()
    except FileNotFoundError:
        raise InputError(str(pid), "there is no such process, and no such file") from None
    except OSError as error:
        raise InputError(str(pid), f"the process can't be read: {error.strerror}", "be root, or its owner") from None
    for line in lines:
        fields = line.split(None, 5)
        if len(fields) < 6 or not fields[5].startswith("/"):
            continue
        span, rights, offset, path = fields[0], fields[1], fields[2], fields[5]
        start = int(span.split("-")[0], 16)
        if "x" in rights:
            executable.add(path)
        if path not in found:
            found[path] = Module(path, _readable(pid, path, span), start, int(offset, 16))
    return [module for module in found.values() if module.path in executable]


def _readable(pid: int, path: str, span: str) -> str:
    """Return what opens a mapped file: its mapping, also when deleted; else its path as the process sees it."""
    mapped = f"/proc/{pid}/map_files/{span}"
    if os.access(mapped, os.R_OK):
        return mapped
    return f"/proc/{pid}/root{path}"


class Memory:
    """The process's memory, with the addresses of one of its files. `readable` is False without the permission."""

    def __init__(self, pid: int, bias: int) -> None:
        """Open the memory of process `pid`; `bias` is what the loader added to the file's addresses."""
        self.bias = bias
        try:
            self._file = os.open(f"/proc/{pid}/mem", os.O_RDONLY)
        except OSError:
            self._file = -1
        self.readable = self._file >= 0

    def read(self, address: int, size: int) -> bytes | None:
        """Return `size` bytes at the file's `address`, None if they can't be read."""
        if self._file < 0:
            return None
        try:
            data = os.pread(self._file, size, address + self.bias)
        except (OSError, OverflowError):
            return None
        return data if len(data) == size else None

    def close(self) -> None:
        """Let go of the process."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
