"""The symbol tables of one opened file, each read once: by type, by section, and by what their names hold.

What a table's columns are is `elf.symbols`' business, which function is around an address `elf.image`'s.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

from . import layout
from .headers import Headers
from .sections import ImageSection, content_of
from .symbols import Strings, Symbol, SymbolTable


class SymbolTables:
    """The tables among `sections`."""

    def __init__(self, sections: list[ImageSection], headers: Headers) -> None:
        self._sections, self._headers = sections, headers
        self._read: dict[int, SymbolTable] = {}  # by the number of their section

    @cached_property
    def by_type(self) -> dict[int, ImageSection]:
        """The sections of tables that can be read, by type (SHT_SYMTAB, SHT_DYNSYM); the first of each."""
        found: dict[int, ImageSection] = {}
        for section in self._sections:
            strings = self._sections[section.link] if section.link < len(self._sections) else section
            if section.type in {layout.SHT_SYMTAB, layout.SHT_DYNSYM} and strings.type == layout.SHT_STRTAB:
                found.setdefault(section.type, section)
        return found

    def at(self, table: ImageSection) -> SymbolTable:
        """Return the table that a section holds, whose link must be a section's number. Raises InputError."""
        if table.number not in self._read:
            extended = None
            for section in self._sections:
                if section.type == layout.SHT_SYMTAB_SHNDX and section.link == table.number:
                    extended = content_of(section, self._headers)
            content = content_of(table, self._headers)
            self._read[table.number] = SymbolTable(content, self._headers.layout, self._strings(table), extended)
        return self._read[table.number]

    def containing(self, kind: int, text: bytes) -> Iterator[tuple[int, Symbol]]:
        """Yield (number, symbol) of a table where the name contains `text`; cheap where no name of it does."""
        table = self.by_type.get(kind)
        if table is not None and self._strings(table).holds(text):
            yield from self.at(table).containing(text)

    def _strings(self, table: ImageSection) -> Strings:
        strings = self._sections[table.link]
        self._headers.within(strings.offset, strings.size, f"section {strings.name or strings.number}")
        return Strings(self._headers.data, strings.offset, strings.offset + strings.size)
