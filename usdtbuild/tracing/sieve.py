"""A filter applied to hits: which of them pass, and how many.

A call of a function and its return are one thing: where the filter can be answered by the call's arguments,
the return passes with its call; where it asks for the result too, the call waits until it has returned, and both pass
or neither. Who returns is told by the thread: the youngest call of this function that hasn't returned. What came
after it and is still waiting was left (longjmp, an exception).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from .filters import Filter, FilterError, Test, own_of
from .model import CALL, ENTER, EXIT, RETURN, Event, Refusal, Target, Value

_RETURN_OF = {CALL: RETURN, ENTER: EXIT}  # by the kind of a target that of its return's
_DEEPEST = 10_000  # calls of one thread that wait for their return; the oldest of more never come back


class _Waiting(NamedTuple):
    """A call that hasn't returned; `passed` is None where that isn't known yet."""

    call: Event
    passed: bool | None


class Sieve:
    """Lets the hits through that pass a filter, and counts them. `refused` are targets that the filter can't be for.

    Where nobody has said what to trace (`is_open`), libraries' probes may lack what it asks for: none of them passes.
    """

    def __init__(self, wanted: Filter, *, is_open: bool = False) -> None:
        self.filter, self._is_open = wanted, is_open
        self._tests: list[Test] = []
        self._passed: list[int] = []
        self._call_of: dict[int, int] = {}  # number of a return's target -> that of its call's
        self._calls: set[int] = set()  # those that have such a return
        self._late: set[int] = set()  # those of them whose test needs the result
        self._waiting: dict[tuple[int, int], list[_Waiting]] = {}  # by process and thread
        self.refused: list[Refusal] = []
        self.lacking: FilterError | None = None  # what is wrong with the filter, if it can be for nothing that has come
        self._fits = False

    def start(self, targets: Sequence[Target], *, strict: bool = True) -> None:
        """Compile the filter for targets that are new. What it can't be for is refused; if `strict`, by FilterError."""
        strangers: list[FilterError] = []
        returns = {(one.kind, *_place(one)): one for one in targets if one.kind in _RETURN_OF.values()}
        for target in targets[len(self._tests) :]:
            test: Test = _none
            if target.kind not in _RETURN_OF.values():
                back = returns.get((_RETURN_OF.get(target.kind, ""), *_place(target)))
                try:
                    test, self._fits = self._compile(target, back), True
                except FilterError as error:
                    if self._is_open and target.module.is_library:
                        strangers.append(error)
                    elif strict:
                        raise
                    else:
                        self.refused.append(Refusal(target.title, error.what))
                        self.lacking = error
                if back is not None:
                    self._call_of[back.number] = target.number
                    self._calls.add(target.number)
            self._tests.append(test)
            self._passed.append(0)
        self.lacking = None if self._fits else self.lacking
        if strict and len(strangers) == len(targets) > 0:
            raise strangers[0]

    def _compile(self, target: Target, back: Target | None) -> Test:
        try:
            return self.filter.compile(target)
        except FilterError as error:
            if back is None or not back.arguments:
                raise
            both = target._replace(arguments=(*target.arguments, *back.arguments))
            try:
                test = self.filter.compile(both)
            except FilterError:
                raise error from None
            self._late.add(target.number)
            return test

    def take(self, events: Sequence[Event]) -> list[Event]:
        """Return those of the hits that pass, a call that waited for its result with its return."""
        tests = self._tests
        if self._call_of:
            found = [one for event in events
                     for one in (self._returned if event.target in self._call_of else self._hit)(event)]  # fmt: skip
            passed = sorted(found, key=lambda event: event.time)
        else:
            passed = [event for event in events if tests[event.target](event.values, own_of(event))]
        for event in passed:
            self._passed[event.target] += 1
        return passed

    def _hit(self, event: Event) -> list[Event]:
        late = event.target in self._late
        passes = None if late else self._tests[event.target](event.values, own_of(event))
        if event.target in self._calls:
            waiting = self._waiting.setdefault((event.pid, event.tid), [])
            waiting.append(_Waiting(event, passes))
            del waiting[:-_DEEPEST]
        return [event] if passes else []

    def _returned(self, event: Event) -> list[Event]:
        waiting = self._waiting.get((event.pid, event.tid), [])
        wanted = self._call_of[event.target]
        at = next((n for n in range(len(waiting) - 1, -1, -1) if waiting[n].call.target == wanted), None)
        if at is None:
            return []
        call, passes = waiting[at]
        del waiting[at:]
        if passes is None:
            return [call, event] if self._tests[wanted]((*call.values, *event.values), own_of(event)) else []
        return [event] if passes else []

    def counts(self, more: Mapping[int, int]) -> tuple[int, ...]:
        """Return how many hits of each target have passed, with those that passed elsewhere."""
        return tuple(passed + more.get(number, 0) for number, passed in enumerate(self._passed))


def _place(target: Target) -> tuple[str, str, int]:
    return target.name, target.module.path, target.module.load_bias


def _none(_: Sequence[Value], __: Sequence[int] = ()) -> bool:
    return False
