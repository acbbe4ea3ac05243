"""Tables in memory shared with the program, in which trampolines add hits up.

A table is made of cells of 64 bytes: a key, a count, a sum of 128 bits, and the greatest and the least value, as
`templates` writes them. With a key there are 2^12 of them, 2^8 if each has classes, behind them one for the key 0 and
one for all keys that found no place. Without a key there is one. Behind all cells are their classes, if they have some:
counters of 512 for values from 0 up, and of 512 for negative ones; then a cell's own count stays 0, and theirs together
say how many there were. A cell is free while its key is 0. A key is looked
for from the cell on that its hash says, and keeps its place, so a reader may look at any time, and sees numbers that
were true a moment ago; after the last hit they are exact.

Where keys are several words (texts, or several arguments), a cell's own word is a hash of them, odd while they are
being written, and the words of all cells stand behind all else. The first says what the key is made of: from below, 2
bits for each, and a 1. A number is a word; a text its length and its bytes, or -1 and the pointer, if that can't be
read.

For pairs of hits there is a stack for each thread that hits: a word, the thread's number above and how many begins wait
below, and room for 64 begins, each a time, a key, and its number (below) with the lower half of where it was on the
program's stack (above). Begin number n is at place n (mod 64), so the youngest ones are kept, and one that isn't there
any more has another's number at its place. In front of all stacks are counters of what was not paired,
behind them those of threads with a shard (`shards`), by its number, whose word says the second thing only. Keys
of several words are looked up in a table of their own, behind the stacks: a begin keeps the place of its key's cell,
and the times are added to the cell at the same place in the end's table. Where pairs have a key of their own, there
are 256 buckets instead, of 64 slots, of 64 bytes each: the process, the pair's key or a hash of it, a time and a key
behind an empty word. The slots of bucket n are in a ring, and slot n of that (mod 64) is the first one; 40 are used.
Behind all slots each bucket has 8 pieces of 32 bytes. The first begins with the mask of the slots that hold begins, and
above that (24 bits) how many begins there have been. The others are places of the first threads with a shard: a time,
in which a bit says that the begin waits still, and what a slot has else. Two bits of the bucket's number
turn round two of those by which its pieces are numbered: else all masks would be in the same few sets of a cache.

The program can write here whatever it likes. It can't do more than lie about itself: all that is read are numbers of a
fixed size, of a fixed number of cells.
"""

from __future__ import annotations

import os
import struct
from typing import TYPE_CHECKING, NamedTuple

from ..measures import Cell, Table, Unpaired
from ..model import Unreadable, string
from .code import CUT

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Iterator, Sequence
    from mmap import mmap

    from ...formats.operands import Operand
    from ..measures import Key, Measure
    from ..model import Value
    from ..predicates import Tally

_BITS, _BITS_WITH_CLASSES = 12, 8
_AT_ONCE = 16  # cells that are looked at together
_CELL = struct.Struct("=QQQQQQ16x")
_CLASSES = struct.Struct("=1024Q")
_TOP = 1 << 63
_UNPAIRED = struct.Struct("=6Q16x")
_STACK = struct.Struct("=Q2040x")
_STACKS_BITS, _SEARCH, _SPREAD = 10, 64, 0x9E3779B97F4A7C15  # as the machines' `find_stack` has them
_STACKS, _OWN_STACKS = 1 << _STACKS_BITS, 1 << 6
_BEGINS, _BEGIN = 16, struct.Struct("=Q8xII")  # where in a stack they are, and one
MOST_WAITING = 64  # begins of a thread that are kept
_SLOT = struct.Struct("=QQQQQ24x")
_BUCKETS, _SLOTS = 256, 40
_PIECE = struct.Struct("=Q24x")
_PIECES = 8  # of a bucket
_ALL_STACKS = (_STACKS + _OWN_STACKS) * _STACK.size
PAIRS_SIZE = _UNPAIRED.size + _ALL_STACKS
# What is known of a hit of a pair: it doesn't pass the filter, has no key, was tested. A begin's time holds it.
FAILED, KEYLESS, TESTED = (1 << bit for bit in (63, 62, 61))
_WAITS = 1 << 60
# Of what a key of several words is made.
UNSIGNED, SIGNED, TEXT = range(3)


