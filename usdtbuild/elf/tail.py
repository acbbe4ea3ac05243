"""What is appended to an edited object, and the numbers that its symbols get.

`finish` writes sections and headers here, `finish_symbols` the symbol and string tables; both stand on this module.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from .changes import ObjectChanges
    from .headers import SectionHeader
    from .layout import SymbolIndex

    # The fields of a section header that is written, in file order.
    Header = tuple[int, int, int, int, int, int, int, int, int, int]


class Tail:
    """The end of one object: appended bytes, the headers that change or are new, and final symbol numbers."""

    def __init__(self, changes: ObjectChanges) -> None:
        self.changes = changes
        self.source = changes.source
        self.layout = changes.layout
        self.tail = bytearray()
        self.base = len(self.source.data)
        self.patches = changes.patches
        self.changed: dict[int, Header | SectionHeader] = {}  # headers of existing sections
        self.added: list[Header] = []  # headers of new ones
        self.first_global = self.source.sections[self.source.symtab].info
        self.count = self.source.symbol_count
        labels = len(changes.labels)
        # The first globals give their places to the labels and go to the end, in order.
        stop = min(self.first_global + labels, self.count)
        start = max(self.count, self.first_global + labels)
        moved = range(self.first_global, stop)
        self.moved: dict[SymbolIndex, int] = dict(zip(moved, range(start, start + len(moved))))  # type: ignore[arg-type]
        # A handle is a negative number, and counts from the end of this: labels in every second place, globals between.
        most = max(labels, len(changes.globals))
        self.handles = [0] * (2 * most)
        self.handles[-2::-2] = range(self.first_global, self.first_global + most)
        self.handles[-1::-2] = range(self.count + labels, self.count + labels + most)

    def number(self, symbol: int) -> int:
        """Return the final index of an input symbol or of a handle."""
        return self.handles[symbol] if symbol < 0 else self.moved.get(symbol, symbol)  # type: ignore[call-overload]

    def number_all(self, symbols: Iterable[int]) -> dict[int, int]:
        """Return the final index of each of these input symbols and handles."""
        handles, moved = self.handles, self.moved
        return {symbol: handles[symbol] if symbol < 0 else moved.get(symbol, symbol) for symbol in symbols}  # type: ignore[call-overload]

    def append(self, data: bytes | bytearray, align: int) -> int:
        """Append to the tail at an aligned file offset, and return that offset.

        Sixteen bytes are enough for any record; a section aligned to a page needs no page of padding in an object.
        """
        tail = self.tail
        end = self.base + len(tail)
        if align > 1:
            padding = -end % min(align, 16)
            if padding:
                tail += bytes(padding)
                end += padding
        tail += data
        return end

    def header(self, index: int) -> Header | SectionHeader:
        """Return the header that an existing section has so far."""
        return self.changed.get(index) or self.source.sections[index]

    def place_header(self, index: int, offset: int, size: int, info: int | None = None) -> None:
        """Let an existing section be somewhere else in the file, and maybe have another info field."""
        name, type_, flags, address, _, _, link, before, align, entsize = self.header(index)
        info = before if info is None else info
        self.changed[index] = (name, type_, flags, address, offset, size, link, info, align, entsize)
