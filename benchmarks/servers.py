"""What a tracer sees of a real server, and what it costs: PostgreSQL under pgbench, and Redis.

Its own PostgreSQL (57 probes, in Debian's package) runs in a folder that goes at the end, as a user without rights, and
`usdtbuild trace` is that user, too. First one session sends statements of three kinds, one after the other, and the
tracers say how many of each kind there were, and how long they took on average. Then pgbench runs under each tracer, in
turns: the most transactions a second of all rounds, and the least processor time that the server took for one.

Redis is asked by its own benchmark for values of three sizes, and the tracers add up the bytes that it writes, by file.

Needs root, for bpftrace, and the packages postgresql, redis-server, redis-tools and bpftrace; what isn't there is left
out. `PG_BIN` is the folder of initdb. It installs nothing, and uses no server that runs already.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from common import USDTBUILD, have, report, run, workspace

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

PROVIDER = "provider postgresql { probe query__start(char *query); probe query__done(char *query); };\n"
KINDS = ("SELECT count(*) FROM pgbench_branches", "UPDATE pgbench_branches SET bbalance = bbalance + 1",
         "INSERT INTO pgbench_history (tid) VALUES (1)")  # fmt: skip
EACH = 200  # statements of a kind
ROUNDS, SECONDS = 8, 2
USER = "nobody"
SIZES = (10, 100, 1000)  # large ones Redis writes by writev


def pg_bin() -> Path | None:
    """Return the folder of PostgreSQL's programs, None if there is none."""
    folders = [os.environ.get("PG_BIN", ""), *sorted(map(str, Path("/usr/lib/postgresql").glob("*/bin")), reverse=True)]
    return next((Path(one) for one in folders if one and (Path(one) / "initdb").exists()), None)


def as_user(words: Sequence[str | Path]) -> list[str]:
    """Return a command that runs as the user without rights."""
    return ["setpriv", f"--reuid={USER}", "--clear-groups", "--regid", str(pwd.getpwnam(USER).pw_gid), *map(str, words)]


@contextlib.contextmanager
def postgres(folder: Path, bin_: Path) -> Iterator[int]:
    """Run a server, and yield the postmaster's number."""
    data = folder / "data"
    environment = {**os.environ, "PGHOST": str(folder), "PGDATABASE": "postgres", "PGUSER": USER, "LC_ALL": "C"}
    os.environ.update(environment)
    run(as_user([bin_ / "initdb", "-D", data, "-A", "trust", "--no-sync"]), folder)
    words = as_user([bin_ / "postgres", "-D", data, "-k", folder, "-h", "", "-F", "-c", "autovacuum=off"])
    with (folder / "log").open("w") as log, subprocess.Popen(words, stdout=log, stderr=log, cwd=folder) as server:
        try:
            while subprocess.run([bin_ / "pg_isready", "-q"], check=False).returncode:
                time.sleep(0.1)
            run(["pgbench", "-i", "-q"], folder)
            yield server.pid
        finally:
            server.send_signal(signal.SIGINT)


@contextlib.contextmanager
def traced(words: Sequence[str | Path], folder: Path) -> Iterator[list[str]]:
    """Run a tracer in the body of the `with`; what it has printed is in the list then."""
    said: list[str] = []
    with (folder / "seen").open("w+") as seen:
        tracer = subprocess.Popen([str(word) for word in words], stdout=seen, stderr=subprocess.STDOUT, cwd=folder)
        try:
            while "attached" not in (text := (folder / "seen").read_text()) and "tracing process" not in text:
                if tracer.poll() is not None:
                    sys.exit(f"{' '.join(map(str, words))}: {text}")
                time.sleep(0.05)
            yield said
        finally:
            tracer.send_signal(signal.SIGINT)
            tracer.wait()
            said.append((folder / "seen").read_text())


def usdtbuild(pid: int, *options: str) -> list[str]:
    """Return the command that traces a process: as the user, or as root, if the user may not run this interpreter."""
    words = [USDTBUILD, "trace", "-v", "-p", str(pid), *options]
    again = "import subprocess, sys; subprocess.run([sys.executable, '-c', ''], check=True)"
    is_open = subprocess.run(as_user([sys.executable, "-c", again]), capture_output=True, check=False).returncode == 0
    return as_user(words) if is_open else words


def bpftrace(program: str, folder: Path) -> list[str | Path]:
    # Attached last, so that its first word says that all is in place.
    (folder / "script").write_text(f'{program} interval:ms:100 {{ printf("attached\\n"); }}')
    return ["bpftrace", "-B", "line", folder / "script"]


