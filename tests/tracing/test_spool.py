"""Between the rings and whoever shows their records: nobody waits for the other, and nothing is lost on the way."""

from __future__ import annotations

import errno
import json
import mmap
import os
import random
import re
import socket
import struct
import sys
import time
from collections import Counter
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from usdtbuild.tracing import clock, job, session
from usdtbuild.tracing.containers import Family
from usdtbuild.tracing.filters import Filter
from usdtbuild.tracing.follower import planned
from usdtbuild.tracing.measures import Cell, Measure, Table
from usdtbuild.tracing.model import INTEGER, Argument, Event, Totals
from usdtbuild.tracing.outbox import Outbox
from usdtbuild.tracing.outputs.choose import Wishes
from usdtbuild.tracing.patch import rings
from usdtbuild.tracing.patch.code import HEAD, READY, RING_HEADER, RINGS, TAIL, Shape
from usdtbuild.tracing.patch.rings import Decoder, Rings, SiteSpec
from usdtbuild.tracing.selection import Wanted
from usdtbuild.tracing.session import Session, _Clock
from usdtbuild.tracing.sieve import Sieve
from usdtbuild.tracing.spool import Reader, Writer
from usdtbuild.tracing.worker import Worker

SHAPE = Shape(4096, 256, 1 << 21, 8)


def test_bytes_come_out_as_they_went_in() -> None:
    reader = Reader()
    writer = Writer(reader.descriptor)
    said = [bytes([number]) * (number * 503) for number in range(200)]
    for raw in said:
        assert writer.write(raw)
    writer.wait(writer.size)
    found = list(reader.take(writer.size, 70_000))
    assert b"".join(found) == b"".join(said)
    assert max(map(len, found)) == 70_000
    reader.close()


def test_a_front_that_reads_nothing_keeps_nobody_waiting() -> None:
    ours, theirs = socket.socketpair()
    reader = Reader()
    writer = Writer(reader.descriptor)
    outbox = Outbox(Connection(theirs.detach()), writer)
    said: list[job.Message] = []
    for number in range(5_000):
        assert writer.write(b"record")
        said += [job.Raw(0, 6), job.Mark(number, number, number)]
        outbox.put(said[-2])
        outbox.put(said[-1])
        outbox.send()  # more than a socket takes: it would hang here
    with Connection(ours.detach()) as front:
        found: list[job.Message] = []
        while len(found) < len(said):
            outbox.send()
            while front.poll():
                found.append(front.recv())
    assert found == said
    reader.close()


def test_records_are_not_told_of_before_they_are_in_the_file() -> None:
    ours, theirs = socket.socketpair()
    reader = Reader()
    writer = Writer(reader.descriptor)
    outbox = Outbox(Connection(theirs.detach()), writer)
    outbox.put(job.Raw(0, 10))
    outbox.send()
    with Connection(ours.detach()) as front:
        assert not front.poll()
        writer.write(bytes(10))
        outbox.send_all()
        assert front.poll()
    reader.close()


def test_marks_with_nothing_between_them_become_one() -> None:
    ours, theirs = socket.socketpair()
    reader = Reader()
    outbox = Outbox(Connection(theirs.detach()), Writer(reader.descriptor))
    for number in range(1000):
        outbox.put(job.Mark(number, number, number))
    outbox.send_all()
    with Connection(ours.detach()) as front:
        assert front.recv() == job.Mark(999, 999, 999)
        assert not front.poll()
    reader.close()


class _Full:
    """Rings that are never empty, and more in them than there is room for."""

    def __init__(self, worker: Worker) -> None:
        self.worker, self.claimed, self.read = worker, 10, 0
        self.dropped, self.given, self.rings = 0, 0, self

    def heads(self) -> list[int]:
        return [self.claimed]

    def are_read(self, heads: list[int]) -> bool:
        return self.read >= heads[0]

    def holds(self) -> bool:
        return True

    def collect(self, write: Any, *, final: bool) -> int:
        self.claimed += 10
        self.read += 4
        self.taken = clock.now()
        self.worker.spool.full = True
        return 4


