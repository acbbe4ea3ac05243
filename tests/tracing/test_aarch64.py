"""Trampolines for aarch64, as the patch engine writes them, run by qemu: counts, records, what they leave as it was."""

from __future__ import annotations

import mmap
import random
import signal
import struct
import subprocess
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from elftools.elf.elffile import ELFFile

from usdtbuild.formats.operands import Operand, parse_one
from usdtbuild.machines.numbers import EM_AARCH64
from usdtbuild.tracing import clock
from usdtbuild.tracing.filters import Filter
from usdtbuild.tracing.maps import NONE_KNOWN, Known
from usdtbuild.tracing.measures import Cell, Measure, Table, Unpaired, class_of
from usdtbuild.tracing.model import (
    COUNT,
    FLOAT,
    INTEGER,
    MISSING,
    POINTER,
    PROBE,
    STACK,
    STRING,
    Argument,
    Around,
    Event,
    Module,
    Site,
    Target,
    Unreadable,
)
from usdtbuild.tracing.patch import a64, aarch64, code_aarch64, evaluated, tables
from usdtbuild.tracing.patch.code import GONE, HEADER, READY, STOP, WAITED, Instruction, Keeping, Routines, Taken
from usdtbuild.tracing.patch.code_aarch64 import Features
from usdtbuild.tracing.patch.kept import Kept, Piece
from usdtbuild.tracing.patch.rings import Decoder, Rings, SiteSpec, shape_for, string_places
from usdtbuild.tracing.patch.spot import Spot
from usdtbuild.tracing.plan import Plan
from usdtbuild.tracing.predicates import BEGIN, END, NotHereError, Tally, lower, pair_width, tallies

from .paired import Paired, number_of

SOURCE = Path(__file__).parent / "sources" / "trampolines_aarch64.c"
TRAMPOLINES, RINGS, CELL, TEXTS = 0x5000000, 0x1000000000, 0x2000000000, 0x3000000000
COUNTERS = TRAMPOLINES + 0x80000
TABLE = COUNTERS + 0x8000
MEASURES = [Measure("a"), Measure("b"), Measure("", "b"), Measure("", "b", classes=True), Measure("b", "b", 1000),
            Measure("a,b", "c")]  # fmt: skip
TEXT_MEASURES = [Measure("a"), Measure("b,a", "b")]
FEATURES = {
    "exclusive": (Features(False, False), "cortex-a57"),
    "atomic": (Features(True, False), "max"),
    "tags": (Features(True, True), "max"),
}
STRING_SIZE = 64


class Recording(NamedTuple):
    """Code that records a site's hits: the routines, and behind them, `at` an address, the site's trampoline."""

    code: bytes
    at: int
    shape: Any
    spec: SiteSpec


class Program(NamedTuple):
    """The program that runs trampolines: its symbols, how it is run, and where a thread has its number (from its
    pointer)."""

    path: Path
    symbols: dict[str, int]
    own_number: int
    qemu: str

    def run(
        self, folder: Path, trampolines: bytes, words: dict[int, int], cpu: str, *what: str, ready: Any = None
    ) -> tuple[list[str], bytearray]:
        """Run it; return what it said, and the memory of trampolines and rings behind it. All slots of these, of the
        shape `ready`, have memory."""
        if ready is not None:
            words = {**words, **{RINGS + ring * ready.stride + READY: ready.slots for ring in range(16)}}
        file = folder / "trampolines"
        file.write_bytes(trampolines)
        text = "".join(f"{address:x} {word:x}\n" for address, word in words.items())
        done = subprocess.run(
            [self.qemu, "-cpu", cpu, self.path, file, *what], input=text, capture_output=True, text=True, timeout=120,
            check=False,
        )  # fmt: skip
        assert done.returncode == 0, f"{done.returncode}\n{done.stderr}"
        return done.stdout.split("\n"), bytearray(file.read_bytes())

    def record(
        self, folder: Path, made: Recording, site: int, cpu: str, *what: str, code: bytes = b""
    ) -> tuple[list[str], bytearray, list[Any], int]:
        """Run it with the recorded site; return also the records in its rings, and how many are lost."""
        words = {site: a64.branch(site, made.at)}
        said, memory = self.run(folder, code or made.code, words, cpu, *what, ready=made.shape)
        (lost,) = struct.unpack_from("<Q", memory, COUNTERS - TRAMPOLINES)
        return said, memory, events_of(memory, made.shape, [made.spec]), lost


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory, need: Callable[[str], Any]) -> Program:
    """Build it."""
    compiler, qemu = need("aarch64-linux-gnu-gcc"), need("qemu-aarch64")
    path = tmp_path_factory.mktemp("trampolines") / "trampolines"
    options = ["-O1", "-Wall", "-Werror", "-static", "-no-pie", "-pthread"]
    subprocess.run([compiler, *options, SOURCE, "-o", path], check=True)
    with path.open("rb") as file:
        table: Any = ELFFile(file).get_section_by_name(".symtab")
        symbols = {one.name: one["st_value"] for one in table.iter_symbols()}
        (thread_local,) = ELFFile(file).iter_segments("PT_TLS")
        # 16 bytes are the C library's, and then comes the program's part (AAELF64, 5.7).
        own_number = max(16, thread_local["p_align"]) + symbols["own_number"]
    return Program(path, symbols, own_number, str(qemu))


