"""Libraries that come and go, after their probes were asked for."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).resolve().parent
pytestmark = pytest.mark.usefixtures("native")


@pytest.mark.parametrize("linker", ["bfd", "lld"])
def test_a_library_is_opened_and_closed_a_thousand_times(
    linker: str, build: Any, run: Any, usdtbuild: Any, tmp_path: Any, need: Any
) -> None:
    need(f"ld.{linker}")
    usdtbuild("header", "--formats=dof", HERE / "module.d", "-o", tmp_path / "module.h")
    usdtbuild("cc", "--", "gcc", "-O2", "-fPIC", "-I", tmp_path, "-c", HERE / "module.c", "-o", tmp_path / "module.o")
    run("gcc", "-shared", f"-fuse-ld={linker}", tmp_path / "module.o", "-o", tmp_path / "module.so")
    out = run(build("modules.c"), tmp_path / "module.so", 1000).stdout
    assert out == "first 0 fired 11000 hits 11000 more points 0\n"


def sites_of(usdtbuild: Any, library: Path) -> list[Any]:
    """The sites of the library's probe: a constructor's, and a loop's, of which a compiler may make several."""
    (probe,) = json.loads(usdtbuild("list", "--json", library).stdout)["files"][0]["probes"]
    assert len(probe["sites"]) >= 2
    return list(probe["sites"])


def test_a_library_that_was_there_before_is_known_at_once(build: Any, run: Any, usdtbuild: Any, tmp_path: Path) -> None:
    usdtbuild("header", "--formats=dof", HERE / "module.d", "-o", tmp_path / "module.h")
    compile_ = ("gcc", "-O2", "-fPIC", "-I", tmp_path, "-c", HERE / "module.c", "-o", tmp_path / "module.o")
    usdtbuild("cc", "--", *compile_)
    run("gcc", "-shared", tmp_path / "module.o", "-o", tmp_path / "module.so")
    program = build("modules.c", "gcc", "-Wl,--no-as-needed", tmp_path / "module.so", f"-Wl,-rpath,{tmp_path}")
    # Its constructor has run before main(), and dlclose() leaves it.
    out = run(program, tmp_path / "module.so", 10, code=None).stdout
    points = len(sites_of(usdtbuild, tmp_path / "module.so"))
    assert out == f"first {points} fired 110 hits 100 more points 0\n"


def test_a_file_that_is_replaced_while_it_runs_is_named(run: Any, usdtbuild: Any, build: Any, tmp_path: Path) -> None:
    """Notes of another build would lead into the middle of instructions."""
    usdtbuild("header", "--formats=dof", HERE / "module.d", "-o", tmp_path / "module.h")
    compile_ = ("gcc", "-O2", "-fPIC", "-I", tmp_path, "-c", HERE / "module.c", "-o", tmp_path / "module.o")
    usdtbuild("cc", "--", *compile_)
    run("gcc", "-shared", "-Wl,--build-id=sha1", tmp_path / "module.o", "-o", tmp_path / "module.so")
    run("gcc", "-shared", "-Wl,--build-id=sha1", tmp_path / "module.o", "-o", tmp_path / "other.so",
        "-Wl,--build-id=0x1234")  # fmt: skip
    out = run(build("replaced.c"), tmp_path / "module.so", tmp_path / "other.so").stdout
    assert "module.so: the file isn't the one that is loaded" in out
    assert out.startswith("on 0\n")
