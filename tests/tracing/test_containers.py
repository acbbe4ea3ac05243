"""Programs in namespaces of their own, and the recipes of docs/containers.md as they are written there.

A container is made of the kernel's namespaces by unshare(1), and of systemd's services by systemd-nspawn(1), which
boots this machine's own systemd. Nothing of either is left when a test ends.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import sysconfig
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.started import Started, children_of, ready, tracing, wait_for

from .conftest import SOURCES

ROOT = SOURCES.parents[2]
PAGE = (ROOT / "docs/containers.md").read_text()
UNIT = ROOT / "systemd/usdtbuild-trace@.service"
TRACE = sys.executable, "-m", "usdtbuild", "trace"
ROUNDS = 50
PROVIDER = "provider served { probe begin(int worker, int number); probe done(int worker, int number); };"
pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root may make namespaces")


@pytest.fixture(scope="module")
def served(run: Any, tmp_path_factory: pytest.TempPathFactory, header_of: Any) -> Path:
    folder = tmp_path_factory.mktemp("served")
    folder.chmod(0o755)
    header_of(folder, "served.d", PROVIDER)
    run("gcc", "-O2", "-pthread", f"-I{folder}", SOURCES / "served.c", "-o", folder / "served")
    return folder / "served"


def threads(pid: int) -> list[int]:
    """Return the numbers of a process' threads besides the first."""
    return sorted(int(path.name) for path in Path(f"/proc/{pid}/task").iterdir() if path.name != str(pid))


def fires(pid: int) -> None:
    """Let a process fire all that it does at once."""
    os.kill(pid, signal.SIGHUP)
    wait_for(lambda: "done" in Path(f"/proc/{pid}/comm").read_text())


Container = Callable[..., int]


@pytest.fixture
def alone(need: Any) -> list[Any]:
    """What stands before a command that is to be process 1 of namespaces of its own."""
    words = [need("unshare"), "--pid", "--mount", "--net", "--fork"]
    words += ["sh", "-ec", 'mount -t proc proc /proc; exec "$@"', "sh"]
    if subprocess.run([*words, "true"], stderr=subprocess.DEVNULL, check=False).returncode:
        pytest.skip("no namespaces may be made here")
    return words


@pytest.fixture
def container(served: Path, need: Any, alone: list[Any], tmp_path: Path) -> Iterator[Container]:
    """Start the program as process 1 of namespaces of its own, where alone its file is; return its number here."""
    begun: list[Started] = []
    first: list[int] = []

    def start(rounds: int = 0, *rights: str) -> int:
        inner = f'mount -t tmpfs none {tmp_path}; cp {served} {tmp_path}/app; exec "$@"'
        program = need("setpriv"), "--no-new-privs", *rights, f"{tmp_path}/app", str(rounds)
        words = [*alone, "sh", "-ec", inner, "sh", *program]
        begun.append(ready(*words))
        first.extend(children_of(begun[-1].pid))
        return first[-1]

    yield start
    for pid in first:  # of another user, they don't end with who has started them
        os.kill(pid, signal.SIGKILL)
    for one in begun:
        one.communicate()


@pytest.mark.parametrize("engine", ["patch", "trap"])
def test_processes_and_threads_have_their_numbers_of_here(engine: str, container: Container, tmp_path: Path) -> None:
    """In its container the process is number 1, and that is what it writes down."""
    pid, hits = container(ROUNDS), tmp_path / "hits.jsonl"
    with tracing("--engine", engine, "-o", hits, "-p", pid) as trace:
        fires(pid)
        assert "damaged" not in trace.interrupt()[1]
    found = [json.loads(line) for line in hits.read_text().splitlines()]
    assert Counter((one["pid"], one["tid"]) for one in found) == {(pid, tid): 2 * ROUNDS for tid in threads(pid)}
    assert len({(one["tid"], one["args"]["worker"]) for one in found}) == 2


