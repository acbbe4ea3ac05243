"""docs/make.md as a reader takes it: its provider file, source and Makefile, copied from the page and built."""

from __future__ import annotations

import os
import re
import shutil
import sys
import time
from pathlib import Path
from typing import Any

import pytest

PAGE = Path(__file__).resolve().parent.parent / "docs/make.md"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    blocks = dict(re.findall(r"^```(\w+)\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL))
    for name, kind in (("app.d", "d"), ("main.c", "c"), ("Makefile", "make")):
        (tmp_path / name).write_text(blocks[kind])
    return tmp_path


@pytest.fixture
def make(project: Path, run: Any) -> Any:
    """Run make with this checkout's usdtbuild in PATH; return the commands it ran."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    # The tests may run under Make themselves, of which this one needn't know.
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))}

    def run_make(*arguments: str) -> list[str]:
        done = run("make", *arguments, cwd=project, env={**environment, "PATH": path})
        return [line for line in done.stdout.splitlines() if not line.startswith("make:")]

    return run_make


def compiles(commands: list[str]) -> int:
    return sum(" -c main.c" in command for command in commands)


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    time.sleep(0.02)  # Make compares times
    path.write_text(text.replace(old, new))


def test_the_makefile_builds_what_changed(project: Path, make: Any, usdtbuild: Any, run: Any) -> None:
    assert compiles(make("-j8")) == 1
    usdtbuild("verify", project / "app", "--provider", project / "app.d")
    assert not make()
    edit(project / "app.d", "int status", "long status")
    assert compiles(make()) == 1
    assert "long status" in usdtbuild("list", project / "app").stdout
    (project / "app.h").unlink()
    assert compiles(make("-j8")) == 1
    assert not make()
    run(project / "app", "/", "/index")


def test_the_commands_by_hand(project: Path, run: Any, usdtbuild: Any) -> None:
    usdtbuild("header", "app.d", "-o", "app.h", cwd=project)
    run("gcc", "-O2", "main.c", "-o", "app", cwd=project)
    assert "2 probes, 2 sites" in usdtbuild("list", project / "app").stdout


@pytest.mark.live("gdb")
def test_gdb_as_on_the_page(project: Path, make: Any, run: Any) -> None:
    make()
    assert shutil.which("gdb")
    words = "-batch -ex|break -probe-stap app:request__start|-ex|run|-ex|print $_probe_arg0|-ex|x/s $_probe_arg1"
    command = ["gdb", *words.replace("-batch ", "-batch|").split("|"), "--args", "./app", "/", "/index"]
    done = run(*command, cwd=project, env={**os.environ, "DEBUGINFOD_URLS": ""})
    assert "$1 = 1" in done.stdout
    assert '"/"' in done.stdout
