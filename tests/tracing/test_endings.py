"""Threads that begin and end while they are seized or handled: a trace misses none, and isn't lost for their sake."""

from __future__ import annotations

import contextlib
import os
import re
import select
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from multiprocessing import Pipe
from pathlib import Path
from typing import Any

import pytest

from tests.started import TRACE, Started, children_of, code_of, ready, wait_for
from usdtbuild.tracing import stops
from usdtbuild.tracing.errors import LateError, TracerError
from usdtbuild.tracing.hosts import HOST
from usdtbuild.tracing.job import Job
from usdtbuild.tracing.keeper import Keeper
from usdtbuild.tracing.maps import Memory, areas
from usdtbuild.tracing.model import COUNT, RECORD
from usdtbuild.tracing.running import status_field
from usdtbuild.tracing.selection import Wanted
from usdtbuild.tracing.session import Session
from usdtbuild.tracing.tracees import Tracees
from usdtbuild.tracing.worker import Worker, failed

from .conftest import SOURCES

SEIZE = """\
import sys
from usdtbuild.tracing.tracees import FOLLOW, Tracees

pid = int(sys.argv[1])
for _ in range(40):
    tracees = Tracees()
    tracees.seize(pid, FOLLOW)
    tracees.stop(pid)
    tracees.detach(pid)
"""


def running(program: str | Path) -> list[str]:
    """The numbers of the processes that run a program."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if str((path / "exe").readlink()) == str(program):
                found.append(path.name)
    return found


@pytest.fixture(scope="module")
def restless(run: Any, need: Any, tmp_path_factory: Any) -> Path:
    program = Path(tmp_path_factory.mktemp("restless")) / "restless"
    run(need("gcc"), "-O1", "-fcf-protection=none", SOURCES / "restless.c", "-pthread", "-ldl", "-o", program)
    return program


def test_threads_that_begin_while_others_are_seized(restless: Path) -> None:
    """The kernel seizes those that a seized thread starts; they are nobody else's."""
    with ready(restless) as process:
        words = [sys.executable, "-c", SEIZE, str(process.pid)]
        done = subprocess.run(words, capture_output=True, text=True, timeout=240, check=False)
        process.end("\n")
    assert (done.returncode, done.stderr, process.returncode) == (0, "", 0)


def test_processes_that_end_while_their_threads_are_stepped(restless: Path, usdtbuild: Any) -> None:
    """One thread's exit ends all others, those too that stand for us in the middle of a breakpoint."""
    done = usdtbuild("trace", "--engine", "trap", "--count", "-F", "work", "--", restless, 8, code=7)
    assert re.fullmatch(r" *[1-9]\d*  work\n", done.stdout), done.stdout
    assert done.stderr == ""


def test_processes_that_are_killed_while_their_libraries_are_looked_at(restless: Path, usdtbuild: Any) -> None:
    """Files of theirs can't be opened then, which is neither a matter of permissions nor the end of the trace."""
    done = usdtbuild("trace", "--engine", "trap", "--count", "-F", "work", "--", restless, 20, "killed", code=7)
    assert done.stderr == ""


def test_children_that_are_killed_as_soon_as_they_are_there(
    run: Any, need: Any, usdtbuild: Any, tmp_path: Path
) -> None:
    """By another thread, while the one that forked stands for us; the trace goes on."""
    run(need("gcc"), "-O1", SOURCES / "newborn.c", "-pthread", "-o", tmp_path / "newborn")
    if run(tmp_path / "newborn", 1, code=None).returncode == 3:
        pytest.skip("this kernel doesn't list children (CONFIG_PROC_CHILDREN)")
    done = usdtbuild("trace", "--engine", "trap", "--count", "-F", "work", "--", tmp_path / "newborn", 60, code=7)
    assert re.fullmatch(r" *\d+  work\n", done.stdout), done.stdout
    assert done.stderr == ""


SIGNALLED = r"""
#include <signal.h>
#include <stdio.h>
#include <sys/time.h>
static volatile long handled, sum;
static void handle(int number) { handled += number != 0; }
__attribute__((noipa)) void work(int n) { sum += n; }
int main(void) {
    struct itimerval often = {{0, 1000}, {0, 1000}};
    signal(SIGALRM, handle);
    setitimer(ITIMER_REAL, &often, 0);
    int calls = 0;
    for (; calls < 200 || handled < 50; calls++) work(calls);
    printf("%d calls\n", calls);
    return 0;
}
"""


