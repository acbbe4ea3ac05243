"""Filters and outputs through the command line, on a program that is really traced."""

from __future__ import annotations

import contextlib
import csv
import json
import os
import pty
import re
import signal
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.started import Started

SOURCES = Path(__file__).resolve().parent / "sources"


@pytest.fixture(scope="module")
def server(run: Any, need: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A server with probes: `server REQUESTS THREADS PAUSE`."""
    folder = tmp_path_factory.mktemp("server")
    module = sys.executable, "-m", "usdtbuild"
    run(*module, "header", "--formats=dof", SOURCES / "server.d", "-o", folder / "server.h")
    words = "-O2", "-Wall", "-Werror", f"-I{folder}", "-c", SOURCES / "server.c", "-o", folder / "server.o"
    run(*module, "cc", "--", need("gcc"), *words)
    run("gcc", folder / "server.o", "-o", folder / "server", "-pthread")
    return folder / "server"


@pytest.fixture
def trace(usdtbuild: Any, server: Path, tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Trace the server, with 24 requests in each of two threads."""

    def command(*words: Any, probes: str = "server:*", **more: Any) -> Any:
        return usdtbuild("trace", "-P", probes, *words, "--", server, 24, 2, 0, cwd=tmp_path, **more)

    return command


def test_a_filter_lets_through_what_it_says(trace: Any) -> None:
    shown = trace("--filter", "id >= 7 and (status == 404 or id == 8)", probes="server:request-done")
    found = sorted(int(number) for number in re.findall(r"request__done id=(\d+) status=", shown.stdout))
    assert found == sorted([8, *range(7, 48, 7)])
    assert len(shown.stdout.splitlines()) == len(found)


def test_counts_of_a_filter_are_of_what_passed(trace: Any) -> None:
    shown = trace("--count", "-x", "*cache*", "--filter", "id < 5")
    assert {name: int(count) for count, name in re.findall(r"(\d+)  (\S+)", shown.stdout)} == {
        "server:query__start": 9, "server:query__done": 9, "server:request__start": 5, "server:request__done": 5,
        "server:parse__begin": 5, "server:parse__end": 5,
    }  # fmt: skip


def test_a_limit_counts_what_passed(trace: Any) -> None:
    shown = trace("-x", "*cache*", "--limit", "3", "--filter", "id == 11")
    assert len(re.findall(r"id=11\b", shown.stdout)) == len(shown.stdout.splitlines()) == 3


@pytest.mark.parametrize("more", [(), ("--by", "id", "-P", "server:request*"), ("--filter", "thread > 1")])
@pytest.mark.parametrize("engine", ["patch", "trap", "inside"])
def test_a_limit_ends_a_count(engine: str, more: tuple[str, ...], usdtbuild: Any, server: Path) -> None:
    words = [] if "-P" in more else ["-P", "server:*"]
    shown = usdtbuild("trace", "--engine", engine, "--count", "--limit", "3", *words, *more,
                      "--", server, 400, 1, 1000)  # fmt: skip
    said = re.search(r"(\d+) more hits than --limit", shown.stderr)
    hits = 3 + (int(said[1]) if said else 0)
    assert sum(int(count) for count in re.findall(r"(\d+)  server:", shown.stdout)) == hits < 1000
    if "--by" in more:
        assert sum(int(one) for one in re.findall(r"values? in (\d+) hits?\b", shown.stdout)) == hits


@pytest.mark.parametrize("more", [(), ("--stack=1",), ("--filter", "a >= 0"), ("--engine", "trap")])
def test_first_hits_of_threads_at_full_speed_are_the_first(
    more: tuple[str, ...], usdtbuild: Any, scene: Any, tmp_path: Path
) -> None:
    """None is left out, they are in order, and the program runs on."""
    limit = 200 if more else 2000  # a record with a stack is large, and a ring has room for few
    words = "--limit", limit, "-P", "scene:eight", *more, "-o", "hits.jsonl"
    done = usdtbuild("trace", *words, "--", scene("pie"), 3_000 if "trap" in more else 1_000_000, 3, cwd=tmp_path)
    assert "wrong=0" in done.stdout
    hits = [json.loads(line) for line in (tmp_path / "hits.jsonl").read_text().splitlines()]
    assert len(hits) == limit
    assert [hit["time"] for hit in hits] == sorted(hit["time"] for hit in hits)
    by_thread = defaultdict(list)
    for hit in hits:
        by_thread[hit["tid"]].append(hit["args"]["a"])
    assert all(numbers == list(range(len(numbers))) for numbers in by_thread.values())
    assert "filter" not in done.stderr


def test_a_count_beyond_a_large_limit_is_said(usdtbuild: Any, scene: Any) -> None:
    done = usdtbuild("trace", "--count", "--limit", "70000", "-P", "scene:ints", "--", scene("pie"), 1_000_000, 1)
    counted = sum(int(count) for count in re.findall(r"(\d+)  scene:", done.stdout))
    said = re.search(r"(\d+) more hits than --limit came before the trace ended", done.stderr)
    assert counted == 70_000 + (int(said[1]) if said else 0)


def test_a_filter_for_an_argument_that_is_not_there_ends_what_was_started(trace: Any) -> None:
    done = trace("--filter", "id > 3", code=2)
    assert done.stdout == ""
    assert done.stderr == (
        "usdtbuild: --filter: server:cache__miss has no argument id; it has key\n  id > 3\n  ^\n"
    )  # fmt: skip


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ("--module", "server", "-P", "request-strat"),  # a C library with probes would make the list too long
            ["-P request-strat; did you mean request__start", "There are server:cache__miss, ", "nothing has matched"],
        ),
        (("-P", "server:*", "-P", "x:y"), ["-P x:y; there are server:cache__miss, "]),
        (("-F", "mian"), ["-F mian; did you mean main?", "nothing has matched -F mian\n"]),
        (("-P", "server:*", "-L", "q_1", "-F", "q_2"), ["nothing matches -L q_1; ", "nothing matches -F q_2; "]),
        (("--latency", "server:nosuch", "server:mark"), ["nothing matches --latency server:nosuch; "]),
    ],
)
def test_a_pattern_that_matches_nothing_is_an_error(trace: Any, words: tuple[str, ...], said: list[str]) -> None:
    done = trace(*words, code=1)
    assert [text for text in said if text not in done.stderr] == []
    assert ("nothing has matched" in done.stderr) == ("did you mean" in done.stderr)  # again, because there were hits
    assert re.search("^usdtbuild: nothing (?:matches|has matched) ", trace("-q", *words, code=1).stderr, re.M)


