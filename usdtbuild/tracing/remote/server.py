"""What a gdb server can be asked: memory, breakpoints, registers, to step and to go on, and why the program stopped."""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ...limits import PACKET_SENT, SERVER_OBJECT, THREADS
from ...machines.facts import Stopped
from ..errors import TracerError
from ..model import string
from . import registers as described
from .packets import Link
from .registers import Registers

_PATIENCE = 30.0  # seconds for an object of the server's
_PAGE = 4096  # no smaller pages are there, so that memory is readable or not as far as the next multiple
# Signal numbers of the protocol are gdb's own: GDB_SIGNAL_INT, GDB_SIGNAL_TRAP, GDB_SIGNAL_STOP, and the last one.
INTERRUPTED, TRAP, _STOPPED, _LAST_SIGNAL = 2, 5, 17, 0x96
_THREAD = re.compile("(?:p(?:-1|[0-9a-fA-F]{1,8})(?:[.](?:-1|[0-9a-fA-F]{1,16}))?|-1|[0-9a-fA-F]{1,16})?")
_FEATURES = "qSupported:multiprocess+;fork-events+;vfork-events+;exec-events+;swbreak+;xmlRegisters=i386"
# What a stop is told with that is no signal's.
_EVENTS = {"fork", "vfork", "vforkdone", "library", "exec", "create"}


class Stop(NamedTuple):
    """Why a program has stopped: `exited` is its exit code (negative for a signal), or it stands with `signal`.

    `thread` is what the server calls the thread, '' where it doesn't say; of a process that has exited, only that is
    said. `forked` is the thread of a new process, which `shares` the memory of the old one (vfork) until it ends or
    becomes another program; `became` that the process has done so. `event`: it stands for such news only.
    """

    signal: int = 0
    thread: str = ""
    exited: int | None = None
    forked: str = ""
    shares: bool = False
    became: bool = False
    event: bool = False

    @property
    def process(self) -> str:
        """What the server calls the process, '' where it doesn't say."""
        return process_of(self.thread)

    @property
    def trapped(self) -> bool:
        """Whether it stands for a trap, which a breakpoint, a step or the program itself may have set."""
        return self.signal == TRAP and not self.event


class Machine(NamedTuple):
    """What machine a process is of: the size of its addresses in bytes, its byte order, and its registers by name."""

    word: int = 8
    little: bool = True
    registers: Mapping[str, described.Register] = {}
    pc: str = "pc"


def _packet_size(features: list[str]) -> int:
    for feature in features:
        if found := re.fullmatch("PacketSize=([0-9a-fA-F]{1,8})", feature):
            return min(max(512, int(found[1], 16)), PACKET_SENT)
    return 512