def test_what_was_there_is_told_also_where_more_comes_all_the_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (tmp_path / "spool").open("w+b") as spool, Pipe()[0] as link:
        worker = Worker(link, job.Job(Wanted(), spool=spool.fileno()), set())
        full: Any = _Full(worker)
        monkeypatch.setattr(worker.processes, "look_for_changes", lambda: None)
        monkeypatch.setitem(worker.processes.known, 1, SimpleNamespace(all_engines=lambda: [full]))
        monkeypatch.setattr(worker.processes.arming, "totals", lambda: Totals({}, {}))
        worker.processes.arming._engines.append(full)
        told: list[job.Message] = []
        monkeypatch.setattr(worker, "tell", told.append)
        before = time.monotonic_ns()
        for _ in range(3):
            worker.tick()
    marks = [one for one in told if isinstance(one, job.Mark)]
    assert len(marks) == 1
    assert before <= marks[0].until < full.taken[1] <= marks[0].time
    assert full.taken[0] <= marks[0].ticks


class _Writers:
    """What trampolines do to the first ring, one step after the other."""

    def __init__(self, first: int = SHAPE.stride, *, limited: bool = True) -> None:
        self.data = mmap.mmap(-1, RINGS * SHAPE.stride)
        self.given: list[tuple[int, int]] = []
        self.memory = True  # whether there is any to be given
        self.rings = Rings(self.data, 0, SHAPE, self._give, limited=limited)
        assert self.rings.prepare(0, first)
        self.lost = 0

    def _give(self, start: int, size: int) -> bool:
        if self.memory:
            self.given.append((start, start + size))
        return self.memory

    def word(self, at: int) -> int:
        return int(struct.unpack_from("<Q", self.data, at)[0])

    def claim(self) -> int:
        head = self.word(HEAD)
        if head - self.word(TAIL) >= SHAPE.slots or head % SHAPE.slots >= self.word(READY):
            self.lost += 1
            return -1
        struct.pack_into("<Q", self.data, HEAD, head + 1)
        return head

    def complete(self, slot: int, what: int) -> None:
        at = RING_HEADER + (slot & (SHAPE.slots - 1)) * SHAPE.slot
        struct.pack_into("<QQ", self.data, at, slot + 1, what)

    def collect(self) -> list[int]:
        raw = bytearray()
        self.rings.collect(raw.extend)
        return [struct.unpack_from("<Q", raw, at + 8)[0] for at in range(0, len(raw), SHAPE.slot)]


def test_a_ring_that_is_emptied_in_time_uses_its_start_again_and_again() -> None:
    writers = _Writers()
    places, said, found = set(), 0, []
    for _ in range(200):
        for _ in range(40):
            slot = writers.claim()
            places.add(slot & (SHAPE.slots - 1))
            writers.complete(slot, said)
            said += 1
        found += writers.collect()
    assert writers.lost == 0
    assert found == list(range(said))
    assert max(places) < 104  # 256 KB, which is 64 slots, and what came until the ring was emptied


def test_a_ring_that_is_not_emptied_in_time_is_used_to_its_end_and_counts_the_rest() -> None:
    writers = _Writers()
    for number in range(300):
        slot = writers.claim()
        if slot >= 0:
            writers.complete(slot, number)
    assert writers.lost == 300 - SHAPE.slots
    assert writers.collect() == list(range(SHAPE.slots))


def test_writers_are_not_sent_back_over_a_record_that_is_being_written() -> None:
    writers = _Writers()
    slots = [writers.claim() for _ in range(100)]
    for slot in slots[:-1]:
        writers.complete(slot, slot)
    assert writers.collect() == slots[:-1]
    assert writers.word(HEAD) == 100
    writers.complete(slots[-1], slots[-1])
    assert writers.collect() == slots[-1:]
    assert writers.word(HEAD) == writers.word(TAIL) == SHAPE.slots


