"""The public Python interface: what docs/api.md shows runs as it stands there, and says what the command line says."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

import usdtbuild as public

ROOT = Path(__file__).resolve().parent.parent
PROVIDER = "provider app { probe read(int bytes, char *name); probe idle(); };\n"
PROGRAM = """
#include <stdlib.h>
#include <unistd.h>
#include "app.h"
int main(int argc, char **argv)
{
	int n = argc > 1 ? atoi(argv[1]) : 10;
	do {
		for (int i = 0; i < n; i++)
			APP_READ(i * 1024, i == 7 ? NULL : "x.html");
		if (argc > 2)
			usleep(10000);
	} while (argc > 2);
	return 3;
}
"""
SERVER = """
#include <unistd.h>
#include "server.h"
int main(void)
{
	for (int i = 0; i < 5; i++) {
		SERVER_REQUEST_START(i);
		usleep(i % 2 ? 100000 : 1);
		SERVER_REQUEST_DONE(i % 2 ? 404 : 200);
	}
	return 0;
}
"""


@pytest.fixture(scope="module")
def app(run: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("app")
    (folder / "app.d").write_text(PROVIDER)
    (folder / "app.c").write_text(PROGRAM)
    public.compile_provider(folder / "app.d", folder / "app.h")
    run("gcc", "-O1", "app.c", "-o", "app", cwd=folder)
    (folder / "server.d").write_text(
        "provider server { probe request__start(int id); probe request__done(int status); };"
    )
    (folder / "server.c").write_text(SERVER)
    public.compile_provider(folder / "server.d", folder / "server.h")
    run("gcc", "-O1", "server.c", "-o", "server", cwd=folder)
    return folder / "app"


def examples() -> list[str]:
    return re.findall(r"^```python\n(.*?)^```$", (ROOT / "docs/api.md").read_text(), re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize(
    ("number", "printed"),
    [
        (0, "app:read ['int bytes', 'char * name'] stapsdt\nerror no-site"),
        (1, "app:read 5120 b'x.html'"),
        (
            2,
            "5\n1\n10 46080 0 4608.0 9216\n9216 [(0, 4096, 4), (4096, 8192, 4), (8192, 12288, 2)]\n"
            '"x.html" 9 38912\nNULL 1 7168\n404 2 True\n200 3 True\n',
        ),
    ],
)
def test_each_example(number: int, printed: str, app: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", examples()[number]], cwd=app.parent, env=environment, text=True,
                          capture_output=True, check=False)  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert printed in done.stdout, done.stdout


def test_all_examples_are_run() -> None:
    assert len(examples()) == 3


def test_names_are_there_and_documented() -> None:
    page = (ROOT / "docs/api.md").read_text()
    assert {name for name in public.__all__ if not hasattr(public, name)} == set()
    assert dir(public) == sorted(public.__all__)  # and no room, which no other program may use
    functions = [name for name in public.__all__ if name[0].islower()]
    assert [name for name in functions if f"{name}(" not in page] == []
    with pytest.raises(AttributeError, match="nothing"):
        _ = public.nothing


def test_values(app: Path) -> None:
    with public.trace(command=[app, "9"], probes=["app:*"]) as hits:  # newer C libraries have some, too
        seen = list(hits)
    assert [hit.args for hit in seen] == [(i * 1024, None if i == 7 else b"x.html") for i in range(9)]
    assert (hits.exit_code, hits.lost, hits.refusals) == (3, 0, [])
    first = seen[0]
    assert (first.probe, first["bytes"], first.name, first.named) == ("app:read", 0, b"x.html",
                                                                      {"bytes": 0, "name": b"x.html"})  # fmt: skip
    assert abs(first.time - time.time_ns()) < 600 * 10**9
    assert [hit.time for hit in seen] == sorted(hit.time for hit in seen)
    with pytest.raises(AttributeError, match=r"app:read has no argument size; it has bytes, name"):
        _ = first.size


@pytest.mark.parametrize("engine", ["patch", "trap", "bpftrace", "gdb"])
def test_engines_say_the_same(engine: str, app: Path, need: Any) -> None:
    if engine in {"bpftrace", "gdb"}:
        need(engine)
    with public.trace(command=[app, "5"], engine=engine, where="bytes >= 2048") as hits:
        assert [hit.bytes for hit in hits] == [2048, 3072, 4096]


def test_counts(app: Path) -> None:
    assert public.trace(command=[app, "100000"], probes=["app:*"]).count().counts == {"app:read": 100_000}
    found = public.trace(command=[app, "100000"], probes=["app:*"], where="bytes < 101376000").count()
    assert found == public.Counts({"app:read": 99_000}, 0)


def test_what_hits_add_up_to_is_what_the_command_line_prints(app: Path, run: Any) -> None:
    command: dict[str, Any] = {"command": [app, "1000"], "where": "bytes < 900000"}
    words = [sys.executable, "-m", "usdtbuild", "trace", "--json", "--filter", "bytes < 900000"]

    def printed(*options: str) -> Any:
        lines = run(*words, *options, "--", app, "1000", code=3).stdout.splitlines()
        return json.loads(lines[-1])["rows"]

    assert [row.as_json() for row in public.trace(**command).sum("bytes")] == printed("--sum", "bytes")
    found = public.trace(**command).histogram("bytes", by="probe")
    assert [row.as_json() for row in found] == printed("--histogram", "bytes", "--by", "probe")
    assert sum(count for _, _, count in found[0].buckets) == found[0].hits == 879
    counted = public.trace(**command).count(by="name")
    assert (
        counted.counts == {row["key"]: row["hits"] for row in printed("--by", "name")} == {'"x.html"': 878, "NULL": 1}
    )
    with pytest.raises(public.UsageError, match="no argument weight"):
        public.trace(**command).sum("weight")  # no probe of a libc has it either


def test_a_limit_counts_what_passes(app: Path) -> None:
    with public.trace(command=[app, "10000"], where="bytes >= 2048", limit=3) as hits:
        assert [hit.bytes for hit in hits] == [2048, 3072, 4096]
    lasting = public.trace(command=[app, "9", "on"], duration=0.5)
    assert sum(row.hits for row in lasting.sum("bytes")) >= 9
    os.kill(lasting.pid, signal.SIGKILL)  # it runs on


def test_another_thread_can_stop_it(app: Path) -> None:
    with subprocess.Popen([app, "4", "on"]) as process, public.trace(pid=process.pid) as hits:
        assert hits.pid == process.pid
        timer = threading.Timer(0.2, hits.stop)
        timer.start()
        assert list(hits)
        timer.join()
        process.kill()


def test_calls_and_returns_pass_together(run: Any, tmp_path: Path) -> None:
    """Whether a call passes a filter of its result is known when it has returned."""
    (tmp_path / "app.c").write_text(
        "__attribute__((noinline)) int twice(int n) { return 2 * n; }\n"
        "int main(void) { int n = 0; for (volatile int i = 0; i < 5; i++) n += twice(i); return n == 0; }\n"
    )
    run("gcc", "-O1", "-fpatchable-function-entry=7,5", "app.c", "-o", "app", cwd=tmp_path)
    options: dict[str, Any] = {"command": [tmp_path / "app"], "functions": ["twice"], "returns": True}
    assert public.trace(**options).count().counts == {"twice": 5, "twice:return": 5}
    assert public.trace(**options, where="result > 4").count().counts == {"twice": 2, "twice:return": 2}


def test_a_process_goes_on(app: Path) -> None:
    with subprocess.Popen([app, "4", "on"]) as process:
        with public.trace(pid=process.pid, limit=6) as hits:
            assert len(list(hits)) == 6
        with pytest.raises(ZeroDivisionError), public.trace(pid=process.pid):
            raise ZeroDivisionError
        begun = time.monotonic()
        assert public.trace(pid=process.pid, duration=0.3).count().counts["app:read"] > 4
        assert 0.3 <= time.monotonic() - begun < 60
        assert process.poll() is None
        process.send_signal(signal.SIGKILL)


@pytest.mark.parametrize(
    ("options", "kind", "said"),
    [
        ({}, public.UsageError, "say what to trace"),
        ({"pid": 1, "command": ["true"]}, public.UsageError, r"both a process \(-p 1\) and a command \(true\)"),
        ({"command": ["true"], "duration": 0}, public.UsageError, "more than 0"),
        ({"command": ["true"], "returns": True}, public.UsageError, "say which"),
        ({"command": ["true"], "string_size": -5}, public.UsageError, "--string-size: -5 is no whole number from 8 to"),
        ({"command": ["true"], "string_size": 9.5}, public.UsageError, "--string-size: 9.5 is no whole number"),
        ({"command": ["true"], "string_size": "64"}, public.UsageError, "--string-size: '64' is no whole number"),
        ({"command": ["true"], "buffer": 0}, public.UsageError, "--buffer: 0 is no whole number from 1 to 1024"),
        ({"command": ["true"], "stack": -1}, public.UsageError, "--stack: -1 is no whole number from 0 to 1000"),
        ({"command": ["true"], "min_size": -1}, public.UsageError, "--min-size: -1 is no whole number from 0 to"),
        ({"command": ["true"], "members": 9}, public.UsageError, "--members: 9 is no whole number from 0 to 8"),
        ({"command": ["true"], "limit": 1.5}, public.UsageError, "--limit: 1.5 is no whole number"),
        ({"command": ["true"], "limit": 0}, public.UsageError, "more than 0"),
        ({"command": ["true"], "duration": "5"}, public.UsageError, "--duration: '5' is no number"),
        ({"command": ["true"], "where": 5}, public.UsageError, "--filter: 5 is no string"),
        ({"command": ["true"], "engine": None}, public.UsageError, "--engine: None is no string"),
        ({"command": ["true"], "emulator": 5}, public.UsageError, "--emulator: 5 is no string"),
        ({"command": ["true"], "probes": 5}, public.UsageError, "-P: 5 is neither a string nor a path"),
        ({"command": ["true"], "functions": [b"f"]}, public.UsageError, "-F: b'f' is neither a string nor a path"),
        ({"command": ["true", 5]}, public.UsageError, "command: 5 is neither a string nor a path"),
        ({"command": ["true"], "cwd": 5}, public.UsageError, "cwd: 5 is neither a string nor a path"),
        ({"pid": "5"}, public.UsageError, "-p: '5' is no whole number"),
        ({"pid": [1, 2.5]}, public.UsageError, "-p: 2.5 is no whole number"),
        ({"command": ["true"], "engine": "magic"}, public.UsageError, "there is no tracer magic"),
        ({"command": ["true"], "where": "bytes >"}, public.UsageError, "bytes >"),
        ({"command": ["./not-there"]}, public.UsdtError, "not-there"),
        ({"pid": 1 << 29}, public.UsdtError, "there is no process"),
    ],
)
def test_errors(options: dict[str, Any], kind: type[Exception], said: str) -> None:
    with pytest.raises(kind, match=said):
        public.trace(**options).count()


def test_what_is_asked_of_a_trace_is_text() -> None:
    asked: list[tuple[str, dict[str, Any], str]] = [
        ("count", {"by": None}, "--by: None"),
        ("sum", {"of": 5}, "--sum: 5"),
        ("sum", {"of": "size", "by": ["a"]}, r"--by: \['a'\]"),
        ("histogram", {"of": None}, "--histogram: None"),
        ("latency", {"begin": "a", "end": 5}, "--latency: 5"),
        ("latency", {"begin": "a", "end": "b", "key": 5}, "--key: 5"),
    ]
    for what, options, said in asked:
        with pytest.raises(public.UsageError, match=f"{said} is no string"):
            getattr(public.trace(command="true"), what)(**options)


def test_what_nothing_matches_is_told(app: Path) -> None:
    nothing: dict[str, Any] = {"command": app, "probes": "app:raed"}
    with pytest.raises(public.TracerError, match=r"nothing matches -P app:raed; did you mean app:read\?"):
        public.trace(**nothing).count()
    with pytest.raises(public.TracerError, match="nothing matches -P raed"):
        public.trace(command=app).latency("raed", "raed-done")
    with public.trace(**nothing) as hits, pytest.raises(public.TracerError, match="nothing matches"):
        list(hits)
    some = public.trace(command=app, probes=["app:read", "app:wrote"])
    assert set(some.count().counts) == {"app:read"}
    assert [one.partition(";")[0] for one in some.warnings] == ["nothing matches -P app:wrote"]


def test_a_filter_for_what_is_not_there_starts_nothing(app: Path, tmp_path: Path) -> None:
    command = ["sh", "-c", f"touch {tmp_path}/begun; exec {app}"]
    with pytest.raises(public.UsageError, match="no argument weight"):
        public.trace(command=[app], where="weight > 3").count()
    with pytest.raises(public.UsageError), public.trace(command=command, where="size >"):
        pass
    assert list(tmp_path.iterdir()) == []


def test_a_trace_is_for_one_run(app: Path) -> None:
    with public.trace(command=[app]) as hits:
        list(hits)
        with pytest.raises(public.UsageError, match="one run"):
            hits.__enter__()
    with pytest.raises(public.UsageError, match="is over"):
        list(hits)


def test_files(app: Path) -> None:
    (probe,) = public.probes(app)
    assert (probe.provider, probe.name, probe.format, len(probe.sites)) == ("app", "read", "stapsdt", 1)
    assert probe.arguments == (public.Argument("bytes", "int", 4, True), public.Argument("name", "char *", 8, False))
    assert [one.probes[0] for one in public.check(app, [app.parent / "app.d"])] == ["app:idle"]
    with pytest.raises(public.InputError, match="not-there"):
        public.probes(app.parent / "not-there")
    with pytest.raises(public.UsdtError, match="xyz"):
        public.compile_provider(app.parent / "app.d", app.parent / "b.h", ["xyz"])
