"""Where time went, as a tree of stacks: what spans lie within each other, thread by thread, and how long each lasted.

Where nothing that is traced has an end (entries of functions alone), hits are counted instead, each a stack of one.
Where hits bring their call stacks, these are counted.
What it makes is written by `folded`, `flame` and `pprof`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import IO, Any

from ...text import one_line
from ..frames import LEFT
from ..model import Event, Target
from ..spans import BEGIN, POINT, Role, find_roles
from ..stacks import frame_name
from . import EVENTS, Output
from .values import title

_DEEPEST = 1000
_MOST_NODES = 500_000
OTHERS = "(other stacks)"


class Node:
    """A frame below its callers: nanoseconds or hits of its own, and the frames that it called."""

    __slots__ = ("below", "own")

    def __init__(self) -> None:
        self.own = 0
        self.below: dict[str, Node] = {}

    def child(self, name: str) -> Node:
        """Return the frame called `name` below this one."""
        found = self.below.get(name)
        if found is None:
            found = self.below[name] = Node()
        return found


class _Frame:
    """An open span: of which role, since when, how much of it was spent below it."""

    __slots__ = ("began", "below", "node", "role")

    def __init__(self, role: Role, node: Node, began: int) -> None:
        self.role, self.node, self.began, self.below = role, node, began, 0


class Stacks:
    """Builds the tree as hits come. What ends while inner spans are open ends those, too: their ends were lost. What
    nobody saw the end of (`frames`) has no time of its own."""

    def __init__(self, *, calls: bool = False) -> None:
        self._calls = calls
        self._targets: Sequence[Target] = ()
        self._roles: list[Role] = []
        self._open: dict[int, list[_Frame]] = {}
        self._times = Node()
        self._hits = Node()
        self._nodes = 0
        self._last = 0
        self._held: dict[int, int] = {}  # how long threads have stood
        self._any = False

    def start(self, targets: Sequence[Target]) -> None:
        """Learn the targets, or more of them."""
        self._targets, self._roles = targets, find_roles(targets)

    def add(self, events: Sequence[Event]) -> None:
        """Take hits, oldest first."""
        if self._calls:
            for event in events:
                self._add_calls(event)
            return
        for event in events:
            role = self._roles[event.target]
            self._held[event.tid] = event.held
            if role.kind == POINT:
                self._hits.child(one_line(role.name)).own += 1
            elif role.kind == BEGIN:
                self._begin(event, role)
            else:
                self._end(event, role)
            self._last = event.time

    def _add_calls(self, event: Event) -> None:
        """Count a hit where it is called; a probe is the innermost frame."""
        target, node = self._targets[event.target], self._hits
        names = [frame_name(frame) for frame in reversed(event.stack)]
        for name in [*names, title(target)] if target.provider else names:
            if name not in node.below:
                self._nodes += 1
            node = node.child(name if name in node.below or self._nodes <= _MOST_NODES else OTHERS)
        node.own += 1

    def _begin(self, event: Event, role: Role) -> None:
        self._any = True
        stack = self._open.setdefault(event.tid, [])
        if len(stack) >= _DEEPEST:
            return
        above = stack[-1].node if stack else self._times
        name = one_line(role.label(event))
        if name not in above.below:
            self._nodes += 1
            if self._nodes > _MOST_NODES:
                name = OTHERS
        stack.append(_Frame(role, above.child(name), event.own))

    def _end(self, event: Event, role: Role) -> None:
        stack = self._open.get(event.tid, [])
        if any(frame.role.key == role.key for frame in reversed(stack)):
            while stack[-1].role.key != role.key:
                self._close(stack, event.own)
            self._close(stack, event.own if event.frame != LEFT else None)

    def _close(self, stack: list[_Frame], time: int | None) -> None:
        frame = stack.pop()
        lasted = max(0, time - frame.began) if time is not None else frame.below
        frame.node.own += max(0, lasted - frame.below)
        if stack:
            stack[-1].below += lasted

    def finish(self, ended: int) -> tuple[Node, str]:
        """Return the tree and the unit that it counts in, `ns` or `hits`. What is open lasts until the end."""
        for tid, stack in sorted(self._open.items()):
            while stack:
                self._close(stack, max(ended, self._last) - self._held.get(tid, 0))
        return (self._times, "ns") if self._any else (self._hits, "hits")


def walk(root: Node) -> Iterator[tuple[tuple[str, ...], Node]]:
    """Yield every frame with its names from the outermost inwards; callers first, frames of one caller by name."""
    waiting: list[tuple[tuple[str, ...], Node]] = [((), root)]
    while waiting:
        names, node = waiting.pop()
        if names:
            yield names, node
        waiting += [((*names, name), node.below[name]) for name in sorted(node.below, reverse=True)]


def totals(root: Node) -> dict[Node, int]:
    """Return what each frame has with all below it."""
    order = [root]
    for node in order:
        order += node.below.values()
    found: dict[Node, int] = {}
    for node in reversed(order):
        found[node] = node.own + sum(found[child] for child in node.below.values())
    return found


class StacksOutput(Output):
    """An output that is made of the tree, at the end."""

    needs = EVENTS
    values = False

    def __init__(self, stream: IO[Any], *, calls: bool = False) -> None:
        self._stream, self._stacks, self.calls = stream, Stacks(calls=calls), calls

    def start(self, targets: Sequence[Target]) -> None:
        """Learn the targets."""
        self._stacks.start(targets)

    def events(self, events: Sequence[Event]) -> None:
        """Take them in."""
        self._stacks.add(events)
