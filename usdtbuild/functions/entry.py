"""The check that prevents crashes: are the bytes around one table entry exactly what N,M promises?

Three steps. `measure` finds the function an entry belongs to and reads what stands there, without an opinion.
`find_promise` says which N,M the file was compiled with, when nobody did. `judge` compares the two; the first thing
that is wrong becomes the entry's reason. What it can't see from bytes alone (a branch into them) is left to `jumps`.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from itertools import groupby
from typing import TYPE_CHECKING

from ..machines.nops import nop_at
from ..record import NamedTuple
from ..text import plural
from . import nops

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ..machines.facts import Entries as Machine
    from .symbols import FunctionSymbol
    from .table import TableEntry

    Read = Callable[[int, int], bytes]

_ALIGNMENT = 64  # bytes of code that a loop's alignment takes at most
# gcc's own limit on N is 65535 (opts.c, maximum of a 16-bit count); four bytes is the widest NOP it repeats.
LONGEST_PADDING = 65535 * 4
CACHE_LINE = 64

# Every reason a function can have, and what it says in totals. Documented one by one in docs/functions.md.
REASONS = {
    "no-table": "the file has no table of patchable entries",
    "no-entry": "not in the table: compiled without the option or with the attribute (0,0), or assembly",
    "cold-part": "the cold part of another function, which is never entered by a call",
    "lost-entry": "the NOPs are there, but no entry of the table leads to them",
    "machine": "what a patchable entry looks like is not known for this machine",
    "null-entry": "the table entry is null",
    "table-truncated": "the table's size is no multiple of its entries'",
    "table-misaligned": "the table is not aligned to its entries",
    "table-not-loaded": "the table is not loaded with the program",
    "unresolved": "the table entry is not made by an address of this file",
    "entry-not-relocated": "the table entry stays a link-time address in a program that is moved",
    "duplicate": "an earlier table entry names the same address",
    "entry-misaligned": "the entry is not at an instruction's alignment",
    "not-executable": "the entry is outside the executable segments",
    "not-a-function": "the entry is not at a function symbol",
    "padding-not-nops": "the padding has other instructions than NOPs",
    "padding-arm": "the padding is ARM code, the function Thumb: gcc does this to the first function of a file",
    "padding-short": "less padding than promised",
    "padding-long": "more padding than promised",
    "entry-not-nops": "the entry has other instructions than NOPs",
    "entry-short": "fewer NOPs at the entry than promised",
    "entry-long": "more NOPs at the entry than promised",
    "other-nm": "another N,M than promised, before and at the entry",
    "toc": "the NOPs come before the instructions that compute the TOC pointer, so these compute a wrong one",
    "too-small": "N,M leaves too little room for a patch",
    "hlt": "the patch's second byte would be a harmful instruction",
    "long-nop": "the entry begins with a NOP of more than 2 bytes, which half a patch makes a harmful instruction",
    "jump-into-padding": "a branch goes into the padding",
    "jump-into-entry": "a branch goes into the middle of the entry's NOPs",
    "changed-in-memory": "the process has other bytes at the entry than the file",
    "not-one-store": "the entry's NOPs can't be replaced by one store",
}


class Start(NamedTuple):
    """One place where a function starts: its best symbol, and its other names."""

    address: int
    size: int
    name: str
    aliases: tuple[str, ...]
    source: str
    thumb: bool = False
    ifunc: bool = False
    local_entry: int = 0


class Starts:
    """The functions of a file by address."""

    def __init__(self, symbols: Sequence[FunctionSymbol], unwind: Sequence[int]) -> None:
        """Join the `symbols` (sorted by address) of one address; add `unwind` starts that no symbol names."""
        self.by_address: dict[int, Start] = {}
        for s in symbols:
            known = self.by_address.get(s.address)
            if known is None:
                self.by_address[s.address] = Start(
                    s.address, s.size, s.name, (), s.source, s.thumb, s.ifunc, s.local_entry
                )
            elif s.name != known.name:
                more = known.aliases if s.name in known.aliases else (*known.aliases, s.name)
                self.by_address[s.address] = known._replace(aliases=more, size=max(known.size, s.size))
        self.named = len(self.by_address)
        for address in unwind:
            if address not in self.by_address:
                self.by_address[address] = Start(address, 0, "", (), "unwind table")
        self.addresses = sorted(self.by_address)

    def at_or_after(self, address: int) -> Start | None:
        """Return the first function at or after `address`."""
        index = bisect_left(self.addresses, address)
        return self.by_address[self.addresses[index]] if index < len(self.addresses) else None

    def around(self, address: int) -> Start | None:
        """Return the last function at or before `address`, whether or not it reaches that far."""
        index = bisect_right(self.addresses, address) - 1
        return self.by_address[self.addresses[index]] if index >= 0 else None


class Measured(NamedTuple):
    """What stands at an entry. Lengths are in bytes; `unit` is the length of the compiler's one NOP there."""

    table_address: int
    start: Start | None  # None: no symbol to be had
    entry: int  # the function's address, as far as known
    padding: int = 0
    landing: int = 0
    landing_name: str = ""
    patch_at: int = 0
    pieces: tuple[int, ...] = ()  # the NOPs at the entry, one length each
    unit: int = 1
    problem: str = ""
    detail: str = ""

    @property
    def nops(self) -> int:
        """Bytes of NOPs at the entry."""
        return sum(self.pieces)


