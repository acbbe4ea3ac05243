"""docs/cmake.md and docs/meson.md as a reader follows them, and the same few lines of README.md: built and looked at.

The pages show what goes into a project that exists; this file has that project, and nothing else of its own.
"""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
pytestmark = pytest.mark.project

SOURCE = """
#include <stdlib.h>
static int answer(const char *path) {{ return (int)path[0]; }}
static int expensive_status(int request) {{ return request; }}
{page}
int main(int argc, char **argv)
{{
    int id = argc, request = argc;
    serve(argc, argv[0]);
    {asked}
    return 0;
}}
"""
CMAKE = "cmake_minimum_required(VERSION 3.16...4.0)\nproject(app C)\nadd_executable(app main.c)\n"
MESON = "project('app', 'c', meson_version: '>=1.0.0')\n"


MESON_MODULES, MESON_MAIN = ROOT / ".cache/meson-newest", "mesonbuild.mesonmain"


def need_meson() -> None:
    if not MESON_MODULES.is_dir():
        pytest.skip(f"{MESON_MODULES} is missing; `make test` installs it")


def blocks(page: str, kind: str) -> list[str]:
    """The fenced blocks of a page that are written in `kind`."""
    return re.findall(rf"^```{kind}\n(.*?)^```$", (ROOT / page).read_text(), re.MULTILINE | re.DOTALL)


def commands(page: str, heading: str) -> str:
    """The indented commands under a heading."""
    section = (ROOT / page).read_text().split(f"\n## {heading}\n", 1)[1].split("\n## ", 1)[0]
    found = re.findall(r"^    (\S.*(?:\\\n.*)*)$", section, re.MULTILINE)
    assert found, f"{page} has no commands under {heading}"
    return "\n".join(found) + "\n"


@pytest.fixture
def follow(tmp_path: Path, run: Any, need: Any) -> Any:
    """Write files, run commands in their folder with this checkout's usdtbuild in PATH, return what they print."""
    need("ninja")
    programs = tmp_path / "bin"
    programs.mkdir()
    for name, where, module in (("usdtbuild", ROOT, "usdtbuild.__main__"), ("meson", MESON_MODULES, MESON_MAIN)):
        lines = f"import sys\nsys.path.insert(0, {str(where)!r})\nfrom {module} import main\nsys.exit(main())\n"
        (programs / name).write_text(f"#!{sys.executable}\n{lines}")
        (programs / name).chmod(0o755)
    path = os.pathsep.join([str(programs), str(Path(sys.executable).parent), os.environ["PATH"]])
    variables = {"CMAKE_PREFIX_PATH": str(ROOT), "DEBUGINFOD_URLS": "", "PATH": path}

    def write_and_run(files: dict[str, str], *scripts: str) -> list[str]:
        folder = tmp_path / "project"
        folder.mkdir(exist_ok=True)
        for name, text in files.items():
            (folder / name).write_text(text)
        ran = (run("bash", "-ec", each, cwd=folder, env={**os.environ, **variables}) for each in scripts)
        return [done.stdout + done.stderr for done in ran]

    return write_and_run


def sources(page: str) -> dict[str, str]:
    """The provider file and the source of a page, the latter with what it leaves to the reader."""
    fire, ask = blocks(page, "c")[:2]
    return {"app.d": blocks(page, "d")[0], "main.c": SOURCE.format(page=fire, asked=ask.replace("\n", "\n    "))}


def check(built: str, hit: str) -> None:
    assert re.search(r"app:request__start +1/1 .*int id %?\w+, char \*path", built), built
    assert "app:request__done" in built
    assert re.search(r"\$1 = 1\b", hit), hit
    assert "bin/app" in hit or "build/app" in hit, hit


@pytest.mark.live("gdb")
def test_cmake_page(follow: Any, need: Any) -> None:
    need("cmake")
    need("gdb")
    files = {**sources("docs/cmake.md"), "CMakeLists.txt": CMAKE + blocks("docs/cmake.md", "cmake")[0]}
    hit = commands("docs/cmake.md", "6. See a hit").split("gdb ", 1)[1]
    check(*follow(files, commands("docs/cmake.md", "5. Build, and look"), f"gdb {hit}"))
    if os.uname().machine == "x86_64":  # the machine that our tracer is for
        (traced,) = follow({}, commands("docs/cmake.md", "6. See a hit").split("\n", 1)[0])
        assert "app:request__start id=1 path=" in traced


@pytest.mark.live("gdb")
def test_meson_page(follow: Any, need: Any) -> None:
    need_meson()
    need("gdb")
    files = {**sources("docs/meson.md"), "meson.build": MESON + blocks("docs/meson.md", "meson")[0]}
    build = commands("docs/meson.md", "5. Build, and look")
    hit = commands("docs/meson.md", "6. See a hit").split("gdb ", 1)[1]
    check(*follow(files, build, f"gdb {hit}"))


def test_readme_cmake_and_meson(follow: Any, need: Any) -> None:
    need("cmake")
    need_meson()
    look = "usdtbuild verify build/app --provider app.d\n"
    files = {
        **sources("docs/cmake.md"),
        "CMakeLists.txt": CMAKE + blocks("README.md", "cmake")[0],
        "meson.build": MESON + blocks("README.md", "meson")[0],
    }
    with_cmake, with_meson = follow(
        files,
        f"cmake -S . -B build -G Ninja && ninja -C build\n{look}rm -r build\n",
        f"meson setup build && ninja -C build\n{look}",
    )
    assert re.search(r"2 probes, \d+ sites: nothing found", with_cmake)
    assert re.search(r"2 probes, \d+ sites: nothing found", with_meson)
