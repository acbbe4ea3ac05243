"""One compile step: run the compiler, then see to it that the objects it wrote carry their probes.

This is the path of every object of a build, with probes or without. It imports nothing but `posix` and `_signal`,
which are built into the interpreter, and the reader of command lines; what objects with probes need is in
`launch.complete`, what compiling and linking in one go needs is in `launch.link`, both loaded when they are needed.

When is an object at its final path without its probes? As short as can be: the compiler writes to the path it was
told, because dependency files, split debug information, coverage and profile data and compiler caches all take their
names from it. As soon as the compiler has ended, its output is renamed to a name beside, read there, and comes back
when it is complete (docs/commands/cc.md has what this means when a build is interrupted).
"""

from __future__ import annotations

import posix

from ..compilers import (
    COMPILE,
    PASS,
    CompilerLine,
    Source,
    append_options,
    compiler_position,
    dependency_files,
    understand,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal as _signal
    from typing import Any
else:
    import _signal  # `signal` makes enums of the numbers, which takes 4 ms

NOT_FOUND = 127  # what shells return for a program that doesn't exist
NOT_EXECUTABLE = 126  # ... and for one that can't be run
USAGE = 2
HELD = ".usdtbuild"  # how names of objects end that aren't complete yet
BITCODE = (b"BC\xc0\xde", b"\xde\xc0\x17\x0b")  # how files of LLVM's intermediate code begin, bare or wrapped

# Our own options, and what `options` calls the choices that there are for their values.
_OPTIONS = {
    "--nop": "NOPS",
    "--formats": "FORMATS",
    "--lto": "LTO",
    "--provider": "",
    "--target-os": "SYSTEMS",
    "--patchable-table": "TABLES",
    "--tool-version": "",
}
# Our own options with which the native door (native.py) runs a step whose object turns out to have no probes.
NATIVE_OPTIONS = ("--formats=", "--provider=", "--site-table", "--target-os=", "--tool-version=")
# Signals that don't end a program, that can't be held back, or that say it has gone wrong and can't go on.
_LEFT_ALONE = frozenset(
    getattr(_signal, name, 0)
    for name in (
        "SIGKILL", "SIGSTOP", "SIGCONT", "SIGTSTP", "SIGTTIN", "SIGTTOU", "SIGCHLD", "SIGURG", "SIGWINCH",
        "SIGILL", "SIGBUS", "SIGFPE", "SIGSEGV",
    )
)  # fmt: skip
# Signals that end a build step: all others, but for those that the C library keeps for itself (None).
STEP_SIGNALS = tuple(
    number for number in range(1, _signal.NSIG) if number not in _LEFT_ALONE and _signal.getsignal(number) is not None
)
# What the names of probes' stubs and of semaphores have in them; and what else an object has with one of the latter.
STUB_NAME, SEMAPHORE_NAME = b"__dtrace", b"_semaphore"
SEMAPHORE_COMPANY = (b".usdtbuild.provider", b".gnu.lto_", b"BC\xc0\xde")


class Settings:
    """The launcher's own options, and the compiler's command line."""

    __slots__ = ("formats", "lto", "nop", "providers", "relative_table", "site_table", "target_os", "verbose", "words")

    def __init__(self) -> None:
        """Start with the defaults; an empty string or list leaves the choice to `instrument`."""
        self.nop = ""
        self.formats: list[str] = []
        self.lto = "recompile"
        self.providers: list[str] = []  # paths of .d files
        self.target_os = ""
        self.relative_table = False  # of patchable function entries, in place of the compiler's
        self.site_table = False  # a loaded table of the sites
        self.verbose = False
        self.words: list[str] = []  # COMPILER ARGS


def run(arguments: list[str]) -> int:
    """Carry out `usdtbuild cc` with its `arguments`; return its exit code."""
    try:
        settings = read_options(arguments)
    except ValueError as problem:
        say(f"usdtbuild cc: {problem}; try 'usdtbuild cc --help'")
        return USAGE
    if not settings.words:
        return _help()
    program = find_program(settings.words[0])
    if not program:
        say(f"usdtbuild cc: compiler {settings.words[0]}: not found")
        return NOT_FOUND
    if settings.nop == "nop5" or settings.lto == "keep":
        settings.words = _with_calls(settings.words)
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


def _with_calls(words: list[str]) -> list[str]:
    """Return a compiler's command line for headers whose probes must be calls that the compiler knows of.

    The stub is really called where an object stays intermediate code, and the kernel turns a NOP of five bytes into a
    call, too: registers or the stack below its pointer are lost then.
    """
    if understand(words).action == PASS and "-E" not in words and "-S" not in words:
        return words  # clang warns of a macro that nothing uses
    return append_options(words, ["-DUSDT_PROBES_BY_CALL", "-DUSDT_PLAIN_NAMES"])  # nothing will be missing


def _help() -> int:
    from ..ending import run

    try:
        from ..cli import main as command_line
    except ModuleNotFoundError:  # started with -S, by a build system
        say("usdtbuild cc [OPTIONS] -- COMPILER ARGS; run 'usdtbuild cc --help' without Python's -S for the options")
        return 0
    return run(lambda: command_line(["cc", "--help"]), "usdtbuild")


def read_options(arguments: list[str]) -> Settings:
    """Return the settings that `[OPTIONS] [--] COMPILER ARGS` gives; no words mean that help is wanted.

    Raises ValueError, with what is wrong.
    """
    settings = Settings()
    position = 0
    while position < len(arguments):
        word = arguments[position]
        position += 1
        if word == "--":
            settings.words = arguments[position:]
            break
        if word[:1] != "-":
            settings.words = arguments[position - 1 :]
            break
        if word in ("-h", "--help"):
            return settings
        if word in ("-v", "--verbose"):
            settings.verbose = True
            continue
        if word == "--site-table":
            settings.site_table = True
            continue
        name, equals, value = word.partition("=")
        if name not in _OPTIONS:
            raise ValueError(f"there is no option {name}")
        if not equals:
            if position == len(arguments):
                raise ValueError(f"{name} needs a value")
            value = arguments[position]
            position += 1
        _set_option(settings, name, value)
    if not settings.words:
        raise ValueError("there is no compiler to run")
    return settings


def _set_option(settings: Settings, name: str, value: str) -> None:
    choices: tuple[str, ...] = ()
    if _OPTIONS[name] and (value or name != "--target-os"):
        from .. import options

        choices = tuple(getattr(options, _OPTIONS[name]))
    if choices and name != "--formats" and value not in choices:
        raise ValueError(f"{name} is one of {', '.join(choices)}, not {value!r}")
    if name == "--nop":
        settings.nop = value
    elif name == "--lto":
        settings.lto = value
    elif name == "--target-os":
        settings.target_os = value
    elif name == "--patchable-table":
        settings.relative_table = value == "relative"
    elif name == "--provider":
        settings.providers.append(value)
    elif name == "--formats":
        for item in value.split(","):
            if item not in choices:
                raise ValueError(f"--formats takes some of {', '.join(choices)}, with commas, not {item!r}")
            settings.formats.append(item)


# --- running programs ----------------------------------------------------------------------------------------------


def say(text: str) -> None:
    """Write a line to standard error at once, if there is one: a message that nobody gets must not stop the work."""
    try:
        posix.write(2, (text + "\n").encode("utf-8", "surrogateescape"))
    except OSError:
        return


def find_program(name: str) -> str:
    """Return the path of a program as execvp would find it, or ''."""
    if "/" in name:
        return name if _exists(name) else ""
    path = posix.environ.get(b"PATH", b"/bin:/usr/bin").decode("utf-8", "surrogateescape")
    for folder in path.split(":"):
        candidate = f"{folder or '.'}/{name}"
        if _exists(candidate) and posix.access(candidate, posix.X_OK):
            return candidate
    return ""


def _exists(path: str) -> bool:
    try:
        return posix.stat(path).st_mode & 0o170000 != 0o040000
    except (OSError, ValueError):
        return False


def _is_provider_file(path: str) -> bool:
    """Tell whether a file that the compiler is about to write over holds probes' declarations."""
    try:
        descriptor = posix.open(path, posix.O_RDONLY | posix.O_CLOEXEC)
    except (OSError, ValueError):
        return False
    try:
        text = posix.read(descriptor, 1 << 20)
    except OSError:
        return False
    finally:
        posix.close(descriptor)
    # Rules for Make name files and have no braces.
    brace = text.find(b"{")
    return brace >= 0 and text.find(b"provider") >= 0


def execute(program: str, words: list[str], environment: dict[bytes, bytes]) -> int:
    """Become another program; return an exit code only if that fails."""
    restore_pipe_signals()
    try:
        posix.execve(program, words, environment)
    except OSError as error:
        say(f"usdtbuild cc: can't run {program}: {error.strerror}")
    return NOT_EXECUTABLE


def restore_pipe_signals() -> None:
    """Undo what Python did to two signals at its start, which an exec would hand on."""
    for number in (_signal.SIGPIPE, _signal.SIGXFSZ):
        _signal.signal(number, _signal.SIG_DFL)


class Signals:
    """Signals that end a build step, held back until no half-done object lies around.

    They are passed on to the compiler; what the compiler had finished is finished by us; then we die of the signal,
    as whoever sent it expects.
    """

    def __init__(self, received: int = 0) -> None:
        """Begin to hold signals back, but for those that are ignored (nohup, a shell's background jobs).

        `received` is one that came before.
        """
        self.received = received
        self.child = 0
        for number in STEP_SIGNALS:
            if _signal.getsignal(number) != _signal.SIG_IGN:
                _signal.signal(number, self._take)

    def _take(self, number: int, _: object) -> None:
        first, self.received = not self.received, number
        if self.child:
            if first:
                from .orphans import adopt

                adopt()  # what the compiler leaves running would write the object when we are gone
            _send(self.child, number)

    def run(self, program: str, words: list[str], file_actions: list[tuple[Any, ...]]) -> int:
        """Run a program to its end; return its exit code, 128 + n if signal n killed it. Raises OSError."""
        defaults = (_signal.SIGPIPE, _signal.SIGXFSZ)
        self.child = child = posix.posix_spawn(
            program, words, posix.environ, file_actions=file_actions, setsigdef=defaults
        )
        if self.received:  # it came between the fork and the assignment
            _send(child, self.received)
        posix.waitid(posix.P_PID, child, posix.WEXITED | posix.WNOWAIT)
        self.child = 0  # while the number is still the child's
        _, status = posix.waitpid(child, 0)
        if self.received:
            from .orphans import end

            end(self.received)
        return 128 + posix.WTERMSIG(status) if posix.WIFSIGNALED(status) else posix.WEXITSTATUS(status)

    def left_behind(self, path: str) -> bool:
        """Remove an object that somebody was writing when a signal came; tell whether there was one."""
        if not self.received:
            return False
        from .orphans import is_whole

        if is_whole(path):
            return False
        discard(path)
        return True

    def die(self) -> None:
        """Die of the signal that was held back, if there was one."""
        if self.received:
            _signal.signal(self.received, _signal.SIG_DFL)
            posix.kill(posix.getpid(), self.received)


def _send(process: int, number: int) -> None:
    try:
        posix.kill(process, number)
    except OSError:
        return  # it has ended already


# --- the objects ---------------------------------------------------------------------------------------------------


class _Compilation:
    """A command line with -c, from the start of the compiler to finished objects."""

    def __init__(self, settings: Settings, line: CompilerLine, program: str) -> None:
        self.settings, self.line, self.program = settings, line, program
        self.signals = Signals()

    def run(self) -> int:
        """Compile, and finish every object that was written, also where another source of the line failed."""
        try:
            code = self._compile_elsewhere() if is_no_file(self.line.output) else self._compile()
        except OSError as error:
            say(f"usdtbuild cc: can't run {self.program}: {error.strerror}")
            return NOT_EXECUTABLE
        self.signals.die()
        return code

    def _compile_elsewhere(self) -> int:
        from .complete import compile_elsewhere

        return compile_elsewhere(self.settings, self.line, self.program, self.signals)

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


def is_no_file(output: str) -> bool:
    """Tell whether an output is something that a compiler would replace by a file, or can't write an object to.

    That is standard output under whatever name, and pipes; /dev/null takes anything.
    """
    if output in ("", "/dev/null"):
        return False
    if output == "-":
        return True
    try:
        kind = posix.lstat(output).st_mode & 0o170000
    except (OSError, ValueError):
        return False
    if kind == 0o120000:
        from .complete import leads_to_no_file

        return leads_to_no_file(output)
    return kind not in (0o100000, 0o040000)


def discard(path: str) -> None:
    """Remove an object that isn't to be used; where its folder forbids that, leave nothing in it."""
    try:
        posix.unlink(path)
    except FileNotFoundError:
        return
    except OSError:
        try:
            posix.truncate(path, 0)
        except OSError:
            return


def hold(path: str) -> str:
    """Rename a freshly written object to a name beside it, so that nobody takes it for complete; return that name.

    The name has our process number in it, for builds that make the same object at once. Returns '' where there is no
    regular file (the compiler wrote nothing, or to /dev/null), and the path itself where it can't be renamed (the
    longer name is too long, for one).
    """
    try:
        mode = posix.lstat(path).st_mode & 0o170000
    except (OSError, ValueError):
        return ""
    if mode != 0o100000:
        return path if mode == 0o120000 and is_regular(path) else ""
    slash = path.rfind("/") + 1
    held = f"{path[:slash]}.{path[slash:]}.{posix.getpid()}{HELD}"
    try:
        posix.rename(path, held)
    except OSError:
        return path
    return held


def is_regular(path: str) -> bool:
    """Tell whether there is a regular file at `path`, be it through a symbolic link."""
    try:
        return posix.stat(path).st_mode & 0o170000 == 0o100000
    except (OSError, ValueError):
        return False


def may_have_probes(path: str) -> bool:
    """Tell from an object's bytes whether it may call probes or test whether one is enabled.

    All names stand in the object as they are: in the string table, and also in LTO objects of GCC (its symbol table
    section is never compressed) and in LLVM bitcode (the string table blob). Only the section that the generated
    header adds does not show in LTO objects.
    """
    stub, semaphore = _find(path, (STUB_NAME, SEMAPHORE_NAME))
    return stub or (semaphore and any(_find(path, SEMAPHORE_COMPANY)))


def _find(path: str, needles: tuple[bytes, ...]) -> list[bool]:
    """Return for each needle whether the file has it; once the first is found, the others count as not found."""
    found = [False] * len(needles)
    descriptor = posix.open(path, posix.O_RDONLY | posix.O_CLOEXEC)
    try:
        tail = b""
        while piece := posix.read(descriptor, 1 << 20):
            window = tail + piece if tail else piece
            for index, needle in enumerate(needles):
                found[index] = found[index] or needle in window
            if found[0]:
                break
            tail = window[-32:]
    finally:
        posix.close(descriptor)
    return found
