"""Texts of SQL and the like without their literals, so that statements that differ in nothing else are one.

`SELECT * FROM t WHERE id = 17` becomes `SELECT * FROM t WHERE id = ?`. What isn't SQL loses its numbers and what stands
in quotes, too. Nothing is understood of the language but where its tokens end: names stay, also those in quotes.
"""

from __future__ import annotations

import re
from functools import lru_cache

from ..model import Argument, Cut, Value
from .values import value_text

# The end of the text ends a literal, too: it may be cut there.
_TOKENS = re.compile(
    rb"""(?P<comment>/\*.*?(?:\*/|\Z)|--[^\n]*)
    |(?P<literal>(?:\b[eEnNxXbB])?'(?:[^'\\]|\\.|'')*(?:'|\\?\Z)
        |(?<![\w$])\$(?P<tag>(?:[A-Za-z_]\w*)?)\$.*?(?:\$(?P=tag)\$|\Z)
        |(?<=[=<>])\s*"(?:[^"\\]|\\.|"")*(?:"(?!\s*\.)|\\?\Z)
        |(?<![\w$."])(?:0[xX][0-9a-fA-F]+|(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]+)?)(?![\w"]))
    |(?P<name>"(?:[^"]|"")*(?:"|\Z)|`[^`]*(?:`|\Z))
    |(?P<space>\s+)""",
    re.VERBOSE | re.DOTALL,
)
_SIGN = re.compile(rb"([=<>(,+*/%-]|\b(?:AND|BETWEEN|IN|LIMIT|OFFSET|THEN|ELSE|VALUES))( ?)[-+] ?\?", re.IGNORECASE)
# `IN (?, ?)`, and `VALUES (?, ?), (?, ?)`; the text may be cut within.
_LIST = re.compile(rb"\b(IN|VALUES) ?(?:\( ?\?(?: ?, ?\?)* ?,? ?(?:\)|\Z)(?: ?, ?(?=\(|\Z))?)+", re.IGNORECASE)


def normal_text(argument: Argument, value: Value) -> str:
    """Return a value as a user reads it, a string without its literals."""
    return value_text(argument, normalized(value) if isinstance(value, bytes) else value)


def normalized(text: bytes) -> bytes:
    """Return a text with `?` for each literal and for each list of them, without comments, and with single spaces."""
    found = _normalized(bytes(text))
    return Cut(found) if isinstance(text, Cut) else found


@lru_cache(maxsize=4096)
def _normalized(text: bytes) -> bytes:
    found = _TOKENS.sub(_token, text)
    found = _SIGN.sub(rb"\1\2?", re.sub(rb" {2,}", b" ", found))
    return _LIST.sub(rb"\1 (?)", found).strip()


def _token(found: re.Match[bytes]) -> bytes:
    if found["name"] is not None:
        return found[0]
    return b" " if found["literal"] is None else b" ?" if found[0][:1].isspace() else b"?"
