"""Enumerators that a provider file declares: taken in filters, and shown for values."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from usdtbuild.provider.enumerators import enumerators

from .conftest import built_with_probes

PROVIDER = """\
enum colour { RED, GREEN, BLUE = 0x7 };
typedef enum { OFF = -1, ON } power;
provider shades { probe one(const enum colour c, power p); };
"""
PROGRAM = """\
#include <unistd.h>
enum colour { RED, GREEN, BLUE = 0x7 };
#include "shades.h"
int main(void)
{
    volatile int values[] = {0, 1, 7, 5};
    for (int i = 0; i < 4; i++) {
        SHADES_ONE((enum colour)values[i], i - 1);
        getppid();
    }
    return 0;
}
"""


@pytest.fixture(scope="module")
def shades(run: Any, tmp_path_factory: Any) -> Path:
    return built_with_probes(run, tmp_path_factory.mktemp("shades"), "shades", PROVIDER, PROGRAM, "-O2", "-DUSDT_LIVE")


@pytest.mark.parametrize("engine", ["patch", "trap", "inside", "gdb"])
def test_they_are_taken_and_shown(shades: Path, usdtbuild: Any, need: Any, engine: str) -> None:
    if engine == "gdb":
        need("gdb")
    words = "trace", "--engine", engine, "-P", "shades:*", "--provider", f"{shades}.d"
    shown = usdtbuild(*words, "--", shades).stdout
    assert re.findall("c=.*", shown) == ["c=RED p=OFF", "c=GREEN p=ON", "c=BLUE p=1", "c=5 p=2"]
    some = usdtbuild(*words, "--filter", 'c == GREEN or (c > "GREEN" and p != OFF and c != 5)', "--", shades).stdout
    assert re.findall("c=.*", some) == ["c=GREEN p=ON", "c=BLUE p=1"]


def test_where_nobody_knows_them_it_is_said_what_to_write(shades: Path, usdtbuild: Any) -> None:
    asked = "trace", "-P", "shades:*", "--filter", "c == GREEN"
    said = usdtbuild(*asked, "--", shades, code=2).stderr
    assert "what c (const enum colour) calls its values isn't known: write a number, or name a file that" in said
    said = usdtbuild(*asked[:-1], "c == GREY", "--provider", f"{shades}.d", "--", shades, code=2).stderr
    assert "values of c are RED, GREEN, BLUE\n" in said


@pytest.mark.parametrize("language", ["bpftrace", "gdb"])
def test_scripts_have_their_values(shades: Path, usdtbuild: Any, language: str) -> None:
    for file, more in ((shades, ["--provider", f"{shades}.d"]), (f"{shades}.d", [])):
        script = usdtbuild("script", language, file, *more, "--filter", "c == BLUE").stdout
        assert re.search(r"== 7\b", script)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("enum a { A, B = 010, C = -2u, D };", {"enum a": ((0, "A"), (8, "B"), (-2, "C"), (-1, "D"))}),
        ("enum a { A = 1 << 3, B, C = 4, };", {"enum a": ((4, "C"),)}),
        ("enum a { A }; typedef enum a b;", {"enum a": ((0, "A"),), "b": ((0, "A"),)}),
        ("typedef enum a { A } b;", {"enum a": ((0, "A"),), "b": ((0, "A"),)}),
        ("enum a : unsigned char { A };", {"enum a": ((0, "A"),)}),
        ("enum a; enum", {}), ("enum {", {}), ("enum a { ,, = }", {"enum a": ()}),
    ],
)  # fmt: skip
def test_declarations(text: str, found: dict[str, Any]) -> None:
    assert enumerators(text) == found