@pytest.mark.parametrize(("words", "name"), [(("-P", "x:y"), "x.csv"), (("-F", "mian"), "x.jsonl"),
                                             (("--report", "-F", "mian"), "x.report.json")])  # fmt: skip
def test_where_nothing_matches_a_file_is_as_it_was(
    usdtbuild: Any, server: Path, tmp_path: Path, words: tuple[str, ...], name: str
) -> None:
    (tmp_path / name).write_text("old")
    done = usdtbuild("trace", *words, "-o", name, "--", server, 1, 1, 0, cwd=tmp_path, code=1)
    assert (tmp_path / name).read_text() == "old"
    assert len(re.findall("nothing (?:matches|has matched) ", done.stderr)) == 1


def test_what_matches_is_written_beside_what_does_not(usdtbuild: Any, server: Path, tmp_path: Path) -> None:
    words = ("-P", "x:y", "-o", "x.csv", "-o", "x.ctf")
    usdtbuild("trace", *words, "--", server, 1, 1, 0, cwd=tmp_path, code=1)
    assert list(tmp_path.iterdir()) == []
    usdtbuild("trace", "-P", "server:*", *words, "--", server, 1, 1, 0, cwd=tmp_path, code=1)
    assert {one.name for one in tmp_path.iterdir()} == {"x.csv", "x.ctf"}


@pytest.mark.parametrize(("more", "code"), [((), 0), (("-P", "x:y"), 1)])
def test_what_a_command_loads_later_is_not_missed_before(
    scene: Any, usdtbuild: Any, more: tuple[str, ...], code: int
) -> None:
    host = scene("dlopen")
    words = ("--module", "libscene.so", "-P", "scene:ints", *more)
    done = usdtbuild("trace", "--count", *words, "--", host, 3, 1, cwd=host.parent, code=code)
    assert re.search(r"\d  scene:ints", done.stdout)
    assert done.stderr == ("usdtbuild: nothing has matched -P x:y\n" if more else "")


