"""`usdtbuild trace --engine inside`: a preloaded library sees the hits; no ptrace and no rights of any kind."""

from __future__ import annotations

import os
import re
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import usdtbuild as public

pytestmark = pytest.mark.usefixtures("native")
HERE = Path(__file__).resolve().parent
LOADING = "import ctypes, sys; ctypes.CDLL(sys.argv[1])"


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module")
def program(run: Any, usdtbuild: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder: Path = tmp_path_factory.mktemp("tracee")
    usdtbuild("header", "--formats=dof", HERE / "tracee.d", "-o", folder / "tracee.h")
    options = ("-O2", "-fpatchable-function-entry=7,5", "-I", folder)
    usdtbuild("cc", "--", "gcc", *options, "-c", HERE / "tracee.c", "-o", folder / "tracee.o")
    run("gcc", folder / "tracee.o", "-o", folder / "tracee")
    run("gcc", "-static", folder / "tracee.o", "-o", folder / "static")
    return folder / "tracee"


@pytest.fixture
def trace(usdtbuild: Any, cache: Path) -> Any:
    def trace_inside(*words: Any, **more: Any) -> Any:
        environment = {**os.environ, "XDG_CACHE_HOME": str(cache), **more.pop("env", {})}
        return usdtbuild("trace", "--engine", "inside", *words, env=environment, **more)

    return trace_inside


def test_hits_come_with_their_arguments_and_the_program_s_exit_code(trace: Any, program: Path) -> None:
    done = trace("--", program, code=3)
    lines = [re.sub(r"^ *[\d.]+ +\d+ ", "", line) for line in done.stdout.splitlines()]
    lines.remove("end")
    assert lines == [
        'tracee:begin id=0 name="first"', "tracee:end id=0 d=0 last=0",
        "tracee:begin id=1 name=NULL", "tracee:end id=1 d=0.25 last=-1",
        "tracee:begin id=2 name=0x10", "tracee:end id=2 d=0.5 last=-2",
        'tracee:begin id=3 name="last"', "tracee:end id=3 d=0.75 last=-3",
        'tracee:begin id=3 name="last"', "tracee:end id=3 d=0.75 last=-3",
    ]  # fmt: skip
    threads = re.findall(r"^ *[\d.]+ +(\d+) ", done.stdout, re.MULTILINE)
    assert len(set(threads)) == 2  # the program and its child


def test_counts_of_probes_and_functions(trace: Any, program: Path) -> None:
    out = trace("--count", "-P", "tracee:*", "-x", "end", "-F", "run", "--", program, code=3).stdout
    assert sorted(re.findall(r"^\s*(\d+) +(\S+)", out, re.MULTILINE)) == [("5", "run"), ("5", "tracee:begin")]


def test_what_loads_no_library_is_told(trace: Any, program: Path) -> None:
    done = trace("-v", "--", program.with_name("static"), code=3)
    assert "not traced" in done.stderr
    assert "it is static" in done.stderr


def test_where_address_sanitizer_ends_the_program_it_is_told_what_helps(
    trace: Any, run: Any, usdtbuild: Any, tmp_path: Path
) -> None:
    """Its library wants to be the first one, and a preloaded one is before it."""
    usdtbuild("header", HERE / "busy.d", "-o", tmp_path / "busy.h")
    asan = "-fsanitize=address", "-DUSDT_LIVE", "-I", tmp_path, "-pthread"
    if run("gcc", *asan, HERE / "busy.c", "-o", tmp_path / "busy", code=None).returncode:
        pytest.skip("gcc has no AddressSanitizer here")
    done = trace("--count", "-P", "tick", "--", "./busy", 10, cwd=tmp_path, code=1)
    assert "it is static" not in done.stderr
    (setting,) = re.findall(r"AddressSanitizer .*; set (\w+)=(\S+)$", done.stderr, re.MULTILINE)
    done = trace("--count", "-P", "tick", "--", "./busy", 10, cwd=tmp_path, env=dict([setting]))
    assert re.search(r"^30 +busy:tick$", done.stdout, re.MULTILINE)


def test_a_process_that_runs_already_is_refused(trace: Any) -> None:
    done = trace("-p", os.getpid(), code=2)
    assert "traces commands that it starts" in done.stderr


def test_the_library_is_compiled_once_into_a_folder_that_is_ours_alone(trace: Any, program: Path, cache: Path) -> None:
    trace("--", program, code=3)
    (made,) = (cache / "usdtbuild" / "live").iterdir()
    before = made.stat().st_mtime_ns
    trace("--", program, code=3)
    assert made.stat().st_mtime_ns == before
    assert stat.S_IMODE(made.parent.stat().st_mode) == 0o700


def test_a_cache_that_others_may_write_to_is_not_used(trace: Any, program: Path, tmp_path: Path) -> None:
    folder = tmp_path / "usdtbuild" / "live"
    folder.mkdir(parents=True)
    folder.chmod(0o777)
    is_root = os.geteuid() == 0  # who has a cache of its own
    done = trace("--", program, code=3 if is_root else 1, env={"XDG_CACHE_HOME": str(tmp_path)})
    assert ("others may write to" in done.stderr) is not is_root
    assert not any(folder.iterdir())


def test_a_missing_compiler_is_one_clear_error(trace: Any, program: Path, tmp_path: Path) -> None:
    done = trace("--", program, code=1, env={"XDG_CACHE_HOME": str(tmp_path), "CC": "no-such-compiler"})
    assert "no no-such-compiler" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.fixture(scope="module")
def busy(run: Any, usdtbuild: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder: Path = tmp_path_factory.mktemp("busy")
    usdtbuild("header", HERE / "busy.d", "-o", folder / "busy.h")
    library = "-shared", "-fPIC", "-DLIBRARY"
    for name, options in (("busy", ()), ("library.so", library), ("plain", ()), ("plain.so", library)):
        live = () if name.startswith("plain") else ("-DUSDT_LIVE",)
        run("gcc", "-O2", *live, *options, "-I", folder, HERE / "busy.c", "-pthread", "-ldl", "-o", folder / name)
    return folder / "busy"


def test_what_is_evaluated_in_the_program_is_exact_over_threads_children_and_signals(trace: Any, busy: Path) -> None:
    """With a ring that has no room for records."""
    words = "--buffer", 1, "-P", "busy:tick"
    done = trace("--count", "--filter", "bytes < 2048", *words, "--", busy, 300_000)
    few, _ = map(int, done.stdout.split("\n", 1)[0].split())
    assert re.findall(r"^ *(\d+) +busy:tick", done.stdout, re.MULTILINE) == [str(few)]
    done = trace("--sum", "bytes", *words, "--", busy, 300_000)
    _, total = map(int, done.stdout.split("\n", 1)[0].split())
    assert f"sum {total}," in done.stdout
    for key in ((), ("--key", "id")):
        done = trace("--latency", "busy:begin", "busy:end", *key, "--by", "id", "--buffer", 1, "--", busy, 50_000)
        pairs = re.findall(r"^ +(\d+) .* ([012])$", done.stdout, re.MULTILINE)
        assert {key: int(count) // 50_000 for count, key in pairs} == {"0": 1, "1": 1, "2": 1}
        assert "lost" not in done.stderr
        assert "not paired" not in done.stdout


def test_functions_are_counted_where_they_are_entered(trace: Any, program: Path) -> None:
    done = trace("-v", "--by", "process", "--filter", "process != 1", "-F", "run", "--", program, code=3)
    assert sorted(re.findall(r"^ +(\d+) +[\d.]+%  \d+$", done.stdout, re.MULTILINE)) == ["1", "4"]
    assert "after the hit" not in done.stderr


def test_pairs_by_a_key_of_their_own_are_found_where_they_are_hit(trace: Any, busy: Path) -> None:
    """What has no begin with its key is told, as by the other engines."""
    done = trace("-v", "--latency", "busy:begin", "busy:end", "--key", "id", "--", busy, 100)
    assert re.search(r"^busy:begin to busy:end .*: 300 pairs$", done.stdout, re.MULTILINE)
    assert "after the hit" not in done.stderr
    done = trace("-v", "--latency", "busy:end", "busy:begin", "--key", "id", "--", busy, 100)
    assert re.search(r"^not paired: .*begin", done.stdout, re.MULTILINE)
    assert "after the hit" not in done.stderr


def test_tables_are_those_of_the_tracer_itself(trace: Any, busy: Path) -> None:
    """A filter that only the tracer can answer has it evaluate the rest, too."""
    for wanted in (["--by", "name"], ["--by", "id,name", "--sum", "bytes"], ["--histogram", "bytes", "--by", "name"]):
        tables = []
        for text in ('name == "get" or id > 1', 'name =~ "[g]et" or id > 1'):
            done = trace("-v", "-P", "busy:tick", "--filter", text, *wanted, "--", busy, 1000)
            assert ("evaluated after the hit: name is a string" in done.stderr) == ("=~" in text)
            tables.append(re.sub(r"^.*\n", "", done.stdout, count=1))
        assert tables[0] == tables[1]
        assert "a longer name" in tables[0] or "name" not in wanted[1]


def test_a_filter_rejects_hits_before_they_are_recorded(trace: Any, busy: Path) -> None:
    done = trace("-v", "-P", "busy:tick", "--filter", "bytes == 4095 and id >= 0", "--", busy, 300_000)
    few = len([i for i in range(300_000) if i * 7 % 4096 == 4095])
    assert len(re.findall("busy:tick id=", done.stdout)) == 3 * few
    assert "lost" not in done.stderr


def test_hits_of_a_library_that_comes_later_are_evaluated_from_the_first_on(trace: Any, busy: Path) -> None:
    library = busy.with_name("library.so")
    words = "--count", "--filter", "bytes < 2048", "--buffer", 1, "-x", "begin", "-x", "end"
    done = trace(*words, "--", busy, 0, library, input="x")
    few, *_ = done.stdout.split()
    assert f"\n{few}  busy:tick" in done.stdout


def test_a_program_whose_tracer_was_killed_waits_for_nobody(busy: Path, cache: Path) -> None:
    words = sys.executable, "-m", "usdtbuild", "trace", "--engine", "inside", "-v", "--by", "id"
    environment = {**os.environ, "XDG_CACHE_HOME": str(cache)}
    with subprocess.Popen(
        [*words, "--", busy, "0", busy.with_name("library.so")], env=environment, stdin=subprocess.PIPE,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    ) as tracer:  # fmt: skip
        assert tracer.stdin
        assert tracer.stdout
        assert tracer.stderr
        assert b"tracing process" in tracer.stderr.readline()
        tracer.kill()
        tracer.wait()
        tracer.stdin.write(b"x")
        tracer.stdin.close()
        assert len(tracer.stdout.read().split()) == 2  # what the library prints, and the pipe's end


def test_where_nothing_can_be_traced_the_code_is_1(trace: Any, busy: Path) -> None:
    done = trace("--count", "--", busy.with_name("plain"), 10, code=1)
    assert "no room for a jump: compile with -DUSDT_LIVE" in done.stderr


def test_what_is_refused_is_told_with_its_file_and_what_helps(trace: Any, busy: Path) -> None:
    """The program and a library have the same probe."""
    done = trace(
        "--count", "-P", "tick", "--", busy.with_name("plain"), 10, busy.with_name("plain.so"), input="x", code=1
    )
    refused = [line for line in done.stderr.splitlines() if "busy:tick at " in line]
    for name in ("plain", "plain.so"):
        (one, *_) = [line for line in refused if f": in {busy.with_name(name)}: " in line]
        assert one.endswith("; other engines trace it")


def test_what_is_refused_is_not_said_to_match_nothing(trace: Any, busy: Path) -> None:
    patterns = "-P", "busy:*", "-P", "tick", "-P", "nosuch"
    done = trace("--count", *patterns, "--", sys.executable, "-c", LOADING, busy.with_name("plain.so"), code=1)
    assert "no room for a jump: compile with -DUSDT_LIVE" in done.stderr
    assert re.findall(r"nothing (?:matches|has matched) (.*?)(?:;|$)", done.stderr, re.MULTILINE) == ["-P nosuch"]
    command = sys.executable, "-c", LOADING, busy.with_name("plain.so")
    hits = public.trace(command=command, probes="tick", engine="inside")
    assert hits.count().counts == {}
    assert "no room for a jump: compile with -DUSDT_LIVE" in hits.refusals[0]


def test_of_a_pair_one_probe_is_refused(trace: Any, run: Any, usdtbuild: Any, tmp_path: Path) -> None:
    usdtbuild("header", HERE / "busy.d", "-o", tmp_path / "busy.h")
    parts = []
    for name, options in ("begin", ()), ("end", ("-DUSDT_LIVE",)):
        source, part = tmp_path / f"{name}.c", tmp_path / f"{name}.o"
        source.write_text(f'#include "busy.h"\nvoid {name}_it(int i) {{ BUSY_{name.upper()}(i); }}\n')
        run("gcc", *options, "-c", source, "-o", part)
        parts.append(part)
    main = tmp_path / "main.c"
    main.write_text("void begin_it(int), end_it(int);\nint main(void) { begin_it(1); end_it(1); return 0; }\n")
    run("gcc", main, *parts, "-o", tmp_path / "main")
    done = trace("--latency", "begin", "end", "--", tmp_path / "main", code=1)
    assert "nothing matches" not in done.stderr
    assert re.search("^usdtbuild: not traced: busy:begin at .* no room for a jump: compile", done.stderr, re.MULTILINE)
