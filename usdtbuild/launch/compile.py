"""One compile step: run the compiler, then see to it that the objects it wrote carry their probes.

This is the path of every object of a build, with probes or without. It imports `step` and `settings`, which stand on
nothing but what is built into the interpreter, and the reader of command lines. What objects with probes need is in
`launch.complete`, what compiling and linking in one go needs is in `launch.link`, both loaded when they are needed.

When is an object at its final path without its probes? As short as can be: the compiler writes to the path it was
told, because dependency files, split debug information, coverage and profile data and compiler caches all take their
names from it. As soon as the compiler has ended, its output is renamed to a name beside, read there, and comes back
when it is complete (docs/commands/cc.md has what this means when a build is interrupted).
"""

from __future__ import annotations

import posix

from ..compilers import (
    CACHES,
    COMPILE,
    PASS,
    CompilerLine,
    Source,
    append_options,
    compiler_position,
    dependency_files,
    understand,
)
from .settings import Settings, read_options
from .step import (
    NOT_EXECUTABLE,
    NOT_FOUND,
    Signals,
    beginning,
    execute,
    find_program,
    hold,
    is_no_file,
    may_have_probes,
    say,
)

USAGE = 2


def run(arguments: list[str]) -> int:
    """Carry out `usdtbuild cc` with its `arguments`; return its exit code."""
    try:
        settings = read_options(arguments)
        _check_place(settings.words)
    except ValueError as problem:
        say(f"usdtbuild cc: {problem}; try 'usdtbuild cc --help'")
        return USAGE
    if not settings.words:
        say("usdtbuild cc [OPTIONS] -- COMPILER ARGS; 'usdtbuild cc --help' says what the options are")
        return 0
    program = find_program(settings.words[0])
    if not program:
        say(f"usdtbuild cc: compiler {settings.words[0]}: not found")
        return NOT_FOUND
    if macros := [macro for macro in _macros(settings) if macro not in settings.words]:
        settings.words = _with_macros(settings.words, macros)
    line = understand(settings.words)
    compiler = line.words[compiler_position(line.words)]
    if compiler == "as" or compiler.endswith(("/as", "-as")):
        from .assemble import run_assembler

        return run_assembler(settings)
    if line.configured or b"CCC_OVERRIDE_OPTIONS" in posix.environ:
        from ..compilers.driver_plan import correct

        correct(line, settings.words)
    for path in dependency_files(line):
        if _is_provider_file(path):
            say(
                f"usdtbuild: {path}: is a provider file, and the compiler would write the source's dependencies over "
                f"it; name another file for these, such as -MF {path}ep"
            )
            return 1
    if line.action == PASS:
        return execute(program, settings.words, posix.environ)
    if line.action == COMPILE:
        return _Compilation(settings, line, program).run()
    from .link import compile_and_link

    return compile_and_link(settings, line, program, arguments)


def _check_place(words: list[str]) -> None:
    """Raise ValueError if a compiler cache runs us: it takes us for the compiler, and moves our `--` to its options."""
    if "--" not in words:
        return
    name = beginning(f"/proc/{posix.getppid()}/comm", 64).decode("utf-8", "replace").strip()
    if name in CACHES:
        raise ValueError(f"{name} runs this command; put it behind: usdtbuild cc -- {name} {words[0]} ...")


def _macros(settings: Settings) -> list[str]:
    """Return options that tell headers what becomes of their probes.

    DTrace increments no semaphore, but answers a call. With "nop5" probes must be calls that the compiler knows of: the
    stub is really called where an object stays intermediate code, and the kernel turns a NOP of five bytes into a call,
    too. Registers or the stack below its pointer are lost then.
    """
    macros = ["-DUSDT_ENABLED_BY_CALL"] if "dof" in settings.formats or "usdt" in settings.formats else []
    if settings.nop == "nop10":
        macros.append("-DUSDT_NOP10")
    elif settings.nop == "nop5":
        macros += ["-DUSDT_PROBES_BY_CALL", "-DUSDT_PLAIN_NAMES"]  # nothing will be missing
    return macros


def _with_macros(words: list[str], macros: list[str]) -> list[str]:
    if understand(words).action == PASS and "-E" not in words and "-S" not in words:
        return words  # clang warns of a macro that nothing uses
    return append_options(words, macros)


# --- running programs ----------------------------------------------------------------------------------------------


def _is_provider_file(path: str) -> bool:
    """Tell whether a file that the compiler is about to write over holds probes' declarations."""
    text = beginning(path, 1 << 20)
    # Rules for Make name files and have no braces.
    brace = text.find(b"{")
    return brace >= 0 and text.find(b"provider") >= 0


# --- the objects ---------------------------------------------------------------------------------------------------


class _Compilation:
    """A command line with -c, from the start of the compiler to finished objects."""

    def __init__(self, settings: Settings, line: CompilerLine, program: str) -> None:
        self.settings, self.line, self.program = settings, line, program
        self.signals = Signals()

    def run(self) -> int:
        """Compile, and finish every object that was written, also where another source of the line failed."""
        try:
            if is_no_file(self.line.output):
                from .complete import compile_elsewhere

                code = compile_elsewhere(self.settings, self.line, self.program, self.signals)
            else:
                code = self._compile()
        except OSError as error:
            say(f"usdtbuild cc: can't run {self.program}: {error.strerror}")
            return NOT_EXECUTABLE
        self.signals.die()
        return code

    def _compile(self) -> int:
        before = {source.object: _stamp(source.object) for source in self.line.sources}
        code = self.signals.run(self.program, self.settings.words, [])
        held = []
        for source in self.line.sources:
            # A failing compiler may have left an object of an earlier build alone, which isn't ours to touch.
            if source.object in before and (code == 0 or _stamp(source.object) != before[source.object]):
                del before[source.object]
                if not (code and self.signals.left_behind(source.object)):
                    held.append((hold(source.object), source))
        for name, source in held:
            if name and not self._finish(name, source):
                code = code or 1
        return code

    def _finish(self, held: str, source: Source) -> bool:
        """Complete a source's object; return False if that failed, after removing the object and saying why."""
        try:
            if self.settings.relative_table or may_have_probes(held):
                from .complete import complete

                return complete(self.settings, self.line, self.program, self.signals, held, source.object, source)
            if held != source.object:
                posix.rename(held, source.object)
        except OSError as error:
            say(f"usdtbuild: {source.object}: {error.strerror}")
            return False
        return True


def _stamp(path: str) -> tuple[int, int, int] | None:
    try:
        status = posix.stat(path)
    except (OSError, ValueError):
        return None
    return status.st_ino, status.st_size, status.st_mtime_ns