def events_of(memory: bytearray, shape: Any, specs: list[SiteSpec]) -> list[Event]:
    """Return the records in the rings that the program has written behind its trampolines."""
    with mmap.mmap(-1, 16 * shape.stride) as data:
        data[:] = bytes(memory[1 << 21 : (1 << 21) + 16 * shape.stride])
        rings, found = Rings(data, 0, shape, lambda start, size: True), bytearray()
        rings.collect(found.extend, final=True)
        assert not rings.holes
        rings.close()
    return Decoder(shape, specs).events(bytes(found), lambda ticks: ticks)


def argument(kind: str = INTEGER) -> Argument:
    """Return what a test wants to know of an argument."""
    return Argument("", "", 512 if kind == STACK else 8, False, kind)


# What a record says of an operand, kind and value, as the program sets its registers.
OPERANDS: list[tuple[str, str, Any]] = [
    ("8@x0", INTEGER, 0x0101010101010101), ("4@w1", INTEGER, 0x02020202), ("-1@w8", INTEGER, 9),
    ("8@x9", INTEGER, 0x0A0A0A0A0A0A0A0A),
    ("8@x10", INTEGER, 0x0B0B0B0B0B0B0B0B), ("8@x30", INTEGER, 0x1F1F1F1F1F1F1F1F),
    ("8@x17", INTEGER, 0x1212121212121212),
    ("-4@-5", INTEGER, -5), ("8@1311768467463790320", INTEGER, 0x123456789ABCDEF0), ("4@wzr", INTEGER, 0),
    ("8@[sp, 8]", INTEGER, 0x5747), ("2@[sp, 8]", INTEGER, 0x5747), ("-1@[sp, 8]", INTEGER, 0x47),
    ("1@[x2]", INTEGER, ord("a")),
    ("4@[x2, 2]", INTEGER, int.from_bytes(b"text", "little")), ("1@[x11, -64]", INTEGER, ord("a")),
    ("8@[x3]", INTEGER, MISSING), ("8@[x19]", INTEGER, MISSING),
    ("4@[x19]", INTEGER, MISSING), ("8@[x21]", INTEGER, MISSING),
    ("8f@d3", FLOAT, struct.unpack("<d", struct.pack("<Q", 0x1122334455660006))[0]),
    ("4f@s31", FLOAT, struct.unpack("<f", struct.pack("<I", 0x5566003E))[0]),
    ("8@x2", STRING, b"a text"), ("8@x11", STRING, b"x" * 64), ("8@x19", STRING, b"tail"),
    ("8@x3", STRING, Unreadable(0x123456789ABCDEF)),
    ("8@x20", STRING, Unreadable(16)), ("8@x21", STRING, None), ("8@[x3]", STRING, MISSING),
]  # fmt: skip


