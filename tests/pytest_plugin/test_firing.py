"""Probes that fire under the plugin, with each tracer: our own and gdb as any user, bpftrace as root."""

from __future__ import annotations

from typing import Any

import pytest

TRACERS = [
    "patch",
    "trap",
    "inside",
    pytest.param("gdb", marks=pytest.mark.live("gdb")),
    pytest.param("bpftrace", marks=pytest.mark.live),
]
pytestmark = pytest.mark.parametrize("tracer", TRACERS)

PROGRAM = r"""
def test_arguments(usdt):
    ran = usdt.run([BUILT / "app", "Ada"], stdin="hello\n", env={**os.environ, "LINES": "12"})
    assert (ran.returncode, ran.stdout, ran.stderr) == (2, "read hello\n", "LINES=12\n")
    assert [hit.args for hit in ran.hits["app:start"]] == [("Ada", 1)]
    assert ran.hits["start"][0].named == {"name": "Ada", "count": 1}
    assert [hit.args for hit in ran.hits["numbers"]] == [(-5, 4000000000, -5000000000, 0.5, 1.25)]
    assert [hit.args for hit in ran.hits["asked"]] == [(-300,)]
    assert [hit.probe for hit in ran.hits] == ["start", "numbers", "asked"]

def test_odd_strings(usdt):
    words = ["a b'\"$(x)\\", "two\nlines", "\udcff\u00e9"][:2]
    ran = usdt.run([BUILT / "app", *words, ""][:3], "start")
    assert [hit.args[0] for hit in ran.hits] == words
    ran = usdt.run([BUILT / "app", "\udcff\u00e9"], "start")
    assert [hit.args[0] for hit in ran.hits] == ["\udcff\u00e9"]

def test_null_is_none_and_signal_is_negative(usdt):
    assert usdt.run([BUILT / "app"], "start").hits["start"][0].args == (None, 77)
    assert usdt.run([BUILT / "app", "a", "b", "c"], "start").returncode == -6

def test_probe_that_did_not_fire(usdt):
    ran = usdt.run([BUILT / "app", "a"], "start")
    assert ran.hits.count("start") == 1
    with pytest.raises(LookupError, match="asked was not watched; these were: app:start"):
        ran.hits["asked"]

def test_script_that_becomes_the_program(usdt, tmp_path):
    (tmp_path / "script").write_text(f"#!/bin/sh\nexec {BUILT}/app from a script\n")
    (tmp_path / "script").chmod(0o755)
    ran = usdt.run([tmp_path / "script"], binary=BUILT / "app")
    assert [hit.args[0] for hit in ran.hits["start"]] == ["from", "a", "script"]

def test_timeout(usdt):
    import subprocess, time
    began = time.monotonic()
    with pytest.raises(subprocess.TimeoutExpired):
        usdt.run(["sleep", "60"], binary=BUILT / "app", timeout=2)
    assert time.monotonic() - began < 30
"""
MODULE = r"""
sys.path.insert(0, str(BUILT))
import appmodule

def test_in_this_process(usdt):
    for count in (1, 2):
        appmodule.go("unseen", 0)
        with usdt.trace(appmodule) as hits:
            assert appmodule.go("Ada", count) == count + 1
        appmodule.go("unseen", 0)
        assert [hit.args for hit in hits["start"]] == [("Ada", count)]
        assert hits.count("asked") == 1

def test_exception_in_the_body_is_the_tests_own(usdt):
    with pytest.raises(ZeroDivisionError):
        with usdt.trace(appmodule, "start") as hits:
            appmodule.go("Ada", 1)
            1 / 0
    appmodule.go("still running", 1)

def test_threads_count(usdt):
    import threading
    with usdt.trace(appmodule, "start") as hits:
        threads = [threading.Thread(target=appmodule.go, args=("thread", number)) for number in range(4)]
        for thread in threads: thread.start()
        for thread in threads: thread.join()
    assert sorted(hit.args[1] for hit in hits) == [0, 1, 2, 3]

def test_in_another_interpreter(usdt):
    code = f"import sys; sys.path.insert(0, {str(BUILT)!r}); import appmodule\n"
    code += "print(appmodule.go('Grace', 5), sys.prefix)"
    ran = usdt.run([sys.executable, "-c", code], binary=appmodule)
    assert (ran.returncode, ran.stdout) == (0, f"6 {sys.prefix}\n")  # the environment's Python, though it is a link
    assert [hit.args for hit in ran.hits["start"]] == [("Grace", 5)]

def test_interpreter_of_a_virtual_environment_stays_in_it(usdt):
    code = f"import sys; sys.path.insert(0, {str(BUILT)!r}); import appmodule; appmodule.go('x', 5); print(sys.prefix)"
    ran = usdt.run([sys.executable, "-c", code], binary=appmodule)
    assert (ran.stdout.strip(), len(ran.hits["start"])) == (sys.prefix, 1)

def test_by_pid(usdt):
    import subprocess
    code = f"import sys; sys.path.insert(0, {str(BUILT)!r}); import appmodule\n"
    code += "for line in sys.stdin: print(appmodule.go('x', int(line)), flush=True)"
    with subprocess.Popen([sys.executable, "-c", code], stdin=-1, stdout=-1, text=True) as other:
        def ask(number):
            other.stdin.write(f"{number}\n"); other.stdin.flush()
            return other.stdout.readline()
        ask(1)
        with usdt.trace(appmodule, "start", pid=other.pid) as hits:
            appmodule.go("not this process", 9)
            assert ask(2) == "3\n"
        assert ask(3) == "4\n"
        other.stdin.close()
        assert other.wait() == 0
    assert [hit.args for hit in hits] == [("x", 2)]
"""


def test_program(project: Any, tracer: str) -> None:
    kept = ("-k", "not script") if tracer == "inside" else ()  # it doesn't follow a program that becomes another one
    project(PROGRAM, f"--usdt-tracer={tracer}", *kept, passed=6 - bool(kept))


def test_extension_module(project: Any, built: Any, tracer: str) -> None:
    if not built.module.exists():
        pytest.skip("Python.h is not installed")
    if tracer == "inside":
        pytest.skip("it starts what it traces")
    project(MODULE, f"--usdt-tracer={tracer}", passed=6)


def test_probe_with_seven_arguments(project: Any, tracer: str) -> None:
    seven = """
def test(usdt):
    ran = usdt.run([BUILT / "app"], "seven")
    assert [hit.args for hit in ran.hits] == [(1, 2, 3, 4, 5, 6, -7)]
"""
    project(seven, f"--usdt-tracer={tracer}", passed=1)


def test_literal_that_nobody_has_read_is_read_by_default(project: Any, tracer: str) -> None:
    literal = """
def test(usdt):
    ran = usdt.run([BUILT / "app"], "said")
    assert [hit.args for hit in ran.hits] == [("a literal that the program never reads",)]
"""
    project(literal, "--usdt-tracer=auto" if tracer == "bpftrace" else "--usdt-tracer=gdb", passed=1)
