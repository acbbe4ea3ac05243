"""The compiler of the build that calls `dtrace -G`: what it makes objects for, and the code that registers probes.

A target triple wouldn't do: CC or CFLAGS may hold -m32 or an ABI's name, and linkers compare flags and marks that
only an object has. So an empty file is compiled.
"""

# ruff: noqa: PTH120, PTH123

from __future__ import annotations

import os
from tempfile import TemporaryDirectory

from ..compilers import ask
from ..elf.object import ElfObject
from ..errors import UsdtError

REGISTRATION = os.path.dirname(os.path.dirname(__file__)) + "/runtime/usdt_dof_register.c"


class NothingCompiledError(UsdtError):
    """The compiler could not be run, or failed; the text holds its command and what it printed."""


def compile_nothing(bits: int = 0) -> ElfObject:
    """Return the object that `$CC $CFLAGS` makes of nothing, for 32 or 64 bits if `bits` says so.

    Raises CompilerError.
    """
    with TemporaryDirectory(prefix="usdtbuild-") as folder:
        path = f"{folder}/empty.o"
        _run("see what the compiler makes objects for", [*_compiler(bits), "-c", "-o", path, "-x", "c", os.devnull])
        return ElfObject(_content(path), " ".join(ask.words_of("CC") or ["the compiler's object"]))


def with_registration(content: bytes, bits: int) -> bytes:
    """Return an object and the code that registers its DOF (runtime/usdt_dof_register.c), linked into one object.

    Raises CompilerError.
    """
    compiler = _compiler(bits)
    with TemporaryDirectory(prefix="usdtbuild-") as folder:
        probes, code, both = (f"{folder}/{name}.o" for name in ("probes", "register", "both"))
        with open(probes, "wb") as file:
            file.write(content)
        # Position-independent code goes into programs and libraries.
        _run("compile usdt_dof_register.c", [*compiler, "-fPIC", "-c", "-o", code, REGISTRATION])
        _run("link objects with -r", [*compiler, "-nostdlib", "-r", "-o", both, probes, code])
        return _content(both)


def _compiler(bits: int) -> list[str]:
    flags = ask.words_of("CFLAGS")
    return [*ask.compiler(), *flags, *([f"-m{bits}"] if bits else []), "-fno-lto", "-w"]


def _run(purpose: str, command: list[str]) -> None:
    try:
        done = ask.run(command)
    except ask.CannotStartError as error:
        reason = error.reason.lower()
        raise NothingCompiledError(f"can't run the compiler {command[0]}, to {purpose}: {reason}; set CC") from None
    except ask.CompilerError as error:
        raise NothingCompiledError(f"can't {purpose}: {error}") from None
    if done.returncode:
        said = "".join(f"\n  {line}" for line in done.stderr.splitlines())
        raise NothingCompiledError(
            f"can't {purpose}: {' '.join(command)} failed with exit code {done.returncode}; "
            f"set CC and CFLAGS to what the program is compiled with{said}"
        )


def _content(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()