def recording(
    site: int, target: int, features: Features, *operands: tuple[str, str], size: int, ring: int,
    own_number: int | None = None, until: str | None = None, patience: int = 0, known: Known = NONE_KNOWN,
) -> Recording:  # fmt: skip
    """Make it for operands as records spell them, each with its kind; strings have `size` bytes, a ring has `ring`.

    `until`: the ring keeps the last records, up to one that passes this, which may be nothing."""
    names = tuple(argument(kind) for _, kind in operands)
    places, strings = string_places(names, size), [one.kind == STRING for one in names]
    stack = sum(one.size for one in names if one.kind == STACK)
    shape = shape_for([len(names)], [sum(strings)], size, ring, stack)
    shape = shape._replace(keeps=until is not None, patience=patience)
    code, calls = code_aarch64.routines(TRAMPOLINES, shape, RINGS, CELL, own_number, features, known)
    assert len(code) <= code_aarch64.ROUTINES_SIZE
    parsed = [parse_one(text, EM_AARCH64) for text, _ in operands]
    taken = [
        Taken(operand, {STRING: "string", STACK: "stack"}.get(name.kind, ""), HEADER + 8 * index, place, name.size)
        for index, (operand, name, place) in enumerate(zip(parsed, names, places))
    ]
    at = TRAMPOLINES + len(code)
    keeping = Keeping() if until is not None else None
    if until:
        keeping = Keeping(RINGS + STOP, lower(Filter(until), target_of(parsed[:3]), parsed), parsed)
    trampoline = code_aarch64.record_trampoline(at, 0, taken, calls, COUNTERS, site + 4, features, keeping)
    assert len(trampoline) <= code_aarch64.RECORD_SIZE + code_aarch64.ARGUMENT_SIZE * len(taken) + 192 * bool(until)
    sizes = tuple((one.size, one.signed, one.floating) for one in parsed)
    return Recording(code + trampoline, at, shape, SiteSpec(target, names, sizes, places))


@pytest.mark.parametrize("kind", FEATURES)
@pytest.mark.parametrize("tid", ["thread pointer", "kernel"])
def test_a_record_has_all_operands_and_leaves_registers_flags_and_vectors_alone(
    program: Program, tmp_path: Path, kind: str, tid: str
) -> None:
    features, cpu = FEATURES[kind]
    site, own_number = program.symbols["site_all"], program.own_number if tid != "kernel" else None
    operands = [(text, kind) for text, kind, _ in OPERANDS]
    made = recording(site, 7, features, *operands, size=STRING_SIZE, ring=1 << 16, own_number=own_number)
    said, _, (event,), _ = program.record(tmp_path, made, site, cpu, "all")
    pid, thread = map(int, said[1].split())
    assert (event.target, event.tid) == (7, thread)
    assert event.pid == pid
    assert event.time > 0
    assert [(text, value) for (text, _, _), value in zip(OPERANDS, event.values)] == [
        (text, value) for text, _, value in OPERANDS
    ]


@pytest.mark.parametrize("kind", FEATURES)
@pytest.mark.parametrize("pages", [0, 1, 2])
def test_texts_in_the_heap_are_read_up_to_its_end_without_being_tried(
    program: Program, tmp_path: Path, kind: str, pages: int
) -> None:
    """The second page can't be read: who is told that it is of the heap, dies."""
    features, cpu = FEATURES[kind]
    texts = [(text, kind, value) for text, kind, value in OPERANDS if kind == STRING]
    word, site = TRAMPOLINES + 0x10000, program.symbols["site_all"]
    operands = [(text, kind) for text, kind, _ in texts]
    known = Known(heap=TEXTS, heap_end=word)
    made = recording(site, 7, features, *operands, size=STRING_SIZE, ring=1 << 16, known=known)
    code = made.code.ljust(word - TRAMPOLINES, b"\0") + struct.pack("<Q", TEXTS + 4096 * pages)
    if pages == 2:
        with pytest.raises(AssertionError, match=f"^{-signal.SIGSEGV}\n"):
            program.record(tmp_path, made, site, cpu, "all", code=code)
        return
    _, _, (event,), _ = program.record(tmp_path, made, site, cpu, "all", code=code)
    assert [*event.values] == [value for _, _, value in texts]


@pytest.mark.parametrize("kind", FEATURES)
def test_a_record_has_the_top_of_the_stack(program: Program, tmp_path: Path, kind: str) -> None:
    features, cpu = FEATURES[kind]
    operands = [("8@sp", INTEGER), ("8@sp", STACK), *[(f"8@[sp, {at}]", INTEGER) for at in range(0, 512, 8)]]
    site = program.symbols["site_all"]
    made = recording(site, 7, features, *operands, size=STRING_SIZE, ring=1 << 17)
    _, _, (event,), _ = program.record(tmp_path, made, site, cpu, "all")
    pointer, stack, *words = event.values
    assert isinstance(pointer, int)
    assert isinstance(stack, bytes)
    assert pointer % 16 == 0
    assert struct.unpack(f"<{len(words)}Q", stack) == tuple(words)


