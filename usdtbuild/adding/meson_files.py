"""meson.build: its targets, and the words that give one of them a provider."""

from __future__ import annotations

import re
from typing import NamedTuple

from .sources import SUFFIXES

_CALL = re.compile(
    r"\b(executable|library|shared_library|static_library|both_libraries|shared_module|build_target"
    r"|extension_module)\s*\("
)
_QUOTED = re.compile(r"'''.*?'''|'(?:\\.|[^'\\\n])*'|#[^\n]*", re.DOTALL)


class MesonTarget(NamedTuple):
    """A target: its name, its sources, and the offsets of its statement and arguments."""

    name: str
    sources: list[str]
    statement: int  # the beginning of its line
    arguments: int  # behind the opening bracket
    end: int  # the closing one


def targets(text: str) -> list[MesonTarget]:
    """Return the targets that a meson.build makes, in order."""
    masked = _masked(text)
    found = []
    for each in _CALL.finditer(masked):
        end = _closing(masked, each.end())
        strings = re.findall(r"'([^'\n]*)'", text[each.end() : end])
        if not strings:
            continue
        names = re.findall(r"\b[a-z_]\w*\b", masked[each.end() : end])
        sources = [word for word in [*strings[1:], *_of_variables(names, text)] if word.endswith(SUFFIXES)]
        line = text.rfind("\n", 0, each.start()) + 1
        found.append(MesonTarget(strings[0], sources, line, each.end(), end))
    return found


def _of_variables(names: list[str], text: str) -> list[str]:
    """Return the strings in what these variables are set to: a list, files(), or one line."""
    masked, found = _masked(text), []
    for name in dict.fromkeys(names):
        for each in re.finditer(rf"^[ \t]*{name}\s*\+?=(?!=)\s*(files\s*\(|\[)?", masked, re.MULTILINE):
            line = masked.find("\n", each.end())
            end = _closing(masked, each.end()) if each[1] else len(text) if line < 0 else line
            found += re.findall(r"'([^'\n]*)'", text[each.end() : end])
    return found


def subdirectories(text: str) -> list[str]:
    """Return the folders that a meson.build goes into, where they are written out."""
    return re.findall(r"^\s*subdir\(\s*'([\w./-]+)'", text, re.MULTILINE)


def with_provider(text: str, target: MesonTarget, stem: str) -> str:
    """Return the text with a provider among the target's sources."""
    first = _value_end(_masked(text), target.arguments, target.end)
    text = f"{text[:first]}, usdt_provider.process('{stem}.d'){text[first:]}"
    indentation = re.match(r"[ \t]*", text[target.statement :])
    margin = indentation[0] if indentation else ""
    lines = (
        f"{margin}# {stem}.d declares the probes; {stem}.h is made from it when this is built.\n"
        f"{margin}usdt_provider = generator(find_program('usdtbuild'), output: '@BASENAME@.h',\n"
        f"{margin}  arguments: ['header', '@INPUT@', '-o', '@OUTPUT@'])\n"
    )
    return text[: target.statement] + lines + text[target.statement :]


def _masked(text: str) -> str:
    """Return a text of the same length in which strings and comments have no signs that mean something."""
    return _QUOTED.sub(lambda found: (" " if found[0][0] == "#" else "'") * len(found[0]), text)


def _closing(masked: str, at: int) -> int:
    """Return the offset of the bracket that closes what is open at `at`."""
    depth = 1
    for offset in range(at, len(masked)):
        depth += masked[offset] in "([{"
        depth -= masked[offset] in ")]}"
        if depth == 0:
            return offset
    return len(masked)


def _depth(masked: str, start: int, end: int) -> int:
    between = masked[start:end]
    return sum(between.count(sign) for sign in "([{") - sum(between.count(sign) for sign in ")]}")


def _value_end(masked: str, start: int, end: int) -> int:
    """Return the offset behind an argument that begins at `start`: of its comma, or of the end of the last one."""
    for offset in range(start, end):
        if masked[offset] == "," and _depth(masked, start, offset) == 0:
            return offset
    return len(masked[:end].rstrip())
