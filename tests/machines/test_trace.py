"""`usdtbuild trace --emulator` on every machine: what fired, how often, and each argument, through qemu's gdb server.

The reference build says what must fire: the corpus' probes in their order, with their arguments.
"""

from __future__ import annotations

import json
import re
import struct
import sys
from collections import Counter
from typing import Any

import pytest

from .test_corpus import BROKEN, BUILDS, BY_CALL, NAMES


def bits(value: Any, size: Any) -> Any:
    """An argument of a trace as the reference has it: an unsigned number of the record's size."""
    if isinstance(value, dict):  # a pointer, or a number that JSON can't hold
        (text,) = value.values()
        value = float(text) if "float" in value else int(text, 0)
    if isinstance(value, float):
        value = int.from_bytes(struct.pack("<f" if size == 4 else "<d", value), "little")
    return (value or 0) & (1 << 8 * size) - 1


def check(shop: Any, program: Any, tmp_path: Any) -> None:
    """Every hit is the one that must come next, with its arguments; and the program computes what it must."""
    found = tmp_path / "hits.jsonl"
    words = ("--emulator", shop.target.qemu, "-o", found, "--", program)
    printed = shop.call(sys.executable, "-m", "usdtbuild", "trace", "-v", *words)
    hits = [json.loads(line) for line in found.read_text().splitlines()]
    expected, output = shop.reference(1)
    assert printed == output, "the program computes what it must, and its is-enabled tests say yes"
    assert [hit["probe"] for hit in hits] == [f"corpus:{event.probe.replace('___', '-')}" for event in expected]
    sizes = {site.probe: [operand.size for operand in site.operands] for site in shop.sites(program)}
    for number, (hit, event) in enumerate(zip(hits, expected)):
        values, wanted = list(hit["args"].values()), list(event.values)
        if event.probe == "floats" and sizes[event.probe][0] == 4:
            assert list(hit["args"]) == ["b", "c"], "half of a double in two registers says nothing"
            values.insert(0, wanted[0])
        if event.probe != "text":
            values = [bits(value, size) for value, size in zip(values, sizes[event.probe])]
            wanted = [value & (1 << 8 * size) - 1 for value, size in zip(wanted, sizes[event.probe])]
        assert values == wanted, f"{program}: hit {number}, {event.probe}"


def check_counts(shop: Any, program: Any) -> None:
    """A plugin of the emulator's counts each probe, those too that only fire while a semaphore is raised."""
    if "-plugin " not in shop.call(*shop.target.qemu.split(), "-h"):
        return
    words = ("trace", "--count", "--emulator", shop.target.qemu, "--", program)
    printed = shop.call(sys.executable, "-m", "usdtbuild", *words)
    expected, output = shop.reference(1)
    assert output in printed, "the program computes what it must, and its is-enabled tests say yes"
    found = {name: int(count) for count, name in re.findall(r"^ *(\d+)  corpus:(\S+)", printed, re.MULTILINE)}
    wanted = Counter(event.probe.replace("___", "-") for event in expected)
    assert {name: count for name, count in found.items() if count} == wanted


def built(shop: Any, build: Any, *defines: Any) -> Any:
    """Return a program of one build, linked by the first linker that takes it."""
    linker = next((linker for linker in shop.linkers() if shop.takes(linker, build)), None)
    if linker is None:
        pytest.skip(f"no linker for what {build.compiler} writes for {shop.name} is installed")
    (instrumented,) = shop.instrument([shop.compile(build, "corpus.c", *defines)])
    return shop.link(linker, [instrumented, shop.platform(build)], f"traced-{build.stem}")


@pytest.mark.parametrize("name", NAMES)
def test_one_program_of_each_machine(name: Any, workshop: Any, build_of: Any, tmp_path: Any) -> None:
    shop = workshop(name)
    if not shop.target.qemu:
        pytest.skip(f"nothing here runs {name}")
    program = built(shop, build_of(shop.compilers()[-1], "-O2 -fPIC"), BY_CALL)
    check(shop, program, tmp_path)
    check_counts(shop, program)


@pytest.mark.slow
@pytest.mark.parametrize("compiler", ["gcc", "clang"])
@pytest.mark.parametrize("name", NAMES)
def test_every_way_to_compile(name: Any, compiler: Any, workshop: Any, build_of: Any, tmp_path: Any) -> None:
    shop = workshop(name)
    if compiler not in shop.compilers():
        pytest.skip(f"{compiler} doesn't know {name}, or isn't installed")
    if not shop.target.qemu:
        pytest.skip(f"nothing here runs {name}")
    for flags, way in BUILDS[compiler]:
        if (name, compiler, flags) not in BROKEN:
            check(shop, built(shop, build_of(compiler, flags), *way.split()), tmp_path)