@pytest.mark.parametrize("kind", FEATURES)
@pytest.mark.parametrize("what", ["steady", "toggle"])
def test_threads_lose_no_count_and_no_record_while_a_site_comes_and_goes(
    program: Program, tmp_path: Path, kind: str, what: str
) -> None:
    features, cpu = FEATURES[kind]
    passes, site = 1000, program.symbols["site_one"]
    counting = code_aarch64.count_trampoline(TRAMPOLINES, COUNTERS, site + 4, features)
    assert len(counting) <= code_aarch64.COUNT_SIZE
    words = {site: a64.branch(site, TRAMPOLINES)}
    _, memory = program.run(tmp_path, counting, words, cpu, what, str(10 * passes))
    (count,) = struct.unpack_from("<Q", memory, COUNTERS - TRAMPOLINES)
    assert count == 40 * passes if what == "steady" else count >= 40 * passes
    # One ring would hold all that threads do while the site stays.
    operands = [("-8@x0", INTEGER), ("-8@x2", INTEGER), ("-8@x3", POINTER), ("8@x1", STRING)]
    made = recording(site, 0, features, *operands, size=8, ring=1 << 19)
    _, _, events, lost = program.record(tmp_path, made, site, cpu, what, str(passes))
    assert all(one.values[1:] == (3 * one.values[0], ~one.values[0], b"a text") for one in events)
    if what == "steady":
        assert not lost
        assert Counter(one.values[0] for one in events) == dict.fromkeys(range(passes), 4)
    else:
        assert len(events) + lost >= 4 * passes


