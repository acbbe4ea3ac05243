"""A function of one name in two libraries: whatever shows hits or calls says which of them it is."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

LIBRARY = """
#define KEPT __attribute__((noipa, visibility("hidden")))
namespace lib { KEPT int work(int x) { asm volatile(""); return x + 1; } }
extern "C" int RUN(int n) { int sum = 0; for (int i = 0; i < n; i++) sum += lib::work(i); return sum; }
"""
PROGRAM = """
#include <dlfcn.h>
extern "C" int run_a(int);
int main()
{
    int sum = run_a(3);
    auto run_b = (int (*)(int))dlsym(dlopen(LATER, RTLD_NOW), "run_b");
    return sum + run_b(5) < 0;
}
"""
LINKED = 'extern "C" int run_a(int); extern "C" int run_b(int); int main() { return run_a(3) + run_b(5) < 0; }'


@pytest.fixture(scope="module")
def folder(run: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`both` has both libraries from its start, `later` loads the second one when the first one's calls are over."""
    made = tmp_path_factory.mktemp("same")
    entries = ("-g", "-O1", "-falign-functions=32", "-fpatchable-function-entry=7,5")
    (made / "library.cpp").write_text(LIBRARY)
    for name in "ab":
        run("g++", *entries, "-shared", "-fPIC", f"-DRUN=run_{name}", "library.cpp", "-o", f"lib{name}.so", cwd=made)
    (made / "both.cpp").write_text(LINKED)
    (made / "later.cpp").write_text(PROGRAM)
    run("g++", "both.cpp", "-L.", "-la", "-lb", f"-Wl,-rpath,{made}", "-o", "both", cwd=made)
    run("g++", f'-DLATER="{made}/libb.so"', "later.cpp", "-L.", "-la", f"-Wl,-rpath,{made}", "-ldl", "-o", "later",
        cwd=made)  # fmt: skip
    return made


@pytest.fixture
def trace(usdtbuild: Any, folder: Path) -> Any:
    def traced(*words: str, program: str = "both") -> str:
        return str(usdtbuild("trace", "-F", "lib::work", *words, "--", folder / program).stdout)

    return traced


def names(folder: Path) -> tuple[str, str]:
    return f"lib::work(int) ({folder}/liba.so)", f"lib::work(int) ({folder}/libb.so)"


@pytest.mark.parametrize("program", ["both", "later"])
def test_keys_that_are_probes_say_their_file(program: str, trace: Any, folder: Path) -> None:
    first, second = names(folder)
    assert [line.split(maxsplit=2)[::2] for line in trace("--by", "probe", program=program).splitlines()[1:]] == [
        ["5", second], ["3", first],
    ]  # fmt: skip
    assert f"1   12.5%  {second}, 4\n" in trace("--by", "probe,x", program=program)
    table = trace("--histogram", "x", "--by", "probe", program=program)
    assert [line.split(maxsplit=7)[-1] for line in table.splitlines()[2:]] == [second, first]


@pytest.mark.parametrize("program", ["both", "later"])
@pytest.mark.parametrize("engine", ["inside", "patch"])
def test_reports_and_trees_say_the_file(program: str, engine: str, trace: Any, folder: Path) -> None:
    report, callers, called = trace("--report", "--graph=lib::work", "--engine", engine, program=program).split("\n\n")
    first, second = names(folder)
    for table in (report, callers, called):
        assert {line.split("  ")[-1]: line.split()[-3] for line in table.splitlines()[1:]} == {first: "3", second: "5"}


def test_lines_say_the_file(trace: Any, folder: Path) -> None:
    shown = [re.sub(r" +[\d.]+ +\d+ ", "", line, count=1) for line in trace("--returns").splitlines()]
    assert shown[:2] == [f"lib::work(x=0) ({folder}/liba.so)", f"lib::work(x=0) = 1 ({folder}/liba.so)"]
    assert shown[-1] == f"lib::work(x=4) = 5 ({folder}/libb.so)"


def test_jsonl_has_a_field_for_it(trace: Any, folder: Path, tmp_path: Path) -> None:
    trace("-o", str(tmp_path / "x.jsonl"))
    hits = [json.loads(line) for line in (tmp_path / "x.jsonl").read_text().splitlines()]
    assert [(one["probe"], one["module"]) for one in hits] == [
        *[("lib::work(int)", f"{folder}/liba.so")] * 3, *[("lib::work(int)", f"{folder}/libb.so")] * 5,
    ]  # fmt: skip


def test_nothing_changes_where_one_file_has_the_name(trace: Any, tmp_path: Path) -> None:
    words = ("--module", "liba.so")
    assert "/" not in trace(*words, "--by", "probe") + trace(*words) + trace(*words, "--report", "--graph")
    trace(*words, "-o", str(tmp_path / "x.jsonl"))
    assert "module" not in (tmp_path / "x.jsonl").read_text()
