"""Which rights suffice: each row of the table in docs/security.md is tried with exactly those, and without one."""

from __future__ import annotations

import os
import platform
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from usdtbuild.cli import COMMANDS

from .conftest import NOBODY, ROOT

# One at a time with what else runs bpftrace: what a user's programs have locked of memory counts together.
pytestmark = pytest.mark.live("bpftrace")
OTHER = 1234
READING = ("list", "verify", "functions", "calls", "dof", "script")


@pytest.fixture(autouse=True)
def small_buffers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without CAP_IPC_LOCK the memory that a user's programs have locked is limited, those of other tests included."""
    monkeypatch.setenv("BPFTRACE_PERF_RB_PAGES", "4")


def page() -> dict[str, str]:
    """Return the rows of the page's table: what one wants to do -> what it takes."""
    text = (ROOT / "docs/security.md").read_text().partition("## Which rights suffice")[2]
    rows = [line.strip("|").split("|") for line in text.splitlines() if line.startswith("|")][2:]
    return {first.strip(): second.strip() for first, second in rows}


class Needed(NamedTuple):
    """What a row says that one needs."""

    root: bool
    capabilities: tuple[str, ...]


def needed(row: str) -> Needed:
    says = page().get(row, "")
    return Needed(says.startswith(("root", "to be user 0")), tuple(re.findall("CAP_[A-Z_]+", says)))


# Row of the page -> (command line, what it says). A word in braces is a fixture below.
FUNCTIONS = "-F work -- {functions}"
CASES = {
    "`header`, `cc`, `instrument`, `dtrace`, and all other build commands": [
        ("init cmake fresh", ""),
        ("add plain", "+++ "),
        ("header app.d -o new.h", ""),
        ("vendor cmake", ""),
        ("install-dtrace bin", ""),
        ("flags --patchable", "-fpatchable-function-entry="),
        ("cc -- gcc -c app.c -o new.o", ""),
        ("hook --into bin -- gcc", "-B"),
        ("instrument app.o -o new.o", ""),
        ("dtrace -h -s app.d -o new.h", ""),
        ("dtrace -G -s app.d -o new.o app.o", ""),
    ],
    "`list`, `verify`, `functions`, `calls`, `dof`, `script` on files": [
        ("list {program}", "victim:tick"),
        ("verify {program}", "nothing found"),
        ("functions {program}", "main"),
        ("calls {program}", "usleep"),
        ("dof dump {dof}", "provider app"),
        ("script stap {program}", 'provider("victim").mark("tick")'),
    ],
    "`list` on another user's process": [("list {others}", "victim:tick")],
    "`functions`, `calls` on another user's process": [
        ("functions {others}", "ELF executable"),
        ("calls {others}", "usleep"),
    ],
    "`trace` a program that you start, or one of your own processes (`auto`, `patch`, `trap`, `gdb`)": [
        (f"trace --engine {engine} -P victim:* --count {words}", "  victim:tick")
        for engine in ("auto", "patch", "trap", "gdb")
        for words in ("-- {program} 10", "-p {own} --duration 0.3")
    ],
    "`trace --engine inside`, `--report` and `--graph` of a command without `-o`": [
        ("trace --engine inside -P victim:* --count -- {victim}", "1  victim:tick"),
        (f"trace --report {FUNCTIONS}", "100  work"),
        (f"trace --graph {FUNCTIONS}", "100  work"),
        (f"trace --engine inside --report {FUNCTIONS}", "100  work"),
    ],
    "`trace -p`, `top -p` another user's process (`auto`, `patch`, `trap`)": [
        (f"trace --engine {engine} -P victim:* -p {{others}} --count --duration 0.3", "victim:tick")
        for engine in ("auto", "patch", "trap")
    ] + [("top -p {others} --duration 0.3", "victim:tick")],
    "`trace -p` another user's process (`gdb`)": [
        ("trace --engine gdb -P victim:* -p {others} --count --duration 0.3", "victim:tick")
    ],
    "`trace --engine bpftrace` a program that you start": [
        ("trace --engine bpftrace -P victim:* --count -- {program} 10", "10  victim:tick")
    ],
    "`trace --engine bpftrace -p` another user's process": [
        ("trace --engine bpftrace -P victim:* -p {others} --count --duration 1", "  victim:tick")
    ],
    "`trace --remote`, `--emulator`": [
        ("trace --remote {server} --count", "10  victim:tick"),
        ("trace --emulator {emulator} --count -- {program} 10", "10  victim:tick"),
    ],
    "`trace --user NAME`": [("trace --user daemon --count -- {program} 10", "10  victim:tick")],
}  # fmt: skip
EACH = [
    pytest.param(row, words, shown, id=re.sub("[{}]", "", words)) for row, cases in CASES.items()
    for words, shown in cases
]  # fmt: skip


