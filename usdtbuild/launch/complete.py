"""Completing an object that has probes: instrument it, or compile it once more if it holds no machine code.

The part of a compile step that only objects with probes need; `launch.compile` loads it for them. It knows nothing of
ELF: it hands bytes to `instrument` and writes what comes back.
"""

from __future__ import annotations

import posix

from ..compilers import CompilerLine, Source, append_options, only_source
from ..elf.intermediate import LtoObjectError
from ..errors import UsdtError
from ..files import Destination, find_destination, open_input, write_edited, write_through
from ..instrument import main as instrumenting
from .step import BITCODE, HELD, Signals, discard, hold, is_regular, may_have_probes, say

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .settings import Settings


def complete(
    settings: Settings, line: CompilerLine, program: str, signals: Signals, held: str, path: str, source: Source | None
) -> bool:
    """Write the complete form of the object `held` to `path`, and remove `held` if that is another file.

    `source` is what it was compiled from, in case it must be compiled once more. Returns False where that failed:
    then neither file is left, and standard error says why.
    """
    step = _ObjectStep(settings, line, program, signals, path, source)
    try:
        step.complete(held)
    except UsdtError as error:
        say(error.told)
        return False
    finally:
        if not step.done:
            discard(path)
        if held != path:
            _remove(held)
            _sweep(path)
    return True


def _sweep(path: str) -> None:
    """Remove what launchers that were killed while they completed this object have left beside it."""
    slash = path.rfind("/") + 1
    start = f".{path[slash:]}."
    try:
        names = posix.listdir(path[:slash] or ".")
    except OSError:
        return
    for name in names:
        number = name[len(start) : -len(HELD)]
        if name.startswith(start) and name.endswith(HELD) and number.isdecimal() and not _is_running(int(number)):
            _remove(path[:slash] + name)


def _is_running(process: int) -> bool:
    """Whether there is such a process that can still do something; one that is dead but not waited for can't."""
    try:
        posix.kill(process, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):
        pass
    from .orphans import state_of

    return state_of(process)[:1] not in (["Z"], ["X"])


class _ObjectStep:
    def __init__(
        self, settings: Settings, line: CompilerLine, program: str, signals: Signals, path: str, source: Source | None
    ) -> None:
        self.settings, self.line, self.program, self.signals = settings, line, program, signals
        self.path, self.source = path, source
        self.done = False
        self.recompiled = False

    def complete(self, held: str) -> None:
        """Instrument `held`, or compile it again. Raises UsdtError."""
        try:
            self._instrument(held)
        except LtoObjectError as error:
            self._without_machine_code(held, error)
        self.done = True

    def _instrument(self, held: str) -> None:
        with open_input(held) as data:
            if data.view[:4] in BITCODE:
                raise LtoObjectError(
                    f"{self.path}: is LLVM bitcode, which holds no machine code to put probes into; "
                    "compile this file with -fno-lto"
                )
        if self.settings.relative_table:
            self._replace_table(held)
            if not may_have_probes(held):
                if held != self.path:
                    posix.replace(held, self.path)
                return
        with open_input(held) as data:
            patches, tail, report = instrumenting.instrument(data.view, self.path, self._options())
            if report.changed:
                write_edited(data, patches, tail, self.path, mode=data.mode)
            elif held != self.path:
                posix.replace(held, self.path)
        if self.settings.verbose:
            count = len(report.rows)
            done = f"{count} probe site{'s' * (count != 1)}" if report.changed else f"left alone: {report.reason}"
            say(f"usdtbuild: {self.path}: {done}")

    def _replace_table(self, held: str) -> None:
        from ..functions.relative import convert_file

        count = convert_file(held, held)
        if count and self.settings.verbose:
            say(f"usdtbuild: {self.path}: {count} patchable entr{'ies' if count > 1 else 'y'} in a relative table")

    def _options(self) -> instrumenting.Options:
        return _options(self.settings)._replace(keep_calls=_checks_returns(self.line.words))

    # -- LTO ---------------------------------------------------------------------------------------------------------

    def _without_machine_code(self, held: str, error: UsdtError) -> None:
        if self.settings.lto == "error" or self.recompiled:
            raise error
        if self._only_looks_like_it(held):
            if held != self.path:
                posix.replace(held, self.path)
            return
        if self.settings.verbose:
            what = "patchable entries" if self.settings.relative_table else "probes"
            say(f"usdtbuild: {self.path}: has {what}, so it is compiled again with -fno-lto")
        self._compile_again()
        self.recompiled = True
        self._instrument_again()

    def _instrument_again(self) -> None:
        held = hold(self.path)
        if not held:
            raise UsdtError(f"{self.path}: wasn't written when it was compiled again with -fno-lto")
        try:
            self.complete(held)
        finally:
            if held != self.path:
                _remove(held)

    def _only_looks_like_it(self, held: str) -> bool:
        """Whether an LTO object that mentions a semaphore, but no probe call, has nothing to do with us.

        In an LTO object nothing but the names shows, and `_semaphore` is a common ending. The object without LTO has
        the section that the generated header makes. Where there is no such object, nothing is lost: a semaphore of
        ours is hidden and undefined, so that the link fails.
        """
        from tempfile import TemporaryDirectory

        with open_input(held) as data:
            if data.view.find(b"__dtrace") >= 0:
                return False
        with TemporaryDirectory(prefix="usdtbuild-") as folder:
            plain = f"{folder}/plain.o"
            if not self._source_is_file() or self._compile(self._words_without_lto(plain))[0] != 0:
                return not self.settings.relative_table
            return not may_have_probes(plain) and not self._has_entries(plain)

    def _has_entries(self, path: str) -> bool:
        if not self.settings.relative_table:
            return False
        from ..functions.relative import may_have_table

        with open_input(path) as data:
            return may_have_table(data.view)

    def _compile_again(self) -> None:
        """Compile the object's source without LTO, and show what the compiler said if it failed. Raises UsdtError."""
        if not self._source_is_file():
            raise UsdtError(
                f"{self.path}: is an LTO object with probes, and can't be compiled again without LTO because its "
                "source isn't a file; compile it with -fno-lto"
            )
        code, output = self._compile(self._words_without_lto(self.path))
        if code:
            posix.write(2, output)
            raise UsdtError(
                f"{self.path}: is an LTO object with probes, and compiling it with -fno-lto failed (exit code {code}); "
                "options that need LTO, such as -fsanitize=cfi, want a header whose probes are complete as they are: "
                "make it with `usdtbuild header`, without dof and usdt among its --formats"
            )

    def _source_is_file(self) -> bool:
        return self.source is not None and is_regular(self.source.path)  # not standard input, and not a pipe

    def _compile(self, words: list[str]) -> tuple[int, bytes]:
        """Compile the source again; return the exit code and what the compiler said.

        It said the same when it ran first, so nobody needs to hear it again unless it fails.
        """
        from tempfile import TemporaryFile

        if self.signals.received:
            raise UsdtError(f"{self.path}: interrupted")
        with TemporaryFile() as output:
            descriptor = output.fileno()
            to_file = [(posix.POSIX_SPAWN_DUP2, descriptor, 1), (posix.POSIX_SPAWN_DUP2, descriptor, 2)]
            code = self.signals.run(self.program, words, to_file)
            output.seek(0)
            return code, output.read()

    def _words_without_lto(self, target: str) -> list[str]:
        assert self.source is not None
        options = ["-fno-lto"]
        if "-fwhole-program" in self.line.words:
            # Harmless with LTO, which takes it as a word on the whole program; without, it makes all functions local.
            options.append("-fno-whole-program")
        if len(self.line.inputs) == 1 and target == self.source.object == self.path:
            return append_options(self.settings.words, options)
        return only_source(self.line, self.source, target, [*options, *_QUIET])


