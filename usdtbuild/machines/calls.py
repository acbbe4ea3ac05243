"""What a machine module offers about probe calls, as records: the vocabulary that the machines share.

`instrument` asks `ProbeCalls` four things: may this reference be patched, and with what (`replace`); what does a stub
look like (`stub`); how does a tracer spell the arguments (`operands`); and which relocation types to write. Beside
the records there are only the few lines of code that every machine would have written again.
"""

from __future__ import annotations

from ..record import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Literal


class Replacement(NamedTuple):
    """Bytes that take a branch's place. Offsets are in bytes from the start of the section.

    `site` is the address that tracers get. `tail` says that the site lies where the branch was a jump, so that the
    caller's frame is gone: `Calls.operands` spells arguments differently there, where the machine needs it.
    `extra_relocations` are the offsets of further relocations of the same instructions that must be neutralised,
    `moved_relocations` pairs of old and new offset for instructions that changed places (delay slots).
    """

    start: int
    code: bytes
    site: int
    tail: bool
    extra_relocations: tuple[int, ...] = ()
    moved_relocations: tuple[tuple[int, int], ...] = ()


class StubRelocation(NamedTuple):
    """A relocation inside a stub: offset, type and addend.

    Its symbol is the probe's semaphore, or, where `label` is given, a local symbol at that offset of the stub.
    """

    offset: int
    type: int
    addend: int
    label: int | None = None


class StandIn(NamedTuple):
    """A function that stands in where a reference can't be patched: its code, its site's offset, its relocations.

    `mapping` are the mapping symbols that the ABI wants in code, as (name, offset); `entry` is what the function's
    symbol has for a value (1 in Thumb code); `tail` as in Replacement. `asks` is the offset of a second site of an
    is-enabled stub (`Calls.asking_stub`).
    """

    code: bytes
    site: int
    align: int
    relocations: tuple[StubRelocation, ...] = ()
    mapping: tuple[tuple[str, int], ...] = ()
    entry: int = 0
    tail: bool = True
    asks: int = 0


class PlaceRelocation(NamedTuple):
    """One of the relocations that make an eight-byte field hold the distance from the field to a function.

    `offset` is in bytes from the field's start. The symbol is the function's, or, with `place`, a local symbol at
    the field's start (machines that take a difference as two relocations).
    """

    type: int
    offset: int
    addend: int
    place: bool = False


class ProbeCalls(NamedTuple):
    """The probe calls of one machine, as functions and relocation numbers.

    - `replace(code, offset, type, addend, enabled, nop)` returns the Replacement for a branch whose relocation stands
      at `offset` of the section's bytes `code`, or None where the reference is no direct branch of a known form.
      `addend` is None where it lies in the bytes (SHT_REL).
    - `stub(enabled, semaphore, nop)` returns the stub; `semaphore` says whether an is-enabled stub reads one.
    - `operands(arguments, tail)` returns how SDT notes spell the arguments, given as (bytes, signed) in order: one
      operand each, or None where the format has no word for one. An operand of fewer bytes than its argument shows
      the argument's low bytes only: no operand can name a pair of registers.

    `none` is the relocation that does nothing, `absolute` the one for a word of an address's size at any alignment.
    `pc_relative` are the relocations for a field of DOF, none where a distance can't be written; with
    `pc_relative_bits` 32 they fill only the low half.
    `relaxes` says that linkers delete code bytes, so that a place in code must be a symbol, not a distance; there
    `difference` are the types that add and subtract a symbol in a 32-bit word.
    `descriptor` are the types for the code address and the TOC in a function descriptor (ppc64 ELFv1); `thumb_stub` is
    what `stub` is for objects whose mapping symbols say that all their code is Thumb (ARM).
    `absolute32` is the relocation for a 32-bit word at any alignment, known where addresses have 64 bits and there are
    linkers that keep the notes of functions they drop (for n64 there are none);
    `asking_stub(semaphore, nop)` returns the is-enabled stub for Oracle's DTrace, on machines that have it: at its site
    `asks` the first argument's register, which operands call `asking_operand`, points to a word that is 1 once a tracer
    has written it there; at its site `site`, as in any is-enabled stub, the answer is in the result's register.
    `branched` says how many arguments a header passes to a branch that it writes itself (`provider.placing`), -1 where
    it writes none, and `wide_registers` that one register holds 64 bits; such a branch must be replaced, wherever it
    is, since nothing says that the stub, if it were called, could change registers. With `red_zone` programs use the
    stack below its pointer. `checks_return(code, end)` tells that the code behind a call, which ends at `end`, finds
    out whether it was one, so that it must stay one. `conditional_calls` are relocations of calls that other
    instructions may make conditional.
    with `chains` bfd takes relocations at one offset for steps of a single one, until one that does nothing, and
    symbol 0 for an undefined one.
    """

    name: str
    none: int
    absolute: int
    replace: Callable[[memoryview, int, int, int | None, bool, str], Replacement | None]
    stub: Callable[[bool, bool, str], StandIn]
    operands: Callable[[tuple[tuple[int, bool], ...], bool], tuple[str | None, ...]]
    pc_relative: tuple[PlaceRelocation, ...] = ()
    pc_relative_bits: int = 64
    relaxes: bool = False
    difference: tuple[int, int] | None = None
    descriptor: tuple[int, int] | None = None
    thumb_stub: Callable[[bool, bool, str], StandIn] | None = None
    absolute32: int | None = None
    chains: bool = False
    asking_stub: Callable[[bool, str], StandIn] | None = None
    asking_operand: str = ""
    branched: int = -1
    wide_registers: bool = True
    red_zone: bool = False
    conditional_calls: frozenset[int] = frozenset()
    checks_return: Callable[[memoryview, int], bool] | None = None


def word(code: memoryview, offset: int, little: bool) -> int:
    """Return the 32-bit word at `offset`."""
    return int.from_bytes(code[offset : offset + 4], "little" if little else "big")


def words(little: bool, *values: int) -> bytes:
    """Return 32-bit instruction words in the byte order of the code."""
    order: Literal["little", "big"] = "little" if little else "big"
    return b"".join(value.to_bytes(4, order) for value in values)


def prefix(size: int, signed: bool) -> str:
    """Return the part of an operand before its register or memory: `-4@`."""
    return f"-{size}@" if signed else f"{size}@"


def signed(value: int, bits: int) -> int:
    """Return the number that the low `bits` bits of `value` are in two's complement."""
    return value - (1 << bits) if value >> (bits - 1) & 1 else value


def word_order(little: bool) -> str:
    """Return capstone's name of a byte order."""
    return "CS_MODE_LITTLE_ENDIAN" if little else "CS_MODE_BIG_ENDIAN"
