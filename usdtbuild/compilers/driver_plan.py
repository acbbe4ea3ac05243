"""What Clang itself says that a command line will write, where the line alone doesn't tell.

Configuration files (`--config`) and CCC_OVERRIDE_OPTIONS add and remove options, -c and -o among them. With -### Clang
prints the commands that it would run, and runs none; they name every object. Other compilers know neither of the two.
"""

from __future__ import annotations

import itertools

from . import COMPILE, LINK, PASS, CompilerLine, Source, compiler_position, split_words
from .ask import CompilerError, run_raw


def correct(line: CompilerLine, words: list[str]) -> None:
    """Put what Clang says of the command `words` into `line`; leave it alone where Clang says nothing."""
    commands = _ask(words)
    if not commands:
        return
    sources = _sources(commands)
    for source in sources:
        source.position = next((at for at, path in line.inputs if path == source.path), -1)
    links = any(command[1:2] != ["-cc1"] and not _is_assembler(command) for command in commands)
    if not sources:
        line.action = PASS
    elif links:
        line.action = LINK
    else:
        line.action, line.sources = COMPILE, sources
        if len(sources) == 1:
            line.output = sources[0].object


def _ask(words: list[str]) -> list[list[str]]:
    """Return the commands that Clang would run, [] for another compiler."""
    at = compiler_position(words) + 1
    try:
        done = run_raw([*words[:at], "-###", *words[at:]])
    except CompilerError:
        return []
    commands = [split_words(text) for text in done.stderr.split(b"\n") if text.startswith(b' "')]
    return commands if any("-cc1" in command[1:2] for command in commands) else []


def _sources(commands: list[list[str]]) -> list[Source]:
    found = []
    path = language = folder = ""
    for command in commands:
        if "-cc1" in command[1:2]:
            path, language, folder = command[-1], _value(command, "-x"), _value(command, "-working-directory")
        elif "-cc1as" in command[1:2]:
            path, language, folder = command[-1], "", ""
        if "-emit-obj" in command or _is_assembler(command):
            target = _value(command, "-o")
            if folder and target[:1] not in ("/", "-"):
                target = f"{folder}/{target}"
            has_suffix = "." in path[path.rfind("/") + 1 :]
            given = language if language in ("assembler", "assembler-with-cpp") or not has_suffix else ""
            found.append(Source(-1, path, given, target))
    return found


def _is_assembler(command: list[str]) -> bool:
    name = command[0][command[0].rfind("/") + 1 :]
    return "-cc1as" in command[1:2] or (command[1:2] != ["-cc1"] and (name == "as" or name.endswith("-as")))


def _value(command: list[str], option: str) -> str:
    value = ""
    for word, following in itertools.pairwise(command):
        if word == option:
            value = following
    return value
