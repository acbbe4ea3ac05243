"""Names and values as files and tables have them: unambiguous, and harmless wherever they are shown.

What a traced program calls its strings is not to be trusted: no control character, no half of a surrogate pair and no
byte that is no UTF-8 gets out of here. Each output adds what its own format needs beyond that.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence

from ...text import one_line
from ..model import FLOAT, MISSING, POINTER, STRING, Argument, Cut, Event, Target, Unreadable, Value

# Spreadsheets take what begins with one of these for a formula, in a string's place too (CWE-1236).
_FORMULA = ("=", "+", "-", "@", "'")

Show = Callable[["Argument", "Value"], str]  # how values are shown: `value_text`, or another
Plain = bool | int | float | str | dict[str, str | bool] | None
_EXACT = 1 << 53  # from there on a reader that has doubles only takes two numbers for one
_WORD = 8  # bytes
_LONGEST_CHARACTER = 4  # bytes of UTF-8


def title(target: Target) -> str:
    """Return a target's name, fit to be shown: `provider:probe`, or a function."""
    return one_line(target.title)


def files_of(targets: Sequence[Target], names: Sequence[str] = ()) -> list[str]:
    """Return what to show behind the name of each target: its file, where several files have one of this name, else
    nothing. `names` are their titles, if not given."""
    names = names or [one.title for one in targets]
    files: dict[str, set[str]] = {}
    for name, target in zip(names, targets):
        files.setdefault(name, set()).add(target.module.path)
    return [f" ({one_line(one.module.path)})" if len(files[name]) > 1 else "" for name, one in zip(names, targets)]


def first_of_each(targets: Sequence[Target], names: Sequence[str]) -> list[int]:
    """Return for each target the number of the first one of its name and file: what it is called until all files that
    have one of this name are known."""
    first: dict[tuple[str, str], int] = {}
    return [first.setdefault((names[at], one.module.path), at) for at, one in enumerate(targets)]


def function_names(targets: Sequence[Target]) -> list[str]:
    """Return what tables and trees of calls call functions: each by its name, with its file if several have one."""
    names = [one.shown for one in targets]
    return [name + file for name, file in zip(names, files_of(targets, names))]


def cell(text: str) -> str:
    """Return a text as a table's cell has it: with a `'` before it where a spreadsheet would find a formula."""
    return f"'{text}" if text.startswith(_FORMULA) else text


def argument_names(target: Target) -> tuple[str, ...]:
    """Return what a target's arguments are called, each otherwise: `argN` where nobody named it, or two alike."""
    names: list[str] = []
    for index, argument in enumerate(target.arguments):
        name = one_line(argument.name)
        names.append(name if name and name not in names else f"arg{index}")
    return tuple(names)


def column_kind(argument: Argument) -> str:
    """Return what tells an argument's column from another of the same name: what class its type is of."""
    if argument.kind in (STRING, FLOAT):
        return argument.kind
    return "integer" if argument.signed or 0 < argument.size < _WORD else "unsigned"


def table_headings(targets: Sequence[Target], places: Iterable[tuple[int, int]], other: str = "") -> dict[int, str]:
    """Return what the tables of some targets' arguments are called: a target's number and the argument's index each;
    `other` is what one is called where the index is below 0.

    Several files may have a probe of one name, or call one function: where two tables would be called the same, each
    says its file.
    """
    names = {
        number: f"{title(targets[number])} {argument_names(targets[number])[place] if place >= 0 else other}"
        for number, place in places
    }
    times = Counter(names.values())
    return {
        number: name if times[name] == 1 else f"{name} ({one_line(targets[number].module.path)})"
        for number, name in names.items()
    }


def value_name(argument: Argument, value: Value) -> str:
    """Return what an argument calls one of its values, as an enumeration does; '' where it has no name."""
    return one_line(next((name for number, name in argument.values if number == value), ""))


