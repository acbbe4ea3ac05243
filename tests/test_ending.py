"""How commands end: with standard streams that are closed, full or abandoned, and with signals."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from usdtbuild.cli import COMMANDS
from usdtbuild.tracing.outputs.choose import ENDINGS

PROVIDER = "provider app { probe req__done(int fd, char *what); };\n"
SOURCE = '#include "app.h"\nint main(int c, char **v) { (void)v; APP_REQ_DONE(c, "x"); return 0; }\n'
OURS = [sys.executable, "-m", "usdtbuild"]
DTRACE = [sys.executable, "-m", "usdtbuild.dtrace"]
# Command lines, the first word being the command. `missing` and `--nonsense` are there for messages.
LINES = [
    "--help", "--version", "--cmake-dir", "nonsense", "--nonsense",
    "init cmake new_project", "init cmake .", "add .",
    "header app.d", "header app.d -o -", "header app.d --provider app -o -", "header broken.d",
    "instrument main.o -o made.o -v", "instrument missing -o made.o",
    "cc --help", "cc --nonsense",
    "hook --into hooks -- gcc", "hook --into hooks -- missing",
    "vendor cmake", "vendor meson", "vendor autotools", "install-dtrace bin",
    "list app", "list missing",
    "dof dump app", "dof check app", "dof check missing",
    "verify app", "verify --json app", "verify missing",
    "functions app", "functions missing",
    "flags --patchable 4,2 --no-probe --compiler gcc", "flags",
    "calls app", "calls --json --sites app", "calls missing", "calls main.o",
    "script gdb app", "script stap app.d", "script perf app --sum x", "script gdb missing",
    "trace --count -- ./app", "trace -- ./missing", "trace", "top --help", "top -- ./missing", "top",
    "dtrace -V", "dtrace -h -s app.d", "dtrace -G -s app.d -o made.o main.o", "dtrace -h -s broken.d", "dtrace",
]  # fmt: skip
NOWHERE = {"closed": "-", "full": "/dev/full"}


@pytest.fixture(scope="module")
def folder(usdtbuild: Any, run: Any, tmp_path_factory: pytest.TempPathFactory, compiled: Any, header_of: Any) -> Path:
    made = tmp_path_factory.mktemp("ending")
    header_of(made, "app.d", PROVIDER, "--formats=dof")
    (made / "broken.d").write_text("provider app { probe ")
    compiled(made, "main.c", SOURCE, "-fpatchable-function-entry=7,5", "-c")
    usdtbuild("instrument", "main.o", "-o", "done.o", "--formats", "stapsdt,dof", cwd=made)
    run("gcc", "done.o", "-o", "app", cwd=made)
    (made / "made.o").touch()
    return made


def command(line: str) -> str:
    words = line.split()
    return shlex.join(DTRACE + words[1:] if words[0] == "dtrace" else OURS + words)


def ended(folder: Path, line: str, streams: str = "") -> subprocess.CompletedProcess[str]:
    """Run a command line in its own copy of nothing: what it may leave behind is removed again."""
    left = [folder / name for name in ("new_project", "hooks", "subprojects", "cmake", "bin")]
    words = ["sh", "-c", f"{command(line)} {streams}"]
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, timeout=120, check=False)
    subprocess.run(["rm", "-rf", *left], check=True)
    assert "Traceback" not in done.stderr
    assert "Exception ignored" not in done.stderr
    return done


def test_every_command_is_here() -> None:
    # ... with a line that prints and one that fails; `cc` is in test_launcher.py
    assert set(COMMANDS) <= {line.split()[0] for line in LINES}


@pytest.mark.parametrize("line", LINES)
def test_streams_that_take_nothing_are_told_by_the_exit_code(line: str, folder: Path) -> None:
    usual = ended(folder, line)
    assert usual.returncode in (0, 1, 2)
    for state, where in NOWHERE.items():
        redirect = ">&-" if where == "-" else f">{where}"
        without_output = ended(folder, line, redirect)
        if usual.stdout:
            reason = {"closed": "bad file descriptor", "full": "no space left on device"}[state]
            assert without_output.returncode == 3
            assert f": standard output: can't be written: {reason}\n" in without_output.stderr
        else:
            assert (without_output.returncode, without_output.stderr) == (usual.returncode, usual.stderr)
        without_messages = ended(folder, line, f"2{redirect}")
        assert (without_messages.returncode, without_messages.stdout) == (usual.returncode, usual.stdout)
    assert ended(folder, line, "<&- >&- 2>&-").returncode == (3 if usual.stdout else usual.returncode)


@pytest.mark.parametrize("where", ["/dev/full", "&-"])
@pytest.mark.parametrize(
    ("options", "file"),
    [
        ("--count", "out.json"), ("--count", "out.jsonl"), ("--count", "out.csv"),
        *(("--by thread", f"out{ending}") for ending in ENDINGS if ending != ".parquet" or find_spec("pyarrow")),
        ("--sum fd --histogram fd", "out.jsonl"),
        ("--report -F main", "out.html"), ("--graph -F main", "out.svg"), ("--report -F main", "out.report.json"),
        ("--report --engine patch -F main", "out.report.json"),
    ],
)  # fmt: skip
def test_files_of_a_trace_are_written_where_its_tables_can_not_be(
    options: str, file: str, where: str, folder: Path, tmp_path: Path
) -> None:
    done = ended(folder, "trace " + options + f" -o {tmp_path / file} -- ./app", f">{where}")
    assert (done.returncode, "standard output: can't be written" in done.stderr) == (3, True)
    assert [path.name for path in tmp_path.iterdir()] == [file]
    if options == "--count":
        assert "req" in (tmp_path / file).read_text()


def test_a_reader_of_intervals_that_leaves_ends_the_trace_and_its_file_is_written(folder: Path, tmp_path: Path) -> None:
    with subprocess.Popen(["sleep", "60"]) as slept:
        line = command(f"trace --every 20ms --count -o {tmp_path / 'out.json'} -p {slept.pid}")
        words = ["bash", "-c", f"{line} | head -1; echo ${{PIPESTATUS[0]}}"]
        done = subprocess.run(words, cwd=folder, capture_output=True, text=True, timeout=40, check=False)
        slept.kill()
    assert done.stdout.endswith("\n3\n")
    assert json.loads((tmp_path / "out.json").read_text())["version"] == 1


def test_a_reader_that_leaves_is_no_message(folder: Path) -> None:
    done = subprocess.run(
        ["bash", "-c", f"{command('list --json app')} | true; echo ${{PIPESTATUS[0]}}"],
        cwd=folder, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.stdout, done.stderr) == ("3\n", "")


def test_a_full_pipe_that_does_not_block_is_waited_for(folder: Path) -> None:
    """As a pipe of a program that has made it so for itself: the flag is the pipe's, not the program's."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    words = [*OURS, "list", "--json", *["app"] * 300]
    with subprocess.Popen(words, cwd=folder, stdout=writer, stderr=subprocess.PIPE) as process:
        os.close(writer)
        time.sleep(1)
        with os.fdopen(reader, "rb") as stream:
            assert stream.read().count(b'"req__done"') >= 300
        assert process.wait(60) == 0


