"""`usdtbuild trace -F GLOB --returns`: functions tell their returns, once each, and none where they don't return."""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

SOURCE = """
#include <csetjmp>
#include <cstdio>
#include <pthread.h>
static jmp_buf where;
static int other;
extern "C" {
int fib(int n);
static int (*volatile again)(int) = fib;  // a compiler would make a loop of some of its calls
__attribute__((noipa)) int fib(int n) { return n < 2 ? n : again(n - 1) + again(n - 2); }
__attribute__((noipa)) int thrower(int n) { if (n % 2) throw n; return n; }
__attribute__((noipa)) int catcher(int n) { try { return thrower(n); } catch (int m) { return -m; } }
__attribute__((noipa)) int jumper(int n) { if (n % 2) longjmp(where, 1); return n; }
__attribute__((noipa)) int last(int n) { return n + 1; }
__attribute__((noipa)) int tail(int n) { return last(n * 2); }
__attribute__((noipa)) void nothing(void) { other++; }
}
static void *work(void *p) { for (int i = 0; i < 20; i++) tail(i); return p; }
int main() {
    int (*volatile by_pointer)(int) = jumper;
    long sum = fib(6);
    pthread_t threads[3];
    for (int i = 0; i < 6; i++) sum += catcher(i);
    for (volatile int i = 0; i < 6; i++) {
        if (setjmp(where)) { nothing(); continue; }
        sum += by_pointer(i);
    }
    for (int i = 0; i < 3; i++) pthread_create(&threads[i], 0, work, 0);
    for (int i = 0; i < 3; i++) pthread_join(threads[i], 0);
    std::printf("%ld\\n", sum);
}
"""
FORMS = {"patchable": ("-fpatchable-function-entry=7,5",), "ordinary": (), "guarded": ("-fcf-protection", "-no-pie")}
NAMES = ("fib", "thrower", "catcher", "jumper", "last", "tail", "nothing")
ENTERED = {"fib": 25, "thrower": 6, "catcher": 6, "jumper": 6, "last": 60, "tail": 60, "nothing": 3}
RETURNED = {**ENTERED, "thrower": 3, "jumper": 3}  # what is thrown or jumped out of doesn't return


@pytest.fixture(scope="module", params=FORMS)
def program(request: pytest.FixtureRequest, run: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program, with entries of one form."""
    folder = tmp_path_factory.mktemp("returns")
    folder.chmod(0o755)
    (folder / "program.cc").write_text(SOURCE)
    run("g++", "-O2", *FORMS[request.param], "-pthread", "program.cc", "-o", "program", cwd=folder)
    return folder / "program"


def test_returns_are_counted_where_there_are_some(program: Path, run: Any, counted: Any) -> None:
    words = [word for name in NAMES for word in ("-F", name)]
    _, printed = counted(*words, "--returns", "-v", "--", program)
    rows = re.findall(r"^ *([0-9]+)  (\S+)$", printed, re.MULTILINE)
    assert {name: int(number) for number, name in rows} == {
        **ENTERED, **{f"{name}:return": number for name, number in RETURNED.items()}
    }  # fmt: skip
    assert run(program).stdout in printed
    assert "returns are seen by breakpoints" in printed
    assert "traced with trap" in printed


def test_results_and_spans(program: Path, run: Any, tmp_path: Path) -> None:
    """Each return has its result, and one file pairs calls with returns, recursion too."""
    words = [sys.executable, "-m", "usdtbuild", "trace", "-F", "fib", "-F", "catcher", "--returns"]
    run(*words, "-o", tmp_path / "t.json", "-o", tmp_path / "t.jsonl", "--", program)
    hits = [json.loads(line) for line in (tmp_path / "t.jsonl").read_text().splitlines()]
    results = Counter(hit["args"]["result"] for hit in hits if hit.get("probe") == "catcher:return")
    assert Counter(int(str(one), 0) & 0xFFFFFFFF for one in results.elements()) == Counter(
        number & 0xFFFFFFFF for number in (0, -1, 2, -3, 4, -5)
    )
    events = json.loads((tmp_path / "t.json").read_text())["traceEvents"]
    assert sum(event["ph"] == "X" and event["name"] == "fib" for event in events) == 25


def test_filter_knows_a_function_and_its_return_as_one(program: Path, run: Any) -> None:
    words = [sys.executable, "-m", "usdtbuild", "trace", "-F", "last", "--returns"]
    done = run(*words, "--filter", "result == 0x15", "--", program)
    assert Counter(re.findall(r" (last\S*)", done.stdout)) == {"last": 3, "last:return": 3}


def test_returns_of_nothing_are_refused(run: Any) -> None:
    words = sys.executable, "-m", "usdtbuild", "trace", "--returns"
    done = run(*words, "--", "true", code=2)
    assert "-F GLOB" in done.stderr
    done = run(*words, "-F", "*", "--engine", "patch", "--", "true", code=2)
    assert "--engine trap" in done.stderr
