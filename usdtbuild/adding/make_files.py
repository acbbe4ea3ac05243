"""Makefile: lines at its end that put the launcher before its compilers and make the header before all else."""

from __future__ import annotations

import re

from ..errors import InputError

NAMES = ("GNUmakefile", "makefile", "Makefile")


def sources(text: str) -> list[str]:
    """Return the names of sources that a Makefile names, or whose objects it names."""
    found = re.findall(r"[\w./+-]+\.(?:cpp|cxx|cc|c\+\+|c|C)\b", text)
    objects = re.findall(r"([\w./+-]+)\.o\b", text)
    return [*found, *(f"{name}{suffix}" for name in objects for suffix in (".c", ".cc", ".cpp", ".cxx"))]


_NAMED_COMPILER = re.compile(r"^\t[@+-]*\s*((?:gcc|g\+\+|cc|c\+\+|clang|clang\+\+)(?:-\d+)?)\s", re.MULTILINE)


def with_provider(text: str, provider: str, header: str, path: str) -> str:
    """Return the text with our lines. Recipes are expanded when they run, and so see what is set last.

    GNU Make makes a file anew that it includes, and starts again, before it makes anything else. Raises InputError,
    naming `path`, where a recipe calls a compiler by its own name, before which nothing can be put.
    """
    found = _NAMED_COMPILER.search(text)
    if found:
        line, compiler = text.count("\n", 0, found.start()) + 1, found[1]
        variable = "$(CXX)" if "++" in compiler else "$(CC)"
        raise InputError(
            f"{path}:{line}", f"calls {compiler} by its name", f"write {variable} there, and run this again"
        )
    return (
        f"{text.rstrip()}\n\n"
        f"# {provider} declares the probes; {header} is made from it before anything else.\n"
        "override CC := usdtbuild cc -- $(CC)\n"
        "override CXX := usdtbuild cc -- $(CXX)\n"
        f"{header}.stamp: {provider}\n"
        f"\tusdtbuild header $< -o {header} --stamp $@\n"
        f"-include {header}.stamp\n"
    )
