"""Each sample's README, followed by a user: its commands run in order, in a clean copy and a clean environment.

The slow tests do the same in a fresh Debian, where nothing is installed but what the list of samples names. Left out
are the lines with bpftrace, which need root, and wait until they are interrupted.
"""

from __future__ import annotations

import os
import re
import shutil
import socket
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]

pytestmark = pytest.mark.project

ROOT = Path(__file__).resolve().parent.parent.parent
SAMPLES = ROOT / "sample_projects"
NEEDS = {
    "cmake-hello": ("cmake", "gdb"), "cmake-library": ("cmake", "gdb"), "committed-header": ("cmake",),
    "cpp-templates": ("cmake", "gdb"), "live-metrics": ("cmake", "curl"), "meson-hello": ("gdb",),
    "meson-python-extension": (), "probes-in-googletest": ("cmake",), "pybind11-extension": (),
    "scikit-build-core-extension": ("cmake",), "setuptools-extension": (),
}  # fmt: skip
# What each prints at its end that shows that probes fired, with their arguments.
SHOWN = {
    "cmake-hello": r'hello:greet[-_]+done .*name="Ada"',
    "cmake-library": r'tally:add .*"tea"',
    "committed-header": r"counter:",
    "cpp-templates": r"ring:push ",
    "live-metrics": r'probe="shop:order__start".* 1\n',
    "meson-hello": r'hello:greet[-_]+done .*name="Ada"',
    "meson-python-extension": r"primes:sieve[-_]+start .*100",
    "probes-in-googletest": r"100% tests passed",
    "pybind11-extension": r'ledger:deposit .*"Ada"',
    "scikit-build-core-extension": r"checksum:update[-_]+done ",
    "setuptools-extension": r"wordcount:word ",
}


# A server needs a moment; who types is slow enough. What runs in the background ends with the script.
PREPARED = """set -e
trap 'kill $(jobs -p) 2>/dev/null || true' EXIT
curl() { command curl -sS --retry 20 --retry-connrefused --retry-delay 1 "$@"; }
"""


def commands(path: Path) -> str:
    """The blocks of commands of a README, as one script; a server's port is a free one."""
    blocks = map(textwrap.dedent, re.findall(r"(?:^    .*\n)+", path.read_text(), re.MULTILINE))
    with socket.create_server(("", 0)) as free:
        port = free.getsockname()[1]
    script = "".join(block for block in blocks if "bpftrace" not in block)
    return PREPARED + script.replace("8080", str(port))


def test_every_sample_is_here_and_in_the_list() -> None:
    there = {path.parent.name for path in SAMPLES.glob("*/README.md")}
    assert there == set(SHOWN) == set(NEEDS)
    listed = re.findall(r"^\| \[([\w-]+)\]", (SAMPLES / "README.md").read_text(), re.MULTILINE)
    assert sorted(listed) == sorted(there)


@pytest.fixture
def user(tmp_path: Path, make_python: Any, once: Any, run: Any) -> Any:
    """Run a script as a user would: `user(folder, script)`, where usdtbuild is installed in an active environment."""

    def fill(folder: Path) -> None:
        run(sys.executable, "-m", "venv", folder)
        make_python(folder=folder)
        _, environment = make_python(folder=folder)
        run(folder / "bin/python", "-m", "pip", "-q", "install", "usdtbuild", "meson", "ninja", env=environment)

    folder = once("python-of-a-user", fill)
    _, environment = make_python(folder=folder)
    variables = {
        **{name: value for name, value in environment.items() if name.startswith(("PIP_", "SCCACHE_"))},
        "HOME": str(tmp_path),
        "PATH": f"{folder}/bin:{os.environ['PATH']}",
        "LC_ALL": "C.UTF-8",
        "DEBUGINFOD_URLS": "",
    }

    def do(where: Path, script: str) -> str:
        return str(run("bash", "-c", script, cwd=where, env=variables).stdout)

    return do


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] if "pybind11" in name else []) for name in SHOWN]
)
def test_readme_as_it_is_written(name: str, tmp_path: Path, user: Any, need: Any) -> None:
    if os.uname().machine != "x86_64":
        pytest.skip("the tracer's messages are those of x86-64")
    for program in NEEDS[name]:
        need(program)
    if name == "probes-in-googletest" and not Path("/usr/include/gtest/gtest.h").exists():
        pytest.skip("GoogleTest is not installed")
    folder = Path(shutil.copytree(SAMPLES / name, tmp_path / name, ignore=shutil.ignore_patterns("build", "installed")))
    said = user(folder, commands(folder / "README.md"))
    assert re.search(SHOWN[name], said), said


@pytest.fixture(scope="module")
def system(fresh: Any) -> Path:
    """A fresh Debian with the packages that the list of samples names."""
    packages = re.search(r"^    apt-get install -y (.+)$", (SAMPLES / "README.md").read_text(), re.MULTILINE)
    assert packages
    root: Path = fresh("samples", packages[1])
    return root


@pytest.mark.slow
@pytest.mark.parametrize("name", SHOWN)
def test_readme_in_a_fresh_debian(name: str, system: Path, inside: Any, as_reader: Any) -> None:
    folder = f"/home/reader/{name}"
    shutil.copytree(SAMPLES / name, system / folder[1:], ignore=shutil.ignore_patterns("build", "installed"))
    inside(system, f"chown -R reader {folder}")
    install = "python3 -m venv ~/environment && . ~/environment/bin/activate && python3 -m pip -q install usdtbuild"
    said = as_reader(system, f"{install}\ncd {folder}\n{commands(SAMPLES / name / 'README.md')}")
    assert re.search(SHOWN[name], said), said


def test_the_workflow_does_what_it_says(tmp_path: Path, user: Any, need: Any) -> None:
    """Only GitHub runs it; here run its own commands. Those of our action's step are run by test_release."""
    need("cmake")
    folder = Path(shutil.copytree(SAMPLES / "committed-header", tmp_path / "copy"))
    steps = yaml.safe_load((folder / ".github/workflows/build.yml").read_text())["jobs"]["build"]["steps"]
    (ours,) = [step for step in steps if "usdtbuild@" in step.get("uses", "")]
    assert set(ours["with"]) <= set(yaml.safe_load((ROOT / "action.yml").read_text())["inputs"])
    assert "counter:" in user(folder, "set -e\n" + "\n".join(step["run"] for step in steps if "run" in step))
