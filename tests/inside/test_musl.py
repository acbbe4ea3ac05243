"""The live runtime with another C library, musl: compiled by its own compiler, in static and in dynamic programs."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).resolve().parent
KINDS = pytest.mark.parametrize("link", [("-static",), ()], ids=["static", "dynamic"])
pytestmark = pytest.mark.usefixtures("native")


def numbers(out: str) -> dict[str, int]:
    return {name: int(value) for name, value in re.findall(r"([a-z-]+) (\d+)", out)}


@KINDS
def test_sites_are_switched_under_threads(link: tuple[str, ...], build: Any, run: Any, need: Any) -> None:
    need("musl-gcc")
    found = numbers(run(build("stress_probes.c", "musl-gcc", *link), 100, 4, "forks").stdout)
    assert (found["wrong-results"], found["wrong-arguments"], found["failed"]) == (0, 0, 0)
    assert found["counted"] == 12800
    assert found["handled"] > 1000


@KINDS
def test_functions_are_switched_under_threads(
    link: tuple[str, ...], many_functions: Any, build: Any, run: Any, need: Any, tmp_path: Path
) -> None:
    need("musl-gcc")
    entries = ("-O1", "-fpatchable-function-entry=7,5")
    run("musl-gcc", *entries, "-c", many_functions(tmp_path, 300), "-o", tmp_path / "many.o")
    flags = ("-O2", "-DFUNCTIONS=300", "-DWITH_LEAVE=1")
    found = numbers(run(build("many_functions.c", "musl-gcc", tmp_path / "many.o", *link, flags=flags), 60, 3).stdout)
    assert (found["wrong"], found["failed"], found["counted"]) == (0, 0, 300)
    assert found["entered"] > 100
    assert found["left"] > 100


def test_a_program_is_known_whatever_name_it_was_started_by(build: Any, run: Any, need: Any) -> None:
    """The dynamic linker has no other name for it, and a folder in PATH isn't in that."""
    need("musl-gcc")
    found = numbers(run("stress_probes", 10, 2, executable=build("stress_probes.c", "musl-gcc")).stdout)
    assert found["counted"] == 12800


def test_a_library_opened_later_is_found_by_the_next_call(
    build: Any, run: Any, usdtbuild: Any, need: Any, tmp_path: Path
) -> None:
    """The dynamic linker's hook is left alone: it is called under a lock that asking for its modules would wait for."""
    need("musl-gcc")
    usdtbuild("header", "--formats=dof", HERE / "module.d", "-o", tmp_path / "module.h")
    compile_ = ("musl-gcc", "-O2", "-fPIC", "-I", tmp_path, "-c", HERE / "module.c", "-o", tmp_path / "module.o")
    usdtbuild("cc", "--", *compile_)
    run("musl-gcc", "-shared", tmp_path / "module.o", "-o", tmp_path / "module.so")
    found = numbers(run(build("modules.c", "musl-gcc"), tmp_path / "module.so", 10, code=None).stdout)
    assert found["hits"] == 0
    assert found["points"] >= 1
