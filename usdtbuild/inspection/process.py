"""Running processes: which ELF files one has mapped, where they are in its memory, and what its memory holds.

Reads `/proc` (proc(5)) and nothing else: it attaches to nothing and stops nothing. Files are opened through
`/proc/PID/map_files`, which leads to deleted files and into other mount namespaces, and without the permission for
that through `/proc/PID/root`. Nothing here knows probes.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path

from ..elf.image import MAGIC, Image
from ..errors import InputError, reason
from ..files import Opened, descriptor_for
from ..record import NamedTuple
from ..rights import effective

_FIRST_PID_NAMESPACE = 0xEFFFFFFC  # PROC_PID_INIT_INO of linux/proc_ns.h
_CAP_SYS_PTRACE = 1 << 19  # linux/capability.h


def _cure() -> str:
    if os.geteuid():
        return "run it as root, with CAP_SYS_PTRACE, or as the user that the process belongs to"
    if not effective() & _CAP_SYS_PTRACE:
        return "root lacks CAP_SYS_PTRACE here (a container is given it by --cap-add SYS_PTRACE)"
    return "root may not look at it here: its user namespace is not below this one, or a security module forbids it"


class MapsLine(NamedTuple):
    """One line of `/proc/PID/maps`. `device` is as `os.makedev` makes it; `name` is '' for memory without a file."""

    start: int
    end: int
    flags: str
    name: str
    offset: int = 0
    inode: int = 0
    device: int = 0

    @property
    def executable(self) -> bool:
        """Whether it is mapped as code."""
        return "x" in self.flags


class MappedFile(NamedTuple):
    """A file that is mapped as code: the path the process knows it by, and its mappings by address."""

    path: str
    deleted: bool
    mappings: tuple[MapsLine, ...]


def in_container() -> bool:
    """Whether processes have other numbers here than for the kernel: in a PID namespace that isn't the first."""
    return Path("/proc/self/ns/pid").stat().st_ino != _FIRST_PID_NAMESPACE


def check_numbers() -> None:
    """Raise InputError unless /proc shows processes by the numbers that they have here, or others would be meant."""
    own = ""
    with contextlib.suppress(OSError):
        own = str(Path("/proc/self").readlink())
    if own != str(os.getpid()):
        what = "doesn't show processes by the numbers that they have here: it isn't mounted, or is another container's"
        raise InputError("/proc", what, "mount it: mount -t proc proc /proc")


def maps_lines(text: bytes) -> Iterator[MapsLine]:
    """Yield the lines of a `/proc/PID/maps`.

    The process chooses the names in it. The kernel escapes a newline in one and nothing else, so lines end at newlines
    alone, and fields at the first spaces.
    """
    for line in text.split(b"\n"):
        if line:
            places, flags, offset, device, rest = line.split(b" ", 4)
            inode, _, name = rest.partition(b" ")
            start, _, end = places.partition(b"-")
            major, _, minor = device.partition(b":")
            shown = name.lstrip(b" ").decode("utf-8", "surrogateescape").replace("\\012", "\n")
            yield MapsLine(
                int(start, 16), int(end, 16), flags.decode("ascii"), shown, int(offset, 16), int(inode),
                os.makedev(int(major, 16), int(minor, 16)),
            )  # fmt: skip


def mapped_files(pid: int) -> list[MappedFile]:
    """Return the files that a process has mapped as code, in order of address. Raises InputError."""
    found: dict[tuple[str, int, int], list[MapsLine]] = {}
    for line in maps_lines(_maps(pid)):
        if line.inode and line.name:
            found.setdefault((line.name, line.device, line.inode), []).append(line)
    return [
        mapped_file(pid, name, mappings)
        for (name, _, _), mappings in found.items()
        if any(mapping.executable for mapping in mappings)
    ]


_DELETED = " (deleted)"


def mapped_file(pid: int, name: str, mappings: Sequence[MapsLine]) -> MappedFile:
    """Return a mapped file by what maps calls it. A name can end like that of a deleted file without being one."""
    deleted = name.endswith(_DELETED)
    if deleted:
        with contextlib.suppress(OSError, ValueError):
            status = Path(f"/proc/{pid}/root{name}").stat()
            deleted = status.st_ino != mappings[0].inode
    return MappedFile(name.removesuffix(_DELETED) if deleted else name, deleted, tuple(mappings))


def _maps(pid: int) -> bytes:
    check_numbers()
    name = f"process {pid}"
    try:
        text = Path(f"/proc/{pid}/maps").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        raise InputError(name, "there is no such process", f"a file of this name is given as ./{pid}") from None
    except OSError as error:
        raise InputError(name, f"can't be read: {reason(error)}", _cure()) from None
    if not text:
        raise InputError(name, "has no program in memory: it is a kernel thread, or has ended")
    return text


