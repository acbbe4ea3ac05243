"""Which library a function comes from: the files that DT_NEEDED names, found the way the dynamic linker does.

In order: DT_RPATH (where there is no DT_RUNPATH), DT_RUNPATH, `/etc/ld.so.cache`, the system's folders (ld.so(8)).
LD_LIBRARY_PATH and LD_PRELOAD are not looked at: they belong to a process, whose own files tell more. With a system
root of another machine, its folders take the place of cache and folders.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Iterator
from pathlib import Path

from ...apart import open_binary
from ...elf.dynamic import Dynamic
from ...elf.image import Image
from ...errors import InputError
from ...record import NamedTuple
from .model import Call

_DT_NEEDED, _DT_RPATH, _DT_RUNPATH = 1, 15, 29
_CACHE = Path("/etc/ld.so.cache")
_MAGIC, _HEADER, _ENTRY = b"glibc-ld.so.cache1.1", 48, struct.Struct("=iIIIQ")  # glibc, sysdeps/generic/dl-cache.h
_FOLDERS = ("lib64", "usr/lib64", "lib", "usr/lib")


class Library(NamedTuple):
    """A library that was found: the name that is asked for, its file, the functions it has, and what it needs."""

    name: str
    path: str
    symbols: frozenset[str]
    needed: tuple[str, ...]
    folders: tuple[str, ...]


class Libraries:
    """Finds libraries; every file is read once. `root` is a folder that has the system's folders of another machine."""

    def __init__(self, root: str = "") -> None:
        self._root = root
        self._known: dict[str, Library | None] = {}
        self._cached: dict[str, list[str]] | None = None

    def providers(self, image: Image, names: set[str]) -> dict[str, Library]:
        """Return the first library, in the order in which the dynamic linker asks them, that has each of `names`."""
        found: dict[str, Library] = {}
        for library in self.all_of(image):
            for name in names & library.symbols:
                found.setdefault(name, library)
        return found

    def all_of(self, image: Image) -> Iterator[Library]:
        """Yield the libraries that a file needs, and those that these need, breadth first; those that are found."""
        dynamic = Dynamic(image)
        folders = _folders(dynamic, image.path)
        waiting = deque((name, folders) for name in dynamic.texts(_DT_NEEDED))
        seen: set[str] = set()
        while waiting:
            name, folders = waiting.popleft()
            if name in seen:
                continue
            seen.add(name)
            library = self._find(name, folders, image)
            if library is not None:
                yield library
                waiting.extend((needed, library.folders) for needed in library.needed)

    def _find(self, name: str, folders: tuple[str, ...], like: Image) -> Library | None:
        for path in self._places(name, folders):
            if path not in self._known:
                self._known[path] = _read(name, path, like)
            library = self._known[path]
            if library is not None:
                return library
        return None

    def _places(self, name: str, folders: tuple[str, ...]) -> Iterator[str]:
        if "/" in name:
            yield name
            return
        for folder in folders:
            yield f"{folder}/{name}"
        if not self._root:
            yield from self._cache().get(name, ())
        for folder in _FOLDERS:
            yield f"{self._root.rstrip('/')}/{folder}/{name}"

    def _cache(self) -> dict[str, list[str]]:
        if self._cached is None:
            try:
                self._cached = _entries(_CACHE.read_bytes())
            except OSError:
                self._cached = {}
        return self._cached


def _entries(data: bytes) -> dict[str, list[str]]:
    """Return name -> paths of a dynamic linker's cache; none where it is of another kind."""
    start = data.find(_MAGIC)
    found: dict[str, list[str]] = {}
    if start < 0 or start + _HEADER > len(data):
        return found
    (count,) = struct.unpack_from("=I", data, start + len(_MAGIC))
    for number in range(count):
        at = start + _HEADER + number * _ENTRY.size
        if at + _ENTRY.size > len(data):
            break
        _, key, value, _, _ = _ENTRY.unpack_from(data, at)
        name, path = (data[start + text : max(data.find(b"\0", start + text), 0)].decode("utf-8", "surrogateescape")
                      for text in (key, value))  # fmt: skip
        found.setdefault(name, []).append(path)
    return found


def _folders(dynamic: Dynamic, path: str) -> tuple[str, ...]:
    texts = dynamic.texts(_DT_RUNPATH) or dynamic.texts(_DT_RPATH)
    origin = str(Path(path).resolve().parent)
    names = [name for text in texts for name in text.split(":") if name]
    for spelling in ("$ORIGIN", "${ORIGIN}"):
        names = [name.replace(spelling, origin) for name in names]
    return tuple(names)


def _read(name: str, path: str, like: Image) -> Library | None:
    try:
        opened = open_binary(path)
        if opened is None:
            return None
        with opened:
            image = Image(opened.view, path)
            if (image.machine, image.layout) != (like.machine, like.layout):
                return None
            dynamic = Dynamic(image)
            table = dynamic.symbols
            numbers = range(1, table.count) if table is not None else ()
            symbols = frozenset(table.name(n) for n in numbers if table is not None and table.section(n))
            return Library(name, path, symbols, dynamic.texts(_DT_NEEDED), _folders(dynamic, path))
    except (InputError, OSError):
        return None


def with_libraries(image: Image, calls: tuple[Call, ...], libraries: Libraries) -> tuple[Call, ...]:
    """Return calls with the libraries that their symbols are in, where no version says it."""
    wanted = {call.name for call in calls if call.name and not call.library and not call.resolver}
    found = libraries.providers(image, wanted) if wanted else {}
    return tuple(
        call._replace(library=found[call.name].name) if not call.library and call.name in found else call
        for call in calls
    )
