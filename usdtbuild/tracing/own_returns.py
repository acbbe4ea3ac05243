"""Returns that are watched in a function's own code, as its entry is: which can be, and which need breakpoints.

A call's return address must not be changed: who unwinds the stack (an exception, a profiler, a garbage collector) would
find code there that no table describes, and a processor with a shadow stack would end the program. So a function's own
`ret`s become jumps, to trampolines that record and end in a `ret`. Nothing on any stack is changed, so exceptions,
`longjmp` and coroutines need nothing special, and nobody needs to remember who has called. What must be known is that a
function returns by nothing else (`functions.exits`). Of all others returns are seen by breakpoints where they return
to, which only a breakpoint at the call knows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from .model import CALL, ENTER, EXIT, PROBE, RETURN, Refusal, Site, Target


class Split(NamedTuple):
    """Targets that may be patched, with the sites for it; sites that need breakpoints; by address why they do."""

    jumps: tuple[Target, ...]
    trapped: list[tuple[Target, Site]]
    reasons: dict[int | None, Refusal]


def in_place(targets: Sequence[Target]) -> Split:
    """Return which targets can be patched though returns are wanted."""
    known = {site.address for target in targets if target.kind == EXIT for site in target.sites if not site.unknown}
    jumps: list[Target] = []
    trapped: list[tuple[Target, Site]] = []
    reasons: dict[int | None, Refusal] = {}
    for target in targets:
        if target.kind == PROBE:
            jumps.append(target)
        elif target.kind in {ENTER, EXIT} and target.sites[0].address in known:
            own = target.sites[0].returns if target.kind == EXIT else target.sites
            jumps.append(target._replace(sites=own))
        else:
            trapped += [(target, site) for site in target.sites]
            for site in target.sites if target.kind == EXIT else ():
                reason = f"its returns can't be watched in place: {site.unknown}"
                reasons[site.address] = Refusal(target.title, reason, "", site.address)
            if target.kind in {CALL, RETURN}:
                reason = "returns of calls are seen by breakpoints"
                reasons.update({s.address: Refusal(target.title, reason, "", s.address) for s in target.sites})
    return Split(tuple(jumps), trapped, reasons)


def seen_alone(targets: Sequence[Target]) -> tuple[Target, ...]:
    """Return targets that are seen without any breakpoint: of functions their entries, and those of their returns that
    are their own `ret`s. Of the others the tracer finds out (`frames`)."""
    own = (one._replace(sites=one.sites[0].returns) if one.kind == EXIT else one for one in targets)
    return tuple(one for one in own if one.sites)