def test_a_ring_that_is_used_beyond_half_of_its_memory_gets_more_before_anybody_needs_it() -> None:
    writers, said = _Writers(64 * SHAPE.slot), 0
    while said < 3 * SHAPE.slots:
        for _ in range(20):
            writers.complete(writers.claim(), said)
            said += 1
        left = writers.claim()  # so the ring is never empty, and not sent back
        writers.collect()
        writers.complete(left, said)
        said += 1
    assert writers.lost == 0
    assert [start for start, _ in writers.given[1:]] == [end for _, end in writers.given[:-1]]
    assert writers.given[0][0] == 0
    assert writers.given[-1][1] == RING_HEADER + SHAPE.slots * SHAPE.slot


def test_where_there_is_no_more_memory_hits_are_lost_and_the_ring_is_used_again() -> None:
    writers = _Writers(64 * SHAPE.slot)
    writers.memory = False
    for round_ in range(10):
        slots = [writers.claim() for _ in range(100)]
        for slot in slots[:64]:
            writers.complete(slot, slot)
        assert slots[64:] == [-1] * 36
        assert writers.collect() == [round_ * SHAPE.slots + number for number in range(64)]
    assert writers.lost == 360


def test_who_has_memory_of_its_own_loses_nothing_for_want_of_ours() -> None:
    writers = _Writers(64 * SHAPE.slot, limited=False)
    writers.memory = False
    for number in range(SHAPE.slots):
        writers.complete(writers.claim(), number)
    assert writers.collect() == list(range(SHAPE.slots))


def test_no_ring_has_all_the_room() -> None:
    writers = _Writers()
    rings, found = writers.rings, Counter[int]()
    assert all(rings.prepare(ring, SHAPE.stride) for ring in (1, 7))
    for _ in range(20):
        for ring in (0, 1, 7):
            at = ring * SHAPE.stride
            head = writers.word(at + HEAD)
            if head - writers.word(at + TAIL) < SHAPE.slots // 2:
                slot = at + RING_HEADER + head % SHAPE.slots * SHAPE.slot
                struct.pack_into("<QQ", writers.data, slot, head + 1, ring)
                struct.pack_into("<Q", writers.data, at + HEAD, head + 1)
        got: list[int] = []

        def write(raw: Any, got: list[int] = got) -> bool:
            if not got:
                got.append(struct.unpack_from("<Q", raw, 8)[0])
                return True
            return False

        rings.collect(write)
        found.update(got)
    assert min(found[ring] for ring in (0, 1, 7)) > 3


def test_a_record_behind_one_that_is_being_written_waits_until_its_thread_is_dead(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = 100.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    writers = _Writers()
    slots = [writers.claim() for _ in range(4)]
    for slot in (slots[0], slots[2], slots[3]):
        writers.complete(slot, slot)
    assert writers.collect() == slots[:1]
    now += 1.5
    assert writers.collect() == []
    now += 1.0
    assert writers.collect() == slots[2:]
    assert writers.rings.holes == 1


def test_a_short_write_is_gone_on_with_where_it_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda file, data, at: whole(file, data[:7], at))
    reader = Reader()
    writer = Writer(reader.descriptor)
    said = [bytes([number]) * (10 * number) for number in range(1, 20)]
    for raw in said:
        writer.write(raw)
    writer.wait(writer.size)
    assert b"".join(reader.take(writer.size, 1 << 20)) == b"".join(said)
    reader.close()


def test_a_file_that_cannot_be_written_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> int:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "pwrite", broken)
    reader = Reader()
    writer = Writer(reader.descriptor)
    writer.write(b"record")
    with pytest.raises(OSError, match=os.strerror(errno.EIO)):
        writer.wait(writer.size)
    with pytest.raises(OSError, match=os.strerror(errno.EIO)):
        writer.write(b"record")
    reader.close()


def test_a_spool_without_room_leaves_records_in_their_ring() -> None:
    writers = _Writers()
    for number in range(10):
        writers.complete(writers.claim(), number)
    assert writers.rings.collect(lambda _: False) == 0
    assert writers.rings.holds()
    assert writers.collect() == list(range(10))
    assert not writers.rings.holds()


