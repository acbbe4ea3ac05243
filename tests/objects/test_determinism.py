"""Same inputs, same bytes: whoever runs it, wherever, whenever, in whatever language."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

SETTINGS = {
    "again": {},
    "hash seed 0": {"PYTHONHASHSEED": "0"},
    "hash seed 1": {"PYTHONHASHSEED": "1"},
    "hash seed 12345": {"PYTHONHASHSEED": "12345"},
    "C locale": {"LC_ALL": "C", "PYTHONUTF8": "0"},
    "Turkish": {"LC_ALL": "tr_TR.UTF-8", "LANG": "tr_TR.UTF-8"},
    "date and time zone": {"TZ": "Pacific/Kiritimati", "SOURCE_DATE_EPOCH": "1"},
    "no environment": {"PATH": os.environ["PATH"], "HOME": "/nonexistent"},
}


@pytest.fixture(scope="module", params=["first.c", "second.c", "first.cpp", "second.cpp"])
def plain(request: pytest.FixtureRequest, session_bench: Any, check: Any) -> Path:
    driver = "g++" if request.param.endswith("pp") else "clang"
    return Path(session_bench.compile(driver, check.samples / request.param, "-O2", "-g", "-ffunction-sections"))


@pytest.fixture(scope="module")
def expected(session_bench: Any, plain: Path) -> bytes:
    return instrumented(session_bench, plain, session_bench.fresh("out.o"))


def instrumented(bench: Any, source: Path, target: Path, **more: Any) -> bytes:
    words = ("--formats", "stapsdt,dof,usdt", source, "-o", target)
    bench.run(sys.executable, "-m", "usdtbuild", "instrument", *words, **more)
    return target.read_bytes()


@pytest.mark.parametrize("name", SETTINGS)
def test_environment(session_bench: Any, plain: Path, expected: bytes, name: str) -> None:
    environment = SETTINGS[name] if name == "no environment" else {**os.environ, **SETTINGS[name]}
    assert instrumented(session_bench, plain, session_bench.fresh("out.o"), env=environment) == expected


def test_folder_and_name(session_bench: Any, plain: Path, expected: bytes, tmp_path: Path) -> None:
    folder = tmp_path / "another folder"
    folder.mkdir()
    copy = Path(shutil.copy(plain, folder / "another name.o"))
    assert instrumented(session_bench, copy, folder / "out.o") == expected


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_user(session_bench: Any, plain: Path, expected: bytes) -> None:
    """The object comes in and goes out through pipes, since temporary folders are private."""
    script = """if True:
        import os, sys
        from usdtbuild.instrument.main import Options, instrument
        import usdtbuild.machines.x86_64
        import usdtbuild.instrument.dof
        import usdtbuild.formats.usdt_note
        import usdtbuild.provider.describe
        os.setgid(65534)
        os.setuid(65534)
        content = bytearray(sys.stdin.buffer.read())
        patches, tail, _ = instrument(bytes(content), "x.o", Options(formats=("stapsdt", "dof", "usdt")))
        for offset, data in patches:
            content[offset : offset + len(data)] = data
        sys.stdout.write((bytes(content) + tail).hex())
    """
    with plain.open("rb") as source:
        done = session_bench.run(sys.executable, "-c", script, stdin=source)
    assert bytes.fromhex(done.stdout) == expected


def test_header_documentation_and_compiled_objects(session_bench: Any, check: Any, need: Any, tmp_path: Path) -> None:
    """The other commands that write: each in a folder of its own, with another hash seed and locale."""
    need("clang++")
    made = []
    for seed, locale in (("1", "C"), ("2", "tr_TR.UTF-8"), ("random", "C.UTF-8")):
        folder = tmp_path / f"folder {seed}"
        folder.mkdir()
        for name in ("sample.d", "shared.hpp", "first.cpp"):
            shutil.copy(check.samples / name, folder)
        environment = {**os.environ, "PYTHONHASHSEED": seed, "LC_ALL": locale}
        commands = (
            "header sample.d -o complete.h --doc sample.md",
            "header sample.d -o sample.h",
            "cc -- g++ -O2 -c first.cpp -o plain.o",
            "header --formats=stapsdt,dof,usdt sample.d -o sample.h",
            "cc --formats=stapsdt,dof,usdt -- g++ -O2 -c first.cpp -o all.o",
        )
        for command in commands:
            words = (sys.executable, "-m", "usdtbuild", *command.split())
            session_bench._run(*words, cwd=folder, env=environment)
        names = ("complete.h", "sample.h", "sample.md", "plain.o", "all.o")
        made.append([(folder / name).read_bytes() for name in names])
    assert made[0] == made[1] == made[2]
