"""What a hostile process, or a gdb server, can say while it is traced: rings, journals, maps, notes, answers.

Each input is taken, or refused in a word, within bounds (`held`), and what is taken keeps what the product relies on.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import mmap
import os
import random
import re
import struct
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from usdtbuild import apart
from usdtbuild.elf.image import Image
from usdtbuild.errors import UsdtError
from usdtbuild.inspection.process import load_biases, mapped_file, maps_lines
from usdtbuild.tracing import maps
from usdtbuild.tracing.errors import TracerError
from usdtbuild.tracing.job import Job
from usdtbuild.tracing.model import INTEGER, NAME, RECORD, STRING, Argument
from usdtbuild.tracing.patch import again, changes, journal, rings
from usdtbuild.tracing.patch.code import HEAD, HEADER, RING_HEADER, RINGS, TAIL
from usdtbuild.tracing.remote import packets
from usdtbuild.tracing.remote import session as remote
from usdtbuild.tracing.selection import Wanted, select

from . import mutations
from .conftest import HOST, pick
from .held import corpus, hold

BOUNDARIES = (0, 1, 7, 63, 64, 65, 1 << 12, 1 << 22, 1 << 31, 1 << 32, 1 << 62, 1 << 63, (1 << 64) - 1)


def number(source: random.Random) -> int:
    """Return a number that is likely to be next to a limit."""
    wild = source.choice(BOUNDARIES) + source.randrange(-2, 3) if source.random() < 0.7 else source.getrandbits(64)
    return wild & (1 << 64) - 1


def changed(name: str, change: Callable[[bytearray, random.Random], None]) -> Callable[[random.Random], bytes]:
    """Return what makes an input: one of the corpus, changed one to four times."""
    kept = list(corpus(name).values())

    def make(source: random.Random) -> bytes:
        content = bytearray(source.choice(kept))
        for _ in range(source.choice((1, 1, 2, 4))):
            change(content, source)
        return bytes(content)

    return make


# -- rings -------------------------------------------------------------------------------------------------------------

PID, TID, TICKS, LATE = 4321, 4322, 5, 12  # a target of which records may come late
STRINGS = 16
ARGUMENTS = (Argument("n", "int", 4, True, INTEGER), Argument("s", "char *", 8, False, STRING))
WRITE = struct.Struct("<BIQ")  # an input is such: when, where, what


def test_rings(cases: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program that writes into its rings while they are read."""
    monkeypatch.setattr(rings, "_DEAD", 0.0)

    def change(content: bytearray, source: random.Random) -> None:
        if len(content) >= WRITE.size and source.random() < 0.4:
            at = source.randrange(len(content) // WRITE.size) * WRITE.size
            if source.random() < 0.3:
                del content[at : at + WRITE.size]
                return
            when, where, _ = WRITE.unpack_from(content, at)
            WRITE.pack_into(content, at, when, where, number(source))
            return
        ring, slot = source.choice((0, 0, 1, 15)), source.choice((0, 0, 1, 2, 63, source.randrange(64)))
        inside = RING_HEADER + slot * SHAPE.slot + source.randrange(0, SHAPE.slot, 4)
        where = ring * SHAPE.stride + source.choice((HEAD, HEAD, TAIL, 8, inside, inside, inside, inside))
        content += WRITE.pack(source.randrange(TICKS), where, number(source))

    hold("rings", cases(300), changed("rings", change), read_rings)


SHAPE = rings.shape_for([2], [1], STRINGS, 8192)


def read_rings(content: bytes) -> None:
    memory = mmap.mmap(-1, SHAPE.stride * RINGS)
    reader = rings.Rings(memory, 0, SHAPE, lambda start, size: True)
    spec = rings.SiteSpec(9, ARGUMENTS, ((4, True, False), (8, False, False)), rings.string_places(ARGUMENTS, STRINGS))
    decoders = rings.Decoder(SHAPE, [spec]), rings.Decoder(SHAPE, [spec], {LATE})
    writes = [WRITE.unpack_from(content, at) for at in range(0, len(content) // WRITE.size * WRITE.size, WRITE.size)]
    taken: list[bytes] = []
    for tick in range(TICKS + 1):
        for ring in (0, 1, 15):
            for _ in range(3):
                produce(memory, ring * SHAPE.stride)
        for when, where, what in writes:
            if when == tick:
                struct.pack_into("<Q", memory, where % (len(memory) - 7), what)
        taken.clear()
        count = reader.collect(lambda piece: taken.append(bytes(piece)), final=tick == TICKS)
        assert count <= SHAPE.slots * RINGS * 5
        assert count * SHAPE.slot == sum(map(len, taken))
        for raw, decoder in itertools.product(taken, decoders):
            sound = decoder.checked(raw, {PID})
            assert {*decoder.count(sound)} <= {9, LATE}
            for event in decoder.events(sound, lambda ticks: ticks, 0, 1 << 60):
                assert event.pid == PID
                assert 0 <= event.tid <= 1 << 22
                assert 0 <= event.time <= 1 << 60
                if event.target == LATE:
                    assert decoder is decoders[1]
                    assert (event.values, len(event.frame)) == ((), 2 + (event.frame[2:] == (0,)))
                    continue
                assert event.target == 9
                text = event.values[1]
                assert isinstance(text, (int, type(None))) or len(text) <= STRINGS  # type: ignore[arg-type]
    reader.holds()
    assert reader.dropped >= 0
    reader.close()
    memory.close()


def produce(memory: mmap.mmap, start: int) -> None:
    """Write a good record, as a trampoline does."""
    (head,), (tail,) = (struct.unpack_from("<Q", memory, start + at) for at in (HEAD, TAIL))
    if head - tail >= SHAPE.slots or head >= 1 << 63:
        return
    at = start + RING_HEADER + (head & (SHAPE.slots - 1)) * SHAPE.slot
    struct.pack_into("<Q", memory, start + HEAD, head + 1)
    record = struct.pack("<QQIIIIqQ", 0, 1000 + head, TID, 0, PID, 0, 7, 0x1000) + struct.pack("<q", 5) + b"hello"
    memory[at : at + len(record)] = record
    assert len(record) > HEADER
    struct.pack_into("<Q", memory, at, head + 1)


# -- journals ----------------------------------------------------------------------------------------------------------

JOURNAL, SITES, PAGES = 0x7F00_0000_0000, 0x40_1000, 0x2000


class FakeMemory:
    """Memory of a process: its journals, and a page of code; all else can't be read, and part of it not written."""

    def __init__(self, content: bytes) -> None:
        self.parts = {JOURNAL: bytearray(content), SITES: bytearray(b"\x90" * PAGES)}
        self.written = 0

    def _find(self, address: int) -> tuple[bytearray, int] | None:
        for start, part in self.parts.items():
            if start <= address < start + len(part):
                return part, address - start
        return None

    def read(self, address: int, size: int) -> bytes:
        found = self._find(address)
        return bytes(found[0][found[1] : found[1] + size]) if found else b""

    def word(self, address: int, size: int = 8) -> int | None:
        data = self.read(address, size)
        return int.from_bytes(data, "little") if len(data) == size else None

    def write(self, address: int, data: bytes) -> None:
        found = self._find(address)
        if found is None or found[1] + len(data) > len(found[0]) or SITES + 0x1000 <= address < SITES + PAGES:
            raise OSError(5, os.strerror(5))
        found[0][found[1] : found[1] + len(data)] = data
        self.written += 1

    def close(self) -> None:
        pass


def test_journals(cases: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A journal that no tracer has left."""

    def change(content: bytearray, source: random.Random) -> None:
        at = source.choice((source.randrange(0, 64, 4), source.randrange(0, max(len(content) - 8, 1), 4)))
        how = source.random()
        if how < 0.6:
            value = source.choice((number(source), SITES + source.randrange(PAGES + 8), JOURNAL + source.randrange(99)))
            struct.pack_into("<Q", content, min(at, len(content) - 8), value)
        elif how < 0.9:
            content[at % len(content)] = source.randrange(256)
        elif len(content) > 80:
            del content[max(64, source.randrange(len(content))) :]

    def use(content: bytes) -> None:
        memory: Any = FakeMemory(content)
        size = max(len(content), 1) + 4095 & -4096
        names = f"/memfd:{NAME} (deleted)"
        areas = [maps.Area(SITES, SITES + PAGES, "r-xp", "/x", 0, 1)]
        areas += [maps.Area(JOURNAL + size * i, JOURNAL + size * (i + 1), "rw-s", names, 0, 1) for i in range(2)]
        monkeypatch.setattr(changes, "areas", lambda _: areas)
        tracees: Any = SimpleNamespace(standing=lambda _: contextlib.nullcontext([]))
        for found in journal.find(areas, memory):
            assert len(found.entries) <= len(content)
        changes.earlier_mirrors(areas, memory)
        again.candidates(areas, memory, [], 0)
        with contextlib.suppress(TracerError):
            changes.clean_up(tracees, 1, memory)

    hold("journal", cases(300), changed("journal", change), use)


# -- maps --------------------------------------------------------------------------------------------------------------

NAMES = (
    b"", b"[heap]", b"[stack]", b"[vdso]", b"/usr/bin/x", b"/usr/bin/x (deleted)", b"/memfd:usdtbuild-trace (deleted)",
    b"/tmp/a\\012b", b"/tmp/a b", b"/tmp/ (deleted)", b"/tmp/\x0b\x0c\x1c\x85", b"/tmp/\xe2\x80\xa8", b"/tmp/\xff\xfe",
    b"/tmp/\x1b]0;x\x07", b"/" + b"x" * 4000, b"/tmp/7f00-7f01 r-xp 0 08:01 1 /bin/sh", b"//deleted",
)  # fmt: skip
FLAGS = (b"r-xp", b"rw-p", b"r--p", b"rw-s", b"---p", b"r-xs", b"rwxp")


def mapped_at_random(source: random.Random) -> bytes:
    """Return a /proc/PID/maps as the kernel could write it: areas in order, names as the process likes."""
    limit = source.choice((1 << 47, 1 << 48, 1 << 57, 1 << 32))
    places = sorted({source.randrange(16, limit >> 12) << 12 for _ in range(source.choice((2, 4, 20, 200)))})
    if source.random() < 0.3:
        places = sorted({*places, 0, 1 << 12, 1 << 16, limit - (1 << 12), limit})
    lines = []
    for start, end in pairwise(places):
        if source.random() < 0.7:
            name, inode = source.choice(NAMES), source.choice((0, 1, 99, 1 << 63))
            offset = source.choice((0, 0, 0x1000, 1 << 40, (1 << 64) - 4096))
            device = source.choice((b"00:00", b"fe:01", b"103:05", b"fffff:fffff"))
            lines.append(b"%x-%x %s %08x %s %d    %s" % (start, end, source.choice(FLAGS), offset, device, inode, name))
    if source.random() < 0.5:
        lines.append(b"ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0                  [vsyscall]")
    return b"".join(line.rstrip() + b"\n" if line.endswith(b" ") else line + b"\n" for line in lines)


def test_maps(cases: Any, seeds: Any) -> None:
    """Where a process maps what, and how it calls that."""
    images = [Image(seed.content, str(seed)) for seed in pick(seeds, "program-object", "library-group")]

    def make(source: random.Random) -> bytes:
        if source.random() < 0.5:
            return mapped_at_random(source)
        lines = source.choice(list(corpus("maps").values())).split(b"\n")
        for at, line in enumerate(lines):
            if b"/" in line and source.random() < 0.5:
                lines[at] = line[: line.index(b"/")] + source.choice(NAMES[4:])
        return b"\n".join(lines)

    def use(content: bytes) -> None:
        areas = list(maps_lines(content))
        assert len(areas) == content.count(b"\n")
        room = maps.Room(areas)
        for size in (4096, 1 << 20, 1 << 33):
            near = maps.far_from_code(areas, "/memfd:")
            at = room.find(size, near, 1 << 46)
            if at is not None:
                assert room.is_free(at, at + size)
                assert not any(area.start < at + size and at < area.end for area in areas)
                room.take(at, at + size)
        for line in areas:
            if line.inode and line.name:
                mapped_file(1, line.name, [line])
        for image in images:
            load_biases(image, areas)

    hold("maps", cases(150), make, use)


# -- the notes of a live process ---------------------------------------------------------------------------------------


def test_notes_of_a_live_process(cases: Any, seeds: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file with changed notes, which a process has mapped as code: here it is our own."""
    monkeypatch.setattr(apart, "look", lambda user, named, run, *more: run() or 0)  # in this process
    here = [seed.content for seed in seeds if seed.machine == HOST and seed.kind.startswith(("library", "program"))]
    if not here:
        pytest.skip("there is no compiler for this machine")
    kept = [content for content in corpus("notes").values() if content]

    def make(source: random.Random) -> bytes:
        content = source.choice(here)
        return mutations.notes(content, source, kept) if source.random() < 0.7 else mutations.elf(content, source)

    def use(content: bytes) -> None:
        whole = content if content[:4] == b"\x7fELF" else mutations.with_notes(here[0], content)
        path = tmp_path / "mapped"
        path.write_bytes(whole)
        path.chmod(0o755)
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ | mmap.PROT_EXEC) as mapped:
            assert mapped[:4] is not None
            wanted = Wanted(("*",), ("*",), (), (str(path),), (), ("*",), returns=True)
            with contextlib.suppress(UsdtError):
                for target in select(os.getpid(), wanted).targets:
                    assert str(target)
            text = listed(os.getpid())
        assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028]", text), text[:2000]
        path.unlink()

    hold("notes", cases(60), make, use)


def listed(pid: int) -> str:
    """Return what `usdtbuild list PID` prints."""
    from click.testing import CliRunner

    from usdtbuild.commands.list_ import command

    answer = CliRunner().invoke(command, [str(pid)])
    if answer.exception is not None and not isinstance(answer.exception, (SystemExit, UsdtError)):
        raise answer.exception
    return answer.output


# -- answers of a gdb server -------------------------------------------------------------------------------------------

WORDS = (
    b"", b"OK", b"E01", b"E", b"l", b"m", b"mp1.1", b"m" + b"p1.1," * 50, b"T05", b"T05thread:p1.1;", b"T0", b"S05",
    b"T05thread:p1.1;fork:p2.2;", b"T05thread:p1.1;vfork:p2.2;", b"T05thread:p1.1;vforkdone:;", b"W00;process:1",
    b"W00", b"T05thread:p1.1;exec:2f62696e2f7368;", b"X09;process:1", b"T05thread:p9.9;swbreak:;", b"vCont",
    b"T05library:;thread:p1.1;", b"O6869", b"F0", b"F-1,2", b"F5", b"F5;x", b"F7fffffff;x", b"F", b"x" * 600,
    b"00" * 300, b"ff" * 300, b"\xff" * 9, b"PacketSize=1", b"Text=1000;Data=0",
    b"PacketSize=ffffffff;qXfer:features:read+;multiprocess+",
    b"l<target><reg name='rip' bitsize='64' regnum='3'/></target>", b"l<target><!DOCTYPE x [<!ENTITY a 'b'>]>&a;",
)  # fmt: skip


REGISTERS = b"rax rbx rcx rdx rsi rdi rbp rsp r8 r9 r10 r11 r12 r13 r14 r15 rip".split()


class Model(packets.Link):
    """A gdb server that holds a program and lets it run into its breakpoints; some answers are given to it."""

    def __init__(self, program: bytes, lies: dict[int, bytes]) -> None:
        super().__init__(SimpleNamespace(close=lambda: None), "model")  # type: ignore[arg-type]
        self.program, self.lies, self.image = program, lies, Image(program, "program")
        self.asked, self.queue, self.breakpoints, self.at, self.stops = 0, bytearray(), list[int](), 0, 0

    def _write(self, raw: bytes) -> None:
        for packet in re.findall(rb"\$([^#]*)#..", raw, re.DOTALL):
            self.asked += 1
            said = self.lies.get(self.asked, self.answer(packet))
            if said is not None:
                self.queue += b"$%s#%02x" % (said, sum(said) & 0xFF)

    def receive(self, timeout: float) -> bytes | None:
        if self.asked > 3000:
            raise TracerError("enough")
        self._received += self.queue
        self.queue.clear()
        return self._take()

    def answer(self, packet: bytes) -> bytes | None:
        word = packet.partition(b":")[0]
        if packet.startswith((b"vCont;", b"c", b"s", b"C")):
            return self.stopped()
        if packet.startswith(b"m"):
            return self.memory(packet[1:])
        if packet[:2] in (b"Z0", b"z0"):
            address = int(packet.split(b",")[1], 16)
            self.breakpoints = [one for one in self.breakpoints if one != address] + [address] * (packet[:1] == b"Z")
            return b"OK"
        if packet.startswith(b"qXfer:features"):
            return b"l<target>%s</target>" % b"".join(b'<reg name="%s" bitsize="64"/>' % name for name in REGISTERS)
        if packet.startswith(b"qXfer:auxv"):
            return b"l" + self.escaped(struct.pack("<6Q", 9, self.image.entry, 7, 0, 0, 0))
        if packet.startswith(b"vFile:pread"):
            _, size, offset = (int(one, 16) for one in packet.split(b":")[2].split(b","))
            piece = self.program[offset : offset + size]
            return b"F%x;" % len(piece) + self.escaped(piece)
        registers = bytes(16 * 8) + struct.pack("<Q", self.at)
        return {
            b"qSupported": b"PacketSize=4000;qXfer:auxv:read+;qXfer:exec-file:read+;qXfer:features:read+",
            b"QStartNoAckMode": b"OK", b"?": b"T05thread:p1.1;", b"vCont?": b"vCont;c;C;s;S", b"qfThreadInfo": b"mp1.1",
            b"qsThreadInfo": b"l", b"g": registers.hex().encode(), b"qXfer": b"l/program", b"vFile": b"F3",
        }.get(word, b"F0" if packet.startswith(b"vFile") else b"OK")  # fmt: skip

    def stopped(self) -> bytes:
        self.stops += 1
        if self.stops > 20 or not self.breakpoints:
            return b"W00;process:1"
        self.at = self.breakpoints[self.stops % len(self.breakpoints)]
        return b"T05thread:p1.1;swbreak:;"

    def memory(self, rest: bytes) -> bytes:
        address, _, size = rest.partition(b",")
        data = self.image.bytes_at(int(address, 16), int(size, 16))
        return data.hex().encode() if data else b"E01"

    def escaped(self, raw: bytes) -> bytes:
        return b"".join(b"}%c" % (byte ^ 0x20) if byte in b"#$}*" else b"%c" % byte for byte in raw)


def test_answers_of_a_gdb_server(cases: Any, seeds: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A gdb server of which one to three answers are not what they should be."""
    programs = [seed.content for seed in seeds if seed.machine == HOST == "x86-64" and seed.kind == "program-object"]
    if not programs:
        pytest.skip("the model's registers are x86-64's")

    def make(source: random.Random) -> bytes:
        kept = json.loads(source.choice(list(corpus("stub").values())))
        lies = dict(kept) if source.random() < 0.3 else {}
        for _ in range(source.choice((1, 1, 2, 3))):
            lies[str(source.choice((source.randrange(1, 12), source.randrange(1, 120))))] = lie(source).hex()
        return json.dumps(lies).encode()

    seen: list[Any] = []

    def use(content: bytes) -> None:
        lies = {int(at): bytes.fromhex(text) for at, text in json.loads(content).items()}
        model = Model(programs[0], lies)
        monkeypatch.setattr(remote, "connect", lambda _: model)
        for name in ("_PATIENCE", "_LEAST", "_GRACE"):
            monkeypatch.setattr(packets, name, 0.0)
        wanted = Wanted(("*",), ("work", "inner", "other"), returns=True)
        job = Job(wanted, RECORD, "remote", remote="x", duration=0.1)
        with contextlib.suppress(UsdtError), remote.Remote(job) as session:
            session.start()
            for batch in session.batches(0.0):
                seen.extend(batch)
                assert len(session.targets) < 1000
                if time.monotonic_ns() > session.started + 1e8:
                    session.stop()
            session.report()

    use(b"{}")
    assert seen, "the model gets nowhere"
    hold("stub", cases(150), make, use)


def lie(source: random.Random) -> bytes:
    """Return an answer: a word, several in one, or bytes."""
    text = bytearray(source.choice(WORDS))
    for _ in range(source.choice((0, 0, 1, 3))):
        at = source.randrange(len(text) + 1)
        how = source.randrange(4)
        if how == 0:
            text[at:at] = source.choice(
                (b";", b":", b",", b"-", b"*~", b"}", b"p", b"ffffffffffffffffff", b"\0", b"\xff")
            )
        elif how == 1:
            text[at:] = source.choice(WORDS)
        elif how == 2:
            del text[at : at + source.choice((1, 4))]
        else:
            text[at:at] = bytes([source.randrange(256)])
    return bytes(text)


@pytest.mark.parametrize("name", ["rings", "journal", "maps", "notes", "stub"])
def test_kept_inputs_are_small(name: str) -> None:
    assert 0 < sum(map(len, corpus(name).values())) < 20_000
