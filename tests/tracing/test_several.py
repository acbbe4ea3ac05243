"""Several processes in one trace: what each program says of itself is what is told of it, and of all together."""

from __future__ import annotations

import json
import os
import re
import select as select_
import shutil
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

import usdtbuild
from tests.started import TRACE, Started, children_of, ready, wait_for
from usdtbuild.commands import trace_end
from usdtbuild.tracing import lookups
from usdtbuild.tracing.job import Job
from usdtbuild.tracing.keeper import _GONE, _PROCESS, _TRAP, _Said
from usdtbuild.tracing.measures import Measure
from usdtbuild.tracing.patch import tables
from usdtbuild.tracing.running import Running, running
from usdtbuild.tracing.selection import Selection, Wanted, by_file, select
from usdtbuild.tracing.typed import typed

from .conftest import SOURCES

ROUNDS = 3000, 500, 70
PROBES = "-P", "several:*"
Start = Callable[..., "Program"]


class Program:
    """One of those that run: it fires when it is told to, and says how often."""

    def __init__(self, path: Path, rounds: int, code: int = 0, before: Sequence[str] = ()) -> None:
        self.rounds = rounds
        self.process = ready(*before, path, rounds, code)
        self.pid = self.process.pid

    def does(self, what: str) -> str:
        """Let it do something; return what it says of that."""
        self.process.tell(what)
        return self.process.line().strip()

    def ends(self) -> int:
        """Let it end."""
        self.process.end("end\n")
        return self.process.returncode

    def text(self) -> bytes:
        """Its code, as it is in memory."""
        found = b""
        with Path(f"/proc/{self.pid}/mem").open("rb", 0) as memory:
            for line in Path(f"/proc/{self.pid}/maps").read_text().splitlines():
                where, flags, *_ = line.split()
                if "x" in flags and line.endswith(("/several", ".so.6")):
                    start, end = (int(one, 16) for one in where.split("-"))
                    memory.seek(start)
                    found += memory.read(end - start)
        return found


class Trace:
    """`usdtbuild trace` that has begun."""

    def __init__(self, *words: object, before: Sequence[str] = (), command: str = "trace") -> None:
        self.shown = tempfile.TemporaryFile("w+")  # noqa: SIM115 - a pipe could be full while nobody reads it
        given = (*before, *TRACE[:-1], command, *(["-v"] if command == "trace" else []), *words)
        self.process = Started(*given, stdin=None, stdout=self.shown, stderr=subprocess.PIPE)
        self.said = ""
        if command == "trace":
            self.waits_for("usdtbuild: tracing")

    def waits_for(self, text: str) -> None:
        """Wait until it has said something; what it said before has been told by then."""
        while text not in self.said:
            line = self.process.said()
            assert line, self.said
            self.said += line

    def ends(self, number: int = 0) -> tuple[str, str]:
        """Return what it has shown and said when it has ended, by a signal or by itself."""
        if number:
            self.process.send_signal(number)
        assert self.process.stderr is not None
        with self.process.stderr, self.shown:
            self.said += self.process.stderr.read()
            assert self.process.wait(60) == 0, self.said
            self.shown.seek(0)
            return self.shown.read(), self.said


@pytest.fixture(scope="module")
def several(run: Any, tmp_path_factory: pytest.TempPathFactory, header_of: Any) -> Path:
    folder = tmp_path_factory.mktemp("several")
    folder.chmod(0o755)
    header_of(folder, "several.d", "provider several { probe begin(int key, long value); probe end(int key); };")
    run("gcc", "-O2", f"-I{folder}", SOURCES / "several.c", "-o", folder / "several")
    return folder / "several"


@pytest.fixture
def start(several: Path) -> Iterator[Start]:
    """Start one of them: `start(rounds, code)`."""
    made: list[Program] = []

    def started(rounds: int, code: int = 0, path: Path = several, before: Sequence[str] = ()) -> Program:
        made.append(Program(path, rounds, code, before))
        return made[-1]

    yield started
    for one in made:
        one.process.kill()
        one.process.communicate()


