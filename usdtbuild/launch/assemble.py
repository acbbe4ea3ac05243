"""One run of the assembler: run the real one, then complete the object it wrote, in its place.

For build systems that have no compiler launcher but let options be added: the compiler is told with `-B` to look for
its assembler in a folder where `as` is a script that ends here (`hook.py` makes the folder). An object of GCC's that
holds intermediate code beside machine code loses the first; one that holds nothing else is an error, because its
source is not at hand to be compiled again. Like `launch.compile`, this imports next to nothing for objects without
probes.
"""

from __future__ import annotations

import posix

from ..compilers import CompilerLine, expand_response_files
from .settings import Settings, read_options
from .step import NOT_EXECUTABLE, Signals, execute, find_program, hold, is_no_file, may_have_probes, say

_PASSES = frozenset(("--version", "-version", "--help"))  # what an assembler is asked without assembling


def assemble(arguments: list[str]) -> int:
    """Carry out `[OPTIONS] -- ASSEMBLER ARGS`, with the options of `usdtbuild cc`; return the exit code."""
    return run_assembler(read_options(arguments))


def run_assembler(settings: Settings) -> int:
    """Run the assembler that is the compiler of these settings, and complete its object; return the exit code."""
    settings.lto = "error"
    words = settings.words
    program = find_program(words[0]) or words[0]  # compilers may say a bare name
    expanded = expand_response_files(words)
    output = output_of(expanded)
    if _PASSES.intersection(expanded):
        return execute(program, words, posix.environ)
    line, signals = CompilerLine(words), Signals()
    line.output = output
    try:
        if is_no_file(output):
            from .complete import compile_elsewhere

            code = compile_elsewhere(settings, line, program, signals)
        else:
            code = _assemble(settings, line, program, signals)
    except OSError as error:
        say(f"usdtbuild: can't run the assembler {program}: {error.strerror}")
        return NOT_EXECUTABLE
    signals.die()
    return code


def _assemble(settings: Settings, line: CompilerLine, program: str, signals: Signals) -> int:
    output = line.output
    code = signals.run(program, settings.words, [])
    if code and (not signals.received or signals.left_behind(output)):
        return code
    held = hold(output)
    if not held:
        return code
    if settings.relative_table or may_have_probes(held):
        from .complete import complete

        return code if complete(settings, line, program, signals, held, output, None) else code or 1
    if held != output:
        posix.rename(held, output)
    return code


def output_of(words: list[str]) -> str:
    """Return the object that an assembler's command line names with -o, or the one it writes without."""
    output = "a.out"
    for position, word in enumerate(words):
        if word == "-o":
            output = words[position + 1] if position + 1 < len(words) else ""
        elif word[:2] == "-o":
            output = word[2:]
    return output
