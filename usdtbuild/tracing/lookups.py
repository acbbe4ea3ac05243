"""What was found in the files of one process, for others that have loaded the same: they are read once.

Probes are where their file is loaded, and nothing else of a process says anything of them. Functions are taken as they
are where all files are loaded at the same places, as in a process and those that it has forked.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

from ..apart import apart
from ..inspection.process import program_files
from .job import Job
from .model import Site, Target
from .selection import Selection, select

_MOST = 16  # sets of files


class _File(NamedTuple):
    """A file as it was, and as it is mapped: (offset from its first mapping, size, offset in the file)."""

    path: str
    device: int
    inode: int
    changed: int
    layout: tuple[tuple[int, int, int], ...]


class Lookups:
    """Looks up what a job wants in processes, with the rights of its user; `tell` is `typed`'s."""

    def __init__(self, wish: Job, tell: Callable[[str], None] = lambda _: None) -> None:
        self._wish, self._tell = wish, tell
        self._known: dict[tuple[_File, ...], tuple[Selection, tuple[int, ...]]] = {}

    def look(self, pid: int, known: frozenset[tuple[str, int]]) -> Selection:
        """Return the targets in a process, without those of modules that are `known`. Functions have their arguments.
        Raises InputError."""
        wish, wanted = self._wish, self._wish.wanted
        found = None if known or wanted.calls else _files(pid)
        if found is not None and (before := self._known.get(tuple(found))) is not None:
            there, starts = before
            moved = {file.path: now - was for file, now, was in zip(found, found.values(), starts)}
            if not any(moved.values()):
                return there
            if not wanted.functions:
                return there._replace(targets=tuple(_moved(one, moved) for one in there.targets))
        made: Selection = apart(wish.user, lambda opened: select(pid, wanted, 0, known, opened))
        if wanted.functions:
            from .typed import typed  # what reads debug information takes a third of the time that all else takes

            made = made._replace(targets=tuple(typed(pid, made.targets, wish, self._tell)))
        if found is not None and found == _files(pid) and len(self._known) < _MOST:
            self._known[tuple(found)] = made, tuple(found.values())
        return made


def _files(pid: int) -> dict[_File, int] | None:
    """Return the files that a process has mapped as code, and where; None where one isn't at its path any more."""
    found = {}
    for one in program_files(pid):
        try:
            now = Path(f"/proc/{pid}/root{one.path}").stat()
        except (OSError, ValueError):
            return None
        first = one.mappings[0]
        if one.deleted or (now.st_dev, now.st_ino) != (first.device, first.inode):
            return None
        layout = tuple((each.start - first.start, each.end - each.start, each.offset) for each in one.mappings)
        found[_File(one.path, first.device, first.inode, now.st_ctime_ns, layout)] = first.start
    return found


def _moved(target: Target, by: Mapping[str, int]) -> Target:
    module, more = target.module, by[target.module.path]

    def site(one: Site) -> Site:
        semaphore = one.semaphore and one.semaphore + more
        return one._replace(address=one.address + more, semaphore=semaphore, near=tuple(at + more for at in one.near))

    moved = module._replace(load_bias=module.load_bias + more)
    return target._replace(module=moved, sites=tuple(map(site, target.sites)))
