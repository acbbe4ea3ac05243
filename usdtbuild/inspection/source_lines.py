"""Which line of which source file stands behind an address, through every call that the compiler inlined there.

Read from DWARF, versions 2 to 5, with pyelftools: the file's own, or its separate debug file's. A large program's
debug information is never read whole: addresses are looked up together, each unit's head says whether it has one of
them, and only units that do are taken apart. In an object, whose sections all begin at 0, they are laid out one
behind the other first, so that an address means one place. Nothing here knows probes.
"""

from __future__ import annotations

import itertools
import posixpath
from bisect import bisect_right
from typing import TYPE_CHECKING, Any

from ..elf import layout as elf
from ..elf.debug_files import DEBUG_FOLDER
from ..provider.header import FIRING
from ..record import NamedTuple
from .dwarf import debug_data, decoded, forget, low_address, number, opened, origins, ranges, text, why_unread

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator

    from ..elf.image import Image
    from ..files import Data

    Place = tuple[int, int]  # an object's section and offset, else 0 and an address

# What may stand around a function: namespaces, classes and modules, and units of other languages' nested functions.
_AROUND = {
    "DW_TAG_namespace", "DW_TAG_module", "DW_TAG_class_type", "DW_TAG_structure_type", "DW_TAG_union_type",
    "DW_TAG_enumeration_type", "DW_TAG_common_block",
}  # fmt: skip
_INSIDE = {"DW_TAG_subprogram", "DW_TAG_inlined_subroutine", "DW_TAG_lexical_block", "DW_TAG_try_block"}
_CALLS = {"DW_TAG_subprogram", "DW_TAG_inlined_subroutine"}


class Frame(NamedTuple):
    """One place in the sources: a path, a line counted from 1 (0: none), and the function, '' if it isn't named."""

    file: str
    line: int
    function: str


class FoundLines(NamedTuple):
    """What was found: frames by place, the innermost first, and why there are none, in words for a message."""

    frames: dict[Place, tuple[Frame, ...]]
    trouble: str = ""


def find_lines(
    image: Image, places: Iterable[Place], tick: Callable[[str], None], folder: str = DEBUG_FOLDER
) -> FoundLines:
    """Return the source lines of `places`, calls that were inlined there included.

    Separate debug files are looked for in `folder` and beside the file. `tick` is called with the path for each unit
    that is read. Never raises for debug information that is missing or damaged: `trouble` says so.
    """
    data = debug_data(image, folder)
    if data is None:
        return FoundLines({}, "has no debug information, and no debug file of its own was found: compile it with -g")
    wanted = list(places)
    try:
        bases = _bases(image) if image.is_object else {}
        content: Data = _laid_out(image, bases) if image.is_object else data
        addresses = {bases.get(section, 0) + offset: (section, offset) for section, offset in wanted}
        found = _look_up(opened(content), addresses, lambda: tick(image.path))
    except Exception as error:  # pyelftools raises anything on damaged input
        return FoundLines({}, why_unread(error))
    return FoundLines({addresses[address]: frames for address, frames in found.items()})


