"""Filters that are evaluated where the hit happens give the same answers as those that the tracer evaluates.

One corpus of expressions, measures and operands runs through both: `filters` and `measures` on the values that a
record would have, the machine code, which this process calls with registers, stack and memory as a site would have
them, and the programs of the engine inside (`library`).
"""

from __future__ import annotations

import contextlib
import ctypes
import math
import mmap
import os
import platform
import random
import re
import struct
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from usdtbuild.formats.operands import CONSTANT, MEMORY, REGISTER, Operand, parse_one
from usdtbuild.machines.numbers import EM_X86_64
from usdtbuild.machines.x86_64.host import HOST, NUMBERS, full_register
from usdtbuild.tracing import clock
from usdtbuild.tracing.filters import Filter, own_of
from usdtbuild.tracing.measures import Cell, Measure, Table, class_of
from usdtbuild.tracing.model import (
    COUNT,
    FLOAT,
    INTEGER,
    MISSING,
    POINTER,
    PROBE,
    RECORD,
    STRING,
    Argument,
    Cut,
    Event,
    Module,
    Target,
    Unreadable,
    Value,
    string,
)
from usdtbuild.tracing.patch import evaluated, tables, x86_64
from usdtbuild.tracing.patch.code import Back, Routines, Through
from usdtbuild.tracing.patch.shards import Shards
from usdtbuild.tracing.plan import Plan
from usdtbuild.tracing.predicates import BEGIN, END, Compare, Joined, NotHereError, Tally, lower, pair_width, tallies

from .library import Library
from .paired import SLOTS, Paired, number_of

MODULE = Module("/bin/app", 0, "", EM_X86_64)
WORDS, STACK, RED_ZONE = 48, 16, 32
TABLE_SIZE = 6 << 20
BLOCK = 16384 + TABLE_SIZE
STRING_SIZE = 64
TEXTS = (b"", b"h", b"hello", b"hello, world", b"help", b"\xff\x01", b"a text of sixteen", b"x" * 63, b"x" * 64,
         b"x" * 65, b"y" * 200, b"tail of a hel")  # fmt: skip
TAIL = TEXTS[-1]


def operands_of(text: str) -> tuple[Operand, ...]:
    return tuple(parse_one(one, EM_X86_64) for one in text.split())


def target_of(operands: Sequence[Operand], kinds: Sequence[str] = ()) -> Target:
    arguments = [
        Argument("abcdefgh"[index], "", one.size, one.signed, kinds[index] if kinds else INTEGER)
        for index, one in enumerate(operands)
    ]
    return Target(0, PROBE, "app", "done", MODULE, tuple(arguments), ())


