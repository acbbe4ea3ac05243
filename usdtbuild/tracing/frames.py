"""Calls of functions put in order: each is followed by its end, and what was called within ends before.

What is recorded of a call is where on the stack its return address is, and what that is. So it is known which call a
return ends, and which calls have ended without one: who is entered or returns above them on the stack says so. If that
was entered by their own jump to it (a tail call), they end with it. Else they were left by an exception, by longjmp or
by a jump to what isn't traced, nobody knows when: the end that they get is `LEFT`, and their time their callers'. So is
what seems to be open at the end if not all of its ends would have been seen, and nothing that surely is open is within.

Where stacks are far from each other (signals, coroutines) nothing is concluded from one about the other.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from itertools import takewhile
from operator import attrgetter
from typing import SupportsIndex

from .job import Cut
from .model import ENTER, EXIT, FRAMES, Event, Target
from .selection import is_meant

LEFT = (-1,)  # the frame of an end that was not seen
_NEAR = 1 << 20  # bytes between two frames of one stack, at most
_FAR = 1 << 20  # calls of one thread that are open; of more, none is remembered


class Frames:
    """Puts hits in order, as they come."""

    def __init__(self, cut: Cut | None = None) -> None:
        """`cut` says of which calls, if not of all."""
        self._cut = _Chosen(cut) if cut is not None and any(cut) else None
        self._functions: list[tuple[str, str]] = []  # by target; of one name in a file there may be several
        self._exits: dict[tuple[str, str], int] = {}  # a function's target for its returns
        self._returns: set[int] = set()
        self._titles: dict[tuple[str, str], str] = {}  # of returns
        self._untold: set[tuple[str, str]] = set()  # functions of which not all returns are known
        self._leads: dict[int, frozenset[tuple[str, int]]] = {}  # where a function jumps to
        self._places: dict[int, tuple[str, int]] = {}
        self._open: dict[tuple[int, int], _Open] = {}  # calls by process and thread
        self._last: dict[tuple[int, int], Event] = {}

    def start(self, targets: Sequence[Target]) -> None:
        """Learn the targets, or more of them."""
        for one in targets[len(self._functions) :]:
            path = one.module.path
            self._functions.append((path, one.name))
            if self._cut is not None:
                self._cut.learn(one)
            if one.kind == ENTER:
                self._places[one.number] = (path, one.sites[0].begins)
                self._leads[one.number] = frozenset((path, at) for at in one.sites[0].leads)
            elif one.kind == EXIT:
                self._exits[path, one.name] = one.number
                self._titles[path, one.name] = one.title
                self._returns.add(one.number)
                if any(site.unknown for site in one.sites):
                    self._untold.add((path, one.name))

    def take(self, events: Sequence[Event]) -> list[Event]:
        """Return hits with the ends that they tell of; returns of what was called before the trace are left out."""
        found: list[Event] = []
        for event in events:
            thread = event.pid, event.tid
            calls = self._open.get(thread)
            if calls is None:
                calls = self._open[thread] = _Open(self._functions)
            self._last[thread] = event
            if event.target in self._returns:
                self._returned(calls, event, found)
                continue
            while calls and self._is_over(calls[-1], event):
                found.append(self._end(calls.pop(), event, LEFT))
            if len(calls) < _FAR and len(event.frame) <= len(FRAMES):
                calls.append(event)
                found.append(event)
        return self._cut.take(found) if self._cut is not None else found

    def _is_over(self, call: Event, event: Event) -> bool:
        distance = event.frame[0] - call.frame[0]
        if distance:
            return 0 < distance <= _NEAR
        jumped = self._places.get(event.target) in self._leads.get(call.target, ())
        return not (jumped and call.frame[1] == event.frame[1])

    def _returned(self, calls: _Open, event: Event, found: list[Event]) -> None:
        frame, whose = event.frame[0], self._functions[event.target]
        at = len(calls) - 1 if (frame, whose) in calls.there else -1
        while at >= 0 and (calls[at].frame[0], self._functions[calls[at].target]) != (frame, whose):
            at -= 1
        while at >= 0 and len(calls) > at + 1:
            found.append(self._end(calls.pop(), event, LEFT))
        while calls and at < 0 and 0 <= frame - calls[-1].frame[0] <= _NEAR:
            # Who was jumped to may have been passed by where it was entered (`patch.calls`): it returns in its place.
            is_own = self._cut is not None and calls[-1].frame[0] == frame
            found.append(self._end(calls.pop(), event, event.frame if is_own else LEFT))
        while at >= 0 and calls and calls[-1].frame[0] == frame:  # those too that have jumped there
            found.append(self._end(calls.pop(), event, event.frame))

    def _end(self, call: Event, event: Event, frame: tuple[int, ...]) -> Event:
        whose = self._functions[call.target]
        if frame is not LEFT and event.target in self._returns and self._functions[event.target] == whose:
            return event
        return event._replace(target=self._exits[whose], values=(), frame=frame)

    def finish(self, ended: int, refused: Collection[str] = ()) -> list[Event]:
        """Return the ends of all that is open: with the trace in a process' first thread, and with the last hit of
        others, which may have ended. `refused` are titles of what wasn't watched everywhere."""
        found, places = [], set(self._places.values())
        for (pid, tid), calls in self._open.items():
            last = self._last[pid, tid]
            when = max(ended, last.time) if pid == tid else last.time
            may_be_over = True
            for call in reversed(calls):
                whose = self._functions[call.target]
                may_be_over &= (whose in self._untold or self._titles[whose] in refused
                                or not places.issuperset(self._leads.get(call.target, ())))  # fmt: skip
                # Of a thread that may have ended, nothing says for how long what it hit last has lasted.
                frame = LEFT if may_be_over or (pid != tid and call is last) else ()
                found.append(self._end(call, last._replace(time=when), frame))
            calls.clear()
        found.sort(key=attrgetter("time"))
        return self._cut.take(found) if self._cut is not None else found


