"""What a recorded build made: programs and libraries, the project's own sources in each, and which people use.

A source that isn't in the project's files was generated. One whose first lines say so was, too.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from .builds import Build
from .recorder import SUFFIXES, Command

_LESS_WANTED = re.compile(
    r"(^|[/_.-])(tests?|testing|unit-?tests?|checks?|examples?|samples?|demos?|bench\w*|fuzz\w*)([/_.-]|$)", re.I
)
_OF_OTHERS = re.compile(
    r"(^|/)(third[_-]?party|3rd[_-]?party|vendor(ed)?|externals?|extern|deps|contrib|subprojects)/", re.I
)
_GENERATED = re.compile(rb"generated (by|from)|automatically generated|auto-?generated|@generated|do not edit", re.I)
_HEAD = 1024
_KINDS = ("program", "shared library", "static library")

Made = dict[str, tuple[Command, list[str]]]  # by real path: what made a file, and of which files


class Source(NamedTuple):
    """A source of the project, by its path there, and a command that compiled it."""

    path: str
    command: Command


class Product(NamedTuple):
    """A program or library: its real path in the copy, its kind, the sources in it, and what is known of its use."""

    path: str
    kind: str
    sources: list[Source]
    own: int  # so many of these are its own, the others come from archives that it links
    is_installed: bool
    is_build_tool: bool
    is_test: bool

    @property
    def name(self) -> str:
        """What it is called."""
        return Path(self.path).name

    def called(self, wanted: str) -> bool:
        """Whether a name means this product; that of a library may be without `lib` and what follows it."""
        return wanted in (self.name, re.sub(r"^lib|\..*$", "", self.name))

    def order(self) -> tuple[object, ...]:
        """What people use sorts first: what is installed, programs, and what has more sources."""
        kind = _KINDS.index(self.kind)
        return (
            self.is_test,
            self.is_build_tool and not self.is_installed,
            not self.is_installed,
            kind,
            -self.own,
            self.path,
        )

    def why(self) -> str:
        """Return what is known of it, as words."""
        known = {"installed": self.is_installed, "run by the build": self.is_build_tool, "a test": self.is_test}
        words = [word for word, is_so in known.items() if is_so] or ["not installed"]
        return f"{self.name}, a {self.kind} ({', '.join(words)})"


class Products(NamedTuple):
    """What a build made, the most wanted first, and the sources that can't have a probe, with the reason."""

    found: list[Product]
    left_out: dict[str, str]


def find_products(build: Build, files: Sequence[str]) -> Products:
    """Return what was linked from sources of the project."""
    commands = build.recorder.commands()
    sort = _Sources(build.root, files)
    made: Made = {}
    for command in commands:
        output = command.output()
        if output:
            made[output] = command, command.inputs()
    is_installed = build.installed()
    found = []
    for path, (command, _) in made.items():
        kind = _kind(command)
        groups = sort.own(path, made) if kind and build.results(path) else []
        if groups:
            name = os.path.relpath(path, build.root)
            test = all(_LESS_WANTED.search(source.path) for source in groups[0]) or bool(_LESS_WANTED.search(name))
            sources = [source for group in groups for source in group]
            found.append(Product(path, kind, sources, len(groups[0]), is_installed(path), build.runs(path), test))
    return Products(sorted(found, key=Product.order), sort.left_out)


def _kind(command: Command) -> str:
    """Return what a command makes, "" for an object."""
    if command.archives:
        return "static library"
    if "-c" in command.words or "-r" in command.words:
        return ""
    return "shared library" if {"-shared", "--shared", "-Wl,-shared"}.intersection(command.words) else "program"


class _Sources:
    """The project's sources by their real paths in the copy, and why some of them get no probe."""

    def __init__(self, root: Path, files: Sequence[str]) -> None:
        self.root = Path(os.path.realpath(root))
        self.files = set(files)
        self.left_out: dict[str, str] = {}

    def own(self, product: str, made: Made) -> list[list[Source]]:
        """Return the sources in a product: those of its objects, and of each archive that it links."""
        groups: list[list[Source]] = []
        archives, seen = [product], {product}
        for path in archives:
            found: dict[str, Source] = {}
            pending = [(path, each) for each in made[path][1]]
            while pending:
                maker, each = pending.pop(0)
                name = os.path.relpath(each, self.root)
                if each.endswith(SUFFIXES) and self._may_have_one(name):
                    found.setdefault(name, Source(name, made[maker][0]))
                elif each in made and each not in seen:
                    seen.add(each)
                    kind = _kind(made[each][0])
                    archives += [each] if kind == "static library" else []
                    pending += [(each, more) for more in made[each][1]] if not kind else []
            groups += [list(found.values())] if found else []
        return groups

    def _may_have_one(self, path: str) -> bool:
        if path not in self.left_out:
            self.left_out[path] = self._reason(path)
        return not self.left_out[path]

    def _reason(self, path: str) -> str:
        if path not in self.files:
            return "is generated" if not path.startswith("..") else "is not in the project"
        if (self.root / path).resolve() != self.root / path:
            return "is a link, or behind one"
        if _OF_OTHERS.search(path):
            return "is code of others"
        with (self.root / path).open("rb") as file:
            return "is generated" if _GENERATED.search(file.read(_HEAD)) else ""