class Machine:
    """Runs trampolines in this process, for threads that count together or, with `own`, each on their own.

    With `elsewhere` begins wait where a thread has a shard of another number."""

    def __init__(self, library: Path, *, own: bool, elsewhere: bool = False) -> None:
        loaded = ctypes.CDLL(str(library))
        self.library = Library(library.parent, STRING_SIZE)
        self._run = loaded.run_code
        self._run.argtypes, self._run.restype = [ctypes.c_void_p] * 3, None
        self.memory = mmap.mmap(-1, 2 * BLOCK + 8192, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
        self.at = ctypes.addressof(ctypes.c_char.from_buffer(self.memory))
        back = ctypes.cast(loaded.code_is_back, ctypes.c_void_p).value or 0
        self.slot, self.counter, self.data = self.at + 8192, self.at + 8200, self.at + 12288
        self.table = self.at + 16384
        self.memory[8192:8200] = struct.pack("<Q", back)
        number = threading.get_native_id().to_bytes(4, "little")
        thread = threading.get_ident()  # where its control block begins
        known = next((at for at in HOST.tids if ctypes.string_at(thread + at, 4) == number), None)
        self.shards: Shards | None = None
        if own:
            assert known is not None
            self.memory[8224:8232] = struct.pack("<Q", 1)
            self.shards = Shards(self.at + 10240, known, self.at + 8224, 1, BLOCK, 0)
        self.there, waiting = None, self.shards
        if elsewhere:
            assert known is not None
            self.memory[8232:8240] = struct.pack("<Q", 5)
            self.there, waiting = evaluated.THERE, Shards(self.at + 14336, known, self.at + 8232, 7, BLOCK, 0)
        self.counted_at = BLOCK * own
        made, self.calls = evaluated.routines(
            x86_64.WORDS, self.at, self.at + 8208, None, STRING_SIZE, shards=self.shards, waiting=waiting
        )
        assert len(made) <= evaluated.ROUTINES_SIZE
        self.memory[: len(made)] = made
        self._free, self.in_library = 2 * BLOCK, 0
        self.wild = 16  # nobody may map the first page
        self._pages = mmap.mmap(-1, 2 * mmap.PAGESIZE)  # of which the second can't be read
        pages = ctypes.addressof(ctypes.c_char.from_buffer(self._pages))
        assert not ctypes.CDLL(None).mprotect(ctypes.c_void_p(pages + mmap.PAGESIZE), mmap.PAGESIZE, 0)
        self.texts: dict[int, Value] = {0: None, self.wild: Unreadable(self.wild), 1 << 62: Unreadable(1 << 62)}
        at = 0
        for text in TEXTS:
            self._pages[at : at + len(text)] = text
            self.texts[pages + at] = string(text[:STRING_SIZE], STRING_SIZE)
            at += len(text) + 1
        self._pages[mmap.PAGESIZE - len(TAIL) : mmap.PAGESIZE] = TAIL
        self.texts.update({pages + mmap.PAGESIZE - size: Cut(TAIL[-size:]) for size in (1, 3, len(TAIL))})

    def fill(self, offset: int, data: bytes) -> None:
        """Put data where operands may point to."""
        self.memory[12288 + offset : 12288 + offset + len(data)] = data

    def read(self, tally: Tally, operands: Sequence[Operand]) -> Table:
        """Return what the table says, and empty it."""
        place = tables.Place(0, tally.measure, 0, *tally.signs(operands), tally.width, STRING_SIZE)
        found = tables.read(self.memory, self.counted_at + 16384, place)
        self.clear()
        return found

    def clear(self) -> None:
        """Empty all tables."""
        for start in (0, BLOCK):
            self.memory[start + 16384 : start + BLOCK] = bytes(TABLE_SIZE)

    def action(self, *words: Any) -> evaluated.Action:
        """Return what a trampoline does."""
        return evaluated.Action(*words)._replace(shards=self.shards, there=self.there)

    def runs(self, trampoline: Callable[[int, Routines, int, Back], bytes], state: Sequence[int]) -> int:
        """Run a trampoline with registers, stack and red zone; return how often it has counted. All else stays as it
        was."""
        made = trampoline(self.at + self._free, self.calls, self.counter, Through(self.slot))
        assert len(made) <= 4096
        self.memory[self._free : self._free + len(made)] = made
        for start in (0, BLOCK):
            self.memory[start + 8200 : start + 8208] = bytes(8)
        given, found = (ctypes.c_uint64 * WORDS)(*state), (ctypes.c_uint64 * WORDS)()
        self._run(self.at + self._free, ctypes.addressof(given), ctypes.addressof(found))
        changed = [index for index in range(WORDS) if index != NUMBERS["rsp"] and given[index] != found[index]]
        assert not changed, f"changed: {changed}\n{made.hex(' ')}"
        counts = [struct.unpack_from("<Q", self.memory, start + 8200)[0] for start in (self.counted_at, 0)]
        assert not self.shards or not counts[1]
        return int(counts[0])


@pytest.fixture(scope="module", params=["own", "together"])
def machine(request: Any, tmp_path_factory: pytest.TempPathFactory, need: Callable[[str], str]) -> Machine:
    if platform.machine() != "x86_64":
        pytest.skip("runs x86-64 code")
    library = tmp_path_factory.mktemp("run") / "run_code.so"
    source = Path(__file__).parent / "sources" / "run_code.S"
    subprocess.run([need("gcc"), "-shared", "-nostdlib", source, "-o", library], check=True)
    return Machine(library, own="own" in request.param, elsewhere="elsewhere" in request.param)


def value_of(operand: Operand, state: Sequence[int], machine: Machine, kind: str = INTEGER) -> Value:
    """Return what a record would say of an operand."""
    place, size = operand.place, operand.size
    if place.kind == CONSTANT:
        bits = place.displacement
    elif place.kind == REGISTER:
        found = full_register(place.register)
        assert found is not None
        bits = state[NUMBERS[found[0]]] >> found[1]
    elif place.kind == MEMORY and place.base == "rsp" and not place.index_register:
        stack = struct.pack("<16Q", *state[STACK : STACK + 16])
        bits = int.from_bytes(stack[place.displacement : place.displacement + size], "little")
    else:
        address = state[NUMBERS[place.base]] + place.displacement
        if place.index_register:
            address += place.scale * state[NUMBERS[place.index_register]]
        if not machine.data <= address < machine.data + 4096:
            return MISSING
        bits = int.from_bytes(ctypes.string_at(address, size), "little")
    bits &= (1 << 8 * size) - 1
    if kind == STRING:
        return machine.texts[bits]
    if kind == FLOAT:
        found_: float = struct.unpack("<d" if size == 8 else "<f", bits.to_bytes(size, "little"))[0]
        return found_
    return bits - (1 << 8 * size) if operand.signed and bits >> 8 * size - 1 else bits


def bits_of(operands: Sequence[Operand], state: Sequence[int], machine: Machine) -> list[int]:
    """Return what operands hold, all of which can be read."""
    return [int(str(value_of(one, state, machine))) & (1 << 64) - 1 for one in operands]


def agrees(
    text: str, operands: Sequence[Operand], state: Sequence[int], machine: Machine, kinds: Sequence[str] = ()
) -> bool:
    """Run a filter both ways; return what it says."""
    target = target_of(operands, kinds)
    wanted = Filter(text)
    values = tuple(value_of(one, state, machine, kind) for one, kind in zip(operands, kinds or (INTEGER,) * 9))
    event = Event(time.monotonic_ns(), os.getpid(), threading.get_native_id(), 0, values)
    expected = wanted.compile(target)(values, own_of(event))
    predicate = lower(wanted, target, operands)

    def trampoline(at: int, calls: Routines, counter: int, back: Back) -> bytes:
        action = machine.action(predicate, tuple(operands), counter)
        made = evaluated.trampoline(x86_64.WORDS, at, action, calls, back)
        plan = Plan(COUNT, (target,), where=wanted)
        assert len(made) <= x86_64.WORDS.most(plan, target, operands)
        return made

    def gated(at: int, calls: Routines, counter: int, back: Back) -> bytes:
        made = evaluated.gate(x86_64.WORDS, at, machine.action(predicate, tuple(operands), counter), calls, back)
        assert len(made) <= x86_64.WORDS.around(Plan(RECORD, (target,), where=wanted), target, operands)
        return made + x86_64.count_trampoline(at + len(made), counter, back, machine.shards, calls)

    for way in (trampoline, gated):
        assert machine.runs(way, state) == expected, (text, [one.text for one in operands], predicate)
    if MISSING not in values:
        plan, bits = Plan(COUNT, (target,), where=wanted), bits_of(operands, state, machine)
        found = machine.library.passes(plan, target, operands, bits)
        assert found in {expected, None}, (text, [one.text for one in operands], predicate)
        machine.in_library += found is not None
    return expected


EDGES = (0, 1, 2, 127, 128, 255, 256, 32767, 32768, 65535, 65536, (1 << 31) - 1, 1 << 31, (1 << 32) - 1, 1 << 32,
         (1 << 63) - 1, 1 << 63, (1 << 64) - 1)  # fmt: skip
REGISTERS = {
    1: ("al", "bl", "cl", "dl", "sil", "dil", "bpl", "r8b", "r15b", "ah", "ch", "dh", "bh"),
    2: ("ax", "cx", "dx", "si", "di", "r9w", "r13w", "bp"),
    4: ("eax", "ebx", "ecx", "edx", "esi", "edi", "ebp", "r8d", "r12d", "r15d"),
    8: ("rax", "rbx", "rcx", "rdx", "rsi", "rdi", "rbp", *(f"r{number}" for number in range(8, 16))),
}


class Generator:
    """Random operands, states and expressions."""

    def __init__(self, seed: int, machine: Machine) -> None:
        self.random, self.machine = random.Random(seed), machine

    def number(self) -> int:
        one = self.random.choice(EDGES) + self.random.randrange(-1, 2)
        return one if self.random.random() < 0.8 else self.random.getrandbits(self.random.choice((8, 16, 32, 64)))

    def state(self) -> list[int]:
        return [self.number() & (1 << 64) - 1 for _ in range(WORDS)]

    def operand(self, sizes: Sequence[int] = (1, 2, 4, 8), places: Sequence[str] = ()) -> str:
        size = self.random.choice(sizes)
        place = self.random.choice(places or ("register", "register", "stack", "memory", "indexed", "constant"))
        sign = self.random.choice(("", "-"))
        if place == "register":
            return f"{sign}{size}@%{self.random.choice(REGISTERS[size])}"
        if place == "stack":
            return f"{sign}{size}@{self.random.randrange(0, 128 - size)}(%rsp)"
        if place == "constant":
            return f"{sign}{size}@${self.random.choice((1, -1)) * (self.number() & (1 << 8 * size) - 1) >> 1}"
        base, index = self.random.sample([name for name in NUMBERS if name != "rsp"], 2)
        middle = f",%{index},{self.random.choice((1, 2, 4, 8))}" if place == "indexed" else ""
        return f"{sign}{size}@{self.random.randrange(0, 64)}(%{base}{middle})"

    def holds(self, operand: Operand, state: list[int], number: int) -> None:
        """Let an operand hold a number."""
        self.leads(operand, state)
        place, data = operand.place, number.to_bytes(operand.size, "little")
        if place.kind == REGISTER:
            found = full_register(place.register)
            if found is not None:
                state[NUMBERS[found[0]]] = number
        elif place.base == "rsp":
            stack = bytearray(struct.pack("<16Q", *state[STACK : STACK + 16]))
            stack[place.displacement : place.displacement + operand.size] = data
            state[STACK : STACK + 16] = struct.unpack("<16Q", stack)
        else:
            index = place.scale * state[NUMBERS[place.index_register]] if place.index_register else 0
            address = state[NUMBERS[place.base]] + place.displacement + index
            if address >= self.machine.data:
                self.machine.fill(address - self.machine.data, data)

    def leads(self, operand: Operand, state: list[int]) -> None:
        """Let the registers of an operand in memory lead to data, or nowhere."""
        place = operand.place
        if place.kind == MEMORY and place.base != "rsp":
            index = self.random.randrange(0, 64) if place.index_register else 0
            if place.index_register:
                state[NUMBERS[place.index_register]] = index
            good = self.machine.data + self.random.randrange(0, 2048)
            state[NUMBERS[place.base]] = good if self.random.random() < 0.8 else self.machine.wild

    def expression(self, names: str, depth: int = 0) -> str:
        if depth < 3 and self.random.random() < 0.5:
            word = self.random.choice(("and", "or", "not"))
            parts = [self.expression(names, depth + 1) for _ in range(1 if word == "not" else 2)]
            return f"not ({parts[0]})" if word == "not" else f"({f') {word} ('.join(parts)})"
        sign = self.random.choice(("==", "!=", "<", "<=", ">", ">="))
        left, right = self.random.choice(names), self.literal(names)
        if self.random.random() < 0.2:
            masked = f"{left} & {self.number() & (1 << 64) - 1 or 1}"
            right = self.literal(names[:1])
            return self.random.choice((masked, f"({masked})", f"{masked} {sign} {right}", f"{right} {sign} ({masked})"))
        return f"{left} {sign} {right}" if self.random.random() < 0.8 else f"{right} {sign} {left}"

    def literal(self, names: str) -> str:
        kind = self.random.random()
        if kind < 0.7:
            return str(self.random.choice((1, -1)) * self.number())
        if kind < 0.85 and len(names) > 1:
            return self.random.choice(names)
        return self.random.choice(("0.5", "-1.5", "4096.25", "1e300", "-1e300", "1e30", "2e9", "0x7f"))


@pytest.mark.parametrize("seed", range(8))
def test_random_filters_of_random_operands_say_the_same(seed: int, machine: Machine) -> None:
    made = Generator(seed, machine)
    machine.fill(0, made.random.randbytes(4096))
    answers = {True: 0, False: 0, None: 0}
    for _ in range(250):
        count = made.random.randrange(1, 4)
        operands = operands_of(" ".join(made.operand() for _ in range(count)))
        state = made.state()
        for operand in operands:
            made.leads(operand, state)
        try:
            answers[agrees(made.expression("abcdefgh"[:count]), operands, state, machine)] += 1
        except NotHereError:
            answers[None] += 1
    # Both answers come often enough to mean something, and little is left to the tracer.
    assert answers[True] > 50
    assert answers[False] > 50
    assert answers[None] < 60
    assert machine.in_library > 80


TEXT_PLACES, FLOAT_PLACES = ("register", "stack", "memory", "indexed"), ("stack", "memory", "indexed")
LITERALS = ('""', '"h"', '"hello"', '"help"', '"a text of sixteen"', '"\\xff\\x01"', f'"{"x" * 62}"', '"tail of a hel"',
            "NULL")  # fmt: skip
GLOBS = ('"*"', '"hel*"', '"hello*"', '"hello"', '"x*"', f'"{"x" * 63}*"', '"\\xff*"')
FLOATS = ("0", "-0.0", "0.1", "1", "-1", "1e-320", "inf", "-inf", "16777217", "9007199254740993", "3.5", "-2.25e10")


@pytest.mark.parametrize("seed", range(4))
def test_random_filters_of_texts_and_floating_point_numbers_say_the_same(seed: int, machine: Machine) -> None:
    made = Generator(seed, machine)
    answers = {True: 0, False: 0}

    def comparison() -> str:
        if made.random.random() < 0.1:
            name = made.random.choice(("thread", "process"))
            number = os.getpid() if name == "process" else threading.get_native_id()
            return f"{name} {made.random.choice(('==', '!=', '<', '>='))} {number + made.random.randrange(-1, 2)}"
        if made.random.random() < 0.1:
            sign, moment = made.random.choice(("==", "!=", "<", ">=")), made.random.choice(("-5", "0", "2h", "1e308"))
            return f"time {sign} {moment}" if made.random.random() < 0.5 else f"{moment} {sign} time"
        if made.random.random() < 0.5:
            if made.random.random() < 0.3:
                return f"a =~ {made.random.choice(GLOBS)}"
            one, other = "a", made.random.choice(LITERALS)
            one, other = (one, other) if made.random.random() < 0.8 else (other, one)
            return f"{one} {made.random.choice(('==', '!='))} {other}"
        name = made.random.choice("bc")
        return f"{name} {made.random.choice(('==', '!=', '<', '<=', '>', '>='))} {made.random.choice(FLOATS)}"

    for _ in range(300):
        texts = [f"8@{made.operand((8,), TEXT_PLACES).partition('@')[2]}", *(
            f"{size}f@{made.operand((size,), FLOAT_PLACES).partition('@')[2]}" for size in (8, 4))]  # fmt: skip
        operands, state = operands_of(" ".join(texts)), made.state()
        bases = [one.place.base for one in operands] + [one.place.index_register for one in operands]
        if len({name for name in bases if name not in ("", "rsp")}) < sum(name not in ("", "rsp") for name in bases):
            continue  # one register can't lead to two places
        for number, operand in enumerate(operands):
            bits = made.random.choice(list(machine.texts))
            if number:
                wanted = made.random.choice((*map(float, FLOATS), math.nan, -math.nan, 1e38, made.random.random()))
                with contextlib.suppress(OverflowError):
                    bits = int.from_bytes(struct.pack("<d" if number == 1 else "<f", wanted), "little")
                bits &= (1 << 8 * operand.size) - 1
            made.holds(operand, state, bits)
        text = comparison()
        while made.random.random() < 0.4:
            text = made.random.choice((f"not ({text})", f"({text}) and {comparison()}", f"{comparison()} or ({text})"))
        pointer = value_of(operands[0], state, machine)
        if pointer is not MISSING and pointer not in machine.texts:
            continue  # another operand has changed it
        answers[agrees(text, operands, state, machine, (STRING, FLOAT, FLOAT))] += 1
    assert min(answers.values()) > 40


@pytest.mark.parametrize("measure", [
    Measure("a"), Measure("a", "b"), Measure("b,a"), Measure("a,b,thread", "b", classes=True), Measure("process,a,a,b"),
    Measure("a", "b", classes=True),
], ids=str)  # fmt: skip
def test_texts_and_several_arguments_are_keys(measure: Measure, machine: Machine) -> None:
    made, kept = Generator(3, machine), 0
    for _ in range(30):
        operands = operands_of(f"8@{made.operand((8,), ('register', 'stack')).partition('@')[2]} {made.operand()}")
        states = [made.state() for _ in range(40)]
        for state in states:
            made.leads(operands[1], state)
            made.holds(operands[0], state, made.random.choice(list(machine.texts)))
        states = [one for one in states if value_of(operands[0], one, machine) in machine.texts]
        kinds = (STRING, INTEGER)
        hits = [[value_of(one[0], state, machine, one[1])
                 for one in zip(operands, kinds)] for state in states]  # fmt: skip
        found = adds_up(machine, measure, operands, states, kinds=kinds)
        assert found == reference(measure, hits), [one.text for one in operands]
        assert not found.others.count
        kept += len(found.cells)
    assert kept > 300


@pytest.mark.parametrize("end", ["page", "memory"])
def test_texts_are_copied_wherever_they_begin_and_end(end: str, machine: Machine) -> None:
    """Before, at and behind the end of a page, and up to where nothing can be read; behind them are other bytes."""
    pages = mmap.mmap(-1, 3 * mmap.PAGESIZE)
    start = ctypes.addressof(ctypes.c_char.from_buffer(pages))
    edge = (2 if end == "page" else 3) * mmap.PAGESIZE
    if end == "memory":
        edge -= mmap.PAGESIZE
        assert not ctypes.CDLL(None).mprotect(ctypes.c_void_p(start + edge), mmap.PAGESIZE, 0)
    operands, kinds = operands_of("8@%rdi"), (STRING,)
    (tally,) = tallies([Measure("a")], target_of(operands, kinds), operands, STRING_SIZE)

    def trampoline(at: int, calls: Routines, counter: int, back: Back) -> bytes:
        action = machine.action(True, operands, counter, [(tally, machine.table)])
        return evaluated.trampoline(x86_64.WORDS, at, action, calls, back)

    for size in (0, 1, 7, 8, 9, 21, 63, 64, 65, 80):
        expected = Counter[Value]()
        for begin in range(edge - 90, edge + (9 if end == "page" else 0)):
            text = bytes(33 + (begin + index) % 90 for index in range(size))
            there = (text + b"\0rest" + b"\xff" * 20)[: None if end == "page" else edge - begin]
            pages[begin : begin + len(there)] = there
            whole = there.partition(b"\0")[0]
            expected[string(whole[:STRING_SIZE], STRING_SIZE, is_cut=whole == there)] += 1
            machine.runs(trampoline, numbers_in_rdi([start + begin])[0])
        found = {key: cell.count for key, cell in machine.read(tally, operands).cells.items()}
        assert found == expected, size
        assert {(key, type(key)) for key in found} == {(key, type(key)) for key in expected}, size


@pytest.mark.parametrize("size", REGISTERS)
@pytest.mark.parametrize("sign", ["", "-"])
def test_each_register_of_each_size_is_compared_at_its_edges(size: int, sign: str, machine: Machine) -> None:
    made = Generator(size, machine)
    for register in REGISTERS[size]:
        operands = operands_of(f"{sign}{size}@%{register}")
        for comparison in ("==", "!=", "<", "<=", ">", ">="):
            state = made.state()
            value = value_of(operands[0], state, machine)
            assert isinstance(value, int)
            for constant in (value - 1, value, value + 1):
                agrees(f"a {comparison} {constant}", operands, state, machine)


def adds_up(
    machine: Machine, measure: Measure, operands: Sequence[Operand], states: Sequence[Sequence[int]], text: str = "",
    kinds: Sequence[str] = (),
) -> Table:  # fmt: skip
    """Add hits up by a trampoline; return what its table says."""
    target = target_of(operands, kinds)
    plan = Plan(COUNT, (target,), where=Filter(text) if text else None, measures=(measure,))
    predicate, (tally,) = evaluated.asked(plan, target, operands)

    def trampoline(at: int, calls: Routines, counter: int, back: Back) -> bytes:
        action = machine.action(predicate, tuple(operands), counter, [(tally, machine.table)])
        made = evaluated.trampoline(x86_64.WORDS, at, action, calls, back)
        assert len(made) <= x86_64.WORDS.most(plan, target, operands)
        return made

    for state in states:
        machine.runs(trampoline, state)
    found = machine.read(tally, operands)
    if not any(value_of(one, state, machine) is MISSING for one in operands for state in states):
        bits = [bits_of(operands, state, machine) for state in states]
        with contextlib.suppress(NotHereError):
            assert machine.library.adds_up(plan, target, operands, bits) == found, [one.text for one in operands]
            machine.in_library += 1
    return found


def reference(measure: Measure, hits: Sequence[Sequence[Value]]) -> Table:
    """Add up the values of a and b as the tracer would."""
    found = Table({}, Cell())
    for values in hits:
        numbers = {**dict(zip("ab", values)), "thread": threading.get_native_id(), "process": os.getpid()}
        keys = [numbers[name] for name in measure.by.split(",") if name not in ("", "probe")]
        value = numbers[measure.of] if measure.of else 0
        if any(key is MISSING for key in (*keys, value)):
            continue
        assert isinstance(value, int)
        key: Any = tuple(keys) if len(keys) > 1 else keys[0] if keys else 0
        key = key // measure.step if measure.step else key
        cell = found.cells.setdefault(key, Cell())
        cell.add(value)
        cell.classes.update([class_of(value)] if measure.classes else [])
    return found


MEASURES = [Measure("a"), Measure("a", "b"), Measure("", "b"), Measure("", "b", classes=True),
            Measure("a", "b", classes=True), Measure("b", "b", 1000), Measure("b", "b", (1 << 63) - 1),
            Measure("a,b"), Measure("b,a", "b"), Measure("probe,a,b", "a", classes=True), Measure("a,thread", "b"),
            Measure("thread,b", "a"), Measure("probe,a"), Measure("probe", "b")]  # fmt: skip


@pytest.mark.parametrize("measure", MEASURES, ids=str)
def test_random_hits_add_up_to_the_same(measure: Measure, machine: Machine) -> None:
    made = Generator(11, machine)
    kept = 0
    for _ in range(40):
        operands = operands_of(" ".join(made.operand() for _ in range(2)))
        machine.fill(0, made.random.randbytes(4096))
        states = [made.state() for _ in range(12)]
        states += states[:4]
        for state in states:
            for operand in operands:
                made.leads(operand, state)
        text = made.random.choice(("", "a >= 0", made.expression("ab")))
        hits = [[value_of(one, state, machine) for one in operands] for state in states]
        passes = Filter(text).compile(target_of(operands)) if text else bool
        try:
            found = adds_up(machine, measure, operands, states, text)
        except NotHereError:
            continue
        assert found == reference(measure, [hit for hit in hits if passes(hit)]), [one.text for one in operands]
        kept += len(found.cells)
    assert kept > 30


@pytest.mark.parametrize(
    "operand", ["8@%rax", "8@%rdi", "-4@%esi", "1@%ah", "-1@%r9b", "2@2(%rsp)", "8@(%rbx)", "4@$5", "-2@$65535"]
)
def test_values_are_counted_each_in_its_place(operand: str, machine: Machine) -> None:
    made = Generator(7, machine)
    (parsed,) = operands_of(operand)
    states: list[Any] = []
    for number in range(600):
        state = made.state()
        machine.fill(0, made.random.randbytes(2100))
        if number % 3:
            state[:] = states[-1]
        made.leads(parsed, state)
        states.append(state)
    machine.fill(0, bytes(range(256)) * 9)
    values = [value_of(parsed, state, machine) for state in states]
    expected = Counter(value for value in values if value is not MISSING)
    found = adds_up(machine, Measure("a"), [parsed], states)
    assert not found.others.count
    assert {key: cell.count for key, cell in found.cells.items()} == expected


def numbers_in_rdi(numbers: Sequence[int]) -> list[list[int]]:
    """Return states with these numbers in rdi, and 0 elsewhere."""
    return [[0] * NUMBERS["rdi"] + [number] + [0] * (WORDS - NUMBERS["rdi"] - 1) for number in numbers]


def test_only_what_passes_is_counted_by_value(machine: Machine) -> None:
    found = adds_up(machine, Measure("a"), operands_of("8@%rdi"), numbers_in_rdi(range(100)), "a >= 90 or a == 0")
    assert {key: cell.count for key, cell in found.cells.items()} == dict.fromkeys((0, *range(90, 100)), 1)


@pytest.mark.parametrize(("classes", "room"), [(False, 4096), (True, 256)])
def test_a_full_table_counts_the_rest_together(classes: bool, room: int, machine: Machine) -> None:
    made = random.Random(3)
    numbers = [made.getrandbits(63) for _ in range(10_000)]
    measure = Measure("a", "a", classes=classes)
    found = adds_up(machine, measure, operands_of("8@%rdi"), numbers_in_rdi(numbers))
    cells = [*found.cells.values(), found.others]
    assert sum(cell.count for cell in cells) == 10_000
    assert sum(cell.total for cell in cells) == sum(numbers)
    assert 0.95 * room < len(found.cells) <= room
    assert set(found.cells) <= set(numbers)


@pytest.mark.parametrize("machine", ["own", "together", "own, elsewhere", "together, elsewhere"], indirect=True)
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    ("by", "key"),
    [*((by, "") for by in ("", "a", "thread", "c", "a,c", "c,thread")),
     ("", "a"), ("thread", "a"), ("a,c", "a"), ("a", "c"), ("", "a,c"), ("c,thread", "c,a,process")],
)  # fmt: skip
def test_random_begins_and_ends_are_paired(by: str, key: str, seed: int, machine: Machine) -> None:
    """As a stack pairs them, the thread's or its key's; each that doesn't pass, or has no key, takes its place there.
    A handler of a signal, or a thread that was killed, may have left a slot with an owner, and nothing else."""
    choice, operands = random.Random(seed), operands_of("-8@(%rdi) 4@%esi 8@%rdx")
    measure = Measure(by, classes=True, pair=("begin", "end"), key=key)
    process = os.getpid()
    tally, hits, taken = {}, [], []
    target = target_of(operands, (INTEGER, INTEGER, STRING))
    both = [target._replace(name=side) for side in (BEGIN, END)]
    width = pair_width([measure], both, STRING_SIZE)
    assert bool(width) == ("c" in by)
    for one in both:
        (tally[one.name],) = tallies([measure], one, operands, STRING_SIZE, width)
    predicate = lower(Filter("b != 3"), target, operands)
    pairs = machine.table + tables.size(measure)
    for left in range(16384) if key else ():
        if choice.random() < 0.1:
            struct.pack_into("<Q", machine.memory, pairs - machine.at + 64 + 64 * left + 8, process)
            bucket = left // 64
            taken += [bucket] if (left - bucket) % 64 < SLOTS else []
    paired, in_library = Paired(process if key else None, taken), Paired(process if key else None)
    for number in range(600):
        side = BEGIN if choice.random() < (0.9 if number < 120 else 0.4) else END
        value, status, readable = choice.choice((-5, 0, 7, 1 << 40)), choice.randrange(5), choice.random() < 0.8
        machine.fill(0, struct.pack("<q", value))
        state = [choice.getrandbits(64) for _ in range(WORDS)]
        state[NUMBERS["rdi"]], state[NUMBERS["rsi"]] = machine.data if readable else machine.wild, status
        state[NUMBERS["rdx"]] = pointer = choice.choice(list(machine.texts))

        words = x86_64.WORDS._replace(saved=x86_64.WORDS.saved + (where := 16 * choice.randrange(4) * (number >= 120)))

        def trampoline(
            at: int, calls: Routines, counter: int, back: Back, side: str = side, words: evaluated.Words = words
        ) -> bytes:
            action = machine.action(predicate, operands, counter, [(tally[side], machine.table)], pairs)
            made = evaluated.trampoline(words, at, action, calls, back)
            assert len(made) <= words.size + words.comparison_size * 8
            return made

        assert machine.runs(trampoline, state) == 1
        thread, text = threading.get_native_id(), machine.texts[pointer]
        own = {"": 0, "a": value, "thread": thread, "c": (text,), "a,c": (value, text), "c,thread": (text, thread)}[by]
        values = {"a": value, "c": text, "process": process}
        apart = number_of(*(values[one] for one in key.split(",") if one))
        paired.hit(side, own if readable or "a" not in by.split(",") else None, status != 3,
                   apart if readable or "a" not in key else None, where)  # fmt: skip
        in_library.hit(side, own, status != 3, apart, where)
        hits.append((side, where, (value & (1 << 64) - 1, status, pointer)))
    found_pairs = tables.read_pairs(machine.memory, 16384 + tables.size(measure), keyed=bool(key))
    place = tables.Place(0, measure, 0, keys_signed=True, width=width, string_size=STRING_SIZE)
    keys: Any = tables.read_keys(machine.memory, pairs - machine.at + tables.PAIRS_SIZE, place) if width else ()
    keys = [(one,) if by == "c" and one != () else one for one in keys]
    table = tables.read(machine.memory, machine.counted_at + 16384, place, keys)
    machine.clear()
    assert found_pairs == paired.unpaired
    assert not machine.there or machine.memory[8232] == 4  # somebody has taken a shard there
    assert {key: cell.count for key, cell in table.cells.items()} == paired.by_key
    assert all(cell.classes.total() == cell.count and cell.least <= cell.most for cell in table.cells.values())
    action = evaluated.Action(predicate, operands, 0)
    found_pairs, other = machine.library.pairs(measure, action, tally, place, hits)
    assert found_pairs == in_library.unpaired
    by_key = {(key,) if by == "c" else key: cell.count for key, cell in other.cells.items()}
    assert by_key == in_library.by_key