class Server:
    """A server and the programs that it holds. Its methods raise TracerError when the connection is gone."""

    def __init__(self, link: Link) -> None:
        self.link = link
        self.features = link.ask(_FEATURES).decode("ascii", "replace").split(";")
        link.stop_acknowledging()
        self.first = self.stopped(link.ask("?"))
        self._largest = _packet_size(self.features) // 2 - 32
        self._continues = b"c" in link.ask("vCont?").split(b";")
        self.machine = Machine()  # of the process that is meant
        self._sets_one = True
        self._meant = ""  # the thread that the server takes what is asked to be about; '' where it may be another
        # What is still to be delivered to a process that is let go. Without, gdbserver 13 delivers the SIGSTOP that it
        # sends itself to those that still run when their parent has ended.
        if "QProgramSignals+" in self.features:
            wanted = set(range(_LAST_SIGNAL)) - {INTERRUPTED, TRAP, _STOPPED}
            link.ask("QProgramSignals:" + ";".join(f"{signal:x}" for signal in sorted(wanted)))

    def learn(self, stopped: Stopped, *, word: int, little: bool) -> Machine:
        """Learn what machine the process that is meant is of: `word` is the size of its addresses in bytes."""
        registers: dict[str, described.Register] = {}
        if "qXfer:features:read+" in self.features:
            registers = described.described(lambda annex: self.object("features", annex).decode("utf-8"))
        if stopped.pc not in registers:
            registers = described.usual(stopped, len(self._ask_registers("")))
        self.machine = Machine(word, little, registers, stopped.pc)
        return self.machine

    @property
    def word(self) -> int:
        """The size of an address in bytes."""
        return self.machine.word

    # -- memory ------------------------------------------------------------------------------------------------------

    def read(self, address: int, size: int) -> bytes:
        """Return memory; as much as can be read of it, page by page."""
        address &= (1 << 8 * self.word) - 1
        found = b""
        while len(found) < size:
            at = address + len(found)
            piece = min(size - len(found), _PAGE - at % _PAGE, self._largest)
            answer = _bytes(self.link.ask(f"m{at:x},{piece:x}"))
            found += answer or b""
            if answer is None or len(answer) < piece:
                break
        return found

    def number(self, address: int, size: int = 0) -> int | None:
        """Return a number in the program's byte order, of an address' size where none is given; None: unreadable."""
        size = size or self.word
        raw = self.read(address, size)
        return int.from_bytes(raw, "little" if self.machine.little else "big") if len(raw) == size else None

    def text(self, address: int, longest: int) -> bytes | None:
        """Return the string at an address, at most `longest` bytes, Cut where memory ends; None if nothing is there."""
        found = self.read(address, longest)
        text, end, _ = found.partition(b"\0")
        return string(text, longest, is_cut=not end) if found else None

    def write_number(self, address: int, value: int, size: int) -> bool:
        """Write a number; return whether it could be."""
        raw = value.to_bytes(size, "little" if self.machine.little else "big")
        return self.link.ask(f"M{address:x},{size:x}:{raw.hex()}") == b"OK"

    def object(self, kind: str, annex: str = "") -> bytes:
        """Return an object of the server (qXfer): `features`, `auxv`, `exec-file`; none where it has none."""
        found, deadline = b"", time.monotonic() + _PATIENCE
        while True:
            answer = self.link.ask(f"qXfer:{kind}:read:{annex}:{len(found):x},{self._largest:x}")
            if answer[:1] not in (b"m", b"l"):
                return b""
            found += answer[1:]
            if answer[:1] == b"l" or len(answer) == 1:
                return found
            if len(found) > SERVER_OBJECT or time.monotonic() > deadline:
                raise TracerError(f"{self.link.name} doesn't come to an end with its {kind} {annex}")

    # -- threads -----------------------------------------------------------------------------------------------------

    def registers(self, thread: str) -> Registers:
        """Return a stopped thread's registers."""

        def more(number: int) -> bytes | None:
            return _bytes(self.link.ask(f"p{number:x}"))

        return Registers(self.machine.registers, self._ask_registers(thread), little=self.machine.little, more=more)

    def _ask_registers(self, thread: str) -> bytes:
        self._mean(thread)
        raw = _bytes(self.link.ask("g").replace(b"x", b"0"))  # x: a digit that the server doesn't know
        if raw is None:
            raise TracerError(f"{self.link.name} doesn't give the registers of thread {thread or '?'}")
        return raw

    def set_registers(self, thread: str, values: Mapping[str, int]) -> None:
        """Set registers of a stopped thread, by name. Raises TracerError where that can't be."""
        raw = bytearray(self._ask_registers(thread))
        order = "little" if self.machine.little else "big"
        for name, value in values.items():
            register = self.machine.registers[name]
            content = value.to_bytes(register.size, order)  # type: ignore[arg-type]
            raw[register.offset : register.offset + register.size] = content
            if self._sets_one:
                answer = self.link.ask(f"P{register.number:x}={content.hex()}")
                self._sets_one = answer != b""  # which is how it says that it doesn't know the packet
        if not self._sets_one and self.link.ask(b"G" + raw.hex().encode("ascii")) != b"OK":
            raise TracerError(f"{self.link.name} doesn't set registers of thread {thread or '?'}")

    def counter(self, registers: Registers) -> int:
        """Return the address of the instruction that is next."""
        return (registers.get(self.machine.pc) or 0) & ((1 << 8 * self.word) - 1)

    def turn_to(self, thread: str, machine: Machine) -> None:
        """Mean the process of a thread, which is of a machine, with what is asked from now on."""
        self.machine = machine
        if not self._meant or process_of(self._meant) != process_of(thread):
            self._mean(thread)

    def _mean(self, thread: str) -> None:
        if thread and thread != self._meant:
            self._meant = thread if self.link.ask(f"Hg{thread}") == b"OK" else ""

    def threads(self) -> list[str]:
        """Return what the server calls the threads of the programs that it holds; none where it doesn't say."""
        found: list[str] = []
        answer = self.link.ask("qfThreadInfo")
        while answer[:1] == b"m":
            found += map(self._thread, answer[1:].decode("ascii", "replace").split(","))
            if len(found) > THREADS:
                raise TracerError(f"{self.link.name} names more than {THREADS} threads")
            answer = self.link.ask("qsThreadInfo")
        return found

    def _thread(self, text: str) -> str:
        """Return what the server calls a thread, if it can be that: it is sent back, and numbers are taken from it."""
        if _THREAD.fullmatch(text) is None:
            raise TracerError(f"{self.link.name} says {text[:40]!r} where it should name a thread")
        return text

    def insert(self, address: int, kind: int) -> bool:
        """Set a breakpoint; return whether it could be."""
        return self.link.ask(f"Z0,{address:x},{kind:x}") == b"OK"

    def remove(self, address: int, kind: int) -> None:
        """Take a breakpoint out."""
        self.link.ask(f"z0,{address:x},{kind:x}")

    def start(self, owed: Sequence[tuple[str, int]] = (), only: Sequence[str] = ()) -> list[tuple[str, int]]:
        """Let everything go on; the next stop is what `wait` returns.

        `owed` are threads and the signals that they get as they go on; what has to wait for the next time is returned.
        `only` are the threads that go on, where others must stand ("p1.-1" stands for all of a process).
        """
        self._meant = ""
        now, later = _first_of_each(owed, most=len(owed) if self._continues else 1)
        if self._continues:
            # The first action that fits a thread is what it gets; one that names no thread fits all.
            actions = [f"C{signal:02x}:{thread}" if thread else f"C{signal:02x}" for thread, signal in now.items()]
            actions += [f"c:{thread}" for thread in only] or ([] if "" in now else ["c"])
            self.link.send(";".join(["vCont", *actions]))
        else:
            for thread in filter(None, now):
                self.link.ask(f"Hc{thread}")
            self.link.send("".join(f"C{signal:02x}" for signal in now.values()) or "c")
        return later

    def step(self, thread: str, patience: float = 3600.0, how: str = "s") -> Stop | None:
        """Let one thread execute one instruction (`how`: "c" for as many as it does), while the others stand.

        Returns how that ended. None: it hasn't within `patience` seconds, as one may that waits for another thread.
        """
        self._meant = ""
        if self._continues and thread:
            self.link.send(f"vCont;{how}:{thread}")
        else:
            if thread:
                self.link.ask(f"Hc{thread}")
            self.link.send(how)
        deadline = time.monotonic() + patience
        while True:
            self.link.check_time()
            stop = self.wait(min(1.0, max(0.0, deadline - time.monotonic())))
            if stop is not None or time.monotonic() >= deadline:
                return stop

    def wait(self, timeout: float) -> Stop | None:
        """Return the next stop; None if there is none within `timeout` seconds."""
        answer = self.link.receive(timeout)
        if answer is None or answer[:1] == b"O":  # what a program on bare metal prints
            return None
        return self.stopped(answer)

    def stopped(self, answer: bytes) -> Stop:
        """Return what a stop reply says ("Stop Reply Packets")."""
        text = answer.decode("ascii", "replace")
        found = re.match("([STWX])([0-9a-fA-F]{1,2})", text)
        if found is None:
            raise TracerError(f"{self.link.name} says {text[:40]!r} where it should say why the program stopped")
        kind, number = found[1], int(found[2], 16)
        fields = dict(part.partition(":")[::2] for part in text[found.end() :].split(";"))
        if kind in {"W", "X"}:
            process = fields.get("process", "")
            self._thread(process)
            return Stop(thread=f"p{process}." if process else "", exited=number if kind == "W" else -number)
        forked = fields.get("fork") or fields.get("vfork") or ""
        event = bool(_EVENTS & set(fields))
        return Stop(
            number,
            self._thread(fields.get("thread", "")),
            None,
            self._thread(forked),
            "vfork" in fields,
            "exec" in fields,
            event,
        )

    def let_go(self, thread: str) -> None:
        """Detach from the process of a thread, which goes on without the server."""
        process, self._meant = process_of(thread), ""
        self.link.ask(f"D;{process}" if process else "D")


def _first_of_each(owed: Sequence[tuple[str, int]], most: int) -> tuple[dict[str, int], list[tuple[str, int]]]:
    now: dict[str, int] = {}
    later = []
    for thread, signal in owed:
        if thread in now or len(now) == most:
            later.append((thread, signal))
        else:
            now[thread] = signal
    return now, later


def process_of(thread: str) -> str:
    """Return what the server calls the process of a thread: 12 of `p12.1f`, '' where it holds one and doesn't say."""
    return thread[1:].partition(".")[0] if thread.startswith("p") else ""


def thread_number(thread: str) -> int:
    """Return the number of a thread: `1f` or `p12.1f`, in hexadecimal; 0 where it isn't said."""
    with contextlib.suppress(ValueError):
        return int(thread.rpartition(".")[2], 16)
    return 0


def _bytes(answer: bytes) -> bytes | None:
    """Return the bytes that an answer spells in hexadecimal; None for an error (E..) and for nothing."""
    try:
        return bytes.fromhex(answer.decode("ascii")) if len(answer) % 2 == 0 and answer else None
    except ValueError:
        return None