@pytest.mark.parametrize(("options", "code"), [
    (("--filter", "no > 3"), 2), (("--by", "no"), 2), (("--histogram", "no"), 2), (("--histogram", "key"), 2),
    (("--latency", "request-start", "no"), 1),  # matches nothing
])  # fmt: skip
def test_what_makes_no_sense_with_a_program_is_found_before_it_begins(
    usdtbuild: Any, run: Any, options: tuple[str, ...], code: int, tmp_path: Path
) -> None:
    (tmp_path / "app.d").write_text("provider app { probe request__start(int n, char *key); };\n")
    (tmp_path / "app.c").write_text(
        '#include <stdio.h>\n#include "app.h"\nint main(void) { APP_REQUEST_START(1, "k"); return !fopen("begun",'
        ' "w"); }\n'
    )
    usdtbuild("header", "app.d", "-o", "app.h", cwd=tmp_path)
    usdtbuild("cc", "--", "gcc", "-c", "app.c", cwd=tmp_path)
    run("gcc", "app.o", "-o", "app", cwd=tmp_path)
    assert usdtbuild("trace", *options, "--", "./app", cwd=tmp_path, code=code).stdout == ""
    assert not (tmp_path / "begun").exists()
    usdtbuild("trace", "--", "./app", cwd=tmp_path)
    assert (tmp_path / "begun").exists()


def test_children_that_run_already_are_told_of(usdtbuild: Any) -> None:
    with Started("sh", "-c", "sleep 60 & echo; wait") as shell:
        shell.line()
        said = usdtbuild("trace", "-p", str(shell.pid), "--duration", "0.1").stderr
        found = re.search(rf"process {shell.pid} has a child that runs already \((\d+)\)", said)
        shell.kill()
    assert found is not None, said
    os.kill(int(found[1]), signal.SIGKILL)


def test_a_filter_that_is_wrong_starts_nothing(usdtbuild: Any, tmp_path: Path) -> None:
    done = usdtbuild("trace", "--filter", "id >", "--", "touch", tmp_path / "started", code=2)
    assert "\n  id >\n      ^\n" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_tables(trace: Any) -> None:
    text = trace("--histogram", "length,1000").stdout + trace("--by", "key").stdout
    text += trace("--latency", "request-start", "request-done", "--key", "id", "--top", "3").stdout
    assert "server:parse__end length: 48 values from 0 to 4700, mean 2350\n" in text
    assert re.search(r"\[4000, 5000\)   8  #{32}\n", text)
    assert "server:cache__miss key: 8 values in 16 hits\n" in text
    assert "request-start to request-done by id: 48 pairs\n" in text
    assert text.count("->") == 3
    assert "not paired" not in text