@pytest.mark.parametrize(("classes", "room"), [(False, 4096), (True, 256)])
def test_a_table_full_of_texts_counts_the_rest_together(classes: bool, room: int, machine: Machine) -> None:
    names = [b"/page/%d" % number for number in range(10_000)]
    text = ctypes.create_string_buffer(64)
    operands = operands_of("8@%rdi 8@%rsi")
    target = target_of(operands, (STRING, INTEGER))
    (tally,) = tallies([measure := Measure("a", "b", classes=classes)], target, operands, STRING_SIZE)
    state = [0] * WORDS
    state[NUMBERS["rdi"]] = ctypes.addressof(text)

    def trampoline(at: int, calls: Routines, counter: int, back: Back) -> bytes:
        action = machine.action(True, operands, counter, [(tally, machine.table)])
        return evaluated.trampoline(x86_64.WORDS, at, action, calls, back)

    for number, name in enumerate(names):
        text.value, state[NUMBERS["rsi"]] = name, number
        machine.runs(trampoline, state)
    found = machine.read(tally, operands)
    cells = [*found.cells.values(), found.others]
    assert sum(cell.count for cell in cells) == 10_000
    assert sum(cell.total for cell in cells) == sum(range(10_000))
    assert 0.95 * room < len(found.cells) <= room
    assert all(names[int(cell.total)] == name for name, cell in found.cells.items())
    assert measure.by == "a"


