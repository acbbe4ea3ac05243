"""Runs programs of the engine inside, without a traced program: by its library's code, in this process."""

from __future__ import annotations

import ctypes
import mmap
import os
import struct
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

from usdtbuild.tracing import programs
from usdtbuild.tracing.measures import Measure, Unpaired
from usdtbuild.tracing.patch import evaluated, tables
from usdtbuild.tracing.predicates import NotHereError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from usdtbuild.formats.operands import Operand
    from usdtbuild.tracing.measures import Table
    from usdtbuild.tracing.model import Target
    from usdtbuild.tracing.patch.tables import Place
    from usdtbuild.tracing.plan import Plan
    from usdtbuild.tracing.predicates import Tally

RUNTIME = Path(programs.__file__).resolve().parent.parent / "runtime"
COUNTER, REJECTED, TABLE, SIZE = 64, 72, 4096, 6 << 20


def compile_runner(compiler: str, made: Path, *options: str) -> None:
    """Compile what runs programs."""
    sources = [RUNTIME / "preload" / "evaluate.c", Path(__file__).parent / "sources" / "run_program.c"]
    folders = [f"-I{RUNTIME / name}" for name in ("live", "preload")]
    subprocess.run(
        [compiler, "-std=gnu99", "-O2", "-fvisibility=hidden", *options, *folders, *sources, "-o", made],
        check=True,
    )  # fmt: skip


def as_arguments(operands: Sequence[Operand]) -> tuple[Operand, ...]:
    """Return operands as the library tells of them."""
    return tuple(programs.operand(index, one.size, one.signed)._replace(floating=one.floating)
                 for index, one in enumerate(operands))  # fmt: skip


class Library:
    """The library's code, with a file of tables."""

    def __init__(self, folder: Path, string_size: int) -> None:
        compile_runner("gcc", folder / "run_program.so", "-shared", "-fPIC")
        self._loaded = ctypes.CDLL(str(folder / "run_program.so"))
        self._loaded.run_program_of.restype = ctypes.c_void_p
        self._loaded.run_program_at.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint]
        (folder / "tables").write_bytes(bytes(SIZE))
        assert self._loaded.run_begin(os.fsencode(folder / "tables"))
        with (folder / "tables").open("r+b") as file:
            self.memory = mmap.mmap(file.fileno(), SIZE)
        self._string_size = string_size

    def program(self, code: bytes, operands: Sequence[Operand]) -> int | None:
        """Return a program that the library has taken; None if it refuses it."""
        told = b"".join(struct.pack("BB", one.size, one.signed) for one in operands)
        found: int | None = self._loaded.run_program_of(told, len(operands), code, len(code), self._string_size)
        return found

    def run(self, program: int, values: Sequence[int], where: int = 0) -> int:
        """Run it for a hit with these values; return whether it passes, where that is asked."""
        found: int = self._loaded.run_program_at(program, (ctypes.c_uint64 * 12)(*values), where)
        return found

    def passes(self, plan: Plan, target: Target, operands: Sequence[Operand], values: Sequence[int]) -> bool | None:
        """Return whether a hit passes a plan's filter; None if that can't be evaluated."""
        own = as_arguments(operands)
        try:
            predicate, _ = evaluated.asked(plan, target, own)
        except NotHereError:
            return None
        self.memory[COUNTER : COUNTER + 16] = bytes(16)
        action = evaluated.Action(predicate, own, COUNTER)
        for code in (programs.program(action), programs.program(action, REJECTED)):
            made = self.program(code, own)
            assert made, code.hex()
            passed = self.run(made, values)
        counted, rejected = struct.unpack_from("=2Q", self.memory, COUNTER)
        assert counted == passed == 1 - rejected
        return bool(passed)

    def adds_up(self, plan: Plan, target: Target, operands: Sequence[Operand], hits: Sequence[Sequence[int]]) -> Table:
        """Add hits up; return what the table says. Raises NotHereError."""
        own = as_arguments(operands)
        predicate, (tally,) = evaluated.asked(plan, target, own)
        action = evaluated.Action(predicate, own, COUNTER, [(tally, TABLE)])
        made = self.program(programs.program(action), own)
        assert made
        for values in hits:
            self.run(made, values)
        place = tables.Place(0, tally.measure, 0, *tally.signs(own), tally.width, self._string_size)
        found = tables.read(self.memory, TABLE, place)
        self.memory[TABLE:] = bytes(SIZE - TABLE)
        return found

    def pairs(
        self, measure: Measure, action: evaluated.Action, tallies: dict[str, Tally], place: Place,
        hits: Sequence[tuple[str, int, Sequence[int]]],
    ) -> tuple[Unpaired, Table]:  # fmt: skip
        """Pair begins and ends, each at a place of the stack; return what was not paired, and what the table says."""
        at = TABLE + tables.size(measure)
        own = as_arguments(action.operands)
        made = {}
        for side, tally in tallies.items():
            one = action._replace(operands=own, counter=COUNTER, tallies=[(tally, TABLE)], pairs=at)
            made[side] = self.program(programs.program(one), own)
        for side, where, values in hits:
            self.run(made[side] or 0, values, where)
        keys = tables.read_keys(self.memory, at + tables.PAIRS_SIZE, place) if place.width else ()
        unpaired = tables.read_pairs(self.memory, at, keyed=bool(measure.key))
        found = unpaired, tables.read(self.memory, TABLE, place, keys)
        self.memory[TABLE:] = bytes(SIZE - TABLE)
        return found
