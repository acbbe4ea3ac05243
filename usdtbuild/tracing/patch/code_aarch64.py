"""The machine code of trampolines for aarch64; what they do, and what a record looks like, is told in `code`.

A trampoline must assume that all registers and the flags are alive; nothing is below the stack pointer (AAPCS64,
6.4.5.1), so what it uses is pushed. Vector registers it only reads. It is reached and left by direct branches, so
branch protection asks nothing of it, and its own calls return, so that guarded control stacks and return predictors
stay in balance.

Memory is weakly ordered here: a record's sequence is stored with release, so whoever sees it sees the record; the room
of a slot is only written behind a branch that depends on the ring's `tail`.

Counters and rings use FEAT_LSE where the processor has it: loops of exclusive loads and stores do badly there with many
processors, and the architecture doesn't promise that all get on.

The code itself is `machines/aarch64/templates.S`; here its templates are put together.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, NamedTuple

from ...formats.operands import CONSTANT, MEMORY, REGISTER
from ...machines.aarch64.host import HOST, float_register, full_register
from ...machines.aarch64.templates import TEMPLATES
from ...machines.templates import Code
from ..maps import NONE_KNOWN, Known
from . import evaluated
from .a64 import NOP
from .code import Instruction

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...formats.operands import OperandPlace
    from .code import Back, Keeping, Routines, Shape, Taken


class Features(NamedTuple):
    """What the processor has: atomic instructions (FEAT_LSE), tagged memory (FEAT_MTE)."""

    atomics: bool
    tags: bool

    @property
    def way(self) -> str:
        """How templates count and claim."""
        return "atomic" if self.atomics else "exclusive"

    @property
    def copy(self) -> str:
        """How texts are copied."""
        return "copy_tagged" if self.tags else "copy"


# The most bytes that trampolines take: one that counts, one that records, more for each argument; routines.
COUNT_SIZE, RECORD_SIZE, ARGUMENT_SIZE, ROUTINES_SIZE = 48, 192, 112, 1024
_SAVED = 96  # bytes from the stack pointer up to the program's own, behind `save_all`


def go_on(made: Code, target: Back) -> None:
    """Let a trampoline go on."""
    if isinstance(target, Instruction):
        made.append(struct.pack("<I", target.word))
    elif isinstance(target, int):
        made.add("jump", target=target)
    else:
        made.add("return")


def count_trampoline(at: int, counter: int, back: Back, features: Features) -> bytes:
    """Return a trampoline that adds 1 to a counter and goes `back`."""
    made = Code(TEMPLATES, at)
    made.add(f"count_{features.way}", counter=counter)
    go_on(made, back)
    return made.packed()


def tell_trampoline(at: int, flag: int, back: Back) -> bytes:
    """See `code.tell_trampoline`."""
    made = Code(TEMPLATES, at)
    made.add("tell", flag=flag)
    go_on(made, back)
    return made.packed(**HOST.kernel.numbers)


def routines(
    at: int, shape: Shape, rings: int, pid_cell: int, tid_offset: int | None, features: Features,
    known: Known = NONE_KNOWN,
) -> tuple[bytes, Routines]:  # fmt: skip
    """Return the code of the routines, to stand at an address; see `code.routines`."""
    made = Code(TEMPLATES, at)
    made.add("claim_process", pid_cell=pid_cell)
    if tid_offset is not None:
        made.add("thread_at_offset", tid_offset=tid_offset)
    else:
        made.add("thread_by_call")
    shape.add_claim(made, rings, lambda name: f"{name}_{features.way}")
    copy = made.here
    made.add(features.copy, string_size=shape.string_size, **known._asdict())
    probe = made.here
    made.add("probe")
    copy_stack = made.here
    made.add(features.copy.replace("copy", "copy_stack"))
    found = {"claim": at, "copy": copy, "probe": probe, "copy_stack": copy_stack}
    return made.packed(**HOST.kernel.numbers), found


def record_trampoline(
    at: int, site: int, arguments: Sequence[Taken], calls: Routines, lost: int, back: Back, features: Features,
    keeping: Keeping | None = None,
) -> bytes:  # fmt: skip
    """Return a trampoline that writes a record and goes `back`; see `code.record_trampoline`."""
    made = Code(TEMPLATES, at)
    made.add("save_all")
    if keeping is not None:
        keeping.begin(made)
    made.add("record_begin", site=site)
    for index, argument in enumerate(arguments):
        _take(made, index, argument)
    if keeping is not None:
        keeping.end(made, evaluated.ending(words(features)))
    else:
        made.add("record_end")
    made.label("out")
    made.add("restore_all")
    go_on(made, back)
    made.label("full")
    made.add(f"record_lost_{features.way}", counter=lost)
    return made.packed(**calls, above=_SAVED)


def _take(made: Code, index: int, argument: Taken) -> None:
    """Store one argument. It may change x0 to x5, x8 and x9, which are on the stack."""
    operand, place, bit = argument.operand, argument.operand.place, 1 << min(index, 31)
    if place.kind == CONSTANT:
        made.add("constant", value=place.displacement)
        made.add("store", at=argument.at)
    elif place.kind == REGISTER and load_register(made, place):
        made.add("store", at=argument.at)
    elif place.kind == MEMORY and operand.size in {1, 2, 4, 8} and (way := address(made, place)):
        made.add(f"{way}_{'signed' if operand.signed else 'unsigned'}_{operand.size}", at=argument.at, bit=bit)
    else:
        made.add("missing", bit=bit)
    if argument.copied:
        made.add(argument.copied, at=argument.at, string_at=argument.string_at, size=argument.size)


def load_register(made: Code, place: OperandPlace) -> bool:
    """Load a register, as it was at the site, into x0, and let what is wanted begin at its lowest bit; False if there
    is no way."""
    name = place.register
    found = full_register(name)
    source = float_register(name) or (found[0] if found is not None else "")
    template = "zero" if name in HOST.registers.zero else f"load_x0_from_{source}"
    if template in TEMPLATES:
        made.add(template)
        if place.displacement:
            made.add(f"shift_{place.displacement}")
    return template in TEMPLATES


def address(made: Code, place: OperandPlace) -> str:
    """Put the address of a memory operand into x4. Return how it is read, "read" or "try"; '' if there is no way."""
    base = full_register(place.base or "")
    if base is None or place.symbol or place.index_register:
        return ""
    made.add(f"load_x4_from_{base[0]}")
    if place.displacement:
        made.add("add_displacement", displacement=place.displacement)
    return "read" if base[0] == "sp" else "try"  # what lies on the stack is there; any other pointer may be wild


def words(features: Features) -> evaluated.Words:
    """Return what trampolines need that try a hit. Flags are alive, so nothing is compared as it is."""
    return evaluated.Words(
        TEMPLATES, features.way,
        {"==": ("eq", "eq"), "!=": ("ne", "ne"), "<": ("lt", "lo"), "<=": ("le", "ls"), ">": ("gt", "hi"),
         ">=": ("ge", "hs")},
        go_on, load_register, address, lambda operand, constant: "", HOST.kernel.numbers, struct.pack("<I", NOP),
        copy=features.copy, comparison_size=256, size=192, saved=_SAVED,
    )  # fmt: skip