def test_a_key_that_is_being_written_gets_another_cell(machine: Machine) -> None:
    """As by a handler of a signal that comes then, and after a thread was killed there."""
    operands, kinds = operands_of("8@%rdi"), (STRING,)
    pointer = next(pointer for pointer, text in machine.texts.items() if text == b"hello")
    (tally,) = tallies([Measure("a")], target_of(operands, kinds), operands, STRING_SIZE)
    state = numbers_in_rdi([pointer])[0]

    def trampoline(at: int, calls: Routines, counter: int, back: Back) -> bytes:
        action = machine.action(True, operands, counter, [(tally, machine.table)])
        return evaluated.trampoline(x86_64.WORDS, at, action, calls, back)

    machine.runs(trampoline, state)
    start = machine.counted_at + 16384
    hashes = [struct.unpack_from("<Q", machine.memory, start + 64 * index)[0] for index in range(4096)]
    (taken,) = (index for index, one in enumerate(hashes) if one)
    at = start + 64 * taken
    machine.memory[at : at + 8] = struct.pack("<Q", hashes[taken] | 1)
    machine.runs(trampoline, state)
    machine.memory[at : at + 8] = struct.pack("<Q", hashes[taken])
    machine.runs(trampoline, state)
    assert [machine.memory[start + 64 * index + 8] for index in (taken, taken + 1)] == [2, 1]
    assert {key: cell.count for key, cell in machine.read(tally, operands).cells.items()} == {b"hello": 3}


