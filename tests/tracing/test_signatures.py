"""Functions' arguments and results by debug information: what is shown is what the program itself says, or `?`."""

from __future__ import annotations

import json
import os
import random
import re
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from elftools.elf.elffile import ELFFile

from usdtbuild.elf.image import Image
from usdtbuild.inspection.signatures import Wanted
from usdtbuild.limits import DEBUG
from usdtbuild.tracing.signatures import signatures_of

from .random_calls import program

PATCHABLE = "-fpatchable-function-entry=7,5"


@pytest.fixture(autouse=True)
def nothing_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each test reads debug information itself."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def compiled(run: Any, need: Any, folder: Path, compiler: str, seed: int, *options: str, functions: int = 60) -> Path:
    cxx = compiler.endswith("++")
    source = folder / ("calls.cc" if cxx else "calls.c")
    source.write_text(program(seed, functions, cxx=cxx))
    standard = "-std=c++17" if cxx else "-std=gnu11"
    alone = () if "clang" in compiler else ("-fno-ipa-icf",)  # functions that are alike would be one
    run(need(compiler), "-g", "-w", standard, *alone, *options, source, "-o", folder / "calls")
    return folder / "calls"


def spoken(path: Path) -> list[tuple[str, dict[str, Any]]]:
    """Return what a program wrote down."""
    return [(name, values) for name, values in map(json.loads, path.read_text().splitlines())]


def seen(path: Path) -> list[tuple[str, dict[str, Any]]]:
    """Return calls and returns in their order, by short names."""
    found = []
    for line in path.read_text().splitlines():
        hit = json.loads(line)
        name = re.search(r"\bf\d+\b", hit["probe"])
        assert name, hit
        found.append((name[0] + ":return" * hit["probe"].endswith(":return"), hit["args"]))
    return found


def plain(value: Any) -> Any:
    """Return a value as a program writes it down."""
    if isinstance(value, dict):
        return int(value["integer"]) if "integer" in value else value
    return value


def compare(said: list[tuple[str, dict[str, Any]]], shown: list[tuple[str, dict[str, Any]]]) -> Counter[str]:
    """Compare what a trace showed with what a program said; return how much was right, and which values were `?`."""
    assert sorted(name for name, _ in shown) == sorted(name for name, _ in said)
    told = Counter[str]()
    expected = dict(said)
    for name, values in shown:
        truth = expected[name]
        if "unused" in truth:
            continue
        wrong = {key: (plain(value), truth.get(key)) for key, value in values.items() if plain(value) != truth.get(key)}
        assert not wrong, (name, wrong)
        told["right"] += len(values)
        told.update(f"? {name} {key}" for key in truth if key and key not in values)
    return told


@pytest.mark.parametrize("compiler", ["gcc", "clang", "g++", "clang++"])
@pytest.mark.parametrize("level", ["-O0", "-O2"])
def test_every_value_is_what_the_program_says(
    compiler: str, level: str, run: Any, need: Any, usdtbuild: Any, tmp_path: Path
) -> None:
    """Random signatures; nothing that is shown is wrong, and most is shown."""
    target = compiled(run, need, tmp_path, compiler, 1, level, PATCHABLE)
    patterns = ("-F", "f[0-9]*", *(("-F", "Cf*::f[0-9]*") if compiler.endswith("++") else ()))
    usdtbuild("trace", *patterns, "--module", "calls", "--returns", "-o", tmp_path / "hits.jsonl", "--", target,
              tmp_path / "said")  # fmt: skip
    told = compare(spoken(tmp_path / "said"), seen(tmp_path / "hits.jsonl"))
    assert told.pop("right") > sum(told.values()), told


SHOP = """
#include <cstdio>
#include <string>
namespace shop {
enum Kind { RED, GREEN = 5 };
struct Point { int x, y; };
struct Basket {
    long count = 2;
    __attribute__((noinline)) int add(Kind kind, const std::string &name, bool paid) {
        asm volatile("" : : "r"(&name), "r"(kind), "r"(paid) : "memory");
        return ++count;
    }
};
__attribute__((noinline)) int price(int amount, const char *what) { return amount * 98 + what[0] - 'a'; }
__attribute__((noinline)) Point moved(Point p, Point &by) { return {p.x + by.x, p.y + by.y}; }
__attribute__((noinline)) void nothing() { asm volatile(""); }
}
int main(int argc, char **argv) {
    shop::Basket basket;
    shop::Point by = {10, 20};
    int sum = 0;
    for (int i = 0; i < 4; i++) {
        sum += shop::price(39 + i, "abc");
        sum += basket.add(i % 2 ? shop::GREEN : shop::RED, std::string(i, 'x'), i == 3);
        sum += shop::moved({i, -i}, by).y;
        shop::nothing();
    }
    std::printf("%d\\n", sum);
}
"""


