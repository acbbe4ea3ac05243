"""Call stacks of hits: what a record has of its thread's stack, and the frames that this is afterwards.

A hit that is to have its stack has more arguments: the stack pointer, the top of the stack as bytes, the other
registers that functions keep, and where its code goes on. So every engine that reads arguments can bring it. `Stacks`
makes frames of them: a child without rights reads the files (`apart`), and what it has learned of an address is kept.
"""

from __future__ import annotations

import contextlib
import os
import posixpath
from bisect import bisect_right
from collections import defaultdict
from functools import partial
from typing import TYPE_CHECKING

from ..apart import apart
from ..errors import InputError
from ..formats.operands import CONSTANT, MEMORY, REGISTER, Operand, OperandPlace
from ..inspection.demangle import demangle_if_possible, without_parameters
from ..inspection.process import MappedFile, descriptor_of, load_biases, read_mapped
from ..inspection.unwind import CUT, LOST, Row, Rows, Top, Walk, library
from ..limits import DEBUG_MEMORY, DEBUG_SECONDS
from ..machines import facts_of
from ..record import NamedTuple
from ..text import one_line
from .model import EXIT, INTEGER, MISSING, RETURN, STACK, Argument, Event, Frame, Site, Target, Value

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from ..elf.image import Image
    from ..inspection.source_lines import Frame as Line
    from ..machines.calling import Calling

# Bytes of a stack that are copied: with its registers, and some arguments, a record is 8 KB.
COPIED = 7936
_MOST = 1 << 19  # addresses of a process that are known at a time
BEHIND = "behind"  # the operand that is the address behind a site
_SIGNAL = "<signal handler called>"


def calling_of(machine: int) -> Calling | None:
    """Return a machine's convention, None where stacks are not read."""
    facts = facts_of(machine)
    return facts.calling() if facts is not None and facts.calling is not None else None


def _others(calling: Calling) -> list[tuple[int, str]]:
    return [(number, name) for number, name in calling.kept.items() if name != calling.stack]


def _operand(kind: str, text: str, **more: str | int) -> Operand:
    return Operand(text, 8, False, False, OperandPlace(kind, text, **more))  # type: ignore[arg-type]


def with_stack(target: Target) -> Target:
    """Return a target whose hits bring their stacks, in values behind those of its arguments."""
    calling = calling_of(target.module.machine)
    if calling is None:
        return target  # of another machine, which no engine takes
    word = Argument("", "", 8, False, INTEGER)
    own = len(target.arguments)
    arguments = (*target.arguments, word, Argument("", "", COPIED, False, STACK),
                 *[word] * (len(_others(calling)) + 1))  # fmt: skip
    nothing = _operand("", "")

    def taken(site: Site, *, has_returned: bool = False) -> Site:
        pointer = _operand(REGISTER, calling.stack, register=calling.stack)
        kept = [_operand(REGISTER, name, register=name) for _, name in _others(calling)]
        if not has_returned:
            behind = _operand(CONSTANT, BEHIND, displacement=site.address + 1)
        elif calling.frame:  # where it has returned to is what stands below the stack pointer
            behind = _operand(MEMORY, BEHIND, base=calling.stack, displacement=-calling.frame)
        else:
            behind = _operand(REGISTER, BEHIND, register=calling.kept[calling.back])
        operands = (*site.operands, *[nothing] * (own - len(site.operands)), pointer, pointer, *kept, behind)
        return site._replace(operands=operands, returns=tuple(taken(one) for one in site.returns))

    is_return = target.kind in {EXIT, RETURN}
    return target._replace(arguments=arguments, sites=tuple(taken(one, has_returned=is_return) for one in target.sites))


class Mapping(NamedTuple):
    """Executable memory of a process: from, to, and the number of its file in a list, -1 if none was opened."""

    start: int
    end: int
    file: int


class Learned(NamedTuple):
    """What the child says of addresses of a process: rows, and what is there, the innermost call first."""

    rows: dict[int, Row | None]
    frames: dict[int, tuple[Frame, ...]]


class _Addresses(dict[int, "tuple[Frame, ...]"]):
    """What is at addresses of which nothing can be learned."""

    def __missing__(self, address: int) -> tuple[Frame, ...]:
        return (Frame("", address=address),)


class _Space:
    """What a process has mapped as code, and what is known of its addresses. `files` are open."""

    def __init__(self, mappings: Sequence[Mapping], files: Sequence[tuple[MappedFile, int]]) -> None:
        self.mappings, self.files = sorted(mappings), files
        self._starts = [one.start for one in self.mappings]
        self.known = Learned({}, {})

    def mapping(self, address: int) -> Mapping | None:
        at = bisect_right(self._starts, address) - 1
        return self.mappings[at] if at >= 0 and address < self.mappings[at].end else None

    def is_code(self, address: int) -> bool:
        return self.mapping(address) is not None

    def inherit(self, before: _Space) -> None:
        rows, frames = before.known
        self.known.rows.update((at, one) for at, one in rows.items() if before.at(at) == self.at(at))
        self.known.frames.update((at, one) for at, one in frames.items() if before.at(at) == self.at(at))

    def at(self, address: int) -> tuple[int, tuple[str, int, int]] | None:
        found = self.mapping(address)
        if found is None or found.file < 0:
            return None
        file = self.files[found.file][0]
        return found.start, (file.path, file.mappings[0].device, file.mappings[0].inode)