@pytest.mark.parametrize(("operand", "number"), [("8@%rdi", (1 << 64) - 1), ("-8@%rdi", 1 << 63), ("-8@%rdi", 1)])
def test_a_sum_does_not_overflow(operand: str, number: int, machine: Machine) -> None:
    (parsed,) = operands_of(operand)
    states = numbers_in_rdi([number] * 300)
    value = value_of(parsed, states[0], machine)
    assert isinstance(value, int)
    (cell,) = adds_up(machine, Measure("", "a"), [parsed], states).cells.values()
    assert (cell.count, cell.total, cell.least, cell.most) == (300, 300 * value, value, value)


def test_each_value_at_an_edge_of_a_class_is_in_it(machine: Machine) -> None:
    edges = {(sign * ((eighth << power) + near)) & (1 << 64) - 1
             for power in range(60) for eighth in range(8, 16) for near in (-1, 0) for sign in (1, -1)}  # fmt: skip
    states = numbers_in_rdi(sorted(edges))
    for operand in ("8@%rdi", "-8@%rdi"):
        (parsed,) = operands_of(operand)
        (cell,) = adds_up(machine, Measure("", "a", classes=True), [parsed], states).cells.values()
        values = [value_of(parsed, state, machine) for state in states]
        assert cell.classes == Counter(class_of(value) for value in values if isinstance(value, int))


@pytest.mark.parametrize("measure", MEASURES, ids=str)
def test_a_table_that_the_program_has_written_over_is_read(measure: Measure) -> None:
    size = tables.size(measure)
    for data in (random.Random(5).randbytes(size), b"\xff" * size):
        second = True if measure.by.count(",") else None
        found = tables.read(bytearray(data), 0, tables.Place(0, measure, 0, True, True, second))
        assert len(found.cells) <= 4097
        if measure.by:
            words = struct.pack("<QQ", 1 << 2 | tables.TEXT, 40) + bytes(64)
            for more in (random.Random(7).randbytes(80 * 4098), words * 4098, words[:8] * 41 * 1000):
                wide = tables.Place(0, measure, 0, width=80)
                found = tables.read(bytearray(data + more.ljust(80 * 4098, b"\1")), 0, wide)
                assert len(found.cells) <= 4097
        assert all(0 < cell.count < 1 << 90 and abs(cell.total) < 1 << 140 for cell in found.cells.values())


