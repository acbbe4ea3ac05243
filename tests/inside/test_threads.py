"""What threads and handlers may do while functions are on, and how the runtime's files are compiled with others."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.usefixtures("native")
RUNTIME = Path(__file__).resolve().parent.parent.parent / "usdtbuild" / "runtime"
FLAGS = ("-O2", "-fpatchable-function-entry=7,5")


@pytest.fixture
def numbers(build: Any, run: Any) -> Any:
    """Run threads.c: `numbers("deep", 6000)`."""

    def run_and_read(*words: Any) -> dict[str, int]:
        out = run(build("threads.c", flags=FLAGS), *words).stdout
        return {name: int(value) for name, value in re.findall(r"(\w+)=(\d+)", out)}

    return run_and_read


def test_two_hundred_threads_have_their_returns(numbers: Any) -> None:
    found = numbers("threads", 200)
    assert (found["entered"], found["left"], found["too_deep"]) == (20000, 20000, 0)


def test_calls_without_a_frame_cost_no_more_than_those_with_one(numbers: Any) -> None:
    """Each of them used to look through all frames."""
    found = numbers("deep", 8000)
    assert found["left"] == 5 * (4000 + 4080)
    assert found["times"] < 10


def test_a_handler_that_is_left_does_not_silence_its_thread(numbers: Any) -> None:
    found = numbers("jumps", 30)
    assert (found["entered"], found["handlers_left"], found["skipped"]) == (30, 10, 0)


def test_a_handler_may_count_where_the_dynamic_linker_holds_its_lock(numbers: Any) -> None:
    """While another thread looks for modules."""
    assert numbers("callbacks", 2000)["entered"] >= 2000


def test_a_count_that_is_none_is_told_from_one(numbers: Any) -> None:
    found = numbers("errors")
    assert (found["bad"], found["good"]) == (1, 0)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("-m32",), "no protocol for 32-bit x86"),
        (("-mx32",), "no protocol for x32"),
        (("-fsanitize=thread",), "compile these files with -fno-sanitize=thread"),
    ],
)
def test_what_can_not_work_is_refused_at_compile_time(options: tuple[str, ...], says: str, run: Any) -> None:
    done = run("gcc", *options, "-c", RUNTIME / "live" / "live.c", "-o", "/dev/null", code=None)
    assert done.returncode
    assert says in done.stderr


def test_a_program_with_thread_sanitizer_has_its_functions(build: Any, run: Any, runtime: Any, tmp_path: Path) -> None:
    objects = runtime("gcc", "-O2")
    program = tmp_path / "program"
    words = (*FLAGS, "-fsanitize=thread", "-I", RUNTIME / "live", Path(__file__).with_name("threads.c"))
    if run("gcc", *words, *objects, "-lpthread", "-o", program, code=None).returncode:
        pytest.skip("this compiler has no ThreadSanitizer")
    done = run("setarch", "-R", program, "threads", 20, code=None)
    if "unexpected memory mapping" in done.stderr:
        pytest.skip("ThreadSanitizer does not run here")
    assert "entered=2000 left=2000" in done.stdout, done.stderr


@pytest.mark.parametrize("standard", ["gnu99", "c99", "gnu89"])
def test_the_runtime_s_files_stand_behind_other_headers(standard: str, cc: str, run: Any, tmp_path: Path) -> None:
    """In a unity build, and with what <iso646.h> makes of names."""
    source = tmp_path / "unity.c"
    source.write_text(f'#include <stdio.h>\n#include <link.h>\n#include "{RUNTIME / "usdt_dof_register.c"}"\n')
    run(cc, f"-std={standard}", "-Wall", "-Wextra", "-Werror", "-c", source, "-o", tmp_path / "unity.o")
    for path in sorted((RUNTIME / "live").glob("*.c")) if standard == "gnu99" else ():
        run(cc, "-std=gnu99", "-include", "iso646.h", "-fsyntax-only", path)
