"""Damaged objects: whatever byte is wrong, the object is accepted or refused with an error of ours, at once.

Never another exception, never a hang, never more memory than a few times the object. These run in this process, on
one small object with everything in it that instrumenting looks at.
"""

from __future__ import annotations

import random
import struct
import tracemalloc
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from usdtbuild.errors import UsdtError
from usdtbuild.instrument.main import Options, instrument

EVERYTHING = Options(formats=("stapsdt", "dof", "usdt"))
# Calls in a COMDAT group and outside, a stub in need, a semaphore, and what clang adds about symbols.
SOURCE = """
inline int shared(int n) { APP_REQ(n, "x"); return n; }
void (*pointer)(void) = __dtrace_app___start;
int (*test)(void) = __dtraceenabled_app___start;
int work(int n) { if (APP_REQ_ENABLED()) APP_REQ(n, "y"); return shared(n); }
"""


SLOW = pytest.param("clang++", marks=pytest.mark.slow)
# For tests of what both compilers write alike, and of which each takes seconds.
mostly_gcc = pytest.mark.parametrize("content", ["g++", SLOW], indirect=True, scope="module")


@pytest.fixture(scope="module", params=["g++", "clang++"])
def content(request: pytest.FixtureRequest, session_bench: Any, need: Any) -> bytes:
    need(request.param)
    flags = ("-O1", "-fno-exceptions", "-fno-asynchronous-unwind-tables", "-fno-ident", "-ffunction-sections")
    path = session_bench.compile(request.param, SOURCE, *flags, suffix=".cpp")
    session_bench.run("strip", "-g", path)
    return bytes(path.read_bytes())


def attempt(data: bytes) -> str:
    """Instrument; return what became of it. Any exception but ours fails the test."""
    try:
        patches, tail, report = instrument(data, "damaged.o", EVERYTHING)
    except UsdtError as error:
        message = str(error)
    else:
        assert all(offset >= 0 and offset + len(bytes_) <= len(data) for offset, bytes_ in patches)
        assert report.changed or (not patches and not tail)
        return "accepted"
    assert message.startswith("damaged.o")
    assert "\n" not in message
    return "refused"


def test_the_object_is_accepted_and_has_everything(content: bytes) -> None:
    assert attempt(content) == "accepted"
    report = instrument(content, "x.o", EVERYTHING)[2]
    assert {(site.in_stub, site.enabled) for site in report.sites} == {(False, False), (True, False), (True, True)}


@mostly_gcc
@pytest.mark.parametrize("said", [0, 1, 2])
def test_local_symbols_behind_the_last_one(content: bytes, said: int, usdtbuild: Any, tmp_path: Path) -> None:
    """Labels take the places of what is said to be the first globals: here of the null entry, or of local symbols."""
    (headers,), (count,) = struct.unpack_from("<Q", content, 40), struct.unpack_from("<H", content, 60)
    places = range(headers, headers + 64 * count, 64)
    (at,) = [place for place in places if struct.unpack_from("<I", content, place + 4)[0] == 2]  # SHT_SYMTAB
    (tmp_path / "damaged.o").write_bytes(content[: at + 44] + struct.pack("<I", said) + content[at + 48 :])
    done = usdtbuild("instrument", "damaged.o", "-o", "out.o", cwd=tmp_path, code=1)
    section = places.index(at)
    assert done.stderr == (
        f"usdtbuild: damaged.o: symbol table (section {section}) has more local symbols than its info field says"
        f" ({said}); compile it again\n"
    )
    assert not (tmp_path / "out.o").exists()


@pytest.mark.parametrize("value", [0x00, 0xFF, 0x01, 0x80])
def test_every_byte_overwritten(content: bytes, value: int) -> None:
    outcomes = set()
    damaged = bytearray(content)
    for offset, byte in enumerate(content):
        damaged[offset] = value
        outcomes.add(attempt(bytes(damaged)))
        damaged[offset] = byte
    assert outcomes == {"accepted", "refused"}


@mostly_gcc
def test_every_bit_of_the_headers_flipped(content: bytes) -> None:
    """The ELF header and the section headers at the end steer everything else."""
    table = int.from_bytes(content[40:48], "little")
    outcomes: Counter[Any] = Counter()
    for offset in (*range(64), *range(table, len(content))):
        for bit in range(8):
            damaged = bytearray(content)
            damaged[offset] ^= 1 << bit
            outcomes[attempt(bytes(damaged))] += 1
    assert min(outcomes["accepted"], outcomes["refused"]) > 500, outcomes


def test_every_truncation(content: bytes) -> None:
    """The section headers are at the end, so no part of an object is an object."""
    for size in range(len(content)):
        assert attempt(content[:size]) == "refused"


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 2**32), count=st.integers(2, 40))
def test_many_bytes_at_once(content: bytes, seed: int, count: int) -> None:
    source = random.Random(seed)
    damaged = bytearray(content)
    for _ in range(count):
        damaged[source.randrange(len(damaged))] = source.randrange(256)
    attempt(bytes(damaged))


WORDS = (0, 1, 0x7FFFFFFF, 0xFFFFFFFF, 0xFFFFFFFFFFFFFFFF, 1 << 40)


@mostly_gcc
@pytest.mark.parametrize("size", [4, 8])
def test_sizes_and_counts_that_would_take_all_memory(content: bytes, size: int) -> None:
    """Every aligned word of the headers and of the symbol table becomes huge in turn; memory stays small."""
    table = int.from_bytes(content[40:48], "little")
    outcomes: Counter[Any] = Counter()
    tracemalloc.start()
    try:
        for offset in (*range(0, 64, size), *range(table, len(content) - size + 1, size)):
            for word in WORDS:
                damaged = bytearray(content)
                damaged[offset : offset + size] = (word & (1 << 8 * size) - 1).to_bytes(size, "little")
                outcomes[attempt(bytes(damaged))] += 1
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert outcomes["refused"] > outcomes["accepted"] / 4 > 0, outcomes
    assert peak < 40 * len(content) + (2 << 20)
