"""The functions a file names: its symbol tables, separate debug files, and unwind tables where names are gone.

Symbols are unpacked a table at a time and kept as small tuples: a program of 10,000 functions takes hundredths of a
second. What is not a function (objects, labels, undefined symbols) is left out here, except the labels that say where a
function's cold part is, which compilers type as functions.
"""

from __future__ import annotations

import contextlib
import lzma
import zlib
from pathlib import Path
from struct import error as struct_error
from struct import unpack_from
from typing import TYPE_CHECKING, NamedTuple

from ..elf import layout as L
from ..elf.space import Image, map_file
from ..errors import InputError
from ..machines import facts_of

if TYPE_CHECKING:
    from collections.abc import Iterator

FUNCTION_TYPES = frozenset({L.STT_FUNC, L.STT_GNU_IFUNC})
_BINDING_RANK = {1: 0, 10: 0, 2: 1, 0: 2}  # GLOBAL and GNU_UNIQUE, WEAK, LOCAL: whose name a row shows
DEBUG_FOLDER = "/usr/lib/debug"


class Symbol(NamedTuple):
    """One function symbol. `local_entry` is the distance of ppc64le's second entry point."""

    address: int
    size: int
    name: str
    rank: int
    source: str  # symtab, dynsym, debug file, debug data
    thumb: bool = False
    ifunc: bool = False
    local_entry: int = 0


class Symbols(NamedTuple):
    """All function symbols, by address and then by how well a name stands for the function."""

    symbols: list[Symbol]
    complete: bool  # whether local functions are named too; False when only exported ones are
    debug_file: str


def read_symbols(image: Image, debug_folder: str = DEBUG_FOLDER) -> Symbols:
    """Return the function symbols of `image`, from its symbol table, or a debug file's, and the dynamic ones."""
    complete, debug_file = True, ""
    symbols = _table(image, L.SHT_SYMTAB, "symtab")
    if not symbols and not _has_symtab(image):
        found = _from_debug_file(image, debug_folder)
        if found is not None:
            symbols, debug_file = found
        else:
            symbols, complete = _from_debug_data(image), False
    if not image.relocatable:
        known = {(s.address, s.name) for s in symbols}
        symbols += [s for s in _table(image, L.SHT_DYNSYM, "dynsym") if (s.address, s.name) not in known]
    symbols.sort(key=lambda s: (s.address, s.rank, s.name.startswith("_GLOBAL_"), len(s.name), s.name))
    return Symbols(symbols, complete, debug_file)


def _has_symtab(image: Image) -> bool:
    return any(section.type == L.SHT_SYMTAB for section in image.sections)


def _table(image: Image, kind: int, source: str, file: Image | None = None) -> list[Symbol]:
    """Return the functions of every symbol table of type `kind` in `file`, whose addresses are those of `image`."""
    file = file or image
    found: list[Symbol] = []
    for index, section in enumerate(file.sections):
        if section.type == kind:
            try:
                found += _functions(image, file, index, source)
            except (struct_error, IndexError):
                raise file.error(f"its symbol table {section.name} is damaged") from None
    return found


def _functions(image: Image, file: Image, table: int, source: str) -> list[Symbol]:
    symbols = file.symbols(table)
    bases = [s.address for s in image.sections] if image.relocatable else []
    known = facts_of(image.machine)
    two_sets = known is not None and known.thumb is not None
    elf_v2 = known is not None and bool(known.descriptors) and image.layout.little
    descriptors = _descriptors(image)
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
        if descriptors is not None:
            value = descriptors.get(value, value)
        info = symbols.infos[number]
        found.append(
            Symbol(
                value - thumb, symbols.sizes[number], symbols.name(number), _BINDING_RANK.get(info >> 4, 2), source,
                thumb, info & 15 == L.STT_GNU_IFUNC, _local_entry(symbols.others[number]) if elf_v2 else 0,
            )
        )  # fmt: skip
    return found


def _local_entry(other: int) -> int:
    """ELFv2 ABI, 3.4.1: three bits of st_other hold the distance to the local entry point, as a power of two."""
    bits = other >> 5
    return 1 << bits if 2 <= bits <= 6 else 0


def _descriptors(image: Image) -> dict[int, int] | None:
    """ppc64 ELFv1: function symbols are addresses of descriptors in .opd; return descriptor -> code address."""
    known = facts_of(image.machine)
    if known is None or not known.descriptors or image.layout.little:
        return None
    found: dict[int, int] = {}
    for index in image.named(".opd"):
        section = image.sections[index]
        if image.relocatable:
            found.update(_relocated_descriptors(image, index, known.descriptors))
            continue
        data = image.content(section)
        for at in range(0, len(data) - 23, 8):
            found[section.address + at] = unpack_from(">Q", data, at)[0]
    return found


def mapping_symbols(image: Image) -> tuple[list[int], list[str]]:
    """Return sorted addresses, and what is from each of them on: a (ARM), t (Thumb), x (other code) or d (data).

    Assemblers for ARM, aarch64 and RISC-V put such labels ($a, $t, $x, $d) where literals stand between instructions
    (ELF for the Arm Architecture, 5.5.5).
    """
    found = []
    for index, section in enumerate(image.sections):
        if section.type != L.SHT_SYMTAB or section.entsize != image.layout.symbol.size:
            continue
        symbols = image.symbols(index)
        for number in range(1, symbols.count):
            name = symbols.strings.at(symbols.names[number]) if symbols.infos[number] & 15 == 0 else b""
            if name[:1] == b"$" and name[1:2] and name[2:3] in (b"", b"."):
                address = image.symbol_address(index, number) if image.relocatable else symbols.values[number]
                found.append((address or 0, name[1:2].decode("ascii", "replace")))
    found.sort()
    return [address for address, _ in found], [kind for _, kind in found]


