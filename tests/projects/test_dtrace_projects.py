"""Projects of others, built unchanged from the distribution's source packages with our `dtrace` in their builds.

memcached and PostgreSQL (`./configure --enable-dtrace`) and libmemcached (CMake). Each must show the probes that its
source has, with as many arguments, to our own reader, to gdb and to bpftrace; and its probes must fire with the values
that they should have. The source packages come from apt, with a list of sources of our own, and stay in `.cache`.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import socket
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
CACHE = ROOT / ".cache" / "sources"
PACKAGES = ("libevent-dev", "bison", "flex", "perl", "make", "cmake", "pkg-config", "gdb")
# Each worker of a parallel run builds what its tests need; only what is fetched is shared, and one fetches at a time.
pytestmark = [pytest.mark.project, pytest.mark.slow]


def probes(text: str) -> dict[str, int]:
    """Return probe -> number of arguments, from lines of `NUMBER: probe probe ...`."""
    found = {}
    for line in text.strip().splitlines():
        number, names = line.split(":")
        found.update(dict.fromkeys(names.split(), int(number)))
    return found


MEMCACHED = probes("""
    1: conn__allocate conn__create conn__destroy conn__release slabs__slabclass__allocate slabs__slabclass__allocate__failed
    2: assoc__delete assoc__insert conn__dispatch slabs__allocate__failed
    3: assoc__find command__delete item__link item__remove item__unlink item__update process__command__end process__command__start slabs__free
    4: command__decr command__incr slabs__allocate
    5: command__add command__append command__cas command__get command__prepend command__replace command__set command__touch
    6: item__replace
""")  # noqa: E501
_PAIRS = "add connect decrement delete flush increment increment_with_initial mget replace set"
LIBMEMCACHED = {
    "memcached_touch_start": 0,
    **{f"memcached_{name}_{end}": 0 for name in _PAIRS.split() for end in ("start", "end")},
}
POSTGRESQL = probes("""
    0: buffer__checkpoint__done buffer__checkpoint__sync__start deadlock__found query__execute__done query__execute__start query__plan__done query__plan__start twophase__checkpoint__done twophase__checkpoint__start wal__buffer__write__dirty__done wal__buffer__write__dirty__start wal__switch
    1: buffer__checkpoint__start buffer__sync__written checkpoint__start clog__checkpoint__done clog__checkpoint__start lwlock__release multixact__checkpoint__done multixact__checkpoint__start query__done query__parse__done query__parse__start query__rewrite__done query__rewrite__start query__start statement__status subtrans__checkpoint__done subtrans__checkpoint__start transaction__abort transaction__commit transaction__start
    2: buffer__sync__start lwlock__acquire lwlock__acquire__or__wait lwlock__acquire__or__wait__fail lwlock__condacquire lwlock__condacquire__fail lwlock__wait__done lwlock__wait__start sort__done wal__insert
    3: buffer__sync__done
    5: buffer__flush__done buffer__flush__start buffer__write__dirty__done buffer__write__dirty__start checkpoint__done
    6: lock__wait__done lock__wait__start smgr__md__read__start smgr__md__write__start sort__start
    7: buffer__read__start
    8: buffer__read__done smgr__md__read__done smgr__md__write__done
""")  # noqa: E501


# --- getting and building ---------------------------------------------------------------------------------------


@contextmanager
def alone() -> Iterator[None]:
    """Wait until no other worker installs or fetches anything."""
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / ".lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


@pytest.fixture(scope="module")
def packages(run: Any) -> None:
    """What the projects need to be built: installed where we may, else a reason to skip."""
    if not shutil.which("apt-get"):
        pytest.skip("source packages come from apt, which this system hasn't got")
    with alone():
        missing = [name for name in PACKAGES if "installed" not in run(
            "dpkg-query", "-W", "-f=${Status}", name, code=None).stdout]  # fmt: skip
        if missing and os.geteuid() != 0:
            pytest.skip(f"not installed: {' '.join(missing)}")
        if missing:
            environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
            run("apt-get", "update", timeout=600)
            run("apt-get", "install", "-y", "--no-install-recommends", *missing, env=environment, timeout=600)


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    """A folder that other users, whom servers run as, may enter; pytest's own are closed to them."""
    path = Path(tempfile.mkdtemp(prefix="usdtbuild-"))
    path.chmod(0o755)
    yield path
    shutil.rmtree(path)


