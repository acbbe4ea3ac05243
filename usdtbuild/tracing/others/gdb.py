"""A trace by gdb: it holds the process, and a script in it tells of hits.

What the process has loaded is looked at from here while gdb lets it stand; gdb finds the probes by their names, which
makes the breakpoints and the semaphores its own. Children of the process aren't followed, which is said.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import select
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...errors import InputError
from ...inspection.process import check_numbers
from .. import hosts
from ..arguments import number
from ..errors import TracerError
from ..hosts import HOST
from ..loader import find_loader
from ..lookups import Lookups
from ..maps import Memory, areas
from ..model import COUNT, MISSING, PROBE, STRING, Cut, Event, Refusal, Stops, Totals, Unreadable, string
from ..numbering import Numbering
from ..running import checked, status_field
from ..spawn import Spawned
from ..tracees import not_allowed
from ..tracer import Tracer
from . import names

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from ..job import Job
    from ..model import Site, Target, Value

_SCRIPT = Path(__file__).with_name("gdb_script.py")
_PR_SET_PTRACER, _ANY = 0x59616D61, ctypes.c_ulong(-1)
_BATCH = 500  # events at once
_PATIENCE = 60.0  # seconds for gdb to begin


class Driven:
    """A gdb that runs our script, and what it tells."""

    def __init__(self, pid: int, wish: Job) -> None:
        theirs, self._tell = os.pipe()
        self._hear, other = os.pipe()
        job = {"pid": pid, "hear": theirs, "tell": other, "string_size": wish.string_size,
               "values": wish.what != COUNT}  # fmt: skip
        quiet = [word for setting in ("auto-load no", "debuginfod enabled off") for word in ("-iex", f"set {setting}")]
        self._said = tempfile.TemporaryFile(prefix="usdtbuild-")  # noqa: SIM115  (closed in `close`)
        self._rest, self._untold, self._telling = b"", bytearray(), False
        # Away from our terminal: Ctrl-C is for us, and for the program.
        self._process = subprocess.Popen(
            [shutil.which("gdb") or "gdb", "-nx", "-batch", "-readnever", *quiet, "-x", str(_SCRIPT)],
            stdin=subprocess.DEVNULL, stdout=self._said, stderr=subprocess.STDOUT, pass_fds=(theirs, other),
            start_new_session=True, env={**os.environ, "USDTBUILD_GDB_JOB": json.dumps(job)},
        )  # fmt: skip
        os.close(theirs)
        os.close(other)

    def messages(self, timeout: float) -> list[list[Any]]:
        """Return what it tells within `timeout` seconds, as soon as there is something. Raises TracerError."""
        if not select.select([self._hear], [], [], timeout)[0]:
            return []
        raw = os.read(self._hear, 1 << 16)
        if not raw:
            self._said.seek(0)
            said = self._said.read().decode("utf-8", "replace").strip()[-1000:]
            raise TracerError(f"gdb ended too early: {said or 'it said nothing'}")
        *lines, self._rest = (self._rest + raw).split(b"\n")
        return [json.loads(line) for line in lines]

    def tell(self, line: str) -> None:
        """Tell it something. It may have ended, which `messages` notices.

        A signal's handler may do that while another line is on its way, which then goes first.
        """
        self._untold += (line + "\n").encode("ascii", "backslashreplace")
        if self._telling:
            return
        while self._untold:
            self._telling = True
            try:
                del self._untold[: os.write(self._tell, bytes(self._untold))]
            except OSError:
                self._untold.clear()
            self._telling = False

    def close(self) -> None:
        """Let it take its breakpoints out, if it hasn't yet, and end."""
        for descriptor in (self._tell, self._hear):
            os.close(descriptor)
        self._process.wait()
        self._said.close()


_PYTHON_OF_GDB = "python import sys; assert sys.version_info >= (3, 6)"


def why_not(_: Job) -> str:
    """Return why gdb can't be used here, '' if it can."""
    gdb = shutil.which("gdb")
    if gdb is None:
        return "gdb is not installed"
    asked = [gdb, "-nx", "-batch", "-ex", _PYTHON_OF_GDB, "-ex", "python print('yes')"]
    said = subprocess.run(asked, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)
    return "" if "yes" in said.stdout else f"{gdb} was built without Python 3"


