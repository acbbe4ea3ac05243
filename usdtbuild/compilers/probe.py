"""The probe: a small program that tells whether a compiler makes patchable entries right.

Some compilers take the option and get it wrong: gcc before 13 on ppc64le puts the NOPs before the instructions that
make the TOC pointer, so that functions called through a pointer read the wrong globals; gcc 12 writes the entries of
C++ inline functions into one table outside their COMDAT groups, so that two objects sharing one don't link, or lose
entries. Versions are not asked; what the compiler writes is looked at, and run.
"""

from __future__ import annotations

import os
import shlex
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

from ..elf.image import Image
from ..elf.layout import SHF_EXECINSTR, SHT_GROUP
from ..elf.relocations import words
from ..errors import InputError
from ..files import open_input
from ..functions.entry import REASONS
from ..functions.read import ReadOptions, read_functions
from ..functions.table import STANDARD
from .ask import CannotStartError, last_line, run
from .target import CompilerTarget, FlagsError

# Functions with and without use of globals, called through a pointer, whose address takes the global entry point.
_SOURCE = """\
#ifdef __cplusplus
extern "C" {
#endif
int usdtbuild_seven = 7;
int (*volatile usdtbuild_call)(int);
int usdtbuild_leaf(int x);
int usdtbuild_global(int x);
__attribute__((noinline)) int usdtbuild_leaf(int x) { return x + 1; }
__attribute__((noinline)) int usdtbuild_global(int x) { return x * usdtbuild_seven; }
#ifdef __cplusplus
}
#endif
int main(void) {
  usdtbuild_call = usdtbuild_leaf;
  if (usdtbuild_call(41) != 42) return 1;
  usdtbuild_call = usdtbuild_global;
  if (usdtbuild_call(6) != 42) return 2;
  return 0;
}
"""
_FUNCTIONS = ("usdtbuild_leaf", "usdtbuild_global", "main")

_COMDAT = """\
inline int usdtbuild_shared(int x) { return x * 3 + 1; }
static int (*volatile usdtbuild_keep)(int) = usdtbuild_shared;
int usdtbuild_use_%s(int x) { return usdtbuild_keep(x) + 1; }
"""
_COMDAT_MAIN = """\
int usdtbuild_use_one(int x);
int usdtbuild_use_two(int x);
int main() { return usdtbuild_use_one(1) + usdtbuild_use_two(2) == 13 ? 0 : 1; }
"""
_QUIET = ("-fno-lto", "-w")


def check_compiler(
    target: CompilerTarget, flags: Sequence[str], pair: tuple[int, int] | None, emulator: str, warnings: list[str]
) -> bool:
    """Compile the probe, check its entries, and run it; return whether it was run. Raises FlagsError."""
    with tempfile.TemporaryDirectory(prefix="usdtbuild-") as folder:
        built = _compile(target, flags, folder, "probe", _SOURCE)
        _check_entries(target, flags, built, pair)
        runner = _runner(target, emulator)
        if runner is None:
            warnings.append(f"the probe was checked but not run: no emulator for {target.machine.name} was found")
            return False
        program = str(Path(folder, "probe"))
        # Another machine's program is linked statically, so that it needs no libraries where it is run.
        static = [] if target.machine.hosts[:1] == (os.uname().machine,) else ["-static"]
        done = run([*target.command, *target.options, *_QUIET, *static, built, "-o", program])
        if done.returncode:
            warnings.append(f"the probe was checked but not run: it doesn't link: {last_line(done.stderr)}")
            return False
        try:
            done = run([*runner, program])
        except CannotStartError as error:
            warnings.append(f"the probe was checked but not run: {error}")
            return False
        if done.returncode:
            raise FlagsError(
                f"{target.name} miscompiles {' '.join(flags)} on {target.machine.name}: "
                f"a program built with it ended with {done.returncode}, not 0; use another compiler"
            )
    return True


