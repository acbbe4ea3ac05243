"""What a build asks of its compilers, recorded while it runs: stand-ins in front of PATH note their words.

A stand-in is a shell script that writes down the folder and the words, and becomes the compiler. It works for each
build system, also where a Makefile calls another; a compiler that a build calls by its full path is missed.
"""

from __future__ import annotations

import os
import re
import shlex
from pathlib import Path
from typing import NamedTuple

SUFFIXES = (".c", ".cc", ".cpp", ".cxx", ".c++", ".C")
_TOOL = re.compile(r"(?:.+-)?(?:cc|c\+\+|gcc|g\+\+|clang|clang\+\+|c89|c99|ar)(?:-[\d.]+)?")
_STAND_IN = r"""#!/bin/sh
{{
    printf '%s\0' "$PWD" "$0"
    for word; do
        case $word in
            @?*) [ -f "${{word#@}}" ] && {{ printf '\002'; cat "${{word#@}}"; printf '\0'; continue; }} ;;
        esac
        printf '%s\0' "$word"
    done
    printf '\001\0'
}} >>{records}/$$
here={here}
case $PATH in *"$here:"*) PATH=${{PATH%%"$here:"*}}${{PATH#*"$here:"}} ;; esac
exec {real} "$@"
"""
_HIDDEN = "#!/bin/sh\necho 'usdtbuild is not there for this build, which must do without it' >&2\nexit 127\n"
# Modes in which a compiler makes neither an object nor a program; options whose value is the next word.
_NO_OUTPUT = {"-E", "-S", "-M", "-MM", "-fsyntax-only"}
_WITH_VALUE = {
    "-o", "-x", "-I", "-D", "-U", "-L", "-l", "-include", "-imacros", "-isystem", "-iquote", "-idirafter", "-MF", "-MT",
    "-MQ", "-Xlinker", "-Xassembler", "-Xclang", "-T", "-u", "-z", "-target", "-arch", "--param", "-rpath", "-soname",
}  # fmt: skip
_DEPENDENCIES = {"-c", "-MD", "-MMD", "-MP"}
_ABOUT_DEPENDENCIES = {"-MF", "-MT", "-MQ"}


class Command(NamedTuple):
    """A compiler or archiver that was run: in which folder, as which program, with which words."""

    folder: str
    tool: str
    words: list[str]

    def _absolute(self, path: str) -> str:
        return os.path.realpath(Path(self.folder, path))

    @property
    def archives(self) -> bool:
        """Whether this is `ar`, adding to an archive."""
        return bool(re.search(r"(?:^|-)ar(?:-[\d.]+)?$", self.tool))

    def output(self) -> str:
        """Return the real path of what was made; "" if that is neither an object nor a program or library."""
        if self.archives:
            adds = len(self.words) > 1 and re.fullmatch(r"-?[a-zA-Z]*[rq][a-zA-Z]*", self.words[0])
            return self._absolute(self.words[1]) if adds else ""
        if _NO_OUTPUT.intersection(self.words):
            return ""
        named = self._named_output()
        if named:
            return self._absolute(named)
        inputs = [Path(path) for path in self.inputs() if path.endswith(SUFFIXES)]
        return self._absolute((f"{inputs[0].stem}.o" if "-c" in self.words else "a.out") if inputs else "")

    def _named_output(self) -> str:
        for word, following in zip(self.words, [*self.words[1:], ""], strict=True):
            if word == "-o":
                return following
            if word.startswith("-o") and len(word) > 2:
                return word[2:]
        return ""

    def inputs(self) -> list[str]:
        """Return the real paths of sources, objects and libraries among the words."""
        if self.archives:
            return [self._absolute(word) for word in self.words[2:]]
        ahead = zip(["", *self.words], self.words, strict=False)
        return [self._absolute(word) for before, word in ahead if word[:1] != "-" and before not in _WITH_VALUE]

    def only(self, source: str, output: str) -> list[str]:
        """Return the words that compile one of the sources into another object, and write no dependencies."""
        kept: list[str] = []
        for before, word in zip(["", *self.words], self.words, strict=False):
            about = {before, word} & {"-o", *_ABOUT_DEPENDENCIES}
            is_input = word[:1] != "-" and before not in _WITH_VALUE
            if not (about or is_input or word in _DEPENDENCIES or word.startswith("-Wp,-M")):
                kept.append(word)
        return [*kept, "-fno-lto", "-c", source, "-o", output]


class Recorder:
    """Stand-ins for all compilers of PATH, and what they have noted."""

    def __init__(self, folder: Path) -> None:
        self.programs, self._records = folder / "programs", folder / "records"
        self.programs.mkdir()
        self._records.mkdir()
        self._real: dict[str, str] = {}
        for each in os.get_exec_path():
            for name in sorted(os.listdir(each)) if Path(each).is_dir() else ():  # noqa: PTH208
                if _TOOL.fullmatch(name) and os.access(Path(each, name), os.X_OK):
                    self._stand_in(name, str(Path(each, name)))
        _write_program(self.programs / "usdtbuild", _HIDDEN)

    def _stand_in(self, name: str, real: str) -> None:
        if self._real.setdefault(name, real) == real:
            quoted = {key: shlex.quote(str(path)) for key, path in (("records", self._records), ("real", real))}
            _write_program(self.programs / name, _STAND_IN.format(here=shlex.quote(str(self.programs)), **quoted))

    def environment(self) -> dict[str, str]:
        """Return the variables with which a build is recorded, and finds no usdtbuild."""
        kept = {name: value for name, value in os.environ.items() if not re.match("MAKE|MFLAGS|GNUMAKE", name)}
        for name in ("CC", "CXX", "AR"):
            words = shlex.split(kept.get(name, ""))
            if words and "/" in words[0] and _TOOL.fullmatch(Path(words[0]).name):
                short = f"{Path(words[0]).parent.name or 'root'}-{Path(words[0]).name}"
                self._stand_in(short, words[0])
                kept[name] = shlex.join([str(self.programs / short), *words[1:]])
        path = f"{self.programs}:{kept.get('PATH', os.defpath)}"
        return {**kept, "PATH": path, "CCACHE_DISABLE": "1", "LC_ALL": "C.UTF-8"}

    def forget(self) -> None:
        """Forget what was recorded; what compilers are tried with says nothing of the project."""
        for path in self._records.iterdir():
            path.unlink()

    def commands(self) -> list[Command]:
        """Return what was run, in the order in which each began."""
        found = []
        for path in sorted(self._records.iterdir(), key=lambda each: (each.stat().st_mtime_ns, each.name)):
            for record in path.read_bytes().decode("utf-8", "surrogateescape").split("\x01\0")[:-1]:
                folder, program, *words = record.split("\0")[:-1]
                spread = [part for word in words for part in (shlex.split(word[1:]) if word[:1] == "\2" else [word])]
                found.append(Command(folder, Path(program).name, spread))
        return found

    def real(self, tool: str) -> str:
        """Return the path of a compiler."""
        return self._real[tool]


def _write_program(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8", errors="surrogateescape")
    path.chmod(0o755)
