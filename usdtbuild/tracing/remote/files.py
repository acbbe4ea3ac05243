"""Which files a program that a server holds has loaded: its auxiliary vector, and its dynamic linker's list.

Both are read from the program's memory, so that they need nothing of a server but to read memory. Files are opened
below a folder that stands for the program's root, through the server where it can, or as they are called here.
"""

from __future__ import annotations

import contextlib
import os
import struct
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from ...elf.image import MAGIC, Image
from ...errors import InputError
from ...files import open_input
from ...inspection.targets import Loaded
from ...limits import SERVER_FILE
from ...machines import facts_of
from ..errors import TracerError
from ..loader import symbols_of_linker
from .server import Server

_AT_PHDR, _AT_BASE, _AT_ENTRY = 3, 7, 9
_PT_DYNAMIC, _PT_INTERP, _PT_PHDR = 2, 3, 6
_DT_DEBUG = 21
_MOST = 4096  # libraries, and entries of a dynamic section: what has more is damaged
_LONGEST_PATH = 4096
_PIECE = 1 << 14
_PATIENCE = 60.0  # seconds for a whole file


class Linker(NamedTuple):
    """Where a dynamic linker says that its list has changed, and where it says whether the list is whole; or 0.

    `loaded` is its own file: it runs before the list has it.
    """

    hook: int
    state: int
    loaded: tuple[Loaded, ...] = ()