def _compile(target: CompilerTarget, flags: Sequence[str], folder: str, name: str, source: str) -> str:
    suffix = ".cc" if target.language == "c++" else ".c"
    path, built = Path(folder, name + suffix), str(Path(folder, name + ".o"))
    path.write_text(source)
    done = run([*target.command, *target.options, *_QUIET, *flags, "-c", str(path), "-o", built])
    if done.returncode:
        what = f"{target.name} does not take {' '.join(flags)} for {target.machine.name}: {last_line(done.stderr)}"
        raise FlagsError(what + target.machine.cure)
    return built


def _check_entries(target: CompilerTarget, flags: Sequence[str], built: str, pair: tuple[int, int] | None) -> None:
    try:
        report = read_functions(built, ReadOptions(pair))
    except InputError as error:
        raise FlagsError(f"{target.name} with {' '.join(flags)} wrote an object that {error.what}") from None
    functions = {name: function for function in report.functions for name in function.names}
    for name in _FUNCTIONS:
        function = functions.get(name)
        if function is None:
            raise FlagsError(f"{target.name} with {' '.join(flags)} wrote an object without the function {name}")
        if not function.hotpatchable:
            why = function.detail or REASONS[function.reason]
            if function.reason == "long-nop":  # right, as far as the compiler goes
                usual = "{},{}".format(*target.machine.scheme)
                raise FlagsError(f"{target.name} with {' '.join(flags)} can't be patched safely: {why}; use {usual}")
            raise FlagsError(f"{target.name} miscompiles {' '.join(flags)} on {target.machine.name}: {name}: {why}")


def _runner(target: CompilerTarget, emulator: str) -> list[str] | None:
    """Return what to put before a program of the target to run it here: nothing, an emulator; None if neither will."""
    if emulator:
        return shlex.split(emulator)
    if os.uname().machine in target.machine.hosts:
        return []
    found = shutil.which(target.machine.emulator) if target.machine.emulator else None
    return [found] if found else None


# -- C++ inline functions --------------------------------------------------------------------------------------------


def check_comdat(
    target: CompilerTarget, flags: Sequence[str], pair: tuple[int, int] | None, warnings: list[str]
) -> None:
    """Warn if entries of functions in COMDAT groups are outside the groups, and say what the linker makes of it."""
    with tempfile.TemporaryDirectory(prefix="usdtbuild-") as folder:
        sources = {"one": _COMDAT % "one", "two": _COMDAT % "two", "main": _COMDAT_MAIN}
        built = [_compile(target, flags, folder, name, source) for name, source in sources.items()]
        if not _outside_groups(built[0]):
            return
        program = str(Path(folder, "shared"))
        done = run([*target.command, *target.options, *_QUIET, *built, "-o", program])
        outcome = f"they don't link ({last_line(done.stderr)})" if done.returncode else _lost(program, pair)
    warnings.append(
        f"{target.name} writes the entries of C++ inline functions and templates outside their COMDAT groups: "
        f"of two objects that share one, {outcome}; use clang, or --patchable-table=relative"
    )


def _outside_groups(path: str) -> bool:
    """Whether a table outside any group has relocations, while the object has groups with code."""
    with open_input(path) as opened:
        image = Image(opened.view, path)
    members: set[int] = set()
    for section in image.sections:
        if section.type == SHT_GROUP:  # a word of flags, then the members
            members.update(words(image.content(section), 4, image.layout)[1:])
    code = any(image.sections[member].flags & SHF_EXECINSTR for member in members if member < len(image.sections))
    tables = {section.number for section in image.sections_named(STANDARD)}
    return code and bool(tables) and members.isdisjoint(tables)


def _lost(program: str, pair: tuple[int, int] | None) -> str:
    report = read_functions(program, ReadOptions(pair))
    lost = [f.name for f in report.functions if f.reason in ("lost-entry", "null-entry")]
    if lost:
        return f"some lose their entries with this linker ({len(lost)} of 4 in a trial)"
    return "other linkers refuse them or lose entries"
