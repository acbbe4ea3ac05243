"""A C or C++ source: where in it a first probe may stand, and its text with the probe, or without it again.

Looks at a text in which comments and strings are blank, with a few expressions. That isn't parsing, and needn't be: a
compiler judges each place before it is taken.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

_BLANK = re.compile(r"/\*.*?\*/|//[^\n]*|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*'", re.DOTALL)
_NO_FUNCTIONS = "if|for|while|switch|catch|return|sizeof|defined|do|else"
_OLD_PARAMETERS = r"(?:\s*[A-Za-z_][^;{}()]*;)*"  # as before C89: main(argc, argv) int argc; char **argv; {
# Any function with a body, behind what may be a macro with its type: API(int) tick(int n) {
_TYPE = r"[A-Za-z_][\w\s*&:<>]*?\b"
_FUNCTION = (
    r"^(?![^\n]*\b(?:{}constexpr|consteval|template|struct|class|enum|union|namespace)\b)"
    rf"(?:[A-Z][A-Z0-9_]*\s*\([^(){{{{}}}};]*\)\s*(?:{_TYPE})?|{_TYPE})(?!(?:{_NO_FUNCTIONS})\b)"
    r"\w+\s*\([^;{{}}()]*\)\s*(?:const\s*)?(?:noexcept\s*)?\{{"
)
# The likeliest first: where a program starts, where Python loads a module, a function that others call, any.
_PLACES = (
    ("started", re.compile(rf"\bmain\s*\([^;{{}}]*\)\s*(?:noexcept\s*)?{_OLD_PARAMETERS}\s*\{{")),
    ("loaded", re.compile(r"\bPyInit_\w+\s*\([^;{}]*\)\s*\{")),
    ("loaded", re.compile(r"\b(?:PYBIND11_MODULE|NB_MODULE)\s*\([^;{}]*\)\s*\{")),
    ("called", re.compile(_FUNCTION.format("static|inline|"), re.MULTILINE)),
    ("called", re.compile(_FUNCTION.format("inline|"), re.MULTILINE)),
)
RANKS = range(len(_PLACES))
_MOST_STATEMENTS = 40


class Place(NamedTuple):
    """Where a probe may stand: its name, the offset of the function's body in the text, and that of the probe."""

    probe: str
    function: int
    offset: int


def places(text: str, rank: int) -> Iterator[Place]:
    """Yield the places for a first probe in functions of one rank: in each its start, then behind each statement.

    Behind declarations is where C90 wants the first statement. No place is within an #if that the function isn't in.
    """
    probe, expression = _PLACES[rank]
    masked = blanked(text)
    for found in expression.finditer(masked):
        for offset in _statements(masked, found.end()):
            yield Place(probe, found.end(), offset)


def _statements(masked: str, start: int) -> Iterator[int]:
    """Yield the offsets behind a body's brace and behind its statements."""
    yield _end_of_line(masked, start)
    depth = within = count = 0
    for sign in re.finditer(r"^[ \t]*#[ \t]*(\w+)(?:\\\n|[^\n])*|[(){}\[\];]", masked[start:], re.MULTILINE):
        if sign[1]:
            within += sign[1].startswith("if") - (sign[1] == "endif")
            continue
        depth += (sign[0] in "({[") - (sign[0] in ")}]")
        if depth < 0 or count == _MOST_STATEMENTS:
            return
        if depth == within == 0 and sign[0] in ";}":
            count += 1
            yield _end_of_line(masked, start + sign.end())


def _end_of_line(masked: str, offset: int) -> int:
    line = masked[offset:].partition("\n")[0]
    return offset + (0 if line.strip() else len(line.rstrip("\r")))


def fired(text: str, place: Place, header: str, macro: str) -> str:
    """Return the text with `#include "header"` and the probe in it."""
    rest = text[place.offset :]
    if rest[:1] in ("\n", "\r", ""):
        before, following = text[: place.offset].rpartition("\n")[2], re.search(r"\n([ \t]+)\S", rest)
        same_line = re.match(r"[ \t]*", before)
        indentation = following[1] if following and following.start() < 200 else "    "
        if same_line and same_line[0] and before.rstrip()[-1:] != "{":
            indentation = same_line[0]
        statement = f"\n{indentation}{macro}();"
    else:
        statement = f" {macro}();"
    at = _behind_includes(text, place.offset)
    return text[:at] + f'#include "{header}"\n' + text[at : place.offset] + statement + rest


def not_fired(text: str, header: str, macro: str) -> str | None:
    """Return the text without what `fired` has put in; None if that isn't there, or more of it than that."""
    without, includes = re.subn(rf'^#include "{re.escape(header)}"\r?\n', "", text, flags=re.MULTILINE)
    without, calls = re.subn(rf"(?:\r?\n[ \t]+| ){macro}\(\);", "", without)
    return without if includes == calls == 1 and macro not in without else None


def _behind_includes(text: str, end: int) -> int:
    """Return the offset behind the last #include before `end` that is in no #if and no braces.

    Without one it is behind the comments that the file begins with.
    """
    masked = blanked(text)
    depth = braces = offset = 0
    at = len(masked) - len(masked.lstrip())
    at = text.rfind("\n", 0, at) + 1
    for line in masked[:end].splitlines(keepends=True):
        offset += len(line)
        word = re.match(r"\s*#\s*(\w+)", line)
        if not word:
            braces += line.count("{") - line.count("}")
        elif word[1] in ("if", "ifdef", "ifndef"):
            depth += 1
        elif word[1] == "endif":
            depth -= 1
        elif word[1] == "include" and depth == braces == 0:
            at = offset
    return at


def blanked(text: str) -> str:
    """Return a text of the same length with spaces for comments and strings."""
    return _BLANK.sub(lambda found: re.sub(r"[^\n]", " ", found[0]), text)
