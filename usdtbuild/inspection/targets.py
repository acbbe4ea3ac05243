"""What a command line names, as ELF files to look at: a file, an archive's members, a folder's files, a process.

A file that is named itself must be an ELF file or an archive of them, and raises InputError if it isn't. In a folder
everything else is passed over, and what can't be read is reported to `trouble` and passed over too. Nothing here knows
probes.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from mmap import mmap
from typing import TypeVar

from ..apart import binaries, is_folder, open_binary, open_named
from ..elf import archive
from ..elf.foreign import BITCODE
from ..elf.image import MAGIC, PROBES, Image, Purpose
from ..errors import InputError
from ..files import Opened
from ..record import NamedTuple
from .process import MappedFile, ProcessMemory, descriptor_of, load_biases, mapped_files, program_files, read_mapped

Data = bytes | mmap
Trouble = Callable[[InputError], None]

Result = TypeVar("Result")
_OBJECTS = (MAGIC, *BITCODE)  # what compilers write


class Loaded(NamedTuple):
    """A file as a process has loaded it, and what the loader added to its addresses."""

    image: Image
    bias: int


class Content(NamedTuple):
    """What is in a file or an archive's member, and what messages call it."""

    data: Data
    path: str

    @property
    def is_bitcode(self) -> bool:
        """Whether it is LLVM's intermediate code, which is no ELF file."""
        return bytes(self.data[:4]) in BITCODE


def files(target: str, trouble: Trouble) -> Iterator[Image]:
    """Yield every ELF file that a path means, sorted by name in folders. Raises InputError."""
    for content in contents(target, trouble):
        if content.is_bitcode and content.path != target:
            continue
        image = in_folder(target, trouble, partial(Image, content.data, content.path))
        if image is not None:
            yield image


def in_folder(target: str, trouble: Trouble, read: Callable[[], Result]) -> Result | None:
    """Return what `read` gives; where it raises InputError and the target is a folder, tell `trouble` and give None."""
    try:
        return read()
    except InputError as error:
        if not is_folder(target):
            raise
        trouble(error)
        return None


def contents(target: str, trouble: Trouble) -> Iterator[Content]:
    """Yield the content of every file that a path means: the ELF files of folders, by name, and of archives, whose
    bitcode comes, too.

    Raises InputError. A file that is named itself may be of any kind; a pipe (/dev/stdin) is read to its end.
    """
    opened = open_named(target)
    if opened is None:
        yield from _folder(target, trouble)
        return
    count = 0
    for content in _file(target, opened):
        count += 1
        yield content
    if not count:
        raise InputError(target, "is an archive without ELF objects")


def _file(path: str, opened: Opened) -> Iterator[Content]:
    with opened:
        data = opened.view
    if archive.is_archive(bytes(data[:8])):
        yield from _members(data, path)
    else:
        yield Content(data, path)


def _members(data: Data, path: str) -> Iterator[Content]:
    """Yield the ELF objects of an archive, and LLVM's bitcode; members of other kinds are passed over."""
    for member in archive.members(data, path):
        content: Data = b""
        if member.file:
            if opened := open_binary(member.file):
                with opened:
                    content = opened.view
        elif data[member.offset : member.offset + 4] in _OBJECTS:
            content = bytes(data[member.offset : member.offset + member.size])
        if content[:4] in _OBJECTS:
            yield Content(content, f"{path}({member.name})")


def _folder(folder: str, trouble: Trouble) -> Iterator[Content]:
    count = 0
    for path, opened in binaries(folder, trouble):
        try:
            for content in _file(path, opened):
                count += 1
                yield content
        except InputError as error:  # noqa: PERF203
            trouble(error)
    if not count:
        raise InputError(folder, "is a folder without ELF files")


class Process:
    """A running process, with all open that is read of it: so it can be looked at without the right to open more.

    `files` are those that it has mapped as code, each with a descriptor.
    """

    def __init__(self, pid: int) -> None:
        """Raises InputError."""
        self.pid, self.mapped, self.memory = pid, mapped_files(pid), ProcessMemory(pid)
        self.troubles: list[InputError] = []
        self.files = list(_descriptors(pid, self.troubles.append))

    def unread(self) -> str:
        """Return why the process's memory can't be read, '' if it can."""
        start = self.mapped[0].mappings[0].start if self.mapped else 0
        if self.memory.read(start, 1) is not None:
            return ""
        return "the process's memory can't be read (root can, or who has CAP_SYS_PTRACE and CAP_DAC_READ_SEARCH)"

    def loaded(self, trouble: Trouble, purpose: Purpose = PROBES) -> Iterator[Loaded]:
        """Yield the ELF files that the process has loaded, once for each time, by address."""
        for error in self.troubles:
            trouble(error)
        yield from _loaded(((file, os.dup(descriptor)) for file, descriptor in self.files), trouble, purpose)


def loaded(pid: int, trouble: Trouble, opened: Callable[[], None] | None = None) -> Iterator[Loaded]:
    """Yield the ELF files that a process has loaded, once for each time, by address. Raises InputError.

    `path` of the images is what the process calls them. `opened` is called when all are open and none has been read.
    """
    found = _descriptors(pid, trouble)
    if opened is not None:
        found = iter(list(found))
        opened()
    yield from _loaded(found, trouble)


def _loaded(found: Iterable[tuple[MappedFile, int]], trouble: Trouble, purpose: Purpose = PROBES) -> Iterator[Loaded]:
    for file, descriptor in found:
        try:
            with read_mapped(descriptor, file) as mapped:
                if bytes(mapped.view[:4]) != MAGIC:
                    continue
                image = Image(mapped.view, file.path, purpose)
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