def test_files_of_all_formats_at_once(trace: Any, tmp_path: Path) -> None:
    names = ["t.jsonl", "t.csv", "t.json", "t.folded", "t.svg", "t.html"]
    done = trace(*(word for name in names for word in ("-o", name)))
    assert done.stdout == ""
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(names)
    hits = [json.loads(line) for line in (tmp_path / "t.jsonl").read_text().splitlines()]
    assert len(hits) == 48 * 4 + 96 * 2 + 16
    with (tmp_path / "t.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["probe"] for row in rows] == [hit["probe"] for hit in hits]
    events = json.loads((tmp_path / "t.json").read_text())["traceEvents"]
    assert sum(event["ph"] == "X" for event in events) == 48 * 2 + 96
    folded = (tmp_path / "t.folded").read_text().splitlines()
    assert [line.rsplit(" ", 1)[0] for line in folded] == [
        "server:request", "server:request;server:parse", "server:request;server:query",
    ]  # fmt: skip
    assert (tmp_path / "t.html").read_text().startswith("<!DOCTYPE html>")


def test_latency_alone_traces_its_two_probes(usdtbuild: Any, server: Path) -> None:
    done = usdtbuild("trace", "--latency", "server:query-start", "server:query-done", "--", server, 9)
    assert done.stdout.startswith("server:query-start to server:query-done: 18 pairs\n")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("-o", "-"), "-o -: lines and tables go to standard output without -o"),
        (("-o", "a.jsonl", "-o", "./a.jsonl"), "-o a.jsonl: two outputs can't have one file"),
        (("-o", "trace.pdf"), "-o trace.pdf: no format has the ending .pdf"),
        (("--key", "id"), "--key says which hits --latency pairs"),
        (("--by", "size"), "--by: server:"),
        (("--histogram", "key"), "is a string; --by counts"),
        (("-F", "main", "-P", ""), "-P: the pattern is empty"),
        (("-F", ""), "-F: the pattern is empty"),
        (("-F", "main", "-o", "a.report.json"), "a file NAME.report.json has the report's numbers: give --report"),
        (("--sort", "self", "-F", "main"), "--sort is about rows of tables; give --report"),
        (("--graph", "--sort", "self"), "--sort is about rows of tables, and --graph is none; give --report"),
    ],
)
def test_what_makes_no_sense(trace: Any, tmp_path: Path, words: tuple[str, ...], said: str) -> None:
    done = trace(*words, "-o", "t.jsonl", code=2)
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("names", [("a.csv", "b.csv"), ("a.csv", "in/../a.csv"), ("a.ctf", "b.ctf")])
def test_one_file_by_two_names(names: tuple[str, str], trace: Any, tmp_path: Path) -> None:
    """It is told before the program runs, whatever leads to the file."""
    (tmp_path / "in").mkdir()
    for ending in ("csv", "ctf"):
        (tmp_path / f"b.{ending}").symlink_to(f"a.{ending}")
    done = trace("-o", names[0], "-o", names[1], code=2)
    assert f"-o {names[0]}: two outputs can't have one file" in done.stderr


def test_a_folder_that_is_not_there(trace: Any) -> None:
    assert "no/t.html: can't be written: no such file or directory" in trace("-o", "no/t.html", code=1).stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_the_trace_and_the_files_are_whole(server: Path, tmp_path: Path, number: signal.Signals) -> None:
    words = [sys.executable, "-m", "usdtbuild", "trace", "-P", "server:*", "-o", "t.jsonl", "-o", "t.json", "-v"]
    program = subprocess.Popen([server, "100000", "1", "1000"])
    try:
        with Started(*words, "-p", program.pid, cwd=tmp_path, stdin=None, stderr=subprocess.PIPE) as tracer:
            assert "tracing process" in tracer.said()
            time.sleep(0.5)
            assert not (tmp_path / "t.jsonl").exists()
            tracer.send_signal(number)
            errors = tracer.communicate()[1]
        assert tracer.returncode == (0 if number == signal.SIGINT else -number), errors
        assert program.poll() is None
    finally:
        program.kill()
        program.wait()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["t.json", "t.jsonl"]
    hits = [json.loads(line) for line in (tmp_path / "t.jsonl").read_text().splitlines()]
    assert len(hits) > 10
    assert json.loads((tmp_path / "t.json").read_text())["traceEvents"]


def test_counts_are_kept_up_to_date_on_a_terminal(server: Path) -> None:
    program = subprocess.Popen([server, "100000", "1", "1000"])
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "usdtbuild", "trace", "--count", "-P", "server:request-*", "-p", str(program.pid)]
    shown = b""
    try:
        with subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs) as tracer:
            os.close(theirs)
            deadline = time.monotonic() + 30
            while shown.count(b"\x1b[2A\x1b[J") < 2 and time.monotonic() < deadline:
                shown += os.read(ours, 4096)
            tracer.send_signal(signal.SIGINT)
            with contextlib.suppress(OSError):  # the end of a terminal is an error
                while piece := os.read(ours, 4096):
                    shown += piece
    finally:
        program.kill()
        program.wait()
        os.close(ours)
    assert tracer.returncode == 0
    tables = [re.findall(rb"(\d+)  server:request__(start|done)\r\n", part) for part in shown.split(b"\x1b[2A\x1b[J")]
    assert len(tables) >= 3
    assert all(len(table) == 2 for table in tables)
    counts = [max(int(count) for count, _ in table) for table in tables]
    assert counts == sorted(counts)
    assert counts[-1] > counts[0]