def test_a_signal_that_comes_while_a_breakpoint_is_stepped_over_waits(
    usdtbuild: Any, tmp_path: Path, compiled: Any
) -> None:
    """Else its handler would run before the instruction, which would be hit once more."""
    compiled(tmp_path, "signalled.c", SIGNALLED, "-O1", "-fcf-protection=none")
    done = usdtbuild("trace", "--engine", "trap", "--count", "-F", "work", "--", tmp_path / "signalled")
    calls = re.search(r"^(\d+) calls$", done.stdout, re.MULTILINE)
    assert calls, done
    assert re.search(rf"^ *{calls[1]}  work$", done.stdout, re.MULTILINE), done.stdout


def test_memory_of_programs_that_have_ended_is_given_back(scene: Callable[..., Path]) -> None:
    """The tracer's, for each program that a shell has started and that had probes."""
    script = f'for i in 1 2 3 4 5 6 7 8; do "{scene("pie")}" 5; done; echo ready; read line'
    with Started(*TRACE, "-P", "scene:*", "--", "sh", "-c", script) as tracer:
        while tracer.line() not in {"ready\n", ""}:
            pass
        (worker,) = children_of(tracer.pid)
        wait_for(lambda: _memory_files(worker) <= 1, seconds=20)
        assert _memory_files(worker) == 1  # the shell's own, which tells of libraries
        tracer.end("\n")
    assert tracer.returncode == 0


def _memory_files(pid: int) -> int:
    found = set()
    for one in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # closed meanwhile
            if "memfd:usdtbuild" in str(one.readlink()):
                found.add(one.stat().st_ino)
    return len(found)


@pytest.mark.parametrize("engine", ["auto", "trap"])
@pytest.mark.parametrize("ignored", [(), (signal.SIGHUP, signal.SIGINT)], ids=["usual", "nohup"])
def test_a_program_has_the_signals_that_its_user_gave_it(engine: str, ignored: tuple[int, ...]) -> None:
    def ignore() -> None:
        for number in ignored:
            signal.signal(number, signal.SIG_IGN)

    show = ["grep", "-E", "^Sig(Blk|Ign|Cgt):", "/proc/self/status"]
    # Newer C libraries have probes, whose counts would be printed.
    words = [sys.executable, "-m", "usdtbuild", "trace", "--engine", engine, "--count", "-x", "*", "--"]
    alone, traced = (
        subprocess.run([*before, *show], capture_output=True, text=True, preexec_fn=ignore, check=True).stdout
        for before in ((), words)
    )
    assert traced == alone


@pytest.mark.parametrize("words", [("--duration", "0.3", "--", "sleep", "1"), ("--", "true")], ids=["left", "ended"])
def test_whose_group_has_a_process_that_stands_is_left_alone(words: tuple[str, ...], tmp_path: Path) -> None:
    """Where nobody in a process group has a parent elsewhere in its session, as under cron, no process may look like
    the last who had one: the kernel would end the whole group when that goes, if another process of it is stopped."""
    (tmp_path / "said").touch()
    trace = shlex.join([sys.executable, "-m", "usdtbuild", "trace", "--count", *words])
    script = f"sleep 60 & kill -STOP $!; {trace} >/dev/null 2>&1; sleep 1.2; echo done; kill -9 $!"
    begun = f"sh -c {shlex.quote(script)} > {shlex.quote(str(tmp_path / 'said'))} 2>&1 &"
    subprocess.run(["sh", "-c", begun], start_new_session=True, check=True)
    wait_for(lambda: "done" in (tmp_path / "said").read_text(), "the group is done", seconds=30)


def test_a_signal_ends_a_traced_program(usdtbuild: Any) -> None:
    usdtbuild("trace", "--count", "--", "sh", "-c", "kill -TERM $$; sleep 60", code=128 + signal.SIGTERM)


