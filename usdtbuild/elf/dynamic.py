"""What the dynamic linker reads of a program or library: PT_DYNAMIC, and through it symbols and relocations.

All of it is found by addresses, and none of it by section headers, so it is there in a stripped file, and in one
without section headers too. Relocations of every kind (DT_RELA, DT_REL, DT_RELR and DT_JMPREL) come out as one kind of
record; which types make a slot, and which code jumps through it, the machines know. Source: gABI, chapter 5; for
DT_GNU_HASH binutils' `bfd/elflink.c`; glibc's `elf/dl-lookup.c` for versions.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from struct import error as struct_error

from ..record import NamedTuple
from .image import Image
from .relocations import Relocation, decode, relr, words
from .symbols import Strings, Symbol, SymbolTable
from .tags import (
    DT_GNU_HASH,
    DT_HASH,
    DT_JMPREL,
    DT_PLTREL,
    DT_PLTRELSZ,
    DT_REL,
    DT_RELA,
    DT_RELASZ,
    DT_RELR,
    DT_RELRSZ,
    DT_RELSZ,
    DT_STRSZ,
    DT_STRTAB,
    DT_SYMTAB,
    DT_VERDEF,
    DT_VERDEFNUM,
    DT_VERNEED,
    DT_VERNEEDNUM,
    DT_VERSYM,
    read_tags,
)

# VERSYM_VERSION: the bit above it says that a definition is not the default one.
_VERSION_BITS = 0x7FFF


class Version(NamedTuple):
    """A symbol's version: its name (`GLIBC_2.34`), and the library it is wanted of ('' for one defined here)."""

    name: str
    library: str


