"""The enumerators that a provider file declares, for tracers that show values by name and take names for values.

Reads tokens, and nothing but enumerations of them: headers have no use for what these hold, so the grammar steps over
it. An enumerator whose value isn't plain (`1 << 3`) is left out, with those that count on from it.
"""

from __future__ import annotations

from .lexer import LETTERS, scan
from .parser import parse_bytes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..model import Provider

Values = tuple[tuple[int, str], ...]

_TYPE = 8  # words of the type that follows a colon, at most


def declared(data: bytes, path: str) -> tuple[tuple[Provider, ...], dict[str, Values]]:
    """Return what a provider file declares, and the enumerators in it. Raises ParseError."""
    return parse_bytes(data, path), enumerators(data.decode("utf-8-sig", "replace"))


def enumerators(text: str) -> dict[str, Values]:
    """Return the values and names of each enumeration in a file, by `enum TAG` and by the names of its type."""
    tokens = scan(text).tokens
    found: dict[str, Values] = {}
    for at, token in enumerate(tokens):
        if token != "enum":
            continue
        tag = tokens[at + 1] if _is_name(tokens[at + 1]) else ""
        opening = at + 1 + bool(tag)
        values: Values = ()
        if tokens[opening] == ":":
            opening += next((step for step, one in enumerate(tokens[opening : opening + _TYPE]) if one == "{"), 0)
        behind = opening
        if tokens[opening] == "{" and "}" in tokens[opening:]:
            behind = tokens.index("}", opening) + 1
            values = tuple(_values(tokens[opening + 1 : behind - 1]))
            if tag:
                found[f"enum {tag}"] = values
        values = values or found.get(f"enum {tag}", ())
        if at and tokens[at - 1] == "typedef" and _is_name(tokens[behind]):
            found[tokens[behind]] = values
    return found


def _values(tokens: Sequence[str]) -> list[tuple[int, str]]:
    found: list[tuple[int, str]] = []
    following: int | None = 0
    start = 0
    for end in [*(at for at, token in enumerate(tokens) if token == ","), len(tokens)]:
        name, *given = tokens[start:end] or [""]
        start = end + 1
        if given[:1] == ["="]:
            following = _number("".join(given[1:]))
        elif given:
            following = None
        if following is not None and _is_name(name):
            found.append((following, name))
            following += 1
    return found


def _number(text: str) -> int | None:
    plain = text.rstrip("uUlL")
    digits = plain.lstrip("-")
    octal = len(digits) > 1 and digits.isdigit() and digits.startswith("0")
    try:
        return int(plain, 8 if octal else 0)
    except ValueError:
        return None


def _is_name(token: str) -> bool:
    return token[:1] in LETTERS
