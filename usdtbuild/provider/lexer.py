"""Cuts a provider file into tokens, and keeps what stands between them: comments, pragmas, line markers.

Knows characters and lines, not the grammar. Comments are `/* */`, `//`, and `#` up to the end of the line, unless the
`#` begins a directive: `#pragma` (kept for the parser), a line marker of the C preprocessor (`# 12 "file.h"`), or a
directive that only the preprocessor can carry out (`#define`, `#if`, …), which is a problem to report.

A token is its text; its first character tells what it is. Written by hand because the whole command has to start,
parse and write in less time than it takes to compile a large regular expression.
"""

from __future__ import annotations

from ..record import NamedTuple

LETTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_")
DIGITS = frozenset("0123456789")
_WORD = LETTERS | DIGITS
_NUMBER = _WORD | {"."}
_BLANK = frozenset(" \t\n\r\f\v")
_PUNCTUATION = frozenset("{}()[];:,*<>=/.?!&|^~+-%`@$")
_PREPROCESSOR = frozenset(
    ("define", "undef", "include", "include_next", "import", "if", "ifdef", "ifndef", "elif", "else", "endif")
)
# A line number with more digits than this is a comment that begins with a number.
_MAX_LINE_DIGITS = 9
_MOST_PROBLEMS = 1000  # stray characters that are told of
_ENDLESS_COMMENT = "this comment never ends: '*/' is missing"


class Comment(NamedTuple):
    """A comment: where it starts and ends (offset behind it), and the number of the token that follows it."""

    start: int
    end: int
    token: int


class Marker(NamedTuple):
    """A line marker: what stands at `offset` is line `line` of `path`."""

    offset: int
    line: int
    path: str


class Pragma(NamedTuple):
    """A `#pragma`: its words behind `#pragma`, and where each of them is."""

    offset: int
    words: list[str]
    offsets: list[int]


class Scan(NamedTuple):
    """A file cut into tokens.

    `tokens` ends with an empty one at the end of the file; `offsets` are the tokens' places. `problems` are
    (offset, sentence) pairs; so are `directives`, the lines that only the preprocessor could carry out.
    """

    tokens: list[str]
    offsets: list[int]
    comments: list[Comment]
    markers: list[Marker]
    pragmas: list[Pragma]
    problems: list[tuple[int, str]]
    directives: list[tuple[int, str]]


def scan(text: str) -> Scan:
    """Cut `text` into tokens. Never raises: what can't be cut is reported in `problems` and left out."""
    found = Scan([], [], [], [], [], [], [])
    tokens, offsets = found.tokens, found.offsets
    end = len(text)
    at = 0
    while at < end:
        start, character = at, text[at]
        at += 1
        if character in _BLANK:
            continue
        if character in LETTERS:
            while at < end and text[at] in _WORD:
                at += 1
            if at < end and _is_foreign(text[at]):
                at = _foreign(text, start, at, found)
                continue
        elif character == "/" and text[at : at + 1] in ("*", "/"):
            at = _comment(text, start, found)
            continue
        elif character == "#":
            at = _hash(text, start, found)
            continue
        elif character in DIGITS:
            while at < end and text[at] in _NUMBER:
                at += 1
        elif character in ('"', "'"):
            at = _string(text, start, found)
        elif character == ".":
            at += 2 if text.startswith("..", at) else 0
        elif character not in _PUNCTUATION:
            at = _stray(text, start, found)
            continue
        tokens.append(text[start:at])
        offsets.append(start)
    tokens.append("")
    offsets.append(end)
    return found


def _line_end(text: str, at: int) -> int:
    end = text.find("\n", at)
    return len(text) if end < 0 else end


def _comment(text: str, start: int, found: Scan) -> int:
    if text[start + 1] == "/":
        end = _line_end(text, start)
    else:
        end = text.find("*/", start + 2) + 2
        if end < 2:
            found.problems.append((start, _ENDLESS_COMMENT))
            end = len(text)
    found.comments.append(Comment(start, end, len(found.tokens)))
    return end


