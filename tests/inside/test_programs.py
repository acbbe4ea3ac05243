"""Programs of the engine inside, run by its library's code on every machine that it is for.

tests/tracing/test_predicates.py runs the whole corpus through it on this one.
"""

from __future__ import annotations

import random
import struct
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from usdtbuild.tracing import programs
from usdtbuild.tracing.filters import Filter
from usdtbuild.tracing.measures import Cell, Measure, Table, class_of
from usdtbuild.tracing.model import COUNT, INTEGER, PROBE, Argument, Module, Target
from usdtbuild.tracing.patch import evaluated, tables
from usdtbuild.tracing.plan import Plan

from ..tracing.library import COUNTER, REJECTED, SIZE, TABLE, compile_runner
from .test_operands import TOOLS

ARGUMENTS = ((4, True), (8, False), (1, True))
NAMED = tuple(Argument("abc"[index], "", size, signed, INTEGER) for index, (size, signed) in enumerate(ARGUMENTS))
TARGET = Target(0, PROBE, "app", "done", Module("/bin/app", 0, "", 0), NAMED, ())
OPERANDS = tuple(programs.operand(index, size, signed) for index, (size, signed) in enumerate(ARGUMENTS))
FILTERS = ["a < 5", "a >= -1 and b != 7", "not (a == 0 or c > 3)", "b > 0x100000000 or c == -128", "a == c", "b <= 4.5",
           "a > c or c < a and process != 0", "not (b == 18446744073709551615)"]  # fmt: skip
EDGES = {4: (0, 1, -1, 5, 127, -(1 << 31), (1 << 31) - 1), 8: (0, 4, 5, 7, 1 << 32, 1 << 63, (1 << 64) - 1),
         1: (0, 1, -1, 3, 4, -128, 127)}  # fmt: skip
# Of these all instructions for numbers, and of a key all that there are to find its cell.
MEASURES = [Measure("a", "b"), Measure("c", "b", classes=True), Measure("a", "a", step=3),
            Measure("a,c", "c", classes=True), Measure("b,a,c", "b"), Measure("", "a", classes=True)]  # fmt: skip


def swapped(code: bytes) -> bytes:
    """Return a program without texts, and without numbers that are bytes, in the other byte order."""
    return b"".join(struct.pack(">BBBBiQ", *one) for one in struct.iter_unpack("<BBBBiQ", code))


class Runner:
    """Runs programs on a machine."""

    def __init__(self, words: list[str], folder: Path, *, big_endian: bool) -> None:
        self.words, self.file, self.order = words, folder / "tables", ">" if big_endian else "<"
        self.code = swapped if big_endian else bytes

    def run(self, made: list[bytes], hits: Sequence[tuple[int, ...]]) -> list[str]:
        """Run all programs for all hits; return, by program, whether they pass; "?" where it is refused."""
        self.file.write_bytes(bytes(SIZE))
        values = b"".join(struct.pack(f"{self.order}Q", one & (1 << 64) - 1) for hit in hits for one in hit)
        given = bytes([len(ARGUMENTS), *(number for one in ARGUMENTS for number in one)])
        for code in made:
            given += struct.pack(f"{self.order}II", len(code), len(hits)) + self.code(code) + values
        done = subprocess.run([*self.words, self.file], input=given, capture_output=True, check=False, timeout=100)
        assert done.returncode == 0, done
        return done.stdout.decode().split()

    def table(self, place: tables.Place) -> Table:
        """Return what the table says."""
        words = struct.unpack(f"{self.order}{SIZE // 8}Q", self.file.read_bytes())
        return tables.read(bytearray(struct.pack(f"={SIZE // 8}Q", *words)), TABLE, place)


@pytest.fixture(scope="module")
def native_runner(tmp_path_factory: pytest.TempPathFactory, need: Any) -> Runner:
    folder = tmp_path_factory.mktemp("programs")
    need("gcc")
    compile_runner("gcc", folder / "run", "-g", "-fsanitize=undefined", "-fno-sanitize-recover=all")
    return Runner([str(folder / "run")], folder, big_endian=False)