@pytest.mark.parametrize("moment", [0.1, 0.17, 0.24, 0.31, 0.38, 0.6])
def test_interrupted_while_it_starts_nothing_is_left_and_nothing_said(moment: float, tmp_path: Path) -> None:
    """As Ctrl-C on a terminal does it, the whole group is interrupted; at which step depends on the machine."""
    program = shutil.copy("/bin/sleep", tmp_path / "sleeper")
    words = [sys.executable, "-m", "usdtbuild", "trace", "--count", "--", program]
    process = subprocess.Popen(
        [*map(str, words), "61"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    time.sleep(moment)
    os.killpg(process.pid, signal.SIGINT)
    try:
        _, errors = process.communicate(timeout=20)
    except subprocess.TimeoutExpired:  # what Python does before it has come to our first line may ignore it
        os.killpg(process.pid, signal.SIGINT)
        _, errors = process.communicate(timeout=60)
    before = process.returncode == -signal.SIGINT or "<frozen runpy>" in errors or "Exception ignored in" in errors
    if not before:
        assert (process.returncode, "Traceback" in errors) == (130, False), errors
    assert "unexpectedly" not in errors
    assert running(program) == []


CROWD = r"""
#include <stdio.h>
#include <unistd.h>
__asm__(
    ".altmacro\n.macro one n\n.globl one\\n\n.type one\\n, @function\none\\n: nop\nnop\nret\n.size one\\n, 3\n.endm\n"
    ".text\n.set i, 0\n.rept 20000\none %i\n.set i, i + 1\n.endr\n");
void one0(void);
int main(void) {
    puts("ready");
    fflush(stdout);
    for (;; usleep(1000)) one0();
}
"""


@pytest.fixture(scope="module")
def crowd(tmp_path_factory: Any, compiled: Any) -> Path:
    return compiled(Path(tmp_path_factory.mktemp("crowd")), "crowd.c", CROWD, "-O1")


@contextlib.contextmanager
def amid_arming(words: list[Any], program: Path, pid: int = 0) -> Iterator[Started]:
    """Trace by breakpoints, in the body of the `with` from when some of 20,000 are there."""
    before = b""
    with Started(*TRACE, "--engine", "trap", *words, stdin=None, stderr=subprocess.PIPE) as tracer:
        while tracer.poll() is None:
            with contextlib.suppress(OSError):  # not there yet
                found = code_of(pid or int(running(program)[0]), program) if pid or running(program) else b""
                if found != (before := before or found):
                    break
        yield tracer


ENDED_EARLY = "usdtbuild: the trace was ended before everything was armed: all was put back, and nothing is shown\n"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_while_a_process_is_armed_ends_the_trace_without_a_result(
    crowd: Path, tmp_path: Path, number: int
) -> None:
    (tmp_path / "hits.csv").write_text("before")
    with ready(crowd) as process:
        before = code_of(process.pid, crowd)
        words = ["--count", "-F", "one*", "-o", tmp_path / "hits.csv", "-p", process.pid]
        with amid_arming(words, crowd, process.pid) as tracer:
            tracer.send_signal(number)
            told = tracer.communicate(timeout=60)
        after, is_running = code_of(process.pid, crowd), process.poll() is None
        process.kill()
    assert (told, tracer.returncode) == (("", ENDED_EARLY), 130 if number == signal.SIGINT else -number)
    assert (after == before, is_running) == (True, True)
    assert (tmp_path / "hits.csv").read_text() == "before"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_while_a_command_is_armed_ends_that_too(crowd: Path, number: int) -> None:
    with amid_arming(["--count", "-F", "one*", "--", crowd], crowd) as tracer:
        tracer.send_signal(number)
        told = tracer.communicate(timeout=60)
    assert (told, tracer.returncode) == (("", ENDED_EARLY), 130 if number == signal.SIGINT else -number)
    assert running(crowd) == []


def test_what_runs_on_is_said(usdtbuild: Any) -> None:
    command = "exec sleep 62 >/dev/null 2>&1"  # else whoever reads what it writes would wait for it
    said = usdtbuild("trace", "--count", "--duration", "0.1", "--", "sh", "-c", command).stderr
    found = re.search(r"^usdtbuild: sh \(process (\d+)\) runs on, and isn't traced any more$", said, re.MULTILINE)
    assert found, said
    os.kill(int(found[1]), signal.SIGTERM)


@pytest.mark.parametrize(("count", "said"), [(0, ""), (1, "process N, which"), (12, "processes N, N")])
def test_processes_that_outlive_the_program_are_named(count: int, said: str, usdtbuild: Any) -> None:
    command = "for i in $*; do sleep 63 >/dev/null 2>&1 & echo $!; done"
    done = usdtbuild("trace", "--count", "--", "sh", "-c", command, "sh", *map(str, range(count)))
    pids = [int(line) for line in done.stdout.splitlines() if line.isdecimal()]
    for pid in pids:
        os.kill(pid, signal.SIGTERM)
    assert len(pids) == count
    found = [line for line in done.stderr.splitlines() if "outlived it" in line]
    assert len(found) == bool(count)
    assert not count or f"usdtbuild: {said}" in re.sub(r"\d+", "N", found[0])
    assert count < 12 or " and 2 more, which the program has started, outlived" in found[0]


def test_a_command_that_ends_when_the_trace_has_ended_already_has_its_own_code(numbered: Path) -> None:
    """Ctrl-C ends the trace, and the command runs on, and ends while what was seen is written."""
    command = ["sh", "-c", 'exec "$0" "$@" >/dev/null', numbered, "1", "fire", "20000", "wait", "kill"]
    with Started(*TRACE, "-P", "last:*", "--", *command, stderr=subprocess.PIPE) as tracer:
        tracer.line()  # all others wait, since the pipe has no room for them
        (pid,) = running(numbered)
        worker = status_field(int(pid), "PPid")
        tracer.send_signal(signal.SIGINT)
        while status_field(int(pid), "PPid") == worker:
            time.sleep(0.01)
        tracer.tell("\n")
        while running(numbered):
            time.sleep(0.01)
        _, said = tracer.communicate(timeout=60)
    assert (tracer.returncode, said) == (128 + signal.SIGKILL, "")


def test_what_asks_for_nonsense_ends_the_program_that_was_started_for_it(
    scene: Callable[..., Path], tmp_path: Path
) -> None:
    program = shutil.copy(scene("pie"), tmp_path / "scene")
    words = [*TRACE, "--filter", "nosuch == 1", "--count", "--", program, "1", "1", "wait"]
    with Started(*words, stdout=None, stderr=subprocess.PIPE) as traced:
        assert traced.wait(60) == 2
        wait_for(lambda: not running(program), "the program has ended", seconds=20)


# Traces a program, kills those that fork, and waits for their children, which become its own: how many were there, and
# how many have died of SIGTRAP.
ORPHANED = """
import ctypes, os, re, signal, subprocess, sys, time
from pathlib import Path

program, engine, kills_first = sys.argv[1:]
ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER
first = subprocess.Popen([program, "4"], stdin=subprocess.PIPE)
words = [sys.executable, "-m", "usdtbuild", "trace", "--engine", engine, "--count", "-P", "orphans:*"]
words += ["-p", str(first.pid), "--children"]
trace = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
status = Path(f"/proc/{first.pid}/status")
while not (tracer := re.findall("^TracerPid:.([1-9][0-9]*)", status.read_text(), re.MULTILINE)):
    time.sleep(0.05)
time.sleep(0.5)
forking = [int(one) for one in Path(f"/proc/{first.pid}/task/{first.pid}/children").read_text().split()]
os.kill(int(tracer[0]), signal.SIGSTOP)  # who forks now waits to be heard
time.sleep(0.1)
for pid in [*forking, *([first.pid] if kills_first == "True" else [])]:
    os.kill(pid, signal.SIGKILL)
time.sleep(0.1)
os.kill(int(tracer[0]), signal.SIGCONT)
ours, orphans, trapped = {first.pid, trace.pid, *forking}, 0, 0
until = time.monotonic() + 1.5
while time.monotonic() < until:
    try:
        pid, status = os.waitpid(-1, os.WNOHANG)
    except ChildProcessError:
        break
    if not pid:
        time.sleep(0.01)
    elif pid not in ours:
        orphans += os.WIFEXITED(status) and os.WEXITSTATUS(status) == 7
        trapped += os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGTRAP
first.kill()
trace.terminate()
print(orphans, trapped, "damaged" in trace.stderr.read())
"""


@pytest.mark.parametrize("kills_first", [False, True])
@pytest.mark.parametrize("engine", ["patch", "trap"])
def test_children_of_killed_processes_live_on(
    engine: str, kills_first: bool, run: Any, tmp_path: Path, header_of: Any
) -> None:
    """Who is killed while it forks tells nobody of its child, which has its breakpoints."""
    header_of(tmp_path, "orphans.d", "provider orphans { probe hit(int number); };")
    run("gcc", "-O2", f"-I{tmp_path}", SOURCES / "orphans.c", "-o", tmp_path / "orphans")
    orphans = 0
    for _ in range(2):
        said = run(sys.executable, "-c", ORPHANED, tmp_path / "orphans", engine, kills_first).stdout.split()
        orphans += int(said[0])
        assert said[1:] == ["0", "False"]
    assert orphans


def test_who_asks_for_the_end_again_waits_for_nobody(scene: Callable[..., Path]) -> None:
    """The worker may have much to say, and not hear him before it has said that."""
    with ready(scene("pie"), 5, 1, "wait") as program:
        with Session(Job(Wanted(probes=("scene:*",)), pids=(program.pid,))) as session:
            session.start()
            tracer = int(status_field(program.pid, "TracerPid"))
            os.kill(tracer, signal.SIGSTOP)

            def asks() -> None:
                for _ in range(2000):
                    session.stop()

            asked = threading.Thread(target=asks, daemon=True)
            asked.start()
            asked.join(20)
            os.kill(tracer, signal.SIGCONT)
            assert not asked.is_alive()
            for _ in session.batches():
                pass
        program.end("\n")


def test_a_worker_that_cannot_be_started(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    closed = tmp_path / "python"
    closed.write_text("")
    monkeypatch.setattr(sys, "executable", str(closed))
    session = Session(Job(Wanted(), argv=("true",), cwd=str(tmp_path)))
    with session, pytest.raises(TracerError, match=r"the process that traces can't be started: .*Permission denied"):
        session.start()


def test_a_worker_that_ends_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """What it was to be told has nobody to read it; that is an error like any other."""

    class Ended(subprocess.Popen):  # type: ignore[type-arg]
        def __init__(self, words: Any, **more: Any) -> None:
            super().__init__(["false", *words[1:]], **more)
            self.wait()

    monkeypatch.setattr(subprocess, "Popen", Ended)
    with Session(Job(Wanted(), argv=("true",))) as session, pytest.raises(TracerError, match="ended unexpectedly"):
        session.start()


# A worker whose front, a process of its own, goes while it looks up what a process has: in a child, as root.
LOOKING = """
import os, socket, sys, time
from multiprocessing.connection import Connection
from usdtbuild.tracing import job, lookups, worker
from usdtbuild.tracing.selection import Wanted

def look(*_):
    os.write(writer, b"!")
    while True:  # Python misses a signal that comes just before a long sleep
        time.sleep(0.01)

lookups.by_file = look
ours, theirs = socket.socketpair()
reader, writer = os.pipe()
spool = os.open("/dev/null", os.O_WRONLY)
if between := os.fork():
    os.waitpid(between, 0)
else:
    if not os.fork():
        theirs.close()
        link = Connection(ours.detach())
        link.send(job.Job(Wanted(), pids=(int(sys.argv[1]),), spool=spool))
        os.read(reader, 1)
    os._exit(0)
ours.close()
worker.serve(Connection(theirs.detach()), set(), ())
print("over")
"""


def test_the_worker_hears_that_the_front_is_gone_while_it_looks_things_up(scene: Callable[..., Path]) -> None:
    with ready(scene("pie"), 5, 1, "wait") as program:
        words = [sys.executable, "-c", LOOKING, str(program.pid)]
        done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
        output = program.end("\n")
    assert (done.stdout, done.stderr, output) == ("over\n", "", "wrong=0 guarded=0\n")


# A worker that may wait for ever, and what its front, another process, says after a while.
WAITING = """
import os, signal, sys, time
from multiprocessing import Pipe
from usdtbuild.tracing import job, worker
from usdtbuild.tracing.selection import Wanted

ours, theirs = Pipe()
if not os.fork():
    theirs.close()
    ours.send(job.Job(Wanted()))
    time.sleep(0.2)
    ours.send_bytes(job.STOP)
    os._exit(0)
ours.close()
one = worker.Worker(theirs, theirs.recv()._replace(spool=os.open("/dev/null", os.O_WRONLY)), set())
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
one.watch_front()
while not one.stopping:
    worker._wait(theirs, 1e6)
    one._listen()
print("heard")
"""


def test_a_worker_that_waits_hears_its_front_at_once() -> None:
    done = subprocess.run([sys.executable, "-c", WAITING], capture_output=True, text=True, timeout=60, check=False)
    assert (done.stdout, done.stderr) == ("heard\n", "")


# A worker that takes so many seconds for each call of a function, and what it says at the end.
SLOW = """
import os, sys, time
from importlib import import_module
from multiprocessing import Pipe
from usdtbuild.tracing import job, worker
from usdtbuild.tracing.selection import Wanted

pid, module, name, seconds, engine, arming = sys.argv[1:]
module = import_module(f"usdtbuild.tracing.{module}")
real = getattr(module, name)
setattr(module, name, lambda *words: time.sleep(float(seconds)) or real(*words))
worker._ARMING = float(arming)
ours, theirs = Pipe()
spool = os.open("/dev/null", os.O_WRONLY)
ours.send(job.Job(Wanted(probes=("scene:*",)), pids=(int(pid),), spool=spool, what="count", engine=engine,
                   duration=0.1))
worker.serve(theirs, set(), ())
while not isinstance(said := ours.recv(), (job.Failed, job.Ended)):
    pass
print(said.message if isinstance(said, job.Failed) else "ended")
"""


@pytest.mark.parametrize(
    ("slow", "said"),
    [
        (("lookups", "by_file", "60", "auto", "0.2"), "probes were still being looked up"),
        (("patch.layout", "build", "60", "patch", "0.2"), "probes were still being looked up"),
        (("trap.breakpoints", "_breakpoint", "0.8", "trap", "2"), r"[123] of \d+ places were armed"),
    ],
)
def test_arming_ends_on_time_however_much_there_is(
    scene: Callable[..., Path], slow: tuple[str, ...], said: str
) -> None:
    """What was armed by then is put back: the program runs on as if nothing had been."""
    with ready(scene("pie"), 5, 1, "wait") as program:
        words = [sys.executable, "-c", SLOW, str(program.pid), *slow]
        done = subprocess.run(words, capture_output=True, text=True, timeout=50, check=False)
        output = program.end("\n")
    assert re.search(f"armed: {said}, and all was put back", done.stdout), done
    assert output == "wrong=0 guarded=0\n"


@pytest.mark.parametrize("engine", ["patch", "trap"])
def test_a_trace_ends_on_time_however_late_its_front_is(scene: Callable[..., Path], engine: str) -> None:
    """The program is let go of while records wait to be taken."""
    with ready(scene("pie"), 5, 1, "wait") as program:
        with Session(Job(Wanted(probes=("scene:*",)), engine=engine, pids=(program.pid,), duration=0.5)) as session:
            session.start()
            assert status_field(program.pid, "TracerPid") != "0"
            wait_for(lambda: status_field(program.pid, "TracerPid") == "0", seconds=20)
            for _ in session.batches():
                pass
        output = program.end("\n")
    assert output == "wrong=0 guarded=0\n"


@pytest.mark.parametrize("output", [(), ("-o", "all.jsonl")])
def test_lines_end_with_the_duration_and_files_get_all(
    scene: Callable[..., Path], usdtbuild: Any, tmp_path: Path, output: tuple[str, ...]
) -> None:
    words = ("trace", "-P", "scene:eight", "--duration", "0.3", *output, "--", scene("pie"), "30000000", "1")
    done = usdtbuild(*words, cwd=tmp_path)
    said = "hits were seen and are left out; -o FILE has all of them"
    assert (said in done.stderr) == (not output), done.stderr
    assert '"scene:eight"' in (tmp_path / "all.jsonl").read_text() if output else "scene:eight" in done.stdout


def test_a_killed_trace_leaves_no_file_beside_its_output(scene: Callable[..., Path], tmp_path: Path) -> None:
    try:
        os.close(os.open(tmp_path, os.O_TMPFILE | os.O_RDWR))
    except OSError:
        pytest.skip("this file system has no files without a name")
    words = ["-P", "scene:*", "-o", tmp_path / "out.jsonl", "--", scene("pie"), "5", "1", "wait"]
    with ready(*TRACE, *words) as tracer:
        tracer.kill()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("what", "times"), [(COUNT, 0), (RECORD, 1)])
def test_what_a_stop_takes_is_measured_once_and_only_for_breakpoints_whose_time_is_asked_for(
    what: str, times: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    measured = []

    def measure() -> tuple[int, int]:
        measured.append(1)
        return 3, 1

    monkeypatch.setattr(stops, "measure", measure)
    with (tmp_path / "spool").open("w+b") as spool, Pipe()[0] as link:
        worker = Worker(link, Job(Wanted(), what, spool=spool.fileno()), set())
        assert not measured
        worker.expect_stops()
        worker.expect_stops()
    assert (len(measured), worker.tracees.stop_cost) == (times, 3 * times)


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (FileNotFoundError(2, "No such file or directory", "/proc/7/mem"), "the process ended while it was looked at"),
        (ProcessLookupError(3, "No such process"), "the process ended while it was looked at"),
        (FileNotFoundError(2, "No such file or directory", "/usr/lib/missing.py"), "usdtbuild trace has a bug:"),
    ],
)
def test_what_the_front_is_told_of_an_error(error: Exception, said: str) -> None:
    """A program may be killed at any moment, and its files in /proc are gone then."""
    assert failed(error).message.startswith(said)


@pytest.fixture
def interrupted() -> Iterator[Tracees]:
    """What holds no process, but takes signals as if it did."""
    before = {number: signal.getsignal(number) for number in (signal.SIGALRM, signal.SIGCHLD)}
    yield Tracees()
    signal.setitimer(signal.ITIMER_REAL, 0)
    for number, handler in before.items():
        signal.signal(number, handler)


def test_who_puts_things_back_is_not_interrupted_again(interrupted: Tracees) -> None:
    """When the time is over, a thread's stop ends what is looked up: once, however many stop then."""
    put_back = []

    def look_up() -> None:
        with interrupted.calmly():
            interrupted.until = 0.0
            try:
                os.kill(os.getpid(), signal.SIGCHLD)
            finally:
                os.kill(os.getpid(), signal.SIGCHLD)
                put_back.append("all")

    with pytest.raises(LateError):
        look_up()
    assert put_back == ["all"]


def spend(seconds: float) -> None:
    """Let time go by, as work does that a signal may interrupt."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        pass


def test_stops_without_end_leave_time_for_what_they_interrupt(interrupted: Tracees) -> None:
    """Breakpoints that are hit all the time were all that a worker did, which had yet to look something up."""
    turns = []

    def take_all(until: float) -> None:
        spend(until - time.monotonic())
        turns.append(until)
        interrupted.has_news = True

    interrupted.meanwhile = take_all
    with interrupted.calmly():
        while len(turns) < 10:
            pass


def test_stops_that_follow_each_other_leave_time_for_what_they_interrupt(interrupted: Tracees) -> None:
    """Where a program starts threads all the time, each stop is short; so is what a worker could do between two."""
    turns = []

    def take_all(until: float) -> None:
        spend(0.001)
        turns.append(until)

    interrupted.meanwhile = take_all
    with interrupted.calmly():
        for _ in range(400):
            spend(0.00005)
            os.kill(os.getpid(), signal.SIGCHLD)
    assert 1 < len(turns) < 200


def test_a_process_that_cannot_be_put_back_keeps_no_other_one_waiting() -> None:
    """Behind a killed worker a breakpoint is taken out at once, though another process is a zombie by then."""
    told, held = os.pipe()
    with Started("sleep", 60) as zombie, Started("cat") as process:
        process.tell("loaded")
        process.line()
        address = next(one.start for one in areas(process.pid) if one.flags == "r-xp" and one.inode)
        keeper, memory = Keeper(), Memory(process.pid)
        before = memory.read(address, 8)
        keeper.start(held)
        keeper.process(zombie.pid, 1)
        keeper.process(process.pid, 2)
        keeper.breakpoint(process.pid, address, before)
        memory.write(address, HOST.traps.instruction)
        os.kill(zombie.pid, signal.SIGKILL)
        while status_field(zombie.pid, "State")[:1] != "Z":
            time.sleep(0.01)
        os.close(keeper._sink)  # as the kernel does when the worker is killed
        assert select.select([told], [], [], 3)[0]
        assert memory.read(address, 8) == before
        memory.close()
        process.kill()
    os.close(told)
