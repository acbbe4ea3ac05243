"""The way into a build that has no compiler launcher: options that make a compiler instrument its own objects.

`usdtbuild hook` and the Meson integration use it at configure time. It writes a folder with a program named `as`, and
returns the options that make a compiler call that program instead of its assembler: `-B` for GCC and Clang, and
`-fno-integrated-as` for Clang, which has an assembler of its own. It is a script that runs `launch.assemble`. The
folder's name has a digest of what is in it and the version of this package, because compiler caches know an option's
words and not what they lead to. Before the options are given out, a probe is compiled with them and looked for in the
object.
"""

from __future__ import annotations

import hashlib
import os
import shlex
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from .. import __version__
from ..compilers.ask import CannotStartError, macros, run
from ..errors import UsdtError
from ..files import write_whole
from ..options import FORMATS

LAUNCHER = Path(__file__).resolve().parent.parent / "launcher.py"
# What is compiled to see that the hook works: one call of a probe, as in any file that includes a generated header.
_PROVIDER = "provider usdtbuild_check { probe fired(int number); };\n"
_SOURCE = """\
#include "check.h"
int check(int number);
int check(int number)
{
\tUSDTBUILD_CHECK_FIRED(number);
\treturn number;
}
"""
_CURE = "set the compiler to 'usdtbuild cc -- COMPILER' instead"


class HookError(UsdtError):
    """The compiler can't be made to instrument its objects like this; the text says why, and what to do."""


class Compiler(NamedTuple):
    """A compiler as a build runs it. `family` is gcc or clang, `suffix` that of its sources."""

    command: tuple[str, ...]
    family: str
    suffix: str


def install(command: Sequence[str], folder: Path, options: Sequence[str] = ()) -> list[str]:
    """Write the hook for a compiler below `folder`; return the options to compile with.

    `command` is the compiler with what belongs to it (`ccache gcc`, `clang --target=...`), `options` are options of
    `usdtbuild cc` for every object. Files that are right already are left alone. Raises HookError and OutputError.
    """
    compiler = identify(command)
    flags = [f"-B{_write(compiler, folder, options)}", *_language_options(compiler)]
    if any(option.startswith("--formats=") and ("dof" in option or "usdt" in option) for option in options):
        flags.append("-DUSDT_ENABLED_BY_CALL")  # DTrace increments no semaphore, and can answer this
    if "--nop=nop5" in options:
        flags.append("-DUSDT_PROBES_BY_CALL")  # the kernel makes a call of this NOP
    if "--nop=nop10" in options:
        flags.append("-DUSDT_NOP10")
    _check(compiler, flags)
    return flags


def identify(command: Sequence[str]) -> Compiler:
    """Return what a compiler is, from what it predefines. Raises HookError for one that this can't work with."""
    name = Path(command[-1] if command[-1][:1] != "-" else command[0]).name
    suffix = ".cpp" if "++" in " ".join(Path(word).name for word in command) else ".c"
    language = "c++" if suffix == ".cpp" else "c"
    defined = macros(_run(command, ["-dM", "-E", "-x", language, os.devnull]))
    if "__ELF__" not in defined:
        raise HookError(f"{name}: doesn't write ELF objects, and probes need them; build with probes off")
    if "__clang__" in defined:
        return Compiler(tuple(command), "clang", suffix)
    if "__GNUC__" in defined and "__INTEL_COMPILER" not in defined:
        return Compiler(tuple(command), "gcc", suffix)
    raise HookError(f"{name}: is neither GCC nor Clang; {_CURE}")


def _language_options(compiler: Compiler) -> list[str]:
    """The options beside -B. An object with intermediate code alone has no machine code for probes yet."""
    if compiler.family == "clang":
        return ["-fno-integrated-as", "-fno-lto"]
    return ["-ffat-lto-objects"]


def _write(compiler: Compiler, folder: Path, options: Sequence[str]) -> Path:
    """Write our `as` below `folder`; return the folder that it is in."""
    words = [sys.executable, "-I", "-S", str(LAUNCHER), "--assembler-step", *options, "--", _assembler(compiler)]
    script = f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n'.encode("utf-8", "surrogateescape")
    digest = hashlib.sha256(b"\n".join([script, __version__.encode()])).hexdigest()[:12]
    target = folder.resolve() / f"usdtbuild-{__version__}-{digest}"
    path = target / "as"
    if not path.is_file() or path.read_bytes() != script:
        target.mkdir(parents=True, exist_ok=True)
        write_whole(str(path), script, 0o755)
    return target


def _assembler(compiler: Compiler) -> str:
    """Return the absolute path of the assembler that the compiler would run. Raises HookError."""
    named = _run(compiler.command, ["-print-prog-name=as"]).strip()
    found = shutil.which(named) if named else None
    if not found:
        raise HookError(
            f"{shlex.join(compiler.command)}: its assembler ({named or 'as'}) isn't installed; install the binutils "
            f"for its machine, or {_CURE}"
        )
    return str(Path(found).resolve()) if "/" in named else str(Path(found).absolute())


def _run(command: Sequence[str], arguments: Sequence[str]) -> str:
    """Run the compiler and return what it printed. Raises HookError and CompilerError."""
    words = [*command, *arguments]
    try:
        done = run(words)
    except CannotStartError as error:
        raise HookError(f"{shlex.join(words)}: can't be run: {error.reason}") from None
    if done.returncode:
        said = (done.stderr or done.stdout).strip()
        raise HookError(f"{shlex.join(words)}: failed (exit code {done.returncode}): {said}")
    return done.stdout


def _check(compiler: Compiler, flags: Sequence[str]) -> None:
    """Compile a probe with the options and look for it in the object. Raises HookError."""
    from ..elf.image import Image
    from ..inspection.probes import inspect
    from ..provider.generate import HeaderRequest, generate

    with TemporaryDirectory(prefix="usdtbuild-") as name:
        folder = Path(name)
        (folder / "check.d").write_text(_PROVIDER)
        source, target = folder / f"check{compiler.suffix}", folder / "check.o"
        source.write_text(_SOURCE)
        generate(HeaderRequest(str(folder / "check.d"), str(folder / "check.h"), formats=FORMATS))
        _run(compiler.command, [*flags, "-c", "-o", str(target), str(source)])
        sites = inspect(Image(target.read_bytes(), str(target))).site_count if target.is_file() else 0
    if not sites:
        raise HookError(
            f"{shlex.join(compiler.command)}: writes objects without our assembler, in spite of {' '.join(flags)}; "
            f"{_CURE}"
        )


def take_patchable(wanted: str, command: Sequence[str], table: str = "") -> tuple[list[str], list[str]]:
    """Return the options for patchable entries, and warnings; `wanted` is N,M or auto, `table` the one they will have.

    Options in `command` are looked at, too: some decide about the machine, some can't go together with entries.
    Raises FlagsError and UsageError.
    """
    from ..compilers import compiler_position
    from ..compilers.flags import choose, parse_pair

    pair = None if wanted == "auto" else parse_pair(wanted, "--patchable")
    end = compiler_position(list(command)) + 1
    chosen = choose(pair, shlex.join(command[:end]), command[end:], table=table)
    return list(chosen.flags), list(chosen.warnings)
