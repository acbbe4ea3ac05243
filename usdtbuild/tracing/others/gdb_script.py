"""The script that gdb runs for `usdtbuild trace --engine gdb`: attach, break at probes, tell each hit, let go.

It imports nothing of usdtbuild: gdb's own Python runs it, whichever version that is. The environment variable
USDTBUILD_GDB_JOB holds a JSON object: `pid`, the descriptors `hear` and `tell`, `string_size`, and whether `values` are
wanted. It tells JSON lines: ["attached"], ["exec"], ["libraries"] when some may come or go, and ["loaded"] when gdb has
read new ones, each of which it waits to be answered, and then ["going"] when the process runs on with what the answer
asked for, ["forked"] when it starts another process for the first time, [time, thread, address, values] for a hit, and
one of ["ended"], ["detached"] and ["error", text] at the end.
An answer is {"names": probes to break at, "sites": {address: for each argument whether it is a string}}. The line
"stop", and the end of the pipe, ask for the end.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import queue
import re
import signal
import threading
import time
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any

import gdb

if TYPE_CHECKING:
    from collections.abc import Callable

# Its default is to be ignored, and a program that blocks it has SIGSTOP, which gdb keeps for itself.
_SIGNALS = ("SIGURG", "SIGSTOP")
_PATIENCE = 1.0  # seconds from one to the next
_SHORTLY = 0.02


class Link:
    """The two pipes to the session; a thread listens, since gdb is busy while the program runs.

    When the end is asked for, the thread interrupts the program until the script has noticed, but never while gdb holds
    it: a signal that came only after gdb has let go would be the program's own.
    """

    def __init__(self, job: dict[str, Any]) -> None:
        self.pid: int = job["pid"]
        self._hear = os.fdopen(job["hear"], encoding="utf-8")
        self._tell: int = job["tell"]
        self._answers: queue.Queue[Any] = queue.Queue()
        self.asked = threading.Event()  # for the end
        self.over = threading.Event()
        self.on_the_way = ""  # the last signal that was sent, until it has come
        self._lock, self._is_running = threading.Lock(), False
        # A signal for gdb must not end up in a thread of ours.
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, {*range(1, 32)} - {signal.SIGKILL, signal.SIGSTOP})
        threading.Thread(target=self._listen, daemon=True).start()
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)

    def tell(self, *message: Any) -> None:
        """Tell something. Whoever should hear it may be gone, which `_listen` notices too."""
        raw = (json.dumps(message) + "\n").encode("ascii")
        try:
            while raw:
                raw = raw[os.write(self._tell, raw) :]
        except OSError:
            self.asked.set()

    def ask(self, *message: Any) -> dict[str, Any]:
        """Tell something and wait for the answer."""
        self.tell(*message)
        answer: dict[str, Any] = self._answers.get()
        return answer

    def _listen(self) -> None:
        for line in self._hear:
            if line == "stop\n":
                break
            self._answers.put(json.loads(line))
        self.asked.set()
        self._answers.put({"names": [], "sites": {}})
        name = _SIGNALS[0]
        while not self.over.is_set():
            with self._lock:
                is_sent = self._is_running and self.send(name)
            if is_sent:
                name = _SIGNALS[1]
            self.over.wait(_PATIENCE if is_sent else _SHORTLY)

    def send(self, name: str) -> bool:
        """Interrupt the program by a signal; return whether it is there."""
        try:
            os.kill(self.pid, getattr(signal, name))
        except OSError:
            return False
        self.on_the_way = name
        return True

    def run(self, command: str) -> None:
        """Let the program run on by a command, until it stops."""
        with self._lock:
            self._is_running = True
        try:
            gdb.execute(command, to_string=True)
        finally:
            with self._lock:
                self._is_running = False


class Sites:
    """What is watched."""

    def __init__(self, link: Link, job: dict[str, Any]) -> None:
        self.link = link
        self._longest: int = job["string_size"]
        self._values: bool = job["values"]
        self._strings: dict[int, list[bool]] = {}
        self._is_new = False
        self._watched: dict[str, Watch] = {}
        self._libc: Any = None
        with contextlib.suppress(ImportError, AttributeError):
            import ctypes

            self._libc = ctypes.CDLL(None, use_errno=True)
            self._libc.process_vm_readv  # noqa: B018 - whether it is there

    def take(self, answer: dict[str, Any]) -> None:
        """Watch what an answer asks for, from when the process goes on."""
        self._is_new = True
        self._strings.update((int(address), strings) for address, strings in answer["sites"].items())
        for name in answer["names"]:
            if name not in self._watched:
                self._watched[name] = Watch(name, self._hit)

    def going(self, _: Any) -> None:
        """The process goes on, with all breakpoints in place."""
        if self._is_new:
            self._is_new = False
            self.link.tell("going")

    def forget(self) -> None:
        """The program is another one."""
        for one in self._watched.values():
            one.delete()
        self._watched, self._strings = {}, {}

    def _hit(self) -> None:
        """A breakpoint was hit: tell it, if somebody wants to know of this place."""
        try:
            self._tell()
        except Exception:
            self.link.tell("error", traceback.format_exc())

    def _tell(self) -> None:
        now = int(time.monotonic() * 1e9) if not hasattr(time, "monotonic_ns") else time.monotonic_ns()
        address = gdb.selected_frame().pc()
        strings = self._strings.get(address)
        if strings is not None:
            values = [self._read(*one) for one in enumerate(strings)] if self._values else []
            self.link.tell(now, gdb.selected_thread().ptid[1], address, values)

    def _read(self, position: int, is_text: bool) -> Any:
        """Return an argument's bits; a string as text (Latin-1), in a list if it goes on where nothing can be read, and
        as a list of its address if it can't be read at all."""
        try:
            value = number(position, 8, False)
        except gdb.error:
            return None
        try:
            if not (is_text and value):
                return value
            text, is_cut = string(value, self._longest, self._may_read)
            return [text.decode("latin-1")] if is_cut else text.decode("latin-1")
        except (gdb.error, OverflowError):
            return [value]

    def _may_read(self, address: int) -> bool:
        """Whether the program itself can read there, of which gdb knows nothing; True if that can't be told."""
        if self._libc is None:
            return True
        import ctypes

        byte = ctypes.create_string_buffer(1)
        here, there = ((ctypes.c_size_t * 2)(at, 1) for at in (ctypes.addressof(byte), address))
        got = self._libc.process_vm_readv(gdb.selected_inferior().pid, here, 1, there, 1, 0)
        return got >= 0 or ctypes.get_errno() != errno.EFAULT


