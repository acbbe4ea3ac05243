"""The plugin as pytest sees it: options, skips, failures, and what it costs when nobody uses it."""

from __future__ import annotations

import ast
import os
import sys
from pathlib import Path
from typing import Any

import pytest

WHEELHOUSE = Path(__file__).resolve().parent.parent.parent / ".cache/wheelhouse"
TRACED = """
def test(usdt):
    usdt.run([BUILT / "app"]{more})
"""
UNKNOWN = (
    'def test(usdt):\n    with pytest.raises(Exception, match="no tracer strace"):\n        usdt.run([BUILT / "app"])\n'
)


@pytest.fixture
def without_tracers(tmp_path: Path) -> dict[str, str]:
    """Variables of an environment in which no tracer is found."""
    (tmp_path / "bin").mkdir()
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
    return {**kept, "PATH": str(tmp_path / "bin")}


def test_no_tracer_is_a_skip_that_says_what_is_missing(project: Any, without_tracers: dict[str, str]) -> None:
    said = project(TRACED.format(more=', tracer="gdb"'), env=without_tracers, skipped=1)
    assert "no tracer to see probes fire: the engine gdb can't be used: gdb is not installed" in said


@pytest.mark.parametrize("way", ["option", "setting"])
def test_no_tracer_is_a_failure_where_one_is_required(project: Any, without_tracers: dict[str, str], way: str) -> None:
    option = "--usdt-require-tracer" if way == "option" else "-ousdt_require_tracer=true"
    said = project(TRACED.format(more=""), option, "--usdt-tracer=gdb", env=without_tracers, failed=1)
    assert "no tracer to see probes fire: the engine gdb can't be used: gdb is not installed" in said


def test_unknown_tracer_is_refused(project: Any) -> None:
    project(UNKNOWN, "--usdt-tracer=strace", passed=1)


def test_unknown_probe_and_missing_program_fail_with_what_there_is(project: Any) -> None:
    said = project(TRACED.format(more=', "nothing"'), failed=1)
    assert "has no probe nothing; it has app:asked, app:numbers, app:said, app:seven, app:start" in said
    said = project('def test(usdt):\n    usdt.run(["./nowhere"])\n', failed=1)
    assert "there is no such program" in said


def test_file_without_probes_says_so(project: Any) -> None:
    said = project("def test(usdt):\n    usdt.run(['true'])\n", failed=1)
    assert "has no probes that a tracer on Linux sees" in said


def test_plugin_imports_nothing_until_it_is_used(run: Any) -> None:
    code = "import sys, usdtbuild.pytest_plugin; print([m for m in sys.modules if m.startswith('usdtbuild')])"
    said = run(sys.executable, "-c", code).stdout
    assert sorted(ast.literal_eval(said)) == ["usdtbuild", "usdtbuild.pytest_plugin"]


def test_plugin_is_there_where_the_wheel_is_installed(run: Any, wheel: Path, tmp_path: Path) -> None:
    if not WHEELHOUSE.is_dir():
        pytest.skip(f"{WHEELHOUSE} is missing; `make test` fetches it")
    run(sys.executable, "-m", "venv", "--without-pip", tmp_path / "venv")
    python = tmp_path / "venv/bin/python"
    install = ("install", "-q", "--no-index", "--find-links", WHEELHOUSE, wheel, "pytest")
    run(sys.executable, "-m", "pip", "--python", python, *install)
    said = run(python, "-m", "pytest", "--fixtures", cwd=tmp_path, code=None).stdout
    assert "usdt [session scope]" in said
    run(python, "-m", "pytest", "-p", "no:usdtbuild", "--usdt-tracer=gdb", cwd=tmp_path, code=4)
