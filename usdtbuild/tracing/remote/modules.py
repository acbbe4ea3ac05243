"""What a program has loaded, and what is armed in it: by breakpoints (`sites`), or by its slots (`plt_slots`).

Files are armed when the dynamic linker says that it has loaded them. What it relocates or writes itself has to wait
until it is done, of which it tells only when a program starts; for what `dlopen` loads, a file's own first code does.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ...errors import InputError
from ...functions.calls.slots import beginning
from ...inspection.targets import Loaded
from ..model import Refusal, Target
from ..numbering import Numbering
from ..selection import Wanted, targets_in
from .files import Files, Linker
from .plt_slots import PltSlots, Untaken, refused
from .sites import Sites

_SYSROOT = "--sysroot names the folder that is the program's root"


class Found:
    """What is traced and what isn't, in all processes of a trace. Both lists grow as files are loaded."""

    def __init__(self, wanted: Wanted) -> None:
        self.targets: list[Target] = []
        self.refusals: list[Refusal] = []
        self.looked_up = False  # in the program with all libraries that it starts with
        self._numbering = Numbering(wanted.shown_as)

    def numbered(self, targets: Iterable[Target]) -> list[Target]:
        """Add targets; return them with their numbers."""
        numbered, new = self._numbering.take(list(targets))
        self.targets += new
        return numbered

    def refuse(self, refusals: Sequence[Refusal]) -> None:
        """Add what isn't traced, or not all of it."""
        self.refusals += [one for one in dict.fromkeys(refusals) if one not in self.refusals]


class Modules:
    """The files of one process."""

    def __init__(self, found: Found, wanted: Wanted, files: Files, sites: Sites, slots: PltSlots) -> None:
        """`arm` them before anything else is asked."""
        self.found, self.wanted, self.files, self.sites, self.slots = found, wanted, files, sites, slots
        self.server, self.refuse = files.server, found.refuse
        self._modules: dict[tuple[str, int], tuple[int, int]] = {}
        self._beginnings: set[int] = set()
        self._linker = Linker(0, 0)

    def arm(self) -> None:
        """Arm what the standing process has loaded, and follow what comes. Raises TracerError."""
        self._linker = self._watch_linker()
        self._arm()
        is_listed = self.files.listed() and self._is_whole()
        self.found.looked_up |= is_listed or not self._linker.hook
        if is_listed:
            self._settle()

    def copy(self, sites: Sites, slots: PltSlots) -> Modules:
        """Return those of a forked process, which has `sites` and `slots`."""
        copy = Modules(self.found, self.wanted, self.files, sites, slots)
        copy._modules, copy._beginnings = dict(self._modules), set(self._beginnings)
        copy._linker = self._linker
        return copy

    def reached(self, address: int) -> bool:
        """The process stands at a breakpoint: return whether files have come or gone there."""
        changed = address == self._linker.hook and self._is_whole()
        if changed:
            self._arm()
            self.found.looked_up = True
        if changed or address in self._beginnings:
            self._settle()
        return changed

    def _watch_linker(self) -> Linker:
        try:
            linker = self.files.linker()
        except InputError as error:
            self.refuse([Refusal(error.where, f"{error.what}: libraries are not followed", _SYSROOT)])
            return Linker(0, 0)
        if linker.hook and not self.sites.hook(linker.hook):
            path = self.files.program.path
            self.refuse(
                [Refusal(path, "the server sets no breakpoint in the dynamic linker: libraries are not followed")]
            )
        return linker

    def _arm(self) -> None:
        refused: dict[str, str] = {}
        loaded = list(self.files.loaded(refused))
        there = {(one.image.path, one.bias) for one in loaded}
        for key in [key for key in self._modules if key not in there]:
            start, end = self._modules.pop(key)
            self.slots.forget(start, end)
            self.sites.forget(start, end)
        self.sites.returns.know([*loaded, *self._linker.loaded])
        wanted = self.wanted
        self.refuse([Refusal(path, why, _SYSROOT) for path, why in refused.items() if wanted.takes_module(path)])
        for one in loaded:
            if (one.image.path, one.bias) in self._modules or not wanted.takes_module(one.image.path):
                continue
            ends = [segment.address + segment.memory_size for segment in one.image.loads]
            start, end = one.bias, one.bias + max(ends, default=0)
            self._modules[one.image.path, one.bias] = (start, end)
            try:
                untold: list[str] = []
                found = self.found.numbered(targets_in(one, wanted, slots=True, missing=untold.append))
                self.refuse([Refusal(one.image.path, why) for why in untold])
            except InputError as error:
                self.refuse([Refusal(error.where, error.what, error.cure)])
                continue
            others, untaken = self.slots.take(found, one.image)
            self.refuse(self.sites.arm(others, one.image))
            self._arm_untaken(untaken)
            if self.slots.waiting(start, end) or self.sites.unwritten(start, end):
                self._watch_beginning(one)

    def _arm_untaken(self, untaken: Sequence[Untaken]) -> None:
        """Look for calls in the code, where they can't be seen at PLT entries."""
        for one in untaken:
            if all(site.slot is not None for site in one.target.sites):
                self.refuse([refused(one)])
            self.refuse(self.sites.arm([one.target], one.image))

    def _watch_beginning(self, one: Loaded) -> None:
        """Stop where a file's own code begins: it has been relocated then, of which a dynamic linker tells nobody."""
        at = beginning(one.image)
        if at and (at + one.bias in self.sites.kinds or self.sites.hook(at + one.bias)):
            self._beginnings.add(at + one.bias)

    def _settle(self) -> None:
        """Arm what had to wait until files were relocated."""
        self._arm_untaken(self.slots.settle())
        self.refuse(self.sites.arm_written())

    def _is_whole(self) -> bool:
        """Whether the dynamic linker's list of libraries is whole (RT_CONSISTENT) at the moment."""
        return not self._linker.state or not self.server.number(self._linker.state, 4)