def named(programs: Sequence[Program]) -> list[str]:
    return [word for one in programs for word in ("-p", str(one.pid))]


# What is asked for, and what is shown of programs that have fired so often.
def _counted(shown: str, fired: dict[int, int]) -> None:
    total = sum(fired.values())
    assert shown == f"{total}  several:begin\n{total}  several:end\n"


def _filtered(shown: str, fired: dict[int, int]) -> None:
    total = sum(sum(i % 4 == 1 for i in range(rounds)) for rounds in fired.values())
    assert re.findall(r"(\d+)  several:begin", shown) == [str(total)]


def _by_process(shown: str, fired: dict[int, int]) -> None:
    found = re.findall(r"^ *(\d+) +[\d.]+%  (\d+)$", shown, re.MULTILINE)
    assert sorted((int(pid), int(count)) for count, pid in found) == sorted([*fired.items()] * 2)


def _summed(shown: str, fired: dict[int, int]) -> None:
    total = sum(i * rounds for rounds in fired.values() for i in range(rounds))
    assert f"{sum(fired.values())} hits, sum {total}," in shown


def _summed_by_process(shown: str, fired: dict[int, int]) -> None:
    rows = {int(row[-1]): row[:2] for line in shown.splitlines()[2:] if (row := line.split())}
    assert rows == {pid: [str(rounds), str(sum(i * rounds for i in range(rounds)))] for pid, rounds in fired.items()}


def _latency(shown: str, fired: dict[int, int]) -> None:
    assert f": {sum(fired.values())} pairs\n" in shown
    assert "not paired" not in shown


def _lines(shown: str, fired: dict[int, int]) -> None:
    hits = re.findall(r"^ *\d+\.\d+ +(\d+) +(\d+) several:(\w+) key=(\d)", shown, re.MULTILINE)
    for pid, rounds in fired.items():
        for name in ("begin", "end"):
            keys = [key for process, thread, probe, key in hits if (int(process), probe) == (pid, name)]
            assert keys == [str(i % 4) for i in range(rounds)]
    assert all(process == thread for process, thread, *_ in hits)


def _every(shown: str, fired: dict[int, int]) -> None:
    lines = [json.loads(line) for line in shown.splitlines()]
    for name in ("several:begin", "several:end"):
        assert lines[-1]["counts"][name] == sum(fired.values())
        assert sum(line["counts"].get(name, 0) for line in lines[:-1]) == sum(fired.values())


WAYS: dict[str, tuple[tuple[str, ...], Callable[[str, dict[int, int]], None]]] = {
    "count": (("--count", *PROBES), _counted),
    "filter": (("--count", "--filter", "key == 1", "-P", "several:begin"), _filtered),
    "by process": (("--by", "process", *PROBES), _by_process),
    "sum": (("--sum", "value", "-P", "several:begin"), _summed),
    "sum by process": (("--sum", "value", "--by", "process", "-P", "several:begin"), _summed_by_process),
    "latency": (("--latency", "several:begin", "several:end"), _latency),
    "lines": (PROBES, _lines),
    "every": (("--every", "100ms", "--json", *PROBES), _every),
}


@pytest.mark.parametrize("engine", ["patch", "trap"])
@pytest.mark.parametrize("way", WAYS)
def test_totals_are_what_the_programs_say(start: Start, engine: str, way: str) -> None:
    """The trace ends when the last of them does, and says of each that it has ended, and how."""
    options, check = WAYS[way]
    programs = [start(rounds, code) for code, rounds in enumerate(ROUNDS)]
    trace = Trace(*options, "--engine", engine, *named(programs))
    for one in programs:
        assert one.does("go") == str(one.rounds)
    for code, one in enumerate(programs):
        assert one.ends() == code
        trace.waits_for(f"process {one.pid} has ended (exit code {code})")
    shown, said = trace.ends()
    assert all(word not in said for word in ("lost", "not traced", "warning")), said
    check(shown, {one.pid: one.rounds for one in programs})


