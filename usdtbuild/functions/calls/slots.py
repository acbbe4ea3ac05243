"""The slots of a file: words that the dynamic linker fills with functions' addresses, and what they are called.

Nearly all of it comes from the dynamic segment, so that stripped files have it, and files without section headers
(`_stays` has the exception). Which code jumps through a slot is found by `read`.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Literal

from ...elf.dynamic import Dynamic
from ...elf.image import Image
from ...elf.relocations import Relocation
from ...elf.symbols import Symbol
from ...machines import stubs_of
from ...machines.stubs import CodeSpan, FileCode, LibraryCalls
from ...record import NamedTuple
from .model import BOUND, IFUNC, LAZY

_PF_X, _PF_W = 1, 2
_PT_GNU_RELRO = 0x6474E552
_DT_BIND_NOW, _DT_FLAGS, _DT_FLAGS_1, _DT_NEEDED = 24, 30, 0x6FFFFFFB, 1
_DF_BIND_NOW, _DF_1_NOW = 8, 1
_DT_INIT, _DT_INIT_ARRAY, _PT_INTERP = 12, 25, 3
_STT_NOTYPE, _STT_FUNC, STT_IFUNC = 0, 2, 10


class FilledSlot(NamedTuple):
    """One slot: its address, what fills it, its symbol's number (0: none) and its relocation's addend.

    `certain`: whatever the code looks like, the slot is for calls. `entry` is the address of the PLT entry that a
    lazily bound slot leads to first, where it has one for itself. `variable`:
    it may be a pointer that the program changes.
    """

    address: int
    kind: str
    symbol: int
    addend: int
    certain: bool
    in_place: bool = False
    entry: int = 0
    variable: bool = False


class SlotMap:
    """The slots of one file by address. Raises InputError where its dynamic segment is damaged."""

    def __init__(self, image: Image) -> None:
        """Read the relocations; `stubs` is None where the machine isn't known."""
        self.image = image
        self.dynamic = Dynamic(image)
        self.code = FileCode(
            image.layout.is64, image.little, image.flags, image.entry, self.dynamic.tags, _spans(image), self._pointer,
            image.bytes_at, image.unwind_header,
        )  # fmt: skip
        self.stubs: LibraryCalls | None = stubs_of(image.machine, self.code)
        self.static = not self.dynamic.tags
        self.lazy = not self.static and not self._binds_now()

    def _binds_now(self) -> bool:
        tags = self.dynamic.tags
        flags = tags.get(_DT_FLAGS, 0) & _DF_BIND_NOW or tags.get(_DT_FLAGS_1, 0) & _DF_1_NOW
        return bool(flags or _DT_BIND_NOW in tags)

    @cached_property
    def slots(self) -> dict[int, FilledSlot]:
        """All slots, by address."""
        found = {slot.address: slot for slot in self._found()}
        return {address: found[address] for address in sorted(found)}

    def _found(self) -> Iterator[FilledSlot]:
        stubs = self.stubs
        if stubs is None:
            return
        jumps: dict[int, int] = {}  # the order of slots: some relocations are there twice, in DT_RELA too
        for number, address in stubs.slots:
            if self._is_function(number):
                yield FilledSlot(address, BOUND, number, 0, certain=self._is_foreign_function(number))
        data = (
            self.dynamic.relocations if not self.static else list(of_static_program(self.image, self.code, stubs.ifunc))
        )
        for number, entry in enumerate((*data, *self.dynamic.jumps), -len(data)):
            if entry.type == stubs.jump:
                order = jumps.setdefault(entry.offset, len(jumps))
                in_place = order < stubs.in_place and self._runs(entry.offset)
                kind, asks = LAZY if self.lazy else BOUND, self._plt_entry(number, entry.offset)
                yield FilledSlot(entry.offset, kind, entry.symbol, entry.addend or 0, True, in_place, asks)
            elif entry.type in stubs.data and self._is_function(entry.symbol):
                variable = entry.type != stubs.data[0] and not self._stays(entry.offset)
                yield FilledSlot(entry.offset, BOUND, entry.symbol, entry.addend or 0, certain=False, variable=variable)
            elif entry.type in stubs.ifunc:
                in_place = bool(stubs.in_place) and self._runs(entry.offset)
                yield FilledSlot(
                    entry.offset, IFUNC, entry.symbol, self._addend(entry), certain=False, in_place=in_place
                )

    def _plt_entry(self, number: int, slot: int) -> int:
        """Return where the PLT entry of relocation `number` of DT_JMPREL is; 0 where it has none of its own."""
        lazy = self.stubs.lazy if self.stubs is not None else None
        found = lazy.entry(number, slot) if lazy is not None and number >= 0 else 0
        return found if self.code.executable(found) else 0

    def _stays(self, address: int) -> bool:
        """Whether a word isn't changed once the dynamic linker is done: it can't be, or is one of the linker's own.

        GNU ld leaves the global offset table of some machines where it can be written, and only the section headers
        tell it from the variables beside it.
        """
        if any(
            one.type == _PT_GNU_RELRO and one.address <= address < one.address + one.memory_size
            for one in self.image.segments
        ):
            return True
        section = self.image.section_at(address)
        return section is not None and section.name == ".got"

    def _runs(self, address: int) -> bool:
        segment = self.image.segment_at(address)
        return segment is not None and bool(segment.flags & _PF_X)

    def _is_function(self, number: int) -> bool:
        """Whether a symbol can be a function's: compilers give one that is undefined no type."""
        symbol = self.dynamic.symbol(number)
        return symbol is not None and symbol.type in {_STT_NOTYPE, _STT_FUNC, STT_IFUNC}

    def _is_foreign_function(self, number: int) -> bool:
        symbol = self.dynamic.symbol(number)
        return symbol is not None and symbol.type == _STT_FUNC and not symbol.section

    def _addend(self, entry: Relocation) -> int:
        if entry.addend is not None:
            return entry.addend
        return self._word(entry.offset) or 0  # SHT_REL: it stands in the slot

    def _word(self, address: int) -> int | None:
        size = self.image.address_size
        raw = self.image.bytes_at(address, size)
        return int.from_bytes(raw, "little" if self.image.little else "big") if len(raw) == size else None

    @cached_property
    def _relative(self) -> dict[int, int]:
        """Relocations without a symbol whose addend is not in place: address -> addend."""
        return {e.offset: e.addend for e in self.dynamic.relocations if not e.symbol and e.addend}

    def _pointer(self, address: int) -> int | None:
        return self._relative.get(address) or self._word(address)

    # -- names -------------------------------------------------------------------------------------------------------

    def symbol(self, slot: FilledSlot) -> Symbol | None:
        """Return the slot's symbol; None where it has none."""
        return self.dynamic.symbol(slot.symbol) if slot.symbol else None

    def version(self, slot: FilledSlot) -> tuple[str, str]:
        """Return the version of a slot's symbol and the library it is asked of; '' where there is none."""
        found = self.dynamic.version(slot.symbol) if slot.symbol else None
        return (found.name, found.library) if found else ("", "")

    def needed(self) -> tuple[str, ...]:
        """Return the names of the libraries that the file needs, in order."""
        return self.dynamic.texts(_DT_NEEDED)