@pytest.fixture(scope="module")
def source(packages: None, run: Any, folder: Path) -> Callable[[str], Path]:
    """Unpack a source package, and return its folder: `source("memcached")`."""

    def unpacked(name: str) -> Path:
        done = run(sys.executable, ROOT / "tools" / "sources.py", name, timeout=1500, code=None)
        if done.returncode:
            pytest.skip(done.stderr.strip())
        with tarfile.open(done.stdout.strip()) as archive:
            top = archive.getnames()[0].split("/")[0]
            archive.extraction_filter = getattr(tarfile, "data_filter", None)  # not in the first 3.11
            archive.extractall(folder)
        return folder / top

    return unpacked


@pytest.fixture(scope="module")
def environment(usdtbuild: Any, folder: Path) -> dict[str, str]:
    """An environment whose PATH has our `dtrace` first."""
    usdtbuild("install-dtrace", folder / "ours")
    return {**os.environ, "PATH": f"{folder / 'ours'}:{os.environ['PATH']}"}


@pytest.fixture(scope="module")
def memcached(source: Any, run: Any, environment: dict[str, str]) -> Path:
    """memcached's program."""
    top = source("memcached")
    run("./configure", "--enable-dtrace", "--disable-docs", cwd=top, env=environment)
    # Its own build compiles with -Werror -pedantic.
    run("make", "-j2", cwd=top, env=environment, timeout=900)
    return Path(top, "memcached")


@pytest.fixture(scope="module")
def libmemcached(source: Any, run: Any, environment: dict[str, str]) -> Path:
    """libmemcached's library."""
    top = source("libmemcached")
    build = top / "build"
    run("cmake", "-S", top, "-B", build, "-DENABLE_DTRACE=ON", "-DCMAKE_BUILD_TYPE=Release", env=environment)
    run("cmake", "--build", build, "-j2", "--target", "libmemcached", env=environment, timeout=900)
    return Path(build, "src", "libmemcached", "libmemcached.so").resolve()


_POSTGRESQL_PARTS = """
    port common include timezone backend backend/utils/mb/conversion_procs backend/snowball interfaces/libpq fe_utils
    bin/initdb bin/psql pl/plpgsql
"""


@pytest.fixture(scope="module")
def postgresql(source: Any, run: Any, environment: dict[str, str], folder: Path) -> Path:
    """The folder of PostgreSQL's installed programs: server, initdb and psql; nothing more is built."""
    top = source("postgresql-15")
    prefix = folder / "pg"
    run("./configure", "--enable-dtrace", "--without-readline", "--without-zlib", f"--prefix={prefix}", "CFLAGS=-O1",
        cwd=top, env=environment, timeout=900)  # fmt: skip
    for part in _POSTGRESQL_PARTS.split():
        run("make", "-s", "-j2", "-C", f"src/{part}", "install", cwd=top, env=environment, timeout=1800)
    return prefix / "bin"


# --- what tracers see -------------------------------------------------------------------------------------------


def check(binary: Path, provider: str, expected: dict[str, int], usdtbuild: Any, run: Any, gdb: str) -> None:
    """Our reader and gdb show exactly these probes, with so many arguments at every site; nothing is wrong."""
    import json

    found = json.loads(usdtbuild("list", "--json", binary).stdout)["files"][0]["probes"]
    assert {probe["provider"] for probe in found} == {provider}
    assert {probe["name"] for probe in found} == set(expected)
    for probe in found:
        assert probe["sites"]
        assert {len(site["arguments"]) for site in probe["sites"]} == {expected[probe["name"]]}, probe["name"]
    said = usdtbuild("verify", binary).stdout
    assert "warning: " not in said
    assert "error: " not in said
    lines = run(gdb, "-nx", "-batch", "-ex", f"info probes stap {provider}", binary).stdout.splitlines()
    rows = [line.split() for line in lines if line.startswith("stap ")]
    assert {name for _, name_of_provider, name, *_ in rows if name_of_provider == provider} == set(expected)


