"""What is said of a file's functions: one record for each of them, and one for the file.

Only the records; how they come about is `read`, and how they are shown the command's business.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from ..record import NamedTuple
from .entry import Promise
from .table import Table

# Reasons of functions that have no entry: nothing a patcher would touch, so nothing that can go wrong.
HARMLESS = frozenset({"no-table", "no-entry", "cold-part", "machine"})

# What a hotpatchable function may be flagged with.
WARNINGS = {"crosses-cache-line": "its patch crosses a cache line: write it byte by byte, the second byte first"}


class Function(NamedTuple):
    """One function, or one table entry that belongs to none. Lengths are in bytes.

    `address` is the function's, in an object the offset in `section`. `reason` is a key of `REASONS`, empty if the
    function is hotpatchable; `detail` is the sentence about this one. `source` says where the name comes from: symtab,
    dynsym, debug file, debug data, export; for a nameless function: unwind table, or the table section itself.
    """

    name: str
    aliases: tuple[str, ...]
    address: int
    size: int
    hotpatchable: bool
    reason: str
    detail: str
    padding: int
    nops: int
    form: str
    source: str
    section: str = ""
    warnings: tuple[str, ...] = ()
    entry: int = 0  # the address as the address space has it, for whoever reads its bytes
    local_entry: int = 0  # ppc64le: behind how many bytes those who share its TOC enter it; others come by there, too
    landing: int = 0  # bytes of the landing pad between `address` and the entry's NOPs

    @property
    def names(self) -> tuple[str, ...]:
        """The function's name and its aliases."""
        return (self.name, *self.aliases) if self.name else ()


class FunctionReport(NamedTuple):
    """Everything about one file."""

    path: str
    machine: str
    type: str  # executable, shared library or PIE, object, ...
    promise: Promise | None
    tables: tuple[Table, ...]
    functions: tuple[Function, ...]
    debug_file: str = ""

    def totals(self, functions: Sequence[Function] | None = None) -> dict[str, int]:
        """Return how many functions are hotpatchable (key "") and how many are not, by reason, the most first."""
        counted = Counter(f.reason for f in (self.functions if functions is None else functions))
        patchable = counted.pop("", 0)
        ordered = sorted(counted.items(), key=lambda item: (-item[1], item[0]))
        return {"": patchable, **dict(ordered)}

    @property
    def relocations(self) -> int:
        """The dynamic relocations that the tables cost at every start of the program."""
        return sum(table.relocations for table in self.tables)
