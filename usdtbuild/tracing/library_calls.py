"""Calls of library functions as targets: the stubs of a loaded file, and its call sites that have none.

What a stub's function takes is known where the C library defines it (`prototypes`); of any other, the registers for
integers are shown, of which it may take any number. Which engine arms a stub, and how, is not known here.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ..inspection.demangle import all_spellings, demangle_if_possible
from ..machines import facts_of
from .model import CALL, FLOAT, INTEGER, POINTER, RETURN, Argument, Held, Module, Site, Slot, Target
from .prototypes import Prototype, prototype_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from ..elf.image import Image
    from ..formats.operands import Operand
    from ..functions.calls.model import Call, CallReport, CallSite
    from ..inspection.targets import Loaded
    from ..machines.facts import Passing

_CALL = "call"  # a call site's kind, where it is no jump
# The libraries that make up glibc, and musl's one.
_C_LIBRARIES = re.compile(r"(?:libc|libm|libpthread|libdl|librt|libcrypt|libresolv|libutil|ld-[\w-]+)\.so.*")


def call_targets(
    one: Loaded, module: Module, takes: Callable[[Sequence[str]], bool], first: int, *, returns: bool = False,
    slots: bool = False, missing: Callable[[str], None] = lambda why: None, mangled: bool = False,
) -> Iterator[Target]:  # fmt: skip
    """Yield the library functions that a loaded file calls, if `takes` wants one of their names.

    With `returns`, behind each another target of the same sites, whose operands are those at the call's return. With
    `slots`, where the file's own code loads slots and not all of it may be known, PLT entries are sites, too. Which
    calls are not known at all, `missing` is told.
    """
    from ..functions.calls.read import read_calls

    facts = facts_of(one.image.machine)
    passing = facts.passing if facts is not None else None
    written: dict[str, str] = {}
    wanted: set[int] = set()

    def wants(calls: Sequence[Call]) -> set[int]:
        written.update(demangle_if_possible(call.name for call in calls if call.name))
        wanted.update(call.slot for call in calls if call.name
                      and takes((*all_spellings((call.name,), written), call.title)))  # fmt: skip
        return wanted

    report = read_calls(one.image, wants=None if slots else wants)  # `by_slot` goes by all of them
    if slots:
        wants(report.calls)
    if report.missing:
        missing(report.missing)
    by_slot = report.by_slot if slots else frozenset()
    versions = any(call.version for call in report.calls)
    for call in report.calls:
        if call.slot not in wanted:
            continue
        found = prototype_of(call.name, report.address_size) if _of_c_library(call, versions) else None
        arguments = found.arguments if found is not None else _unknown(passing, report)
        entered = _operands(arguments, passing, one.image, entered=True)
        called = _operands(arguments, passing, one.image, entered=False)
        # Where a stub is where a slot leads until the first call is over, that call was seen at its site.
        twice = report.first_call_only and any(site.through_slot for site in call.sites)
        # Who enters a stub in Thumb code comes by its second entry, behind `bx pc; nop`, in any case.
        prefixes = {stub - 4 for stub in call.stubs} if facts is not None and facts.stopped.thumb else set()
        sites = [Site(at + one.bias, at, entered, 0, "") for at in call.stubs if not twice and at not in prefixes]
        sites += [
            Site(
                site.address + one.bias,
                site.address,
                called if site.kind == _CALL else entered,
                calls=site.kind == _CALL,
                size=site.size,
                held=_held(site, call.slot + one.bias, one.image) if site.place else None,
            )
            for site in call.sites
            if site.through_slot
        ]
        if call.slot in by_slot:
            slot = Slot(call.slot + one.bias, report.resolver + one.bias, report.loads)
            sites.append(Site(call.entry + one.bias, call.entry, entered, slot=slot))
        if sites:
            shown = written.get(call.name, "")
            yield Target(first, CALL, "", call.name, module, arguments, tuple(sites), shown, mangled)
            first += 1
            if returns:
                target = return_target(first, RETURN, call.name, module, sites, found, one.image)
                yield target._replace(written=shown, mangled=mangled)
                first += 1


def return_target(
    number: int, kind: str, name: str, module: Module, sites: Sequence[Site], found: Prototype | None, image: Image
) -> Target:
    """Return the target for the return of a call (`kind` RETURN) or function (EXIT), where those at `sites` return.

    Of an unknown function the result is whatever the register for integers holds.
    """
    if found is None:
        found = Prototype((), Argument("result", "", image.address_size, False, POINTER))
    operand = _result(found, image.machine)
    if found.result is None or operand is None:
        return Target(number, kind, "", name, module, (), tuple(one._replace(operands=()) for one in sites))
    operands = (operand,)
    return Target(number, kind, "", name, module, (found.result,), tuple(s._replace(operands=operands) for s in sites))


def _held(site: CallSite, slot: int, image: Image) -> Held:
    from ..formats.operands import parse_one

    return Held(parse_one(f"{image.address_size}@{site.place}", image.machine), slot)


def _of_c_library(call: Call, versions: bool) -> bool:
    """Whether a name is the C library's: where names have versions at all, all of glibc's have one."""
    if call.version:
        return bool(_C_LIBRARIES.fullmatch(call.library))
    return not versions or bool(call.resolver)


def _unknown(passing: Passing | None, report: CallReport) -> tuple[Argument, ...]:
    count = len(passing.integers) if passing is not None else 0
    return tuple(Argument(f"arg{n}", "", report.address_size, False, POINTER) for n in range(1, count + 1))


def _operands(
    arguments: Sequence[Argument], passing: Passing | None, image: Image, *, entered: bool
) -> tuple[Operand, ...]:
    """Return where a function's arguments are, once it is entered or before a call instruction.

    Behind an argument that may be in a place that isn't known here no other has a place.
    """
    from ..formats.operands import parse_one

    if passing is None:
        return ()
    integers, floats, word = iter(passing.integers), iter(passing.floats), image.address_size
    distance, found, lost = passing.first - (0 if entered else passing.pushed), [], False
    for argument in arguments:
        pair = argument.kind == INTEGER and argument.size > word
        lost = lost or (bool(passing.integers) and (pair or (_is_float(argument) and not passing.floats)))
        place = "" if lost else next(floats if _is_float(argument) else integers, "")
        if passing.stack and not lost and (not place or argument.size > 8):
            place = passing.stack.format(distance)
            distance += -(-argument.size // word) * word
        found.append(parse_one(_operand(argument, place or "?"), image.machine))
    return tuple(found)


def _is_float(argument: Argument) -> bool:
    return argument.kind == FLOAT


def _operand(argument: Argument, place: str) -> str:
    if argument.kind == FLOAT:
        return f"{argument.size}f@{place}"
    return f"{'-' if argument.signed else ''}{argument.size}@{place}"


def _result(found: Prototype, machine: int) -> Operand | None:
    """Return where a function's result is; None where it has none, or nobody knows where."""
    from ..formats.operands import parse_one

    facts = facts_of(machine)
    result = found.result
    if facts is None or facts.passing is None or result is None or result.size > 8:
        return None
    place = facts.passing.results[_is_float(result)]
    return parse_one(_operand(result, place), machine) if place else None
