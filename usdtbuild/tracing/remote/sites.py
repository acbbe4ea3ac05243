"""What is armed in a program that a server holds: breakpoints at sites, and semaphores.

All of it changes while the program stands, so that no thread sees a state in between: the server stops every thread
before it says that one has stopped, and starts none before it is told to.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ...elf.image import Image
from ...machines.facts import Stopped
from ..model import EXIT, RETURN, Refusal, Site, Target, Value
from .arguments import Watched, holds, reader
from .registers import Registers
from .returns import Returns
from .server import Server

_LONGEST = 8  # of the instructions that may stand at a site


class Sites:
    """Breakpoints and semaphores of one process."""

    def __init__(self, server: Server, stopped: Stopped, string_size: int) -> None:
        self.server, self.stopped, self.string_size = server, stopped, string_size
        self.kinds: dict[int, int] = {}  # what breakpoints are of, by address
        self.gone: set[int] = set()  # where some were, which threads may have run into that weren't told of yet
        self.returns = Returns(server, stopped)
        self._watched: dict[int, list[Watched]] = {}
        # What is told of when a call at a site returns, and the address behind the site if that is a call instruction.
        self._returning: dict[int, list[tuple[Watched, int]]] = {}
        self._passing: set[int] = set()  # breakpoints that are only there because somebody returns
        self._semaphores: list[int] = []
        self._unwritten: list[tuple[Target, Site, Image]] = []

    def copy(self) -> Sites:
        """Return those of a forked process, which has inherited all of it."""
        copy = Sites(self.server, self.stopped, self.string_size)
        copy.kinds, copy.gone, copy.returns = dict(self.kinds), set(self.gone), self.returns.copy()
        copy._watched = {address: list(known) for address, known in self._watched.items()}
        copy._returning = {address: list(known) for address, known in self._returning.items()}
        copy._passing, copy._semaphores = set(self._passing), list(self._semaphores)
        copy._unwritten = list(self._unwritten)
        return copy

    def arm(self, targets: Sequence[Target], image: Image) -> list[Refusal]:
        """Arm the targets of one file in the standing program; return what can't be armed."""
        refusals = []
        for target in targets:
            for site in target.sites:
                if site.slot is not None:
                    continue
                if image.bytes_at(site.file_address, 1):
                    reason = self.watch(target, site, image)
                    if reason:
                        refusals.append(Refusal(target.title, reason, "", site.address))
                else:  # a BSS PLT's entry: what was set there now, the dynamic linker would write over
                    self._unwritten.append((target, site, image))
        return refusals

    def unwritten(self, start: int, end: int) -> bool:
        """Whether there are sites between two addresses whose code the dynamic linker hasn't written yet."""
        return any(start <= site.address < end for _, site, _ in self._unwritten)

    def arm_written(self) -> list[Refusal]:
        """Arm the sites whose code has been written since they were asked for; return what can't be armed."""
        waiting, self._unwritten = self._unwritten, []
        refusals = []
        for target, site, image in waiting:
            if not any(self.server.read(site.address, _LONGEST)):
                self._unwritten.append((target, site, image))
                continue
            reason = self.watch(target, site, image)
            if reason:
                refusals.append(Refusal(target.title, reason, "", site.address))
        return refusals

    def watch(self, target: Target, site: Site, image: Image) -> str:
        """Arm one site; return why that can't be, or ''."""
        known = self._watched.get(site.address)
        if known is None:
            # A server gives the code as it is without its own breakpoints.
            code = self.server.read(site.address, _LONGEST)
            if not code:
                return "its code can't be read"
            kind = self.stopped.trap(code)
            there = image.bytes_at(site.file_address, len(code))[:kind]
            if there and code[:kind] != there:
                return f"the code there is not that of {image.path}: the program that runs is another build"
            if not self.server.insert(site.address, kind):
                return "the server sets no breakpoint there"
            known = self._watched[site.address] = []
            self.kinds[site.address] = kind
        arguments = zip(target.arguments, site.operands)
        readers = tuple(reader(argument, operand, self.stopped, self.string_size) for argument, operand in arguments)
        if target.kind in {EXIT, RETURN}:
            if not self.stopped.stack:
                return "where its calls return to isn't known on this machine"
            behind = site.address + (site.size or self.stopped.call) if site.calls else 0
            watched = Watched(target.number, readers, site.held)
            self._returning.setdefault(site.address, []).append((watched, behind))
            return ""
        known.append(Watched(target.number, readers, site.held))
        if site.semaphore and site.semaphore not in self._semaphores and self._count(site.semaphore, 1):
            self._semaphores.append(site.semaphore)
        return ""

    def hits(self, address: int, registers: Registers) -> Iterator[tuple[int, tuple[Value, ...]]]:
        """Yield number and arguments of each target that is hit at an address."""
        for watched in self._watched.get(address, ()):
            if not self._meant(watched, registers):
                continue
            yield watched.target, tuple([read(registers, self.server) for read in watched.readers])

    def expect(self, address: int, registers: Registers) -> None:
        """Let the calls at a site that is hit tell of their returns."""
        for watched, behind in self._returning.get(address, ()):
            found = self.returns.expect(watched, registers, behind) if self._meant(watched, registers) else None
            if found is not None and found[0] not in self.kinds:
                back, thumb = found
                kind = 2 if thumb else self.stopped.trap(self.server.read(back, _LONGEST))
                if self.server.insert(back, kind):
                    self.kinds[back] = kind
                    self._passing.add(back)

    def _meant(self, watched: Watched, registers: Registers) -> bool:
        return watched.held is None or holds(watched.held, self.stopped, registers, self.server)

    def returned(self, address: int, registers: Registers) -> Iterator[tuple[int, tuple[Value, ...]]]:
        """Yield number and result of each call that has returned to an address; who isn't expected any more has no
        breakpoint any more."""
        for watched in self.returns.take(address, registers):
            yield watched.target, tuple([read(registers, self.server) for read in watched.readers])
        if address in self._passing and address not in self._watched and not self.returns.is_expected(address):
            self.drop(address)

    def hook(self, address: int) -> bool:
        """Set a breakpoint at a place that is no site; return whether it could be."""
        kind = self.stopped.trap(self.server.read(address, _LONGEST))
        self._passing.discard(address)
        if not self.server.insert(address, kind):
            return False
        self.kinds[address] = kind
        return True

    def drop(self, address: int) -> None:
        """Take one site's breakpoint out for good."""
        self.server.remove(address, self.kinds.pop(address))
        self.gone.add(address)
        self._watched.pop(address, None)
        self._returning.pop(address, None)
        self._passing.discard(address)

    def forget(self, start: int, end: int) -> None:
        """A library that was between two addresses is gone: what may come there is armed anew."""
        for address in [one for one in self.kinds if start <= one < end]:
            self.drop(address)
        self.returns.forget(start, end)
        self._unwritten = [one for one in self._unwritten if not start <= one[1].address < end]
        self._semaphores = [one for one in self._semaphores if not start <= one < end]

    def take_out(self) -> None:
        """Put everything back in the standing process."""
        for address, kind in self.kinds.items():
            self.server.remove(address, kind)
        for address in self._semaphores:
            self._count(address, -1)

    def _count(self, address: int, change: int) -> bool:
        value = self.server.number(address, 2)
        if value is None or value + change < 0:
            return False
        return self.server.write_number(address, value + change & 0xFFFF, 2)
