"""How sites change on aarch64: one word becomes a branch to the site's trampoline, and back.

A word is written by one store, aligned, so whoever runs there finds one or the other, and instruction caches are
cleaned by the kernel, which does so for whatever it writes into code for a debugger (flush_ptrace_access(),
arch/arm64/mm/flush.c). `nop` and `b` are among the instructions that may be exchanged under running threads with no
more than that (Arm ARM, B2.2.5). `ret`, `br` and `blr` are not, but sites only change while all threads of the process
stand, and a thread that goes on, from that or from the kernel, does so with an exception return, behind which it
fetches instructions anew. So being killed between two words does no harm either.

Calls of library functions: of a stub the last word changes, its `br x17` or `braa x17, x16`, when x16 and x17 hold what
the dynamic linker wants of them; of a call site that has no stub, its `blr` or `br`. The trampoline of ours does the
same in the end, as a jump; what counted as a call is reached by `bl`, which leaves the same return address. Lazy
binding, IFUNCs and read-only slots know nothing of it. Branch protection: the word's place behind `bti c` stays, and a
jump from our pages, which aren't guarded, may land wherever one through x16 or x17 may (Arm ARM, D8.4.5).
"""

from __future__ import annotations

import ctypes
import struct
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from ...machines.aarch64.host import is_trap
from ...machines.aarch64.templates import TEMPLATES
from ..maps import PAGE
from ..model import CALL, COUNT, Refusal
from . import a64, code_aarch64, evaluated
from .code import Instruction
from .spot import Spot, Word

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from ..maps import Known, Memory
    from ..plan import Plan
    from .code import Back, Choice, Keeping, Routines, Shape, Taken
    from .mirrors import Mirrors
    from .shards import Shards

# A branch reaches 128 MB; sites of 16 MB share their trampolines, which may take another 12.
GROUP, REACH = 24, 100 << 20
FILL = struct.pack("<I", 0)  # udf #0
TOLD = TEMPLATES["tell"].labels
SHARDS = False
tell_trampoline = code_aarch64.tell_trampoline
_LONGEST = 24  # bytes of a trampoline
_BR, _BLR, _BRAA = 0xD61F0000, 0xD63F0000, 0xD71F0A30  # braa x17, x16
_REGISTER = 0x3E0
_AT_HWCAP, _AT_HWCAP2 = 16, 26
_BTI_C, _AUTIA1716 = 0xD503245F, 0xD503219F


class _Word(NamedTuple):
    """Which word changes (its offset from the site), what it is, and how the trampoline goes on."""

    offset: int
    word: int
    back: Instruction | None  # None: behind the word
    returns: bool = False


def _words(found: bytes) -> tuple[int, ...]:
    return struct.unpack(f"<{len(found) // 4}I", found[: len(found) & -4])


def word_of(found: bytes, *, call: bool) -> _Word | None:
    """Return which word of the code at a site changes, at a `call` of a library function or elsewhere; None if none."""
    words = _words(found)
    if not words:
        return None
    if not call:
        return _Word(0, words[0], None, words[0] == a64.RET) if words[0] in {a64.NOP, a64.RET} else None
    if words[0] & ~_REGISTER in {_BR, _BLR}:
        return _Word(0, words[0], Instruction(_BR | words[0] & _REGISTER))
    at = int(words[0] == _BTI_C)
    loads = len(words) > at + 1 and words[at] & 0x9F00001F == 0x90000010 and words[at + 1] & 0xFFC003FF == 0xF9400211
    if not loads:  # adrp x16, page; ldr x17, [x16, #]
        return None
    at += 2
    at += len(words) > at and words[at] & 0xFFC003FF == 0x91000210  # add x16, x16, #
    at += len(words) > at and words[at] == _AUTIA1716
    if len(words) > at and words[at] in {_BR | 17 << 5, _BRAA}:
        return _Word(4 * at, words[at], Instruction(words[at]))
    return None


def why_not_free(found: bytes) -> str:
    """Return why bytes at a site can't become a branch."""
    words = _words(found)
    if not words:
        return "its code can't be read"
    if is_trap(found):
        return "a breakpoint is there already: another tracer (perf, bpftrace, gdb) watches it"
    if words[0] & 0xFC000000 == a64.BRANCH:
        return "there is a branch already: the program's own, or another tracer's"
    return f"the instruction there is no NOP ({words[0]:08x})"


