"""What every machine module offers, as records: the vocabulary that the machines share, and no behaviour of any.

`instrument` asks a `Machine` four things: may this reference be patched, and with what (`replace`); what does a stub
look like (`stub`); how does a tracer spell an argument (`operand`); and which relocation types to write.
"""

from __future__ import annotations

from typing import Callable, NamedTuple

# NOP styles a user can choose (`--nop`); what they mean is each machine's own business.
SAFE, NOP5, CLASSIC = "safe", "nop5", "classic"
NOP_STYLES = (SAFE, NOP5, CLASSIC)


class Replacement(NamedTuple):
    """Bytes that take a branch's place. Offsets are in bytes from the start of the section.

    `site` is the address that tracers get. `tail` says that the branch was a jump, so the caller's frame is gone and
    stack arguments lie behind a return address. `extra_relocations` are further relocations of the same instructions
    that must be neutralised, as offsets.
    """

    start: int
    code: bytes
    site: int
    tail: bool
    extra_relocations: tuple[int, ...] = ()


class StubRelocation(NamedTuple):
    """A relocation inside a stub: offset, type and addend. Its symbol is the probe's semaphore."""

    offset: int
    type: int
    addend: int


class Stub(NamedTuple):
    """A function that stands in where a reference can't be patched: its code, its site's offset, its relocations."""

    code: bytes
    site: int
    align: int
    relocations: tuple[StubRelocation, ...] = ()


class Machine(NamedTuple):
    """One machine, as functions and relocation numbers.

    - `replace(code, offset, type, addend, enabled, nop)` returns the Replacement for a branch whose relocation stands
      at `offset` of the section's bytes `code`, or None where the reference is no direct branch of a known form.
    - `stub(enabled, semaphore, nop)` returns the stub; `semaphore` says whether an is-enabled stub reads one.
    - `operands(arguments, tail)` returns how SDT notes spell the arguments, given as (bytes, signed) in order: one
      operand each, or None where the format has no word for one.

    `absolute32` is the relocation for a 32-bit word at any alignment, known where addresses have 64 bits.
    """

    name: str
    none: int
    absolute: int
    replace: Callable[[memoryview, int, int, int | None, bool, str], Replacement | None]
    stub: Callable[[bool, bool, str], Stub]
    operands: Callable[[tuple[tuple[int, bool], ...], bool], tuple[str | None, ...]]
    absolute32: int | None = None
