"""Names and values as files and tables have them: unambiguous, and harmless wherever they are shown.

What a traced program calls its strings is not to be trusted: no control character, no half of a surrogate pair and no
byte that is no UTF-8 gets out of here. Each output adds what its own format needs beyond that.
"""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING

from ...text import one_line
from ..model import FLOAT, MISSING, POINTER, Unreadable

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ..model import Argument, Target, Value

Plain = int | float | str | None


def title(target: Target) -> str:
    """Return a target's name, fit to be shown: `provider:probe`, or a function."""
    return one_line(target.title)


def argument_names(target: Target) -> tuple[str, ...]:
    """Return what a target's arguments are called, each otherwise: `argN` where nobody named it, or two alike."""
    names: list[str] = []
    for index, argument in enumerate(target.arguments):
        name = one_line(argument.name)
        names.append(name if name and name not in names else f"arg{index}")
    return tuple(names)


def table_headings(targets: Sequence[Target], places: Iterable[tuple[int, int]]) -> dict[int, str]:
    """Return what the tables of some targets' arguments are called: a target's number and the argument's index each.

    Several files may have a probe of one name, or call one function: where two tables would be called the same, each
    says its file.
    """
    names = {number: f"{title(targets[number])} {argument_names(targets[number])[place]}" for number, place in places}
    times = Counter(names.values())
    return {
        number: name if times[name] == 1 else f"{name} ({one_line(targets[number].module.path)})"
        for number, name in names.items()
    }


def plain_value(argument: Argument, value: Value) -> Plain:
    """Return a value for a file: numbers as they are, strings as text, pointers as `0x...`, NULL strings as None.

    What can't be said as a JSON number (infinity, NaN) is text. Don't ask for MISSING ones.
    """
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace")
    if isinstance(value, float):
        return value if math.isfinite(value) else repr(value)
    if value is not None and (isinstance(value, Unreadable) or argument.kind == POINTER):
        return f"{value:#x}"
    return None if value is None or value is MISSING else int(value)


def value_text(argument: Argument, value: Value) -> str:
    """Return a value as a user reads it: strings in quotes, pointers and what can't be read in hexadecimal."""
    if value is MISSING:
        return "?"
    if value is None:
        return "NULL"
    if isinstance(value, bytes):
        text = value.decode("utf-8", "surrogateescape")
        return '"' + "".join(c if c.isprintable() and c not in '"\\' else _escaped(c) for c in text) + '"'
    if isinstance(value, Unreadable) or argument.kind == POINTER:
        return f"{value:#x}"
    return f"{value:g}" if argument.kind == FLOAT else str(value)


def _escaped(character: str) -> str:
    if character in '"\\':
        return "\\" + character
    if "\udc80" <= character <= "\udcff":  # a byte that is no UTF-8
        return f"\\x{ord(character) - 0xDC00:02x}"
    return character.encode("unicode_escape").decode("ascii")
