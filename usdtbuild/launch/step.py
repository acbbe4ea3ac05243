"""What every step of a build does: find and run programs, hold signals back, and keep half-made objects out of sight.

Compiling, assembling and linking all stand on this module, and it stands on none of them. It is on the path of every
object of a build, so it imports nothing but what is built into the interpreter.
"""

from __future__ import annotations

import posix

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal as _signal
    from typing import Any
else:
    import _signal  # `signal` makes enums of the numbers, which takes 4 ms

NOT_FOUND = 127  # what shells return for a program that doesn't exist
NOT_EXECUTABLE = 126  # ... and for one that can't be run
HELD = ".usdtbuild"  # how names of objects end that aren't complete yet
BITCODE = (b"BC\xc0\xde", b"\xde\xc0\x17\x0b")  # how files of LLVM's intermediate code begin, bare or wrapped
# Signals that don't end a program, that can't be held back, or that say it has gone wrong and can't go on.
_LEFT_ALONE = frozenset(
    getattr(_signal, name, 0)
    for name in (
        "SIGKILL", "SIGSTOP", "SIGCONT", "SIGTSTP", "SIGTTIN", "SIGTTOU", "SIGCHLD", "SIGURG", "SIGWINCH",
        "SIGILL", "SIGBUS", "SIGFPE", "SIGSEGV",
    )
)  # fmt: skip
# Signals that end a build step: all others, but for those that the C library keeps for itself (None).
_STEP_SIGNALS = tuple(
    number for number in range(1, _signal.NSIG) if number not in _LEFT_ALONE and _signal.getsignal(number) is not None
)
# What the names of probes' stubs and of semaphores have in them; and what else an object has with one of the latter.
_STUB_NAME, _SEMAPHORE_NAME = b"__dtrace", b"_semaphore"
_SEMAPHORE_COMPANY = (b".usdtbuild.provider", b".gnu.lto_", b"BC\xc0\xde")


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


def execute(program: str, words: list[str], environment: dict[bytes, bytes]) -> int:
    """Become another program; return an exit code only if that fails."""
    for number in (_signal.SIGPIPE, _signal.SIGXFSZ):  # what Python did to these at its start an exec would hand on
        _signal.signal(number, _signal.SIG_DFL)
    try:
        posix.execve(program, words, environment)
    except OSError as error:
        say(f"usdtbuild cc: can't run {program}: {error.strerror}")
    return NOT_EXECUTABLE


class Signals:
    """Signals that end a build step, held back until no half-done object lies around.

    They are passed on to the compiler; what the compiler had finished is finished by us; then we die of the signal,
    as whoever sent it expects.
    """

    def __init__(self) -> None:
        """Begin to hold signals back, but for those that are ignored (nohup, a shell's background jobs)."""
        self.received = 0
        self.child = 0
        self._ends = {number for number in _STEP_SIGNALS if _signal.getsignal(number) != _signal.SIG_IGN}
        for number in self._ends:
            _signal.signal(number, self._take)
        # Who started us may ignore it, and then nobody could wait for a child.
        _signal.signal(_signal.SIGCHLD, lambda *_: None)

    def _take(self, number: int, _: object) -> None:
        first, self.received = not self.received, number
        if first:  # also where the child's number isn't known yet
            from .orphans import adopt

            adopt()  # what the compiler leaves running would write the object when we are gone
        if self.child:
            _send(self.child, number)

    def run(self, program: str, words: list[str], file_actions: list[tuple[Any, ...]]) -> int:
        """Run a program to its end; return its exit code, 128 + n if signal n killed it. Raises OSError."""
        defaults = (_signal.SIGPIPE, _signal.SIGXFSZ)
        # Blocked and waited for, no signal can come just before a call that waits for the child alone.
        mask = _signal.pthread_sigmask(_signal.SIG_BLOCK, {*self._ends, _signal.SIGCHLD})
        awaited = {*self._ends.difference(mask), _signal.SIGCHLD}
        try:
            self.child = child = posix.posix_spawn(
                program, words, posix.environ, file_actions=file_actions, setsigdef=defaults, setsigmask=mask
            )
            if self.received:  # before that
                _send(child, self.received)
            while posix.waitid(posix.P_PID, child, posix.WEXITED | posix.WNOWAIT | posix.WNOHANG) is None:
                if (number := _signal.sigwait(awaited)) != _signal.SIGCHLD:
                    self._take(number, None)
            self.child = 0  # while the number is still the child's
            _, status = posix.waitpid(child, 0)
        finally:
            _signal.pthread_sigmask(_signal.SIG_SETMASK, mask)
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
        return _leads_to_no_file(output)
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


def beginning(path: str, size: int) -> bytes:
    """Return the first bytes of a file, none where it can't be read."""
    try:
        descriptor = posix.open(path, posix.O_RDONLY | posix.O_CLOEXEC)
    except (OSError, ValueError):
        return b""
    try:
        return posix.read(descriptor, size)
    except OSError:
        return b""
    finally:
        posix.close(descriptor)


def may_have_probes(path: str) -> bool:
    """Tell from an object's bytes whether it may call probes or test whether one is enabled.

    All names stand in the object as they are: in the string table, and also in LTO objects of GCC (its symbol table
    section is never compressed) and in LLVM bitcode (the string table blob). Only the section that the generated
    header adds does not show in LTO objects.
    """
    stub, semaphore = _find(path, (_STUB_NAME, _SEMAPHORE_NAME))
    return stub or (semaphore and any(_find(path, _SEMAPHORE_COMPANY)))


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


def _leads_to_no_file(link: str) -> bool:
    """Tell whether a symbolic link leads to a device, a pipe, or one of our open files (/dev/stdout)."""
    from ..errors import UsdtError
    from ..files import find_destination

    try:
        destination = find_destination(link)
    except UsdtError:
        return False
    return destination.descriptor >= 0 or not (destination.beside or is_regular(destination.path))
