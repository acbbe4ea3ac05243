"""Pairs of hits as spans of time: what begins and ends something is found by name, and paired thread by thread.

A probe NAME__start (or __begin, __entry, __enter) begins what NAME__done (__end, __return, __exit, __stop) of the same
provider ends; a function's entry begins what its exit ends. Written with `-` or `_` it is the same. Without its other
half a name means nothing, and its hits are points in time.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

from .frames import LEFT
from .model import CALL, ENTER, EXIT, PROBE, RETURN, STRING, Event, Target

BEGIN, END, POINT = "begin", "end", "point"

_BEGINS = re.compile(r"(.+?)(?:__|[-_])(?:start|begin|entry|enter)")
_ENDS = re.compile(r"(.+?)(?:__|[-_])(?:done|end|return|exit|stop)")
# Runtimes of languages have one pair of probes for all functions, with the function's name as an argument: CPython and
# PHP (function), Ruby and the JVM (method), Tcl (proc), Perl (sub).
_FUNCTION_STEMS = frozenset(("function", "method", "cmethod", "proc", "sub"))
_FUNCTION_ARGUMENTS = ("function", "method", "methodname", "method_name", "function_name", "name")
_DEEPEST = 100_000  # begins that wait for their end, in one thread


class Role(NamedTuple):
    """What a target's hits mean. `key` is the same for what begins and what ends; `name` that of the span.

    `labels` is the argument whose value is a better name, -1 if there is none.
    """

    kind: str
    key: tuple[str, str]
    name: str
    labels: int = -1

    def label(self, event: Event) -> str:
        """Return the name of the span that a hit begins or ends."""
        value = event.values[self.labels] if 0 <= self.labels < len(event.values) else None
        return value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else self.name


def find_roles(targets: Sequence[Target]) -> list[Role]:
    """Return the role of each target."""
    sides = [_side(target) for target in targets]
    begun = {key for kind, key, _ in sides if kind == BEGIN}
    ended = {key for kind, key, _ in sides if kind == END}
    roles = []
    for target, (kind, key, name) in zip(targets, sides):
        if kind == POINT or key not in begun or key not in ended:
            roles.append(Role(POINT, ("", ""), target.title))
        else:
            roles.append(Role(kind, key, name, _label_argument(target, key[1])))
    return roles


def _side(target: Target) -> tuple[str, tuple[str, str], str]:
    if target.kind != PROBE:
        kind = {ENTER: BEGIN, CALL: BEGIN, EXIT: END, RETURN: END}[target.kind]
        key = f"{target.kind in {CALL, RETURN}} {target.module.path}", target.name
        return kind, key, target.shown
    for kind, pattern in ((BEGIN, _BEGINS), (END, _ENDS)):
        found = pattern.fullmatch(target.name)
        if found:
            return kind, (target.provider, found[1]), f"{target.provider}:{found[1]}"
    return POINT, ("", ""), ""


def _label_argument(target: Target, stem: str) -> int:
    if target.kind == PROBE and stem in _FUNCTION_STEMS:
        names = [argument.name for argument in target.arguments]
        for name in _FUNCTION_ARGUMENTS:
            if name in names and target.arguments[names.index(name)].kind == STRING:
                return names.index(name)
    return -1


class Span(NamedTuple):
    """Something that lasted. `nested`: nothing that began within it goes on after it."""

    begin: Event
    end: Event
    name: str
    nested: bool


class Spans:
    """Pairs hits as they come: an end belongs to the youngest begin of its thread that waits for one."""

    def __init__(self, find: Callable[[Sequence[Target]], list[Role]] = find_roles) -> None:
        self._find, self.roles = find, list[Role]()
        self._open: dict[int, list[Event]] = {}  # by thread, the oldest first
        self._waiting: dict[tuple[int, tuple[str, str]], int] = {}
        self._last: dict[int, Event] = {}  # by thread, what it hit last
        self.without_begin = 0

    def start(self, targets: Sequence[Target]) -> None:
        """Learn the targets, or more of them."""
        self.roles = self._find(targets)

    def innermost(self, tid: int) -> Event | None:
        """Return what began last of all that is open in a thread."""
        return stack[-1] if (stack := self._open.get(tid)) else None

    def add(self, event: Event) -> Span | None:
        """Take a hit that begins or ends something; returns what has ended. If nobody saw when, it lasted until the hit
        before: that long it did."""
        if event.frame == LEFT and event.tid in self._last:
            before = self._last[event.tid]
            event = event._replace(time=before.time, held=before.held)
        self._last[event.tid] = event
        role = self.roles[event.target]
        stack = self._open.setdefault(event.tid, [])
        slot = event.tid, role.key
        if role.kind == BEGIN:
            if len(stack) < _DEEPEST:
                stack.append(event)
                self._waiting[slot] = self._waiting.get(slot, 0) + 1
            return None
        if not self._waiting.get(slot):
            self.without_begin += 1
            return None
        self._waiting[slot] -= 1
        at = len(stack) - 1
        while self.roles[stack[at].target].key != role.key:
            at -= 1
        begin = stack.pop(at)
        return Span(begin, event, self.roles[begin.target].label(begin), at == len(stack))

    def unfinished(self) -> list[Event]:
        """Return the begins whose end has not come, oldest first."""
        return sorted(event for stack in self._open.values() for event in stack)