def _spans(image: Image) -> tuple[CodeSpan, ...]:
    """Return the executable segments. One of a BSS PLT has no bytes in the file."""
    found = []
    for segment in image.loads:
        if segment.flags & _PF_X and segment.file_size:
            stop = min(segment.offset + segment.file_size, len(image.data))
            found.append(CodeSpan(segment.address, bytes(image.data[segment.offset : stop])))
    return tuple(found)


def of_static_program(image: Image, code: FileCode, types: tuple[int, ...]) -> Iterator[Relocation]:
    """Yield the relocations of IFUNCs in a program without a dynamic segment, which its own start code applies.

    Symbols say where they begin and end, but stripped programs have none. So they are told by what they are: a word
    for a type of an IFUNC and no symbol, behind the address of a slot, before that of a resolver (RELA), or with it in
    the slot (REL).
    """
    size = image.address_size
    order: Literal["little", "big"] = "little" if image.little else "big"

    for segment in image.loads:
        raw = bytes(image.data[segment.offset : segment.offset + segment.file_size])
        for type_ in types:
            info, at = type_.to_bytes(size, order), -1
            while (at := raw.find(info, at + 1)) >= 0:
                if at % size or at < size:
                    continue
                slot, addend = (int.from_bytes(raw[at + step : at + step + size], order) for step in (-size, size))
                home = image.segment_at(slot)
                if slot % size or home is None or not home.flags & _PF_W:
                    continue
                if code.executable(addend):
                    yield Relocation(slot, type_, 0, addend)
                elif size == 4 and code.executable(code.pointer(slot) or 0):
                    yield Relocation(slot, type_, 0, None)
                elif code.executable(code.pointer(addend) or 0):  # a function descriptor
                    yield Relocation(slot, type_, 0, addend)


def beginning(image: Image) -> int:
    """Return where a file's own code begins: a program's entry, a library's first initializer; 0 where there is none.

    No code of the file runs before. A library has been relocated then, and a program too.
    """
    slots = SlotMap(image)
    tags, code = slots.dynamic.tags, slots.code
    found = tags.get(_DT_INIT, 0)
    if image.entry and any(segment.type == _PT_INTERP for segment in image.segments):
        found = image.entry
    if not found and tags.get(_DT_INIT_ARRAY):
        found = code.pointer(tags[_DT_INIT_ARRAY]) or 0
    if found and not code.executable(found):  # a descriptor's address
        found = code.pointer(found) or 0
    return found if code.executable(found) else 0