def _ways_to(pid: int, file: MappedFile) -> Iterator[str]:
    yield f"/proc/{pid}/map_files/{file.mappings[0].start:x}-{file.mappings[0].end:x}"
    with contextlib.suppress(OSError):
        program = str(Path(f"/proc/{pid}/exe").readlink())
        if program == file.path + (_DELETED if file.deleted else ""):
            yield f"/proc/{pid}/exe"
    if not file.deleted:
        yield f"/proc/{pid}/root{file.path}"
        yield file.path  # of a process that has ended, whose root is ours


def open_mapped(pid: int, file: MappedFile) -> Opened:
    """Open a mapped file as `descriptor_of` does it, for use in a `with`. Raises InputError."""
    return read_mapped(descriptor_of(pid, file), file)


def read_mapped(descriptor: int, file: MappedFile) -> Opened:
    """Read a mapped file that is open. Raises InputError."""
    try:
        return Opened(descriptor, file.path)
    except OSError as error:
        os.close(descriptor)
        raise InputError(file.path, reason(error)) from None
    except InputError:
        os.close(descriptor)
        raise


def descriptor_of(pid: int, file: MappedFile) -> int:
    """Open a mapped file, the very one and not another that took its name. Raises InputError.

    The process can put anything in the file's place while we open it: a FIFO that nobody writes to, a device that acts
    when it is opened. So what is there is looked at before it is opened.
    """
    reason = "was deleted, and can't be opened without more rights" if file.deleted else "can't be opened"
    for path in _ways_to(pid, file):
        try:
            descriptor = descriptor_for(path, lambda status: stat.S_ISREG(status.st_mode))
        except (OSError, ValueError):
            continue
        try:
            if descriptor >= 0 and _is_mapped(descriptor, file.mappings[0]):
                return descriptor
        except OSError:
            pass
        if descriptor >= 0:
            os.close(descriptor)
        reason = "was replaced on disk since the process loaded it"
    raise InputError(file.path, reason, _cure())


def _is_mapped(descriptor: int, mapping: MapsLine) -> bool:
    """Tell whether an open regular file is the one that is mapped. Raises OSError.

    Some file systems (btrfs, overlayfs) show another device in maps than to stat(2). There the file is mapped here,
    too, and what our own maps say is compared.
    """
    status = os.fstat(descriptor)
    if status.st_ino != mapping.inode:
        return False
    if status.st_dev == mapping.device:
        return True
    if not status.st_size:
        return False
    with mmap.mmap(descriptor, 1, prot=mmap.PROT_READ):
        own = Path("/proc/self/maps").read_bytes()
        return any((line.device, line.inode) == (mapping.device, mapping.inode) for line in maps_lines(own))


def program_files(pid: int) -> list[MappedFile]:
    """Return those of the `mapped_files` that can be a program or a library. Raises InputError."""
    return [file for file in mapped_files(pid) if _may_be_program(pid, file)]


def _may_be_program(pid: int, file: MappedFile) -> bool:
    """Tell whether a mapped file can be a program or a library, by its header in the process's memory.

    What compilers make at run time is often mapped from a file without a name, and so is what a trace has left.
    """
    if not file.deleted:
        return True
    with ProcessMemory(pid) as memory:
        headers = [memory.read(mapping.start, len(MAGIC)) for mapping in file.mappings if mapping.offset == 0]
    return MAGIC in headers or None in headers or (not headers and not file.path.startswith("/memfd:"))


def load_biases(image: Image, mappings: Sequence[MapsLine]) -> list[int]:
    """Return what must be added to the addresses in `image` to get addresses of the process.

    One number for each time the file is loaded: usually one, more with dlmopen(3), none if it is mapped but not as a
    program. Each executable mapping proposes one; a proposal counts if it explains every executable segment.
    """
    segments = [segment for segment in image.loads if segment.flags & 1 and segment.file_size]
    executable = [mapping for mapping in mappings if mapping.executable]
    proposals = {
        mapping.start - mapping.offset - (segment.address - segment.offset)
        for mapping in executable
        for segment in segments
        if mapping.offset < segment.offset + segment.file_size and segment.offset < mapping.offset + _length(mapping)
    }
    return sorted(
        bias
        for bias in proposals
        if all(
            any(
                mapping.start <= bias + segment.address < mapping.end
                and bias + segment.address - mapping.start + mapping.offset == segment.offset
                for mapping in executable
            )
            for segment in segments
        )
    )


def _length(mapping: MapsLine) -> int:
    return mapping.end - mapping.start


class ProcessMemory:
    """The memory of a process, as far as it may be read."""

    def __init__(self, pid: int) -> None:
        """Open the memory of a process; without the permission every read gives None."""
        self._descriptor = -1
        with contextlib.suppress(OSError):
            self._descriptor = os.open(f"/proc/{pid}/mem", os.O_RDONLY | os.O_CLOEXEC)

    def __enter__(self) -> ProcessMemory:
        return self

    def __exit__(self, *_: object) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)

    def read(self, address: int, size: int) -> bytes | None:
        """Return `size` bytes at an address of the process, or None where they can't be read."""
        if self._descriptor < 0:
            return None
        try:
            data = os.pread(self._descriptor, size, address)
        except (OSError, OverflowError, ValueError):
            return None
        return data if len(data) == size else None