def by_kind(folder: Path, binary: Path) -> list[list[str]]:
    """Return a row for each kind of statement: what each tracer says of number and mean."""
    rows = [[kind] for kind in KINDS]
    probe = f"usdt:{binary}:postgresql:query__"
    for name in ("usdtbuild", "bpftrace"):
        psql = subprocess.Popen(["psql", "-qAt"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)
        assert psql.stdin is not None
        assert psql.stdout is not None
        psql.stdin.write("SELECT pg_backend_pid();\n")
        pid = int(psql.stdout.readline())
        program = (f"{probe}start /pid == {pid}/ {{ @s[tid] = nsecs; }} {probe}done /pid == {pid} && @s[tid]/ {{"
                   " $t = nsecs - @s[tid]; @[str(arg0)] = stats($t); delete(@s[tid]); }")  # fmt: skip
        words: Sequence[str | Path] = bpftrace(program, folder)
        if name == "usdtbuild":
            words = usdtbuild(pid, "--latency", "query__start", "query__done", "--by", "query", "--provider", "pg.d",
                              "--json")  # fmt: skip
        with traced(words, folder) as said:
            psql.stdin.write("".join(f"{kind};\n" for kind in KINDS) * EACH + "SELECT 'end';\n")
            while psql.stdout.readline() != "end\n":
                pass
            time.sleep(0.5)
        psql.communicate()
        for row in rows:
            kind = re.escape(row[0])
            found = re.search(rf'"key": "\\"{kind};?\\"", "pairs": (\d+).*?"mean_ns": ([\d.]+)', said[0])
            found = found or re.search(rf"@\[{kind};?\]: count (\d+), average (\d+)", said[0])
            row.append(f"{found[1]}, {float(found[2]) / 1000:.0f} us" if found else "-")
    return rows


def spent(pid: int) -> float:
    """Return the processor time of a server's children that have ended, in seconds."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[13]) + int(fields[14])) / os.sysconf("SC_CLK_TCK")


def throughput(folder: Path, binary: Path, server: int) -> list[list[str]]:
    """Return a row for each tracer: the most transactions a second, and the least processor time of one."""
    probe = f"usdt:{binary}:postgresql:query__"
    counting = f"usdt:{binary}:postgresql:* {{ @[probe] = count(); }}"
    pairs = (
        f"{probe}start {{ @s[tid] = nsecs; }} {probe}done /@s[tid]/ {{ @ = hist(nsecs - @s[tid]); delete(@s[tid]); }}"
    )
    latency = ("--latency", "query__start", "query__done")
    tracers: dict[str, Sequence[str | Path]] = {
        "none": [],
        "usdtbuild --count, all 57 probes": usdtbuild(server, "--count"),
        "usdtbuild --count, without lwlock-*": usdtbuild(server, "--count", "-x", "lwlock*"),
        "bpftrace count(), all 57 probes": [counting],
        "usdtbuild --latency": usdtbuild(server, *latency),
        "usdtbuild --latency --by query": usdtbuild(server, *latency, "--by", "query", "--provider", "pg.d"),
        "bpftrace, hist() of the latency": [pairs],
    }
    best: dict[str, list[float]] = {name: [0.0, 1e9] for name in tracers}
    for _ in range(ROUNDS):
        for name, words in tracers.items():
            command = bpftrace(str(words[0]), folder) if name.startswith("bpftrace") else words
            with traced(command, folder) if command else contextlib.nullcontext():
                before = spent(server)
                said = run(["pgbench", "-n", "-S", "-T", str(SECONDS)], folder)
                time.sleep(0.3)  # until the server has waited for its child
                done = int(re.findall(r"actually processed: (\d+)", said)[0])
                rate = float(re.findall(r"tps = ([\d.]+)", said)[0])
                best[name] = [max(best[name][0], rate), min(best[name][1], (spent(server) - before) / done)]
    return [[name, f"{rate:.0f}", f"{1e6 * cost:.1f} us"] for name, (rate, cost) in best.items()]


def by_file(folder: Path) -> list[list[str]]:
    """Return a row for each tracer: the writes and the bytes that Redis has sent to each of three clients."""
    socket = folder / "redis"
    words = as_user(["redis-server", "--port", "0", "--unixsocket", socket, "--save", "", "--daemonize", "no"])
    rows = []
    with subprocess.Popen(words, stdout=subprocess.DEVNULL, cwd=folder) as server:
        while not socket.exists():
            time.sleep(0.1)
        clients = [subprocess.Popen(["redis-cli", "-s", socket], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                    text=True, bufsize=1) for _ in SIZES]  # fmt: skip
        program = f"tracepoint:syscalls:sys_enter_write /pid == {server.pid}/ {{ @[args->fd] = stats(args->count); }}"
        calls = usdtbuild(server.pid, "-L", "write", "--by", "fd", "--sum", "count", "--json")
        for name, command in (("usdtbuild", calls), ("bpftrace", bpftrace(program, folder))):
            with traced(command, folder) as said:
                for client, size in zip(clients, SIZES):
                    assert client.stdin is not None
                    assert client.stdout is not None
                    client.stdin.write(f"SET v{size} {'x' * size}\n" + f"GET v{size}\n" * EACH)
                    for _ in range(EACH + 1):
                        client.stdout.readline()
            found = re.findall(r'"key": "(\d+)", "hits": (\d+), "sum": (\d+)', said[0].rpartition('"total"')[2])
            found = found or re.findall(r"@\[(\d+)\]: count (\d+), average \d+, total (\d+)", said[0])
            rows.append([name, *(f"{hits}, {total}" for _, hits, total in sorted(found, key=lambda row: int(row[2])))])
        for client in clients:
            client.communicate()
        server.terminate()
    return rows


def main() -> None:
    if os.geteuid() or not have("bpftrace"):
        sys.exit("needs root, for bpftrace and for a user without rights, and bpftrace")
    bin_ = pg_bin()
    with workspace() as folder:
        shutil.chown(folder, USER)
        folder.chmod(0o755)
        (folder / "pg.d").write_text(PROVIDER)
        if bin_ is not None and have("pgbench"):
            binary = (bin_ / "postgres").resolve()
            with postgres(folder, bin_) as server:
                title = f"Statements of one session ({EACH} of each kind): how many were seen, and their mean"
                report(title, ("kind", "usdtbuild", "bpftrace"), by_kind(folder, binary))
                title = "pgbench -S, one client, under a tracer"
                header = "tracer", "transactions a second", "server's CPU each"
                report(title, header, throughput(folder, binary, server))
        if have("redis-server") and have("redis-cli"):
            title = f"Redis, {EACH} values of {', '.join(map(str, SIZES))} bytes to three clients: writes, and bytes"
            report(title, ("tracer", *(f"client {number}" for number in range(len(SIZES)))), by_file(folder))


if __name__ == "__main__":
    main()