class Promise(NamedTuple):
    """N,M in the compiler's NOPs, and where they are known from: given, found, usual."""

    n: int
    m: int
    origin: str

    def __str__(self) -> str:
        return f"{self.n},{self.m}"


# -- measuring -------------------------------------------------------------------------------------------------------


def nop_run(machine: Machine, code: bytes, at: int, end: int) -> tuple[int, ...]:
    """Return the lengths of the NOPs from `at` on, as far as the compiler's own go.

    Of one-byte NOPs and of fixed lengths only equal ones belong together: what follows them in another length is the
    alignment of a loop. Long x86 NOPs are what clang makes of any count.
    """
    pieces: list[int] = []
    while at < end:
        length = nop_at(machine, code, at)
        alike = not pieces or length == pieces[0] or (machine.align == 1 and pieces[0] > 1)
        if not length or at + length > end or not alike:
            break
        pieces.append(length)
        at += length
    return tuple(pieces)


def all_nops(machine: Machine, code: bytes) -> int:
    """Return the length of the first NOP if `code` is NOPs to its last byte, else 0."""
    first = nop_at(machine, code, 0)
    if not first:
        return 0
    if code == code[:first] * (len(code) // first):
        return first
    at = 0
    while at < len(code):
        length = nop_at(machine, code, at)
        if not length:
            return 0
        at += length
    return first if at == len(code) else 0


def measure(entry: TableEntry, machine: Machine, starts: Starts, read: Read, complete: bool) -> Measured:
    """Find the function of a table entry and read its NOPs. `complete`: every function has a symbol."""
    address = entry.address
    around = starts.around(address)
    if around is not None and around.address < address < around.address + around.size:
        return _inside(address, around, machine, read)
    start = starts.at_or_after(address)
    if start is not None and start.address - address <= LONGEST_PADDING:
        gap = start.address - address
        unit = all_nops(machine, read(address, gap)) if gap else 0
        if gap == 0 or unit:
            return _at_function(address, start, gap, unit, machine, read)
        if start.thumb and all_nops(machine._replace(nops=machine.foreign_nops), read(address, gap)):
            return Measured(address, start, start.address, gap, problem="padding-arm")
        if complete:
            return Measured(address, start, start.address, gap, problem="padding-not-nops")
    if complete:
        return Measured(address, None, address, problem="not-a-function", detail=_stray(address, around))
    return _nameless(address, machine, read)


def _stray(address: int, around: Start | None) -> str:
    if around is None:
        return "no function symbol follows its NOPs"
    return f"no function symbol follows its NOPs; it is {address - around.address:#x} bytes after {around.name}"


def _inside(address: int, start: Start, machine: Machine, read: Read) -> Measured:
    """M = 0 puts the entry behind the landing pad; ppc64le's belongs to the local entry point."""
    before = read(start.address, address - start.address)
    length, name = nops.landing_pad(machine, before)
    if length and length == len(before):
        return _entry_nops(Measured(address, start, start.address, 0, length, name, address), machine, read)
    if start.local_entry and len(before) <= start.local_entry and not nop_at(machine, before, 0):
        gap = start.address + start.local_entry - address
        unit = all_nops(machine, read(address, gap)) if gap else 4
        if unit:
            found = Measured(address, start, start.address, gap, 0, "", address + gap, unit=unit)
            return _entry_nops(found, machine, read)
    detail = f"it lies {address - start.address} bytes inside {start.name or hex(start.address)}"
    return Measured(address, start, start.address, problem="not-a-function", detail=detail)


def _at_function(address: int, start: Start, gap: int, unit: int, machine: Machine, read: Read) -> Measured:
    length, name = nops.landing_pad(machine, read(start.address, 8))
    patch_at = start.address + length
    if start.local_entry:
        code = read(start.address, start.local_entry + 4)
        if nop_at(machine, code, 0):
            pieces = nop_run(machine, code, 0, len(code))
            found = Measured(address, start, start.address, gap, patch_at=start.address, pieces=pieces, unit=4)
            return found._replace(problem="toc")
        patch_at = start.address + start.local_entry
    found = Measured(address, start, start.address, gap, length, name, patch_at, unit=unit)
    return _entry_nops(found, machine, read)


def _entry_nops(found: Measured, machine: Machine, read: Read) -> Measured:
    end = LONGEST_PADDING
    if found.start is not None and found.start.size:
        end = max(found.start.address + found.start.size - found.patch_at, 0)
    code = read(found.patch_at, min(32, end))
    pieces = nop_run(machine, code, 0, len(code))
    while pieces and sum(pieces) > len(code) - 15 and len(code) == min(len(code), end) and len(code) < end:
        longer = read(found.patch_at, min(len(code) * 4, end))
        if len(longer) == len(code):
            break
        code = longer
        pieces = nop_run(machine, code, 0, len(code))
    unit = found.unit if found.padding else (pieces[0] if pieces and machine.align > 1 else machine.units[0])
    return found._replace(pieces=pieces, unit=unit)


def _nameless(address: int, machine: Machine, read: Read) -> Measured:
    """No symbol says where the function starts: NOPs up to a landing pad are padding, else that is left open (-1).

    `paciasp` is a landing pad too, but compilers put it behind an entry's NOPs, never between padding and entry.
    """
    code = read(address, 4096)
    pieces = nop_run(machine, code, 0, len(code))
    padding = sum(pieces)
    length, name = nops.landing_pad(machine, code, padding)
    length = 0 if name.startswith("paci") else length
    unit = pieces[0] if pieces else machine.units[0]
    if length or (pieces and nop_at(machine, code, padding)):  # clang: one-byte padding, one long NOP at the entry
        entry = address + padding
        found = Measured(address, None, entry, padding, length, name, entry + length, unit=unit)
        return _entry_nops(found, machine, read)
    return Measured(address, None, -1, 0, 0, "", address, pieces, unit)


def settle(found: Measured, promise: Promise) -> Measured:
    """Divide a nameless entry's NOPs as the promise says. NOPs at an entry that was promised none are not its own."""
    if found.entry != -1:
        return found._replace(pieces=()) if promise.n == promise.m else found
    count = len(found.pieces)
    padding = found.pieces[: min(promise.m, count)]
    entry = found.table_address + sum(padding)
    return found._replace(entry=entry, padding=sum(padding), patch_at=entry, pieces=found.pieces[len(padding) :])


# -- the promise -----------------------------------------------------------------------------------------------------


def pair(found: Measured) -> tuple[int, int]:
    """Return the N,M that the measured bytes look like."""
    m = found.padding // found.unit
    return m + found.nops // found.unit, m


def find_promise(machine: Machine, measured: Sequence[Measured]) -> Promise:
    """Return the N,M that most entries have, of those that can be patched at all; else the machine's usual one."""
    pairs: Counter[tuple[int, int]] = Counter()
    for found in measured:
        if found.problem:
            continue
        if found.entry == -1:
            n, m = machine.scheme
            if len(found.pieces) == n:
                pairs[n, m] += 1
        elif found.pieces and not nops.too_small(machine, found.padding, found.nops):
            pairs[pair(found)] += 1
    if not pairs:
        return Promise(*machine.scheme, "usual")
    best = max(pairs, key=lambda p: (pairs[p], p == machine.scheme, p))
    return Promise(*best, "found")


# -- judging ---------------------------------------------------------------------------------------------------------


def judge(found: Measured, promise: Promise, machine: Machine, executable: Callable[[int], bool]) -> tuple[str, str]:
    """Return the reason why an entry can't be patched and a sentence about it, or ("", "").

    `entry-long` is left to the caller where the NOPs too many may be a loop's alignment.
    """
    if not executable(found.table_address) or (found.entry != -1 and not executable(found.entry)):
        return "not-executable", f"{found.table_address:#x} is outside the executable segments"
    if found.table_address % machine.align:
        return "entry-misaligned", f"{found.table_address:#x} is no multiple of {machine.align}"
    if found.problem == "toc":
        return "toc", REASONS["toc"]
    padding, size = promise.m * found.unit, (promise.n - promise.m) * found.unit
    if found.problem == "padding-not-nops" and found.padding != padding:
        return "not-a-function", (f"no function symbol follows its NOPs; the next is {found.padding} bytes after it")
    if found.problem:
        return found.problem, found.detail or REASONS[found.problem]
    return _lengths(found, promise, padding, size) or _room(found, machine)


def _lengths(found: Measured, promise: Promise, padding: int, size: int) -> tuple[str, str] | None:
    if not found.pieces:
        return "entry-not-nops", f"the entry does not start with a NOP, and {promise} promises {size} bytes of them"
    wrong_padding, wrong_nops = found.padding != padding, found.nops != size
    if not wrong_padding and not wrong_nops:
        return None
    own = f"its own N,M is {','.join(str(number) for number in pair(found))}, not {promise}"
    if wrong_padding and wrong_nops:
        return "other-nm", f"{plural(found.padding, 'byte')} of padding and {found.nops} at the entry: {own}"
    if wrong_padding:
        code = "padding-short" if found.padding < padding else "padding-long"
        return code, f"{plural(found.padding, 'byte')} of padding, not {padding}: {own}"
    code = "entry-short" if found.nops < size else "entry-long"
    return code, f"{plural(found.nops, 'byte')} of NOPs at the entry, not {size}: {own}"


def _room(found: Measured, machine: Machine) -> tuple[str, str]:
    small = nops.too_small(machine, found.padding, found.nops)
    if small:
        return ("too-small" if machine.ways else "not-one-store"), small
    if nops.has_long_nops(machine):
        hazard = nops.second_byte_hazard(found.padding, found.landing)
        if hazard:
            return "hlt", f"the second byte of a jump from the entry to its padding would be {hazard}"
        hazard = nops.long_nop_hazard(found.pieces[0])
        if hazard:
            return "long-nop", hazard
    return "", ""


def may_be_alignment(found: Measured, promise: Promise, machine: Machine, read: Read) -> int:
    """Return the address where the NOPs end if those too many could align a loop head there, else 0.

    Assemblers fill up with NOPs of several lengths, the shortest first.
    """
    wanted = (promise.n - promise.m) * found.unit
    sums = 0
    for piece in found.pieces:
        sums += piece
        if sums >= wanted:
            break
    if sums != wanted or found.nops <= wanted:
        return 0
    start = end = found.patch_at + found.nops
    code = read(start, _ALIGNMENT)
    while length := nop_at(machine, code, end - start):
        end += length
    return end if end % 8 == 0 else 0


def may_be_relaxed(found: Measured, promise: Promise, machine: Machine) -> bool:
    """Whether the one NOP too many may be the linker's, in place of an instruction that it found to be needless."""
    return bool(machine.relaxed) and found.nops == (promise.n - promise.m) * found.unit + machine.relaxed


def without_alignment(found: Measured, promise: Promise) -> Measured:
    """Leave out the NOPs that turned out not to be the entry's."""
    wanted = (promise.n - promise.m) * found.unit
    pieces: list[int] = []
    for piece in found.pieces:
        if sum(pieces) >= wanted:
            break
        pieces.append(piece)
    return found._replace(pieces=tuple(pieces))


def protected(found: Measured) -> tuple[range, range]:
    """Return the addresses no branch may go to: the padding, and the inside of the entry's NOPs."""
    return (
        range(found.entry - found.padding, found.entry),
        range(found.patch_at + 1, found.patch_at + found.nops),
    )


def cache_line(found: Measured, machine: Machine) -> bool:
    """Whether the patch of an entry would cross a cache line."""
    way = next((way for way in machine.ways if found.nops >= way.entry), None)
    return way is not None and found.patch_at % CACHE_LINE + way.entry > CACHE_LINE


_LONG = {2: "xchg %ax,%ax"}


def form(found: Measured, machine: Machine) -> str:
    """Return the NOPs at the entry in words: `endbr64, 2 NOPs of 1 byte`."""
    if not found.pieces:
        return ""
    words = [
        f"{plural(len(list(alike)), 'NOP')} of {plural(size, 'byte')}"
        + (f" ({_LONG[size]})" if nops.has_long_nops(machine) and size in _LONG else "")
        for size, alike in groupby(found.pieces)
    ]
    return ", ".join([found.landing_name] * bool(found.landing_name) + words)
