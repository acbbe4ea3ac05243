"""What is there, and what is to be changed: the way from a project's folder to the texts of its files with a probe.

`plan` finds the build system, the target, and the source whose function gets the probe. Ways of writing a build file
that it can't follow end in an error that says what to do, not in a guess.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import NamedTuple

from ..errors import InputError, UsageError
from . import cmake_files, make_files, meson_files, python_files
from .changes import ProjectFiles
from .sources import SUFFIXES, InsertionPoint, find_place, fired

KINDS = ("cmake", "meson", "setuptools", "scikit-build-core", "meson-python", "make")
_PROVIDER = """\
/* The probes of {name}. More go here, with arguments as in C: probe request__done(int id, char *path); */
provider {name} {{
    /* {comment} */
    probe {probe}();
}};
"""
_COMMENTS = {
    "started": "The program starts.",
    "loaded": "Python loads the module.",
    "called": "A first probe: put it where it says something.",
}
_MARKS = ("usdt_add_provider", "usdt_provider", "tool.usdtbuild", "usdtbuild header", "USDT_PROBES")
_PASSED_OVER = re.compile(r"^(\..*|build.*|dist|node_modules|subprojects|__pycache__|.*\.egg-info|_deps|CMakeFiles)$")
_TESTS = re.compile(r"(^|[/_.-])(tests?|examples?|bench(marks?)?|fuzz|third_party|vendor)([/_.-]|$)", re.IGNORECASE)
_MOST_FILES = 20_000


class Candidate(NamedTuple):
    """A target that could have the probe, its source and the place in it; Make and setuptools know no target."""

    build_file: str
    target: cmake_files.CMakeTarget | meson_files.MesonTarget | None
    source: str
    place: InsertionPoint


class ProbePlan(NamedTuple):
    """What `usdtbuild add` found, and what it changes."""

    kind: str
    name: str
    target: str
    provider: str
    source: str
    probe: str
    changes: ProjectFiles


def find_kind(root: Path) -> str:
    """Return what builds the project in a folder. Raises InputError."""
    there = {path.name for path in root.iterdir()} if root.is_dir() else set()
    if "pyproject.toml" in there:
        backend = python_files.backend_of(ProjectFiles(root).text("pyproject.toml"), str(root / "pyproject.toml"))
        if backend and (
            backend != "setuptools" or not {"CMakeLists.txt", "meson.build"} & there or "setup.py" in there
        ):
            return backend
    found = [
        kind
        for kind, names in (
            ("cmake", ("CMakeLists.txt",)), ("meson", ("meson.build",)), ("setuptools", ("setup.py",)),
            ("make", make_files.NAMES),
        )
        if there.intersection(names)
    ]  # fmt: skip
    if not found:
        cure = "run this where CMakeLists.txt, meson.build, pyproject.toml, setup.py or a Makefile is"
        raise InputError(str(root), "has no build file that usdtbuild knows", cure)
    if len(found) > 1 and found != ["setuptools", "make"]:
        raise InputError(str(root), f"is built by {' and '.join(found)}", f"choose one with --for {found[0]}")
    return found[0]


def plan(root: Path, kind: str, name: str, target: str | None) -> ProbePlan:
    """Return what gives the project a first probe. Raises InputError and UsageError."""
    changes = ProjectFiles(root)
    build_files = _build_files(changes, kind)
    for path in build_files:
        if any(mark in changes.text(path) for mark in _MARKS):
            raise InputError(str(root / path), "has probes already", "add to its provider file")
    candidates = _candidates(changes, kind, build_files, target)
    # The best place of the first target that has one, but no test's if there is another.
    best = min(candidates, key=lambda each: (bool(_TESTS.search(each.source)), each.place.rank))
    folder = os.path.dirname(best.build_file)  # noqa: PTH120 (relative, with slashes)
    stem = _stem(root, name, "probes" if kind == "make" else folder)
    if kind == "make":  # there, `*.d` are often dependencies that `make clean` removes
        folder = "probes"
    provider = "/".join([*([folder] if folder else []), f"{stem}.d"])
    probe = best.place.probe
    changes.put(provider, _PROVIDER.format(name=name, probe=probe, comment=_COMMENTS[probe]))
    header = f"{stem}.h"
    if kind == "make":
        header = os.path.relpath(f"probes/{stem}.h", os.path.dirname(best.source) or ".")  # noqa: PTH120
    text = changes.text(best.source)
    changes.put(best.source, fired(text, best.place, header, f"{name}_{probe}".upper()))
    _edit_build_files(changes, kind, best, stem, provider)
    return ProbePlan(kind, name, best.target.name if best.target else "", provider, best.source, probe, changes)


def _edit_build_files(changes: ProjectFiles, kind: str, best: Candidate, stem: str, provider: str) -> None:
    path = best.build_file
    if isinstance(best.target, cmake_files.CMakeTarget):
        changes.put(path, cmake_files.with_provider(changes.text(path), best.target, stem))
    elif isinstance(best.target, meson_files.MesonTarget):
        changes.put(path, meson_files.with_provider(changes.text(path), best.target, stem))
    elif kind == "make":
        changes.put(path, make_files.with_provider(changes.text(path), provider, f"probes/{stem}.h"))
    if kind not in ("setuptools", "scikit-build-core", "meson-python"):
        return
    toml = "pyproject.toml"
    if (changes.root / toml).exists():
        text = python_files.with_requirement(changes.text(toml), str(changes.root / toml))
    else:
        text = python_files.WITHOUT_BACKEND
    changes.put(toml, python_files.with_providers(text, provider) if kind == "setuptools" else text)


# --- targets and sources ----------------------------------------------------------------------------------------------


def _build_files(changes: ProjectFiles, kind: str) -> list[str]:
    """Return the build files that make targets, the top one first."""
    root = changes.root
    if kind == "make":
        return [next(name for name in make_files.NAMES if (root / name).exists())]
    if kind == "setuptools":
        return [name for name in ("setup.py", "pyproject.toml", "setup.cfg") if (root / name).exists()]
    by_cmake = kind in ("cmake", "scikit-build-core")
    name, room = ("CMakeLists.txt", cmake_files) if by_cmake else ("meson.build", meson_files)
    found = [name]
    for path in found:
        for folder in room.subdirectories(changes.text(path)):
            below = os.path.normpath(os.path.join(os.path.dirname(path), folder, name))  # noqa: PTH118, PTH120
            if below not in found and not below.startswith("..") and (root / below).is_file():
                found.append(below)
    return found


def _candidates(changes: ProjectFiles, kind: str, build_files: list[str], wanted: str | None) -> list[Candidate]:
    """Return what could have the probe. Raises InputError where there is nothing, UsageError for a wrong --target."""
    if kind in ("make", "setuptools"):
        if wanted:
            raise UsageError(f"--target {wanted}: projects for {kind} have none; the probe goes to all of the project")
        text = "".join(changes.text(path) for path in build_files)
        named = make_files.sources(text) if kind == "make" else re.findall(r"[\"']([^\"'\n]+)[\"']", text)
        found = _places(changes, build_files[0], None, [each for each in named if each.endswith(SUFFIXES)])
    else:
        room = cmake_files if kind in ("cmake", "scikit-build-core") else meson_files
        every = [(path, each) for path in build_files for each in room.targets(changes.text(path))]
        names = [each.name for _, each in every]
        if wanted and wanted not in names:
            raise UsageError(f"--target {wanted}: there is no such target; there are {', '.join(names) or 'none'}")
        found = [
            candidate
            for path, each in every
            if wanted in (None, each.name)
            for candidate in _places(changes, path, each, each.sources)
        ]
    if not found:
        what = "has no target with a C or C++ source in which there is a function"
        raise InputError(
            str(changes.root / build_files[0]), what, "add probes by hand, as the page on the build system says"
        )
    return found


def _places(changes: ProjectFiles, build_file: str, target: object, names: list[str]) -> list[Candidate]:
    """Return a candidate for each source that has a place; where none of the names is a file, of all in the folder."""
    folder = os.path.dirname(build_file)  # noqa: PTH120
    paths = [os.path.normpath(os.path.join(folder, name)) for name in names]  # noqa: PTH118
    there = [path for path in dict.fromkeys(paths) if not path.startswith("..") and (changes.root / path).is_file()]
    if not there:
        there = [path for path in _tree(changes.root, folder) if path.endswith(SUFFIXES)]
    found = []
    for path in there:
        place = find_place(changes.text(path))
        if place:
            found.append(Candidate(build_file, target, path, place))  # type: ignore[arg-type]
    return found


def _tree(root: Path, folder: str) -> list[str]:
    """Return the files below a folder of the project, without what builds leave; paths relative to the project."""
    found: list[str] = []
    for parent, folders, names in os.walk(root / folder):
        folders[:] = sorted(each for each in folders if not _PASSED_OVER.match(each))
        found += [Path(parent, name).relative_to(root).as_posix() for name in sorted(names)]
        if len(found) > _MOST_FILES:
            break
    return found


def _stem(root: Path, name: str, folder: str) -> str:
    """Return what the provider file and its header are called: no other file of the project is. Raises InputError."""
    used = {path.rpartition("/")[2].lower() for path in _tree(root, "")}
    for stem in (name, f"{name}_probes"):
        if f"{stem}.h" not in used and f"{stem}.d" not in used:
            return stem
    raise InputError(str(root / folder), f"{name}.h and {name}_probes.h are there already", "choose another --name")
