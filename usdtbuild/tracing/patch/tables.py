"""Tables in memory shared with the program, in which stubs add hits up.

A table is made of cells of 64 bytes: a key, a count, a sum of 128 bits, and the greatest and the least value, as
`templates` writes them. With a key there are 2^12 of them, 2^8 if each has classes, behind them one for the key 0 and
one for all keys that found no place. Without a key there is one. Behind all cells are their classes, if they have some:
counters of 512 for values from 0 up, and of 512 for negative ones. A cell is free while its key is 0. A key is looked
for from the cell on that its hash says, and keeps its place, so a reader may look at any time, and sees numbers that
were true a moment ago; after the last hit they are exact.

For pairs of hits there is a stack for each thread that hits: a word, the thread's number above and how many begins wait
below, and room for 63 begins, each a time and a key. In front of all stacks are counters of what was not paired.

The program can write here whatever it likes. It can't do more than lie about itself: all that is read are numbers of a
fixed size, of a fixed number of cells.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, NamedTuple

from ..measures import Cell, Table, Unpaired

if TYPE_CHECKING:
    from mmap import mmap

    from ..measures import Key, Measure

_BITS, _BITS_WITH_CLASSES = 12, 8
_CELL = struct.Struct("<QQQQQQ16x")
_CLASSES = struct.Struct("<1024Q")
_TOP = 1 << 63
_UNPAIRED = struct.Struct("<4Q32x")
_STACK = struct.Struct("<Q1016x")
_STACKS, _DEEPEST = 1 << 10, 63
PAIRS_SIZE = _UNPAIRED.size + _STACKS * _STACK.size
# What is known of a hit of a pair: it doesn't pass the filter, has no key, was tested. A begin's time holds it.
FAILED, KEYLESS, TESTED = (1 << bit for bit in (63, 62, 61))


class Place(NamedTuple):
    """A table of a target: its address, and whether keys and values are signed.

    Of two keys, each in one half of a cell's, `keys_signed` is the one above, `second_signed` the other; else it is
    None.
    """

    target: int
    measure: Measure
    address: int
    keys_signed: bool = False
    values_signed: bool = False
    second_signed: bool | None = None


def bits(measure: Measure) -> int:
    """Return of how many bits the number of a key's cell is."""
    return _BITS_WITH_CLASSES if measure.classes else _BITS


def _cells(measure: Measure) -> int:
    return (1 << bits(measure)) + 2 if measure.by else 1


def size(measure: Measure) -> int:
    """Return the bytes of a table."""
    return _cells(measure) * (_CELL.size + (_CLASSES.size if measure.classes else 0))


def classes_from(measure: Measure, table: int) -> int:
    """Return what the code is told of where the classes are: 2^7 times a cell's address is added to it."""
    shift = (_CLASSES.size // _CELL.size).bit_length() - 1
    return table + _CELL.size * _cells(measure) - (table << shift) & (1 << 64) - 1


def read(data: mmap | bytearray, at: int, place: Place) -> Table:
    """Return what a table says that is at an offset."""
    measure, found = place.measure, Table({}, Cell())
    number = _cells(measure)
    cells = list(_CELL.iter_unpack(data[at : at + number * _CELL.size]))
    for index, (key, count, low, high, most, least) in enumerate(cells):
        if not count:
            continue
        cell = Cell(count)
        if measure.of or measure.pair:
            turned = _TOP if place.values_signed else 0
            total = low | high << 64
            cell = Cell(
                count, total - (1 << 128) if high >> 63 else total, (least ^ (1 << 64) - 1) - turned, most - turned
            )
        if measure.classes:
            counts = _CLASSES.unpack_from(data, at + number * _CELL.size + index * _CLASSES.size)
            cell.classes.update({one if one < 512 else 512 - one: count for one, count in enumerate(counts) if count})
        if measure.by and index == number - 1:
            found.others.plus(cell)
            continue
        found.cells.setdefault(_key(0 if index >= number - 2 else key, place), Cell()).plus(cell)
    return found


def _key(value: int, place: Place) -> Key:
    if place.second_signed is None:
        return signed(value, 64) if place.keys_signed else value
    above, below = value >> 32, value & 0xFFFFFFFF
    return (signed(above, 32) if place.keys_signed else above, signed(below, 32) if place.second_signed else below)


def signed(value: int, bits: int) -> int:
    """Return a number of so many bits as a signed one."""
    return value - (1 << bits) if value >> bits - 1 else value


def read_pairs(data: mmap | bytearray, at: int) -> Unpaired:
    """Return what was not paired of those at an offset. Begins that wait and did not pass the filter don't count."""
    found = Unpaired(*_UNPAIRED.unpack_from(data, at))
    at += _UNPAIRED.size
    waiting = 0
    for index, (word,) in enumerate(_STACK.iter_unpack(data[at : at + _STACKS * _STACK.size])):
        depth = min(word & 0xFFFFFFFF, _DEEPEST)
        times = struct.unpack_from(f"<{2 * depth}Q", data, at + index * _STACK.size + 16)[::2]
        waiting += sum(time & (FAILED | TESTED) != FAILED | TESTED for time in times)
    return found._replace(open=waiting)