# -- what scripts for people have of it, too (`scripts.gdb`) ----------------------------------------------------------


class Watch(gdb.Breakpoint):  # type: ignore[misc]  # gdb's Python alone knows it
    """A probe, wherever that is. At each hit a function is called, and the program goes on."""

    def __init__(self, probe: str, hit: Callable[[], Any]) -> None:
        super().__init__("-probe-stap " + probe, internal=True)
        self._hit = hit

    def stop(self) -> bool:
        """Take a hit."""
        self._hit()
        return False


def number(index: int, size: int, signed: bool) -> int:
    """Return the probe's argument at an index, of so many bytes. Raises gdb.error."""
    bits = int(gdb.parse_and_eval(f"(unsigned long)$_probe_arg{index}")) & (1 << 8 * size) - 1
    return bits - (1 << 8 * size) if signed and bits >> 8 * size - 1 else bits


def string(address: int, longest: int, may_read: Callable[[int], bool] = lambda _: True) -> tuple[bytes, bool]:
    """Return the string at an address, at most so many bytes, and whether it goes on where nothing can be read. Raises
    gdb.error and OverflowError."""
    found = b""
    while len(found) < longest:
        at = address + len(found)
        try:
            if not may_read(at):
                raise gdb.MemoryError("not for the program")
            piece = gdb.selected_inferior().read_memory(at, min(longest - len(found), 4096 - at % 4096))
        except gdb.error:
            if not found:
                raise
            return found, True
        before, end, _ = bytes(piece).partition(b"\0")
        found += before
        if end:
            break
    return found, False


