"""Input files and output files: reading or mapping what is given, and writing all of an output or none of it.

Nothing here knows what is in a file. `os` and not `pathlib`, because every compile step comes through here and
importing pathlib costs more than the work.
"""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING

from .errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from mmap import mmap
    from typing import Union

    Data = Union[bytes, mmap]

# From this size on a file is mapped, and copied by the kernel, instead of being read into memory.
_MAPPED_FROM = 4 << 20


class Opened:
    """An input file: its descriptor, its content (read or mapped), and its permission bits."""

    def __init__(self, descriptor: int, path: str) -> None:
        self.descriptor = descriptor
        status = os.fstat(descriptor)
        self.mode, self.size = status.st_mode & 0o777, status.st_size
        kind = status.st_mode & 0o170000
        if kind in (0o020000, 0o060000):  # /dev/zero never ends
            raise InputError(path, "is a device, not a file")
        if kind == 0o010000:
            os.set_blocking(descriptor, True)
        self.mapping: mmap | None = None
        self.view: Data
        if self.size < _MAPPED_FROM:
            self.view = _read_all(descriptor, path)
        else:
            import mmap as mmap_module

            self.view = self.mapping = mmap_module.mmap(descriptor, 0, access=mmap_module.ACCESS_READ)

    def __enter__(self) -> Opened:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self.descriptor)


def open_input(path: str) -> Opened:
    """Open a file for reading, for use in a `with`. Raises InputError, also for a device.

    A pipe is read to its end; one that nobody writes to counts as empty, instead of waiting for ever.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        raise InputError(path, _reason(error)) from None
    try:
        return Opened(descriptor, path)
    except OSError as error:
        os.close(descriptor)
        raise InputError(path, _reason(error)) from None
    except InputError:
        os.close(descriptor)
        raise


def _read_all(descriptor: int, path: str) -> bytes:
    pieces: list[bytes] = []
    while True:
        piece = os.read(descriptor, _MAPPED_FROM)
        if not piece:
            return b"".join(pieces)
        pieces.append(piece)


def _reason(error: OSError) -> str:
    text = (error.strerror or str(error)).lower()
    return {"is a directory": "is a directory, not an object"}.get(text, text)


def write_edited(source: Opened, patches: Sequence[tuple[int, bytes]], tail: bytes, target: str) -> None:
    """Write `source` with `patches` over it and `tail` behind it to `target`, at once. Raises InputError.

    The content goes to a file beside the target, under a name nobody can guess, which is then renamed.
    """
    with _replacing(target, source.mode) as descriptor:
        if isinstance(source.view, bytes):
            content = bytearray(source.view)
            for offset, data in patches:
                content[offset : offset + len(data)] = data
            content += tail
            _write_all(descriptor, content, None)
        else:
            _copy_mapped(descriptor, source)
            for offset, data in patches:
                _write_all(descriptor, data, offset)
            _write_all(descriptor, tail, source.size)


def write_whole(target: str, content: bytes, mode: int = 0o666) -> None:
    """Write `content` to `target`, at once; `mode` is subject to the umask. Raises InputError."""
    mask = os.umask(0)
    os.umask(mask)
    with _replacing(target, mode & ~mask) as descriptor:
        _write_all(descriptor, content, None)


@contextlib.contextmanager
def _replacing(target: str, mode: int) -> Iterator[int]:
    """Give a descriptor to write to; rename the file to `target` at the end, or remove it on any failure."""
    folder, name = os.path.split(target)
    temporary = os.path.join(folder, f".{name[:80]}.{os.urandom(8).hex()}.tmp")
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            yield descriptor
            os.fchmod(descriptor, mode)
        finally:
            os.close(descriptor)
        os.replace(temporary, target)
    except BaseException as error:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        if isinstance(error, OSError):
            raise InputError(target, f"can't be written: {_reason(error)}") from None
        raise


def _copy_mapped(descriptor: int, source: Opened) -> None:
    copied = 0
    while copied < source.size:
        copied += os.sendfile(descriptor, source.descriptor, copied, source.size - copied)


def _write_all(descriptor: int, data: bytes | bytearray, offset: int | None) -> None:
    view = memoryview(data)
    while view:
        done = os.write(descriptor, view) if offset is None else os.pwrite(descriptor, view, offset)
        offset = None if offset is None else offset + done
        view = view[done:]
