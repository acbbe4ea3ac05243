"""Runs the user's C preprocessor over a provider file (`-C`), the way the build's own compiler would be run.

The command is `$CPP`, else `$CC -E`, else the first compiler found; `$CPPFLAGS` and `$CFLAGS` follow, then the -I, -D
and -U of our own command line. Not here: what the language means; the provider's parser follows the line markers that
the preprocessor leaves.
"""

# ruff: noqa: PTH113

from __future__ import annotations

import os
import shlex
import sys

from ..errors import InputError, UsdtError
from .ask import CannotStartError, preprocessor, run_raw, words_of


class PreprocessorError(UsdtError):
    """The preprocessor could not be run, or found an error; the text holds its command and what it printed."""


def preprocess(
    source: str, options: tuple[str, ...], keep_comments: bool = False, content: bytes | None = None
) -> bytes:
    """Return what the preprocessor makes of the file `source`; its warnings go to stderr.

    `options` are -I, -D and -U words. `keep_comments` asks for comments to stay, for documentation. `content` is the
    text, where it isn't in a file. Raises InputError for a file that can't be read,
    PreprocessorError, CompilerError for one that doesn't end, UsdtError for a variable whose quotes don't match.
    """
    if content is None and not os.path.isfile(source):
        raise InputError(source, "is not a file that the C preprocessor could read")
    command = [*preprocessor(), *words_of("CPPFLAGS"), *words_of("CFLAGS"), *options]
    # The compiler takes a file's language from its name, and `.d` would be an object to it.
    command += [*(["-C"] if keep_comments else []), "-x", "c", source if content is None else "-"]
    try:
        done = run_raw(command, content or b"")
    except CannotStartError as error:
        reason = error.reason.lower()
        raise PreprocessorError(f"can't run the C preprocessor {command[0]}: {reason}; set CC or CPP") from None
    messages = done.stderr.decode("utf-8", "replace")
    if done.returncode:
        what = f"exit code {done.returncode}" if done.returncode > 0 else f"signal {-done.returncode}"
        indented = "".join(f"\n  {line}" for line in messages.splitlines())
        raise PreprocessorError(f"the C preprocessor failed ({what}): {shlex.join(command)}{indented}")
    sys.stderr.write(messages)
    return done.stdout