def check(runner: Runner) -> None:
    hits = [(a, b, c) for a in EDGES[4] for b in EDGES[8] for c in EDGES[1]]
    for record in (None, REJECTED):
        made = []
        for text in FILTERS:
            predicate, _ = evaluated.asked(Plan(COUNT, (TARGET,), where=Filter(text)), TARGET, OPERANDS)
            made.append(programs.program(evaluated.Action(predicate, OPERANDS, COUNTER), record))
        passed = runner.run(made, hits)
        expected = ["".join("01"[Filter(text).compile(TARGET)(hit, (1, 1))] for hit in hits) for text in FILTERS]
        assert passed == (expected if record else ["0" * len(hits)] * len(FILTERS))
        (counted,) = struct.unpack_from(f"{runner.order}Q", runner.file.read_bytes(), REJECTED if record else COUNTER)
        assert counted == sum(one.count("0" if record else "1") for one in expected)
    for measure in MEASURES:
        predicate, (tally,) = evaluated.asked(
            Plan(COUNT, (TARGET,), where=Filter("c != 4"), measures=(measure,)), TARGET, OPERANDS)  # fmt: skip
        runner.run([programs.program(evaluated.Action(predicate, OPERANDS, COUNTER, [(tally, TABLE)]))], hits)
        wanted: dict[Any, Cell] = {}
        for hit in hits:
            values = dict(zip("abc", hit))
            keys = [values[name] for name in measure.by.split(",") if name]
            key = (keys[0] // int(measure.step or 1) if len(keys) == 1 else tuple(keys)) if keys else 0
            if values["c"] != 4:
                cell = wanted.setdefault(key, Cell())
                cell.add(values[measure.of])
                cell.classes.update([class_of(values[measure.of])] if measure.classes else [])
        place = tables.Place(0, measure, 0, *tally.signs(OPERANDS), tally.width)
        assert runner.table(place) == Table(wanted, Cell()), measure


def test_programs_say_what_filters_and_measures_say(native_runner: Runner) -> None:
    check(native_runner)


@pytest.mark.slow
@pytest.mark.parametrize("machine", [one for one in TOOLS if one != "x86_64"])
def test_programs_say_the_same_on_other_machines(machine: str, need: Any, tmp_path: Path) -> None:
    compiler, emulator = map(need, TOOLS[machine])
    compile_runner(compiler, tmp_path / "run", "-static")
    check(Runner([emulator, str(tmp_path / "run")], tmp_path, big_endian=machine == "s390x"))


def test_what_is_no_program_is_refused_or_does_no_harm(native_runner: Runner) -> None:
    """Each bit of it may be any: it ends, and changes nothing but the tables."""
    choice = random.Random(3)
    actions = []
    for measure in MEASURES:
        predicate, (tally,) = evaluated.asked(
            Plan(COUNT, (TARGET,), where=Filter(FILTERS[2]), measures=(measure,)), TARGET, OPERANDS)  # fmt: skip
        actions.append(programs.program(evaluated.Action(predicate, OPERANDS, COUNTER, [(tally, TABLE)])))
    broken = [choice.randbytes(8 * choice.randrange(1, 30)) for _ in range(500)]
    numbers = len(programs.TEMPLATES)
    for _ in range(4000):
        code = bytearray(choice.choice(actions))
        for _ in range(choice.randrange(1, 4)):
            at = choice.randrange(0, len(code))
            code[at] = choice.choice((choice.randrange(256), choice.randrange(numbers), 0, 255))
        broken.append(bytes(code[: choice.choice((len(code), len(code), choice.randrange(len(code))))]))
    answers = native_runner.run(broken, [(0, 0, 0), (-1, 1 << 63, -128)])
    assert len(answers) == len(broken)
    assert {"??", "00"} <= set(answers)
