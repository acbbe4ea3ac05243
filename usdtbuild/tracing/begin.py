"""How the process that traces is begun, the worker: by a fork of the command line's process, or in another Python.

The command line begins it before it knows what is to be traced: the worker imports what it needs while the command line
does. Where no trace comes of it the worker has nothing to do, and ends.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

from ..files import close_all_but
from .spool import Reader

# Starts a process with these arguments and descriptors; returns what waits for its end.
Start = Callable[[list[str], set[int]], Callable[[], int]]

# Signals that are for the front; the worker ignores them.
FRONTS = (signal.SIGINT, signal.SIGHUP, signal.SIGTERM, signal.SIGQUIT)
_KEEPERS_TIME = 6.0  # seconds that it may take at most, a little more than it gives itself


class Begun:
    """A worker, the file for raw records that it writes, and what shows whether somebody still puts things back."""

    def __init__(self, start: Start) -> None:
        """Begin it. Raises OSError."""
        with contextlib.ExitStack() as undone, contextlib.ExitStack() as theirs:
            self.spool = undone.enter_context(contextlib.closing(Reader()))
            self._keeper, held = os.pipe()
            undone.callback(os.close, self._keeper)
            theirs.callback(os.close, held)
            ours, other = socket.socketpair()
            undone.callback(ours.close)
            theirs.callback(other.close)
            spool = os.dup(self.spool.descriptor)
            theirs.callback(os.close, spool)
            self.numbers = spool, held  # of the descriptors of the spool and of the keeper, in the worker
            # A signal that both of us get mustn't end it before it ignores these.
            mask = signal.pthread_sigmask(signal.SIG_BLOCK, FRONTS)
            theirs.callback(signal.pthread_sigmask, signal.SIG_SETMASK, mask)
            words = [str(int(number)) for number in (other.fileno(), *mask)]
            self._wait = start(words, {other.fileno(), spool, held})
            self.link = Connection(ours.detach())
            undone.pop_all()

    def close(self) -> None:
        """Let go of it, and wait for its end: it puts everything back if it hasn't yet."""
        self.link.close()
        if self._wait():  # it was killed, or broke off, and the keeper puts back what it has changed
            select.select([self._keeper], [], [], _KEEPERS_TIME)
        os.close(self._keeper)
        self.spool.close()


def another_python(words: list[str], kept: set[int], *, streams: tuple[Any, Any, Any]) -> Callable[[], int]:
    """Run the worker in another Python: in ours there may be threads, and anything else that no fork survives."""
    command, (stdin, stdout, stderr) = [*python_running("worker"), *words], streams
    return subprocess.Popen(command, stdin=stdin, stdout=stdout, stderr=stderr, pass_fds=kept).wait


def forked(words: list[str], kept: set[int]) -> Callable[[], int]:
    """Run the worker in a fork of ours, as the command line's process can: that has one thread, and nothing of
    anybody's yet.

    Nothing of ours is used or cleaned up there but what a new Python would have, too: its descriptors are closed, and
    the objects that had them never go.
    """
    pid = os.fork()
    if pid:
        return lambda: os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    try:
        gc.freeze()
        close_all_but({0, 1, 2, *kept})
        sys.path[:] = _folders()
        importlib.import_module(".worker", __package__).main(words)
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        os._exit(1)


def python_running(module: str) -> list[str]:
    """Return the words that run `main` of a module of this room in another Python like ours; its arguments follow."""
    code = f"import sys; sys.path[:] = {_folders()!r}; from usdtbuild.tracing.{module} import main; main(sys.argv[1:])"
    return [sys.executable, "-I", "-c", code]


def _folders() -> list[str]:
    """Return where Python looks for modules, without the working directory."""
    return [path for path in sys.path if path]


# -- before it is known what for ---------------------------------------------------------------------------------------

_ahead: list[Begun] = []


def begin_ahead() -> None:
    """Begin a worker, if a processor is there for it; what goes wrong is told when one is wanted."""
    if hasattr(os, "sched_getaffinity") and len(os.sched_getaffinity(0)) > 1:
        try:
            _ahead.append(Begun(forked))
        except OSError:
            return


def begun() -> Begun:
    """Return a worker that is a fork of ours: the one that was begun ahead, or a new one. Raises OSError."""
    return _ahead.pop() if _ahead else Begun(forked)


def end_ahead() -> None:
    """End a worker that was begun ahead if nobody wanted it."""
    while _ahead:
        _ahead.pop().close()
