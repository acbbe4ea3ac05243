"""What every room's tests share: running commands, the compilers and linkers of this machine, and the live marker.

A test that attaches a real tracer carries `@pytest.mark.live`. Such tests are skipped, with the reason, only where
the machine can't trace: no root, or a kernel without uprobes. `@pytest.mark.live("gdb")` is for a tracer that needs
neither. A tracer that is missing on a machine that could run it is a failure: `make test` installs it. Live tests that
need root run one at a time, on the whole machine, because perf's list of events and its build-id cache are global.
Not here: helpers that only one room uses; those are in that room's conftest.py.
"""

from __future__ import annotations

import fcntl
import importlib.util
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import IO, Any

import hypothesis
import pytest

# Started in the background, or under nohup, a test run ignores these, and so would every program it starts.
for _number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT):
    if signal.getsignal(_number) is signal.SIG_IGN:
        signal.signal(_number, signal.SIG_DFL)

# What compilers, make and the tools around them read from the environment of whoever started the tests. The tests set
# what they are about; the tools' words are compared, and are English in this locale (`C` alone isn't UTF-8).
for _name in (
    "AR", "AS", "ASFLAGS", "CC", "CFLAGS", "CPP", "CPPFLAGS", "CXX", "CXXFLAGS", "DTRACE", "LD", "LDFLAGS",
    "LD_RUN_PATH", "NM", "STRIP", "CPATH", "C_INCLUDE_PATH", "CPLUS_INCLUDE_PATH", "LIBRARY_PATH", "COMPILER_PATH",
    "GCC_EXEC_PREFIX", "CCC_OVERRIDE_OPTIONS", "DEPENDENCIES_OUTPUT", "SUNPRO_DEPENDENCIES", "SOURCE_DATE_EPOCH",
    "MAKEFLAGS", "GNUMAKEFLAGS", "MFLAGS", "MAKEFILES", "MAKELEVEL", "CMAKE_GENERATOR", "CMAKE_PREFIX_PATH",
    "CMAKE_BUILD_TYPE", "CMAKE_C_COMPILER_LAUNCHER", "CMAKE_CXX_COMPILER_LAUNCHER", "DESTDIR", "NINJA_STATUS",
    "PKG_CONFIG_PATH", "PKG_CONFIG_LIBDIR", "CCACHE_DISABLE", "CCACHE_PREFIX", "CCACHE_DIR", "CCACHE_RECACHE",
    "PYTHONPATH", "PYTHONSTARTUP", "PYTHONOPTIMIZE", "PYTHONWARNINGS", "PYTHONVERBOSE", "PYTHONDEVMODE",
    "PYTHONIOENCODING", "PYTHONUTF8", "PYTHONCOERCECLOCALE", "PYTHONINSPECT", "PYTHON_COLORS", "COLUMNS", "LINES",
    "CLICOLOR", "CLICOLOR_FORCE", "FORCE_COLOR", "NO_COLOR", "GCC_COLORS", "POSIXLY_CORRECT", "DEBUGINFOD_URLS", "LANG",
    "LANGUAGE", "LC_MESSAGES", "LC_CTYPE", "LC_NUMERIC", "LC_COLLATE", "SUDO_UID", "SUDO_GID", "SUDO_USER",
):  # fmt: skip
    os.environ.pop(_name, None)
os.environ["LC_ALL"] = "C.UTF-8"
# Meson compiles through sccache where there is one, and would find a server that sees another root folder than we.
with socket.socket() as _free:
    _free.bind(("127.0.0.1", 0))
    os.environ |= {"SCCACHE_SERVER_PORT": str(_free.getsockname()[1]), "SCCACHE_IDLE_TIMEOUT": "60"}
