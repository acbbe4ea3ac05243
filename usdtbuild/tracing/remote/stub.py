"""What a gdb stub can be asked: memory, breakpoints, registers, to step and to go on, and why the program stopped."""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING, NamedTuple

from ..errors import TracerError
from . import registers as described
from .registers import Registers

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ...machines.facts import Stopped
    from .packets import Link

_PAGE = 4096  # no smaller pages are there, so that memory is readable or not as far as the next multiple
INTERRUPTED, TRAP = 2, 5  # signal numbers of the protocol are gdb's own: GDB_SIGNAL_INT, GDB_SIGNAL_TRAP
_FEATURES = "qSupported:multiprocess+;fork-events+;vfork-events+;swbreak+;xmlRegisters=i386"


class Stop(NamedTuple):
    """Why the program has stopped: `exited` is its exit code (negative for a signal), or it stands with `signal`.

    `thread` is what the stub calls the thread, '' where it doesn't say; `forked` that of a new process, which `shares`
    the memory of the old one (vfork) until that is told by `unshared`. `event`: it stands for such news only.
    """

    signal: int = 0
    thread: str = ""
    exited: int | None = None
    forked: str = ""
    shares: bool = False
    unshared: bool = False
    event: bool = False

    @property
    def trapped(self) -> bool:
        """Whether it stands for a trap, which a breakpoint, a step or the program itself may have set."""
        return self.signal == TRAP and not self.event