class Files:
    """The files of one program."""

    def __init__(self, server: Server, sysroot: str, path: str) -> None:
        """`path` is the program's file here; '' where only the server knows. Raises InputError, TracerError."""
        self.server, self.sysroot = server, sysroot
        self.program = self._open_here(path) if path else self._open(self._told(), "the program")
        if self.program.is_object:
            raise InputError(self.program.path, "is an object, not a program")
        self._images: dict[str, Image | None] = {}

    def _told(self) -> str:
        path = self.server.object("exec-file").decode("utf-8", "surrogateescape")
        if not path:
            raise InputError(self.server.link.name, "the server doesn't say which program it holds", "name it: -- FILE")
        return path

    def locate(self) -> None:
        """Find out where the program is in memory; the server has learned its machine."""
        self._auxiliary = self._read_auxiliary()
        entry = self._auxiliary.get(_AT_ENTRY, 0)
        self.bias = entry - self.program.entry if entry else self._told_offset()

    def _read_auxiliary(self) -> dict[int, int]:
        raw = self.server.object("auxv")
        form = ("<" if self.program.little else ">") + ("QQ" if self.program.is64 else "II")
        size = struct.calcsize(form)
        return dict(struct.iter_unpack(form, raw[: len(raw) // size * size]))

    def _told_offset(self) -> int:
        """Return by how much the server says that the code has moved (qOffsets)."""
        for part in self.server.link.ask("qOffsets").decode("ascii", "replace").split(";"):
            name, _, number = part.partition("=")
            if name == "Text":
                with contextlib.suppress(ValueError):
                    return int(number, 16)
        return 0

    # -- what is loaded ----------------------------------------------------------------------------------------------

    def loaded(self, refused: dict[str, str]) -> Iterator[Loaded]:
        """Yield the program and its libraries as they are now; what can't be opened goes into `refused`, with why."""
        yield Loaded(self.program, self.bias)
        for path, bias in self._libraries():
            if path not in self._images:
                try:
                    self._images[path] = self._open(path, "a library")
                except InputError as error:
                    self._images[path] = None
                    refused[path] = error.what
            image = self._images[path]
            if image is not None and image.machine == self.program.machine:
                yield Loaded(image, bias)

    def _libraries(self) -> Iterator[tuple[str, int]]:
        """Yield path and load bias of libraries, from struct r_debug and its list of link_map (<link.h>)."""
        word, read = self.program.address_size, self.server.number
        debug = self._debug()
        # r_version is an int, padded to a pointer; then the list.
        item = read(debug + word) if debug else 0
        for number in range(_MOST):
            if not item:
                return
            bias, name, _, following = (read(item + place * word) or 0 for place in range(4))
            path = (self.server.text(name, _LONGEST_PATH) or b"").decode("utf-8", "surrogateescape") if name else ""
            if number and "/" in path:  # the first is the program, and linux-vdso.so.1 is no file
                yield path, bias
            item = following

    def listed(self) -> bool:
        """Whether the dynamic linker has made its list, which has what it can relocate."""
        debug = self._debug()
        return bool(debug and self.server.number(debug + self.program.address_size))

    def _debug(self) -> int:
        """Return where struct r_debug is; 0 where there is none yet."""
        segment = next((one for one in self.program.segments if one.type == _PT_DYNAMIC), None)
        if segment is None:
            return 0
        word, read = self.program.address_size, self.server.number
        facts = facts_of(self.program.machine)
        by_address, by_distance = facts.stopped.debug_tags if facts is not None else (0, 0)
        at = segment.address + self.bias
        for _ in range(_MOST):
            tag, value = read(at), read(at + word)
            if not tag or value is None:
                return 0
            if tag == _DT_DEBUG:
                return value
            if tag == by_address and not self.bias:
                return read(value) or 0
            if tag == by_distance:
                return read(at + value) or 0
            at += 2 * word
        return 0

    def linker(self) -> Linker:
        """Return where the dynamic linker tells of changes; zeros for a static program."""
        segment = next((one for one in self.program.segments if one.type == _PT_INTERP), None)
        base = self._auxiliary.get(_AT_BASE, 0)
        if segment is None or not base:
            return Linker(0, 0)
        path = self.program.bytes_at(segment.address, segment.file_size).partition(b"\0")[0]
        image = self._open(path.decode("utf-8", "surrogateescape"), "the dynamic linker")
        found = symbols_of_linker(image)
        # r_state stands behind r_version, the list and the address of the hook, each as large as a pointer.
        state = found.debug + base + 3 * image.address_size if found.debug else 0
        return Linker(found.hook + base if found.hook else 0, state, (Loaded(image, base),))

    # -- opening -----------------------------------------------------------------------------------------------------

    def _open(self, path: str, what: str) -> Image:
        """Open a file of the program's system. Raises InputError."""
        if self.sysroot and path.startswith("/"):
            here = Path(self.sysroot, path.lstrip("/"))
            if here.exists():  # as emulators do it: what isn't below the root is looked for outside
                return self._open_here(str(here), path)
        data = read_through(self.server, path)
        if data is not None:
            if data[:4] != MAGIC:
                raise InputError(path, f"{what} is no ELF file")
            return Image(data, path)
        # The server chose the path, and the mere opening of a device can do something.
        if not os.path.isfile(path):  # noqa: PTH113 - not for bytes that are no path
            raise InputError(path, f"{what} is no file here", "--sysroot names the folder that has it")
        return self._open_here(path)

    def _open_here(self, path: str, name: str = "") -> Image:
        with open_input(path) as opened:
            if bytes(opened.view[:4]) != MAGIC:
                raise InputError(path, "is no ELF file")
            return Image(opened.view, name or path)


def read_through(server: Server, path: str) -> bytes | None:
    """Return a file's content by vFile packets ("File-I/O"); None where the server has none, or can't open it."""
    ask = server.link.ask
    if ask("vFile:setfs:0")[:1] != b"F":
        return None
    handle = _number(ask(f"vFile:open:{path.encode('utf-8', 'surrogateescape').hex()},0,0"))
    if handle < 0:
        return None
    content = bytearray()
    deadline = time.monotonic() + server.link.patience(_PATIENCE)  # the server chooses how little it sends at once
    try:
        while True:
            server.link.check_time()
            if time.monotonic() > deadline:
                cure = "name the program's file here: -- FILE"
                raise TracerError(f"{server.link.name} takes too long to send {path}; {cure}")
            answer = ask(f"vFile:pread:{handle:x},{_PIECE:x},{len(content):x}")
            head, _, piece = answer.partition(b";")
            if _number(head) <= 0 or not piece:
                return bytes(content) if _number(head) == 0 else None
            content += piece
            if len(content) > SERVER_FILE:
                raise TracerError(f"{server.link.name} sends more than {SERVER_FILE >> 20} MB of {path}")
    finally:
        ask(f"vFile:close:{handle:x}")


def _number(answer: bytes) -> int:
    """Return the number of an answer `F number[,errno]`; -1 for what is none."""
    try:
        return int(answer[1:].split(b",")[0], 16) if answer[:1] == b"F" else -1
    except ValueError:
        return -1
