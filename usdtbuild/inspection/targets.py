"""What a command line names, as ELF files to look at: a file, an archive's members, a folder's files, a process.

A file that is named itself must be an ELF file or an archive of them, and raises InputError if it isn't. In a folder
everything else is passed over, and what can't be read is reported to `trouble` and passed over too. Nothing here knows
probes.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from ..elf import archive
from ..elf.image import MAGIC, Image
from ..errors import InputError
from ..files import open_input
from ..record import NamedTuple
from .process import descriptor_of, load_biases, program_files, read_mapped

if TYPE_CHECKING:
    from collections.abc import Iterator
    from mmap import mmap

    from .process import MappedFile

    Data = bytes | mmap
    Trouble = Callable[[InputError], None]

Result = TypeVar("Result")


# The ELF header of 32-bit files; an archive with one member is larger.
_SMALLEST = 52


class Loaded(NamedTuple):
    """A file as a process has loaded it, and what the loader added to its addresses."""

    image: Image
    bias: int


class Content(NamedTuple):
    """What is in a file or an archive's member, and what messages call it."""

    data: Data
    path: str


def files(target: str, trouble: Trouble) -> Iterator[Image]:
    """Yield every ELF file that a path means, sorted by name in folders. Raises InputError."""
    for content in contents(target, trouble):
        image = in_folder(target, trouble, partial(Image, content.data, content.path))
        if image is not None:
            yield image


def in_folder(target: str, trouble: Trouble, read: Callable[[], Result]) -> Result | None:
    """Return what `read` gives; where it raises InputError and the target is a folder, tell `trouble` and give None."""
    try:
        return read()
    except InputError as error:
        if not Path(target).is_dir():
            raise
        trouble(error)
        return None


def contents(target: str, trouble: Trouble) -> Iterator[Content]:
    """Yield the content of every file that a path means: of folders and archives the ELF files, by name in folders.

    Raises InputError. A file that is named itself may be of any kind; a pipe (/dev/stdin) is read to its end.
    """
    mode = _mode(target)
    if stat.S_ISDIR(mode):
        yield from _folder(target, trouble)
    elif stat.S_ISREG(mode) or stat.S_ISFIFO(mode):
        count = 0
        for content in _file(target):
            count += 1
            yield content
        if not count:
            raise InputError(target, "is an archive without ELF objects")
    else:
        raise InputError(target, "is neither a file nor a folder")


def _mode(path: str) -> int:
    try:
        return Path(path).stat().st_mode
    except OSError as error:
        raise InputError(path, (error.strerror or str(error)).lower()) from None
    except ValueError:
        raise InputError(path, "is no path") from None


def _file(path: str) -> Iterator[Content]:
    with open_input(path) as opened:
        data = opened.view
    if archive.is_archive(bytes(data[:8])):
        yield from _members(data, path)
    else:
        yield Content(data, path)


def _members(data: Data, path: str) -> Iterator[Content]:
    """Yield the ELF objects of an archive; members of other kinds are passed over."""
    for member in archive.members(data, path):
        start = data[member.offset : member.offset + 4]
        content = b""
        if member.file:
            content = _whole(member.file)
            start = content[:4]
        if start == MAGIC:
            content = content or bytes(data[member.offset : member.offset + member.size])
            yield Content(content, f"{path}({member.name})")


def _whole(path: str) -> bytes:
    if not stat.S_ISREG(_mode(path)):
        raise InputError(path, "is no file, but a member of a thin archive")
    with open_input(path) as opened:
        return bytes(opened.view)


def _folder(folder: str, trouble: Trouble) -> Iterator[Content]:
    seen: set[tuple[int, int]] = set()
    count = 0
    for path in _walk(folder, trouble):
        try:
            if not _looks_right(path, seen):
                continue
            for content in _file(path):
                count += 1
                yield content
        except InputError as error:
            trouble(error)
    if not count:
        raise InputError(folder, "is a folder without ELF files")


def _walk(folder: str, trouble: Trouble) -> Iterator[str]:
    """Yield the regular files below a folder, sorted; links to folders are not followed."""

    def report(error: OSError) -> None:
        trouble(InputError(str(error.filename), (error.strerror or str(error)).lower()))

    for parent, folders, names in os.walk(folder, onerror=report):
        folders.sort()
        for name in sorted(names):
            yield str(Path(parent, name))


def _looks_right(path: str, seen: set[tuple[int, int]]) -> bool:
    """Whether a file begins like an ELF file or an archive, and hasn't been seen under another name."""
    try:
        status = Path(path).stat()
        # Files of /proc have no size: none of them is opened, some of which would block or act.
        small = status.st_size < _SMALLEST
        if small or not stat.S_ISREG(status.st_mode) or (status.st_dev, status.st_ino) in seen:
            return False
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except FileNotFoundError:  # a dangling link, or a file that went away meanwhile
        return False
    except OSError as error:
        raise InputError(path, (error.strerror or str(error)).lower()) from None
    try:
        start = os.read(descriptor, 8)
    except OSError as error:
        raise InputError(path, (error.strerror or str(error)).lower()) from None
    finally:
        os.close(descriptor)
    if start[:4] != MAGIC and not archive.is_archive(start):
        return False
    seen.add((status.st_dev, status.st_ino))
    return True


def loaded(pid: int, trouble: Trouble, opened: Callable[[], None] | None = None) -> Iterator[Loaded]:
    """Yield the ELF files that a process has loaded, once for each time, by address. Raises InputError.

    `path` of the images is what the process calls them. `opened` is called when all are open and none has been read.
    """
    found = _descriptors(pid, trouble)
    if opened is not None:
        found = iter(list(found))
        opened()
    for file, descriptor in found:
        try:
            with read_mapped(descriptor, file) as mapped:
                if bytes(mapped.view[:4]) != MAGIC:
                    continue
                image = Image(mapped.view, file.path)
        except InputError as error:
            trouble(error)
            continue
        for bias in load_biases(image, file.mappings):
            yield Loaded(image, bias)


def _descriptors(pid: int, trouble: Trouble) -> Iterator[tuple[MappedFile, int]]:
    for file in program_files(pid):
        try:
            descriptor = descriptor_of(pid, file)
        except InputError as error:
            trouble(error)
            continue
        yield file, descriptor


def process_number(target: str) -> int | None:
    """Return the number of a process if `target` means one: digits alone do, and `./1234` is a file."""
    return int(target) if target.isascii() and target.isdigit() and len(target) < 10 else None