def test_a_descriptor_that_was_closed_is_not_written_into(folder: Path, tmp_path: Path) -> None:
    """A file that is opened when standard error is closed gets its number, and messages would go into the file."""
    ended(folder, "functions --explain missing app", "2>&-")
    ended(folder, f"header app.d -o {tmp_path}/made.h --doc {tmp_path}/missing/x", ">&- 2>&-")
    assert list(tmp_path.iterdir()) == []


# --- signals ----------------------------------------------------------------------------------------------------------

# Each waits, half-way, for a pipe that nobody fills: what it has begun to write by then must go.
WAITING = {
    "instrument": [*OURS, "instrument", "main.o", "pipe", "--output-dir", "out"],
    "in place": [*DTRACE, "-G", "--in-place", "-s", "app.d", "-o", "out/app.o", "main.o", "pipe"],
    "header": [*OURS, "header", "-", "-o", "out/app.h"],
    "preprocessor": [*OURS, "header", "-C", "pipe.d", "-o", "out/app.h"],
    "registration": [*DTRACE, "-G", "-s", "app.d", "-o", "out/app.o"],
    "hook": [*OURS, "hook", "--into", "out/hook", "--", "./slow"],
}


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
@pytest.mark.parametrize("name", WAITING)
def test_a_signal_leaves_nothing_behind(name: str, number: signal.Signals, folder: Path, tmp_path: Path) -> None:
    work, temporary = tmp_path / "work", tmp_path / "temporary"
    for path in (work, temporary, work / "out"):
        path.mkdir()
    for file in ("app.d", "main.o"):
        (work / file).write_bytes((folder / file).read_bytes())
    (work / "slow").write_text("#!/bin/sh\ntouch ../started\nexec sleep 60\n")
    (work / "slow").chmod(0o755)
    os.mkfifo(work / "pipe")
    (work / "pipe.d").write_text(PROVIDER)
    before = {path: path.read_bytes() for path in work.rglob("*") if path.is_file()}
    environment = {**os.environ, "TMPDIR": str(temporary), "CC": "./slow"}
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(WAITING[name], cwd=work, env=environment, **pipes) as process:
        # The reader of a pipe waits until somebody has it open for writing, and then until that one is gone.
        writer = os.open(work / "pipe", os.O_RDWR)
        deadline = time.monotonic() + 20
        while not reached(name, process.pid, tmp_path):
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.02)
        process.send_signal(number)
        code = process.wait(20)
        os.close(writer)
        assert process.stderr is not None
        assert b"Traceback" not in process.stderr.read()
    assert code == (130 if number == signal.SIGINT else -number)
    assert {path: path.read_bytes() for path in work.rglob("*") if path.is_file()} == before
    assert list(temporary.iterdir()) == []