def test_what_can_not_be_read_passes_no_comparison(machine: Machine) -> None:
    operands = operands_of("8@(%rbx) 4@%edi")
    state = [0] * WORDS
    state[NUMBERS["rbx"]] = machine.wild
    for text in ("a == 0", "a != 0", "not a == 0", "a < 1e30", "not (a < 0 or b == 1)", "a == b", "b == a"):
        assert not agrees(text, operands, state, machine), text
    assert agrees("a == 0 or b == 0", operands, state, machine)


def test_a_register_against_a_constant_saves_nothing() -> None:
    operands = operands_of("-4@%edi 8@%rsi")
    predicate = lower(Filter("a < 2048 and b != NULL"), target_of(operands, (INTEGER, POINTER)), operands)
    action = evaluated.Action(predicate, operands, 0x2000)
    made = evaluated.trampoline(x86_64.WORDS, 0x1000, action, {}, 0x3000)
    assert len(made) == 6 + 6 + 7 + 6 + 8 + 5 + 5  # cmp, jcc, cmp, jcc, lock inc, jmp, jmp


@pytest.mark.parametrize(
    ("text", "operands", "expected"),
    [
        ("a < 5", "-4@%edi", Compare(0, "<", 5, signed=True)),
        ("5 < a", "-4@%edi", Compare(0, ">", 5, signed=True)),
        ("not a < 5", "4@%edi", Compare(0, ">=", 5)),
        ("a > 4.5", "4@%edi", Compare(0, ">", 4)),
        ("a < 4.5", "4@%edi", Compare(0, "<=", 4)),
        ("a == 4.5", "4@%edi", False),
        ("a != 4.5", "4@%edi", Compare(0, ">=", 0)),
        ("a == 300", "1@%dil", False),
        ("a < -1 or b == 2", "1@%dil 4@%esi", Compare(1, "==", 2)),
        ("a == 7", "4@$7", True),
        ("a == b", "4@%edi 8@%rsi", Compare(0, "==", other=1)),
        ("a == -1", "-4@$-1", True),
        ("thread != -1", "4@%edi", Compare(-1, ">=", 0)),
        ("5 < process", "4@%edi", Compare(-2, ">", 5)),
        ("time > 1s", "4@%edi", Compare(-3, ">", 1_000_000_005)),
        ("not 250ms < time", "4@%edi", Compare(-3, "<=", 250_000_005)),
        ("time >= -1", "4@%edi", Compare(-3, ">=", 0)),
        ("a <= 1", "8f@%xmm0", Compare(0, "<=", 0x3FF << 52, signed=True, floating=True)),
        ("a < 0.1", "4f@%xmm0", Compare(0, "<", 0x3DCCCCCD, signed=True, floating=True)),
        ("a > -inf", "4f@%xmm0", Compare(0, ">", ~0x7F800000, signed=True, floating=True)),
        ("a & 6 == 2", "-4@%edi", Compare(0, "==", 2, mask=6)),
        ("not (a & 6)", "-4@%edi", Compare(0, "==", 0, mask=6)),
        ("2 < (a & 6)", "4@%edi", Compare(0, ">", 2, mask=6)),
        ("a & 6 == 8", "4@%edi", False),
        ("a & 6 > -1", "-4@%edi", Compare(0, ">=", -(1 << 31), signed=True)),
        ("a & 6", "-4@$-8", False),
        ("a & 8", "-4@$-8", True),
        ("thread & 1", "4@%edi", Compare(-1, "!=", 0, mask=1)),
        ("a == 1", "4@nonsense!", False),
        ("not a == 1", "4@nonsense!", False),
        ("a == 1 and b == 2 or c == 3", "4@%edi 4@%esi 4@%edx",
         Joined("or", (Joined("and", (Compare(0, "==", 1), Compare(1, "==", 2))), Compare(2, "==", 3)))),
    ],
)  # fmt: skip
def test_a_filter_is_lowered(text: str, operands: str, expected: object) -> None:
    found, wanted = operands_of(operands), Filter(text)
    wanted.begun = 5
    assert lower(wanted, target_of(found), found) == expected


@pytest.mark.parametrize(
    ("text", "operands", "kind", "why"),
    [
        ('a < "x"', "8@%rdi", STRING, "a is a string, and compared with what is less or greater"),
        ('a =~ "x*y"', "8@%rdi", STRING, "a is a string, and the pattern is more than how it begins"),
        (f'a == "{"x" * 64}"', "8@%rdi", STRING, "a is a string, and what it is compared with has more than 64 bytes"),
        ("a == b", "8@%rdi 8@%rsi", STRING, "a is a string, and compared with b"),
        ("a > b", "8f@%xmm0 8f@%xmm1", FLOAT, "only two integers"),
        ("a == thread", "4@%edi", INTEGER, "only two integers"),
        ("a > b", "8@%rdi -4@%esi", INTEGER, "signed number is compared"),
    ],
)
def test_what_machine_code_has_no_words_for_is_left_to_the_tracer(
    text: str, operands: str, kind: str, why: str
) -> None:
    found = operands_of(operands)
    with pytest.raises(NotHereError, match=why):
        lower(Filter(text), target_of(found, [kind] * len(found)), found)


def test_moments_are_where_the_processors_clock_will_be() -> None:
    ticks, at = clock.now()
    ahead, behind = (clock.ticks_at(at + seconds * 1_000_000_000) for seconds in (100, -100))
    assert abs(ahead - ticks - (ticks - behind)) < (ahead - ticks) // 10_000
    assert abs((ahead - ticks) / 100 - clock.rate()) < clock.rate() / 50
    assert (clock.ticks_at(0 - (1 << 80)), clock.ticks_at(1 << 80)) == (0, (1 << 64) - 1)


# -- through the command, in a program that runs as fast as it can -----------------------------------------------------

ROUNDS, THREADS = 300_000, 4


@pytest.mark.parametrize(
    ("probe", "text", "passes"),
    [
        ("ints", "f < 5000", lambda i: i < 5000),
        ("ints", "a == -3 and b == 3 or not (f != 77)", lambda i: i % 256 == 3 or i == 77),
        ("ints", "c == e", lambda i: i < 32769),
        ("ints", "d > 65000.5", lambda i: i % 65536 > 65000),
        ("wide", "b >= 0x10000000000000 or e == NULL", lambda i: i >= 4096),
        ("wide", "a < -299998", lambda i: i > 299998),
        ("text", "length < 0", lambda i: i % 7 > 3),
        ("text", 'what == "hello" or what =~ "a text*"', lambda i: i % 7 in (1, 2)),
        ("text", 'not (what != "" and what != NULL)', lambda i: i % 7 in (0, 4)),
        ("wide", "c > 100.25 and d <= 1000.5", lambda i: 401 < i < 2002),
        ("eight", "h == 0x200000000 or g != -7", lambda i: i == 1),
        ("guarded", "round >= 299999", lambda i: i >= 299999),
        ("last", "sum != 3", lambda i: False),
        ("ints", "f & 7 == 3 or a & 0x80", lambda i: i & 7 == 3 or -i & 0x80 != 0),
    ],
)
def test_counts_of_what_passes_are_exact_at_full_speed(
    probe: str, text: str, passes: Callable[[int], bool], scene: Any, counted: Any
) -> None:
    counts, printed = counted("-P", f"scene:{probe}", "--filter", text, "--", scene("pie"), ROUNDS, THREADS)
    assert counts == {f"scene:{probe}": THREADS * sum(map(passes, range(ROUNDS)))}
    assert "wrong=0" in printed