def test_top_is_of_all(start: Start) -> None:
    programs = [start(rounds) for rounds in ROUNDS]
    before = [one.text() for one in programs]
    trace = Trace("--every", "50ms", "--by", "process", *PROBES, *named(programs), command="top")
    wait_for(lambda: all(one.text() != text for one, text in zip(programs, before)))
    for one in programs:
        one.does("go")
        one.ends()
        trace.waits_for(f"process {one.pid} has ended")
    _by_process(trace.ends()[0].rpartition("total, ")[2], {one.pid: one.rounds for one in programs})


def test_the_python_interface_traces_several(start: Start) -> None:
    programs = [start(rounds) for rounds in ROUNDS]
    with usdtbuild.trace(pid=[one.pid for one in programs], probes=["several:begin"]) as hits:
        for one in programs:
            one.does("go")
            one.ends()
        found = Counter(hit.pid for hit in hits)
    assert found == {one.pid: one.rounds for one in programs}


def test_files_say_the_process_of_each_hit(start: Start, tmp_path: Path) -> None:
    programs = [start(rounds) for rounds in ROUNDS]
    trace = Trace(*PROBES, "-o", tmp_path / "hits.jsonl", *named(programs))
    for one in programs:
        one.does("go")
    trace.ends(signal.SIGINT)
    hits = [json.loads(line) for line in (tmp_path / "hits.jsonl").read_text().splitlines()]
    for one in programs:
        assert sum(hit["pid"] == one.pid for hit in hits) == 2 * one.rounds
        assert one.ends() == 0


@pytest.mark.parametrize("engine", ["patch", "trap"])
def test_what_they_fork_and_become_is_traced_as_ever(start: Start, engine: str) -> None:
    programs = [start(rounds) for rounds in ROUNDS]
    trace = Trace("--count", "--engine", engine, *PROBES, *named(programs))
    for one in programs:
        assert one.does("fork") == str(one.rounds)
        assert one.does("exec") == "again ready"
        assert one.does("go") == str(one.rounds)
        one.ends()
    shown, said = trace.ends()
    _counted(shown, {one.pid: 2 * one.rounds for one in programs})
    assert said.count("has ended") == len(programs)  # of those that were named


@pytest.mark.parametrize("options", [(), ("--no-children",)])
def test_gdb_says_that_it_does_not_trace_what_is_forked(
    start: Start, need: Callable[[str], str], options: Sequence[str]
) -> None:
    """Once, and at once: the counts are those of the process that was named."""
    need("gdb")
    one = start(3)
    trace = Trace("--count", "--engine", "gdb", *options, *PROBES, "-p", one.pid)
    assert (one.does("go"), one.does("fork")) == ("3", "3")
    told = f"process {one.pid} has started another one: gdb traces no"
    if not options:
        trace.waits_for(told)
    assert (one.does("fork"), one.does("go")) == ("3", "3")
    shown, said = trace.ends(signal.SIGINT)
    _counted(shown, {one.pid: 6})
    assert said.count(told) == (not options)
    assert (one.does("fork"), one.ends()) == ("3", 0)


def test_gdb_says_so_of_a_command_too(several: Path, need: Callable[[str], str], run: Any) -> None:
    need("gdb")
    done = run(*TRACE, "--engine", "gdb", "--count", *PROBES, "--", several, 3, input="fork\nfork\ngo\nend\n")
    assert done.stderr.count("has started another one: gdb traces no") == 1
    assert "3  several:begin\n3  several:end\n" in done.stdout


@pytest.mark.parametrize("engine", ["patch", "trap"])
def test_one_that_is_killed_harms_no_other(start: Start, engine: str) -> None:
    first, second = start(100), start(100)
    before = second.text()
    trace = Trace("--count", "--engine", engine, *PROBES, *named([first, second]))
    assert (first.does("go"), second.does("go")) == ("100", "100")
    assert second.text() != before
    first.process.kill()
    trace.waits_for(f"process {first.pid} has ended (signal 9, Killed)")
    assert second.does("go") == "100"
    _counted(trace.ends(signal.SIGINT)[0], {first.pid: 100, second.pid: 200})
    assert second.text() == before
    assert (second.does("go"), second.ends()) == ("100", 0)