os.umask(0o022)
# A busy machine is no failure, and the same commit passes or fails anywhere: new examples are the fuzzers' business.
hypothesis.settings.register_profile(
    "ours", deadline=None, derandomize=True, database=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("ours")

ROOT = Path(__file__).resolve().parent.parent
TOGGLE = ROOT / "tests/tracing/toggle.py"  # what switches sites of a running program on and off
SYSTEM_FOLDERS = os.pathsep.join((os.environ.get("PATH", ""), "/usr/local/sbin", "/usr/sbin", "/sbin"))
COMPILERS = {"gcc": "g++", "clang": "clang++"}
LINKERS = {"bfd": "ld.bfd", "gold": "ld.gold", "lld": "ld.lld", "mold": "ld.mold"}
C_LIBRARIES = {"libc", "libm", "rtld"}  # newer ones have probes of their own, and so have static programs
TRACERS_WITHOUT_ROOT = {"gdb"}
TICK = re.compile(r"tick (\d+)")
TRACEFS = ("/sys/kernel/tracing", "/sys/kernel/debug/tracing")


def find_tool(name: str) -> str | None:
    """Return the path of a program, also from the system folders that a user's PATH lacks."""
    return shutil.which(name, path=SYSTEM_FOLDERS)


def why_not_live() -> str:
    """Return why no uprobe can be placed here, or '' if it can."""
    if os.geteuid() != 0:
        return "tracing with uprobes needs root"
    if not Path("/sys/bus/event_source/devices/uprobe").exists():
        return "this kernel has no uprobes (no /sys/bus/event_source/devices/uprobe)"
    if not any(Path(folder, "uprobe_events").exists() for folder in TRACEFS):
        return "tracefs is not mounted, or this kernel has no uprobes (no uprobe_events)"
    return ""


# --- a selection, and what was skipped ------------------------------------------------------------------------


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--sample 3`: of each file at most three test functions, from all over it, each with one set of parameters."""
    parser.addoption("--sample", type=int, default=0, metavar="N", help="at most N quick tests of each file")
    parser.addoption("--prepared", default="test", help="what tools/prepare.py has prepared")


def sample(items: list[pytest.Item], most: int) -> list[pytest.Item]:
    """Return at most so many tests of each file, none of them long, a whole project's, or alone on the machine."""
    files: dict[Path, dict[str, pytest.Item]] = {}
    long = long_ones()
    for item in items:
        is_long = item.nodeid.partition("[")[0] in long
        if not is_long and not any(map(item.get_closest_marker, ("slow", "project", "live"))):
            files.setdefault(item.path, {}).setdefault(getattr(item, "originalname", item.name), item)
    chosen = []
    for found in files.values():
        tests = list(found.values())
        chosen += [tests[index * len(tests) // most] for index in range(most)] if len(tests) > most else tests
    return chosen


def combinations_beyond(items: list[pytest.Item]) -> Iterator[pytest.Item]:
    """Yield those of one function's tests without which each value of each of its parameters is still there once."""
    # What pytest calls the values, one for each `parametrize`: a row of a table that somebody wrote is one value.
    left = {item: set(enumerate(item.callspec._idlist)) for item in items if isinstance(item, pytest.Function)}
    missing = set().union(*left.values())
    while missing:
        best = max(left, key=lambda item: len(left[item] & missing))
        missing -= left.pop(best)
    yield from left


def mark_combinations(items: list[pytest.Item], most: int = 6) -> None:
    """Mark as slow what repeats: of functions with many tests, combinations of values that others have, too."""
    functions: dict[str, list[pytest.Item]] = {}
    for item in items:
        if hasattr(item, "callspec") and not item.get_closest_marker("slow"):
            functions.setdefault(item.nodeid.partition("[")[0], []).append(item)
    for tests in functions.values():
        for item in combinations_beyond(tests) if len(tests) > most else ():
            item.add_marker(pytest.mark.slow)


def long_ones() -> dict[str, int]:
    """Return of test functions that take long how many of their cases are quick enough."""
    lines = (line.split() for line in (ROOT / "tests/long.txt").read_text().splitlines() if line[0] != "#")
    return {f"tests/{name}": int(quick) for quick, name in lines}


def mark_long(items: list[pytest.Item]) -> None:
    """Mark as slow what `long.txt` names, but for its first cases."""
    left = long_ones()
    for item in items:
        name = item.nodeid.partition("[")[0]
        if name in left and not item.get_closest_marker("slow"):
            left[name] -= 1
            if left[name] < 0:
                item.add_marker(pytest.mark.slow)


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fail a run by root that skipped tests for lack of what `make test` installs."""
    if os.geteuid() == 0 and avoidable(session.config) and session.exitstatus == 0:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def skips(config: pytest.Config) -> Counter[str]:
    """Return how many tests were skipped for each reason."""
    reporter: Any = config.pluginmanager.get_plugin("terminalreporter")
    reports = reporter.stats.get("skipped", ()) if reporter else ()
    return Counter(report.longrepr[2].removeprefix("Skipped: ") for report in reports)


def avoidable(config: pytest.Config) -> list[str]:
    """Return the reasons of skips that name something which apt could install, as tools/prepare.py knows it."""
    reasons = [reason for reason in skips(config) if re.search(r"\b(not installed|missing)\b", reason)]
    if not reasons:
        return []
    words = [sys.executable, str(ROOT / "tools/prepare.py"), "missing", config.getoption("--prepared")]
    missing = subprocess.run(words, capture_output=True, text=True, check=False).stdout.split()
    return [reason for reason in reasons if any(re.search(rf"(?<!\S){re.escape(one)}\b", reason) for one in missing)]


# --- our own tools --------------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def tool() -> Callable[[str], ModuleType]:
    """A function that loads a module of tools/, which is no package."""

    def load(name: str) -> ModuleType:
        spec = importlib.util.spec_from_file_location(f"tool_{name}", ROOT / f"tools/{name}.py")
        assert spec is not None
        assert spec.loader is not None
        module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module

    return load


# --- the live marker ------------------------------------------------------------------------------------------


@pytest.hookimpl(tryfirst=True)  # before `-m` chooses by the marks
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Choose what is quick; skip the live tests that this machine can't run, and mark their reports."""
    mark_combinations(items)
    mark_long(items)
    if most := config.getoption("--sample"):
        chosen = sample(items, most)
        config.hook.pytest_deselected(items=[item for item in items if item not in chosen])
        items[:] = chosen
    reason = why_not_live()
    for item in items:
        if item.get_closest_marker("slow") and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(3600))
        marker = item.get_closest_marker("live")
        if marker is None:
            continue
        item.user_properties.append(("live", True))
        if reason and not TRACERS_WITHOUT_ROOT.intersection(marker.args):
            item.add_marker(pytest.mark.skip(reason=reason))


LOCKED_FOLDER = pytest.StashKey[int]()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Let a test that needs root for tracing wait until no other one runs, whichever process runs it."""
    marker = item.get_closest_marker("live")
    if marker is None or TRACERS_WITHOUT_ROOT.intersection(marker.args) or why_not_live():
        return
    # The folder whose contents they would fight over is as good a thing to lock as any.
    item.stash[LOCKED_FOLDER] = os.open(next(folder for folder in TRACEFS if Path(folder).is_dir()), os.O_RDONLY)
    fcntl.flock(item.stash[LOCKED_FOLDER], fcntl.LOCK_EX)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, object, object]:
    """Let the next one run, also where a process that the test left behind has the folder open."""
    try:
        return (yield)
    finally:
        if (folder := item.stash.get(LOCKED_FOLDER, None)) is not None:
            fcntl.flock(folder, fcntl.LOCK_UN)
            os.close(folder)


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Say what was skipped and why, and how many tests attached a tracer: a run that skipped them all must not look
    like one that didn't."""
    for why, count in skips(config).most_common():
        terminalreporter.write_line(f"{count:5} skipped: {why}")
    for why in avoidable(config):
        terminalreporter.write_line(f"`make test` as root installs what is missing here: {why}", red=True)
    ran = skipped = 0
    for outcome, reports in terminalreporter.stats.items():
        for report in reports:
            if ("live", True) not in getattr(report, "user_properties", ()):
                continue
            ran += outcome in ("passed", "failed") and report.when == "call"
            skipped += outcome == "skipped"
    tail = f", {skipped} were skipped" if skipped else ""
    terminalreporter.write_line(f"{ran} live tests ran against real tracers{tail}")


# --- running things -------------------------------------------------------------------------------------------


Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="session")
def run() -> Run:
    """Run a command and return what it printed; fails the test, showing everything, if its exit code isn't `code`."""

    def run_command(*command: Any, code: int | None = 0, timeout: float = 300, **more: Any) -> Any:
        words = [str(word) for word in command]
        done = subprocess.run(words, capture_output=True, text=True, timeout=timeout, check=False, **more)
        if code is not None and done.returncode != code:
            pytest.fail(
                f"{' '.join(words)}\nexited with {done.returncode}, not {code}\n"
                f"--- stdout\n{done.stdout}\n--- stderr\n{done.stderr}",
                pytrace=False,
            )
        return done

    return run_command


@pytest.fixture(scope="session")
def usdtbuild(run: Run) -> Run:
    """Run this checkout's `usdtbuild` as a user does, in a process of its own: `usdtbuild("list", binary)`."""

    def run_usdtbuild(*arguments: Any, **more: Any) -> Any:
        return run(sys.executable, "-m", "usdtbuild", *arguments, **more)

    return run_usdtbuild


@pytest.fixture(scope="session")
def compiled(run: Run) -> Callable[..., Path]:
    """Write a source, and compile it in its folder: `compiled(folder, "one.c", text, "-O2", cc="clang")`.

    What is made, a file of the source's name or `to`, is returned, and other users may read it.
    """

    def compile_text(folder: Path, name: str, text: str, *options: Any, cc: str = "gcc", to: str = "") -> Path:
        (folder / name).write_text(text)
        folder.chmod(0o755)
        output = to or Path(name).with_suffix(".o" if "-c" in options else ".so" if "-shared" in options else "")
        run(*cc.split(), name, *options, "-o", output, cwd=folder)
        return folder / output

    return compile_text


@pytest.fixture(scope="session")
def header_of(usdtbuild: Run) -> Callable[..., None]:
    """Write a provider file, and its header beside it: `header_of(folder, "app.d", text, "--formats=dof")`."""

    def write_header(folder: Path, name: str, text: str, *options: str) -> None:
        (folder / name).write_text(text)
        usdtbuild("header", *options, name, "-o", Path(name).with_suffix(".h"), cwd=folder)

    return write_header


@pytest.fixture(scope="session")
def need() -> Callable[[str], str]:
    """Return a program's path; skip the test if the machine hasn't got it: `need("ccache")`."""

    def path_or_skip(name: str) -> str:
        path = find_tool(name)
        if path is None:
            pytest.skip(f"{name} is not installed")
        return path

    return path_or_skip


@pytest.fixture(scope="session")
def need_c_library(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., None]:
    """Skip the test if a compiler can't link a program, for lack of a C library: `need_c_library(gcc, "-m32")`."""
    source = tmp_path_factory.mktemp("c-library") / "empty.c"
    source.write_text("#include <stdio.h>\nint main(void) { return 0; }\n")

    def link_or_skip(*compiler: str) -> None:
        words = [*compiler, str(source), "-o", str(source.with_suffix(""))]
        if subprocess.run(words, capture_output=True, check=False).returncode:
            pytest.skip(f"{' '.join(compiler)} links no program: its C library is not installed")

    return link_or_skip


@pytest.fixture(scope="session")
def wheel(run: Run, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel of this checkout, built without the network."""
    folder = tmp_path_factory.mktemp("wheel")
    run(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", folder, ROOT)
    return next(folder.glob("*.whl"))


# --- a fresh Debian ---------------------------------------------------------------------------------------------

DEBIAN = "trixie"  # the first release with all that our package is built from: hatchling 1.27, capstone 5


@pytest.fixture(scope="session")
def inside(run: Run, need: Callable[[str], str]) -> Callable[..., Any]:
    """Run a script in a chroot with a /proc of its own that goes away with it: `inside(chroot, "make", ...)`."""
    if os.geteuid() != 0:
        pytest.skip("a chroot needs root")
    need("debootstrap")
    need("unshare")

    def run_inside(chroot: Path, script: str, **more: Any) -> Any:
        variables = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C.UTF-8", "DEBIAN_FRONTEND": "noninteractive"}
        inner = f'mount -t proc proc {chroot}/proc && exec chroot {chroot} sh -ec "$0"'
        return run("unshare", "--mount", "sh", "-ec", inner, script, env=variables, timeout=1800, **more)

    return run_inside


@pytest.fixture(scope="module")
def debian(
    inside: Any, run: Run, tmp_path_factory: pytest.TempPathFactory
) -> Generator[Callable[[str], Path], None, None]:
    """Make a chroot with the smallest Debian: `debian("build")`."""
    folder = tmp_path_factory.mktemp("debian")
    folder.chmod(0o755)
    done = run("debootstrap", "--variant=minbase", DEBIAN, folder / "first", code=None, timeout=1800)
    if done.returncode:
        pytest.skip(f"debootstrap got no {DEBIAN}: {done.stdout.splitlines()[-1]}")

    def copy(name: str) -> Path:
        run("cp", "-a", folder / "first", folder / name)
        return folder / name

    yield copy
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="module")
def fresh(debian: Any, inside: Any, run: Run, wheel: Path) -> Callable[[str, str], Path]:
    """Make a fresh Debian with some packages and a user without rights: `fresh("page", "gcc libc6-dev")`.

    pip takes usdtbuild, and what that and builds of Python projects need, from a folder instead of an index.
    """
    if os.uname().machine != "x86_64":
        pytest.skip("the pages are for x86-64")

    def make(name: str, packages: str) -> Path:
        root: Path = debian(name)
        inside(root, f"apt-get update && apt-get install -y {packages} && useradd -m reader")
        python = inside(root, "python3 -c 'import sys; print(\"%d.%d\" % sys.version_info[:2])'").stdout.strip()
        words = ["--only-binary=:all:", "--python-version", python, "--require-hashes", "--dest", root / "wheels"]
        listed = ROOT / "tools/locked/wheelhouse.txt"
        fetched = run(sys.executable, "-m", "pip", "download", "-q", *words, "-r", listed, code=None)
        if fetched.returncode:
            pytest.skip(f"pip got no wheels: {fetched.stderr.splitlines()[-1]}")
        shutil.copy(wheel, root / "wheels")
        (root / "etc/pip.conf").write_text("[global]\nno-index = true\nfind-links = /wheels\n")
        return root

    return make


@pytest.fixture(scope="session")
def as_reader(inside: Any) -> Callable[[Path, str], str]:
    """Run a script in a fresh Debian as its user, and return what it printed: `as_reader(root, "gcc --version")`."""

    def do(root: Path, script: str) -> str:
        (root / "page").write_text(script)
        return str(inside(root, "exec runuser -u reader -- env HOME=/home/reader bash -e /page").stdout)

    return do


# --- compilers, linkers, tracers ------------------------------------------------------------------------------


@pytest.fixture(params=list(COMPILERS))
def cc(request: pytest.FixtureRequest, need: Callable[[str], str]) -> str:
    """Each C compiler of this machine in turn."""
    return need(request.param)


@pytest.fixture(params=list(COMPILERS.values()))
def cxx(request: pytest.FixtureRequest, need: Callable[[str], str]) -> str:
    """Each C++ compiler of this machine in turn."""
    return need(request.param)


@pytest.fixture(params=list(LINKERS))
def linker(request: pytest.FixtureRequest, need: Callable[[str], str]) -> str:
    """Each linker of this machine in turn, as the word that `-fuse-ld=` takes."""
    need(LINKERS[request.param])
    return str(request.param)


@pytest.fixture
def served(need: Any, tmp_path: Path) -> Iterator[Callable[..., tuple[str, subprocess.Popen[str]]]]:
    """Start a program in gdbserver: `served(program, "3")` returns where it listens, and the process.

    What it and the program say to stderr goes into the test's file `gdbserver`: where a processor has registers that it
    can't set, it warns so often that a pipe which nobody reads would fill up, and it would stand still.
    """
    gdbserver = need("gdbserver")
    started: list[subprocess.Popen[str]] = []

    def serve(
        *words: Any, cwd: Path | None = None, options: Sequence[str] = ("--once",)
    ) -> tuple[str, subprocess.Popen[str]]:
        command = [gdbserver, *options, "localhost:0", *map(str, words)]
        pipe = subprocess.PIPE
        with (tmp_path / "gdbserver").open("w+") as errors:
            server = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=errors, text=True, cwd=cwd)
            started.append(server)
            deadline = time.monotonic() + 60
            while server.poll() is None and time.monotonic() < deadline:
                errors.seek(0)
                if found := re.search(r"Listening on port (\d+)\n", errors.read()):
                    return f"localhost:{found[1]}", server
                time.sleep(0.01)
        pytest.fail("gdbserver doesn't listen")

    yield serve
    for server in started:
        server.kill()
        server.communicate()


@pytest.fixture(scope="session")
def hammered() -> Callable[..., int]:
    """Run a program while sites come and go; return its passes: `hammered(program, "calls", "count", 25, threads=2)`.

    Fails on any wrong result, and where there was no hit.
    """

    def hammer(program: Path, sites: str, what: str, times: int, threads: int) -> int:
        pipe = subprocess.PIPE
        with subprocess.Popen([program, str(threads)], stdin=pipe, stdout=pipe, text=True) as process:
            try:
                assert process.stdout is not None
                assert process.stdout.readline() == "ready\n"
                words = [sys.executable, str(TOGGLE), str(process.pid), sites, what, str(1 << 16), str(times)]
                toggled = subprocess.run(words, capture_output=True, text=True, timeout=280, check=False)
                output, _ = process.communicate("\n", timeout=60)
            finally:
                process.kill()
        ended = re.fullmatch(r"wrong=0 passes=(\d+) signals=1\n", output)
        assert (process.returncode, bool(ended)) == (0, True), (process.returncode, output, toggled)
        assert re.fullmatch(r"toggles=\d+ hits=[1-9]\d* bad=0\n", toggled.stdout), toggled
        assert ended
        return int(ended[1])

    return hammer


def _tracer(name: str) -> str:
    path = find_tool(name)
    if path is None:
        pytest.fail(f"{name} is not installed on a machine that could run it; `make test` installs it", pytrace=False)
    return path


@pytest.fixture(scope="session")
def bpftrace() -> str:
    """The path of bpftrace."""
    return _tracer("bpftrace")


@pytest.fixture(scope="session")
def trace(bpftrace: str) -> Callable[..., list[str]]:
    """Attach bpftrace, run a command, and return the lines that the script printed: `trace(script, program, "Ada")`.

    The tracer comes first and looks at files, not at a process: `bpftrace -c` would look into the new process, where
    shared libraries are not loaded yet.
    """

    def trace_command(script: str, *command: Any, **more: Any) -> list[str]:
        # bpftrace prints nothing before all is in place, so that the first tick says so. Ticks that came before wait in
        # line: each carries its time (CLOCK_MONOTONIC, in ns).
        words = [bpftrace, "-q", "-B", "none", "-e", script + '\ninterval:ms:50 { printf("tick %llu\\n", nsecs); }']
        with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as tracer:
            assert tracer.stdout is not None
            try:
                seen = _until_tick(tracer.stdout, 0)
                program = [str(word) for word in command]
                done = subprocess.run(program, capture_output=True, text=True, check=False, **more)
                assert done.returncode == 0, done.stderr
                # bpftrace drops what it hasn't printed yet when it is interrupted.
                seen += _until_tick(tracer.stdout, time.monotonic_ns() + 100_000_000)
                tracer.send_signal(signal.SIGINT)
                rest, errors = tracer.communicate(timeout=60)
            finally:
                tracer.kill()
        assert tracer.returncode == 0, errors
        return seen + [line for line in rest.splitlines() if line and not TICK.fullmatch(line)]

    return trace_command


def _until_tick(output: IO[str], moment: int) -> list[str]:
    """Return the lines up to the first tick from after a moment (CLOCK_MONOTONIC, in ns)."""
    seen: list[str] = []
    for line in output:
        tick = TICK.fullmatch(line.rstrip("\n"))
        if tick and int(tick[1]) > moment:
            return seen
        if not tick and line != "\n":
            seen.append(line.rstrip("\n"))
    pytest.fail("bpftrace ended before it was told to")


@pytest.fixture(scope="session")
def perf() -> str:
    """The path of perf."""
    return _tracer("perf")


@pytest.fixture(scope="session")
def gdb() -> str:
    """The path of gdb."""
    return _tracer("gdb")
