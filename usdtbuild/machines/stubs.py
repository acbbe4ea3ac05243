"""What a machine module says about calls into libraries, as records: slots, the stubs that jump through them, branches.

A *slot* is a word that the dynamic linker fills with a function's address. A *stub* is the code that loads a slot and
jumps to what it holds; linkers write one or more for each function that another file defines. A machine describes its
stubs by patterns of instruction bytes, and says which slot the bytes mean. Beside the records there is only what every
machine would have written again. Which file is read, and what slots are called, is known elsewhere.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Callable, Container, Iterator, Mapping, Sequence

from ..record import NamedTuple
from .calls import signed

CALL, JUMP = "call", "jump"


class CodeSpan(NamedTuple):
    """A stretch of code: its address and its bytes."""

    address: int
    code: bytes


class FileCode(NamedTuple):
    """What a machine may ask of a file: its code, its dynamic tags, its header, and words of its data.

    `pointer(address)` returns the word there as the dynamic linker leaves it, before the load address is added; None
    where the file has none. `little` is the byte order of data. `read(address, size)` returns what the file has there,
    or less. `unwind` is where .eh_frame_hdr is (PT_GNU_EH_FRAME), 0 where there is none.
    """

    is64: bool
    little: bool
    flags: int
    entry: int
    tags: Mapping[int, int]
    spans: Sequence[CodeSpan]
    pointer: Callable[[int], int | None]
    read: Callable[[int, int], bytes] = lambda address, size: b""
    unwind: int = 0

    def executable(self, address: int) -> bool:
        """Whether there is code at `address`."""
        return any(span.address <= address < span.address + len(span.code) for span in self.spans)


class Form(NamedTuple):
    """One form of stub: what its bytes match, and which slot they mean.

    `slot(match, address, base)` gets the match, the address of its first byte, and the register's value that the stub
    counts from, where `based` says that it counts from one. It returns the slot's address, or None: no stub after all.
    Every stub starts at a multiple of `align`. Other entries of it are at the distances in `entries(match)`. Where the
    pattern itself begins with what may be missing, which is slow to search for, it always has the bytes `sure`, so many
    bytes behind its begin as one of `reach` says, the most first.
    """

    pattern: re.Pattern[bytes]
    slot: Callable[[re.Match[bytes], int, int], int | None]
    align: int = 4
    based: bool = False
    entries: Callable[[re.Match[bytes]], tuple[int, ...]] = lambda match: ()
    sure: bytes = b""
    reach: tuple[int, ...] = ()


class Branch(NamedTuple):
    """A branch: where it is, where it goes (or with `slot` the slot that it goes through), whether CALL or JUMP.

    `place`: the slot's word was loaded before, and is there by now, spelled as records have operands (`%r14`). `size`
    is how many bytes the instruction has, where that isn't what all such calls have.
    """

    address: int
    target: int
    kind: str
    slot: bool = False
    place: str = ""
    size: int = 0


class Lazy(NamedTuple):
    """How lazily bound slots lead to the dynamic linker, where each slot has a PLT entry of its own.

    `entry(number, slot)` is the address of the PLT entry of relocation `number` of DT_JMPREL, whose slot is at
    `slot`; 0 where it has none. `resolver` is the address of the word that holds the dynamic linker's own address
    once PLT entries may be run. `loads` says which registers hold what a slot's words hold when the slot's function
    is entered, as (number of the word, name in a stub's description of registers), the program counter first. A
    thread that is at a PLT entry without its address in the others that hold the first word has come from the PLT
    entry before.
    """

    entry: Callable[[int, int], int]
    resolver: int
    loads: tuple[tuple[int, str], ...]


class LibraryCalls(NamedTuple):
    """What one file's slots, stubs and branches look like.

    `jump` is the relocation of a slot that may be filled lazily, `data` those of one that is filled at the start, that
    of nothing but slots first (-1: there is none), and `ifunc` those of one that is filled with what a resolver
    returns. `sites` yields the direct branches of a stretch of code, `slot_sites` those that load a slot themselves.
    `carried(slots)` yields branches to what one of these slots may have held when it was loaded, some code before: one
    for each slot, where a branch may go to several.
    `bases` returns (address of code, value): code from that address on has this value in the register that stubs count
    from. Of the first `in_place` lazy slots the code is at the slot itself: the relocation's address is the stub's.
    `first_call_only`: a stub is called until its function's address is known, and no more. `slots` are those that no
    relocation names, as (number of the symbol, address). `lazy` is None where lazily bound slots share a PLT entry, or
    nobody has asked yet. `missing()` says what code there is whose calls can't be found, and why.
    """

    jump: int
    data: tuple[int, ...]
    ifunc: tuple[int, ...]
    forms: tuple[Form, ...]
    sites: Callable[[CodeSpan], Iterator[Branch]]
    slot_sites: Callable[[CodeSpan], Iterator[Branch]] = lambda span: iter(())
    bases: Callable[[], list[tuple[int, int]]] = list
    in_place: int = 0
    first_call_only: bool = False
    slots: tuple[tuple[int, int], ...] = ()
    lazy: Lazy | None = None
    carried: Callable[[Container[int]], Iterator[Branch]] = lambda slots: iter(())
    missing: Callable[[], str] = lambda: ""


class Word(NamedTuple):
    """An instruction word, or one of a family: `mask` are the bits that count. Each becomes a group of the pattern."""

    value: int
    mask: int = 0xFFFFFFFF
    optional: bool = False


def pattern(little: bool, *words: Word | Sequence[Word]) -> re.Pattern[bytes]:
    """Return what matches instruction words in this order; of a sequence of them any one, in one group."""
    parts, firsts, ahead = [], [], True
    for step in words:
        choices = (step,) if isinstance(step, Word) else tuple(step)
        text = b"|".join(_bytes(word, little) for word in choices)
        if ahead:
            shift = 0 if little else 24
            firsts += [_byte(word.value >> shift & 0xFF, word.mask >> shift & 0xFF) for word in choices]
            ahead = choices[0].optional
        parts.append(b"(" + text + b")" + (b"?" if choices[0].optional else b""))
    # One look at the first byte, before all that may or may not be there is tried.
    return re.compile(b"(?=" + b"|".join(firsts) + b")" + b"".join(parts), re.DOTALL)


def _bytes(word: Word, little: bool) -> bytes:
    order = range(0, 32, 8) if little else range(24, -8, -8)
    return b"".join(_byte(word.value >> shift & 0xFF, word.mask >> shift & 0xFF) for shift in order)


def _byte(value: int, mask: int) -> bytes:
    if mask == 0:
        return b"."
    known = [byte for byte in range(256) if byte & mask == value]
    return re.escape(bytes(known)) if len(known) == 1 else b"[" + b"".join(b"\\x%02x" % byte for byte in known) + b"]"


def word(match: re.Match[bytes], group: int, little: bool) -> int:
    """Return the instruction word that a group matched; 0 where the group is not there."""
    return int.from_bytes(match[group] or b"", "little" if little else "big")


def low16(value: int) -> int:
    """Return the signed number in the low 16 bits of an instruction."""
    return signed(value & 0xFFFF, 16)


def units(span: CodeSpan, size: int, little: bool) -> array[int]:
    """Return a span's code as numbers of 2 or 4 bytes each."""
    found: array[int] = array({2: "H", 4: "I"}[size])
    found.frombytes(span.code[: len(span.code) // size * size])
    if little != _NATIVE_LITTLE:
        found.byteswap()
    return found


_NATIVE_LITTLE = array("H", b"\x01\x00")[0] == 1


def branches(span: CodeSpan, little: bool, call: int, jump: int, mask: int) -> Iterator[Branch]:
    """Yield the branches that have their distance, in bytes or words, in one instruction word.

    `call` and `jump` are the words without the distance, which the bits outside `mask` are: all the low ones, or all
    but the lowest two.
    """
    scale = 1 if mask & 3 else 4
    wide = (~mask & 0xFFFFFFFF).bit_length() + (2 if scale == 4 else 0)
    for at, value in enumerate(units(span, 4, little)):
        opcode = value & mask
        if opcode in (call, jump):
            distance = signed((value & ~mask & 0xFFFFFFFF) * scale, wide)
            yield Branch(span.address + 4 * at, span.address + 4 * at + distance, CALL if opcode == call else JUMP)
