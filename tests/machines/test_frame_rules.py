"""Where the frame of a call is at any place: as pyelftools says, and nowhere in what is damaged."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from usdtbuild.elf.image import Image
from usdtbuild.inspection.unwind import Rows
from usdtbuild.machines.frame_rules import FrameRules

SOURCE = r"""
#include <alloca.h>
#include <cstdlib>
struct Out { int number; };
__attribute__((noipa)) void thrown(int i) { if (i % 3) throw Out{i}; }
__attribute__((noipa)) int many(int a, int b, int c, int d, int e, int f, int g, int h, char *room) {
    return a + b + c + d + e + f + g + h + (room != nullptr);
}
__attribute__((noipa)) int early(int i) {
    if (i < 0) return 7;
    try { thrown(i); } catch (const Out &out) { return out.number; }
    return many(i, 1, 2, 3, 4, 5, 6, 7, static_cast<char *>(alloca(i)));
}
int main(int argc, char **argv) { return early(argc > 1 ? atoi(argv[1]) : 0) > 100; }
"""


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory, run: Any) -> Path:
    folder = tmp_path_factory.mktemp("frames")
    (folder / "frames.cc").write_text(SOURCE)
    run("g++", "-O2", "frames.cc", "-o", "dynamic", cwd=folder)
    run("g++", "-O2", "-static", "-s", "frames.cc", "-o", "static", cwd=folder)
    return folder


def _rules(data: bytes) -> tuple[Image, FrameRules]:
    image = Image(data, "built")
    (section,) = image.sections_named(".eh_frame")
    return image, FrameRules(image.bytes_at, image.unwind_header, (section.address, section.size))


def _places(image: Image) -> Iterator[int]:
    (text,) = image.sections_named(".text")
    places = range(text.address, text.address + text.size)
    return iter(random.Random(1).sample(places, min(2000, len(places))))


@pytest.mark.parametrize("name", ["dynamic", "static"])
def test_the_frame_is_where_another_reader_finds_it(name: str, built: Path) -> None:
    image, rules = _rules((built / name).read_bytes())
    others, found = Rows(image), set()
    for place in _places(image):
        rule, row = rules.at(place), others.at(place)
        if row is None:
            assert rule is None
            continue
        assert rule is not None
        assert rule.frame == (None if row.expression else (row.register, row.offset))
        assert rule.start <= place
        found.add(rule.frame)
    assert len(found) >= 3


def test_what_a_compiler_has_put_elsewhere_is_a_part(built: Path, run: Any) -> None:
    _, rules = _rules((built / "dynamic").read_bytes())
    told = [line.split() for line in run("nm", built / "dynamic").stdout.splitlines()]
    places = {name: int(address, 16) for address, _, name in (one for one in told if len(one) == 3)}
    whole, cold = (rules.at(places[name]) for name in ("_Z5earlyi", "_Z5earlyi.cold"))
    assert whole is not None
    assert cold is not None
    assert (whole.is_part, cold.is_part) == (False, True)
    assert cold.start == places["_Z5earlyi.cold"]


def test_damaged_records_do_no_harm(built: Path) -> None:
    data, choice = (built / "dynamic").read_bytes(), random.Random(2)
    image = Image(data, "built")
    sections = [one for name in (".eh_frame", ".eh_frame_hdr") for one in image.sections_named(name)]
    for _ in range(100):
        changed = bytearray(data)
        for one in sections:
            for _ in range(choice.randrange(8)):
                changed[one.offset + choice.randrange(one.size)] = choice.randrange(256)
        image, rules = _rules(bytes(changed))
        for place in _places(image):
            rules.at(place)
