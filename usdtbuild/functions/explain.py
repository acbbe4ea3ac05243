"""What a dynamic patcher would have to do with an ordinary prologue, one that was compiled without NOPs.

Such patchers overwrite the first instructions with a jump and run copies of them elsewhere (x86: `jmp rel32`, 5 bytes;
aarch64: one `b`). This says whether that could work here: which instructions are covered, which of them have to be
fixed up because they mean something relative to where they stand, and what forbids it. Nothing is patched.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..elf import layout as elf
from ..elf.space import AddressSpace
from ..machines.disassembly import instructions as disassembled
from ..machines.facts import Entries as Machine
from ..record import NamedTuple
from . import nops
from .entry import Starts
from .jumps import find_jumps


class CoveredInstruction(NamedTuple):
    """One covered instruction; `fix` says what its copy must be changed into, "" if it can be copied as it is."""

    address: int
    code: str
    text: str
    fix: str = ""


class Explanation(NamedTuple):
    """Whether a prologue could be relocated, what it covers, and the reasons against it.

    `start` is where the covered bytes start in the address space; `instructions` have the addresses that a reader of
    the file sees, in an object offsets.
    """

    possible: bool
    needed: int
    covered: int
    instructions: tuple[CoveredInstruction, ...]
    against: tuple[str, ...]
    start: int = 0


class ExplainedFunction(NamedTuple):
    """A function to explain; a `size` of 0 is unknown, and ends at the next function."""

    address: int
    size: int
    thumb: bool = False


def explain(space: AddressSpace, starts: Starts, subjects: Sequence[ExplainedFunction]) -> list[Explanation]:
    """Judge the prologue of every function in `subjects`, in their order."""
    machine = nops.machine_for(space.machine, space.layout.is64, space.layout.little)
    if machine is None or machine.judge is None:
        name = machine.name if machine else f"ELF machine {space.machine}"
        why = f"prologue patches are not known for {name}"
        return [Explanation(False, 0, 0, (), (why,)) for _ in subjects]
    relocated = _relocated(space)
    explained = [_prologue(space, starts, subject, machine, relocated) for subject in subjects]
    # Branches into the covered bytes are looked for once, for all functions together.
    inside = [_inside(explanation) for explanation in explained]
    jumps = find_jumps(space, starts, {address for addresses in inside for address in addresses})
    found = []
    for explanation, addresses in zip(explained, inside):
        back = tuple(
            f"jump back into the patched bytes: {jumps[a].text} at {space.place(jumps[a].source).address:#x}"
            for a in addresses if a in jumps
        )  # fmt: skip
        against = explanation.against + back
        found.append(explanation._replace(possible=not against, against=against))
    return found


def _inside(explanation: Explanation) -> range:
    """Return the addresses that a branch may not go to: all that are covered but the first."""
    return range(explanation.start + 1, explanation.start + explanation.covered)


def _prologue(
    space: AddressSpace, starts: Starts, subject: ExplainedFunction, machine: Machine, relocated: set[int]
) -> Explanation:
    address = subject.address
    following = starts.at_or_after(address + 1)
    end = address + subject.size if subject.size else (following.address if following else address + 4096)
    code = space.read(address, min(max(end - address, 0), 64))
    needed, covered = machine.prologue, 0
    against: list[str] = []
    instructions: list[CoveredInstruction] = []
    skip = nops.landing_pad(machine, code)[0]  # a patch goes behind it: indirect calls must still find it
    shown = space.place(address).address
    for at, length, mnemonic, operands in disassembled(
        space.machine, code[skip:], shown + skip, is64=space.layout.is64, little=space.layout.little
    ):
        if covered >= needed:
            break
        text = f"{mnemonic} {operands}".strip()
        if mnemonic.startswith("."):
            against.append(f"{text} at {at:#x} is no known instruction")
            break
        assert machine.judge is not None
        verdict = machine.judge(at, length, mnemonic, operands)
        if verdict.relative_to is not None and _out_of_reach(space, verdict.relative_to):
            what = f"the PC-relative operand at {at:#x} is out of a copy's reach ({verdict.relative_to:#x})"
            verdict = verdict._replace(fix="", against=what)
        place = at - shown + address
        if not relocated.isdisjoint(range(place, place + length)):
            verdict = verdict._replace(fix="the linker fills it in: correct the copy's distance")
        instructions.append(CoveredInstruction(at, code[at - shown : at - shown + length].hex(), text, verdict.fix))
        covered += length
        if verdict.against:
            against.append(verdict.against)
        if verdict.ends:
            if covered < needed:
                against.append(f"{mnemonic} inside: it ends after {covered} bytes, and a patch needs {needed}")
            break
    if covered < needed and not against:
        against.append(f"too short: {covered} bytes of instructions, and a patch needs {needed}")
    return Explanation(not against, needed, covered, tuple(instructions), tuple(against), address + skip)


def _relocated(space: AddressSpace) -> set[int]:
    """In an object: every address in code that the linker will fill in."""
    found: set[int] = set()
    if not space.relocatable:
        return found
    for section in space.sections:
        if section.type in (elf.SHT_RELA, elf.SHT_REL) and section.info < len(space.sections):
            target = space.sections[section.info]
            if target.flags & elf.SHF_EXECINSTR:
                found.update(target.address + relocation.offset for relocation in space.relocations(section))
    return found


def _out_of_reach(space: AddressSpace, goal: int) -> bool:
    """Whether neither the page after the image nor the one before it reaches `goal` with 32 bits."""
    low, high = space.spans[0].start, max(span.end for span in space.spans)
    return all(abs(goal - place) >= (1 << 31) - 0x2000 for place in (high + 0x1000, low - 0x1000))