@pytest.mark.parametrize("engine", ["patch", "trap"])
@pytest.mark.parametrize("who", ["front", "worker"])
def test_a_tracer_that_is_killed_leaves_nothing_in_any(run: Any, several: Path, start: Start, engine: str, who: str,
                                                       tmp_path: Path) -> None:  # fmt: skip
    fixed = tmp_path / "several"
    run("gcc", "-O2", "-no-pie", "-fno-pie", f"-I{several.parent}", SOURCES / "several.c", "-o", fixed)
    programs = [start(100, 0, path) for path in (fixed, fixed, several)]
    before = [one.text() for one in programs]
    trace = Trace("--count", "--engine", engine, *PROBES, *named(programs))
    assert [one.text() != text for one, text in zip(programs, before)] == [True] * 3
    os.kill(trace.process.pid if who == "front" else children_of(trace.process.pid)[0], signal.SIGKILL)
    trace.process.communicate(timeout=60)
    trace.shown.close()
    wait_for(lambda: [one.text() for one in programs] == before)
    for one in programs:
        assert (one.does("go"), one.ends()) == ("100", 0)


def test_what_stood_at_an_address_is_kept_for_each_program() -> None:
    """Programs without relation may have other code at one address; a child has that of its parent."""
    said = _Said()
    for pid, family in ((10, 1), (20, 2), (21, 2)):
        said.hear(pid, _PROCESS, family, b"")
    for pid, before in ((10, b"a"), (20, b"b")):
        said.hear(pid, _TRAP, 0x401000, before)
    assert [said.breakpoints[said.processes[pid], 0x401000] for pid in (10, 20, 21)] == [b"a", b"b", b"b"]
    said.hear(20, _GONE, 0, b"")
    assert [*said.processes] == [10, 21]


def test_no_row_is_of_a_process_that_does_not_write_there() -> None:
    memory = bytearray(tables.size(Measure("process")))
    for row, (pid, count) in enumerate(((7, 3), (8, 4))):
        tables._CELL.pack_into(memory, 64 * row, pid, count, 0, 0, 0, 0)
    place = tables.Place(0, Measure("process"), 0, own=0)
    found = tables.read(memory, 0, place, (), {7})
    assert ({key: cell.count for key, cell in found.cells.items()}, found.others.count) == ({7: 3}, 4)


def test_an_ordinary_user_traces_his_own(several: Path, unprivileged: list[str], start: Start) -> None:
    programs = [start(rounds, before=unprivileged) for rounds in ROUNDS]
    trace = Trace("--count", *PROBES, *named(programs), before=unprivileged)
    for one in programs:
        one.does("go")
    _counted(trace.ends(signal.SIGINT)[0], {one.pid: one.rounds for one in programs})


@pytest.mark.skipif(os.geteuid() != 0, reason="needs two users")
def test_what_may_not_be_traced_ends_it_before_anything_is_changed(start: Start, unprivileged: list[str],
                                                                   run: Any) -> None:  # fmt: skip
    his, roots = start(10, before=unprivileged), start(10)
    before = his.text(), roots.text()
    done = run(*unprivileged, *TRACE, "--count", *named([his, roots]), code=1)
    assert re.search(rf"process {roots.pid} (belongs to another user|may not be traced)", done.stderr)
    assert (his.text(), roots.text()) == before


