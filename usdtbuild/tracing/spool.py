"""The file between those who take raw records out of the rings and those who make events of them, who may be slower.

It has no name, so nobody else opens it and nothing of it stays. What was read is given back to the file system at once.
A thread writes it, because file systems make writers wait, for seconds where a disk is busy. It takes no more than the
file system has to spare, and no more than _MOST bytes wait for the thread: other records stay in their rings, which
count what they have no room for.
"""

from __future__ import annotations

import ctypes
import errno
import os
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from functools import lru_cache
from queue import SimpleQueue
from typing import Any

from .errors import TracerError

Bytes = bytes | memoryview

# What others may need of the file system is left: a tenth of it, or a gigabyte where that is less.
_SPARED, _SPARED_PART = 1 << 30, 10
_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_PUNCH_HOLE, _KEEP_SIZE = 2, 1  # <linux/falloc.h>
_BLOCK = 1 << 20  # gives memory back in pieces of so many bytes
_MOST = 64 << 20  # bytes that wait to be written
_PAUSE = 0.01  # seconds between looks at what others do
_PATIENCE = 10.0  # how long nothing may be written for want of room, in seconds


@lru_cache(maxsize=1)
def _fallocate() -> Callable[[int, int, int, int], int]:
    found: Any = ctypes.CDLL(None).fallocate  # Linux has it, where this runs, but not all systems that import it
    found.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64]
    return found  # type: ignore[no-any-return]


class Writer:
    """The side of those who write. `size` is how many bytes were taken, in all, and `written` how many of them are in
    the file; `full`: there was no room when something was to be taken last."""

    def __init__(self, descriptor: int) -> None:
        self.size = self.written = 0
        self.full = False
        self._descriptor = descriptor
        self._waiting: SimpleQueue[bytes] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._error: OSError | None = None
        self._progress = 0.0

    def write(self, raw: Bytes) -> bool:
        """Take bytes; False: there is no room now, and nothing of them was taken. Raises OSError: the file is bad."""
        if self._error is not None:
            raise self._error
        self.full = self.size - self.written > _MOST
        if self.full:
            return False
        if self.size == self.written:
            self._progress = time.monotonic()
        if self._thread is None:
            self._thread = threading.Thread(target=self._write, name="usdtbuild-spool", daemon=True)
            self._thread.start()
        self.size += len(raw)
        self._waiting.put(bytes(raw))
        return True

    def wait(self, size: int) -> None:
        """Wait until so many bytes are in the file. Raises TracerError, OSError."""
        while self.written < size:
            if self._error is not None:
                raise self._error
            if time.monotonic() - self._progress > _PATIENCE:
                raise TracerError(
                    "there is no room for records of hits in the folder for temporary files; set TMPDIR to one with"
                    " more, or use --count"
                )
            time.sleep(_PAUSE)

    def _write(self) -> None:
        try:
            while True:
                view = memoryview(self._waiting.get())
                at = 0
                while at < len(view):
                    at += self._some(view[at:])
                self.written += len(view)
        except OSError as error:
            self._error = error

    def _some(self, view: memoryview) -> int:
        """Write some bytes; return how many, which is none where there is no room. Raises OSError."""
        try:
            if self._has_room():
                count = os.pwrite(self._descriptor, view, self._end)
                self._end += count
                self._progress = time.monotonic()
                return count
        except OSError as error:
            if error.errno not in _FULL:
                raise
        time.sleep(_PAUSE)
        return 0

    _end = 0

    def _has_room(self) -> bool:
        system = os.fstatvfs(self._descriptor)
        whole = system.f_blocks * system.f_frsize
        return system.f_bavail * system.f_frsize > min(_SPARED, whole // _SPARED_PART)


class Reader:
    """The side of those who read, who also make the file."""

    def __init__(self) -> None:
        """Make it, in the folder for temporary files. Raises OSError."""
        self._file = tempfile.TemporaryFile(prefix="usdtbuild-")  # noqa: SIM115  (closed in `close`)
        self._at = self._given_back = 0

    @property
    def descriptor(self) -> int:
        """The file's descriptor, to be passed to the one who writes."""
        return self._file.fileno()

    def take(self, size: int, piece: int) -> Iterator[bytes]:
        """Yield the next `size` bytes, in pieces of `piece` or less; each piece is gone from the file when the next is
        asked for."""
        end = self._at + size
        while self._at < end:
            raw = os.pread(self.descriptor, min(end - self._at, piece), self._at)
            if not raw:
                raise OSError(errno.EIO, "the file for raw records has been cut off")
            self._at += len(raw)
            yield raw
            self._give_back()

    def _give_back(self) -> None:
        done = self._at // _BLOCK * _BLOCK
        if done > self._given_back:
            # Where the file system can't, the file just grows.
            _fallocate()(self.descriptor, _PUNCH_HOLE | _KEEP_SIZE, self._given_back, done - self._given_back)
            self._given_back = done

    def close(self) -> None:
        """Close it, which gives everything back."""
        self._file.close()