class Stacks:
    """Makes stacks of hits' values, process by process."""

    def __init__(self, most: int, machine: int, *, mangled: bool = False) -> None:
        """`most` frames each; 0: hits bring no stacks."""
        if most:
            library()
        self._most, self._machine, self._mangled = most, machine, mangled
        calling = calling_of(machine) if most else None
        self._others = [number for number, _ in _others(calling)] if calling is not None else []
        self._added = len(self._others) + 3
        self._spaces: dict[int, _Space] = {}
        self._open: dict[tuple[str, int, int], int] = {}  # descriptors
        self.warnings: list[str] = []

    def mapped(self, pid: int, files: Sequence[MappedFile], anonymous: Sequence[tuple[int, int]]) -> None:
        """Take what a process has mapped as code: files, and what has none."""
        mappings = [Mapping(start, end, -1) for start, end in anonymous]
        opened = list[tuple["MappedFile", int]]()
        for file in files:
            key = file.path, file.mappings[0].device, file.mappings[0].inode
            if key not in self._open:
                self._open[key] = -1
                with contextlib.suppress(InputError):
                    self._open[key] = descriptor_of(pid, file)
            number = len(opened) if self._open[key] >= 0 else -1
            if number >= 0:
                opened.append((file, self._open[key]))
            mappings += [Mapping(one.start, one.end, number) for one in file.mappings if one.executable]
        space = _Space(mappings, opened)
        if pid in self._spaces:
            space.inherit(self._spaces[pid])
        self._spaces[pid] = space

    def forked(self, pid: int, relatives: Iterable[int]) -> None:
        """A process has come to others; it has mapped what they have, unless it says otherwise."""
        if not self._most or pid in self._spaces:
            return
        like = next((one for one in relatives if one in self._spaces), None)
        if like is not None:
            self._spaces[pid] = self._spaces[like]

    def close(self) -> None:
        """Close the files."""
        for descriptor in self._open.values():
            if descriptor >= 0:
                os.close(descriptor)
        self._open.clear()

    def resolved(self, events: Sequence[Event]) -> Sequence[Event]:
        """Return hits with their stacks, and with the values of their own arguments only."""
        if not self._most:
            return events
        found, unknown = list["Event"](), dict[_Space, list[tuple[int, Top]]]()
        for event in events:
            space, top = self._spaces.get(event.pid), self._top(event)
            stack: tuple[Frame, ...] | None = (Frame(LOST),)
            if space is not None and top is not None:
                stack = self._frames(space, top)
                if stack is None:
                    unknown.setdefault(space, []).append((len(found), top))
            found.append(event._replace(values=event.values[: -self._added], stack=stack or ()))
        for space, places in unknown.items():
            self._learn(space, [top for _, top in places])
            for place, top in places:
                found[place] = found[place]._replace(stack=self._frames(space, top) or ())
        return found

    def _top(self, event: Event) -> Top | None:
        pointer, memory, *kept, behind = event.values[-self._added :]
        values: list[Value] = [pointer, behind, *kept]
        if not isinstance(memory, bytes) or any(one is MISSING or not isinstance(one, int) for one in values):
            return None
        return Top(behind, pointer, memory, dict(zip(self._others, kept)))  # type: ignore[arg-type]

    def _frames(self, space: _Space, top: Top) -> tuple[Frame, ...] | None:
        """Return the frames of a stack, None if something isn't known yet."""
        rows, names = space.known
        try:
            addresses, end = Walk(self._machine, rows.__getitem__, space.is_code).frames(top, self._most)
            frames = [frame for address in addresses for frame in names[address]]
        except KeyError:
            return None
        return (*frames[: self._most], *([Frame(end)] if end else []))

    def _learn(self, space: _Space, tops: Sequence[Top]) -> None:
        """Let the child say what these stacks need; where it fails, without source lines."""
        if len(space.known.rows) > _MOST:
            space.known = Learned({}, {})
        given = self._machine, space.files, space.mappings, space.known.rows, tops, self._most, self._mangled
        for lines in (True, False) if not self.warnings else (False,):
            try:
                found: Learned = apart(None, partial(learn, given, lines), (DEBUG_SECONDS, DEBUG_MEMORY))
            except (InputError, OSError) as error:
                self.warnings = [f"warning: call stacks lack names or source lines: {error}"]
                continue
            space.known.rows.update(found.rows)
            space.known.frames.update(found.frames)
            return
        space.known = Learned(defaultdict(lambda: None), _Addresses())


# -- what the child does -----------------------------------------------------------------------------------------------


class _File(NamedTuple):
    image: Image
    bias: int
    rows: Rows


Given = tuple[int, "Sequence[tuple[MappedFile, int]]", "Sequence[Mapping]", "dict[int, Row | None]", "Sequence[Top]",
              int, bool]  # fmt: skip


