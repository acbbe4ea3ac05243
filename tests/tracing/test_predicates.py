"""Filters that are evaluated where the hit happens give the same answers as those that the tracer evaluates.

One corpus of expressions and operands runs through both: `filters` on the values that a record would have, and the
machine code, which this process calls with registers, stack and memory as a site would have them.
"""

from __future__ import annotations

import ctypes
import mmap
import platform
import random
import re
import struct
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from usdtbuild.formats.operands import CONSTANT, MEMORY, REGISTER, Operand, parse_one
from usdtbuild.machines.numbers import EM_X86_64
from usdtbuild.tracing.filters import Filter
from usdtbuild.tracing.hosts.x86_64 import NUMBERS, full_register
from usdtbuild.tracing.model import (
    COUNT,
    FLOAT,
    INTEGER,
    MISSING,
    POINTER,
    PROBE,
    STRING,
    Argument,
    Module,
    Target,
    Value,
)
from usdtbuild.tracing.patch import code, evaluated, tables, x86_64
from usdtbuild.tracing.patch.code import Back, Routines, Through
from usdtbuild.tracing.plan import Plan
from usdtbuild.tracing.predicates import Compare, Joined, NotHereError, lower

MODULE = Module("/bin/app", 0, "", EM_X86_64)
WORDS, STACK, RED_ZONE = 48, 16, 32


def operands_of(text: str) -> tuple[Operand, ...]:
    return tuple(parse_one(one, EM_X86_64) for one in text.split())


def target_of(operands: Sequence[Operand], kinds: Sequence[str] = ()) -> Target:
    arguments = [
        Argument("abcdefgh"[index], "", one.size, one.signed, kinds[index] if kinds else INTEGER)
        for index, one in enumerate(operands)
    ]
    return Target(0, PROBE, "app", "done", MODULE, tuple(arguments), ())


class Machine:
    """Runs stubs in this process."""

    def __init__(self, library: Path) -> None:
        loaded = ctypes.CDLL(str(library))
        self._run = loaded.run_code
        self._run.argtypes, self._run.restype = [ctypes.c_void_p] * 3, None
        self._memory = mmap.mmap(-1, 4 * 4096 + tables.SIZE, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
        self.at = ctypes.addressof(ctypes.c_char.from_buffer(self._memory))
        back = ctypes.cast(loaded.code_is_back, ctypes.c_void_p).value or 0
        self.slot, self.counter, self.data = self.at + 8192, self.at + 8200, self.at + 12288
        self.table = self.at + 16384
        self._memory[8192:8200] = struct.pack("<Q", back)
        made, self.calls = code.counting_routines(self.at)
        self._memory[: len(made)] = made
        self._free = 4096
        self.wild = 16  # nobody may map the first page

    def fill(self, offset: int, data: bytes) -> None:
        """Put data where operands may point to."""
        self._memory[12288 + offset : 12288 + offset + len(data)] = data

    def keys(self) -> tables.Keys:
        """Return what the table says, and empty it."""
        found = tables.read(self._memory, 16384)
        self._memory[16384:] = bytes(tables.SIZE)
        return found

    def runs(self, stub: Callable[[int, Routines, int, Back], bytes], state: Sequence[int]) -> int:
        """Run a stub with registers, stack and red zone; return how often it has counted. All else stays as it was."""
        made = stub(self.at + self._free, self.calls, self.counter, Through(self.slot))
        assert len(made) <= 4096
        self._memory[self._free : self._free + len(made)] = made
        self._memory[8200:8208] = bytes(8)
        given, found = (ctypes.c_uint64 * WORDS)(*state), (ctypes.c_uint64 * WORDS)()
        self._run(self.at + self._free, ctypes.addressof(given), ctypes.addressof(found))
        changed = [index for index in range(WORDS) if index != NUMBERS["rsp"] and given[index] != found[index]]
        assert not changed, f"changed: {changed}\n{made.hex(' ')}"
        return int(struct.unpack("<Q", self._memory[8200:8208])[0])


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory, need: Callable[[str], str]) -> Machine:
    if platform.machine() != "x86_64":
        pytest.skip("runs x86-64 code")
    library = tmp_path_factory.mktemp("run") / "run_code.so"
    source = Path(__file__).parent / "sources" / "run_code.S"
    subprocess.run([need("gcc"), "-shared", "-nostdlib", source, "-o", library], check=True)
    return Machine(library)


def value_of(operand: Operand, state: Sequence[int], machine: Machine) -> Value:
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
    return bits - (1 << 8 * size) if operand.signed and bits >> 8 * size - 1 else bits


