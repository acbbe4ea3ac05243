"""Ask a compiler: which one `$CC` and `$CPP` name, what it says when it is run, what of that tells most, and what it
predefines. No shell reads the quotes in the variables.

Compilers that can't be run end in errors that say so. Which question is asked and what the answer means is known to
those who ask (`flags`, `preprocess`, `launch.hook`, `classic.compiler`).
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from collections.abc import Sequence
from typing import Any

from ..errors import UsdtError

TIMEOUT = 120  # seconds for one run of a compiler or a probe
COMPILERS = ("cc", "gcc", "clang")  # where the environment names none: the first that is there


class CompilerError(UsdtError):
    """A compiler, or a program that it made, can't be run or doesn't end."""


class CannotStartError(CompilerError):
    """A program can't be started here at all; `reason` is what the system says."""

    def __init__(self, program: str, reason: str) -> None:
        super().__init__(f"{program} can't be run: {reason}")
        self.reason = reason


def compiler() -> list[str]:
    """Return the words of `$CC`, else the first compiler found. Raises UsdtError."""
    from shutil import which  # which a compile step has no use for

    return words_of("CC") or [next(filter(which, COMPILERS), COMPILERS[0])]


def preprocessor() -> list[str]:
    """Return the words of `$CPP`, else the compiler's with -E. Raises UsdtError."""
    return words_of("CPP") or [*compiler(), "-E"]


def words_of(variable: str) -> list[str]:
    """Return the words of an environment variable. Raises UsdtError where its quotes don't match.

    Makefiles continue their variables on the next line, and export them with the backslash and the line's end.
    """
    text = os.environ.get(variable, "").replace("\\\r\n", " ").replace("\\\n", " ")
    try:
        return shlex.split(text)
    except ValueError as error:
        raise UsdtError(f"the environment variable {variable} can't be split into words: {error}") from None


def run(command: Sequence[str], **more: str) -> subprocess.CompletedProcess[str]:
    """Run a compiler or a probe and return what it said. Raises CompilerError."""
    return _run(command, text=True, errors="replace", input=more.get("text", ""), cwd=more.get("folder"))


def run_raw(command: Sequence[str], content: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    """Do the same for what is no text of the user's locale; `content` is its standard input. Raises CompilerError."""
    return _run(command, input=content)


def _run(command: Sequence[str], **more: Any) -> subprocess.CompletedProcess[Any]:
    try:
        return subprocess.run(list(command), capture_output=True, timeout=TIMEOUT, check=False, **more)
    except OSError as error:
        raise CannotStartError(command[0], error.strerror or str(error)) from None
    except subprocess.TimeoutExpired:
        raise CompilerError(f"{shlex.join(command)} did not end within {TIMEOUT} s") from None


def keeps_backslashes(compiler: Sequence[str]) -> bool:
    """Tell whether a backslash within quotes stays when the compiler reads a response file, as since GCC 16."""
    descriptor = os.memfd_create("usdtbuild-words", 0)
    try:
        os.write(descriptor, rb"'-DUSDTBUILD=1\2'")
        words = [*compiler, "-E", "-P", "-x", "c", f"@/proc/self/fd/{descriptor}", "-"]
        return b"1\\2" in _run(words, input=b"USDTBUILD\n", pass_fds=(descriptor,)).stdout
    except CompilerError:
        return False
    finally:
        os.close(descriptor)


def last_line(text: str) -> str:
    """Return the line of a compiler's complaint that says most: the first with the word error, else the last."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return next((line for line in lines if "error" in line.lower()), lines[-1] if lines else "it said nothing")


def macros(output: str) -> dict[str, str]:
    """Return the macros that a preprocessor has written with -dM, with their values."""
    return dict(re.findall(r"^#define (\w+) ?(.*)$", output, re.MULTILINE))


def name_of(macros: dict[str, str]) -> str:
    """Return which compiler predefines these macros, and its version, for messages."""
    if "__clang__" in macros:
        return "clang " + ".".join(macros.get(f"__clang_{part}__", "?") for part in ("major", "minor", "patchlevel"))
    if "__GNUC__" in macros:
        return "gcc " + ".".join(
            macros.get(name, "?") for name in ("__GNUC__", "__GNUC_MINOR__", "__GNUC_PATCHLEVEL__")
        )
    return "the compiler"
