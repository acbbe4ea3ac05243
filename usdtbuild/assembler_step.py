"""One run of the assembler: run the real one, then complete the object it wrote, in its place.

For build systems that have no compiler launcher but let options be added: the compiler is told with `-B` to look for
its assembler in a folder where `as` is a script that ends here (`hook.py` makes the folder). An object of GCC's that
holds intermediate code beside machine code loses the first; one that holds nothing else is an error, because its
source is not at hand to be compiled again. Like `compile_step`, this imports next to nothing for objects without
probes.
"""

from __future__ import annotations

import posix

from .compile_step import NOT_EXECUTABLE, Signals, execute, find_program, hold, may_have_probes, read_options, say
from .compiler_line import CompilerLine, expand_response_files

PASSES = frozenset(("--version", "-version", "--help"))  # what an assembler is asked without assembling


def assemble(arguments: list[str]) -> int:
    """Carry out `[OPTIONS] -- ASSEMBLER ARGS`, with the options of `usdtbuild cc`; return the exit code."""
    settings = read_options(arguments)
    settings.lto = "error"
    words = settings.words
    program = find_program(words[0]) or words[0]  # compilers may say a bare name
    output = output_of(expand_response_files(words))
    if not output or PASSES.intersection(words):
        return execute(program, words, posix.environ)
    signals = Signals()
    try:
        code = signals.run(program, words, [])
    except OSError as error:
        say(f"usdtbuild: can't run the assembler {program}: {error.strerror}")
        return NOT_EXECUTABLE
    held = hold(output) if code == 0 else ""
    if held:
        if settings.relative_table or may_have_probes(held):
            from .object_step import complete

            done = complete(settings, CompilerLine(words), program, signals, held, output, None)
            code = 0 if done else 1
        elif held != output:
            posix.rename(held, output)
    signals.die()
    return code


def output_of(words: list[str]) -> str:
    """Return the object that an assembler's command line names with -o, '' if it names none."""
    output = ""
    for position, word in enumerate(words):
        if word == "-o":
            output = words[position + 1] if position + 1 < len(words) else ""
        elif word[:2] == "-o":
            output = word[2:]
    return output
