"""Arguments that a user gives a type (`--as`): records of `sys/sdt.h` say only how many bytes each has."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ..errors import UsageError
from .filters import argument_index
from .model import FLOAT, INTEGER, POINTER, STRING, Argument, As, Site, Target
from .selection import is_meant

# What a type makes of an argument: its kind, and how it is spelled in C.
_KINDS = {"string": (STRING, "char *"), "pointer": (POINTER, "void *"), "hex": (POINTER, "uint{}_t"),
          "int": (INTEGER, "int{}_t"), "unsigned": (INTEGER, "uint{}_t"), "float": (FLOAT, "")}  # fmt: skip
_FLOATS = {4: "float", 8: "double"}


def _index(one: As, target: Target) -> int:
    """Return which argument of a target a type is for; -1 for none."""
    at = argument_index(target, one.argument)
    if at < 0 or (one.pattern and not is_meant(target, one.pattern)):
        return -1
    known = target.arguments[at]
    is_wide = known.size in _FLOATS or one.type not in {"string", "float"}
    return at if is_wide and (known.kind != FLOAT or one.type == "float") else -1


def parsed(text: str) -> As:
    """Return what `[PROBE:]ARGUMENT:TYPE` says. Raises UsageError."""
    rest, _, type_ = text.rpartition(":")
    pattern, _, argument = rest.rpartition(":")
    if type_ not in _KINDS or not argument:
        raise UsageError(f"--as {text!r}: it is [PROBE:]ARGUMENT:TYPE, as in app:read:arg0:string, and a TYPE is one of"
                         f" {', '.join(_KINDS)}")  # fmt: skip
    return As(pattern, argument, type_)


def retyped(target: Target, wanted: Sequence[As]) -> Target:
    """Return a target whose arguments have the types that a user gives them."""
    for one in wanted:
        at = _index(one, target)
        if at >= 0:
            given = _given(target.arguments[at], one.type)
            arguments = (*target.arguments[:at], given, *target.arguments[at + 1 :])
            sites = tuple(_signed(site, at, given) for site in target.sites)
            target = target._replace(arguments=arguments, sites=sites)
    return target


def unused(wanted: Sequence[As], targets: Sequence[Target]) -> Iterator[str]:
    """Yield what to tell of types for arguments that none of the targets has."""
    for one in wanted if targets else ():
        if all(_index(one, target) < 0 for target in targets):
            yield f"warning: --as {one}: nothing that is traced has this argument"


def _given(argument: Argument, type_: str) -> Argument:
    kind, spelled = _KINDS[type_]
    spelled = spelled.format(8 * argument.size) or _FLOATS[argument.size]
    return argument._replace(kind=kind, type=spelled, signed=type_ == "int", values=())


def _signed(site: Site, at: int, argument: Argument) -> Site:
    operands = tuple(
        one._replace(signed=argument.signed) if index == at else one for index, one in enumerate(site.operands)
    )
    return site._replace(operands=operands, returns=tuple(_signed(one, at, argument) for one in site.returns))
