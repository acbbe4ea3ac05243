"""Which probes of a file to watch, and with which backend."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from ...errors import InputError, UsageError
from ...inspection.probes import find_declared, inspect
from . import with_bpftrace, with_gdb, with_session
from .hits import Traced, field, find

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...inspection.probes import Inspection, Probe
    from . import Backend

# "auto" is our own tracer with whichever of its engines works, and then the others in this order.
TRACERS: dict[str, Backend] = {
    "auto": with_session.Engine("auto"),
    "patch": with_session.Engine("patch"),
    "trap": with_session.Engine("trap"),
    "bpftrace": with_bpftrace,
    "gdb": with_gdb,
}


class NoTracerError(Exception):
    """No tracer can be used here; the message says which was tried and what each lacks."""


def probes_of(binary: str, names: Sequence[str]) -> list[Traced]:
    """Return the named probes of a file, or all of them. Raises InputError."""
    from ...inspection.targets import files

    (image,) = list(files(binary, lambda error: None))
    if image.is_object:
        raise InputError(binary, "is an object: what can be traced is the program or library it is linked into")
    seen = inspect(image)
    there = [_traced(seen, probe) for probe in seen.probes if probe.format == "stapsdt"]
    if not there:
        cure = "is it built with its probes? `usdtbuild verify` on it says more"
        raise InputError(binary, "has no probes that a tracer on Linux sees", cure)
    chosen = [one for one in there if not names]
    for name in names:
        found = find(there, name)
        if not found:
            raise InputError(binary, f"has no probe {name}; it has {', '.join(one.name for one in there)}")
        chosen += [one for one in found if one not in chosen]
    return chosen


def _traced(seen: Inspection, probe: Probe) -> Traced:
    declared = find_declared(seen.providers, probe.provider, probe.name)
    types = [argument.type for argument in declared.arguments] if declared is not None else []
    # Sites that don't agree about the number are `usdtbuild verify`'s business.
    together = zip(*(site.arguments for site in probe.sites))
    fields = (field(arguments, types[i] if i < len(types) else None) for i, arguments in enumerate(together))
    return Traced(probe.provider, probe.name, tuple(fields))


def choose(wanted: str, probes: Sequence[Traced]) -> Backend:
    """Return the tracer to use: the one that is wanted, or with "auto" the best that works here.

    Where our own doesn't work, bpftrace comes before gdb, because hits cost less with it, unless there are strings to
    read: it can't read those on a page that the process hasn't touched yet. Raises NoTracerError, and UsageError for an
    unknown name.
    """
    if wanted not in TRACERS:
        raise UsageError(f"there is no tracer {wanted}; there are {', '.join(TRACERS)}")
    if not sys.platform.startswith("linux"):
        raise NoTracerError(f"probes are traced on Linux, and this is {sys.platform}")
    order = [wanted]
    if wanted == "auto":
        strings = any(field.is_string for probe in probes for field in probe.fields)
        order = ["auto", "gdb", "bpftrace"] if strings else ["auto", "bpftrace", "gdb"]
    reasons = []
    for name in order:
        reason = TRACERS[name].why_not(probes)
        if not reason:
            return TRACERS[name]
        reasons.append(reason)
    raise NoTracerError("; ".join(reasons))
