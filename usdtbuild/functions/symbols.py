"""The functions a file names: its symbol tables, separate debug files, and unwind tables where names are gone.

Symbols are unpacked a table at a time and kept as small tuples: a program of 10,000 functions takes hundredths of a
second. What is not a function (objects, labels, undefined symbols) is left out here, except the labels that say where a
function's cold part is, which compilers type as functions.
"""

from __future__ import annotations

import contextlib
import lzma
from struct import error as struct_error
from struct import unpack_from

from ..elf import layout as elf
from ..elf.debug_files import DEBUG_FOLDER, debug_files
from ..elf.image import Image, descriptors, moved_by_descriptors
from ..elf.space import FUNCTIONS, AddressSpace
from ..errors import InputError
from ..limits import MINI_DEBUG_DATA
from ..machines import facts_of
from ..record import NamedTuple

FUNCTION_TYPES = frozenset({elf.STT_FUNC, elf.STT_GNU_IFUNC})
LOCAL = 2
_BINDING_RANK = {1: 0, 10: 0, 2: 1, 0: LOCAL}  # GLOBAL and GNU_UNIQUE, WEAK, LOCAL: whose name a row shows


class FunctionSymbol(NamedTuple):
    """One function symbol. `local_entry` is the distance of ppc64le's second entry point."""

    address: int
    size: int
    name: str
    rank: int
    source: str  # symtab, dynsym, debug file, debug data
    thumb: bool = False
    ifunc: bool = False
    local_entry: int = 0


class FunctionSymbols(NamedTuple):
    """All function symbols, by address and then by how well a name stands for the function."""

    symbols: list[FunctionSymbol]
    complete: bool  # whether local functions are named too; False when only exported ones are
    debug_file: str


def read_symbols(space: AddressSpace, debug_folder: str = DEBUG_FOLDER) -> FunctionSymbols:
    """Return the function symbols of `space`, from its symbol table, or a debug file's, and the dynamic ones."""
    complete, debug_file = True, ""
    symbols = _table(space, elf.SHT_SYMTAB, "symtab")
    if not symbols and not _has_symtab(space):
        found = _from_debug_file(space, debug_folder)
        if found is not None:
            symbols, debug_file = found
        else:
            symbols, complete = _from_debug_data(space), False
    if not space.relocatable:
        known = {(s.address, s.name) for s in symbols}
        symbols += [s for s in _table(space, elf.SHT_DYNSYM, "dynsym") if (s.address, s.name) not in known]
    symbols.sort(key=lambda s: (s.address, s.rank, s.name.startswith("_GLOBAL_"), len(s.name), s.name))
    return FunctionSymbols(symbols, complete, debug_file)


def _has_symtab(space: AddressSpace) -> bool:
    return any(section.type == elf.SHT_SYMTAB for section in space.sections)


def _table(space: AddressSpace, kind: int, source: str, file: AddressSpace | None = None) -> list[FunctionSymbol]:
    """Return the functions of every symbol table of type `kind` in `file`, whose addresses are those of `space`."""
    file = file or space
    found: list[FunctionSymbol] = []
    for index, section in enumerate(file.sections):
        if section.type == kind:
            try:
                found += _functions(space, file, index, source)
            except (struct_error, IndexError):
                raise file.error(f"its symbol table {section.name} is damaged") from None
    return found


def _functions(space: AddressSpace, file: AddressSpace, table: int, source: str) -> list[FunctionSymbol]:
    symbols = file.symbols(table)
    bases = [s.address for s in space.sections] if space.relocatable else []
    known = facts_of(space.machine)
    two_sets = known is not None and known.thumb is not None
    elf_v2 = known is not None and bool(known.descriptors) and space.layout.little
    moved = _descriptors(space)
    found = []
    for number in symbols.functions():
        section, value = symbols.section(number), symbols.values[number]
        if not section:
            continue  # undefined, or SHN_ABS: the number is no address of this file
        if bases:
            if section >= len(bases) or not bases[section]:
                continue
            value += bases[section]
        thumb = two_sets and bool(value & 1)
        if moved is not None:
            value = moved.get(value, value)
        info = symbols.infos[number]
        found.append(
            FunctionSymbol(
                value - thumb, symbols.sizes[number], symbols.name(number), _BINDING_RANK.get(info >> 4, LOCAL), source,
                thumb, info & 15 == elf.STT_GNU_IFUNC, _local_entry(symbols.others[number]) if elf_v2 else 0,
            )
        )  # fmt: skip
    return found


