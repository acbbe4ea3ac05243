"""PE and COFF files: names, addresses and sizes of their functions, none of them hotpatchable.

Their format has no `__patchable_function_entries` (compilers emit the table for ELF only), so this reads just what is
needed to list functions and say so: the export directory and the COFF symbol table. Offsets and constants are those of
Microsoft's PE Format specification.
"""

from __future__ import annotations

from struct import error as struct_error
from struct import unpack_from
from typing import TYPE_CHECKING

from ..errors import InputError
from ..record import NamedTuple
from .report import Function, FunctionReport

if TYPE_CHECKING:
    from ..elf.headers import Data

_MACHINES = {0x8664: "x86-64", 0x14C: "i386", 0xAA64: "aarch64"}
_FUNCTION, _EXTERNAL, _STATIC, _CODE = 0x20, 2, 3, 0x20
_SIZES_64, _SIZES_32 = 112, 96  # where the data directories start in an optional header
REASON = "a PE or COFF file has no table of patchable entries; compilers write one only into ELF files"


class _Headers(NamedTuple):
    machine: int
    sections: list[tuple[str, int, int, int, int]]  # name, address, size in memory, file offset, flags
    symbols: tuple[int, int]  # file offset, count
    exports: int  # address of the export directory, 0 if there is none
    base: int
    linked: bool


def read_pe(data: Data, path: str) -> FunctionReport:
    """Return the report about a PE or COFF file. Raises InputError if it is damaged."""
    try:
        headers = _headers(data)
        rows = _merge(_exports(data, headers), _symbols(data, headers))
    except (struct_error, IndexError, OverflowError):
        raise InputError(path, "is a damaged PE or COFF file", "build it again") from None
    machine = _MACHINES.get(headers.machine, f"PE machine {headers.machine:#x}")
    kind = "PE program or library" if headers.linked else "object"
    return FunctionReport(path, "PE" if headers.linked else "COFF", machine, kind, None, (), tuple(rows))


def _headers(data: Data) -> _Headers:
    at = 0
    linked = data[:2] == b"MZ"
    if linked:
        at = unpack_from("<I", data, 0x3C)[0]
        if data[at : at + 4] != b"PE\0\0":
            raise IndexError
        at += 4
    machine, count, _, symbols, symbol_count, optional, _ = unpack_from("<HHIIIHH", data, at)
    exports = base = 0
    if optional >= _SIZES_32:
        plus = unpack_from("<H", data, at + 20)[0] == 0x20B
        base = unpack_from("<Q", data, at + 20 + 24)[0] if plus else unpack_from("<I", data, at + 20 + 28)[0]
        directories = _SIZES_64 if plus else _SIZES_32
        if unpack_from("<I", data, at + 20 + directories - 4)[0]:
            exports = unpack_from("<I", data, at + 20 + directories)[0]
    strings = symbols + 18 * symbol_count
    sections = []
    for index in range(count):
        fields = unpack_from("<8sIIIIIIHHI", data, at + 20 + optional + 40 * index)
        name = fields[0].rstrip(b"\0")
        if name.startswith(b"/") and name[1:].isdigit():
            name = _string(data, strings + int(name[1:]))
        size = fields[1] if linked else fields[3]
        sections.append((name.decode("utf-8", "replace"), fields[2], size, fields[4], fields[9]))
    return _Headers(machine, sections, (symbols, symbol_count), exports, base, linked)


def _string(data: Data, at: int) -> bytes:
    end = data.find(b"\0", at)
    return bytes(data[at : end if end >= 0 else at])


def _exports(data: Data, headers: _Headers) -> list[tuple[str, int, str]]:
    """Return name, address and section of what the export directory names in executable sections."""
    if not headers.exports:
        return []

    def offset(rva: int) -> int:
        for _, address, size, place, _ in headers.sections:
            if address <= rva < address + size:
                return place + rva - address
        raise IndexError

    at = offset(headers.exports)
    count, functions, names, ordinals = unpack_from("<IIII", data, at + 24)
    found = []
    for index in range(min(count, 1 << 20)):
        name = _string(data, offset(unpack_from("<I", data, offset(names) + 4 * index)[0]))
        ordinal = unpack_from("<H", data, offset(ordinals) + 2 * index)[0]
        rva = unpack_from("<I", data, offset(functions) + 4 * ordinal)[0]
        section = next((s for s in headers.sections if s[1] <= rva < s[1] + s[2] and s[4] & _CODE), None)
        if section:
            found.append((name.decode("utf-8", "replace"), headers.base + rva, ""))
    return found


def _symbols(data: Data, headers: _Headers) -> list[tuple[str, int, str]]:
    """Return name, address (in an object: offset) and section of the symbol table's functions."""
    start, count = headers.symbols
    strings, index, found = start + 18 * count, 0, []
    while start and index < count:
        raw, value, number, kind, storage, more = unpack_from("<8sIhHBB", data, start + 18 * index)
        index += 1 + more
        if not 0 < number <= len(headers.sections) or kind != _FUNCTION or storage not in (_EXTERNAL, _STATIC):
            continue
        name = _string(data, strings + unpack_from("<I", raw, 4)[0]) if raw[:4] == b"\0" * 4 else raw.rstrip(b"\0")
        section = headers.sections[number - 1]
        address = headers.base + section[1] + value if headers.linked else value
        found.append((name.decode("utf-8", "replace"), address, "" if headers.linked else section[0]))
    return found


def _merge(exports: list[tuple[str, int, str]], symbols: list[tuple[str, int, str]]) -> list[Function]:
    """Join the names of one address; the export table's come first."""
    sources = {name: "export" for name, _, _ in exports}
    places: dict[tuple[str, int], list[str]] = {}
    for name, address, section in [*exports, *symbols]:
        names = places.setdefault((section, address), [])
        if name not in names:
            names.append(name)
    return [
        Function(
            names[0], tuple(names[1:]), address, 0, False, "format", REASON, 0, 0, "",
            sources.get(names[0], "symtab"), section, (), address,
        )
        for (section, address), names in sorted(places.items())
    ]  # fmt: skip