def agrees(text: str, operands: Sequence[Operand], state: Sequence[int], machine: Machine) -> bool:
    """Run a filter both ways; return what it says."""
    target = target_of(operands)
    wanted = Filter(text)
    expected = wanted.compile(target)([value_of(one, state, machine) for one in operands])
    predicate = lower(wanted, target, operands)

    def stub(at: int, calls: Routines, counter: int, back: Back) -> bytes:
        action = evaluated.Action(predicate, None, tuple(operands), counter)
        made = evaluated.stub(x86_64.WORDS, at, action, calls, back)
        plan = Plan(COUNT, (target,), where=wanted)
        assert len(made) <= x86_64.WORDS.most(plan, target, operands)
        return made

    assert machine.runs(stub, state) == expected, (text, [one.text for one in operands], predicate)
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

    def operand(self) -> str:
        size = self.random.choice((1, 2, 4, 8))
        place = self.random.choice(("register", "register", "stack", "memory", "indexed", "constant"))
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
        return f"{left} {sign} {right}" if self.random.random() < 0.8 else f"{right} {sign} {left}"

    def literal(self, names: str) -> str:
        kind = self.random.random()
        if kind < 0.7:
            return str(self.random.choice((1, -1)) * self.number())
        if kind < 0.85 and len(names) > 1:
            return self.random.choice(names)
        return self.random.choice(("0.5", "-1.5", "4096.25", "1e400", "-1e400", "1e30", "2e9", "0x7f"))


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


def counts_keys(machine: Machine, operand: str, states: Sequence[Sequence[int]], text: str = "") -> tables.Keys:
    """Count an operand's values by a stub; return what its table says."""
    operands = operands_of(operand)
    target = target_of(operands)
    plan = Plan(COUNT, (target,), where=Filter(text) if text else None, by="a")
    predicate, key = evaluated.asked(plan, target, operands)

    def stub(at: int, calls: Routines, counter: int, back: Back) -> bytes:
        action = evaluated.Action(predicate, key, operands, counter, machine.table)
        made = evaluated.stub(x86_64.WORDS, at, action, calls, back)
        assert len(made) <= x86_64.WORDS.most(plan, target, operands)
        return made

    for state in states:
        machine.runs(stub, state)
    return machine.keys()


@pytest.mark.parametrize(
    "operand", ["8@%rax", "8@%rdi", "-4@%esi", "1@%ah", "-1@%r9b", "2@2(%rsp)", "8@(%rbx)", "4@$5", "-2@$65535"]
)
def test_values_are_counted_each_in_its_place(operand: str, machine: Machine) -> None:
    made = Generator(7, machine)
    (parsed,) = operands_of(operand)
    states = []
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
    found = counts_keys(machine, operand, states)
    assert not found.others
    signed = {key - (1 << 64) if parsed.signed and key >> 63 else key: count for key, count in found.counts.items()}
    assert signed == expected


def test_only_what_passes_is_counted_by_value(machine: Machine) -> None:
    states = [[0] * NUMBERS["rdi"] + [number] + [0] * (WORDS - NUMBERS["rdi"] - 1) for number in range(100)]
    found = counts_keys(machine, "8@%rdi", states, "a >= 90 or a == 0")
    assert found.counts == dict.fromkeys((0, *range(90, 100)), 1)


def test_a_full_table_counts_the_rest_together(machine: Machine) -> None:
    made = random.Random(3)
    numbers = [made.getrandbits(64) for _ in range(10_000)]
    states = [[0] * NUMBERS["rdi"] + [number] + [0] * (WORDS - NUMBERS["rdi"] - 1) for number in numbers]
    found = counts_keys(machine, "8@%rdi", states)
    assert sum(found.counts.values()) + found.others == 10_000
    assert 3900 < len(found.counts) <= 4096
    assert set(found.counts) <= set(numbers)


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
    action = evaluated.Action(predicate, None, operands, 0x2000)
    made = evaluated.stub(x86_64.WORDS, 0x1000, action, Routines(0, 0, 0), 0x3000)
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
        ("a == 1", "4@nonsense!", False),
        ("not a == 1", "4@nonsense!", False),
        ("a == 1 and b == 2 or c == 3", "4@%edi 4@%esi 4@%edx",
         Joined("or", (Joined("and", (Compare(0, "==", 1), Compare(1, "==", 2))), Compare(2, "==", 3)))),
    ],
)  # fmt: skip
def test_a_filter_is_lowered(text: str, operands: str, expected: object) -> None:
    found = operands_of(operands)
    assert lower(Filter(text), target_of(found), found) == expected


