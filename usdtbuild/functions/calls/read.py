"""Find the stubs of a file, and put together what it calls.

A stub is code that loads a slot and jumps to what it holds: the machine's patterns find such code wherever it lies in
the executable segments, and what is no slot of the slot map is no stub. Neither symbols nor section headers are asked,
except for the names of IFUNCs that no dynamic symbol names.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import cached_property

from ...elf import layout as elf
from ...elf.image import Image
from ...elf.symbols import SymbolTable
from ...elf.tags import DT_SONAME
from ...machines.stubs import Branch, CodeSpan, Form
from .model import IFUNC, LAZY, Call, CallReport, CallSite
from .slots import STT_IFUNC, FilledSlot, SlotMap

_STB_WEAK = 2


def read_calls(
    image: Image, *, sites: bool = False, wants: Callable[[Sequence[Call]], Collection[int]] | None = None
) -> CallReport:
    """Return what an executable or library calls; with `sites`, also from where. `wants` chooses slots of calls, of
    which alone it is found out where they are used without stubs, because that takes long. Raises InputError."""
    report = CallReport(
        image.path, image.kind, image.machine_name, image.address_size, image.little, image.build_id.hex(), (), ()
    )
    if image.is_object:
        return report._replace(problem="is an object: its calls get their stubs when it is linked")
    slots = SlotMap(image)
    if slots.stubs is None:
        return report._replace(problem=f"is for {image.machine_name}, whose stubs are not known")
    found = _Finder(slots)
    found.find_stubs()
    found.find_sites(direct=sites, wants=wants)
    report = report._replace(
        needed=slots.needed(), calls=tuple(found.calls()), lazy=slots.lazy,
        first_call_only=slots.stubs.first_call_only, missing=slots.stubs.missing(),
    )  # fmt: skip
    if slots.static and not report.calls:
        return report._replace(problem="has no dynamic segment: it is linked statically, and calls no library")
    lazy = slots.stubs.lazy
    return report._replace(resolver=lazy.resolver, loads=lazy.loads) if lazy is not None else report


class _Finder:
    def __init__(self, slots: SlotMap) -> None:
        assert slots.stubs is not None
        self.slots, self.known, self.stubs = slots, slots.slots, slots.stubs
        self.found: dict[int, list[int]] = {}  # slot -> entries of its stubs
        self.sites: dict[int, list[CallSite]] = {}  # slot -> sites
        self._inside: set[int] = set()  # addresses of the jumps that are part of a stub

    # -- stubs -------------------------------------------------------------------------------------------------------

    def find_stubs(self) -> None:
        for slot in self.known.values():
            if slot.in_place:
                self._add(slot.address, (slot.address,))
        based: list[tuple[Form, int, re.Match[bytes]]] = []
        for form in self.stubs.forms:
            for span in self.slots.code.spans:
                for match, address in _matches(form, span):
                    if form.based:
                        based.append((form, address, match))
                        continue
                    target = form.slot(match, address, 0)
                    if target in self.known:
                        self._take(form, match, address, target)
        if based:
            self._take_based(based)

    def _take(self, form: Form, match: re.Match[bytes], address: int, slot: int) -> None:
        self._add(slot, (address, *(address + at for at in form.entries(match))))
        self._inside.update(range(address, address + match.end() - match.start()))

    def _add(self, slot: int, entries: Iterable[int]) -> None:
        self.found.setdefault(slot, []).extend(entries)

    def _take_based(self, stubs: list[tuple[Form, int, re.Match[bytes]]]) -> None:
        """Take stubs that count from a register, whose value depends on who calls them."""
        bases = self.stubs.bases()
        if not bases:
            return
        usual = [value for value, _ in Counter(value for _, value in bases).most_common()]
        callers = self._bases_of_callers({address for _, address, _ in stubs}, bases) if len(usual) > 1 else {}
        for form, address, match in stubs:
            for base in dict.fromkeys((*callers.get(address, ()), *usual)):
                slot = form.slot(match, address, base)
                if slot in self.known:
                    self._take(form, match, address, slot)
                    break

    def _bases_of_callers(self, stubs: set[int], bases: list[tuple[int, int]]) -> dict[int, list[int]]:
        """Return what the register holds at the calls of each stub, the usual first."""
        starts = [start for start, _ in bases]
        votes: dict[int, Counter[int]] = {}
        for site in self._branches():
            if site.target in stubs:
                at = bisect_right(starts, site.address) - 1
                if at >= 0:
                    votes.setdefault(site.target, Counter())[bases[at][1]] += 1
        return {address: [value for value, _ in counter.most_common()] for address, counter in votes.items()}

    # -- call sites --------------------------------------------------------------------------------------------------

    def _branches(self) -> Iterator[Branch]:
        for span in self.slots.code.spans:
            yield from self.stubs.sites(span)

    def find_sites(self, *, direct: bool, wants: Callable[[Sequence[Call]], Collection[int]] | None) -> None:
        """Search for calls through slots, and with `direct` for calls of stubs."""
        steady = {address for address, slot in self.known.items() if not slot.variable}
        if wants is not None:
            steady &= {*wants([self._of(slot) for slot in self.known.values()])}
        for span in self.slots.code.spans:
            for site in self.stubs.slot_sites(span):
                if site.target in steady:
                    self._add_site(site, site.target)
        for site in self.stubs.carried(steady):
            self._add_site(site, site.target)
        slot_of = {entry: slot for slot, entries in self.found.items() for entry in entries}
        for site in self._branches() if direct else ():
            if site.target in slot_of:
                self._add_site(site, slot_of[site.target])

    def _add_site(self, site: Branch, slot: int) -> None:
        if site.address not in self._inside:
            self.sites.setdefault(slot, []).append(CallSite(site.address, site.kind, site.slot, site.place, site.size))

    # -- together ----------------------------------------------------------------------------------------------------

    def calls(self) -> Iterator[Call]:
        """Yield what is called: every slot that is for calls, and every other that a stub or site goes through."""
        for slot in self.known.values():
            call = self._of(slot)
            if slot.certain or call.stubs or call.sites:
                yield call

    def _of(self, slot: FilledSlot) -> Call:
        """Return what is called through a slot, as far as it is known by now."""
        stubs = tuple(sorted(set(self.found.get(slot.address, ()))))
        sites = tuple(sorted(set(self.sites.get(slot.address, ()))))
        symbol, (version, library) = self.slots.symbol(slot), self.slots.version(slot)
        if symbol is None:
            # In a program at fixed addresses an IFUNC whose address is taken becomes a function, which is the stub.
            canonical = next((stub for stub in stubs if stub in self._functions), 0) if self.slots.static else 0
            name = self._functions[canonical] if canonical else self._resolvers.get(slot.addend, "")
            return Call(
                name, "", "", slot.kind, slot.address, stubs, canonical, slot.addend, sites=sites, entry=slot.entry
            )
        ours = bool(symbol.section)
        if ours:
            library = self._own_name
        canonical = symbol.value if symbol.value in stubs and not ours and not self.stubs.first_call_only else 0
        kind = IFUNC if symbol.type == STT_IFUNC and ours else slot.kind
        if self.stubs.first_call_only and stubs and self.slots.lazy:
            kind = LAZY
        resolver = symbol.value if kind == IFUNC else 0
        weak = symbol.binding == _STB_WEAK
        return Call(
            symbol.name, version, library, kind, slot.address, stubs, canonical, resolver, weak, sites, slot.entry
        )

    @cached_property
    def _own_name(self) -> str:
        names = self.slots.dynamic.texts(DT_SONAME)
        return names[0] if names else ""

    @cached_property
    def _symbols(self) -> SymbolTable | None:
        image = self.slots.image
        return image.symbol_table(elf.SHT_SYMTAB) if image.has_symbols(elf.SHT_SYMTAB) else None

    @cached_property
    def _functions(self) -> dict[int, str]:
        table = self._symbols
        if table is None:
            return {}
        return {table.values[number]: table.name(number) for number in table.functions()}

    @cached_property
    def _resolvers(self) -> dict[int, str]:
        """The names of IFUNCs by the addresses of their resolvers, or the resolvers' own, if there are symbols."""
        table = self._symbols
        if table is None:
            return {}
        wanted = {slot.addend for slot in self.known.values()}
        named = [
            (table.infos[number] & 15 == STT_IFUNC, table.name(number), table.values[number])
            for number in table.functions() if table.values[number] in wanted
        ]  # fmt: skip
        # Of several names the one that isn't the C library's own: memcpy, not __new_memcpy.
        named.sort(key=lambda one: (one[0], not one[1].startswith("_"), one[1]))
        return {value: name for _, name, value in named}


def _matches(form: Form, span: CodeSpan) -> Iterator[tuple[re.Match[bytes], int]]:
    search, match = _search_from_sure if form.sure else _search, None
    while match := search(form, span, match.end() if match else 0):
        yield match, span.address + match.start()


def _search(form: Form, span: CodeSpan, at: int) -> re.Match[bytes] | None:
    while match := form.pattern.search(span.code, at):
        if not (span.address + match.start()) % form.align:
            return match
        at = match.start() + 1
    return None


def _search_from_sure(form: Form, span: CodeSpan, at: int) -> re.Match[bytes] | None:
    place = span.code.find(form.sure, at)
    while place >= 0:
        for start in (place - distance for distance in form.reach):
            if start >= at and not (span.address + start) % form.align:
                match = form.pattern.match(span.code, start)
                if match:
                    return match
        place = span.code.find(form.sure, place + 1)
    return None