@pytest.mark.parametrize("engine", ["patch", "trap"])
def test_filters_and_tables_mean_the_numbers_of_here(engine: str, container: Container) -> None:
    pid = container(ROUNDS)
    other, wanted = threads(pid)
    tables = "--by", "process,thread", "--latency", "begin", "done"
    words = ["--engine", engine, "--filter", f"process == {pid} and thread != {other}", *tables, "-p", pid]
    with tracing(*words) as trace:
        fires(pid)
        shown, said = trace.interrupt()
    rows = re.findall(r"^ *(\d+) .* (\d+), (\d+)$", shown, re.MULTILINE)
    assert rows == [(str(ROUNDS), str(pid), str(wanted))], shown + said


# -- the recipes of the page -------------------------------------------------------------------------------------------

RECIPES = dict(re.findall(r"^# (.+)\n([^#`]+)", PAGE[PAGE.index("```sh\n# From the host") :], re.MULTILINE))
USER = "--reuid=65534", "--regid=65534", "--clear-groups"


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """One in which `usdtbuild` is this checkout's."""
    folder = tmp_path_factory.mktemp("bin")
    folder.chmod(0o755)
    script = f'#!/bin/sh\nPYTHONPATH={shlex.quote(str(ROOT))} exec {shlex.quote(sys.executable)} -m usdtbuild "$@"\n'
    (folder / "usdtbuild").write_text(script)
    (folder / "usdtbuild").chmod(0o755)
    return {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}"}


@pytest.mark.parametrize("recipe", RECIPES)
@pytest.mark.parametrize("user", ["root", "nobody"])
def test_recipe(
    recipe: str, user: str, container: Container, run: Any, environment: dict[str, str], unprivileged: list[str]
) -> None:
    uid = {"root": "0", "nobody": "65534"}[user]
    if "APP_UID" in RECIPES[recipe] and user == "nobody" and "--reuid" not in unprivileged:
        pytest.skip("this Python can't be run by other users")
    pid = container(0, *(USER if user == "nobody" else ("--bounding-set=-all", "--inh-caps=-all")))
    done = run("bash", "-ec", RECIPES[recipe], env={**environment, "PID": str(pid), "APP_UID": uid})
    assert len(re.findall("served:(?:begin|done) worker=0 number=0", done.stdout)) == 3, done.stdout + done.stderr


def test_each_right_of_a_recipe_is_needed(container: Container, run: Any, environment: dict[str, str]) -> None:
    pid = container(0, *USER)
    for text in RECIPES.values():
        for right in re.findall(r",\+(\w+)", text):
            less = text.replace(f",+{right}", "")
            done = run("bash", "-ec", less, env={**environment, "PID": str(pid)}, code=1)
            assert "may not be traced" in done.stderr
    assert len(RECIPES) == 4


# -- the service -------------------------------------------------------------------------------------------------------


def test_the_unit_is_one_that_systemd_reads(need: Any, run: Any, tmp_path: Path, environment: dict[str, str]) -> None:
    unit = tmp_path / UNIT.name
    program = environment["PATH"].partition(":")[0] + "/usdtbuild"
    unit.write_text(UNIT.read_text().replace("ExecStart=usdtbuild", f"ExecStart={program}").replace("man:", "https://"))
    done = run(need("systemd-analyze"), "verify", unit)
    assert done.stdout + done.stderr == ""
    judged = run(need("systemd-analyze"), "security", "--offline=yes", unit, code=None)
    if judged.returncode == 0:  # version 250 and newer judge files
        (exposure,) = re.findall(r"exposure level for \S+ (\d+\.\d)", judged.stdout)
        assert f"`systemd-analyze security`: {exposure}" in PAGE