@pytest.mark.parametrize(
    ("text", "operands", "kind", "why"),
    [
        ('a == "x"', "8@%rdi", STRING, "a is a string"),
        ('a =~ "x*"', "8@%rdi", STRING, "string"),
        ("a == NULL", "8@%rdi", STRING, "a is a string"),
        ("a > 0.5", "8f@%xmm0", FLOAT, "floating-point"),
        ("a > b", "8@%rdi -4@%esi", INTEGER, "signed number is compared"),
    ],
)
def test_what_machine_code_has_no_words_for_is_left_to_the_tracer(
    text: str, operands: str, kind: str, why: str
) -> None:
    found = operands_of(operands)
    with pytest.raises(NotHereError, match=why):
        lower(Filter(text), target_of(found, [kind] * len(found)), found)


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
        ("eight", "h == 0x200000000 or g != -7", lambda i: i == 1),
        ("guarded", "round >= 299999", lambda i: i >= 299999),
        ("last", "sum != 3", lambda i: False),
    ],
)
def test_counts_of_what_passes_are_exact_at_full_speed(
    probe: str, text: str, passes: Callable[[int], bool], scene: Any, counted: Any
) -> None:
    counts, printed = counted("-P", f"scene:{probe}", "--filter", text, "--", scene("pie"), ROUNDS, THREADS)
    assert counts == {f"scene:{probe}": THREADS * sum(map(passes, range(ROUNDS)))}
    assert "wrong=0" in printed


def test_a_count_goes_on_with_what_only_the_tracer_can_try(scene: Any, counted: Any, run: Any) -> None:
    counts, _ = counted("-P", "scene:text", "--filter", 'what == "hello"', "--", scene("pie"), 70, 2)
    assert counts == {"scene:text": 20}
    done = run(
        sys.executable, "-m", "usdtbuild", "trace", "-v", "--count", "-P", "scene:text", "--filter", 'what == "hello"',
        "--", scene("pie"), 70, 2,
    )  # fmt: skip
    assert "scene:text: arguments are evaluated after the hit: what is a string" in done.stderr


@pytest.mark.parametrize("engine", ["auto", "patch", "trap"])
def test_every_engine_counts_what_passes(engine: str, scene: Any, counted: Any) -> None:
    wanted = "-P", "scene:ints", "-P", "scene:eight", "--filter", "a > -3 and a <= 0 or b == 2"
    counts, _ = counted(*wanted, "--engine", engine, "--", scene("pie"), 10, 2)
    assert counts == {"scene:ints": 6, "scene:eight": 20}


def test_a_limit_counts_what_passes(scene: Any, counted: Any) -> None:
    counts, _ = counted("-P", "scene:ints", "--filter", "f >= 1000", "--limit", 5, "--", scene("pie"), 20_000_000, 1)
    assert 5 <= counts["scene:ints"] < 20_000_000 - 1000


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
        ("guarded", "round", lambda i: i, ("--filter", "round < 1000")),
    ],
)
def test_counts_by_value_are_exact_at_full_speed(
    probe: str, name: str, value: Callable[[int], int], more: tuple[str, ...], scene: Any, traced: Any, run: Any
) -> None:
    passes = {"b < 3": lambda i: i % 256 < 3, "round < 1000": lambda i: i < 1000}.get(more[-1] if more else "")
    wanted = Counter(str(value(i)) for i in range(ROUNDS) if passes is None or passes(i))
    words = sys.executable, "-m", "usdtbuild", "trace", "-P", f"scene:{probe}", "--by", name, "--top", 2000, *more
    done = run(*words, "--", scene("pie"), ROUNDS, THREADS)
    assert by_value(done.stdout) == {shown: THREADS * count for shown, count in wanted.items()}
    assert "lost" not in done.stderr


def test_more_values_than_the_table_has_room_for_are_told(scene: Any, run: Any) -> None:
    words = sys.executable, "-m", "usdtbuild", "trace", "-P", "scene:ints", "--by", "f", "--top", 1
    done = run(*words, "--", scene("pie"), 10_000, 1)
    assert re.search(r"^scene:ints f: [0-9]+ values in 10000 hits$", done.stdout, re.MULTILINE)
    assert "in values that came when the table was full, and were not told apart" in done.stdout


@pytest.mark.parametrize("engine", ["patch", "trap"])
def test_strings_are_told_apart_by_the_tracer(engine: str, scene: Any, run: Any) -> None:
    words = sys.executable, "-m", "usdtbuild", "trace", "-P", "scene:text", "--by", "length", "--engine", engine
    done = run(*words, "--filter", 'what == "hello" or length < 0', "--", scene("pie"), 70, 1)
    assert by_value(done.stdout) == {"-1": 30, "5": 10}