class Memory:
    """Shared memory whose parts are read from its file when they are asked for: what nobody has written to takes none,
    and what has been cut off is 0."""

    def __init__(self, file: int, at: int = 0) -> None:
        """Begin at an offset of an open file."""
        self._file, self._at = file, at

    def __getitem__(self, part: slice) -> bytes:
        size = part.stop - part.start
        return os.pread(self._file, size, self._at + part.start).ljust(size, b"\0")


class Place(NamedTuple):
    """A table of a target: its address, and whether keys and values are signed.

    Of two keys, each in one half of a cell's, `keys_signed` is the one above, `second_signed` the other; else it is
    None. Keys of several words have `width` bytes, and texts in them up to `string_size`. `own`: which key is the
    number of the process that hits, -1 for none.
    """

    target: int
    measure: Measure
    address: int
    keys_signed: bool = False
    values_signed: bool = False
    second_signed: bool | None = None
    width: int = 0
    string_size: int = 64
    own: int = -1

    def can_be(self, key: Key | None, processes: Container[int] | None) -> bool:
        """Whether a key can be of one of these processes; None: nobody knows which there are."""
        if self.own < 0 or processes is None or key is None:
            return True
        return (key[self.own] if isinstance(key, tuple) else key) in processes


def bits(measure: Measure) -> int:
    """Return of how many bits the number of a key's cell is."""
    return _BITS_WITH_CLASSES if measure.classes else _BITS


def _cells(measure: Measure) -> int:
    return (1 << bits(measure)) + 2 if measure.by else 1


def size(measure: Measure, width: int = 0) -> int:
    """Return the bytes of a table, whose keys have `width` bytes behind all else."""
    return _cells(measure) * (_CELL.size + (_CLASSES.size if measure.classes else 0) + width)


def pairs_size(wanted: Iterable[Measure], width: int) -> int:
    """Return the bytes of what begins of pairs need, 0 where nothing is paired."""
    return next((PAIRS_SIZE + (keys_size(one, width) if width else 0) for one in wanted if one.pair), 0)


def keys_size(measure: Measure, width: int) -> int:
    """Return the bytes of a table that has keys only."""
    return _cells(measure) * (_CELL.size + width)


def last(measure: Measure) -> int:
    """Return where in a table its last cell is."""
    return _CELL.size * (_cells(measure) - 1)


def keys_from(measure: Measure, table: int, width: int) -> int:
    """Return where the words of keys of several words are."""
    return table + (keys_size(measure, width) if measure.pair else size(measure, width)) - _cells(measure) * width


def made_of(tally: Tally, operands: Sequence[Operand]) -> int:
    """Return the word that says what a key is made of."""
    found = 1
    for one in reversed(tally.keys):
        is_signed = one >= 0 and operands[one].signed
        found = found << 2 | (TEXT if one in tally.texts else SIGNED if is_signed else UNSIGNED)
    return found