def test_each_row_of_the_page_is_tried() -> None:
    assert list(page()) == list(CASES)
    commands = [words.split()[0] for cases in CASES.values() for words, _ in cases]
    assert set(commands) == {*COMMANDS, "dtrace"}
    of_files = next(row for row in CASES if row.endswith("on files"))
    assert re.findall("`(.*?)`", of_files) == [words.split()[0] for words, _ in CASES[of_files]] == list(READING)


# -- what the command lines name ---------------------------------------------------------------------------------------


@pytest.fixture
def program(forged: Any) -> Path:
    return Path(forged(b"tick"))


@pytest.fixture
def victim(built: Any) -> Path:
    return Path(built("victim"))


@pytest.fixture
def functions(run: Any, tmp_path: Path, folder: Path) -> Path:
    del folder  # it opens the way to tmp_path
    (tmp_path / "work.c").write_text(
        "__attribute__((noinline)) int work(int x) { return x + 1; }\n"
        "int main(void) { int x = 0; for (int i = 0; i < 100; i++) x = work(x); return x != 100; }\n"
    )
    run("gcc", "-O0", "-fpatchable-function-entry=7,5", "work.c", "-o", "work", cwd=tmp_path)
    return tmp_path / "work"


def _running(program: Path, user: int) -> Iterator[str]:
    with subprocess.Popen([program], stdout=subprocess.PIPE, text=True, user=user, group=user, extra_groups=[]) as one:
        assert one.stdout is not None
        yield one.stdout.readline().strip()
        one.kill()


@pytest.fixture
def own(program: Path) -> Iterator[str]:
    yield from _running(program, NOBODY)


@pytest.fixture
def others(program: Path) -> Iterator[str]:
    yield from _running(program, OTHER)


@pytest.fixture
def server(program: Path, need: Any) -> Iterator[str]:
    words = [need("gdbserver"), "--once", "127.0.0.1:0", program, "10"]
    with subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                          text=True, user=OTHER, group=OTHER, extra_groups=[]) as one:  # fmt: skip
        assert one.stderr is not None
        port = next(line.split()[-1] for line in one.stderr if line.startswith("Listening"))
        yield f"127.0.0.1:{port}"
        one.kill()


@pytest.fixture
def emulator(need: Any) -> str:
    return str(need(f"qemu-{platform.machine()}"))


@pytest.fixture
def nobodys(folder: Path) -> Path:
    place = folder / "nobodys"
    place.mkdir(0o755)
    os.chown(place, NOBODY, NOBODY)
    return place


@pytest.fixture
def project(run: Any, nobodys: Path) -> Path:
    """Put what one builds into NOBODY's folder."""
    (nobodys / "app.d").write_text("provider app { probe go(int x); };\n")
    (nobodys / "app.c").write_text('#include "app.h"\nvoid f(int x) { APP_GO(x); }\n')
    (nobodys / "plain").mkdir()
    (nobodys / "plain/Makefile").write_text("app: main.c\n\t$(CC) $(CFLAGS) main.c -o app\n")
    (nobodys / "plain/main.c").write_text('#include <stdio.h>\nint main(void)\n{\n  puts("hello");\n}\n')
    run(sys.executable, "-m", "usdtbuild.dtrace", "-h", "-s", "app.d", "-o", "app.h", cwd=nobodys)
    run("gcc", "-c", "app.c", "-o", "app.o", cwd=nobodys)
    for path in nobodys.rglob("*"):
        os.chown(path, NOBODY, NOBODY)
    return nobodys


@pytest.fixture
def dof(run: Any, project: Path) -> Path:
    module = sys.executable, "-m", "usdtbuild"
    run(*module, "header", "--formats=dof", "app.d", "-o", "app.h", cwd=project)
    run(*module, "cc", "--formats=dof", "--", "gcc", "-c", "app.c", "-o", "dof.o", cwd=project)
    return project / "dof.o"


