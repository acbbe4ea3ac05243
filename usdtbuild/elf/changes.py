"""What is to change in one object: new sections, symbols and relocations, and what becomes of those that there are.

`edit` collects the changes, `finish` turns them into bytes; both stand on this module.
"""

from __future__ import annotations

from ..record import NamedTuple
from . import layout

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from .layout import SectionIndex, SymbolIndex
    from .object import ElfObject, Reference
    from .relocations import RepeatedRelocations

    # What is new is kept in plain tuples, of which an object has dozens: named ones cost three times as much to make.
    NewSymbol = tuple[str, int, int, int, int, int]  # name, info, other, section, value, size
    NewSection = tuple[str, int, int, bytes, int, int, int, int]  # name, type, flags, data, link, info, align, entsize

ABSOLUTE = layout.SectionIndex(-1)  # in place of a section's number: the symbol's value is no address


class NewRelocation(NamedTuple):
    """A relocation in a new section. `symbol` is a symbol index of the input or a handle that this module gave.

    Where relocations of an object carry no addend (SHT_REL), it is added to the 32-bit word at `offset`.
    """

    offset: int
    type: int
    symbol: int
    addend: int


class NewRelocations:
    """The relocations of a new section as columns, which are written a column at a time; a row is a `NewRelocation`."""

    __slots__ = ("addends", "offsets", "symbols", "types")

    def __init__(self, rows: Iterable[NewRelocation] = ()) -> None:
        self.offsets: list[int] = []
        self.types: list[int] = []
        self.symbols: list[int] = []
        self.addends: list[int] = []
        self.extend(rows)

    def __len__(self) -> int:
        return len(self.offsets)

    def extend(self, rows: Iterable[NewRelocation]) -> None:
        """Add relocations behind those that there are."""
        columns = (self.offsets, self.types, self.symbols, self.addends)
        for column, values in zip(columns, zip(*rows)):
            column.extend(values)


class ObjectChanges:
    """The changes to one object, which is `source`. A symbol that is new has a negative handle (`edit`)."""

    __slots__ = (
        "changed_symbols",
        "dropped",
        "emptied",
        "extended",
        "globals",
        "group_members",
        "labels",
        "layout",
        "left",
        "more_relocations",
        "new_groups",
        "osabi",
        "patches",
        "relocations",
        "retargeted",
        "sections",
        "source",
        "uses_rela",
    )

    def __init__(self, source: ElfObject) -> None:
        """Begin without changes; `source` is not modified."""
        self.source = source
        self.layout = source.layout
        self.patches: list[tuple[int, bytes]] = []
        self.labels: list[NewSymbol] = []
        self.globals: list[NewSymbol] = []
        self.changed_symbols: dict[SymbolIndex, tuple[int, int, SectionIndex | None, int | None, int | None]] = {}
        self.retargeted: list[tuple[Reference, int, int, int]] = []
        self.sections: list[NewSection] = []
        self.relocations: dict[int, tuple[int, NewRelocations | RepeatedRelocations]] = {}
        self.left: list[SymbolIndex] = []
        self.group_members: dict[int, list[int]] = {}
        self.new_groups: dict[int, tuple[int, list[int]]] = {}
        self.extended: dict[SectionIndex, bytearray] = {}
        self.more_relocations: dict[SectionIndex, NewRelocations] = {}  # existing section of relocations -> more
        self.emptied: list[SectionIndex] = []
        self.dropped: list[SectionIndex] = []
        self.osabi: int | None = None
        # Whether relocations carry their addends: those of the object say so, else 64-bit ones do.
        tables = source.of_type(layout.SHT_RELA, layout.SHT_REL)
        self.uses_rela = source.sections[tables[0]].type == layout.SHT_RELA if tables else self.layout.is64
