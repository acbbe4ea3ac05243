"""Functions of C++ are asked for and shown as they were written, whatever engine sees them."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from usdtbuild.inspection.demangle import demangle, template_name

SOURCE = Path(__file__).parent / "sources" / "shop.cc"
PRICE, OOPS, TAX = "shop::price(int, char const*)", "oops(int)", "int shop::tax<int>(int)"
CALL, ADD = "shop::Basket::operator()(int)", "shop::Basket::operator<<(int)"
HALF = "double shop::tax<double>(double)"
ALL = {PRICE, TAX, CALL, ADD, HALF}
PATTERNS = {
    "shop::*": ALL,
    "shop::price": {PRICE},
    "shop::price(int, *)": {PRICE},
    PRICE: {PRICE},
    "_ZN4shop5price*": {PRICE},
    "oops": {OOPS},
    "oops*": {OOPS},
    "o?ps": {OOPS},
    "shop::*::operator()": {CALL},
    "shop::Basket::operator<<": {ADD},
    "shop::tax<int>": {TAX},
    "shop::tax<*": {TAX, HALF},
}


@pytest.fixture(scope="module")
def shop(run: Any, need: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("shop")
    clones = ("-fno-ipa-sra", "-fno-ipa-cp")  # they have other names
    run(need("g++"), "-O2", "-std=c++17", *clones, "-fpatchable-function-entry=7,5", SOURCE, "-o", folder / "shop")
    return folder / "shop"


def counted(text: str) -> dict[str, int]:
    """Return the rows of `--count`."""
    return {name: int(number) for number, name in re.findall(r"^ *(\d+)  (.+)$", text, re.MULTILINE)}


@pytest.mark.parametrize("engine", ["patch", "trap", "inside"])
def test_what_is_asked_for_as_it_was_written(engine: str, shop: Path, usdtbuild: Any) -> None:
    options = ("--engine", engine, *(["--trap"] if engine == "trap" else []), "--count")
    found = {}
    for pattern in PATTERNS if engine != "trap" else ["shop::*"]:
        found[pattern] = counted(usdtbuild("trace", *options, "-F", pattern, "--", shop, 7).stdout)
    assert found == {pattern: dict.fromkeys(PATTERNS[pattern], 7) for pattern in found}


def test_a_pattern_without_a_match_names_the_programs_own_functions_first(shop: Path, usdtbuild: Any) -> None:
    """Its libraries have thousands, and their names come first in the alphabet."""
    said = usdtbuild("trace", "--engine", "patch", "-F", "qqqq", "--", shop, 1, code=1).stderr
    there = said.partition("there are ")[2].partition(" more")[0]
    assert " main," in there
    assert "_IO_" not in there


def test_what_is_left_out_as_it_was_written(shop: Path, usdtbuild: Any) -> None:
    for engine in ("patch", "inside"):
        words = ("--engine", engine, "--count", "-F", "shop::*", "-x", "shop::Basket::*", "-x", "*tax<double>")
        assert counted(usdtbuild("trace", *words, "--", shop, 3).stdout) == {PRICE: 3, TAX: 3}


def test_names_as_they_are_linked(shop: Path, usdtbuild: Any) -> None:
    for engine in ("patch", "inside"):
        shown = usdtbuild("trace", "--engine", engine, "--count", "--mangled", "-F", "shop::pr*", "--", shop, 3).stdout
        assert counted(shown) == {"_ZN4shop5priceEiPKc": 3}


def test_functions_are_known_by_both_names_however_they_are_shown(shop: Path, usdtbuild: Any) -> None:
    """With --mangled and the library inside, only the linked name was."""
    for engine in ("patch", "inside"):
        words = "trace", "--mangled", "-F", "shop::*", "--engine", engine
        for name in ("shop::price", "_ZN4shop5priceEiPKc"):
            shown = usdtbuild(*words, f"--graph={name}", "--", shop, 3).stdout
            assert re.search(r" 3  _ZN4shop5priceEiPKc\n", shown), shown
            shown = usdtbuild(*words, "--report", "--below", name, "--", shop, 3).stdout
            assert re.search(r" 3  _ZN4shop5priceEiPKc\n", shown), shown


@pytest.mark.parametrize("option", ["--below", "--not-below"])
def test_who_calls_is_nearly_right(option: str, shop: Path, usdtbuild: Any) -> None:
    for engine in ("patch", "inside"):
        words = "--report", "-F", "shop::*", "--engine", engine, option, "shop::prise"
        said = usdtbuild("trace", *words, "--", shop, 3, code=1).stderr
        assert re.search(rf"nothing matches {option} shop::prise; did you mean (\S+ or )*shop::price", said), said


def test_calls_and_their_returns(shop: Path, usdtbuild: Any, tmp_path: Path) -> None:
    usdtbuild("trace", "-F", "shop::pr*", "--returns", "-o", tmp_path / "hits.jsonl", "--", shop, 2)
    hits = [json.loads(line)["probe"] for line in (tmp_path / "hits.jsonl").read_text().splitlines()]
    assert hits == [PRICE, f"{PRICE}:return"] * 2


@pytest.mark.parametrize("name", [PRICE, "shop::price"])
def test_how_long_a_call_takes(name: str, shop: Path, usdtbuild: Any) -> None:
    shown = usdtbuild("trace", "-F", "shop::price", "--returns", "--latency", name, f"{name}:return", "--", shop, 50)
    assert "50 pairs" in shown.stdout, shown


def test_report_and_graph(shop: Path, usdtbuild: Any) -> None:
    for option in ("--report", "--graph"):
        shown = usdtbuild("trace", option, "-F", "shop::*", "--", shop, 5).stdout
        assert {name for name in ALL if re.search(rf" 5  .*{re.escape(name)}\n", shown)} == ALL, shown


def test_a_name_that_is_nearly_right(shop: Path, usdtbuild: Any) -> None:
    for wrong in ("shop::prise", "shop::price(double)"):
        said = usdtbuild("trace", "-F", wrong, "--", shop, code=1).stderr
        assert re.search(r"did you mean (\S+ or )*shop::price", said), said
    assert "shop::price" in usdtbuild("trace", "-F", "price", "--", shop, code=1).stderr


@pytest.mark.parametrize("report", [(), ("--report",)])
def test_a_template_is_what_was_meant(report: tuple[str, ...], shop: Path, usdtbuild: Any) -> None:
    """Other functions, whose whole names were more alike, were named."""
    said = usdtbuild("trace", *report, "-F", "shop::tax", "--", shop, code=1).stderr
    found = re.search(r"nothing matches -F shop::tax; did you mean (shop::tax<\w+>) or (shop::tax<\w+>)", said)
    assert found is not None, said
    assert set(found.groups()) == {"shop::tax<int>", "shop::tax<double>"}


@pytest.mark.parametrize(("called", "name"), [
    ("twice<int>", "twice"), ("shop::Box<a<b> >::sum<long>", "shop::Box::sum"), ("main", "main"),
    ("operator<< <int>", "operator<< <int>"), ("odd>", "odd"),
])  # fmt: skip
def test_a_name_without_the_arguments_of_templates(called: str, name: str) -> None:
    assert template_name(called) == name


@pytest.mark.parametrize("pair", [("shop::price", "shop::price:return"), ("shop::price(*", "shop::price*:return")])
def test_functions_that_are_paired_must_be_asked_for(pair: tuple[str, str], shop: Path, usdtbuild: Any) -> None:
    """It was said that nothing matches -P, which nobody had given, and which of libstdc++'s probes were meant."""
    said = usdtbuild("trace", "--latency", *pair, "--", shop, code=1).stderr
    for name in pair:
        option = f"-F {shlex.quote(name.removesuffix(':return'))} --returns"
        assert f"nothing matches --latency {name}; there are functions of this name: give {option}, too" in said
    assert "-P" not in said


