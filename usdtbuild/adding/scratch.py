"""A copy of a project in a scratch folder: what Git doesn't ignore, so without what builds have left there.

Links stay links, and nothing is read through them. What is neither a file nor a link (a pipe, a socket) is left out.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from io import BytesIO
from pathlib import Path

from ..elf.image import MAGIC
from ..errors import InputError, Told
from ..limits import PROJECT, PROJECT_FILES

_SMALLER = "run this in the folder of a smaller part"
_LEFT_BY_BUILDS = re.compile(r"\..*|dist|node_modules|__pycache__|.*\.egg-info|_deps|CMakeFiles")
# Names that builds give to folders, and people, too; and files which only builds put there.
_PERHAPS = re.compile(r"_?build.*")
_LEFT = {"CMakeCache.txt", "build.ninja", "config.status"}


def project_files(root: Path) -> list[str]:
    """Return the paths of a project's files, sorted, relative to its folder: those that Git doesn't ignore.

    Without Git, all but those in folders that builds make. Raises InputError for a project that is too large.
    """
    found: list[str] = []
    for path in _git(root, "ls-files", "-z", "--cached", "--others", "--exclude-standard") or [""]:
        if (root / path).is_dir() and not (root / path).is_symlink():  # a submodule, or all of it
            found += _walk(root, path)
        elif os.path.lexists(root / path):  # what is listed may have been removed
            found.append(path)
        if len(found) > PROJECT_FILES:
            raise InputError(str(root), f"has more than {PROJECT_FILES} files, too many to copy", _SMALLER)
    return sorted(set(found))


def ignored(root: Path, paths: list[str]) -> list[str]:
    """Return the paths among these that Git ignores in the project."""
    return _git(root, "check-ignore", "-z", "--stdin", said=b"\0".join(os.fsencode(path) for path in paths))


def _git(root: Path, *words: str, said: bytes = b"") -> list[str]:
    """Return the paths that a command of Git prints; none where there is no Git, or no repository."""
    try:
        done = subprocess.run(["git", "-C", str(root), *words], input=said, capture_output=True, check=False)
    except OSError:
        return []
    return [os.fsdecode(path) for path in done.stdout.split(b"\0")[:-1]] if not done.returncode else []


def _walk(root: Path, folder: str) -> list[str]:
    found: list[str] = []
    for parent, folders, names in os.walk(root / folder):
        links = [each for each in folders if Path(parent, each).is_symlink()]
        folders[:] = [each for each in folders if each not in links and not _is_left(Path(parent, each))]
        found += [Path(parent, name).relative_to(root).as_posix() for name in [*names, *links]]
        if len(found) > PROJECT_FILES:
            break
    return found


def _is_left(folder: Path) -> bool:
    """Whether a build has left a folder there: one whose name says so, or that has what builds make below it."""
    if _LEFT_BY_BUILDS.fullmatch(folder.name):
        return True
    return bool(_PERHAPS.fullmatch(folder.name)) and any(
        name in _LEFT or _is_elf(Path(parent, name)) for parent, _, names in os.walk(folder) for name in names
    )


def _is_elf(path: Path) -> bool:
    try:
        with path.open("rb") if path.is_file() else BytesIO() as file:
            return file.read(len(MAGIC)) == MAGIC
    except OSError:
        return False


def copy(root: Path, files: list[str], target: Path) -> None:
    """Copy files of a project, with their times and permissions. Raises InputError."""
    size = 0
    for path in files:
        source, copied = root / path, target / path
        with Told(source, "can't be copied"):
            copied.parent.mkdir(parents=True, exist_ok=True)
            if source.is_symlink():
                copied.symlink_to(_link(root, source))
            elif source.is_file():
                size += source.stat().st_size
                if size > PROJECT:
                    raise InputError(str(root), f"has more than {PROJECT >> 30} GiB, too much to copy", _SMALLER)
                shutil.copy2(source, copied)


def _link(root: Path, link: Path) -> str:
    """Return where the copy of a link leads: into the copy where it leads into the project by an absolute path."""
    to = str(link.readlink())
    here = str(root.resolve())
    return os.path.relpath(to, link.parent.resolve()) if to == here or to.startswith(f"{here}/") else to