def test_memcached_shows_its_probes(memcached: Path, usdtbuild: Any, run: Any, gdb: str) -> None:
    check(memcached, "memcached", MEMCACHED, usdtbuild, run, gdb)


def test_libmemcached_shows_its_probes(libmemcached: Path, usdtbuild: Any, run: Any, gdb: str) -> None:
    check(libmemcached, "libmemcached", LIBMEMCACHED, usdtbuild, run, gdb)


def test_postgresql_shows_its_probes(postgresql: Path, usdtbuild: Any, run: Any, gdb: str) -> None:
    check(postgresql / "postgres", "postgresql", POSTGRESQL, usdtbuild, run, gdb)


def listed(bpftrace: str, run: Any, binary: Path, provider: str) -> set[str]:
    """The probes that bpftrace lists for a file."""
    lines = run(bpftrace, "-l", f"usdt:{binary}:*").stdout.split()
    start = f"usdt:{binary}:{provider}:"
    assert all(line.startswith(start) for line in lines)
    return {line[len(start) :] for line in lines}


# --- and what fires ---------------------------------------------------------------------------------------------


def as_nobody(*words: Any) -> list[str]:
    """A command that runs as a user without rights, where we are root: PostgreSQL refuses to run as root."""
    change = ["setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups"] if os.geteuid() == 0 else []
    return [*change, *map(str, words)]


@pytest.fixture
def served(folder: Path) -> Iterator[Callable[..., Path]]:
    """Start a server that listens on a socket in a private folder: `served(path, command...)`.

    It is `ready` when it answers there, or when that function says so. It ends with the test.
    """
    started: list[subprocess.Popen[bytes]] = []

    def answers(path: Path) -> bool:
        with socket.socket(socket.AF_UNIX) as probe:
            return path.exists() and probe.connect_ex(str(path)) == 0

    def start(path: Path, *words: str, ready: Callable[[Path], bool] = answers, **more: Any) -> Path:
        server = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, **more)
        started.append(server)
        for _ in range(200):
            if ready(path):
                return path
            assert server.poll() is None, f"{words[0]} ended with exit code {server.returncode}"
            time.sleep(0.1)
        pytest.fail(f"{words[0]} doesn't answer")

    yield start
    for server in started:
        server.send_signal(signal.SIGINT)
        try:
            server.wait(30)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()


def private_folder(folder: Path, name: str) -> Path:
    path = folder / name
    path.mkdir(exist_ok=True)
    if os.geteuid() == 0:
        shutil.chown(path, "nobody", "nogroup")
    return path


def serve_memcached(program: Path, served: Any, folder: Path, name: str) -> Path:
    path = private_folder(folder, name) / "socket"
    return Path(served(path, *as_nobody(program, "-s", path, "-U", "0")))


@pytest.mark.live
def test_a_set_of_memcached_fires(
    memcached: Path, served: Any, folder: Path, trace: Any, bpftrace: str, run: Any
) -> None:
    assert listed(bpftrace, run, memcached, "memcached") == set(MEMCACHED)
    path = serve_memcached(memcached, served, folder, "m1")
    client = (
        "import socket, sys; s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1]); "
        "s.sendall(b'set greeting 0 0 5\\r\\nhello\\r\\n'); print(s.recv(100))"
    )
    script = f"""
        usdt:{memcached}:memcached:command__set {{ printf("set %s %d\\n", str(arg1, arg2), arg2); }}
        usdt:{memcached}:memcached:item__link {{ printf("link %s %d\\n", str(arg0, arg1), arg1); }}
        usdt:{memcached}:memcached:process__command__start {{ printf("command %s\\n", str(arg1, 12)); }}
    """
    seen = sorted(trace(script, sys.executable, "-c", client, path))
    assert seen == ["command set greeting", "link greeting 8", "set greeting 8"]


