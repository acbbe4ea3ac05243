"""A C or C++ source: the function that gets the first probe, and where its lines go.

Looks at a text in which comments and strings are blank, with a few expressions; that isn't parsing, and needn't be: the
user sees the change before it is made. Knows nothing of build systems.
"""

from __future__ import annotations

import re
from typing import NamedTuple

SUFFIXES = (".c", ".cc", ".cpp", ".cxx", ".c++", ".C")
_BLANK = re.compile(r"/\*.*?\*/|//[^\n]*|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*'", re.DOTALL)
_NO_FUNCTIONS = "if|for|while|switch|catch|return|sizeof|defined|do|else"
# The likeliest first: where a program starts, where Python loads a module, and any function with a body.
_PLACES = (
    ("started", re.compile(r"\bmain\s*\([^;{}]*\)\s*(?:noexcept\s*)?\{")),
    ("loaded", re.compile(r"\bPyInit_\w+\s*\([^;{}]*\)\s*\{")),
    ("loaded", re.compile(r"\b(?:PYBIND11_MODULE|NB_MODULE)\s*\([^;{}]*\)\s*\{")),
    (
        "called",
        re.compile(
            rf"^(?![^\n]*\b(?:constexpr|consteval|static|inline|template|struct|class|enum|union|namespace)\b)[A-Za-z_]"
            rf"[\w\s*&:<>]*?\b(?!(?:{_NO_FUNCTIONS})\b)\w+\s*\([^;{{}}()]*\)\s*(?:const\s*)?(?:noexcept\s*)?\{{",
            re.MULTILINE,
        ),
    ),
)


class InsertionPoint(NamedTuple):
    """Where a probe goes: its name, how good the place is (0 is best), and the offset behind the body's brace."""

    probe: str
    rank: int
    offset: int


def find_place(text: str) -> InsertionPoint | None:
    """Return where the first probe goes, or None if there is no function."""
    masked = blanked(text)
    for rank, (probe, expression) in enumerate(_PLACES):
        found = expression.search(masked)
        if found:
            return InsertionPoint(probe, rank, found.end())
    return None


def fired(text: str, place: InsertionPoint, header: str, macro: str) -> str:
    """Return the text with `#include "header"` and the probe in it."""
    rest = text[place.offset :]
    line = rest.partition("\n")[0]
    if line.strip():
        statement = f" {macro}();"
    else:
        following = re.search(r"\n([ \t]+)\S", rest)
        indentation = following[1] if following and following.start() < 200 else "    "
        statement = f"\n{indentation}{macro}();"
    at = _behind_includes(text, place.offset)
    include = f'#include "{header}"\n'
    return text[:at] + include + text[at : place.offset] + statement + rest


def _behind_includes(text: str, end: int) -> int:
    """Return the offset of the line behind the last #include before `end` that no #if surrounds, or 0."""
    depth = at = offset = 0
    for line in blanked(text, strings=False)[:end].splitlines(keepends=True):
        offset += len(line)
        word = re.match(r"\s*#\s*(\w+)", line)
        if not word:
            continue
        if word[1] in ("if", "ifdef", "ifndef"):
            depth += 1
        elif word[1] == "endif":
            depth -= 1
        elif word[1] == "include" and depth == 0:
            at = offset
    return at


def blanked(text: str, strings: bool = True) -> str:
    """Return a text of the same length with spaces for comments and, if asked, for strings."""

    def blank(found: re.Match[str]) -> str:
        if not strings and found[0][0] in "\"'":
            return found[0]
        return re.sub(r"[^\n]", " ", found[0])

    return _BLANK.sub(blank, text)