def _bases(image: Image) -> dict[int, int]:
    """Return an address of its own for each section of an object that will be loaded."""
    bases: dict[int, int] = {}
    address = 0x1000
    for section in image.sections:
        if section.loaded:
            step = max(section.align, 16)
            bases[section.number] = address = -(-address // step) * step
            address += section.size + 1  # the end of one is not the start of another
    return bases


def _laid_out(image: Image, bases: dict[int, int]) -> bytes:
    content = bytearray(image.data)
    record = image.layout.symbol
    value_at, section_at = (4, 3) if image.is64 else (1, 5)
    for table in image.sections:
        if table.type != elf.SHT_SYMTAB:
            continue
        extended = next((s for s in image.sections if s.type == elf.SHT_SYMTAB_SHNDX and s.link == table.number), None)
        for index in range(table.size // record.size):
            at = table.offset + index * record.size
            fields = list(record.unpack_from(content, at))
            section = fields[section_at]
            if section == elf.SHN_XINDEX and extended is not None:
                section = image.layout.u32.unpack_from(content, extended.offset + 4 * index)[0]
            if section in bases:
                fields[value_at] += bases[section]
                record.pack_into(content, at, *fields)
    return bytes(content)


# -- units -------------------------------------------------------------------------------------------------------------


def _look_up(dwarf: Any, addresses: Collection[int], tick: Callable[[], None]) -> dict[int, tuple[Frame, ...]]:
    found: dict[int, tuple[Frame, ...]] = {}
    left = set(addresses)
    for unit in itertools.chain(_units_with(dwarf, addresses), dwarf.iter_CUs()):
        if not left:
            break
        top = unit.get_top_DIE()
        covered = ranges(dwarf, unit, top, low_address(top))
        here = sorted(left if covered is None else (a for a in left if any(low <= a < high for low, high in covered)))
        if here:
            tick()
            lines = _Unit(dwarf, unit, top).frames(here)
            found.update(lines)
            left.difference_update(lines)
            forget(unit)
    return found


def _units_with(dwarf: Any, addresses: Collection[int]) -> Iterator[Any]:
    """Yield the units that .debug_aranges, where there is one, names for addresses: so others needn't be looked at."""
    table = dwarf.get_aranges()
    offsets = {table.cu_offset_at_addr(address) for address in addresses} if table is not None else set()
    for offset in sorted(offsets - {None}):
        yield dwarf.get_CU_at(offset)


class _Unit:
    def __init__(self, dwarf: Any, unit: Any, top: Any) -> None:
        self.dwarf, self.unit, self.top = dwarf, unit, top
        self.base = low_address(top)
        self.program = dwarf.line_program_for_CU(unit)
        self.folder = text(top, "DW_AT_comp_dir")

    def frames(self, addresses: list[int]) -> dict[int, tuple[Frame, ...]]:
        rows = self._rows(addresses)
        if not rows:
            return {}
        chains: dict[int, list[Any]] = {address: [] for address in rows}
        self._descend(self.top, sorted(rows), chains)
        return {address: tuple(self._chain(chains[address], *row)) for address, row in rows.items()}

    def _chain(self, calls: list[Any], file: int, line: int) -> Iterator[Frame]:
        """Yield the innermost line, and then for each inlined function where it was called.

        The function in which a generated header has the probe's branch is not one of the user's.
        """
        for die in reversed(calls):
            if not self._name(die).startswith(FIRING):
                yield Frame(self._file(file), line, self._name(die))
            if die.tag != "DW_TAG_inlined_subroutine":
                return
            file, line = (number(die, "DW_AT_call_file") or 0), (number(die, "DW_AT_call_line") or 0)
        yield Frame(self._file(file), line, "")

    # -- lines ---------------------------------------------------------------------------------------------------------

    def _rows(self, addresses: list[int]) -> dict[int, tuple[int, int]]:
        """Return file and line of each address: of the last row at or before it, within one sequence of rows."""
        found: dict[int, tuple[int, int]] = {}
        if self.program is None:
            return found
        before = None
        for entry in self.program.get_entries():
            state = entry.state
            if state is None:
                continue
            if before is not None and before.address < state.address:
                for at in range(bisect_right(addresses, before.address - 1), len(addresses)):
                    if addresses[at] >= state.address:
                        break
                    found.setdefault(addresses[at], (before.file, before.line))
            before = None if state.end_sequence else state
        return found

    def _file(self, number: int) -> str:
        """Return the path of file `number` of the line table (DWARF 5, 6.2.4: from 0 on; before from 1 on)."""
        if self.program is None:
            return ""
        header = self.program.header
        files, folders = header["file_entry"], header["include_directory"]
        since = 0 if header["version"] >= 5 else 1
        if not 0 <= number - since < len(files):
            return ""
        entry = files[number - since]
        at = entry.dir_index - since
        folder = folders[at] if 0 <= at < len(folders) else b""
        if not isinstance(folder, bytes):  # DWARF 5 has records of folders
            folder = folder.DW_LNCT_path if hasattr(folder, "DW_LNCT_path") else b""
        return posixpath.normpath(posixpath.join(self.folder, decoded(folder), decoded(entry.name)))

    # -- functions -----------------------------------------------------------------------------------------------------

    def _descend(self, die: Any, addresses: list[int], chains: dict[int, list[Any]]) -> None:
        """Add to each address's chain the functions that it is in, from the outermost to the innermost."""
        for child in die.iter_children():
            if child.tag in _AROUND:
                if child.has_children:
                    self._descend(child, addresses, chains)
                continue
            if child.tag not in _INSIDE:
                continue
            covered = ranges(self.dwarf, self.unit, child, self.base)
            if covered is None:  # a declaration, or an abstract function
                continue
            here = [a for a in addresses if any(low <= a < high for low, high in covered)]
            if child.tag in _CALLS:
                for address in here:
                    chains[address].append(child)
            if here and child.has_children:
                self._descend(child, here, chains)

    def _name(self, die: Any) -> str:
        """Return a function's linkage name, or else its name, from wherever its DIE refers to."""
        name = ""
        for one in origins(die):
            linkage = text(one, "DW_AT_linkage_name") or text(one, "DW_AT_MIPS_linkage_name")
            if linkage:
                return linkage
            name = name or text(one, "DW_AT_name")
        return name