# In the container: the units are run, and what they do is written down. The program fires at SIGHUP.
SCRIPT = r"""
set -eu
exec > /opt/test/told 2>&1
unit=usdtbuild-trace@served
fires() { # it has begun anew since: what is traced says so; and it fires
    pid=$(systemctl show -P MainPID served)
    until journalctl -q -u $unit | grep -q "process $pid is traced"; do sleep 0.1; done
    kill -HUP $pid
    until grep -q done /proc/$pid/comm; do sleep 0.1; done
}
scrape() { curl -sf http://127.0.0.1:9464/metrics; }
for user in dynamic served; do
    if [ $user = served ]; then
        mkdir /etc/systemd/system/$unit.service.d
        cp /opt/test/user.conf /etc/systemd/system/$unit.service.d/
        systemctl daemon-reload
    fi
    echo "== $user"
    systemctl start $unit
    until scrape > /dev/null; do sleep 0.1; done
    systemctl start served
    fires
    systemctl restart served
    fires
    systemctl kill -s KILL served
    while [ "$pid" = "$(systemctl show -P MainPID served)" ]; do sleep 0.1; done
    fires
    until scrape | grep "^usdt_hits_total.*done.* $1"; do sleep 0.1; done
    grep -E '^(Uid|Cap...|NoNewPrivs|Seccomp):' /proc/$(systemctl show -P MainPID $unit)/status
    systemctl stop $unit
    systemctl show -P Result $unit
    kill -HUP $pid
    systemctl is-active served
    systemctl stop served
done
"""
SERVED = """[Service]
ExecStart=/opt/test/served {rounds}
Restart=always
RestartSec=0
User=daemon
{more}
"""
GO = """[Service]
Type=oneshot
ExecStart=/bin/sh /opt/test/script {hits}
ExecStopPost=/bin/systemctl --force --no-block poweroff
"""


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["patch", "trap"])
def test_the_service_finds_the_program_again(engine: str, served: Path, need: Any, run: Any, tmp_path: Path) -> None:
    """By a systemd that is process 1 of a container: the unit as it is, and with the user of the page's example."""
    pytest.importorskip("prometheus_client")
    nspawn, _ = need("systemd-nspawn"), need("curl")
    if run(nspawn, "-q", "-D/", "--volatile=yes", "--register=no", "--keep-unit", "true", code=None).returncode:
        pytest.skip("systemd can start no container here")
    tmp_path.chmod(0o755)
    sections = re.findall(r"```ini\n(.*?)```", PAGE, re.DOTALL)
    config = sections[0].replace("/usr/sbin/server", "/opt/test/served").replace("server:query-start", "served:begin")
    config = config.replace("server:query-done", "served:done")
    (tmp_path / "served.conf").write_text(config.replace("--by kind", "--by worker"))
    (tmp_path / "user.conf").write_text(sections[1].replace("User=server", "User=daemon"))
    (tmp_path / "script").write_text(SCRIPT)
    filtered = "SystemCallFilter=@system-service" if engine == "trap" else ""
    (tmp_path / "served.service").write_text(SERVED.format(rounds=ROUNDS, more=filtered))
    (tmp_path / "go.service").write_text(GO.format(hits=6 * ROUNDS))
    (tmp_path / "served").write_bytes(served.read_bytes())
    (tmp_path / "served").chmod(0o755)
    base = Path(sys.base_prefix)
    python = Path("/opt/python") / Path(sys.executable).resolve().relative_to(base)
    packages = sysconfig.get_path("purelib")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/usdtbuild").write_text(
        "#!/bin/sh\nexport LD_LIBRARY_PATH=/opt/python/lib PYTHONPATH=/opt/usdtbuild:/opt/packages\n"
        f'exec {python} -m usdtbuild "$@"\n'
    )
    (tmp_path / "bin/usdtbuild").chmod(0o755)
    bound = {
        UNIT: f"/etc/systemd/system/{UNIT.name}", tmp_path / "served.service": "/etc/systemd/system/served.service",
        tmp_path / "go.service": "/etc/systemd/system/go.service", base: "/opt/python", packages: "/opt/packages",
        tmp_path / "served.conf": "/etc/usdtbuild/served.conf", ROOT: "/opt/usdtbuild",
        tmp_path / "bin": "/usr/local/bin",
    }  # fmt: skip
    words = [nspawn, "-q", "-D/", "--volatile=yes", "--register=no", "--keep-unit", "--private-network",
             "--link-journal=no", f"--bind={tmp_path}:/opt/test",
             *(f"--bind-ro={path}:{there}" for path, there in bound.items()),
             "-b", "systemd.firstboot=no", "systemd.unit=go.service"]  # fmt: skip
    log = run(*words, code=None, timeout=200, stdin=subprocess.DEVNULL).stdout
    told = (tmp_path / "told").read_text()
    parts = dict(re.findall(r"^== (\w+)\n((?:(?!==).*\n)*)", told, re.MULTILINE))
    assert parts.keys() == {"dynamic", "served"}, told + log
    for user, said in parts.items():
        assert said.endswith("success\nactive\n"), told
        assert f'{{module="/opt/test/served",probe="served:done"}} {6 * ROUNDS}.0\n' in said
        status = dict(re.findall(r"^(\w+):\t(\w+)", said, re.MULTILINE))
        rights = (1 << 19 | 1 << 1) if user == "dynamic" else 0  # CAP_SYS_PTRACE, CAP_DAC_OVERRIDE
        assert int(status["CapBnd"], 16) == rights
        assert (int(status["Uid"]) >= 61184) == (user == "dynamic")  # the first of systemd's dynamic users
        assert (status["NoNewPrivs"], status["Seccomp"]) == ("1", "2")


