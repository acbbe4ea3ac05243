"""The sample cmake-hello from the first build to the thousandth: what is compiled when, and what the result can do.

Each CMake and generator builds the sample once; the tests then edit it and count what is compiled. They may run in
any order, and each leaves the build up to date.
"""

from __future__ import annotations

import itertools
import re
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.project

ALL_SOURCES = ["greeting.c", "journal.cpp", "main.c"]
# Each CMake and each generator once; samples/ has the system's with Ninja, the rest of the combinations are slow tests.
ESSENTIAL = {("oldest", "Unix Makefiles"), ("system", "Ninja Multi-Config"), ("newest", "Ninja")}
VARIANTS = [
    pytest.param(
        (cmake, generator),
        id=f"{cmake}-{generator}",
        marks=[] if (cmake, generator) in ESSENTIAL else [pytest.mark.slow],
    )
    for cmake, generator in (
        ("oldest", "Ninja"),
        ("oldest", "Unix Makefiles"),
        ("system", "Ninja"),
        ("system", "Unix Makefiles"),
        ("system", "Ninja Multi-Config"),
        ("newest", "Ninja"),
        ("newest", "Unix Makefiles"),
    )
]
_fresh = itertools.count()


@pytest.fixture(scope="module", params=VARIANTS)
def hello(
    request: pytest.FixtureRequest, tmp_path_factory: Any, make_project: Any, copy_sample: Callable[[str, Path], None]
) -> Any:
    """cmake-hello, built."""
    cmake, generator = request.param
    project = make_project(tmp_path_factory.mktemp("hello"), cmake, generator)
    copy_sample("cmake-hello", project.source)
    project.built()
    project.first_build = project.compiled()
    return project


def is_idle(output: str) -> bool:
    """Tell from a build tool's output that it ran no command."""
    return "no work to do" in output or not re.search(r"Building|Generating|Linking", output)


def test_first_build_compiles_each_source_once(hello: Any) -> None:
    assert hello.first_build == ALL_SOURCES


def test_program_does_its_work(hello: Any, run: Any) -> None:
    assert run(hello.binary("hello"), "Ada", "Grace").stdout == "Hello, Ada!\nHello, Grace!\n"


def test_editing_a_source_compiles_that_source(hello: Any) -> None:
    hello.edit("greeting.c", "strlen(text);\n}", f"strlen(text) + 0 * {next(_fresh)};\n}}")
    hello.make()
    assert hello.compiled() == ["greeting.c"]
    assert is_idle(hello.make())


def test_new_probe_compiles_the_users_of_its_header(hello: Any) -> None:
    probe = "\n\tprobe more(long);"
    for old, new in (("", probe), (probe, "")):
        hello.edit("hello.d", f"provider hello {{{old}", f"provider hello {{{new}")
        hello.make()
        assert hello.compiled() == ["greeting.c", "main.c"]
        assert is_idle(hello.make())


def test_changed_type_in_the_other_provider_compiles_its_one_user(hello: Any) -> None:
    hello.edit("journal.d", "unsigned int lines", "unsigned  long lines")
    hello.make()
    assert hello.compiled() == ["journal.cpp"]
    hello.edit("journal.d", "unsigned  long lines", "unsigned int lines")
    hello.make()
    assert hello.compiled() == ["journal.cpp"]


def test_touched_provider_compiles_nothing(hello: Any) -> None:
    time.sleep(0.05)
    (hello.source / "journal.d").touch()
    hello.make()
    assert hello.compiled() == []
    assert is_idle(hello.make())


@pytest.mark.parametrize(
    ("name", "right", "wrong", "said"),
    [
        ("journal.d", "probe append(", "probe append((", r"journal\.d:\d+:\d+"),
        ("journal.cpp", "JOURNAL_APPEND(line, lines)", "JOURNAL_APPEND(line)", "JOURNAL_APPEND"),
    ],
    ids=["an error in the provider", "a wrong argument"],
)
def test_a_mistake_stops_the_build_until_it_is_mended(hello: Any, name: str, right: str, wrong: str, said: str) -> None:
    hello.edit(name, right, wrong)
    output = hello.make(code=None)
    assert re.search(said, output), output
    hello.edit(name, wrong, right)
    hello.make()
    assert is_idle(hello.make())
    hello.compiled()


@pytest.mark.parametrize("pause", [0.01, *(pytest.param(pause, marks=pytest.mark.slow) for pause in (0.0, 0.03, 0.06))])
def test_a_build_that_was_killed_goes_on_where_it_stopped(
    hello: Any, run: Any, end_build: Callable[..., None], pause: float
) -> None:
    hello.compiled()
    probe = "\n\tprobe killed(long);"
    hello.edit("hello.d", "provider hello {", f"provider hello {{{probe}")
    quiet: Any = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "start_new_session": True}
    end_build(subprocess.Popen([hello.cmake, "--build", hello.build], **quiet), hello.generator, hello.log, pause)
    hello.make()
    hello.compiled()
    assert run(hello.binary("hello"), "Ada").stdout == "Hello, Ada!\n"
    assert is_idle(hello.make())
    hello.edit("hello.d", probe, "")
    hello.make()
    hello.compiled()


def test_cleaning_and_building_makes_everything_again(hello: Any, run: Any) -> None:
    hello.make("--target", "clean")
    hello.make()
    assert hello.compiled() == ALL_SOURCES
    assert run(hello.binary("hello"), "Ada").stdout == "Hello, Ada!\n"


def test_list_shows_the_probes_of_every_target(hello: Any, usdtbuild: Any) -> None:
    shown = usdtbuild("list", hello.binary("hello")).stdout
    for probe in ("start", "greet__begin", "greet__done", "finish"):
        assert re.search(rf"\bhello\b.*\b{probe}\b", shown), shown
    assert re.search(r"\bjournal\b.*\bappend\b", usdtbuild("list", hello.binary("libjournal.so")).stdout)


def test_verify_tests_pass(hello: Any, run: Any) -> None:
    configuration = ["-C", "Debug"] if hello.generator == "Ninja Multi-Config" else []
    ctest = hello.ctest
    said = run(ctest, "--output-on-failure", *configuration, cwd=hello.build).stdout
    assert re.findall(r"usdt-verify-(\w+) [ .]*Passed", said) == ["hello", "journal"], said


@pytest.mark.live
def test_bpftrace_sees_every_hit(hello: Any, trace: Callable[..., list[str]]) -> None:
    program, library = hello.binary("hello"), hello.binary("libjournal.so")
    script = f"""
        usdt:{program}:hello:start {{ printf("start %d %s\\n", arg0, str(arg1)); }}
        usdt:{program}:hello:greet__done {{ printf("done %s %d %d\\n", str(arg0), arg1, arg2); }}
        usdt:{library}:journal:append {{ printf("append %s %d\\n", str(arg0), arg1); }}
        usdt:{program}:hello:finish {{ printf("finish %d %d\\n", arg0, arg1); }}
    """
    assert trace(script, program, "Ada", "Grace") == [
        "start 2 Ada",
        "done Ada 1 11",
        "append Hello, Ada! 1",
        "done Grace 2 13",
        "append Hello, Grace! 2",
        "finish 2 24",
    ]