def test_a_burst_is_kept_whole_however_late_it_is_read(scene: Any, run: Any, tmp_path: Path) -> None:
    """The burst fits into the ring of its thread, so it doesn't matter when the tracer has the processor."""
    output, hits = tmp_path / "seen.jsonl", 50_000
    run(sys.executable, "-m", "usdtbuild", "trace", "-P", "scene:eight", "-o", output, "--", scene("pie"), str(hits))
    with output.open(encoding="utf-8") as lines:
        seen = [json.loads(line)["args"]["a"] for line in lines]
    assert seen == list(range(hits))


def test_what_nobody_wants_to_wait_for_is_counted(scene: Any, tmp_path: Path) -> None:
    hits = 20_000
    wanted = Wanted(probes=("scene:eight", "scene:last"))
    wish = job.Job(wanted, argv=(str(scene("pie")), str(hits)), cwd=str(tmp_path), env=dict(os.environ))
    with Session(wish) as session, Path(os.devnull).open("wb") as nowhere:
        session.start(stdout=nowhere)
        session.skip()
        assert sum(map(len, session.batches())) == 0
        report = session.report()
    assert (report.counts, report.lost) == ((hits, hits), (0, 0))
    assert session.left_out == 2 * hits


def test_the_end_by_a_limit_does_not_wait_for_what_is_left(scene: Any, run: Any) -> None:
    words = sys.executable, "-m", "usdtbuild", "trace", "-P", "scene:eight", "--limit", "7", "--", scene("pie"), "20000"
    done = run(*words)
    assert len(re.findall("^ *[0-9.]+ +[0-9]+ scene:eight ", done.stdout, re.MULTILINE)) == 7
    assert done.stderr == ""


class _Told(Session):
    """A session that was told of records: of each ring set their moments, in the order in which they were read."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *rings: list[int]) -> None:
        super().__init__(job.Job(Wanted(), argv=("true",)))
        self.decoded = 0
        whole = Decoder.events

        def counted(decoder: Decoder, *arguments: Any) -> list[Event]:
            events = whole(decoder, *arguments)
            self.decoded += len(events)
            return events

        monkeypatch.setattr(Decoder, "events", counted)
        monkeypatch.setattr(session, "_PIECE", 100 * 40)
        self._reader = Reader()
        self._worker: Any = SimpleNamespace(spool=self._reader, close=self._reader.close)
        writer = Writer(self._reader.descriptor)
        argument = Argument("n", "long", 8, True, INTEGER)
        for number, moments in enumerate(rings):
            self._decoders[number] = Decoder(Shape(40, 1 << 20, 1 << 26, 0),
                                             [SiteSpec(number, (argument,), ((8, True, False),), (0,))])  # fmt: skip
            self._members[number] = Family()
            self._members[number][5] = 5
            raw = b"".join(struct.pack("<QQIIIIq", at, 10**9 + one, 5, 0, 5, 0, one) for at, one in enumerate(moments))
            assert writer.write(raw)
            self._waiting.append(job.Raw(number, len(raw)))
        writer.wait(writer.size)
        self._begun = 10**9
        self._clock.mark(10**9, 10**9)
        self._waiting.append(job.Mark(2 * 10**9, 2 * 10**9, job.LAST))
        self._marks = 1


def test_hits_of_all_rings_come_in_order_however_many(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of a ring are in order but for threads that were interrupted, and ones that were told of late."""
    source = random.Random(7)
    moments = [[one * 10 + source.randrange(2000) for one in range(count)] for count in (2500, 700, 10)]
    moments[1][-1] = 3
    told = _Told(monkeypatch, *moments)
    batches = list(told._portions())
    told.close()
    times = [event.time - 10**9 for batch in batches for event in batch]
    assert times == sorted(one for ring in moments for one in ring)
    assert len(batches) > 5
    assert told._recorded == {0: 2500, 1: 700, 2: 10}


