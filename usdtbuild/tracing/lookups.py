"""What was found in the files of processes, for others that have loaded the same: each is read once.

Probes, functions and calls are where their file is loaded, and nothing else of a process says anything of them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from ..apart import apart
from ..inspection.process import program_files
from .job import Job
from .model import Site, Target
from .selection import Selection, by_file, together

_MOST = 100  # files


class _File(NamedTuple):
    """A file as it was, and as its code is mapped: (distance from where that begins, size, offset in the file). How its
    data is mapped changes while it is loaded."""

    path: str
    device: int
    inode: int
    changed: int
    layout: tuple[tuple[int, int, int], ...]


class Lookups:
    """Looks up what a job wants in processes, with the rights of its user; `tell` is `typed`'s."""

    def __init__(self, wish: Job, tell: Callable[[str], None] = lambda _: None) -> None:
        self._wish, self._tell = wish, tell
        self._known: dict[_File, tuple[Selection, int]] = {}  # and where it was mapped

    def look(self, pid: int, known: frozenset[tuple[str, int]]) -> Selection:
        """Return the targets in a process, without those of modules that are `known`. Functions have their arguments.
        Raises InputError."""
        wish, files = self._wish, _files(pid)
        found = {}
        for path, (file, start) in files.items():
            if file is not None and (before := self._known.get(file)) is not None:
                targets = [_moved(one, start - before[1]) for one in before[0].targets]
                new = tuple(one for one in targets if (one.module.path, one.module.load_bias) not in known)
                found[path] = before[0]._replace(targets=new)
        if len(found) == len(files):
            return together(found.values())

        def is_known(path: str, bias: int) -> bool:
            return path in found or (path, bias) in known

        made: dict[str, Selection] = apart(wish.user, lambda opened: by_file(pid, wish.wanted, is_known, opened))
        if wish.wanted.functions:
            from .typed import typed  # what reads debug information takes a third of the time that all else takes

            for path, one in made.items():
                made[path] = one._replace(targets=tuple(typed(pid, one.targets, wish, self._tell)))
        partly = {path for path, _ in known}
        now = _files(pid)
        for path, one in made.items():
            file, start = files.get(path, _NONE)
            if file is not None and now.get(path) == (file, start) and path not in partly and len(self._known) < _MOST:
                self._known[file] = one, start
        found |= made
        return together(found[path] for path in dict.fromkeys((*files, *made)) if path in found)


_NONE = None, 0


def _files(pid: int) -> dict[str, tuple[_File | None, int]]:
    """Return the files that a process has mapped as code, and where; None for one that isn't at its path any more."""
    found: dict[str, tuple[_File | None, int]] = {}
    for one in program_files(pid):
        code, file = [each for each in one.mappings if each.executable], None
        with contextlib.suppress(OSError, ValueError):
            now = Path(f"/proc/{pid}/root{one.path}").stat()
            is_there = (now.st_dev, now.st_ino) == (code[0].device, code[0].inode) and not one.deleted
            if is_there and one.path not in found:
                layout = tuple((each.start - code[0].start, each.end - each.start, each.offset) for each in code)
                file = _File(one.path, now.st_dev, now.st_ino, now.st_ctime_ns, layout)
        found[one.path] = file, code[0].start
    return found


def _moved(target: Target, more: int) -> Target:
    if not more:
        return target

    def site(one: Site) -> Site:
        return one._replace(
            address=one.address + more,
            semaphore=one.semaphore and one.semaphore + more,
            near=tuple(at + more for at in one.near),
            slot=one.slot and one.slot._replace(address=one.slot.address + more, resolver=one.slot.resolver + more),
            held=one.held and one.held._replace(slot=one.held.slot + more),
            entry=one.entry and one.entry + more,
            returns=tuple(map(site, one.returns)),
        )

    module = target.module._replace(load_bias=target.module.load_bias + more)
    return target._replace(module=module, sites=tuple(map(site, target.sites)))
