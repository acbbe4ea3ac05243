"""Runs the user's C preprocessor over a provider file (`-C`), the way the build's own compiler would be run.

The command is `$CPP`, else `$CC -E`, else the first compiler found; `$CPPFLAGS` and `$CFLAGS` follow, then the -I, -D
and -U of our own command line. Each variable may hold several words, quoted as for a shell, but no shell runs. Not
here: what the language means; the parser follows the line markers that the preprocessor leaves.
"""

# ruff: noqa: PTH113

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys

from ..errors import InputError, UsdtError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

COMPILERS = ("cc", "gcc", "clang")


class PreprocessorError(UsdtError):
    """The preprocessor could not be run, or found an error; the text holds its command and what it printed."""


def preprocess(
    source: str, options: tuple[str, ...], keep_comments: bool = False, content: bytes | None = None
) -> bytes:
    """Return what the preprocessor makes of the file `source`; its warnings go to stderr.

    `options` are -I, -D and -U words. `keep_comments` asks for comments to stay, for documentation. `content` is the
    text, where it isn't in a file. Raises InputError for a file that can't be read, PreprocessorError.
    """
    if content is None and not os.path.isfile(source):
        raise InputError(source, "is not a file that the C preprocessor could read")
    command = [*_program(), *words_of("CPPFLAGS"), *words_of("CFLAGS"), *options]
    # The compiler takes a file's language from its name, and `.d` would be an object to it.
    command += [*(["-C"] if keep_comments else []), "-x", "c", source if content is None else "-"]
    given: Any = {"stdin": subprocess.DEVNULL} if content is None else {"input": content}
    try:
        done = subprocess.run(command, capture_output=True, check=False, **given)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise PreprocessorError(f"can't run the C preprocessor {command[0]}: {reason}; set CC or CPP") from None
    messages = done.stderr.decode("utf-8", "replace")
    if done.returncode:
        what = f"exit code {done.returncode}" if done.returncode > 0 else f"signal {-done.returncode}"
        indented = "".join(f"\n  {line}" for line in messages.splitlines())
        raise PreprocessorError(f"the C preprocessor failed ({what}): {shlex.join(command)}{indented}")
    sys.stderr.write(messages)
    output: bytes = done.stdout
    return output


def included_files(output: bytes) -> list[str]:
    """Return the files that a preprocessor's line markers name, each once, in order."""
    found: dict[str, None] = {}
    for line in output.decode("utf-8", "replace").split("\n"):
        if line.startswith(("# ", "#line ")):
            name = line.partition('"')[2].rpartition('"')[0].replace("\\\\", "\\").replace('\\"', '"')
            # <built-in>, <command-line>, and the compiler's working directory (it ends in two slashes).
            if name and not name.startswith("<") and not name.endswith("//"):
                found[name] = None
    return list(found)


def _program() -> list[str]:
    words = words_of("CPP")
    if words:
        return words
    words = words_of("CC")
    if not words:
        words = [next(filter(shutil.which, COMPILERS), COMPILERS[0])]
    return [*words, "-E"]


def words_of(variable: str) -> list[str]:
    """Return the words of an environment variable. Raises PreprocessorError where its quotes don't match.

    Makefiles continue their variables on the next line, and export them with the backslash and the line's end.
    """
    text = os.environ.get(variable, "").replace("\\\r\n", " ").replace("\\\n", " ")
    try:
        return shlex.split(text)
    except ValueError as error:
        raise PreprocessorError(f"the environment variable {variable} can't be split into words: {error}") from None
