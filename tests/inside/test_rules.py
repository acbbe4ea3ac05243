"""Rules of programs that switch their own probes: their order decides, and they don't run out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).resolve().parent
RUNTIME = HERE.parent.parent / "usdtbuild" / "runtime" / "live"
pytestmark = pytest.mark.usefixtures("native")

PAIRS = [
    "server:request__done server:*",
    "server:request-done *:request__*",
    "server:tick server:ti*",
    "tick server:tick",
    "!server:tick tick",
    "s*r:* server:*",
]


@pytest.mark.parametrize("compiler", ["gcc", "musl-gcc"])
def test_rules_do_what_the_list_of_all_of_them_says_and_never_run_out(
    compiler: str, build: Any, run: Any, need: Any
) -> None:
    need(compiler)
    lines = run(build("rules.c", compiler), 300).stdout.splitlines()
    assert lines == [*(f"{pair} 300" for pair in PAIRS), "failed 0", "random failed 0 wrong 0", "many failed 0 slow 0"]


USES = """int off(void)
{
    usdt_live_probe_off("*");
    return USDT_LIVE_NO_COUNT(usdt_live_count(USDT_LIVE_PROBES | USDT_LIVE_FUNCTIONS, "*"));
}
"""


@pytest.mark.parametrize("compiler", ["gcc", "clang"])
def test_nothing_of_the_runtime_is_warned_of_where_programs_ask_for_more_warnings(
    compiler: str, run: Any, need: Any, tmp_path: Path
) -> None:
    need(compiler)
    strict = ("-O3", "-Wall", "-Wextra", "-Wsign-conversion", "-Werror", "-c", "-o", tmp_path / "made.o")
    for source in ("live.c", "rules.c"):
        run(compiler, "-std=gnu99", *strict, RUNTIME / source)
    (tmp_path / "old.c").write_text('#include "usdt_live.h"\n' + USES)
    (tmp_path / "new.cc").write_text((tmp_path / "old.c").read_text())
    run(compiler, "-std=c90", "-pedantic", *strict, "-I", RUNTIME, tmp_path / "old.c")
    run(compiler, "-pedantic", "-Wold-style-cast", *strict, "-I", RUNTIME, "-x", "c++", tmp_path / "new.cc")


def test_a_rule_with_one_handler_too_many_has_no_effect(build: Any, run: Any, usdtbuild: Any, tmp_path: Path) -> None:
    """And isn't told of by those that come after it."""
    usdtbuild("header", HERE / "module.d", "-o", tmp_path / "module.h")
    library = tmp_path / "module.so"
    run("gcc", "-O2", "-DUSDT_LIVE", "-shared", "-fPIC", "-I", tmp_path, HERE / "module.c", "-o", library)
    assert run(build("crowded.c"), library).stdout.splitlines() == [
        "1 1 1 1 1 1 1 1 -5 ", "counted 2", "again 1", "another -5", "tick 8 done 0",
        "off 1", "another 2", "tick 1 done 1",
        "0 0 0 0 0 0 0 0 0 ", "module 8", "counted 1", "refreshed -5 1", "more 1",
    ]  # fmt: skip