class Dynamic:
    """The dynamic segment of one file. Raises InputError where what it names is not in the file."""

    def __init__(self, image: Image) -> None:
        """Read the tags; of a repeated tag the last counts (`texts` has all)."""
        self.image = image
        self.tags = dict(read_tags(image.data, image.segments, image.layout))

    def _bytes(self, address: int, size: int, what: str) -> bytes:
        found = self.image.bytes_at(address, size)
        if len(found) < size:
            raise self.image.error(f"{what} at {address:#x} with {size:#x} bytes is not in the file")
        return found

    def _table(self, at: int, size: int, what: str) -> bytes:
        """Return the bytes of a table that two tags name by address and size; none where they are not there."""
        return self._bytes(self.tags[at], self.tags[size], what) if at in self.tags and size in self.tags else b""

    def texts(self, tag: int) -> tuple[str, ...]:
        """Return the strings that tags of a kind name (DT_NEEDED is there many times), in order."""
        return tuple(
            self._text(value)
            for found, value in read_tags(self.image.data, self.image.segments, self.image.layout)
            if found == tag
        )

    # -- relocations -------------------------------------------------------------------------------------------------

    @cached_property
    def jumps(self) -> list[Relocation]:
        """The relocations of DT_JMPREL: one for each function that is called through a slot of the PLT."""
        rela = self.tags.get(DT_PLTREL) == DT_RELA
        return self._decode(self._table(DT_JMPREL, DT_PLTRELSZ, "DT_JMPREL"), rela=rela)

    @cached_property
    def relocations(self) -> list[Relocation]:
        """The relocations of DT_RELA and DT_REL. Some linkers count those of DT_JMPREL among them."""
        rela = self._decode(self._table(DT_RELA, DT_RELASZ, "DT_RELA"), rela=True)
        return rela + self._decode(self._table(DT_REL, DT_RELSZ, "DT_REL"), rela=False)

    @cached_property
    def relative(self) -> list[int]:
        """The addresses of DT_RELR: words to which only the load address is added. No slot is among them."""
        return list(relr(self._table(DT_RELR, DT_RELRSZ, "DT_RELR"), self.image.layout))

    def _decode(self, content: bytes, *, rela: bool) -> list[Relocation]:
        return list(decode(content, self.image.layout, self.image.machine, rela=rela))

    # -- symbols -----------------------------------------------------------------------------------------------------

    @cached_property
    def symbols(self) -> SymbolTable | None:
        """The dynamic symbol table, whose length no tag gives: it is that of the hash tables and of what names it."""
        strings = self._strings
        if DT_SYMTAB not in self.tags or strings is None:
            return None
        size = self.image.layout.symbol.size
        content = self._bytes(self.tags[DT_SYMTAB], self._symbol_count() * size, "the dynamic symbol table")
        return SymbolTable(memoryview(content), self.image.layout, strings, None)

    @cached_property
    def _strings(self) -> Strings | None:
        if DT_STRTAB not in self.tags:
            return None
        start = self.image.file_offset(self.tags[DT_STRTAB])
        if start is None:
            raise self.image.error(f"the dynamic string table at {self.tags[DT_STRTAB]:#x} is not in the file")
        return Strings(self.image.data, start, start + self.tags.get(DT_STRSZ, 0))

    def symbol(self, number: int) -> Symbol | None:
        """Return dynamic symbol `number`; None where there is no such symbol, and for 0."""
        table = self.symbols
        return table.symbol(number) if table is not None and 0 < number < table.count else None

    def _symbol_count(self) -> int:
        named = max((entry.symbol for entry in (*self.jumps, *self.relocations)), default=0) + 1
        try:
            if DT_HASH in self.tags:
                # Words of 32 bits, but of 64 on s390x and Alpha; the second word is then a high half, and 0.
                head = words(self._bytes(self.tags[DT_HASH], 16, "DT_HASH"), 4, self.image.layout)
                return max(named, head[1] or head[3])
            return max(named, self._gnu_hash_count()) if DT_GNU_HASH in self.tags else named
        except (struct_error, IndexError):
            raise self.image.error("the hash table of its dynamic symbols is damaged") from None

    def _gnu_hash_count(self) -> int:
        """Return one more than the last symbol that DT_GNU_HASH finds: chains end at a hash with bit 0 set."""
        start = self.tags[DT_GNU_HASH]
        buckets, first, blooms, _ = words(self._bytes(start, 16, "DT_GNU_HASH"), 4, self.image.layout)
        start += 16 + blooms * self.image.address_size
        last = max(words(self._bytes(start, 4 * buckets, "DT_GNU_HASH"), 4, self.image.layout), default=0)
        if last < first:
            return first
        start += 4 * buckets
        while not words(self._bytes(start + 4 * (last - first), 4, "DT_GNU_HASH"), 4, self.image.layout)[0] & 1:
            last += 1
        return last + 1

    # -- versions ----------------------------------------------------------------------------------------------------

    def version(self, number: int) -> Version | None:
        """Return the version of dynamic symbol `number`; None where it has none (or is local or global without one)."""
        numbers = self._version_numbers
        return self._versions.get(numbers[number] & _VERSION_BITS) if number < len(numbers) else None

    @cached_property
    def _version_numbers(self) -> Sequence[int]:
        table = self.symbols
        if DT_VERSYM not in self.tags or table is None:
            return ()
        return words(self.image.bytes_at(self.tags[DT_VERSYM], 2 * table.count), 2, self.image.layout)

    @cached_property
    def _versions(self) -> dict[int, Version]:
        """Version numbers -> versions, wanted (DT_VERNEED) and defined (DT_VERDEF) ones."""
        found: dict[int, Version] = {}
        for need in self._chain(DT_VERNEED, DT_VERNEEDNUM, 16):
            library, auxiliary = self._words(need, 16)[1:3]
            count, at = self._halves(need, 4)[1], need + auxiliary
            for _ in range(count):
                _, _, name, step = self._words(at, 16)
                found[self._halves(at, 8)[3] & _VERSION_BITS] = Version(self._text(name), self._text(library))
                at += step
        for definition in self._chain(DT_VERDEF, DT_VERDEFNUM, 20):
            number, auxiliary = self._halves(definition, 6)[2], self._words(definition, 16)[3]
            name = self._words(definition + auxiliary, 4)[0]
            found.setdefault(number & _VERSION_BITS, Version(self._text(name), ""))
        return found

    def _chain(self, first: int, count: int, size: int) -> Iterator[int]:
        """Yield the addresses of a chain's records: the last word of each is the distance to the next, or 0."""
        at = self.tags.get(first, 0)
        for _ in range(self.tags.get(count, 0) if at else 0):
            yield at
            step = self._words(at, size)[-1]
            if not step:
                break
            at += step

    def _words(self, at: int, size: int) -> Sequence[int]:
        return words(self._bytes(at, size, "a table of its versions"), 4, self.image.layout)

    def _halves(self, at: int, size: int) -> Sequence[int]:
        return words(self._bytes(at, size, "a table of its versions"), 2, self.image.layout)

    def _text(self, offset: int) -> str:
        strings = self._strings
        return strings.at(offset).decode("utf-8", "backslashreplace") if strings else ""
