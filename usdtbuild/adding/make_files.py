"""Makefile: lines at its end that make the header before all else."""

from __future__ import annotations

import re

NAMES = ("GNUmakefile", "makefile", "Makefile")


def sources(text: str) -> list[str]:
    """Return the names of sources that a Makefile names, or whose objects it names."""
    found = re.findall(r"[\w./+-]+\.(?:cpp|cxx|cc|c\+\+|c|C)\b", text)
    objects = re.findall(r"([\w./+-]+)\.o\b", text)
    return [*found, *(f"{name}{suffix}" for name in objects for suffix in (".c", ".cc", ".cpp", ".cxx"))]


def with_provider(text: str, provider: str, header: str) -> str:
    """Return the text with our lines.

    GNU Make makes a file anew that it includes, and starts again, before it makes anything else.
    """
    return (
        f"{text.rstrip()}\n\n"
        f"# {provider} declares the probes; {header} is made from it before anything else.\n"
        f"{header}.stamp: {provider}\n"
        f"\tusdtbuild header $< -o {header} --stamp $@\n"
        f"-include {header}.stamp\n"
    )