@pytest.mark.live
def test_a_set_of_libmemcached_fires(
    libmemcached: Path, memcached: Path, served: Any, folder: Path, trace: Any, bpftrace: str, run: Any
) -> None:
    assert listed(bpftrace, run, libmemcached, "libmemcached") == set(LIBMEMCACHED)
    path = serve_memcached(memcached, served, folder, "m2")
    client = """
import sys
from ctypes import CDLL, c_char_p, c_size_t, c_uint, c_long, c_void_p
library = CDLL(sys.argv[1])
library.memcached_create.restype = c_void_p
handle = c_void_p(library.memcached_create(None))
assert library.memcached_server_add_unix_socket(handle, c_char_p(sys.argv[2].encode())) == 0
for key in (b"one", b"two"):
    assert library.memcached_set(handle, key, c_size_t(3), b"value", c_size_t(5), c_long(0), c_uint(0)) == 0
"""
    script = "\n".join(
        f'usdt:{libmemcached}:libmemcached:memcached_{name} {{ printf("{name}\\n"); }}'
        for name in ("set_start", "set_end", "connect_start", "connect_end", "delete_start")
    )
    seen = trace(script, sys.executable, "-c", client, libmemcached, path)
    # connect_end is for attempts that failed (connect.cc).
    assert sorted(seen) == ["connect_start", "set_end", "set_end", "set_start", "set_start"]


def takes_queries(data: Path) -> bool:
    """Whether a PostgreSQL server is up: it listens before (src/include/utils/pidfile.h, LOCK_FILE_LINE_PM_STATUS)."""
    status = data / "postmaster.pid"
    lines = status.read_text().splitlines() if status.exists() else []
    return len(lines) > 7 and lines[7].strip() == "ready"


@pytest.mark.live
def test_a_query_of_postgresql_fires(
    postgresql: Path, served: Any, folder: Path, trace: Any, bpftrace: str, run: Any
) -> None:
    server = postgresql / "postgres"
    assert listed(bpftrace, run, server, "postgresql") == set(POSTGRESQL)
    home = private_folder(folder, "p")
    run(*as_nobody(postgresql / "initdb", "-D", home / "data", "-U", "tester", "-A", "trust", "--no-sync"), cwd=home)
    served(
        home / ".s.PGSQL.5432",
        *as_nobody(server, "-D", home / "data", "-k", home, "-c", "listen_addresses=", "-c", "fsync=off", "-c",
                   "autovacuum=off"), cwd=home, ready=lambda _: takes_queries(home / "data"),
    )  # fmt: skip
    query = "select count(*) from (select generate_series(1, 20) as n order by n desc) as s"
    script = f"""
        usdt:{server}:postgresql:query__start {{ printf("start %s\\n", str(arg0)); }}
        usdt:{server}:postgresql:query__done {{ printf("done %s\\n", str(arg0)); }}
        usdt:{server}:postgresql:sort__start {{ printf("sort %d %d %d %d\\n", arg0, arg1, arg2, arg3); }}
        usdt:{server}:postgresql:transaction__commit {{ @committed = count(); }}
    """
    command = [postgresql / "psql", "-X", "-h", home, "-U", "tester", "-d", "postgres", "-At", "-c", query]
    assert run(*command).stdout == "20\n"
    seen = trace(script, *command)
    shown = query[:63]  # as much as bpftrace shows of a string
    assert [line for line in seen if line.startswith("start ")] == [f"start {shown}"]
    assert [line for line in seen if line.startswith("done ")] == [f"done {shown}"]
    # a sort of single values, not unique, with one key, in 4 MB (src/backend/utils/sort/tuplesort.c)
    assert [line for line in seen if line.startswith("sort ")] == ["sort 2 0 1 4096"]
    assert any(line.startswith("@committed: ") for line in seen)