@pytest.mark.parametrize("engine", ["patch", "trap"])
def test_numbers_of_processes_are_used_again(
    engine: str, run: Any, alone: list[Any], tmp_path: Path, header_of: Any
) -> None:
    """A child that ends at once may be gone before its parent's fork is told of."""
    if run(*alone, "test", "-w", "/proc/sys/kernel/ns_last_pid", code=None).returncode:
        pytest.skip("nobody chooses the numbers of processes here")
    header_of(tmp_path, "reused.d", "provider reused { probe hit(int number); };")
    run("gcc", "-O2", f"-I{tmp_path}", SOURCES / "reused.c", "-o", tmp_path / "reused")
    words = ["--engine", engine, "--count", "-P", "reused:hit", "--", tmp_path / "reused", "800"]
    said = run(*alone, *TRACE, *words)
    assert "3200 children, 0 killed" in said.stdout
    assert re.search(r"^ *9,?600 .*reused:hit", said.stdout + said.stderr, re.MULTILINE), said


@pytest.mark.parametrize("fork", [["--fork"], []])
@pytest.mark.parametrize("words", [
    "trace -p PID --duration 1", "trace --engine trap -p PID --duration 1", "trace -- echo ran", "top -- echo ran",
    "trace --engine gdb -p PID", "trace --exe EXE --duration 1", "list PID", "functions PID", "calls PID",
])  # fmt: skip
def test_where_proc_has_other_numbers_nobody_is_touched(
    words: str, fork: list[str], served: Path, alone: list[Any], run: Any, need: Any
) -> None:
    """A number is that of one process for the kernel here, and of another in /proc: breakpoints hit that one."""
    assert alone
    if not fork and (not words.startswith("trace -") or "gdb" in words):
        pytest.skip("there this process has its old number")
    with ready(served, "0") as program:
        replaced = {"PID": str(program.pid), "EXE": str(served)}
        line = [replaced.get(word, word) for word in words.split()]
        said = run(need("unshare"), "--pid", *fork, sys.executable, "-m", "usdtbuild", *line, code=None)
        assert program.poll() is None
        program.kill()
    wrong = "usdtbuild: /proc: doesn't show processes by the numbers that they have here"
    assert (said.returncode, said.stdout, said.stderr[: len(wrong)]) == (1, "", wrong), said
    assert said.stderr.endswith("mount -t proc proc /proc\n")