class Gdb(Tracer):
    """A trace by gdb."""

    def __init__(self, wish: Job, tell: Callable[[str], None] = lambda _: None) -> None:
        super().__init__(wish, tell)
        self.engines = ("gdb",)
        self._numbers, self._counts = Numbering(wish.wanted.shown_as), dict[int, int]()
        self._lookups = Lookups(wish)
        self._modules: dict[tuple[str, int], int] = {}  # -> the address of a site in it
        self._sites: dict[int, tuple[Target, Site]] = {}
        self._before: dict[int, bytes] = {}  # what stands at the sites
        self._events: list[Event] = []
        self._gdb: Driven | None = None
        self._begun = self._over = self._asked = False

    # -- gdb -------------------------------------------------------------------------------------------------------

    def start(self, stdin: Any = None, stdout: Any = None, stderr: Any = None) -> None:
        """Start gdb and let it hold the process; wait until its probes are watched. Raises UsdtError."""
        check_numbers()
        wish, child = self.wish, None
        if wish.argv:
            streams = (stdin, stdout, stderr)
            child = Spawned(wish.argv, wish.cwd, wish.env, before=_let_anybody_trace, streams=streams)
        self.pid = child.pid if child is not None else wish.pids[0]
        if child is None:
            checked(self.pid)
        # With capabilities alone gdb attaches, can't use the process's memory, and waits for ever.
        if child is None and os.geteuid() and status_field(self.pid, "Uid").split()[:1] != [str(os.geteuid())]:
            raise TracerError(f"process {self.pid} belongs to another user; gdb traces it as that user or as root only")
        self._gdb = Driven(self.pid, wish)
        self._until("attached")
        if child is not None:
            child.go()
            self._until("exec")
            child.check()
        while not self._begun and not self._over:
            self._wait(_PATIENCE)
        self.started = time.monotonic_ns()

    def _until(self, word: str) -> None:
        while not self._over and self._wait(_PATIENCE) != word:
            pass

    def _wait(self, timeout: float) -> str:
        """Take what gdb tells within `timeout` seconds; return the last word, '' if it was none. Raises TracerError."""
        assert self._gdb is not None
        word = ""
        for message in self._gdb.messages(timeout):
            word = self._take(message) or word
        return word

    def _take(self, message: Sequence[Any]) -> str:
        word = message[0]
        if not isinstance(word, str):
            self._hit(*message)
            return ""
        if word == "error":
            if "ptrace" in message[1]:
                raise not_allowed(self.pid, PermissionError(1, "Operation not permitted"))
            raise TracerError(f"gdb: {message[1].strip().rstrip('.')}")
        if word in {"ended", "detached"}:
            self._ended(word)
        elif word == "going":
            self._begun = self.looked_up
        elif word == "forked":
            if self.wish.children:
                self.news.append(f"process {self.pid} has started another one: gdb traces none of these, now or later;"
                                 " without --engine gdb they are traced")  # fmt: skip
        else:
            if word == "exec":
                self._modules, self._sites, self._before = {}, {}, {}
            assert self._gdb is not None
            self._gdb.tell(json.dumps(self._loaded(word)))
        return word

    # -- what there is to watch ------------------------------------------------------------------------------------

    def _loaded(self, word: str) -> dict[str, Any]:
        """Look at what the process, which stands, has loaded; return what gdb has to watch now."""
        answer: dict[str, Any] = {"names": [], "sites": {}}
        if word == "attached" and self.wish.argv:
            return answer  # that is still us
        try:
            loader = find_loader(self.pid)
            with contextlib.closing(Memory(self.pid)) as memory:
                # glibc says so from 2.43 on only after gdb has stopped for the last time.
                is_whole = word == "loaded" or (word != "exec" and loader.consistent(memory))
                if loader.dynamic and not is_whole:
                    return answer
            mapped = areas(self.pid)
            there = {(key, at) for key, at in self._modules.items()
                     if any(area.start <= at < area.end and area.name == key[0] for area in mapped)}  # fmt: skip
            self._modules = dict(there)
            found = self._lookups.look(self.pid, frozenset(self._modules))
        except OSError as error:
            self._refuse([Refusal(f"process {self.pid}", f"can't be looked at: {error.strerror}")])
            return answer
        except InputError as error:
            raise TracerError(str(error)) from None
        self.looked_up = True
        self._refuse(found.refusals)
        targets, new = self._numbers.take([one for one in found.targets if one.kind == PROBE])
        self.targets += new
        for target in targets:
            key = (target.module.path, target.module.load_bias)
            self._modules.setdefault(key, target.sites[0].address)
            title = f"{target.provider}:{target.name}"
            if names.why_not(title):
                self._refuse([Refusal(target.title, names.why_not(title))])
                continue
            answer["names"].append(title)
            for site in target.sites:
                self._sites[site.address] = (target, site)
                answer["sites"][str(site.address)] = [argument.kind == STRING for argument in target.arguments]
        self._remember()
        return answer

    def _remember(self) -> None:
        """Keep what stands at the sites, while gdb holds the process, on machines whose traps we know."""
        if not hosts.why_not():
            size = len(HOST.traps.instruction)
            with contextlib.suppress(OSError), contextlib.closing(Memory(self.pid)) as memory:
                for address in self._sites.keys() - self._before.keys():
                    if not HOST.traps.stands(before := memory.read(address, size)):
                        self._before[address] = before

    def _put_back(self) -> None:
        """Take out what gdb has left: some versions detach from a program of many threads and leave breakpoints."""
        with contextlib.suppress(OSError), contextlib.closing(Memory(self.pid)) as memory:
            for address, before in self._before.items():
                if HOST.traps.stands(memory.read(address, len(before))):
                    memory.write(address, before)

    def _refuse(self, refusals: Sequence[Refusal]) -> None:
        self.refusals += [one for one in refusals if one not in self.refusals]

    def _hit(self, when: int, tid: int, address: int, raw: Sequence[Any]) -> None:
        found = self._sites.get(address)
        if found is None:
            return
        target, site = found
        self._counts[target.number] = self._counts.get(target.number, 0) + 1
        self.stops = Stops(sum(self._counts.values()), 0, 0)
        if self.wish.what == COUNT:
            return
        values: list[Value] = []
        for argument, operand, bits in zip(target.arguments, site.operands, raw):
            if bits is None:
                values.append(MISSING)
            elif isinstance(bits, list):
                values.append(Unreadable(bits[0]) if isinstance(bits[0], int) else Cut(bits[0].encode("latin-1")))
            elif argument.kind == STRING:
                values.append(string(bits.encode("latin-1"), self.wish.string_size) if isinstance(bits, str) else None)
            else:
                values.append(number(argument, operand, bits))
        self._events.append(Event(when, self.pid, tid, target.number, tuple(values)))

    # -- the way ---------------------------------------------------------------------------------------------------

    def batches(self, timeout: float = 0.1) -> Iterator[Sequence[Event]]:
        """Yield events, as `Tracer.batches` says."""
        until = time.monotonic() + timeout
        while not self._over:
            self._wait(max(0.0, until - time.monotonic()))
            if time.monotonic() >= until or len(self._events) >= _BATCH:
                batch, self._events = self._events, []
                yield batch
                until = time.monotonic() + timeout
        batch, self._events = self._events, []
        yield batch
        self.finished = time.monotonic_ns()

    def _ended(self, word: str) -> None:
        self._over = True
        if word == "ended" and self.wish.argv:
            status = os.waitpid(self.pid, 0)[1]
            self.exit_code = -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)

    def stop(self) -> None:
        """Ask for the end: gdb takes its breakpoints out, and the program goes on without us."""
        if not self._asked and self._gdb is not None:
            self._asked = True
            self._gdb.tell("stop")

    def kill(self) -> None:
        """End the program that was started, with SIGKILL."""
        if self.wish.argv and self.pid and not self._over:
            os.kill(self.pid, signal.SIGKILL)

    @property
    def totals(self) -> Totals:
        """Hits so far, by target; none are ever lost."""
        return Totals(dict(self._counts), {})

    def close(self) -> None:
        """Let go; gdb takes its breakpoints out and ends, if it hasn't yet."""
        if self._gdb is not None:
            self._gdb.close()
            self._gdb = None
            self._put_back()


def _let_anybody_trace() -> None:
    """Let gdb, which isn't its parent, attach to the process that this runs in, where Yama would forbid it."""
    ctypes.CDLL(None).prctl(_PR_SET_PTRACER, _ANY, 0, 0, 0)