class _Fixtures(dict[str, str]):
    """The fixtures by name, made when a command line has their name."""

    def __init__(self, request: pytest.FixtureRequest) -> None:
        super().__init__()
        self._request = request

    def __missing__(self, name: str) -> str:
        return str(self._request.getfixturevalue(name))


Limited = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def limited(everybodys: Any, nobodys: Path, request: pytest.FixtureRequest) -> Limited:
    """Run a command line with exactly what is needed: as NOBODY or as root with these capabilities and nothing else."""

    def run(needed: Needed, words: str) -> subprocess.CompletedProcess[str]:
        if "bpftrace" in words:
            from usdtbuild.tracing.job import Job
            from usdtbuild.tracing.others.watching import why_not
            from usdtbuild.tracing.selection import Wanted

            if why := why_not(Job(Wanted())):
                pytest.skip(why)
        some = "".join(f",+{name.removeprefix('CAP_').lower()}" for name in needed.capabilities)
        sets = [f"--{which}=-all{some}" for which in ("inh-caps", "bounding-set")]
        if needed.root and not some:
            sets = []
        if not needed.root:
            sets += ["--reuid", str(NOBODY), "--regid", str(NOBODY), f"--ambient-caps=-all{some}"]
        line = shlex.split(words.format_map(_Fixtures(request)))
        if line[0] not in {*READING, "trace"}:
            request.getfixturevalue("project")
        module = ["usdtbuild.dtrace", *line[1:]] if line[0] == "dtrace" else ["usdtbuild", *line]
        return subprocess.run(
            ["setpriv", "--clear-groups", *sets, everybodys.path, "-m", *module], cwd=nobodys,
            env={**everybodys.environment, "XDG_CACHE_HOME": str(nobodys)}, stdin=subprocess.DEVNULL,
            capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip

    return run


@pytest.mark.parametrize(("row", "words", "shown"), EACH)
def test_what_the_page_says_suffices(
    row: str, words: str, shown: str, limited: Limited, request: pytest.FixtureRequest
) -> None:
    done = limited(needed(row), words)
    assert done.returncode == 0, done
    assert shown.format_map(_Fixtures(request)) in done.stdout, done
    assert "can't be read" not in done.stdout + done.stderr
    assert "not traced" not in done.stderr


@pytest.mark.parametrize(
    ("row", "words", "without"),
    [
        pytest.param(row, words, name, id=f"{re.sub('[{}]', '', words)}-{name}")
        for row, cases in CASES.items() for words, _ in cases for name in needed(row).capabilities
    ],
)  # fmt: skip
def test_without_one_it_says_which(row: str, words: str, without: str, limited: Limited) -> None:
    root, capabilities = needed(row)
    done = limited(Needed(root, tuple(name for name in capabilities if name != without)), words)
    said = done.stdout + done.stderr
    assert without.removeprefix("CAP_") in said, done
    assert "Traceback" not in said
    assert "Errno" not in said
    if "; without the second" not in page()[row] or without != capabilities[1]:
        assert "--user" in words or done.returncode == 1, done
        assert done.stderr.count("\n") == 1 or "--user" in words, done


@pytest.mark.parametrize(("row", "words", "shown"), [one for one in EACH if needed(str(one.values[0])).root])
def test_who_must_be_root_is_told(row: str, words: str, shown: str, limited: Limited) -> None:
    some = needed(row).capabilities or ("CAP_SYS_PTRACE", "CAP_DAC_OVERRIDE")
    done = limited(Needed(False, some), words)
    assert f"1{shown}" not in done.stdout
    assert "root" in done.stderr, done
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("name", READING)
def test_a_file_that_can_t_be_read_is_named(name: str, program: Path, limited: Limited) -> None:
    program.chmod(0o600)
    words = {"dof": "dump ", "script": "gdb "}
    done = limited(Needed(False, ()), f"{name} {words.get(name, '')}{{program}}")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"usdtbuild: {program}: permission denied\n"


def test_the_front_gives_capabilities_up(limited: Limited, folder: Path) -> None:
    """Of two rights it has none, so a file can't be written where its user may not."""
    closed = folder / "closed"
    closed.mkdir(0o755)
    words = f"trace -p {{others}} --count --duration 0.3 -o {closed}/out.txt"
    done = limited(Needed(False, ("CAP_SYS_PTRACE", "CAP_DAC_OVERRIDE")), words)
    assert done.returncode == 1, done
    assert "permission denied" in done.stderr
    assert list(closed.iterdir()) == []
