"""The compiler and the preprocessor that the environment names: `$CC`, `$CPP`, and the options that go with them.

Each variable may hold several words, quoted as for a shell, but no shell runs. Not here: running them (`ask`).
"""

from __future__ import annotations

import os
import shlex
import shutil

from ..errors import UsdtError

COMPILERS = ("cc", "gcc", "clang")  # where the environment names none: the first that is there


def compiler() -> list[str]:
    """Return the words of `$CC`, else the first compiler found. Raises UsdtError."""
    return words_of("CC") or [next(filter(shutil.which, COMPILERS), COMPILERS[0])]


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
