"""The how-to pages as a reader follows them: files are written, commands run in order, output is compared.

On these pages a fenced block is one of four things. A file, named by the sentence before it, whose last words are
`NAME`: in code quotes. Commands (`sh`), run in one folder for each page. What the commands before it print (`text`):
each line must be there, in order, with `...` for anything. Or it is marked, with the reason: <!-- not run: ... -->.
All other pages with code say below their titles which test runs it, or why none does: <!-- code: ... -->. Whatever is
run or not, commands of ours have no options that don't exist.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from usdtbuild.cli import COMMANDS

ROOT = Path(__file__).resolve().parent.parent
PAGES = (
    "../README",
    "tutorial",
    "trace",
    "case-study",
    "cpp",
    "other-builds",
    "packagers",
    "containers",
    "ci",
    "faq",
    "json",
)
_BLOCK = re.compile(r"(?P<before>[^\n]*)\n\n?```(?P<kind>[^\n]*)\n(?P<text>.*?)^```$", re.DOTALL | re.MULTILINE)


class Block(NamedTuple):
    """A block of a page: the line before it, what it is written in, and its text."""

    before: str
    kind: str
    text: str

    @property
    def file(self) -> str:
        """The file it is, or nothing."""
        found = re.search(r"`([\w./-]+)`:$", self.before)
        return found[1] if found else ""

    @property
    def why_not(self) -> str:
        """Why it is not run, or nothing."""
        found = re.fullmatch(r"<!-- not run: (.+) -->", self.before)
        return found[1] if found else ""


def blocks(page: str) -> list[Block]:
    text = (ROOT / f"docs/{page}.md").read_text()
    found = [Block(each["before"], each["kind"], each["text"]) for each in _BLOCK.finditer(text)]
    assert len(found) * 2 == len(re.findall(r"^```", text, re.MULTILINE)), "a block that the expression misses"
    return found


@pytest.mark.parametrize("page", PAGES)
def test_each_block_is_a_file_or_run_or_says_why_not(page: str) -> None:
    for block in blocks(page):
        assert block.file or block.why_not or block.kind in ("sh", "text"), f"what is to be done with {block}?"


CODE = re.compile(r"^(?:```|    \S)", re.MULTILINE)


def test_every_other_page_says_what_runs_its_code() -> None:
    others = [path for path in (ROOT / "docs").rglob("*.md") if str(path.relative_to(ROOT / "docs"))[:-3] not in PAGES]
    said = 0
    for path in others:
        text = path.read_text()
        if not CODE.search(text):
            continue
        said += 1
        mark = re.search(r"^<!-- code: (?:run by (?P<test>\S+)|not run: .+) -->$", text, re.MULTILINE)
        assert mark, f"{path}: which test runs this code, or why does none?"
        if mark["test"]:
            assert re.search(rf"\b{path.stem}\b", (ROOT / mark["test"]).read_text()), (
                f"{mark['test']} has no {path.stem}"
            )
    assert said > 20


COMMAND_LINE = re.compile(
    r"^ *(?:\$ )?(?:\w+=\S+ )*usdtbuild (?P<command>[a-z]+(?:-[a-z]+)*)(?P<rest> [^|;\n]*)", re.MULTILINE
)


def test_commands_on_pages_have_options_that_exist(run: Any) -> None:
    """Of every page, also where examples can't be run; what stands behind `--` or `#` is not for us."""
    wanted: dict[str, set[str]] = {}
    for path in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]:
        text = path.read_text()
        code = [each["text"] for each in _BLOCK.finditer(text)] + re.findall(r"^    \S.*$", text, re.MULTILINE)
        for line in COMMAND_LINE.finditer("\n".join(code)):
            ours = re.split(r" -- | --$|  +#", line["rest"], maxsplit=1)[0]
            wanted.setdefault(line["command"], set()).update(re.findall(r"(?<=[ \[|])--[a-z][\w-]*", ours))
    assert len(wanted) > 10
    assert sum(map(len, wanted.values())) > 25
    for command, options in wanted.items():
        assert command in COMMANDS, f"usdtbuild {command}"
        ours = [sys.executable, "-m", "usdtbuild", command]
        helped = run(*ours, "--help", cwd=ROOT).stdout
        for part in re.findall(r"^  (\w+) ", helped.partition("\nCommands:\n")[2], re.MULTILINE):
            helped += run(*ours, part, "--help", cwd=ROOT).stdout
        known = set(re.findall(r"(?<![\w-])--[a-z][\w-]*", helped))
        assert options <= known, f"usdtbuild {command}: {options - known}"