class _Open(list["Event"]):
    """A thread's open calls. Whether one of them is meant by a return is known at once, however many there are: `there`
    is how many return to a place on the stack, of a function."""

    def __init__(self, functions: Sequence[tuple[str, str]]) -> None:
        """`functions` are those of targets, now and later."""
        super().__init__()
        self._functions = functions
        self.there: dict[tuple[int, tuple[str, str]], int] = {}

    def append(self, event: Event) -> None:
        super().append(event)
        key = event.frame[0], self._functions[event.target]
        self.there[key] = self.there.get(key, 0) + 1

    def pop(self, _: SupportsIndex = -1) -> Event:
        event = super().pop()
        key = event.frame[0], self._functions[event.target]
        if self.there[key] == 1:
            del self.there[key]
        else:
            self.there[key] -= 1
        return event


class _Call:
    """An open call, and of those that are wanted up to it: how many there are, and what they mean for those within."""

    __slots__ = ("depth", "event", "given", "roles", "wanted")

    def __init__(self, event: Event, around: _Call | None) -> None:
        self.event, self.wanted, self.given = event, False, False
        self.depth: int = around.depth if around is not None else 0
        self.roles: tuple[bool, bool] = around.roles if around is not None else (False, False)


class _Chosen:
    """Lets only some calls pass, of hits in order."""

    def __init__(self, cut: Cut) -> None:
        self._cut = cut
        self._roles: dict[int, tuple[bool, bool]] = {}
        self._open: dict[tuple[int, int], list[_Call]] = {}

    def learn(self, target: Target) -> None:
        if target.kind == ENTER:
            below, not_below = (any(is_meant(target, one) for one in names)
                                for names in (self._cut.below, self._cut.not_below))  # fmt: skip
            self._roles[target.number] = below, not_below

    def take(self, events: Sequence[Event]) -> list[Event]:
        return [one for event in events for one in self._one(event)]

    def _one(self, event: Event) -> Iterator[Event]:
        calls, cut = self._open.setdefault((event.pid, event.tid), []), self._cut
        if event.target in self._roles:
            call = _Call(event, calls[-1] if calls else None)
            calls.append(call)
            below, not_below = self._roles[event.target]
            is_within = not cut.below or below or call.roles[0]
            if is_within and not call.roles[1] and not 0 < cut.depth <= call.depth:
                call.wanted, call.depth = True, call.depth + 1
                call.roles = (call.roles[0] or below, not_below)
                call.given = not cut.least
            if call.given:
                yield event
        elif calls:
            call = calls[-1]
            if call.wanted and event.frame != LEFT and event.own - call.event.own >= cut.least:
                late = list(takewhile(lambda one: not one.given, reversed(calls)))
                for one in reversed(late):
                    one.given = one.wanted
                    if one.given:
                        yield one.event
            if calls.pop().given:
                yield event