def _local_entry(other: int) -> int:
    """ELFv2 ABI, 3.4.1: three bits of st_other hold the distance to the local entry point, as a power of two."""
    bits = other >> 5
    return 1 << bits if 2 <= bits <= 6 else 0


def _descriptors(space: AddressSpace) -> dict[int, int] | None:
    """ppc64 ELFv1: function symbols are addresses of descriptors in .opd; return descriptor -> code address."""
    known = facts_of(space.machine)
    if known is None or not known.descriptors or space.layout.little:
        return None
    if not space.relocatable:
        return descriptors(space.file)
    moved = moved_by_descriptors(space.file)
    return {_laid_out(space, place): _laid_out(space, code) for place, code in moved.items() if code >> 64}


def _laid_out(space: AddressSpace, place: int) -> int:
    return space.address_of(place >> 64, place & (1 << 64) - 1)


def mapping_symbols(space: AddressSpace) -> tuple[list[int], list[str]]:
    """Return sorted addresses, and what is from each of them on: a (ARM), t (Thumb), x (other code) or d (data).

    Assemblers for ARM, aarch64 and RISC-V put such labels ($a, $t, $x, $d) where literals stand between instructions
    (ELF for the Arm Architecture, 5.5.5).
    """
    found = []
    for index, section in enumerate(space.sections):
        if section.type != elf.SHT_SYMTAB or section.entsize != space.layout.symbol.size:
            continue
        symbols = space.symbols(index)
        for number in range(1, symbols.count):
            name = symbols.strings.at(symbols.names[number]) if symbols.infos[number] & 15 == 0 else b""
            if name[:1] == b"$" and name[1:2] and name[2:3] in (b"", b"."):
                address = space.symbol_address(index, number) if space.relocatable else symbols.values[number]
                found.append((address or 0, name[1:2].decode("ascii", "replace")))
    found.sort()
    return [address for address, _ in found], [kind for _, kind in found]


# -- files that hold what was stripped -------------------------------------------------------------------------------


def _from_debug_file(space: AddressSpace, folder: str) -> tuple[list[FunctionSymbol], str] | None:
    for debug in debug_files(space.file, folder):
        if _has_symtab(debug):
            return _table(space, elf.SHT_SYMTAB, "debug file", debug), debug.path
    return None


def _from_debug_data(space: AddressSpace) -> list[FunctionSymbol]:
    """Return the symbols of .gnu_debugdata, an xz-compressed ELF file that some distributions leave in programs."""
    for section in space.named(".gnu_debugdata")[:1]:
        with contextlib.suppress(lzma.LZMAError, InputError):
            unpacking = lzma.LZMADecompressor(memlimit=MINI_DEBUG_DATA)
            data = unpacking.decompress(space.content(section), MINI_DEBUG_DATA)
            if not unpacking.eof:
                return []  # cut short, or far more than function names take
            file = Image(data, space.path, FUNCTIONS)
            return _table(space, elf.SHT_SYMTAB, "debug data", AddressSpace(file, debug_file=True))
    return []


# -- unwind tables ---------------------------------------------------------------------------------------------------


def unwind_starts(space: AddressSpace) -> list[int]:
    """Return the sorted addresses where unwind records start, on machines where that is the function's symbol.

    They survive strip. Only x86 is answered: elsewhere gcc starts the record after the entry's NOPs. Read from the
    search table of .eh_frame_hdr (Linux Standard Base, 10.6.2) in its one form that linkers write.
    """
    known = facts_of(space.machine)
    if known is None or not known.decoded or space.relocatable:
        return []
    for section in space.named(".eh_frame_hdr"):
        data = space.content(section)
        # version 1, pointer pcrel sdata4, count udata4, table datarel sdata4
        if len(data) >= 12 and data[0] == 1 and data[2:4] == b"\x03\x3b":
            count = unpack_from(space.order + "I", data, 8)[0]
            if 12 + 8 * count <= len(data):
                column = unpack_from(f"{space.order}{2 * count}i", data, 12)[::2]
                plt = [(s.address, s.address + s.size) for s in space.sections if s.name.startswith(".plt")]
                starts = sorted(section.address + offset for offset in column)
                return [at for at in starts if not any(low <= at < high for low, high in plt)]
    return []