# Clang warns of options that have nothing to do in the shorter command line.
_QUIET = ("-Wno-unused-command-line-argument",)


def _checks_returns(words: list[str]) -> bool:
    """Whether code compiled so checks behind a call that it was one. `instrument` sees that in the code, too."""
    hardening = [word for word in words if word.endswith("speculative-load-hardening")]
    return bool(hardening) and not hardening[-1].startswith("-mno-")


def _options(settings: Settings) -> instrumenting.Options:
    chosen: dict[str, Any] = {"target_os": settings.target_os, "site_table": settings.site_table}
    if settings.nop:
        chosen["nop"] = settings.nop
    if settings.formats:
        chosen["formats"] = tuple(settings.formats)
    if settings.providers:
        from ..provider.parser import parse_file

        chosen["providers"] = tuple(provider for path in settings.providers for provider in parse_file(path))
    return instrumenting.Options(**chosen)


def _remove(path: str) -> None:
    try:
        posix.unlink(path)
    except OSError:
        return


# --- outputs that are no files ---------------------------------------------------------------------------------------


def compile_elsewhere(settings: Settings, line: CompilerLine, program: str, signals: Signals) -> int:
    """Carry out -c with an output that is no file; return the exit code.

    The object is made and completed in a folder of our own and then written to where it is wanted.
    """
    from tempfile import TemporaryDirectory

    with TemporaryDirectory(prefix="usdtbuild-") as folder:
        path = f"{folder}/object.o"
        if line.output == "-":  # Clang's way to say standard output
            to_file = [(posix.POSIX_SPAWN_OPEN, 1, path, posix.O_WRONLY | posix.O_CREAT, 0o600)]
            code = signals.run(program, settings.words, to_file)
        else:
            code = signals.run(program, append_options(settings.words, ["-o", path]), [])
        if code or not is_regular(path):
            return code
        source = line.sources[0] if line.sources else None  # an assembler has none to compile again
        wanted = settings.relative_table or may_have_probes(path)
        if wanted and not complete(settings, line, program, signals, path, path, source):
            return 1
        return _hand_over(path, line.output)


def _hand_over(path: str, output: str) -> int:
    """Write a finished object to an output that is no file; return the exit code."""
    try:
        to = Destination("standard output", "", False, 1) if output == "-" else find_destination(output)
        with open_input(path) as finished:
            write_through(to, bytes(finished.view))
    except UsdtError as error:
        say(error.told)
        return 1
    return 0