def learn(given: Given, lines: bool, opened: Callable[[], None] | None) -> Learned:
    """Return what stacks need to be known."""
    machine, files, mappings, rows, tops, most, mangled = given
    if opened is not None:
        opened()
    space = _Space(mappings, files)
    loaded = dict[int, _File | None]()
    new, seen = dict[int, "Row | None"](), set[int]()

    def file_at(address: int) -> _File | None:
        found = space.mapping(address)
        if found is None or found.file < 0:
            return None
        if found.start not in loaded:
            loaded[found.start] = None
            file, descriptor = files[found.file]
            os.lseek(descriptor, 0, os.SEEK_SET)  # an earlier child has read it, too
            with contextlib.suppress(InputError), read_mapped(os.dup(descriptor), file) as mapped:
                from ..elf.image import Image

                image = Image(mapped.view, file.path)
                inside = [one for one in load_biases(image, file.mappings) if image.segment_at(found.start - one)]
                if image.is64 and image.little and inside:
                    loaded[found.start] = _File(image, inside[0], Rows(image))
        return loaded[found.start]

    def row_of(address: int) -> Row | None:
        if address not in rows and address not in new:
            file = file_at(address)
            new[address] = file.rows.at(address - file.bias) if file is not None else None
        return rows[address] if address in rows else new[address]

    walk = Walk(machine, row_of, space.is_code)
    for top in tops:
        seen.update(walk.frames(top, most)[0])
    frames = dict[int, tuple[Frame, ...]]()
    groups = dict[int, tuple[_File, list[int]]]()
    for address in seen:
        file, row = file_at(address), row_of(address)
        if row is not None and row.is_signal:
            frames[address] = (Frame(_SIGNAL, address=address),)
        elif file is None:
            found = space.mapping(address)
            frames[address] = (Frame("", module=files[found.file][0].path if found and found.file >= 0 else "",
                                     address=address),)  # fmt: skip
        else:
            groups.setdefault(id(file), (file, []))[1].append(address)
    for file, addresses in groups.values():
        frames.update(_named(file, addresses, lines))
    names = {frame.function for found in frames.values() for frame in found}
    written = {} if mangled else demangle_if_possible(names)
    for address, all_there in frames.items():
        frames[address] = tuple(_shown(frame, written) for frame in all_there)
    return Learned(new, frames)


def _named(file: _File, addresses: Sequence[int], lines: bool) -> dict[int, tuple[Frame, ...]]:
    from ..inspection.source_lines import find_lines

    places = {(0, address - file.bias): address for address in addresses}
    found = find_lines(file.image, places, lambda _: None).frames if lines else {}
    return {address: _frames(file, place[1], address, found.get(place, ())) for place, address in places.items()}


def _frames(file: _File, place: int, address: int, lines: Sequence[Line]) -> tuple[Frame, ...]:
    symbol = None
    with contextlib.suppress(InputError):  # a damaged table
        symbol = file.image.function_at(place)
    name, offset = (symbol.name, symbol.offset) if symbol is not None else ("", place)
    plain = Frame(name, module=file.image.path, address=address, offset=offset)
    if not lines:
        return (plain,)
    plain = plain._replace(offset=offset if name else 0)
    found = [plain._replace(function=one.function or name, file=one.file, line=one.line, inlined=True) for one in lines]
    return (*found[:-1], found[-1]._replace(inlined=False))


def _shown(frame: Frame, written: dict[str, str]) -> Frame:
    name = without_parameters(written.get(frame.function, frame.function))
    return frame._replace(function=one_line(name), file=one_line(frame.file), module=one_line(frame.module))


def frame_text(frame: Frame) -> str:
    """Return a frame as a line has it."""
    if frame.line:
        return f"{frame_name(frame)} ({posixpath.basename(frame.file)}:{frame.line})"
    place = f"+{frame.offset:#x}" if frame.function and frame.module else ""
    module = f" ({posixpath.basename(frame.module)})" if frame.module else ""
    return f"{frame_name(frame)}{place}{module}"


def frame_json(frame: Frame) -> dict[str, str | int | bool]:
    """Return a frame for JSON, without what isn't known; what ends a stack too early says so by its only key."""
    if frame.function in {CUT, LOST} and not frame.address:
        return {"cut" if frame.function == CUT else "lost": True}
    address, offset = (f"{number:#x}" if number else "" for number in (frame.address, frame.offset))
    found: dict[str, str | int | bool] = {
        "function": frame.function, "file": frame.file, "line": frame.line, "module": frame.module, "address": address,
        "offset": offset, "inlined": frame.inlined,
    }  # fmt: skip
    return {name: value for name, value in found.items() if value}


def stack_text(stack: Sequence[Frame]) -> str:
    """Return a stack as one line, the outermost call first."""
    return ";".join(frame_name(frame).replace(";", ":") for frame in reversed(stack))


def frame_name(frame: Frame) -> str:
    """Return what a frame is called: its function, or its place in its file."""
    return frame.function or f"{frame.offset or frame.address:#x}"