def find_spots(
    plan: Plan, memory: Memory, mirrors: Mirrors, others: Collection[int] = ()
) -> tuple[list[Spot], list[Refusal]]:
    """Return the sites that can be patched, and why the others can't."""
    del mirrors, others  # a word is a whole instruction, and nobody else's
    spots: list[Spot] = []
    refusals: list[Refusal] = []
    seen: set[int] = set()
    for target in plan.targets:
        for site in target.sites:
            call = target.kind == CALL
            found = memory.read(site.address, _LONGEST if call else 4)
            one = word_of(found, call=call) if not site.address & 3 else None
            reason = ""
            if one is None:
                reason = why_not_free(found)
                if call and found and "already" not in reason:
                    reason = f"the instructions there load no slot in a way that is known (bytes {found[:8].hex(' ')})"
            elif site.address + one.offset in seen:
                reason = "another probe is at the same place"
            if one is None or reason:
                refusals.append(Refusal(target.title, reason, "", site.address))
                continue
            seen.add(site.address + one.offset)
            before = struct.pack("<I", one.word)
            form = Word(site.address + one.offset, 4, one.returns, one.back, one.word & ~_REGISTER == _BLR)
            spots.append(Spot(target, site, form, before, b"", 0))
    return spots, refusals


def place(spot: Spot, at: int) -> tuple[Spot, bytes, Back] | str:
    """Return a spot with its branch to the trampoline at `at`, nothing, and where the trampoline goes on; or why
    not."""
    form = spot.form
    assert isinstance(form, Word)
    behind = form.changed_at + form.length
    if not a64.reaches(form.changed_at, at) or not a64.reaches(at + code_aarch64.COUNT_SIZE + (1 << 16), behind):
        return "there is no free memory near it"
    jump = a64.branch(form.changed_at, at, a64.BRANCH_AND_LINK if form.links else a64.BRANCH)
    back = form.back if form.back is not None else None if form.returns else behind
    return spot._replace(after=struct.pack("<I", jump)), b"", back


def size(plan: Plan, spots: Sequence[Spot]) -> int:
    """Return how many bytes trampolines need at most, whole pages."""
    sizes, needed = [code_aarch64.COUNT_SIZE] * len(spots), words()
    if plan.evaluates and plan.what == COUNT:
        sizes = [evaluated.ROUTINES_SIZE, *(needed.most(plan, spot.target, spot.site.operands) for spot in spots)]
    elif plan.what != COUNT:
        sizes = [
            code_aarch64.RECORD_SIZE + code_aarch64.ARGUMENT_SIZE * len(spot.site.operands)
            + needed.around(plan, spot.target, spot.site.operands)
            for spot in spots
        ]  # fmt: skip
        sizes.append(code_aarch64.ROUTINES_SIZE + evaluated.ROUTINES_SIZE * plan.evaluates)
    return -(-sum(sizes) // PAGE) * PAGE


@lru_cache(maxsize=1)
def features() -> code_aarch64.Features:
    """Return what the processor of this machine has (<asm/hwcap.h>)."""
    tells = ctypes.CDLL(None).getauxval
    tells.argtypes, tells.restype = [ctypes.c_ulong], ctypes.c_ulong
    return code_aarch64.Features(bool(tells(_AT_HWCAP) >> 8 & 1), bool(tells(_AT_HWCAP2) >> 18 & 1))


def words() -> evaluated.Words:
    """See `code_aarch64.words`."""
    return code_aarch64.words(features())


def routines(
    at: int, shape: Shape, rings: int, pid_cell: int, tid_offset: int | None, known: Known
) -> tuple[bytes, Routines]:
    """See `code_aarch64.routines`."""
    return code_aarch64.routines(at, shape, rings, pid_cell, tid_offset, features(), known)


def count_trampoline(at: int, counter: int, back: Back, _: Shards | None = None, __: Routines | None = None) -> bytes:
    """See `code_aarch64.count_trampoline`."""
    return code_aarch64.count_trampoline(at, counter, back, features())


def count_routines(at: int, shards: Shards) -> tuple[bytes, Routines]:
    """See `code.count_routines`: an addition takes several instructions here, between which a handler of a signal may
    come, so each is atomic, in one place for all threads."""
    del at, shards
    return b"", {}


def record_trampoline(
    at: int, site: int, arguments: Sequence[Taken], calls: Routines, lost: int, back: Back,
    keeping: Keeping | None = None, _: Choice | None = None,
) -> bytes:  # fmt: skip
    """See `code_aarch64.record_trampoline`."""
    return code_aarch64.record_trampoline(at, site, arguments, calls, lost, back, features(), keeping)


def choosing_routines(
    at: int, plan: Plan, calls: int, pid_cell: int, tid_offset: int | None, claims: Routines
) -> tuple[bytes, Routines]:
    """See `calls.routines`: nobody knows all returns of a function here."""
    del at, plan, calls, pid_cell, tid_offset, claims
    return b"", {}