# -- the way ----------------------------------------------------------------------------------------------------------


def main() -> None:
    """Do the job; what goes wrong is told too."""
    job = json.loads(os.environ["USDTBUILD_GDB_JOB"])
    link = Link(job)
    try:
        last = _work(job, link)
    except gdb.error as error:
        last = ("error", str(error))
    except Exception:
        last = ("error", traceback.format_exc())
    link.over.set()
    link.tell(*last)


def _work(job: dict[str, Any], link: Link) -> tuple[str, ...]:
    """Trace until the process ends, or somebody asks for the end; return how it was."""
    settings = ("confirm off", "pagination off", "breakpoint pending on", "print thread-events off")
    for setting in (*settings, "stop-on-solib-events 1", "detach-on-fork on"):
        gdb.execute("set " + setting)
    gdb.execute("handle all nostop noprint pass", to_string=True)
    for name in _SIGNALS:
        gdb.execute(f"handle {name} stop print pass", to_string=True)
    stops: list[Any] = []
    read: list[Any] = []
    gdb.events.stop.connect(stops.append)
    gdb.events.new_objfile.connect(read.append)
    gdb.execute(f"attach {link.pid}", to_string=True)
    gdb.execute("catch exec", to_string=True)
    known = gdb.breakpoints()
    gdb.execute("catch fork", to_string=True)
    gdb.execute("catch vfork", to_string=True)
    forks = [one for one in gdb.breakpoints() if one not in known]
    sites = Sites(link, job)
    gdb.events.cont.connect(sites.going)
    sites.take(link.ask("attached"))
    while True:
        stop: Any = stops[-1] if stops else None
        is_ours = _is_ours(link, stop)
        if link.asked.is_set() and link.on_the_way != "SIGSTOP":
            if not _holds_children(link.pid):
                if is_ours:
                    gdb.execute(f"handle {stop.stop_signal} nopass", to_string=True)
                gdb.execute("detach", to_string=True)
                return ("detached",)
            link.send("SIGSTOP")  # comes when it runs on
        stops.clear()
        read.clear()
        link.run("signal 0" if is_ours else "continue")
        if not gdb.selected_inferior().pid:
            return ("ended",)
        stop = stops[-1] if stops else None
        if isinstance(stop, gdb.SignalEvent):
            continue
        if isinstance(stop, gdb.BreakpointEvent) and stop.breakpoint in forks:
            for one in forks:
                one.delete()
            link.tell("forked")
        elif isinstance(stop, gdb.BreakpointEvent):  # no other one stops
            sites.forget()
            sites.take(link.ask("exec"))
        else:
            sites.take(link.ask("loaded" if read else "libraries"))


def _is_ours(link: Link, stop: Any) -> bool:
    """Whether a stop is by a signal of ours, which isn't for the program."""
    if not (isinstance(stop, gdb.SignalEvent) and stop.stop_signal in _SIGNALS):
        return False
    if int(gdb.parse_and_eval("$_siginfo._sifields._kill.si_pid")) != os.getpid():
        return False
    if stop.stop_signal == link.on_the_way:
        link.on_the_way = ""
    return True


def _holds_children(pid: int) -> bool:
    """Whether gdb holds a process besides the traced one: a child that has just been forked and has our breakpoints,
    which gdb takes out before it lets the child go, when its parent runs on."""
    held = re.compile(rf"^TracerPid:\t{os.getpid()}$", re.MULTILINE)
    for status in Path("/proc").glob("[0-9]*/status"):
        with contextlib.suppress(OSError):
            if status.parent.name != str(pid) and held.search(status.read_text(encoding="utf-8", errors="replace")):
                return True
    return False


main()