def test_of_first_hits_no_more_is_read_than_could_be_among_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rings, "_DISORDER", 2)
    writers = _Writers()
    writers.rings = Rings(writers.data, 0, SHAPE, writers._give, 3)
    assert writers.rings.prepare(0, SHAPE.stride)
    for number in range(4):
        writers.complete(writers.claim(), number)
    assert writers.collect() == [0, 1, 2, 3]
    assert not writers.rings.holds()
    for number in range(4, 10):
        writers.complete(writers.claim(), number)
    assert writers.rings.holds()
    heads = writers.rings.heads()
    assert not writers.rings.are_read(heads)
    assert writers.collect() == [4]
    assert writers.rings.given == 5
    assert writers.rings.are_read(heads)
    assert not writers.rings.holds()
    assert writers.rings.collect(lambda _: None, final=True) == 0


def test_who_wants_few_hits_waits_for_few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a limit of ten takes seconds at full speed, for the millions that have come by then."""
    told = _Told(monkeypatch, list(range(20_000)), list(range(20_000)))
    portions = told._portions()
    first = next(portions)
    told.skip()
    assert sum(map(len, portions)) == 0
    told.close()
    assert [event.time - 10**9 for event in first] == sorted([*range(len(first) // 2)] * 2)
    assert len(first) <= told.decoded <= 400
    assert told.left_out == 40_000 - len(first)
    assert told._recorded == {0: 20_000, 1: 20_000}


@pytest.mark.parametrize(
    ("returns", "text", "enough"), [(False, "", 10), (False, "n > 5", 10), (False, "time > 1ms", 0), (True, "n > 5", 0)]
)
def test_who_is_to_read_few_hits_knows_which_pass(returns: bool, text: str, enough: int) -> None:
    """Where a filter is applied to records, only who applies it knows when there are enough."""
    sieve = Sieve(Filter(text)) if text else None
    wish = job.Job(Wanted(probes=("a:b",), returns=returns), enough=10)
    assert planned(wish, Wishes(), sieve)[0].enough == enough


def test_a_short_trace_has_the_rate_of_the_clock_from_its_first_and_last_moment() -> None:
    """Not from what the processor tells, or from what is usual."""
    session = Session(job.Job(Wanted(), argv=("true",)))
    session._waiting += [job.Mark(10, 10**9, 0), job.Mark(10 + 10**6, 2 * 10**9, job.LAST)]
    assert [*session._decoded(), *session._decoded()] == [[], []]
    assert session._clock(10 + 10**5) == 11 * 10**8


def test_a_later_mark_changes_no_time_and_no_order() -> None:
    """Marks are right to some microseconds only; the last may come right after the one before."""
    times, rng, ticks = _Clock(), random.Random(5), 10**12
    times.mark(ticks, 10**10)
    said: list[tuple[int, int]] = []
    for last in (*[False] * 60, True):
        several = [ticks := ticks + rng.randrange(1, 3_000 if last else 3_000_000) for _ in range(20)]
        at = 10**10 + (ticks - 10**12) // 3 + rng.randrange(-2_000, 2_000)
        times.mark(ticks, at)
        said += [(one, times(one)) for one in several]
        assert abs(times(ticks) - at) <= 4_000
    assert [times(one) for one, _ in said] == [time for _, time in said] == sorted(time for _, time in said)


def test_a_reading_replaces_one_that_was_not_handed_over_yet() -> None:
    """Both say how far it was since the start."""
    session = Session(job.Job(Wanted(), argv=("true",)))
    key = (0, Measure())
    for number in (1, 2):
        session._waiting += [
            job.Read(number, {}, {}, {key: Table({0: Cell(number)}, Cell())}, is_last=False),
            job.Read(number, {0: number}, {}, {}, is_last=True),
        ]
    session._waiting.append(job.Mark(10, 10**9, 0))
    session._marks = 1
    assert list(session._portions()) == [[]]
    reading = session.reading()
    assert reading is not None
    assert (reading.time, reading.passed, reading.tables[key].cells) == (2, {0: 2}, {0: Cell(2)})