def _relocated_descriptors(image: Image, index: int, type_: int) -> dict[int, int]:
    """Return the same for an object, where relocations of `type_` make the code addresses."""
    found = {}
    for relocations in image.sections:
        if relocations.type != L.SHT_RELA or relocations.info != index:
            continue
        for offset, kind, symbol, addend in image.relocations(relocations):
            code = image.symbol_address(relocations.link, symbol) if kind == type_ else None
            if code is not None:
                found[image.sections[index].address + offset] = code + (addend or 0)
    return found


# -- files that hold what was stripped -------------------------------------------------------------------------------


def build_id(image: Image) -> str:
    """Return the file's build id in hexadecimal, empty if it has none."""
    for index in image.named(".note.gnu.build-id"):
        note = image.content(image.sections[index])
        if len(note) >= 16:
            name_size, size, kind = unpack_from(image.order + "III", note)
            start = 12 + -(-name_size // 4) * 4
            if kind == 3 and note[12:16] == b"GNU\0":
                return note[start : start + size].hex()
    return ""


def _debug_link(image: Image) -> tuple[str, int] | None:
    """Return the name and CRC that .gnu_debuglink gives."""
    for index in image.named(".gnu_debuglink"):
        data = image.content(image.sections[index])
        end = data.find(b"\0")
        at = -(-(end + 1) // 4) * 4
        if end > 0 and at + 4 <= len(data):
            return data[:end].decode("utf-8", "surrogateescape"), unpack_from(image.order + "I", data, at)[0]
    return None


def _candidates(image: Image, folder: str) -> list[tuple[Path, int | None]]:
    """Return where a debug file may be, as gdb looks for it (its manual, Separate Debug Files), with its CRC."""
    found: list[tuple[Path, int | None]] = []
    identity = build_id(image)
    if identity:
        found.append((Path(folder, ".build-id", identity[:2], identity[2:] + ".debug"), None))
    link = _debug_link(image)
    if link:
        beside = Path(image.path).resolve().parent
        places = (beside, beside / ".debug", Path(folder, *beside.parts[1:]))
        found += [(place / Path(link[0]).name, link[1]) for place in places]
    return found


def debug_files(image: Image, folder: str = DEBUG_FOLDER) -> Iterator[Image]:
    """Yield the file's own separate debug files; one with another build id or CRC is not its own."""
    identity = build_id(image)
    for path, crc in _candidates(image, folder):
        if not path.is_file() or path.resolve() == Path(image.path).resolve():
            continue
        try:
            debug = Image(map_file(str(path)), str(path), debug_file=True)
        except InputError:
            continue
        other = build_id(debug)
        same = identity == other if identity and other else crc is not None and zlib.crc32(debug.data) == crc
        if same and debug.machine == image.machine:
            yield debug


def _from_debug_file(image: Image, folder: str) -> tuple[list[Symbol], str] | None:
    """Return the symbols of the file's own debug file, and its path."""
    for debug in debug_files(image, folder):
        if _has_symtab(debug):
            return _table(image, L.SHT_SYMTAB, "debug file", debug), debug.path
    return None


def _from_debug_data(image: Image) -> list[Symbol]:
    """Return the symbols of .gnu_debugdata, an xz-compressed ELF file that some distributions leave in programs."""
    for index in image.named(".gnu_debugdata")[:1]:
        with contextlib.suppress(lzma.LZMAError, InputError):
            data = lzma.decompress(image.content(image.sections[index]))
            return _table(image, L.SHT_SYMTAB, "debug data", Image(data, image.path, debug_file=True))
    return []


# -- unwind tables ---------------------------------------------------------------------------------------------------


def unwind_starts(image: Image) -> list[int]:
    """Return the sorted addresses where unwind records start, on machines where that is the function's symbol.

    They survive strip. Only x86 is answered: elsewhere gcc starts the record after the entry's NOPs. Read from the
    search table of .eh_frame_hdr (Linux Standard Base, 10.6.2) in its one form that linkers write.
    """
    known = facts_of(image.machine)
    if known is None or not known.decoded or image.relocatable:
        return []
    for index in image.named(".eh_frame_hdr"):
        section = image.sections[index]
        data = image.content(section)
        # version 1, pointer pcrel sdata4, count udata4, table datarel sdata4
        if len(data) >= 12 and data[0] == 1 and data[2:4] == b"\x03\x3b":
            count = unpack_from(image.order + "I", data, 8)[0]
            if 12 + 8 * count <= len(data):
                column = unpack_from(f"{image.order}{2 * count}i", data, 12)[::2]
                plt = [(s.address, s.address + s.size) for s in image.sections if s.name.startswith(".plt")]
                starts = sorted(section.address + offset for offset in column)
                return [at for at in starts if not any(low <= at < high for low, high in plt)]
    return []
