"""A new project from a sample: the sample's files with another name in them, written all or not at all.

The samples are ordinary projects, which the tests build as they are. In each of them one word is the name of all that
would be called differently in another project: the provider, its file, its macros, the program or module. That word is
replaced wherever it stands by itself or between underscores, in lower case and in capitals.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from .errors import InputError, Told
from .files import write_whole
from .folders import PACKAGE
from .folders import folder as folder_of
from .outputs import Outputs


class Sample(NamedTuple):
    """A sample to start from: its folder, the word that is replaced, and whether it makes a Python module."""

    folder: str
    word: str
    is_python: bool


# What `usdtbuild init` calls a build system -> the sample it copies.
SAMPLES = {
    "cmake": Sample("cmake-hello", "hello", False),
    "meson": Sample("meson-hello", "hello", False),
    "setuptools": Sample("setuptools-extension", "wordcount", True),
    "scikit-build-core": Sample("scikit-build-core-extension", "checksum", True),
    "meson-python": Sample("meson-python-extension", "primes", True),
}

# What building a sample in its place leaves there.
_LEFTOVERS = shutil.ignore_patterns(
    "build*", "dist", "installed", "__pycache__", "*.pyc", "*.so", "*.egg-info", ".git", ".*_cache", "subprojects"
)
# Comments and strings; the lines of a README are prose where they aren't indented.
_PROSE = re.compile(
    r"(/\*.*?\*/|//[^\n]*|^#[^\n]*|(?<=\s)#[^\n]*|\"[^\"\n]*\"|^[A-Z`(][^\n]*)", re.DOTALL | re.MULTILINE
)
_MOST_LETTERS = 40
# Names of targets that build systems make themselves, and what C, C++ and D understand by a word.
_RESERVED = """
    all clean test install help package default dist benchmark coverage uninstall build depend alignas alignof and
    asm auto bitand bitor bool break case catch char class compl concept const constexpr continue decltype delete do
    double else enum explicit export extern false final float for friend goto if import inline int long module
    mutable namespace new noexcept not nullptr operator or override private protected public register requires
    restrict return self short signed sizeof static struct string switch template this throw thread_local translator
    true try typedef typeid typename typeof union unsigned using virtual void volatile while xor linux unix provider
    probe
"""


def name_of_folder(folder: Path) -> str:
    """Return the name that a folder suggests: letters, without their accents, digits and single underscores.

    A version at its end (`clock-1.23`, `clock-v2.0rc1`) is no part of the name; a number is (`sqlite3`, `app-2`).
    """
    import unicodedata

    unversioned = re.sub(
        r"(?<=.)[-_ ]v?\d+(\.[\w+~]+)+(-(stable|alpha|beta|rc)\d*)?$", "", folder.resolve().name.lower()
    )
    letters = unicodedata.normalize("NFKD", unversioned)
    plain = "".join(sign for sign in letters if not unicodedata.combining(sign))
    return re.sub(r"[^a-z0-9]+", "_", plain).strip("_")


def check_provider_name(name: str) -> None:
    """Raise ValueError, with a reason, where a name can't be that of a provider and a C identifier."""
    import keyword

    if not re.fullmatch(r"[a-z][a-z0-9]*(_[a-z0-9]+)*", name) or len(name) > _MOST_LETTERS:
        raise ValueError(
            f"'{name}' is no name for a provider: it takes lower-case letters, digits and single underscores, begins "
            f"with a letter, and has {_MOST_LETTERS} signs at most"
        )
    if name in _RESERVED.split() or keyword.iskeyword(name):
        raise ValueError(f"the name '{name}' means something already to compilers or build systems")


def check_name(name: str, kind: str) -> None:
    """Raise ValueError, with a reason, where a name can't be that of a program, a C identifier and a provider."""
    check_provider_name(name)
    sample = SAMPLES[kind]
    if sample.is_python and (name in getattr(sys, "stdlib_module_names", ()) or name in sys.builtin_module_names):
        raise ValueError(f"Python has a module named '{name}' already")
    if name == sample.word:
        return
    used = re.compile(rf"(?<![a-z0-9]){name}(?![a-z0-9])")
    for path, text in _files(sample).items():
        if used.search(path) or (not path.endswith(".md") and used.search(_without_comments(text))):
            raise ValueError(f"the name '{name}' is used for something else in this project ({path})")


def plan(kind: str, name: str) -> dict[str, str]:
    """Return the new project's files: paths relative to its folder, and their texts. Raises InputError."""
    word = SAMPLES[kind].word
    return {_renamed(path, word, name): _renamed(text, word, name) for path, text in _files(SAMPLES[kind]).items()}


def write(files: Mapping[str, str], folder: Path) -> list[str]:
    """Write the files into a new or empty folder; return their paths, sorted. Raises InputError, and leaves nothing."""
    with Told(folder, "can't be written"):
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            what = "is a folder with something in it" if folder.is_dir() else "is a file"
            raise InputError(str(folder), what, "name a folder that is empty or doesn't exist yet")
    with Outputs() as outputs:
        for path, text in files.items():
            outputs.folder(str((folder / path).parent), deep=True)
            write_whole(outputs.stage(str(folder / path)), text.encode())
    return sorted(files)


def _files(sample: Sample) -> dict[str, str]:
    """Return the sample's files by path. Raises InputError if this installation has no samples."""
    root = folder_of("sample_projects") / sample.folder
    if not root.is_dir():
        cure = "install it with `pip install usdtbuild`, or copy one from its source code"
        raise InputError(str(PACKAGE), f"this installation has no sample {sample.folder}", cure)
    found: dict[str, str] = {}
    for parent, folders, names in os.walk(root):
        ignored = _LEFTOVERS(parent, [*folders, *names])
        folders[:] = sorted(set(folders) - ignored)
        for name in sorted(set(names) - ignored):
            path = Path(parent, name)
            found[path.relative_to(root).as_posix()] = path.read_text(encoding="utf-8")
    return found


def _renamed(text: str, word: str, name: str) -> str:
    """Return a text with `name` for `word`; in comments and strings only where it isn't an ordinary English word."""

    def rename(part: str) -> str:
        return re.sub(rf"(?<![a-zA-Z0-9]){word}(?![a-z0-9])", name, part)

    def rename_prose(part: str) -> str:
        pieces = re.split(rf"((?<=\s){word}(?= (?!\[)|[,;\n]|\.\s))", part)
        return "".join(piece if piece == word else rename(piece) for piece in pieces)

    pieces = _PROSE.split(text)
    text = "".join((rename_prose if number % 2 else rename)(piece) for number, piece in enumerate(pieces))
    return re.sub(rf"(?<![a-zA-Z0-9]){word.upper()}(?![A-Z0-9])", name.upper(), text)


def _without_comments(text: str) -> str:
    """Return a source without its comments and strings, where any word may stand; `#include` is no comment."""
    return re.sub(r"/\*.*?\*/|//[^\n]*|#(?!include)[^\n]*|\"[^\"\n]*\"", " ", text, flags=re.DOTALL)