@pytest.fixture(scope="module")
def shop(run: Any, need: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("shop")
    folder.chmod(0o755)
    (folder / "shop.cc").write_text(SHOP)
    run(need("g++"), "-g", "-O2", PATCHABLE, "-Wl,--build-id", folder / "shop.cc", "-o", folder / "shop")
    return folder / "shop"


def lines(text: str) -> list[str]:
    """Return what lines say, without times and threads; addresses are `@`."""
    found = re.findall(r"^ +[0-9.]+ +[0-9]+ (.*)$", text, re.MULTILINE)
    return [re.sub(r"0x[0-9a-f]+", "@", one) for one in found]


def test_calls_are_shown_with_arguments_and_results(shop: Path, usdtbuild: Any) -> None:
    shown = lines(usdtbuild("trace", "-F", "shop::*", "--returns", "--", shop).stdout)
    assert shown[:8] == [
        'shop::price(amount=39, what="abc")',
        'shop::price(amount=39, what="abc") = 3822',
        'shop::Basket::add(this=@, this->count=2, kind=RED, name="", paid=false)',
        'shop::Basket::add(this=@, this->count=2, kind=RED, name="", paid=false) = 3',
        "shop::moved(p.x=0, p.y=0, by.x=10, by.y=20)",
        "shop::moved(p.x=0, p.y=0, by.x=10, by.y=20) = {x=10, y=20}",
        "shop::nothing()",
        "shop::nothing() returns",
    ]
    plain = lines(usdtbuild("trace", "-F", "shop::Basket::add", "--members", "0", "--", shop).stdout)
    assert plain[0] == 'shop::Basket::add(this=@, kind=RED, name="", paid=false)'


def test_arguments_in_filters_and_tables(shop: Path, usdtbuild: Any, tmp_path: Path) -> None:
    """Members and enumerators too; what is in registers is evaluated where the function is entered."""

    def trace(*words: Any) -> str:
        done = usdtbuild("trace", *words, "--", shop)
        return str(done.stdout + done.stderr)

    counted = trace("-F", "shop::Basket::add", "--count", "-v", "--filter", "kind == GREEN and this->count > 3")
    assert re.search(r"^1  shop::Basket::add", counted, re.MULTILINE), counted
    assert "after the hit" not in counted
    assert re.search(r"^2  shop::moved", trace("-F", "shop::moved", "--count", "--filter", "p.y < -1"), re.MULTILINE)
    named = lines(trace("-F", "shop::Basket::add", "--filter", 'name == "xx" or kind == "RED" and paid == true'))
    assert named == ['shop::Basket::add(this=@, this->count=4, kind=RED, name="xx", paid=false)']
    assert re.search(r" 2 +50\.0% +GREEN", trace("-F", "shop::Basket::add", "--by", "kind"))
    trace("-F", "shop::Basket::add", "-o", tmp_path / "hits.jsonl")
    assert [hit[1]["kind"] for hit in seen_as_they_are(tmp_path / "hits.jsonl")] == ["RED", "GREEN"] * 2
    assert [hit[1]["paid"] for hit in seen_as_they_are(tmp_path / "hits.jsonl")] == [False] * 3 + [True]
    wrong = usdtbuild("trace", "-F", "shop::price", "--filter", "amounts > 1", "--", shop, code=2).stderr
    assert "has no argument amounts; it has amount, what" in wrong
    wrong = usdtbuild("trace", "-F", "shop::Basket::add", "--filter", "kind == PURPLE", "--", shop, code=2).stderr
    assert re.search("has no argument PURPLE; values of kind are .*GREEN", wrong)


def seen_as_they_are(path: Path) -> list[tuple[str, dict[str, Any]]]:
    return [(hit["probe"], hit["args"]) for hit in map(json.loads, path.read_text().splitlines())]


PRICE = 'shop::price(amount=39, what="abc")'


def test_separate_debug_files(shop: Path, run: Any, usdtbuild: Any, tmp_path: Path) -> None:
    run("objcopy", "--only-keep-debug", shop, tmp_path / "shop.debug")
    run("objcopy", "--strip-debug", f"--add-gnu-debuglink={tmp_path}/shop.debug", shop, tmp_path / "shop")
    shown = lines(usdtbuild("trace", "-F", "shop::price", "--", tmp_path / "shop").stdout)
    assert shown[0] == PRICE
    (tmp_path / "shop.debug").unlink()
    for cache, expected in (("cache", PRICE), ("none", "shop::price(int, char const*)")):
        environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path / cache)}
        shown = lines(usdtbuild("trace", "-F", "shop::price", "--", tmp_path / "shop", env=environment).stdout)
        assert shown[0] == expected