def reached(name: str, process: int, folder: Path) -> bool:
    """Whether a process has come to the place where it waits."""
    if "header" in name:
        return Path("/proc", str(process), "wchan").exists() and blocked(process)
    if name in ("instrument", "in place"):
        links = Path("/proc", str(process), "fd").iterdir()
        return any(os.path.realpath(link) == str(folder / "work" / "pipe") for link in links) and blocked(process)
    return (folder / "started").exists()


def blocked(process: int) -> bool:
    return Path("/proc", str(process), "stat").read_text().rpartition(")")[2].split()[0] == "S"


# --- a working directory that is gone ---------------------------------------------------------------------------------


@pytest.mark.parametrize("line", [line for line in LINES if "--" not in line or "header" in line])
def test_in_a_folder_that_was_removed_there_is_one_message(line: str, tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    words = ["sh", "-c", f"cd gone && rmdir ../gone && {command(line)}"]
    done = subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert "Traceback" not in done.stderr
    if line == "init cmake new_project":
        assert done.stderr == "usdtbuild: the working directory has been removed; change to another one\n"
        assert done.returncode == 1


@pytest.mark.parametrize(("words", "code"), [("--nonsense", 2), ("--engine gdb -P app:req-done -- ./missing", 1)])
@pytest.mark.parametrize("processors", [1, 2])
def test_a_worker_that_has_nothing_to_do_ends_with_its_command(
    words: str, code: int, processors: int, tmp_path: Path
) -> None:
    """`trace` begins it before it knows what is to be traced, where it has a processor of its own."""
    allowed = ",".join(map(str, sorted(os.sched_getaffinity(0))[:processors]))
    command = ["taskset", "-c", allowed, *OURS, "trace", *words.split()]
    with subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True, start_new_session=True) as done:
        assert done.stderr is not None
        assert done.stderr.read().count("\n") >= 1  # to its end: nobody has it any more
        assert done.wait() == code
        with pytest.raises(ProcessLookupError):
            os.killpg(done.pid, 0)


# --- a system that gives no process -----------------------------------------------------------------------------------


@pytest.mark.parametrize("line", [*(f"trace --engine {one} --count -- ./app" for one in ("gdb", "inside")), "list app"])
def test_where_no_process_can_be_started_there_is_one_message(
    line: str, folder: Path, need: Any, tmp_path: Path
) -> None:
    """As in a PID namespace whose first process has ended."""
    if os.geteuid():
        pytest.skip("needs root: for a PID namespace, and because others read files without another process")
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path)}
    words = [need("unshare"), "--pid", "sh", "-c", f"/bin/true; exec {command(line)}"]
    done = subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1), done.stderr
    assert "cannot allocate memory" in done.stderr