class Stub:
    """A stub and the program that it holds. Its methods raise TracerError when the connection is gone."""

    def __init__(self, link: Link) -> None:
        self.link = link
        self.features = link.ask(_FEATURES).decode("ascii", "replace").split(";")
        link.stop_acknowledging()
        self.first = self.stopped(link.ask("?"))
        self._largest = self._packet_size() // 2 - 32
        self._continues = b"c" in link.ask("vCont?").split(b";")
        self.word, self._little = 8, True
        self._registers: dict[str, described.Register] = {}
        self._pc = "pc"
        self._sets_one = True

    def _packet_size(self) -> int:
        for feature in self.features:
            if feature.startswith("PacketSize="):
                return max(512, int(feature[11:], 16))
        return 512

    def learn(self, stopped: Stopped, *, word: int, little: bool) -> None:
        """Learn what machine the program is of: `word` is the size of its addresses in bytes."""
        self.word, self._little, self._pc = word, little, stopped.pc
        if "qXfer:features:read+" in self.features:
            self._registers = described.described(lambda annex: self.object("features", annex).decode("utf-8"))
        if stopped.pc not in self._registers:
            self._registers = described.usual(stopped, len(self._ask_registers("")))

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
        return int.from_bytes(raw, "little" if self._little else "big") if len(raw) == size else None

    def text(self, address: int, longest: int) -> bytes | None:
        """Return the string at an address, at most `longest` bytes; None if nothing is there."""
        found = self.read(address, longest)
        return found.partition(b"\0")[0] if found else None

    def write_number(self, address: int, value: int, size: int) -> bool:
        """Write a number; return whether it could be."""
        raw = value.to_bytes(size, "little" if self._little else "big")
        return self.link.ask(f"M{address:x},{size:x}:{raw.hex()}") == b"OK"

    def object(self, kind: str, annex: str = "") -> bytes:
        """Return an object of the stub (qXfer): `features`, `auxv`, `exec-file`; none where it has none."""
        found = b""
        while True:
            answer = self.link.ask(f"qXfer:{kind}:read:{annex}:{len(found):x},{self._largest:x}")
            if answer[:1] not in (b"m", b"l"):
                return b""
            found += answer[1:]
            if answer[:1] == b"l" or len(answer) == 1:
                return found

    # -- threads -----------------------------------------------------------------------------------------------------

    def registers(self, thread: str) -> Registers:
        """Return a stopped thread's registers."""

        def more(number: int) -> bytes | None:
            return _bytes(self.link.ask(f"p{number:x}"))

        return Registers(self._registers, self._ask_registers(thread), little=self._little, more=more)

    def _ask_registers(self, thread: str) -> bytes:
        if thread:
            self.link.ask(f"Hg{thread}")
        raw = _bytes(self.link.ask("g").replace(b"x", b"0"))  # x: a digit that the stub doesn't know
        if raw is None:
            raise TracerError(f"{self.link.name} doesn't give the registers of thread {thread or '?'}")
        return raw

    def set_registers(self, thread: str, values: Mapping[str, int]) -> None:
        """Set registers of a stopped thread, by name. Raises TracerError where that can't be."""
        raw = bytearray(self._ask_registers(thread))
        order = "little" if self._little else "big"
        for name, value in values.items():
            register = self._registers[name]
            content = value.to_bytes(register.size, order)  # type: ignore[arg-type]
            raw[register.offset : register.offset + register.size] = content
            if self._sets_one:
                answer = self.link.ask(f"P{register.number:x}={content.hex()}")
                self._sets_one = answer != b""  # which is how it says that it doesn't know the packet
        if not self._sets_one and self.link.ask(b"G" + raw.hex().encode("ascii")) != b"OK":
            raise TracerError(f"{self.link.name} doesn't set registers of thread {thread or '?'}")

    def counter(self, registers: Registers) -> int:
        """Return the address of the instruction that is next."""
        return (registers.get(self._pc) or 0) & ((1 << 8 * self.word) - 1)

    def turn_to(self, thread: str) -> None:
        """Mean the process of a thread with what is asked from now on, until a thread's registers are asked for."""
        self.link.ask(f"Hg{thread}")

    def threads(self) -> list[str]:
        """Return what the stub calls the threads of the programs that it holds; none where it doesn't say."""
        found, answer = [], self.link.ask("qfThreadInfo")
        while answer[:1] == b"m":
            found += answer[1:].decode("ascii", "replace").split(",")
            answer = self.link.ask("qsThreadInfo")
        return found

    def insert(self, address: int, kind: int) -> bool:
        """Set a breakpoint; return whether it could be."""
        return self.link.ask(f"Z0,{address:x},{kind:x}") == b"OK"

    def remove(self, address: int, kind: int) -> None:
        """Take a breakpoint out."""
        self.link.ask(f"z0,{address:x},{kind:x}")

    def start(self, signal: int = 0) -> None:
        """Let the program go on, with a signal; its next stop is what `wait` returns."""
        if self._continues:
            self.link.send(f"vCont;C{signal:02x}" if signal else "vCont;c")
        else:
            self.link.send(f"C{signal:02x}" if signal else "c")

    def step(self, thread: str, patience: float = 3600.0) -> Stop | None:
        """Let one thread execute one instruction, while the others stand; returns how that ended.

        None: it hasn't within `patience` seconds, as one may that waits for another thread.
        """
        if self._continues and thread:
            self.link.send(f"vCont;s:{thread}")
        else:
            if thread:
                self.link.ask(f"Hc{thread}")
            self.link.send("s")
        deadline = time.monotonic() + patience
        while True:
            stop = self.wait(max(0.0, deadline - time.monotonic()))
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
        if kind in {"W", "X"}:
            return Stop(exited=number if kind == "W" else -number)
        fields = dict(part.partition(":")[::2] for part in text[found.end() :].split(";"))
        forked = fields.get("fork") or fields.get("vfork") or ""
        event = bool({"fork", "vfork", "vforkdone", "library", "exec", "create"} & set(fields))
        return Stop(number, fields.get("thread", ""), None, forked, "vfork" in fields, "vforkdone" in fields, event)

    def let_go(self, thread: str) -> None:
        """Detach from the process of a thread, which goes on without the stub."""
        process = thread.partition(".")[0].removeprefix("p") if thread.startswith("p") else ""
        self.link.ask(f"D;{process}" if process else "D")


def _bytes(answer: bytes) -> bytes | None:
    """Return the bytes that an answer spells in hexadecimal; None for an error (E..) and for nothing."""
    try:
        return bytes.fromhex(answer.decode("ascii")) if len(answer) % 2 == 0 and answer else None
    except ValueError:
        return None
