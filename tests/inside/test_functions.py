"""Functions whose entry and return are watched, left in every way there is, and switched by the thousand under load."""

from __future__ import annotations

import json
import re
import struct
import subprocess
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.usefixtures("native")

HERE = Path(__file__).resolve().parent
RUNTIME = HERE.parent.parent / "usdtbuild" / "runtime" / "live"
PATCHABLE = "-fpatchable-function-entry=7,5"


@pytest.mark.parametrize(("compiler", "cc"), [("g++", "gcc"), ("clang++", "clang")])
@pytest.mark.parametrize("level", ["-O0", "-O2"])
def test_frames_are_left_in_every_way(
    compiler: str, cc: str, level: str, build: Any, run: Any, need: Any, check_frames: Any
) -> None:
    need(compiler)
    out = run(build("frames.cc", compiler, cc=cc, flags=(level, PATCHABLE))).stdout
    check_frames(out, 3000)


@pytest.mark.parametrize("compiler", ["gcc", "clang"])
@pytest.mark.parametrize("level", ["-O0", "-O3"])
def test_what_hits_run_touches_no_vector_register(
    compiler: str, level: str, run: Any, need: Any, tmp_path: Path
) -> None:
    """With handlers that promise as much, nobody saves them."""
    need(compiler)
    run(compiler, "-std=gnu99", level, "-c", RUNTIME / "frames.c", "-o", tmp_path / "frames.o")
    code = run("objdump", "-d", tmp_path / "frames.o").stdout
    assert "live_enter" in code
    assert not re.findall(r"%[xyz]mm\d+", code)


@pytest.mark.parametrize("compiler", ["gcc", "clang"])
@pytest.mark.parametrize("linker", ["bfd", "lld"])
def test_refused_are_those_that_the_functions_command_refuses(
    compiler: str, linker: str, build: Any, run: Any, usdtbuild: Any, need: Any
) -> None:
    need(compiler)
    need(f"ld.{linker}")
    program = build("refusals.c", compiler, f"-fuse-ld={linker}", flags=("-O2", PATCHABLE))
    inside = {}
    for line in run(program).stdout.splitlines():
        name, reason, on, count = line.split()
        inside[name] = reason
        assert (reason == "yes") == (on == "1"), line
        if name == "looks_like_it":
            assert int(count) >= 1, line
    listed = json.loads(usdtbuild("functions", "--json", program).stdout)
    outside = {
        each["name"]: each["reason"] or "yes" for each in listed["files"][0]["functions"] if each["name"] in inside
    }
    wanted = {name: reason for name, reason in inside.items() if reason != "long-nop"}
    assert {name: outside[name] for name in wanted} == wanted
    for name in ("jumped_into", "padding_jumped_into", "short_padding"):
        assert inside[name] != "yes"
    if compiler == "gcc":
        assert "long-nop" not in inside.values()
        assert inside["looks_like_it"] == inside["a_loop"] == "yes"


def switch_many(source: Path, count: int, switches: int, run: Any, runtime: Any) -> dict[str, int]:
    folder = source.parent
    run("gcc", "-O1", PATCHABLE, "-c", source, "-o", folder / "many.o")
    options = ("-O2", f"-DFUNCTIONS={count}", "-DWITH_LEAVE=1", "-I", RUNTIME)
    run("gcc", *options, HERE / "many_functions.c", folder / "many.o", *runtime("gcc", "-O2"), "-lpthread", "-o",
        folder / "many")  # fmt: skip
    out = run(folder / "many", switches, 3).stdout
    return {name: int(value) for name, value in re.findall(r"(\w+) (\d+)", out)}


def test_a_thousand_functions_are_switched_under_load(
    many_functions: Any, run: Any, runtime: Any, tmp_path: Path
) -> None:
    found = switch_many(many_functions(tmp_path, 1000), 1000, 200, run, runtime)
    assert (found["wrong"], found["failed"], found["counted"]) == (0, 0, 1000)
    assert found["entered"] > 1000
    assert found["left"] > 100


@pytest.mark.slow
def test_ten_thousand_functions_are_switched_a_thousand_times(
    many_functions: Any, run: Any, runtime: Any, tmp_path: Path
) -> None:
    found = switch_many(many_functions(tmp_path, 10000), 10000, 1000, run, runtime)
    assert (found["wrong"], found["failed"], found["counted"]) == (0, 0, 10000)


def at_an_odd_place(content: bytes, name: bytes) -> bytes:
    """Return an ELF file of 64 bits whose section of this name begins at an odd offset."""
    (table,), (size, count, names) = struct.unpack_from("<Q", content, 40), struct.unpack_from("<HHH", content, 58)
    headers = [struct.unpack_from("<IIQQQQIIQQ", content, table + i * size) for i in range(count)]
    for number, one in enumerate(headers):
        start = headers[names][4] + one[0]
        if content[start : start + len(name) + 1] == name + b"\0":
            changed = bytearray(content) + bytes(1 - len(content) % 2)
            struct.pack_into("<Q", changed, table + number * size + 24, len(changed))
            return bytes(changed + content[one[4] : one[4] + one[5]])
    raise AssertionError(name)


@pytest.mark.parametrize("table", [b"", b".symtab"])
def test_symbols_at_an_odd_place_are_not_undefined_behaviour(table: bytes, build: Any, tmp_path: Path) -> None:
    checked = ("-fsanitize=undefined", "-fno-sanitize-recover=all")
    program = build("refusals.c", "gcc", *checked, flags=("-O2", PATCHABLE), runtime_flags=("-O2", *checked))
    changed = tmp_path / "changed"
    content = program.read_bytes()
    changed.write_bytes(at_an_odd_place(content, table) if table else content)
    changed.chmod(0o755)
    done = subprocess.run([changed], capture_output=True, text=True, check=False, timeout=60)
    assert "runtime error" not in done.stderr, done.stderr
    assert done.returncode >= 0, done