@pytest.mark.parametrize("kind", FEATURES)
@pytest.mark.parametrize("wanted", [MEASURES, TEXT_MEASURES], ids=["numbers", "texts"])
def test_arguments_are_evaluated_where_the_hit_happens(
    program: Program, tmp_path: Path, kind: str, wanted: list[Measure], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Many trampolines, one behind the other; all registers, flags and vectors stay as they were."""
    monkeypatch.setattr(clock, "ticks_at", lambda _: 1)  # the emulator's clock is not ours
    features, cpu = FEATURES[kind]
    made = random.Random(kind)
    pools = [[one for one in OPERANDS if one[1] in of] for of in ((INTEGER,), (STRING,), (FLOAT, INTEGER))]
    words = code_aarch64.words(features)
    code, calls = evaluated.routines(words, TRAMPOLINES, CELL, None)
    assert len(code) <= evaluated.ROUTINES_SIZE
    begin, expected, site = TRAMPOLINES + len(code), [], program.symbols["site_all"]
    places: dict[Measure, tables.Place] = {}
    added: dict[Measure, Table] = {}
    free = TABLE

    def gated(words: evaluated.Words, at: int, action: evaluated.Action, calls: Routines, back: int) -> bytes:
        made = evaluated.gate(words, at, action, calls, back)
        return made + code_aarch64.count_trampoline(at + len(made), action.counter, back, features)

    for _ in range(440):
        chosen, measures = made.sample(pools[0], 3), made.choice(((), (made.choice(wanted),)))
        if wanted is TEXT_MEASURES:
            chosen = [made.choice(pools[1]), chosen[1], made.choice(pools[2])]
        elif measures == (MEASURES[-1],):  # two keys have to be small
            chosen.sort(key=lambda one: abs(int(one[0].partition("@")[0])))
        operands = tuple(parse_one(text, EM_AARCH64) for text, *_ in chosen)
        target = target_of(operands, [one for _, one, _ in chosen])
        values = [value for *_, value in chosen]
        text = made.choice(("{}", "{}", "({}) and time > 5", "time <= 200ms or ({})"))
        where = Filter(text.format(expression(made, values, [one for _, one, _ in chosen])))
        plan = Plan(COUNT, (target,), where=where, measures=measures)
        assert plan.where is not None
        try:
            predicate, found = evaluated.asked(plan, target, operands)
        except NotHereError:
            continue
        expected.append(plan.where.compile(target)(values, (0, 0, 1 << 62)))
        chosen_tables = []
        for tally in found:
            signs = tally.signs(operands)
            if tally.measure not in places:
                places[tally.measure] = tables.Place(0, tally.measure, free, *signs, tally.width, STRING_SIZE)
                free += tables.size(tally.measure, tally.width)
            place = places[tally.measure]
            if (*signs, tally.width) != place[3:7]:  # it would have a table of its own
                continue
            chosen_tables.append((tally, place.address))
            if expected[-1]:
                add(added.setdefault(tally.measure, Table({}, Cell())), tally, values)
        action = evaluated.Action(predicate, operands, COUNTERS + 8 * (len(expected) - 1), chosen_tables)
        at = TRAMPOLINES + len(code)
        way = gated if not found and len(expected) % 2 else evaluated.trampoline
        size = len(way(words, at, action, calls, at))
        assert size <= words.most(plan, target, operands)
        code += way(words, at, action, calls, at + size)
    code += struct.pack("<I", a64.branch(TRAMPOLINES + len(code), site + 4))
    assert len(code) < COUNTERS - TRAMPOLINES
    assert 90 < sum(expected) < len(expected) - 90
    _, memory = program.run(tmp_path, code, {site: a64.branch(site, begin)}, cpu, "all")
    assert struct.unpack_from(f"<{len(expected)}Q", memory, COUNTERS - TRAMPOLINES) == tuple(map(int, expected))
    assert len(added) == len(wanted)
    for measure, table in added.items():
        assert tables.read(memory, places[measure].address - TRAMPOLINES, places[measure]) == table


def add(table: Table, tally: Tally, values: Sequence[Any]) -> None:
    """Add a hit up as the tracer would."""
    keys, value = [values[one] for one in tally.keys], 0 if tally.of is None else values[tally.of]
    if any(one is MISSING for one in (*keys, value)):
        return
    key: Any = tuple(keys) if len(keys) > 1 else keys[0] if keys else 0
    cell = table.cells.setdefault(key // int(tally.measure.step) if tally.measure.step else key, Cell())
    cell.add(value)
    cell.classes.update([class_of(value)] if tally.measure.classes else [])


@pytest.mark.parametrize("kind", FEATURES)
@pytest.mark.parametrize(
    ("by", "key"), [("", ""), ("a", ""), ("thread", ""), ("a,c", ""), ("", "a"), ("a,c", "c"), ("thread", "a,c")]
)
@pytest.mark.parametrize("tid", ["thread pointer", "kernel"])
def test_begins_and_ends_are_paired_where_they_come(
    program: Program, tmp_path: Path, kind: str, by: str, key: str, tid: str
) -> None:
    """As a stack pairs them, in one pass of many trampolines; one that doesn't pass or has no key has its place,
    too."""
    features, cpu = FEATURES[kind]
    made, words = random.Random(kind), code_aarch64.words(features)
    code, calls = evaluated.routines(words, TRAMPOLINES, CELL, program.own_number if tid != "kernel" else None)
    assert len(code) <= evaluated.ROUTINES_SIZE
    begin, site = TRAMPOLINES + len(code), program.symbols["site_all"]
    measure = Measure(by, classes=True, pair=("begin", "end"), key=key)
    table, pairs = RINGS, RINGS + tables.size(measure)
    hits = []
    for number in range(500):
        side = BEGIN if made.random() < (0.9 if number < 110 else 0.4) else END
        text, value = made.choice((("-8@x0", 0x0101010101010101), ("-8@-5", -5), ("-8@0", 0), ("-8@[x19]", None)))
        passes = made.random() < 0.7
        name, content = made.choice((("8@x2", b"a text"), ("8@x3", Unreadable(0x123456789ABCDEF)), ("8@x21", None)))
        operands = tuple(parse_one(one, EM_AARCH64) for one in (text, f"4@{3 + passes}", name))
        target = target_of(operands, (INTEGER, INTEGER, STRING))._replace(name=side)
        predicate = lower(Filter("b != 3"), target, operands)
        width = pair_width([measure], [target], STRING_SIZE)
        (tally,) = tallies([measure], target, operands, STRING_SIZE, width)
        where = 16 * made.randrange(4) * (number >= 110)
        around = Around(by_frame=tid == "kernel", offset=where + 8176)
        action = evaluated.Action(predicate, operands, COUNTERS, [(tally, table)], pairs, around=around)
        at = TRAMPOLINES + len(code)
        size = len(evaluated.trampoline(words, at, action, calls, at))
        assert size <= words.size + words.comparison_size * 4
        code += evaluated.trampoline(words, at, action, calls, at + size)
        hits.append((side, passes, where, {"a": value, "c": content}))
    code += struct.pack("<I", a64.branch(TRAMPOLINES + len(code), site + 4))
    assert len(code) < COUNTERS - TRAMPOLINES
    said, memory = program.run(tmp_path, code, {site: a64.branch(site, begin)}, cpu, "all")
    assert struct.unpack_from("<Q", memory, COUNTERS - TRAMPOLINES) == (500,)
    process, thread = map(int, said[1].split())
    paired = Paired(process if key else None)
    for side, passes, where, values in hits:
        both = None if values["a"] is None else tuple(values.values())
        apart = number_of(*(values[one] for one in key.split(",") if one))
        paired.hit(side, {**values, "": 0, "thread": thread, "a,c": both}[by], passes,
                   None if "a" in key and both is None else apart, where)  # fmt: skip
    behind = memory[1 << 21 :]
    found_pairs = tables.read_pairs(behind, tables.size(measure), keyed=bool(key))
    assert found_pairs == paired.unpaired
    assert paired.unpaired.deep or key
    assert paired.unpaired.without_begin
    place = tables.Place(0, measure, 0, keys_signed=True, width=width)
    keys = tables.read_keys(behind, tables.size(measure) + tables.PAIRS_SIZE, place) if width else ()
    read = tables.read(behind, 0, place, keys)
    assert {key: cell.count for key, cell in read.cells.items()} == paired.by_key
    assert all(cell.classes.total() == cell.count and 0 <= cell.least <= cell.most for cell in read.cells.values())


@pytest.mark.parametrize("kind", FEATURES)
def test_threads_pair_their_own_hits(program: Program, tmp_path: Path, kind: str) -> None:
    """Four threads pass one site again and again, which begins twice and ends twice each time."""
    features, cpu = FEATURES[kind]
    words, passes, site = code_aarch64.words(features), 2000, program.symbols["site_one"]
    code, calls = evaluated.routines(words, TRAMPOLINES, CELL, None)
    start = TRAMPOLINES + len(code)
    measure = Measure("a", classes=True, pair=("begin", "end"))
    operands = (parse_one("-8@x0", EM_AARCH64),)
    for number, side in enumerate((BEGIN, BEGIN, END, END)):
        tally = Tally(measure, (0,), None, side)
        action = evaluated.Action(True, operands, COUNTERS, [(tally, RINGS)], RINGS + tables.size(measure))
        at = TRAMPOLINES + len(code)
        size = len(evaluated.trampoline(words, at, action, calls, at))
        code += evaluated.trampoline(words, at, action, calls, site + 4 if number == 3 else at + size)
    said, memory = program.run(tmp_path, code, {site: a64.branch(site, start)}, cpu, "steady", str(passes))
    assert said
    behind = memory[1 << 21 :]
    assert tables.read_pairs(behind, tables.size(measure)) == Unpaired()
    read = tables.read(behind, 0, tables.Place(0, measure, 0, True))
    counts = Counter({key: cell.count for key, cell in read.cells.items()})
    assert counts.total() + read.others.count == 8 * passes
    assert set(counts.values()) == {8}  # the first 256 numbers, of four threads, each twice


def target_of(operands: Sequence[Operand], kinds: Sequence[str] = (INTEGER,) * 3) -> Target:
    """Return a probe with such arguments: a, b, c."""
    arguments = tuple(Argument("abc"[index], "", 8, False, kinds[index]) for index in range(len(operands)))
    return Target(0, PROBE, "app", "done", Module("", 0, "", EM_AARCH64), arguments, ())


def expression(made: random.Random, values: Sequence[Any], kinds: Sequence[str], depth: int = 0) -> str:
    """Return a random filter of arguments that have these values."""
    if depth < 3 and made.random() < 0.5:
        first, second = (expression(made, values, kinds, depth + 1) for _ in range(2))
        return made.choice((f"({first}) and ({second})", f"({first}) or ({second})", f"not ({first})"))
    index = made.randrange(3)
    if kinds[index] == STRING:
        literal = made.choice(('"a text"', '"a"', '"tail"', "NULL", '""'))
        pattern = made.choice(('"a te*"', '"tail"', '"tai*"', '"x*"', '"*"'))
        return made.choice((f"a == {literal}", f"{literal} != a", f"a =~ {pattern}"))
    if kinds[index] == FLOAT:
        number = made.choice((repr(values[index]), "0", "-1e300", "1e300", "0.5"))
        return f"{'abc'[index]} {made.choice(('==', '!=', '<', '<=', '>', '>='))} {number}"
    names = [name for name, kind in zip("abc", kinds) if kind == INTEGER]
    near = int(values[index]) + made.randrange(-1, 2)
    if made.random() < 0.25:
        mask = made.choice((near & (1 << 64) - 1 or 1, 1, 0xFF00, 1 << 63))
        compared = made.choice(("", f" == {near & mask}", f" != {near & mask}", " > 0", " < 255"))
        return f"{'abc'[index]} & {mask}{compared}"
    other = str(made.choice((near, near, near, 0, -1, 1 << 63, *names)))
    return f"{'abc'[index]} {made.choice(('==', '!=', '<', '<=', '>', '>='))} {other}"


@pytest.mark.parametrize("kind", FEATURES)
def test_a_full_ring_is_waited_for_once(program: Program, tmp_path: Path, kind: str) -> None:
    features, cpu = FEATURES[kind]
    site, patience = program.symbols["site_one"], 3_000_000  # a twentieth of a second, or less
    made = recording(site, 0, features, ("-8@x0", INTEGER), ("-8@x2", INTEGER), size=8, ring=1 << 12, patience=patience)
    _, memory, events, lost = program.record(tmp_path, made, site, cpu, "steady", "1000")
    assert lost
    assert len(events) + lost == 4000
    assert all(one.values[1] == 3 * one.values[0] for one in events)
    for ring in range(16):
        at = (1 << 21) + ring * made.shape.stride
        gone, waited = (struct.unpack_from("<Q", memory, at + place)[0] for place in (GONE, WAITED))
        used = {one.tid for one in events if one.tid & 15 == ring}
        assert gone == bool(used)
        assert waited >= patience * bool(used)


@pytest.mark.parametrize("kind", FEATURES)
@pytest.mark.parametrize("until", ["", "a == 700 and c < 0"])
def test_a_ring_keeps_the_last_records_whole_up_to_what_is_waited_for(
    program: Program, tmp_path: Path, kind: str, until: str
) -> None:
    features, cpu = FEATURES[kind]
    passes, site = 1000, program.symbols["site_one"]
    operands = [("-8@x0", INTEGER), ("-8@x2", INTEGER), ("-8@x3", INTEGER), ("8@x1", STRING)]
    made = recording(site, 0, features, *operands, size=8, ring=1 << 13, until=until)
    assert made.shape.slots == 64
    _, memory = program.run(tmp_path, made.code, {site: a64.branch(site, made.at)}, cpu, "steady", str(passes))
    (lost,) = struct.unpack_from("<Q", memory, COUNTERS - TRAMPOLINES)
    with mmap.mmap(-1, 16 * made.shape.stride) as data:
        data[:] = bytes(memory[1 << 21 : (1 << 21) + len(data)])
        rings = Kept(data, 0, made.shape, lambda start, size: True)
        pieces, stopped = [Piece(0, made.shape.slot, raw) for raw in rings.take(0)], rings.stopped()
        rings.close()
    if until:
        pieces = [one.between(0, stopped) for one in pieces]
    raw = b"".join(one.raw for one in pieces)
    events: list[Any] = Decoder(made.shape, [made.spec]).events(raw, lambda ticks: ticks)
    assert not lost
    assert all(one.values[1:] == (3 * one.values[0], ~one.values[0], b"a text") for one in events)
    for tid in {one.tid for one in events}:
        own = [one.values[0] for one in events if one.tid == tid]
        assert own == list(range(own[0], own[-1] + 1))
        assert until or own[-1] == passes - 1
    if until:
        assert stopped in [one.time for one in events if one.values[0] == 700]


def test_a_full_ring_loses_records_and_tells_how_many(program: Program, tmp_path: Path) -> None:
    features, cpu = FEATURES["exclusive"]
    site = program.symbols["site_one"]
    made = recording(site, 0, features, size=8, ring=1 << 12)
    _, _, events, lost = program.record(tmp_path, made, site, cpu, "steady", "1000")
    assert lost
    assert len(events) + lost == 4000
    assert max(Counter(one.tid & 15 for one in events).values()) == made.shape.slots


class Code:
    """A process' memory that the engine's search reads: one file's."""

    def __init__(self, path: Path) -> None:
        with path.open("rb") as file:
            self._segments = [(one["p_vaddr"], one.data()) for one in ELFFile(file).iter_segments("PT_LOAD")]

    def read(self, address: int, size: int) -> bytes:
        """Return what is there."""
        for start, data in self._segments:
            if start <= address < start + len(data):
                return bytes(data[address - start :][:size])
        return b""


def spots_of(program: Program, kind: str, *sites: tuple[int, tuple[str, ...]]) -> tuple[list[Spot], list[str]]:
    """Return which sites the engine would change, and why not the others."""
    module = Module(str(program.path), 0, "", EM_AARCH64)
    targets = [
        Target(
            number, kind, "", "twice", module, (), (Site(at, at, tuple(parse_one(one, EM_AARCH64) for one in texts)),)
        )
        for number, (at, texts) in enumerate(sites)
    ]
    memory: Any = Code(program.path)
    mirrors: Any = None
    spots, refusals = aarch64.find_spots(Plan(COUNT, tuple(targets)), memory, mirrors)
    return spots, [one.reason for one in refusals]


def test_calls_go_on_to_their_functions_from_stubs_and_from_call_sites(program: Program, tmp_path: Path) -> None:
    """Also with x16 and x17 as the dynamic linker wants them: the trampoline's own jump is made."""
    symbols = program.symbols
    spots, refused = spots_of(program, "call", (symbols["site_call"], ()), (symbols["site_stub"], ()))
    assert not refused
    assert [spot.changed_at for spot in spots] == [symbols["site_call"], symbols["site_stub"] + 16]
    features, cpu = FEATURES["exclusive"]
    code, words = b"", {}
    for number, spot in enumerate(spots):
        at = TRAMPOLINES + len(code)
        placed = aarch64.place(spot, at)
        assert not isinstance(placed, str)
        words[spot.changed_at] = int.from_bytes(placed[0].after, "little")
        assert isinstance(placed[2], Instruction)
        code += code_aarch64.count_trampoline(at, COUNTERS + 8 * number, placed[2], features)
    _, memory = program.run(tmp_path, code, words, cpu, "calls")
    assert struct.unpack_from("<2Q", memory, COUNTERS - TRAMPOLINES) == (1000, 1000)


def test_only_what_can_become_a_branch_does_and_the_reason_is_told(program: Program) -> None:
    symbols = program.symbols
    site = symbols["site_one"]
    spots, refused = spots_of(program, PROBE, (site, ()), (site, ()), (site - 4, ()), (site + 1, ()), (8, ()))
    assert [spot.site.address for spot in spots] == [site]
    assert refused[0] == "another probe is at the same place"
    assert refused[1].startswith("the instruction there is no NOP")
    assert len(refused) == 4
    assert refused[3] == "its code can't be read"
    _, refused = spots_of(program, "call", (site, ()))
    assert refused[0].startswith("the instructions there load no slot")
    assert aarch64.place(spots[0], site + (1 << 28)) == "there is no free memory near it"


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ((0xD4200100,), "a breakpoint is there already"),
        ((0x14000010,), "there is a branch already"),
        ((), "can't be read"),
    ],
)
def test_a_site_that_somebody_else_has_taken_is_left_alone(words: tuple[int, ...], reason: str) -> None:
    found = struct.pack(f"<{len(words)}I", *words)
    assert aarch64.word_of(found, call=False) is None
    assert reason in aarch64.why_not_free(found)


# Trampolines as linkers write them: bfd, with branch protection, with pointer authentication, with both; ILP32's is
# another.
STUBS_OF_LINKERS = {
    "plain": ("90000110 f947fe11 913fe210 d61f0220", 12),
    "bti": ("d503245f 90000110 f947fe11 913fe210 d61f0220", 16),
    "pac": ("90000110 f947fe11 913fe210 d503219f d61f0220", 16),
    "bti and pac": ("d503245f 90000110 f947fe11 913fe210 d503219f d61f0220", 20),
    "braa": ("90000110 f947fe11 913fe210 d71f0a30", 12),
    "short": ("90000110 f947fe11 d61f0220", 8),
}


@pytest.mark.parametrize("kind", STUBS_OF_LINKERS)
def test_of_a_stub_its_last_word_changes(kind: str) -> None:
    text, offset = STUBS_OF_LINKERS[kind]
    words = [int(word, 16) for word in text.split()]
    found = aarch64.word_of(struct.pack(f"<{len(words)}I", *words), call=True)
    assert found is not None
    assert found.offset == offset
    assert found.back == Instruction(words[-1])
    assert aarch64.word_of(struct.pack(f"<{len(words) - 1}I", *words[:-1]), call=True) is None
