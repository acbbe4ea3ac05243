"""CMakeLists.txt: its targets, and the lines that give one of them a provider."""

from __future__ import annotations

import re
from typing import NamedTuple

from .sources import SUFFIXES

_ADDS = re.compile(
    r"^[ \t]*(add_executable|add_library|python3?_add_library|pybind11_add_module|nanobind_add_module)\s*\(",
    re.IGNORECASE | re.MULTILINE,
)
_NO_TARGETS = {"INTERFACE", "IMPORTED", "ALIAS"}
_QUOTED = re.compile(r"\[(=*)\[.*?\]\1\]|#[^\n]*|\"(?:\\.|[^\"\\])*\"", re.DOTALL)


class CMakeTarget(NamedTuple):
    """A target: its name as it is written, its sources, and the offset behind its line."""

    name: str
    sources: list[str]
    end: int


def targets(text: str) -> list[CMakeTarget]:
    """Return the targets with sources that a CMakeLists.txt makes, in order."""
    masked = _QUOTED.sub(
        lambda found: " " * len(found[0]) if found[0][0] == "#" else re.sub(r"[()\n#]", "_", found[0]), text
    )
    found = []
    for each in _ADDS.finditer(masked):
        end = masked.find(")", each.end())
        words = [word.strip('"') for word in re.findall(r'"[^"]*"|[^\s"]+', masked[each.end() : end])]
        if end < 0 or not words or _NO_TARGETS.intersection(words):
            continue
        sources = [source for word in words[1:] for source in _expanded(word, masked) if source.endswith(SUFFIXES)]
        line = text.find("\n", end)
        behind = len(text) if line < 0 else line + 1
        found.append(CMakeTarget(words[0], sources, behind))
    return found


def _expanded(word: str, masked: str) -> list[str]:
    """Return a word, or what a variable is set to that it names."""
    word = re.sub(r"^\$\{(CMAKE_CURRENT_SOURCE_DIR|PROJECT_SOURCE_DIR|CMAKE_SOURCE_DIR)\}/", "", word)
    variable = re.fullmatch(r"\$\{(\w+)\}", word)
    if not variable:
        return [word]
    values = re.findall(rf"\b(?:set|list)\s*\(\s*(?:APPEND\s+)?{variable[1]}\s+([^)]*)\)", masked, re.IGNORECASE)
    return [each.strip('"') for value in values for each in value.split()]


def subdirectories(text: str) -> list[str]:
    """Return the folders that a CMakeLists.txt adds, where they are written out."""
    return re.findall(r"^[ \t]*add_subdirectory\s*\(\s*\"?([\w./-]+)\"?", text, re.IGNORECASE | re.MULTILINE)


def with_provider(text: str, target: CMakeTarget, stem: str) -> str:
    """Return the text with a provider for the target, behind it."""
    lines = (
        f"\n# {stem}.d declares the probes; {stem}.h is made from it when this is built.\n"
        "find_package(USDTBuild CONFIG REQUIRED)\n"
        f"usdt_add_provider({stem}-probes {stem}.d)\n"
        f"target_usdt_providers({target.name} {stem}-probes)\n"
    )
    before = text[: target.end]
    return before + ("" if before.endswith("\n") else "\n") + lines + text[target.end :]
