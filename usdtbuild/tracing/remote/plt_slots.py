"""Slots of the PLT that are made to lead to their PLT entries again and again, and what they held before.

Where a program's own code loads its slots (`-fno-plt` on PowerPC, stubs of a linker that nobody here knows), there is
no stub at which a call could be seen. But each lazily bound slot leads to a PLT entry of its own at first. As long as
it does, every call comes by there, whatever code it comes from. So each slot is read, what it leads to is remembered,
and the PLT entry's address is written back; `process` knows what happens at PLT entries. Source: the post-fixup
scheme of ltrace's PowerPC port, with another way to see that a slot was filled.

Why every state is valid. All of it happens while no thread runs. One aligned word of a slot is changed, the first,
which threads load with one instruction, so that each has the old value or the new one. Both are right: a PLT entry
may be run at any time, by whoever has loaded its address no matter how long ago, and leads to the function by way of
the dynamic linker. This holds after the trace too, for a thread (or a signal handler's caller) that still has the
address in a register, and for a program whose tracer has died: it resolves once more. It does not hold where the
dynamic linker has bound everything at the start, and never told PLT entries where it is: such slots stay as they are,
as do those that can't be written (RELRO, for a gdb server that minds page protection), and calls are looked for in the
code instead.

ELFv1's slot is a descriptor: code, TOC, environment. The code's address alone is changed. What runs then is the PLT
entry, which uses neither of the others; and at the stop there the registers that they are loaded into are given what
the words hold now, because the thread may have loaded them before the slot was filled.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from copy import copy
from typing import NamedTuple

from ...elf.image import Image
from ..model import Refusal, Site, Target
from .registers import Registers
from .server import Server
from .sites import Sites

_LONGEST_READ = 1 << 16  # bytes between slots that are read at once


class Untaken(NamedTuple):
    """A target whose slot is left alone, its file, and why."""

    target: Target
    image: Image
    reason: str


class _Slot:
    """One slot. `words` are what it holds when its function is known; None before. `settled`: it has been relocated."""

    def __init__(self, target: Target, site: Site, image: Image) -> None:
        assert site.slot is not None
        self.target, self.image, self.entry = target, image, site.address
        self.address, self.resolver, self.loads = site.slot
        word = image.address_size
        raw = image.bytes_at(self.address - site.address + site.file_address, word)
        self.in_file = int.from_bytes(raw, "little" if image.little else "big") if len(raw) == word else 0
        self.word, self.count = word, max(number for number, _ in self.loads) + 1
        self.words: tuple[int, ...] | None = None
        self.settled = False

    def loaded(self) -> dict[str, int]:
        """Return what registers hold when the slot's function is entered through the slot."""
        assert self.words is not None
        return {register: self.words[number] for number, register in self.loads}


class PltSlots:
    """The slots of one process that are led to their PLT entries."""

    def __init__(self, server: Server, sites: Sites) -> None:
        self.server, self.sites = server, sites
        self.by_entry: dict[int, _Slot] = {}

    def copy(self, sites: Sites) -> PltSlots:
        """Return those of a forked process, which has `sites` and has inherited all of it."""
        other = PltSlots(self.server, sites)
        other.by_entry = {entry: copy(slot) for entry, slot in self.by_entry.items()}
        return other

    def take(self, targets: Iterable[Target], image: Image) -> tuple[list[Target], list[Untaken]]:
        """Watch the PLT entries of one file's targets; return the other targets, and those that can't be watched so."""
        others, untaken = [], []
        for target in targets:
            site = next((one for one in target.sites if one.slot is not None), None)
            if site is None:
                others.append(target)
                continue
            reason = self.sites.watch(target, site, image)
            if reason:
                untaken.append(Untaken(target, image, reason))
            else:
                self.by_entry[site.address] = _Slot(target, site, image)
        return others, untaken

    def runs_through(self, entry: int, registers: Registers) -> bool:
        """Whether a thread is at a PLT entry because it has run into it from the one before, and not by its slot."""
        slot = self.by_entry.get(entry)
        return slot is not None and any(registers.get(name) != entry for number, name in slot.loads[1:] if not number)

    def waiting(self, start: int, end: int) -> bool:
        """Whether slots between two addresses haven't been relocated yet, as far as they have been looked at."""
        return any(not one.settled for one in self.by_entry.values() if start <= one.address < end)

    def settle(self) -> list[Untaken]:
        """Look at the slots that weren't relocated at the last look; return what can't be led to its PLT entry."""
        untaken = []
        waiting = [one for one in self.by_entry.values() if not one.settled]
        for slot, held in self._held(waiting):
            reason = self._settle(slot, held)
            if reason:
                del self.by_entry[slot.entry]
                self.sites.drop(slot.entry)
                untaken.append(Untaken(slot.target, slot.image, reason))
        return untaken

    def _settle(self, slot: _Slot, held: int) -> str:
        """Look at one slot, which holds `held`; return why it can't be led to its PLT entry."""
        asks = bool(self.server.number(slot.resolver))
        if held == slot.entry:
            slot.settled = asks
            return ""
        if held in {0, slot.in_file}:  # not relocated yet, or a function that may be missing
            return ""
        if not asks:
            return "its calls were bound at the start of the program, and come by no code that is known"
        slot.settled = True
        return "" if self._lead_back(slot) else "its slot can't be written"

    def resolved(self, slot: _Slot) -> bool:
        """Whether the dynamic linker has filled a slot since it led to its PLT entry; it is led there again."""
        if self.server.number(slot.address) == slot.entry:
            return False
        slot.settled = True
        return self._lead_back(slot)

    def _lead_back(self, slot: _Slot) -> bool:
        """Remember what a slot holds, and write its PLT entry's address; return whether it could be."""
        raw = self.server.read(slot.address, slot.count * slot.word)
        if len(raw) < slot.count * slot.word:
            return False
        order = "little" if slot.image.little else "big"
        words = [int.from_bytes(raw[at : at + slot.word], order) for at in range(0, len(raw), slot.word)]  # type: ignore[arg-type]
        slot.words = tuple(words)
        return self.server.write_number(slot.address, slot.entry, slot.word)

    def _held(self, slots: Sequence[_Slot]) -> Iterator[tuple[_Slot, int]]:
        """Yield slots with what they hold now; those that are near each other are read at once."""
        group: list[_Slot] = []
        for slot in sorted(slots, key=lambda one: one.address):
            if group and slot.address - group[0].address > _LONGEST_READ:
                yield from self._held_in(group)
                group = []
            group.append(slot)
        yield from self._held_in(group)

    def _held_in(self, group: Sequence[_Slot]) -> Iterator[tuple[_Slot, int]]:
        if not group:
            return
        start, last = group[0].address, group[-1]
        raw = self.server.read(start, last.address + last.word - start)
        for slot in group:
            piece = raw[slot.address - start :][: slot.word]
            if len(piece) == slot.word:
                yield slot, int.from_bytes(piece, "little" if slot.image.little else "big")

    # -- letting go --------------------------------------------------------------------------------------------------

    def restore(self) -> None:
        """Let all slots hold what they would without us."""
        for slot in self.by_entry.values():
            if slot.words is not None:
                self.server.write_number(slot.address, slot.words[0], slot.word)

    def forget(self, start: int, end: int) -> None:
        """A library that was between two addresses is gone."""
        for entry in [one for one in self.by_entry if start <= one < end]:
            del self.by_entry[entry]


def refused(untaken: Untaken) -> Refusal:
    """Return what is said of a target that has neither a slot that can be led back nor a site."""
    return Refusal(untaken.target.title, untaken.reason, "", None)