def test_library_calls_that_are_paired_must_be_asked_for(shop: Path, usdtbuild: Any) -> None:
    said = usdtbuild("trace", "-x", "none", "--latency", "printf", "printf:return", "--", shop, code=1).stderr
    assert "there are library calls of this name: give -L printf --returns, too" in said


def test_a_hundred_thousand_names() -> None:
    """Not timed: they go through one process."""
    names = {f"_ZN4shop5priceILi{number}EEEii": f"int shop::price<{number}>(int)" for number in range(100_000)}
    assert demangle(names) == names


def test_names_that_are_written_a_hundred_times_as_long_stay_as_they_are() -> None:
    """Else half a megabyte of them is 65 MB to look through for whoever asks for a function."""
    doubled = "_Z1f1A1QIS_S_E" + "".join(f"S0_IS{i}_S{i}_E" for i in range(1, 9))
    assert demangle(["_Z1fi", doubled]) == {"_Z1fi": "f(int)"}


def test_the_cold_part_of_a_function_is_no_function_of_its_name(run: Any, usdtbuild: Any, tmp_path: Path) -> None:
    """A filter had no argument there, and was refused; returns got breakpoints."""
    (tmp_path / "c.cpp").write_text(
        "#include <cstdlib>\n#include <cstdio>\n#include <string>\n"
        '__attribute__((cold, noinline)) void fails(int k) { std::printf("%d\\n", k); if (k > 90) std::abort(); }\n'
        "__attribute__((noipa)) int part(int k)\n"
        "{ if (__builtin_expect(k > 9, 0)) { fails(k); fails(k + 1); } return k; }\n"
        "__attribute__((noipa)) std::string longs(int k) { return std::string(k, 'x'); }\n"
        "int main() { int s = 0; for (int i = 0; i < 10; i++) s += part(i) + longs(i).size(); return s == 0; }\n"
    )
    run("g++", "-O2", "-g", "-fpatchable-function-entry=7,5", "c.cpp", "-o", "c", cwd=tmp_path)
    assert "part(int) [clone .cold]" in run("nm", "-C", "c", cwd=tmp_path).stdout
    done = usdtbuild("trace", "-F", "part", "--returns", "--filter", "k > 7", "--", "./c", cwd=tmp_path)
    assert re.findall(r"part\(k=(\d)\)( = \d)?\n", done.stdout) == [("8", ""), ("8", " = 8"), ("9", ""), ("9", " = 9")]
    assert "clone" not in done.stdout + done.stderr
    shown = usdtbuild("trace", "-F", "longs", "--count", "--", "./c", cwd=tmp_path).stdout
    assert counted(shown) == {"longs[abi:cxx11](int)": 10}