def test_nonsense_is_refused(start: Start, usdtbuild: Any) -> None:
    one, two = start(10), start(10)
    before = one.text()
    assert "each process can be named once" in usdtbuild("trace", *named([one, two, one]), code=2).stderr
    many = [word for number in range(501) for word in ("-p", number)]
    assert "and 500 of them at most" in usdtbuild("trace", *many, code=2).stderr
    two.process.kill()
    two.process.wait()
    assert f"there is no process {two.pid}" in usdtbuild("trace", *named([one, two]), code=1).stderr
    words = [*named([one]), "-p", str(os.getpid()), "--engine", "gdb"]
    assert "the engine gdb traces one process" in usdtbuild("trace", *words, code=2).stderr
    assert one.text() == before


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("-P several:* -x *", "-x * leaves out all that -P several:* matches"),
        ("-P begin -P end -x s*:* -x end", "-x s*:* -x end leaves out all that -P end matches"),
        ("-x *", "-x * leaves out all probes"),
        ("-x several:* --module several", "-x several:* leaves out all probes of --module several"),
        ("--module nosuch", "nothing matches --module nosuch; there are no probes in such files"),
    ],
)
def test_what_can_match_nothing_is_told_at_once(start: Start, options: str, said: str) -> None:
    one = start(10)
    given = *TRACE, "--count", *options.split(), "-p", str(one.pid)
    with subprocess.Popen(given, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as trace:
        assert trace.stderr is not None
        try:
            told = ""
            while f"warning: {said} (libraries" not in told:
                assert select_.select([trace.stderr], [], [], 30)[0], told
                told += os.read(trace.stderr.fileno(), 1 << 16).decode()
        finally:
            trace.send_signal(signal.SIGINT)
        assert "the program has" not in trace.stderr.read()
    assert trace.returncode == 1


def test_all_names_are_told_where_one_of_latency_is_wrong(start: Start, usdtbuild: Any) -> None:
    said = usdtbuild("trace", "--latency", "begin", "nosuch", *named([start(10)]), code=1).stderr
    assert said == "usdtbuild: nothing matches --latency nosuch; there are several:begin, several:end\n"
    said = usdtbuild("trace", "--latency", "beginn", "end", *named([start(10)]), code=1).stderr
    assert "nothing matches --latency beginn; did you mean begin? There are several:begin, several:end" in said


def test_the_trace_does_not_trace_itself(start: Start, run: Any) -> None:
    one = start(10)
    script = f'exec "$0" -m usdtbuild trace -p {one.pid} -p $$'
    done = run("sh", "-c", script, sys.executable, code=1)
    assert "is this trace itself" in done.stderr
    assert one.ends() == 0


def test_a_child_that_is_named_too_is_not_said_to_be_left_out(start: Start) -> None:
    one = start(10)
    child = int(one.does("keep"))
    trace = Trace("--count", *PROBES, *named([one]))
    assert f"has a child that runs already ({child})" in trace.ends(signal.SIGINT)[1]
    trace = Trace("--count", *PROBES, *named([one]), "-p", child)
    assert (one.does("go"), one.does("tell")) == ("10", "10")
    shown, said = trace.ends(signal.SIGINT)
    assert "runs already" not in said
    _counted(shown, {one.pid: 10, child: 10})
    other = int(one.does("keep"))
    trace = Trace("--count", *PROBES, *named([one]))
    few = ", ".join(map(str, sorted([child, other])))
    said = f"has 2 children that run already ({few}): these aren't traced, only what it starts from now on"
    assert said in trace.ends(signal.SIGINT)[1]


def test_children_that_have_ended_or_came_later_are_not_told(
    start: Start, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    one = start(10)
    found = [Running(pid, 0, one.pid) for pid in (int(one.does("keep")), one.pid)]  # others had these numbers
    monkeypatch.setattr("usdtbuild.tracing.running.descendants", lambda _: found)
    trace_end.tell_children(one.pid, Job(Wanted(), pids=(one.pid,)))
    assert not capsys.readouterr().err
    monkeypatch.undo()
    trace_end.tell_children(one.pid, Job(Wanted(), pids=(one.pid,), engine="gdb"))
    assert re.fullmatch(r".*\((\d+)\): that isn't traced, nor is what it starts; .*\n", capsys.readouterr().err)
    monkeypatch.setattr("usdtbuild.tracing.running.status_field", lambda *_: "4711")  # a tracer
    trace_end.tell_children(one.pid, Job(Wanted(), pids=(one.pid,)))
    assert not capsys.readouterr().err


SHELL = "sh", "-c", '"$@"; true', "sh"  # whose child is the program


@pytest.mark.parametrize("engine", ["patch", "trap"])
def test_children_that_run_already_are_traced(start: Start, engine: str) -> None:
    """Children of children, too, and what all of them start from now on; they run on afterwards as they did."""
    parent, shell = start(30), start(40, before=[*SHELL, *SHELL])
    child = int(parent.does("keep"))
    before = parent.text()
    trace = Trace("--by", "process", "--engine", engine, *PROBES, "--children", *named([parent, shell]))
    assert (parent.does("go"), parent.does("tell"), parent.does("tell"), parent.does("fork")) == ("30",) * 4
    assert shell.does("go") == "40"
    shown, said = trace.ends(signal.SIGINT)
    found = {int(pid): int(count) for count, pid in re.findall(r"^ *(\d+) +[\d.]+%  (\d+)$", shown, re.MULTILINE)}
    assert (found.pop(parent.pid), found.pop(child), sorted(found.values())) == (30, 60, [30, 40])
    assert "runs already" not in said
    assert parent.text() == before
    assert (parent.does("tell"), parent.ends(), shell.does("go"), shell.ends()) == ("30", 0, "40", 0)


@pytest.mark.parametrize("wanted", [
    Wanted(probes=("*:*",)),
    Wanted(calls=("*",), returns=True),
    Wanted(functions=("main", "pthread_*", "f*"), returns=True),
], ids=["probes", "calls", "functions"])  # fmt: skip
def test_each_file_is_read_once_for_all_that_have_loaded_it(
    wanted: Wanted, several: Path, start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is found for the second process, elsewhere in memory, is what would have been found by reading; for a part
    of its files, too, and where another program has loaded the same library."""
    read = list[set[str]]()

    def counted(pid: int, *more: Any) -> dict[str, Selection]:
        found = by_file(pid, *more)
        read.append(set(found))
        return found

    def whole(pid: int) -> Selection:
        found = select(pid, wanted)
        return found._replace(targets=tuple(typed(pid, found.targets, Job(wanted), print)))

    monkeypatch.setattr(lookups, "by_file", counted)
    monkeypatch.setattr(lookups, "apart", lambda _, read: read(None))  # where root has rights to give up, in a child
    path, other = tmp_path / "several", tmp_path / "other"
    shutil.copy(several, path)
    shutil.copy(several, other)
    looking, pids = lookups.Lookups(Job(wanted)), [start(1, 0, path).pid for _ in range(3)]
    for pid in pids:
        found = looking.look(pid, frozenset())
        assert found == whole(pid)
        assert found.targets
    files = read[0]
    assert read == [files]
    assert str(path) in files
    assert len({one.sites[0].address for pid in pids for one in looking.look(pid, frozenset()).targets}) > 3
    modules = {(one.module.path, one.module.load_bias) for one in found.targets}
    for known in modules:
        rest = tuple(one for one in found.targets if (one.module.path, one.module.load_bias) != known)
        assert looking.look(pids[2], frozenset([known])).targets == rest
    pid = start(1, 0, other).pid
    assert looking.look(pid, frozenset()) == whole(pid)
    assert read == [files, {str(other)}]
    path.chmod(0o700)  # a file that has changed is another one
    looking.look(pids[1], frozenset())
    assert read == [files, {str(other)}, {str(path)}]


# Its data is mapped in one piece, and in three once it has been told something, as that of a library that is relocated.
SPLITS = """
#include <stdio.h>
#include <sys/mman.h>
static char data[3 * 4096] __attribute__((aligned(4096))) = "a text";
int main(void) {
    puts("ready");
    fflush(stdout);
    getchar();
    puts(mprotect(data + 4096, 4096, PROT_READ) ? "can't" : "split");
    fflush(stdout);
    return getchar() == EOF;
}
"""


def test_files_whose_data_is_mapped_otherwise_are_the_same(
    compiled: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = compiled(tmp_path, "splits.c", SPLITS, "-O2")
    with ready(program) as process:
        looking, none = lookups.Lookups(Job(Wanted(calls=("puts",)))), frozenset[tuple[str, int]]()
        found = looking.look(process.pid, none)
        process.tell()
        assert process.line() == "split\n"
        assert [one.name for one in found.targets if one.module.path == str(program)] == ["puts"]
        monkeypatch.setattr(lookups, "apart", None)  # nothing is read
        assert looking.look(process.pid, none) == found
        process.end("\n")


@pytest.mark.parametrize("engine", ["patch", "trap"])
def test_all_that_run_a_program_are_traced(several: Path, start: Start, engine: str, tmp_path: Path) -> None:
    """Those that run already, those that are started later, by whomever, and those of a newer file at the same path."""
    path, other = tmp_path / "several", tmp_path / "other"
    for one in (path, other):
        shutil.copy(several, one)
    first, second, another = start(10, 0, path), start(20, 3, path, SHELL), start(1000, 0, other)
    trace = Trace("--count", "--engine", engine, *PROBES, "--exe", path)
    trace.waits_for("are traced")
    assert (first.does("go"), second.does("go"), another.does("go")) == ("10", "20", "1000")
    assert second.ends() == 0  # the shell
    trace.waits_for("has ended (exit code 3)")
    assert first.ends() == 0
    shutil.copy(several, tmp_path / "new")
    (tmp_path / "new").replace(path)
    third = start(40, 0, path)
    trace.waits_for(f"from now on process {third.pid} is traced")
    assert (third.does("go"), third.does("exec"), third.does("go")) == ("40", "again ready", "40")
    third.process.kill()
    trace.waits_for(f"process {third.pid} has ended (signal 9, Killed)")
    _counted(trace.ends(signal.SIGINT)[0], dict(enumerate((10, 20, 40, 40))))


def test_a_program_that_nobody_runs_is_waited_for(several: Path, start: Start, unprivileged: list[str]) -> None:
    words = "--exe", several, *PROBES
    trace = Trace("--count", *words, "--duration", "0.3", before=unprivileged)
    shown, said = trace.ends()
    assert (shown, "no process runs" in said, "no process has run" in said) == ("", True, True)
    trace = Trace("--count", *words, before=unprivileged)
    one = start(10, before=unprivileged)
    trace.waits_for(f"from now on process {one.pid} is traced")
    one.does("go")
    _counted(trace.ends(signal.SIGINT)[0], {one.pid: 10})


def test_what_is_named_may_end_while_a_program_is_waited_for(several: Path, start: Start, tmp_path: Path) -> None:
    shutil.copy(several, tmp_path / "several")
    named_one, other = start(10, 0, tmp_path / "several"), start(20)
    trace = Trace("--count", *PROBES, "--exe", several, *named([named_one]))
    trace.waits_for(f"from now on process {other.pid} is traced")
    named_one.does("go")
    named_one.ends()
    trace.waits_for(f"process {named_one.pid} has ended")
    other.does("go")
    assert re.findall(r"(\d+)  several:begin", trace.ends(signal.SIGINT)[0]) == ["20", "10"]


def test_what_is_no_program_is_refused(several: Path, usdtbuild: Any, tmp_path: Path) -> None:
    (tmp_path / "script").write_text("#!/bin/sh\n")
    (tmp_path / "text").write_text("text")
    for name, said in (("script", "is a script"), ("text", "is no ELF program"), (".", "is no ELF program"),
                       ("none", "no such file or directory")):  # fmt: skip
        assert said in usdtbuild("trace", "--exe", tmp_path / name, code=2).stderr
    assert "both a process (--exe" in usdtbuild("trace", "--exe", several, "--", "true", code=2).stderr
    assert "traces one process" in usdtbuild("trace", "--exe", several, "--engine", "gdb", code=2).stderr
    assert "--children is about" in usdtbuild("trace", "--children", "--", "true", code=2).stderr
    said = usdtbuild("trace", "--children", "--no-children", "-p", 1, code=2).stderr
    assert said == "usdtbuild: --children and --no-children contradict each other: leave one of them out\n"
    assert "say what to trace" in usdtbuild("trace", "--children", code=2).stderr


def test_a_number_alone_is_no_process() -> None:
    found = running(os.getpid())
    assert found is not None
    assert (found.parent, found.is_there(), found._replace(started=found.started - 1).is_there()) == (
        os.getppid(), True, False)  # fmt: skip