def classes_from(measure: Measure, table: int) -> int:
    """Return what the code is told of where the classes are: 2^7 times a cell's address is added to it."""
    shift = (_CLASSES.size // _CELL.size).bit_length() - 1
    return table + _CELL.size * _cells(measure) - (table << shift) & (1 << 64) - 1


def read(
    data: mmap | bytes | bytearray | Memory, at: int, place: Place, keys: Sequence[Key | None] = (),
    processes: Container[int] | None = None,
) -> Table:  # fmt: skip
    """Return what a table says that is at an offset; `keys` are those of its cells, if they stand elsewhere. A row that
    claims to be of another process than those that write there is one of those without a key."""
    measure, found = place.measure, Table({}, Cell())
    number = _cells(measure)
    used = list(_used(data[at : at + number * _CELL.size]))
    if used and place.width and not keys:
        keys = read_keys(data, at, place)
    for index, (key, counted, *first) in used:
        numbers, classes = first, dict[int, int]()
        # The least is turned round: of it and the greatest, one is never 0 behind a value.
        if measure.classes and (first[2] or first[3]):
            # Hits may come meanwhile: the sum is read again right before its counts, so that both are of the same.
            numbers = list(_CELL.unpack(_part(data, at, index, _CELL.size))[2:])
            counts = _CLASSES.unpack(_part(data, at + number * _CELL.size, index, _CLASSES.size))
            classes = {one if one < 512 else 512 - one: hits for one, hits in enumerate(counts) if hits}
        low, high, most, least = numbers
        count = sum(classes.values()) if measure.classes else counted
        if not count:
            continue
        cell = Cell(count)
        if measure.of or measure.pair:
            turned = _TOP if place.values_signed else 0
            total = low | high << 64
            cell = Cell(
                count, total - (1 << 128) if high >> 63 else total, (least ^ (1 << 64) - 1) - turned, most - turned
            )
        cell.classes.update(classes)
        one = keys[index] if keys else _key(0 if index >= number - 2 else key, place)
        if measure.by and (index == number - 1 or one == () or not place.can_be(one, processes)):
            found.others.plus(cell)
            continue
        found.cells.setdefault(one, Cell()).plus(cell)
    return found


def _used(cells: bytes | bytearray) -> Iterator[tuple[int, tuple[int, ...]]]:
    """Yield the numbers of cells and what they hold, but for most of those that hold nothing, as most do."""
    size = _AT_ONCE * _CELL.size
    for start in range(0, len(cells), size):
        piece = cells[start : start + size]
        if piece != bytes(len(piece)):
            yield from enumerate(_CELL.iter_unpack(piece), start // _CELL.size)


def _part(data: mmap | bytes | bytearray | Memory, at: int, index: int, size: int) -> bytes | bytearray:
    return data[at + index * size : at + (index + 1) * size]


def read_keys(data: mmap | bytes | bytearray | Memory, at: int, place: Place) -> list[Key]:
    """Return the keys of all cells of a table, () where there is none, or none that could have been written there."""
    number, width = _cells(place.measure), place.width
    hashes = [one[0] for one in _CELL.iter_unpack(data[at : at + number * _CELL.size])]
    at = keys_from(place.measure, at, width)
    words = memoryview(data[at : at + number * width])
    return [_words_key(words[index * width : (index + 1) * width], place.string_size) if one else ()
            for index, one in enumerate(hashes)]  # fmt: skip


def _words_key(words: memoryview, string_size: int) -> Key:
    found: list[Value] = []
    numbers, at = words.cast("Q"), 1
    kinds = numbers[0]
    while kinds > 1 and at < len(numbers):
        value, kind, kinds, at = numbers[at], kinds & 3, kinds >> 2, at + 1
        if kind != TEXT:
            found.append(signed(value, 64) if kind == SIGNED else value)
        elif (size := value & ~CUT) <= min(string_size, 8 * (len(numbers) - at)):
            found.append(string(bytes(words[8 * at : 8 * at + size]), string_size, is_cut=size != value))
            at += -(-size // 8)
        elif value == (1 << 64) - 1 and at < len(numbers):
            found.append(Unreadable(numbers[at]) if numbers[at] else None)
            at += 1
        else:
            return ()
    return () if kinds != 1 or not found else found[0] if len(found) == 1 else tuple(found)


def _key(value: int, place: Place) -> Key:
    if place.second_signed is None:
        return signed(value, 64) if place.keys_signed else value
    above, below = value >> 32, value & 0xFFFFFFFF
    return (signed(above, 32) if place.keys_signed else above, signed(below, 32) if place.second_signed else below)


def signed(value: int, bits: int) -> int:
    """Return a number of so many bits as a signed one."""
    return value - (1 << bits) if value >> bits - 1 else value


def read_pairs(data: mmap | bytes | bytearray, at: int, *, keyed: bool = False) -> Unpaired:
    """Return what was not paired of those at an offset. Begins that wait and did not pass the filter don't count."""
    without_begin, deep, many, without_key, rejected, left = _UNPAIRED.unpack_from(data, at)
    found = Unpaired(without_begin, deep, many, without_key, 0, rejected, left)
    at += _UNPAIRED.size
    waiting = 0
    if keyed:
        behind = at + _BUCKETS * 64 * _SLOT.size
        for bucket in range(_BUCKETS):
            start = at + bucket * 64 * _SLOT.size
            pieces = [word for (word,) in _PIECE.iter_unpack(data[behind : behind + _PIECES * _PIECE.size])]
            behind += _PIECES * _PIECE.size
            mask = pieces.pop((bucket >> 4 & 3) << 1)
            begun = (_SLOT.unpack_from(data, start + (bucket + bit) % 64 * _SLOT.size)[3]
                     for bit in range(_SLOTS) if mask >> bit & 1)  # fmt: skip
            waiting += sum(map(_counts, begun)) + sum(time & _WAITS > 0 and _counts(time) for time in pieces)
        return found._replace(open=waiting)
    for index, (word,) in enumerate(_STACK.iter_unpack(data[at : at + _ALL_STACKS])):
        more, gone_on = _of_stack(data, at + index * _STACK.size, word)
        waiting, left = waiting + more, left + gone_on
    return found._replace(open=waiting, left=left)


def give_back(data: mmap | bytearray, at: int, thread: int) -> tuple[int, int]:
    """Let others have the stack of a thread that has ended, of those at an offset; return what `_waiting` says of it.

    The word keeps the thread's number, so that a search goes on behind it, and nobody waits there any more."""
    at += _UNPAIRED.size
    first = (thread << 32) * _SPREAD % (1 << 64) >> 64 - _STACKS_BITS
    for number in range(first, first + _SEARCH):
        start = at + number % _STACKS * _STACK.size
        (word,) = _STACK.unpack_from(data, start)
        if word >> 32 == thread or not word:
            found = _of_stack(data, start, word)
            if word & 0xFFFFFFFF:
                struct.pack_into("=Q", data, start, thread << 32)
            return found
    return 0, 0


def _of_stack(data: mmap | bytes | bytearray, start: int, word: int) -> tuple[int, int]:
    kept = data[start + _BEGINS : start + _BEGINS + MOST_WAITING * _BEGIN.size]
    return _waiting(list(_BEGIN.iter_unpack(kept)), number) if (number := word & 0xFFFFFFFF) else (0, 0)


def _waiting(kept: Sequence[tuple[int, int, int]], number: int) -> tuple[int, int]:
    """Return how many of a stack's begins wait still, and how many others their thread has left behind: it has begun
    since at the same place of the program's stack, or above it."""
    waiting, seen, highest, is_behind = [0, 0], 0, None, False
    last, its_number, where = kept[number % len(kept)]  # has ended, if it isn't an older one
    youngest = kept[(number - 1) % len(kept)][0]
    if its_number == number and last % TESTED > youngest % TESTED:
        highest = where
    for one in range(number - 1, max(-1, number - 1 - len(kept)), -1):
        begun, its_number, where = kept[one % len(kept)]
        if its_number != one:
            break
        seen += 1
        is_behind = highest is not None and (highest - where) % (1 << 32) < 1 << 31
        waiting[is_behind] += _counts(begun)
        highest = highest if is_behind else where
    if sum(waiting) == seen:  # nobody knows whether the others pass a filter, nor where they were
        waiting[is_behind] += number - seen
    return waiting[0], waiting[1]


def _counts(begin: int) -> bool:
    """Whether a begin with this time counts where it waits."""
    return begin & (FAILED | TESTED) != FAILED | TESTED