@pytest.mark.parametrize(
    ("probe", "text", "passes"),
    [
        ("ints", "f < 500 and a != -3", lambda i: i < 500 and i % 256 != 3),
        ("wide", "a < -299000 or b == 0", lambda i: i > 299000 or i == 0),
        ("guarded", "round >= 299999", lambda i: i >= 299999),
    ],
)
def test_of_hits_that_do_not_pass_no_record_comes(
    probe: str, text: str, passes: Callable[[int], bool], scene: Any, traced: Any
) -> None:
    """So none are lost, however many there are."""
    done = traced("-v", "-P", f"scene:{probe}", "--filter", text, "--buffer", 1, "--", scene("pie"), ROUNDS, THREADS)
    assert done.count() == {f"scene:{probe}": THREADS * sum(map(passes, range(ROUNDS)))}
    assert "lost" not in done.errors
    assert "wrong=0" in "".join(done.output)


def test_a_count_goes_on_with_what_only_the_tracer_can_try(scene: Any, counted: Any, run: Any) -> None:
    counts, _ = counted("-P", "scene:text", "--filter", 'what =~ "*llo"', "--", scene("pie"), 70, 2)
    assert counts == {"scene:text": 20}
    done = run(
        sys.executable, "-m", "usdtbuild", "trace", "-v", "--count", "-P", "scene:text", "--filter", 'what =~ "*llo"',
        "--", scene("pie"), 70, 2,
    )  # fmt: skip
    assert "scene:text: arguments are evaluated after the hit: what is a string, and the pattern is" in done.stderr


@pytest.mark.parametrize("engine", ["auto", "patch", "trap"])
def test_every_engine_counts_what_passes(engine: str, scene: Any, counted: Any) -> None:
    wanted = "-P", "scene:ints", "-P", "scene:eight", "--engine", engine, "--filter"
    counts, _ = counted(*wanted, "a > -3 and a <= 0 or b == 2", "--", scene("pie"), 10, 2)
    assert counts == {"scene:ints": 6, "scene:eight": 20}
    counts, _ = counted(*wanted, "b == 2 and time < 1h or time > 2h", "--", scene("pie"), 10, 2)
    assert counts == {"scene:ints": 2, "scene:eight": 20}
    counts, _ = counted(*wanted, "(b & 6) == 2 and f & 3", "--", scene("pie"), 10, 2)
    assert counts == {"scene:ints": 4, "scene:eight": 20}


def test_a_limit_counts_what_passes(scene: Any, counted: Any) -> None:
    counts, _ = counted("-P", "scene:ints", "--filter", "f >= 1000", "--limit", 5, "--", scene("pie"), 20_000_000, 1)
    assert 5 <= counts["scene:ints"] < 20_000_000 - 1000


@pytest.mark.slow
@pytest.mark.parametrize("threads", [1, 8])
def test_of_many_hits_none_is_lost(threads: int, scene: Any, counted: Any) -> None:
    """As fast as a program can, traced without rights."""
    rounds = 20_000_000 // threads
    counts, shown = counted("-P", "scene:ints", "--filter", "f >= 1000", "--", scene("pie"), rounds, threads)
    assert counts == {"scene:ints": 20_000_000 - 1000 * threads}
    assert "lost" not in shown


def columns(text: str) -> dict[str, tuple[int, ...]]:
    """Return the rows of a table of --by --sum: hits, sum, least and greatest by key."""
    rows = re.findall(r"^ +([0-9]+) +(-?[0-9]+) +\S+ +(-?[0-9]+) +(-?[0-9]+)  (\S+)$", text, re.MULTILINE)
    return {shown: tuple(map(int, numbers)) for *numbers, shown in rows}


@pytest.mark.parametrize(
    ("of", "by", "value", "key"),
    [
        ("f", "b", lambda i: i, lambda i: i % 256),
        ("a", "b", lambda i: (-i + 128) % 256 - 128, lambda i: i % 256),
        ("d", "a", lambda i: i % 65536, lambda i: (-i + 128) % 256 - 128),
    ],
)
def test_sums_by_key_are_exact_at_full_speed(
    of: str, by: str, value: Callable[[int], int], key: Callable[[int], int], scene: Any, run: Any,
    unprivileged: list[str],
) -> None:  # fmt: skip
    wanted: dict[str, list[int]] = {}
    for i in range(ROUNDS):
        wanted.setdefault(str(key(i)), []).append(value(i))
    words = *unprivileged, sys.executable, "-m", "usdtbuild", "trace", "-P", "scene:ints"
    done = run(*words, "--top", 2000, "--by", by, "--sum", of, "--", scene("pie"), ROUNDS, THREADS)
    assert columns(done.stdout) == {
        shown: (THREADS * len(values), THREADS * sum(values), min(values), max(values))
        for shown, values in wanted.items()
    }
    assert "lost" not in done.stderr
    done = run(*words, "--sum", of, "--by", "thread", "--", scene("pie"), ROUNDS, THREADS)
    values = [value(i) for i in range(ROUNDS)]
    assert list(columns(done.stdout).values()) == [(ROUNDS, sum(values), min(values), max(values))] * THREADS
    done = run(*words, "--sum", of, "--", scene("pie"), ROUNDS, THREADS)
    assert f"{THREADS * ROUNDS} hits, sum {THREADS * sum(values)}, mean" in done.stdout
    assert f"min {min(values)}, max {max(values)}\n" in done.stdout


@pytest.mark.parametrize("engine", ["patch", "trap"])
def test_every_engine_adds_up(engine: str, scene: Any, run: Any) -> None:
    words = sys.executable, "-m", "usdtbuild", "trace", "-P", "scene:eight", "--engine", engine
    done = run(*words, "--sum", "h", "--by", "g", "--histogram", "a", "--", scene("pie"), 40, 2)
    assert columns(done.stdout) == {"-7": (80, 2 * sum(range(40)) << 33, 0, 39 << 33)}
    assert "    80  19.5    0   18   33   37   39  -7\n" in done.stdout
    done = run(*words, "-v", "--histogram", "a", "--", scene("pie"), 40, 2)
    assert ("evaluated after the hit: the engine trap records hits" in done.stderr) == (engine == "trap")
    assert "p50 18  p90 33  p99 37  max 39\n" in done.stdout
    assert re.search(r"^ +\[8, 16\) +16  #", done.stdout, re.MULTILINE)
    done = run(*words, "--by", "process", "--", scene("pie"), 40, 2)
    assert list(by_value(done.stdout).values()) == [80]