def test_what_is_kept_is_checked(shop: Path, usdtbuild: Any, tmp_path: Path) -> None:
    """Nobody else may have written it, and nothing of it is believed."""

    def shown() -> str:
        done = usdtbuild("trace", "-F", "shop::price", "--", shop)
        assert "Traceback" not in done.stderr
        return lines(done.stdout)[0]

    assert shown() == PRICE
    (kept,) = (tmp_path / "cache/usdtbuild/functions").iterdir()
    text = kept.read_text()
    kept.write_text(text.replace("amount", "number"))
    assert shown() == 'shop::price(number=39, what="abc")'
    kept.chmod(0o666)
    assert shown() == PRICE
    for damaged in (
        text[:-5],
        "[]",
        '{"x": 1}',
        text.replace('"rdi"', '"rd i"'),
        text.replace('"rsi"', "7"),
        "[" * 99999,
    ):
        kept.write_text(damaged)
        assert shown() == PRICE
        assert kept.read_text() == text
    kept.unlink()
    kept.symlink_to(tmp_path / "other")
    (tmp_path / "other").write_text(text.replace("amount", "number"))
    assert shown() == PRICE
    assert "number" in (tmp_path / "other").read_text()


def test_damaged_debug_information(shop: Path, usdtbuild: Any, tmp_path: Path) -> None:
    """The names are shown without arguments then, or with those that still make sense; nothing breaks."""
    content = shop.read_bytes()
    with shop.open("rb") as file:
        places = [(s["sh_offset"], s["sh_size"]) for s in ELFFile(file).iter_sections() if s.name.startswith(".debug_")]
    dice = random.Random(1)
    for turn in range(8):
        damaged = bytearray(content)
        for offset, size in places:
            for _ in range(size // 50 + 1 if turn else size):
                damaged[offset + dice.randrange(size)] = dice.randrange(256)
        program = tmp_path / f"shop{turn}"
        program.write_bytes(damaged)
        program.chmod(0o755)
        environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path / f"cache{turn}")}
        done = usdtbuild("trace", "-v", "-F", "shop::*", "--returns", "--", program, env=environment)
        assert "Traceback" not in done.stderr
        assert "shop::price" in lines(done.stdout)[0]


def test_a_great_many_bytes_of_debug_information(shop: Path, run: Any, usdtbuild: Any, tmp_path: Path) -> None:
    """A gigabyte of it isn't read, and the reason is told."""
    with (tmp_path / "huge").open("wb") as file:
        file.truncate(1 << 30)
    run("objcopy", "--remove-section=.debug_str", f"--add-section=.debug_str={tmp_path}/huge", shop, tmp_path / "shop")
    done = usdtbuild("trace", "-v", "-F", "shop::price", "--", tmp_path / "shop")
    assert lines(done.stdout)[0] == "shop::price(int, char const*)"
    assert "1024 MB" in done.stderr


# One unit, whose entries are variables (2) or namespaces (3), each of one byte.
ENDLESS = """
.section .debug_abbrev,"",@progbits
.byte 1, 0x11, 1, 0x11, 1, 0x12, 7, 0, 0, 2, 0x34, 0, 0, 0, 3, 0x39, 0, 0, 0, 0
.section .debug_info,"",@progbits
.long end - begin
begin: .short 5; .byte 1, 8; .long .debug_abbrev; .byte 1; .quad 0, 0x7fffffffffff
.fill 20000000, 1, {}
.byte 0
end:
"""


@pytest.mark.parametrize("entries", [2, 3])
def test_a_unit_of_a_great_many_entries(entries: int, run: Any, tmp_path: Path) -> None:
    """Reading it ends when its time is over, and not when it is at the end, which takes half a minute."""
    (tmp_path / "a.s").write_text(ENDLESS.format(entries))
    run("gcc", "-shared", "-nostdlib", "a.s", "-o", "a.so", cwd=tmp_path)
    image = Image((tmp_path / "a.so").read_bytes(), "a.so")
    begun = time.process_time()
    text, trouble = signatures_of(image, {0x1000: Wanted("f", 0x1000)}, 1, 0.1, DEBUG)
    assert (text, trouble) == ("{}", "it takes more than 0 s to read its debug information")
    assert time.process_time() - begun < 8


def test_a_name_of_a_hundred_thousand_characters(run: Any, need: Any, usdtbuild: Any, tmp_path: Path) -> None:
    name = "f" * 100_000
    source = (
        f"__attribute__((noinline)) int {name}(int {name}) {{ return {name} + 1; }} int main() {{ return {name}(1); }}"
    )
    (tmp_path / "long.c").write_text(source)
    run(need("gcc"), "-g", "-O1", PATCHABLE, tmp_path / "long.c", "-o", tmp_path / "long")
    (shown,) = lines(usdtbuild("trace", "-F", "fff*", "--", tmp_path / "long", code=2).stdout)
    assert shown == f"{name}({'f' * 200}=1)"
