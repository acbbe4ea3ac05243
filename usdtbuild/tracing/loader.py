"""The dynamic linker of a process: where it says that libraries have come or gone.

Every dynamic linker calls an empty function, `_dl_debug_state` in glibc and musl, whenever its list of libraries has
changed, for debuggers (<link.h>, struct r_debug). It also tells when a program that is just starting has all its
libraries, before their constructors run.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path

from ..elf import layout as elf
from ..elf.image import Image, code_address
from ..errors import InputError
from ..inspection.process import descriptor_of, mapped_files, read_mapped
from ..record import NamedTuple
from .maps import Memory

_AT_BASE, _AT_ENTRY = 7, 9
_STATES = ("_dl_debug_state", "dl_debug_state")
# struct r_debug: int r_version, link_map *, r_brk, enum r_state; RT_CONSISTENT is 0.
_STATE_OFFSET = 24
_CODE = 16  # bytes of the hook's code that tell how to go on


class Loader(NamedTuple):
    """`hook` is the address of the function that the dynamic linker calls, `state` that of r_state; 0 where unknown.

    `entry` is where the program itself starts; a static program has no hook. `code` is what the hook's file has there.
    """

    hook: int
    state: int
    entry: int
    dynamic: bool
    code: bytes = b""

    def consistent(self, memory: Memory) -> bool:
        """Whether the list of libraries is whole at the moment."""
        return not self.state or memory.word(self.state, 4) == 0


def auxiliary(pid: int) -> dict[int, int]:
    """Return the auxiliary vector of a 64-bit process."""
    raw = Path(f"/proc/{pid}/auxv").read_bytes()
    return dict(struct.iter_unpack("<QQ", raw[: len(raw) // 16 * 16]))


def find_loader(pid: int, opened: Callable[[], None] | None = None) -> Loader:
    """Return what is known of a process' dynamic linker; `opened` is called before its file is read. Raises OSError."""
    vector = auxiliary(pid)
    base, entry = vector.get(_AT_BASE, 0), vector.get(_AT_ENTRY, 0)
    if not base:
        return Loader(0, 0, entry, False)
    hook = state = 0
    code = b""
    try:
        for file in mapped_files(pid):
            if any(mapping.start == base for mapping in file.mappings):
                descriptor = descriptor_of(pid, file)
                if opened is not None:
                    opened()
                with read_mapped(descriptor, file) as mapped:
                    image = Image(mapped.view, file.path)
                found = symbols_of_linker(image)
                code = image.bytes_at(found.hook, _CODE) if found.hook else b""
                hook = found.hook + base if found.hook else 0
                state = found.debug + base + _STATE_OFFSET if found.debug else 0
    except (InputError, OSError):
        pass
    return Loader(hook, state, entry, True, code)


class Symbols(NamedTuple):
    """Addresses in a dynamic linker's file: of the function that it calls, and of its `_r_debug`; 0 where unknown."""

    hook: int
    debug: int


def symbols_of_linker(image: Image) -> Symbols:
    """Return where a dynamic linker's own symbols are. Raises InputError."""
    found = {}
    for kind in (elf.SHT_DYNSYM, elf.SHT_SYMTAB):
        for _, symbol in (*image.symbols_with(kind, b"dl_debug_state"), *image.symbols_with(kind, b"_r_debug")):
            if symbol.name in (*_STATES, "_r_debug") and symbol.value:
                found[symbol.name] = symbol.value
    hook = next((found[name] for name in _STATES if name in found), 0)
    code = code_address(image)
    return Symbols(code(hook) if code and hook else hook, found.get("_r_debug", 0))