@pytest.fixture
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """One in which `usdtbuild` is this checkout's, and `python3` is an environment's in which that is installed."""
    program = tmp_path_factory.mktemp("bin") / "usdtbuild"
    lines = (
        "import sys",
        f"sys.path.insert(0, {str(ROOT)!r})",
        "from usdtbuild.__main__ import main",
        "sys.exit(main())",
    )
    program.write_text("\n".join([f"#!{sys.executable}", *lines, ""]))
    program.chmod(0o755)
    python = program.with_name("python3")
    python.write_text(f'#!/bin/sh\nPYTHONPATH={shlex.quote(str(ROOT))} exec {shlex.quote(sys.executable)} "$@"\n')
    python.chmod(0o755)
    path = os.pathsep.join([str(program.parent), os.environ["PATH"]])
    return {**os.environ, "PATH": path, "DEBUGINFOD_URLS": ""}


NEEDS = {
    "tutorial": ("gcc",), "trace": ("g++",), "case-study": ("gcc",), "cpp": ("g++",),
    "other-builds": ("scons", "pkg-config"), "packagers": ("gcc",),
}  # fmt: skip


@pytest.mark.parametrize("page", PAGES)
def test_page_as_it_is_written(page: str, tmp_path: Path, run: Any, need: Any, environment: dict[str, str]) -> None:
    for program in NEEDS.get(page, ()):
        need(program)
    if page in ("tutorial", "trace", "case-study") and os.uname().machine != "x86_64":
        pytest.skip("the page is for x86-64")
    if page == "trace":
        library = run("g++", "-print-file-name=libstdc++.so.6").stdout.strip()
        listed = run("usdtbuild", "list", library, env=environment, code=None)
        if "libstdcxx:throw" not in listed.stdout:
            pytest.skip("libstdc++ was built without its probes here")
    printed = ""
    for block in blocks(page):
        if block.why_not:
            continue
        if block.file:
            (tmp_path / block.file).write_text(block.text)
        elif block.kind == "sh":
            script = f"set -e\n{block.text}"
            printed = run(shutil.which("bash") or "sh", "-c", script, cwd=tmp_path, env=environment).stdout
        elif block.kind == "text":
            follow(block.text, printed)
    if page == "tutorial":
        assert "<html" in (tmp_path / "hits.html").read_text()


def as_typed(page: list[Block]) -> str:
    """What a reader types, file by file and command by command, each after a line with the block's number."""
    script = "cd\nmkdir work\ncd work\n"
    for number, block in enumerate(page):
        if block.file:
            script += f"cat > {block.file} <<'END OF FILE'\n{block.text}END OF FILE\n"
        elif block.kind == "sh":
            script += f"echo '=== {number}'\n{block.text}"
    return script


@pytest.mark.slow
def test_tutorial_in_a_fresh_debian(fresh: Any, as_reader: Any) -> None:
    """Word by word, by a user without rights, where nothing is installed but what the page names."""
    whole = [each for each in blocks("tutorial") if not each.why_not or "in a fresh Debian" in each.why_not]
    as_root, page = whole[0], whole[1:]
    assert as_root.text.startswith("apt-get install -y ")
    root = fresh("tutorial", as_root.text.partition("-y ")[2].strip())
    said = as_reader(root, as_typed(page))
    printed = dict(part.split("\n", 1) for part in said.split("=== ")[1:])
    for number, block in enumerate(page):
        if block.kind == "text":
            follow(block.text, printed[str(number - 1)])
    assert "<html" in (root / "home/reader/work/hits.html").read_text()


@pytest.mark.slow
def test_xmake_in_a_fresh_debian(fresh: Any, as_reader: Any) -> None:
    """Its part of the page on other build systems, after usdtbuild was installed as the tutorial says."""
    root = fresh("xmake", "gcc g++ libc6-dev python3-venv xmake")
    install = next(each for each in blocks("tutorial") if "venv" in each.text and "pip install" in each.text)
    page = [
        each
        for each in blocks("other-builds")
        if each.file in ("app.d", "main.c", "xmake.lua") or "xmake" in each.why_not
    ]
    assert "2 probes, 2 sites: nothing found" in as_reader(root, as_typed([install, *page]))


def follow(expected: str, printed: str) -> None:
    """Find each line of a page in what was printed, in order; spaces count as one."""
    rest = " ".join(printed.split())
    for line in expected.splitlines():
        pattern = r".*?".join(re.escape(" ".join(part.split())) for part in line.split("..."))
        found = re.search(pattern, rest)
        assert found, f"not printed, or not in this order: {line}\n{printed}"
        rest = rest[found.end() :]


@pytest.mark.parametrize("compiler", ["clang++", "g++"])
def test_cpp_page_with_every_compiler(
    compiler: str, tmp_path: Path, run: Any, need: Any, environment: dict[str, str]
) -> None:
    need(compiler)
    page = blocks("cpp")
    for block in page[:2]:
        (tmp_path / block.file).write_text(block.text)
    commands = page[2].text.replace("g++", compiler)
    tried = run(compiler, "-std=c++20", "-fsyntax-only", "-include", "coroutine", "-xc++", "/dev/null", code=None)
    if tried.returncode:
        pytest.skip(f"{compiler} here knows no coroutines")
    run("bash", "-ec", commands, cwd=tmp_path, env=environment)
