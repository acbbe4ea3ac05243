"""How a command ends, whatever ends it: signals, and standard streams that are closed, full or without a reader.

Not for `usdtbuild cc`, which must look like the compiler: `launch.compile` has its own ways. Exit codes are those of
docs/exit-codes.md.
"""

from __future__ import annotations

import codecs
import errno
import os
import sys

from .errors import reason
from .text import shown

TYPE_CHECKING = False
if TYPE_CHECKING:
    import io
    import signal as _signal
    from collections.abc import Callable
    from types import FrameType
    from typing import Any, NoReturn
else:
    import _io as io  # every Python has loaded `_io` when it starts, but only those before 3.14 have `io`
    import _signal  # `signal` makes enums of the numbers, which takes 4 ms

INTERRUPTED = 130


class StandardOutputError(Exception):
    """What was to be printed didn't arrive: standard output is closed, full, or nobody reads it any more."""

    exit_code = 3  # no UsdtError: those are about input, and are met where input is read

    def __init__(self, error: OSError) -> None:
        self.reader_left = error.errno == errno.EPIPE
        super().__init__(f"standard output: can't be written: {reason(error)}")


class _StoppedError(BaseException):
    """SIGTERM or SIGHUP came; nothing but the clean-up of what is half done shall run."""

    def __init__(self, number: int) -> None:
        self.number = number
        super().__init__(number)


def run(command: Callable[[], int], name: str) -> int:
    """Run a command and return its exit code, never with a traceback of the user's making; `name` begins messages."""
    _prepare_streams()
    for number in (_signal.SIGHUP, _signal.SIGTERM):
        if _signal.getsignal(number) == _signal.SIG_DFL:
            _signal.signal(number, _stop)
    return ended(command, name)


def ended(command: Callable[[], int], name: str) -> int:
    """Do as `run` does, in a process that has been prepared.

    A signal that ends the process ends it here, when temporary files are gone.
    """
    try:
        code = command()
        sys.stdout.flush()
        return code
    except StandardOutputError as error:
        if not error.reader_left:  # else it has seen all it wanted: usdtbuild list ... | head
            sys.stderr.write(shown(f"{name}: {error}\n"))
        return error.exit_code
    except FileNotFoundError:
        if _has_folder():
            raise
        sys.stderr.write(shown(f"{name}: the working directory has been removed; change to another one\n"))
        return 1
    except OSError as error:
        if error.errno not in (errno.ENOMEM, errno.EAGAIN):
            raise
        cure = "free memory, raise `ulimit -u`, or, in a PID namespace, start it anew: its first process has ended"
        sys.stderr.write(shown(f"{name}: the system gives no memory, or no process: {reason(error)}; {cure}\n"))
        return 1
    except KeyboardInterrupt:
        return INTERRUPTED
    except _StoppedError as stopped:
        _signal.signal(stopped.number, _signal.SIG_DFL)
        os.kill(os.getpid(), stopped.number)
        return 128 + stopped.number


def run_and_leave(command: Callable[[], int], name: str) -> NoReturn:
    """Do as `run` does, for a command of a few milliseconds that builds run again and again; don't return.

    Taking an interpreter apart, and looking for garbage in the meantime, would be a fifth of such a command.
    """
    import gc

    gc.disable()
    code = run(command, name)
    sys.stderr.flush()  # standard output is flushed
    os._exit(code)


def _has_folder() -> bool:
    try:
        os.getcwd()  # noqa: PTH109
    except FileNotFoundError:
        return False
    return True


def hear() -> list[tuple[int, object]]:
    """Let signals end us again where a trace has had its own use for them; return what they did, for `unhear`."""
    wanted = ((_signal.SIGINT, _signal.default_int_handler), (_signal.SIGTERM, _stop), (_signal.SIGHUP, _stop))
    unheard = (_signal.SIG_IGN, None)
    try:
        return [(n, _signal.signal(n, handler)) for n, handler in wanted if _signal.getsignal(n) not in unheard]
    except ValueError:  # in another thread than the first
        return []


def unhear(before: list[tuple[int, object]]) -> None:
    """Let signals do again what they did before `hear`."""
    for number, handler in before:
        _signal.signal(number, handler)  # type: ignore[arg-type]


def _stop(number: int, _: FrameType | None) -> None:
    for each in (_signal.SIGHUP, _signal.SIGTERM):
        _signal.signal(each, _signal.SIG_IGN)  # a second one must not disturb the clean-up
    raise _StoppedError(number)


# --- the standard streams -------------------------------------------------------------------------------------------


def _prepare_streams() -> None:
    """Make standard output raise StandardOutputError where it can't be written, and standard error do nothing there.

    The numbers of closed streams are taken, so that no file that is opened later gets messages or output into it.
    """
    for number, flags in ((0, os.O_RDONLY), (1, os.O_RDONLY), (2, os.O_WRONLY)):
        if not _is_open(number):
            opened = os.open(os.devnull, flags)  # the lowest free number; writing to it fails where it is read-only
            os.set_inheritable(opened, True)
    codecs.register_error("usdtbuild", _spelled)
    sys.stdout = _stream(_Output(1, "w", closefd=False), sys.stdout)
    sys.stderr = _stream(_Messages(2, "w", closefd=False), sys.stderr)
    if sys.stdin is None:
        sys.stdin = open(0, closefd=False)  # noqa: SIM115


def _is_open(number: int) -> bool:
    try:
        os.fstat(number)
    except OSError:
        return False
    return True


def _stream(raw: io.FileIO, before: Any) -> io.TextIOWrapper:
    encoding = getattr(before, "encoding", None)
    at_once = raw.fileno() == 2 or raw.isatty()
    return io.TextIOWrapper(io.BufferedWriter(raw), encoding, "usdtbuild", line_buffering=at_once)


def _spelled(error: UnicodeError) -> tuple[str | bytes, int]:
    """Write what a stream's encoding has no bytes for: bytes of a file's name as they are, the rest as escapes."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    try:
        return codecs.lookup_error("surrogateescape")(error)
    except UnicodeError:
        return codecs.backslashreplace_errors(error)


class _Output(io.FileIO):
    """Standard output, whose errors are no file's; after the first one it takes everything and keeps nothing."""

    failed = False

    def write(self, data: Any) -> int:
        if self.failed:
            return len(data)
        try:
            while (done := super().write(data)) is None:  # somebody has made it non-blocking, and it is full
                _wait(self.fileno())
        except OSError as error:
            self.failed = True
            raise StandardOutputError(error) from None
        return done


class _Messages(io.FileIO):
    """Standard error: where a message can't be written there is nobody to tell."""

    def write(self, data: Any) -> int:
        try:
            return super().write(data) or len(data)
        except OSError:
            return len(data)


def _wait(descriptor: int) -> None:
    import select

    select.select([], [descriptor], [])