@pytest.mark.parametrize("wanted", ["f", "a", "f,1000", "a,7"])
def test_distributions_are_exact_at_full_speed(wanted: str, scene: Any, run: Any, unprivileged: list[str]) -> None:
    name, _, step = wanted.partition(",")
    values = [i if name == "f" else (-i + 128) % 256 - 128 for i in range(ROUNDS)]
    words = *unprivileged, sys.executable, "-m", "usdtbuild", "trace", "-P", "scene:ints", "--histogram", wanted
    done = run(*words, "--", scene("pie"), ROUNDS, THREADS)
    rows = re.findall(r"^ +[\[(](-?[0-9]+), (-?[0-9]+)[\])] +([0-9]+)", done.stdout, re.MULTILINE)
    found = {(int(low), int(high)): int(count) for low, high, count in rows if count != "0"}
    if step:
        expected = Counter((value // int(step) * int(step), (value // int(step) + 1) * int(step)) for value in values)
    else:
        bounds = {bits: (1 << bits >> 1, 1 << bits) for bits in range(20)}
        classes = Counter((value >= 0, abs(value).bit_length()) for value in values)
        expected = Counter({
            bounds[bits] if positive else (-bounds[bits][1], -bounds[bits][0]): count
            for (positive, bits), count in classes.items()
        })  # fmt: skip
    assert found == {interval: THREADS * count for interval, count in expected.items()}
    assert f"{THREADS * ROUNDS} values from {min(values)} to {max(values)}" in done.stdout
    quantiles = {int(part): int(value) for part, value in re.findall(r"p([0-9]+) (-?[0-9]+)", done.stdout)}
    for part, value in quantiles.items():
        exact = sorted(values)[max(0, -(-part * len(values) // 100) - 1)]
        assert abs(value - exact) <= (int(step) if step else 0.06 * abs(exact))


def by_value(text: str) -> dict[str, int]:
    """Return the rows of a table of --by."""
    return {shown: int(count) for count, shown in re.findall(r"^ +([0-9]+) +[0-9.]+%  (.*)$", text, re.MULTILINE)}


@pytest.mark.parametrize(
    ("probe", "name", "value", "more"),
    [
        ("ints", "b", lambda i: i % 256, ()),
        ("ints", "a", lambda i: (-i + 128) % 256 - 128, ("--filter", "b < 3")),
        ("eight", "g", lambda i: -7, ()),
        ("last", "sum", lambda i: 3, ()),
        ("text", "length,thread,what", lambda i: '5, "hello"', ("--filter", "length == 5")),
        ("guarded", "round", lambda i: i, ("--filter", "round < 1000")),
    ],
)
def test_counts_by_value_are_exact_at_full_speed(
    probe: str, name: str, value: Callable[[int], int], more: tuple[str, ...], scene: Any, traced: Any, run: Any
) -> None:
    tests = {"b < 3": lambda i: i % 256 < 3, "round < 1000": lambda i: i < 1000, "length == 5": lambda i: i % 7 == 1}
    passes = tests.get(more[-1] if more else "")
    wanted = Counter(str(value(i)) for i in range(ROUNDS) if passes is None or passes(i))
    words = sys.executable, "-m", "usdtbuild", "trace", "-P", f"scene:{probe}", "--by", name, "--top", 2000, *more
    done = run(*words, "--", scene("pie"), ROUNDS, THREADS)
    seen = Counter[str]()
    for shown, count in by_value(done.stdout).items():
        seen[re.sub(r"(?<=, )[0-9]+, ", "", shown)] += count  # without the thread
    assert seen == {shown: THREADS * count for shown, count in wanted.items()}
    assert "lost" not in done.stderr


def test_more_values_than_the_table_has_room_for_are_told(scene: Any, run: Any) -> None:
    words = sys.executable, "-m", "usdtbuild", "trace", "-P", "scene:ints", "--by", "f", "--top", 1
    done = run(*words, "--", scene("pie"), 10_000, 1)
    assert re.search(r"^scene:ints f: at least 40\d\d values in 10000 hits$", done.stdout, re.MULTILINE)
    assert "in values that came when the table was full, and were not told apart" in done.stdout


@pytest.mark.parametrize("engine", ["patch", "trap"])
def test_every_engine_tells_texts_apart(engine: str, scene: Any, run: Any) -> None:
    words = sys.executable, "-m", "usdtbuild", "trace", "-P", "scene:text", "--engine", engine
    done = run(*words, "--by", "length", "--filter", 'what == "hello" or length < 0', "--", scene("pie"), 70, 1)
    assert by_value(done.stdout) == {"-1": 30, "5": 10}
    done = run(*words, "--by", "what", "--filter", "length < 70", "--", scene("pie"), 70, 1)
    caf = '"\\x01 caf\u00e9 \\"quoted\\""'
    assert by_value(done.stdout) == dict.fromkeys(('""', '"hello"', caf, "NULL", "0x10", "0x123456789abcdef"), 10)


# Threads that come and go, in a program and in children that it forks, one of which is killed while it only hits.
FORKING = r"""
#include "scene.h"
#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>
static void *work(void *start) {
    for (long i = 0; i < 20000; i++) { SCENE_LAST((int)(i % 50), (int)(i + (long)start)); }
    return 0;
}
static void threads(void) {
    for (int round = 0; round < 10; round++) {
        pthread_t made[4];
        for (long i = 0; i < 4; i++) pthread_create(&made[i], 0, work, (void *)i);
        for (int i = 0; i < 4; i++) pthread_join(made[i], 0);
    }
}
int main(void) {
    int children[3];
    for (int i = 0; i < 3; i++)
        if (!(children[i] = fork())) { threads(); if (i) _exit(0); for (;;) { SCENE_LAST(99, 1); } }
    threads();
    waitpid(children[1], 0, 0);
    waitpid(children[2], 0, 0);
    sleep(1);
    kill(children[0], SIGKILL);
    waitpid(children[0], 0, 0);
    return 0;
}
"""


def test_sums_are_exact_over_threads_and_forked_processes_of_which_one_is_killed(
    scene: Any, run: Any, unprivileged: list[str], tmp_path: Path
) -> None:
    tmp_path.chmod(0o755)
    (tmp_path / "scene.h").write_bytes((scene("pie").parent / "scene.h").read_bytes())
    (tmp_path / "forking.c").write_text(FORKING)
    run(sys.executable, "-m", "usdtbuild", "cc", "--", "gcc", "-O2", "-c", "forking.c", cwd=tmp_path)
    run("gcc", "forking.o", "-pthread", "-o", "forking", cwd=tmp_path)
    words = (
        *unprivileged,
        sys.executable,
        "-m",
        "usdtbuild",
        "trace",
        "-P",
        "scene:last",
        "--top",
        1000,
        "--filter",
        "arg0 < 99",
    )
    total = sum(i + start for i in range(20000) for start in range(4))
    done = run(*words, "--sum", "arg1", "--by", "process", "--", tmp_path / "forking")
    assert list(columns(done.stdout).values()) == [(800_000, 10 * total, 0, 20002)] * 4
    done = run(*words, "--sum", "arg1", "--by", "thread", "--", tmp_path / "forking")
    rows = columns(done.stdout)
    assert sum(hits for hits, *_ in rows.values()) == 3_200_000
    assert sum(one for _, one, *_ in rows.values()) == 40 * total
    done = run(*words, "--sum", "arg1", "--by", "arg0", "--", tmp_path / "forking")
    wanted = {str(key): sum(i + start for i in range(key, 20000, 50) for start in range(4)) for key in range(50)}
    assert {key: row[:2] for key, row in columns(done.stdout).items()} == {
        key: (64_000, 40 * one) for key, one in wanted.items()
    }


def test_what_a_program_writes_into_its_tables_does_no_harm_to_the_tracer(
    scene: Any, run: Any, unprivileged: list[str], tmp_path: Path
) -> None:
    """It overwrites all that it shares with us, but for the code, again and again while it hits."""
    tmp_path.chmod(0o755)
    (tmp_path / "scene.h").write_bytes((scene("pie").parent / "scene.h").read_bytes())
    (tmp_path / "hostile.c").write_text(HOSTILE)
    run(sys.executable, "-m", "usdtbuild", "cc", "--", "gcc", "-O2", "-c", "hostile.c", cwd=tmp_path)
    run("gcc", "hostile.o", "-o", "hostile", cwd=tmp_path)
    words = *unprivileged, sys.executable, "-m", "usdtbuild", "trace", "-P", "scene:last"
    for options in (
        ("--sum", "arg1", "--by", "arg0"),
        ("--sum", "arg1", "--by", "arg0,arg1,thread"),
        ("--histogram", "arg1"),
        ("--histogram", "arg1,10"),
    ):
        done = run(*words, *options, "--", tmp_path / "hostile")
        assert "written" in done.stdout
        assert "scene:last" in done.stdout
        assert "Traceback" not in done.stderr


HOSTILE = r"""
#include "scene.h"
#include <stdio.h>
#include <string.h>
int main(void) {
    char line[512];
    FILE *maps = fopen("/proc/self/maps", "r");
    unsigned long start, end, starts[64], ends[64];
    int count = 0, first = 1;
    while (fgets(line, sizeof line, maps))
        if (strstr(line, "usdtbuild-trace") && strstr(line, "rw-s") && count < 64) {
            sscanf(line, "%lx-%lx", &start, &end);
            if (!first) { starts[count] = start; ends[count++] = end; }
            first = 0;
        }
    for (int round = 0; round < 20; round++) {
        for (int i = 0; i < count; i++) memset((void *)starts[i], round * 37 | 1, ends[i] - starts[i]);
        for (int i = 0; i < 1000; i++) { SCENE_LAST(i, -i); }
    }
    puts(count ? "written" : "nothing to write to");
    return 0;
}
"""