def _string(text: str, start: int, found: Scan) -> int:
    """Return the end of a string or character constant; one that its line doesn't close ends with the line."""
    at, end, quote = start + 1, _line_end(text, start), text[start]
    while at < end:
        if text[at] == quote:
            return at + 1
        at += 2 if text[at] == "\\" else 1
    found.problems.append((start, f"this string never ends: {quote} is missing"))
    return end


def _is_foreign(character: str) -> bool:
    return character > "\x7f" and f"a{character}".isidentifier()


def _foreign(text: str, start: int, at: int, found: Scan) -> int:
    """Read a name with a letter (at `at`) that C's names lack, as one token, so that one message is enough."""
    end = at
    while end < len(text) and (text[end] in _WORD or _is_foreign(text[end])):
        end += 1
    name = text[start:end]
    if len(found.problems) < _MOST_PROBLEMS:
        names = "names have the letters a to z, digits and '_', also in upper case"
        found.problems.append((at, f"'{text[at]}' in the name '{name[:40]}': {names}"))
    found.tokens.append(name if name[0] in LETTERS else f"_{name}")
    found.offsets.append(start)
    return end


def _stray(text: str, start: int, found: Scan) -> int:
    """Step over what no token begins with; a backslash at a line's end joins lines and is no problem."""
    if _is_foreign(text[start]):
        return _foreign(text, start, start, found)
    if text[start] == "\\" and text[start + 1 : start + 2] in ("\n", ""):
        return start + 1
    # One message for a run of the same, and an end to them: a file that is no text has millions.
    if len(found.problems) < _MOST_PROBLEMS:
        found.problems.append((start, f"stray character {text[start]!r}"))
    end = start + 1
    while text.startswith(text[start], end):
        end += 1
    return end


def _hash(text: str, start: int, found: Scan) -> int:
    """Handle a line from its `#` on: directive or comment."""
    end = _line_end(text, start)
    word = ""
    if not text[text.rfind("\n", 0, start) + 1 : start].strip():
        words = text[start + 1 : end].split(None, 2)
        word = words[0] if words else ""
        if word == "pragma":
            return _pragma(text, text.index(word, start), found)
        # `# include the new ones` is a sentence, `#include <x>` a directive.
        if word in _PREPROCESSOR and text.startswith(word, start + 1):
            cure = "; or leave it out: C's standard types are known, and others are declared here" * (word == "include")
            found.directives.append((start, f"'#{word}' is for the C preprocessor, which the option -C runs{cure}"))
            while text[end - 1] == "\\" and end < len(text):
                end = _line_end(text, end + 1)
            return end
        marker = _marker(words[1:] if word == "line" else words)
        if marker:
            found.markers.append(Marker(min(end + 1, len(text)), *marker))
            return end
    if not text.startswith("#!", start):
        found.comments.append(Comment(start, end, len(found.tokens)))
    return end


def _marker(words: list[str]) -> tuple[int, str] | None:
    """Return line and path if the words are a line marker (`12 "x.h" 1`)."""
    digits, rest = words[0] if words else "", " ".join(words[1:])
    end = rest.find('"', 1)
    if len(digits) > _MAX_LINE_DIGITS or not DIGITS.issuperset(digits) or not rest.startswith('"') or end < 0:
        return None
    return int(digits), rest[1:end].replace("\\\\", "\\")


def _pragma(text: str, at: int, found: Scan) -> int:
    """Keep a pragma's words, without comments, up to the end of its (continued) line; return that end."""
    pragma = Pragma(at, [], [])
    size = len(text)
    while at < size and text[at] != "\n":
        if text[at] in _BLANK:
            at += 1
        elif text.startswith("\\\n", at):
            at += 2
        elif text.startswith("/*", at):
            start, at = at, text.find("*/", at + 2) + 2
            if at < 2:
                found.problems.append((start, _ENDLESS_COMMENT))
                at = size
        elif text.startswith("//", at):
            at = _line_end(text, at)
        else:
            first = at
            while at < size and text[at] not in _BLANK and not text.startswith(("/*", "//", "\\\n"), at):
                at += 1
            pragma.words.append(text[first:at])
            pragma.offsets.append(first)
    del pragma.words[0], pragma.offsets[0]
    found.pragmas.append(pragma)
    return at