def plain_value(argument: Argument, value: Value) -> Plain:
    """Return a value for JSON, so that none of its argument looks like another. Don't ask for MISSING ones.

    Numbers are numbers, enumerators their names, truth values true and false, a string is a text, NULL as a string is
    None. Everything else is an object that says what it is: `bytes` (hexadecimal) for a string that is no UTF-8, `text`
    or `bytes` with `cut` for one that may be longer, `unreadable` for the address of one, `pointer`, `integer` for one
    that a double can't hold, `float` for infinity and NaN.
    """
    if isinstance(value, bytes):
        return _plain_text(value)
    if value is None:
        return None
    if isinstance(value, float):
        return value if math.isfinite(value) else {"float": repr(value)}
    if isinstance(value, Unreadable):
        return {"unreadable": f"{value:#x}"}
    if argument.kind == POINTER:
        return {"pointer": f"{value:#x}"}
    if name := value_name(argument, value):
        return {"true": True, "false": False}.get(name, name)
    return int(value) if abs(value) < _EXACT else {"integer": str(value)}


def arguments_of(names: Sequence[str], target: Target, event: Event) -> dict[str, Plain]:
    """Return a hit's arguments for JSON by their names, without those that could not be read."""
    return {name: plain_value(argument, value) for name, argument, value in zip(names, target.arguments, event.values)
            if value is not MISSING}  # fmt: skip


def merged(begin: dict[str, Plain], end: dict[str, Plain]) -> dict[str, Plain]:
    """Return the arguments of something that lasted: those of its end that are others are told apart."""
    changed = {f"{name} at the end": value for name, value in end.items() if begin.get(name, value) != value}
    return {**end, **begin, **changed}


def _plain_text(value: bytes) -> Plain:
    cut = isinstance(value, Cut)
    try:
        text = value.decode("utf-8")
    except UnicodeDecodeError as error:
        if not cut or len(value) - error.start >= _LONGEST_CHARACTER or error.reason != "unexpected end of data":
            return {"bytes": value.hex(), "cut": True} if cut else {"bytes": value.hex()}
        text = value[: error.start].decode("utf-8")
    return {"text": text, "cut": True} if cut else text


def cell_value(argument: Argument, value: Value) -> str | int | float:
    r"""Return a value for a table's cell, so that none looks like another of the same argument.

    In a string a backslash is `\\`, and what isn't printable or no UTF-8 is spelled with one. So a cell that begins
    with one may be something else: `\N` is NULL, `\E` the empty string, `\?` what could not be read, with the address
    where that is known, and `\#` stands before an integer that a double can't hold. `\...` ends what may be longer.
    """
    if isinstance(value, bytes):
        text = "".join(c if c == '"' or (c.isprintable() and c != "\\") else _escaped(c)
                       for c in value.decode("utf-8", "surrogateescape"))  # fmt: skip
        return cell(text + "\\..." * isinstance(value, Cut)) or "\\E"
    if value is None:
        return "\\N"
    if value is MISSING:
        return "\\?"
    if isinstance(value, Unreadable):
        return f"\\?{value:#x}"
    if isinstance(value, float):
        return value
    if argument.kind == POINTER:
        return f"{value:#x}"
    if name := value_name(argument, value):
        return cell(name)
    return int(value) if abs(value) < _EXACT else f"\\#{value}"


def value_text(argument: Argument, value: Value) -> str:
    """Return a value as a user reads it: strings in quotes, pointers and what can't be read in hexadecimal."""
    if value is MISSING:
        return "?"
    if value is None:
        return "NULL"
    if isinstance(value, bytes):
        text = value.decode("utf-8", "surrogateescape")
        shown = "".join(c if c.isprintable() and c not in '"\\' else _escaped(c) for c in text)
        return f'"{shown}"' + "..." * isinstance(value, Cut)
    if isinstance(value, Unreadable) or argument.kind == POINTER:
        return f"{value:#x}"
    if name := value_name(argument, value):
        return name
    return f"{value:g}" if argument.kind == FLOAT else str(value)


def _escaped(character: str) -> str:
    if character in '"\\':
        return "\\" + character
    if "\udc80" <= character <= "\udcff":  # a byte that is no UTF-8
        return f"\\x{ord(character) - 0xDC00:02x}"
    if "\x80" <= character <= "\xff":  # which Python spells as such a byte
        return f"\\u{ord(character):04x}"
    return character.encode("unicode_escape").decode("ascii")
