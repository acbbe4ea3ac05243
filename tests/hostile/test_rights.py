"""Root's commands give root's rights up for whoever called sudo, or is named: all but what holds a traced process.

The user is `daemon`, whom every Linux system has.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import pickle
import pty
import pwd
import re
import resource
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from usdtbuild import apart, rights
from usdtbuild.errors import InputError, UsageError
from usdtbuild.files import descriptor_for
from usdtbuild.inspection.demangle import demangle
from usdtbuild.limits import ANSWER_MEMORY
from usdtbuild.tracing.job import Job
from usdtbuild.tracing.model import Refusal
from usdtbuild.tracing.selection import Wanted
from usdtbuild.tracing.session import Session

from .conftest import NOBODY, ROOT

USER = pwd.getpwnam("daemon")
SUDO = {"SUDO_UID": str(USER.pw_uid), "SUDO_GID": str(USER.pw_gid)}


def status(pid: int | str) -> dict[str, list[str]]:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return {line.partition(":")[0]: line.partition(":")[2].split() for line in lines}


@pytest.fixture
def running(forged: Any, attacker: Any) -> str:
    process = attacker(forged(b"tick"))
    return str(process.stdout.readline().strip())


@pytest.fixture
def python(everybodys: Any) -> dict[str, Any]:
    """What `command` needs to run a Python that the user may read, as under sudo."""
    return {"python": everybodys.path, "env": {**everybodys.environment, **SUDO}}


@pytest.mark.parametrize("engine", ["patch", "trap", "bpftrace"])
def test_the_front_has_no_rights_and_the_worker_keeps_them(
    engine: str, running: str, folder: Path, everybodys: Any
) -> None:
    if engine == "bpftrace":
        from usdtbuild.tracing.others.watching import why_not

        if why_not(Job(Wanted())):
            pytest.skip(why_not(Job(Wanted())))
    output = folder / "out.jsonl"
    words = [everybodys.path, "-m", "usdtbuild", "trace", "-p", running, "--engine", engine, "--duration", "3",
             "-P", "victim:*"]  # fmt: skip
    with subprocess.Popen(
        [*words, "-o", str(output)],
        env={**everybodys.environment, **SUDO},
        stderr=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
        text=True,
    ) as front:
        seen: dict[str, list[str]] = {}
        workers: list[list[str]] = []
        while front.poll() is None and not (workers and seen["Uid"][0] != "0" and seen["NoNewPrivs"] == ["1"]):
            with contextlib.suppress(OSError):  # it has just ended
                seen = status(front.pid)
                children = Path(f"/proc/{front.pid}/task/{front.pid}/children").read_text().split()
                workers = [status(child)["Uid"] for child in children]
            time.sleep(0.01)
        _, said = front.communicate(timeout=60)
    assert front.returncode == 0, said
    assert seen["Uid"] == [str(USER.pw_uid)] * 4
    assert seen["Gid"] == [str(USER.pw_gid)] * 4
    assert seen["Groups"] == []
    assert seen["NoNewPrivs"] == ["1"]
    assert {seen[f"Cap{which}"][0].strip("0") for which in ("Inh", "Prm", "Eff", "Amb")} == {""}
    assert ["0"] * 4 in workers
    assert (output.stat().st_uid, output.stat().st_gid) == (USER.pw_uid, USER.pw_gid)
    assert '"probe":"victim:tick"' in output.read_text()


def ids(output: str) -> list[int]:
    return [int(word) for word in output.split("ids:")[1].split()[:3]]


PRINTS_IDS = ("sh", "-c", 'echo ids: $(id -u) $(id -g) $(id -u -r) "$HOME"')


@pytest.mark.parametrize("engine", ["auto", "inside"])
def test_the_command_runs_as_the_user_that_is_named(
    engine: str, command: Any, folder: Path, python: dict[str, Any]
) -> None:
    cache = folder / "cache"
    cache.mkdir(0o700)
    os.chown(cache, USER.pw_uid, USER.pw_gid)
    python["env"]["XDG_CACHE_HOME"] = str(cache)
    own = ("-x", "lib*:*", "-x", "rtld:*")  # the libc of some systems has probes, of which engine inside traces none
    said = command("trace", "--engine", engine, "--user", "daemon", *own, "--", *PRINTS_IDS, cwd=folder, **python)
    if "others may write to" in said.err:
        pytest.skip("the tests' temporary files lie where root trusts nobody")
    assert said.code == 0, said
    assert ids(said.out) == [USER.pw_uid, USER.pw_gid, USER.pw_uid], said
    assert USER.pw_dir in said.out
    assert "runs as root" not in said.err


def test_under_sudo_the_command_runs_as_root_and_that_is_said(
    command: Any, folder: Path, python: dict[str, Any]
) -> None:
    said = command("trace", "--", *PRINTS_IDS, cwd=folder, **python)
    assert said.code == 0, said
    assert ids(said.out) == [0, 0, 0]
    assert "sh runs as root; --user daemon runs it as daemon" in said.err


def test_what_the_user_may_not_write_is_refused_with_the_way_out(
    command: Any, tmp_path: Path, folder: Path, python: dict[str, Any]
) -> None:
    del folder  # it opens the way to tmp_path
    tmp_path.chmod(0o755)
    words = ("trace", "-o", tmp_path / "out.jsonl", "--", "true")
    said = command(*words, **python)
    assert said.code == 1, said
    assert "permission denied; --user root keeps root's rights" in said.err
    assert command("trace", "--user", "root", *words[1:], **python).code == 0
    assert (tmp_path / "out.jsonl").stat().st_uid == 0


def test_who_is_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    assert rights.chosen("") is None
    assert rights.chosen("root") is None
    named = rights.chosen("daemon")
    assert named is not None
    assert named.uid == USER.pw_uid
    assert rights.chosen(str(USER.pw_uid)) == named
    monkeypatch.setenv("SUDO_UID", str(USER.pw_uid))
    assert rights.chosen("") == named
    assert rights.chosen("root") is None
    for wrong in ("no-such-user", "4294967299999", "-1"):
        with pytest.raises(UsageError, match="there is no user"):
            rights.chosen(wrong)
    monkeypatch.setattr(os, "geteuid", lambda: 1)
    assert rights.chosen("") is None
    with pytest.raises(UsageError, match="only root"):
        rights.chosen("daemon")


def test_who_can_t_read_what_usdtbuild_needs_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    with pytest.raises(InputError, match=r"can't be read by the user daemon, .*--user root keeps"):
        rights._check_reach(rights.chosen("daemon") or pytest.fail("nobody was chosen"))
    assert os.getresuid() == (0, 0, 0)


# -- commands that read files ---------------------------------------------------------------------------------------

LOOKING = [("list",), ("verify",), ("functions",), ("calls",), ("dof", "dump"), ("dof", "check"), ("script", "gdb")]
WHO = {"sudo": (SUDO, "", "daemon"), "root": ({}, "", "nobody"), "named": (SUDO, "games", "games"),
       "kept": (SUDO, "root", "root")}  # fmt: skip


class Waiting:
    """A command that is to read a pipe into which nobody has written yet, as root; for use in a `with`."""

    def __init__(self, words: tuple[str, ...], who: str, everybodys: Any, folder: Path) -> None:
        environment, named, expected = WHO[who]
        self.user, self.pipe = pwd.getpwnam(expected), folder / "pipe"
        os.mkfifo(self.pipe, 0o600)
        self._writer = os.open(self.pipe, os.O_RDWR)
        self._command = subprocess.Popen(
            [everybodys.path, "-m", "usdtbuild", *words, *(["--user", named] if named else []), str(self.pipe)],
            env={**everybodys.environment, **environment},
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
        )  # fmt: skip

    @property
    def child(self) -> int:
        """The process that reads; it has given its rights up."""
        children = Path(f"/proc/{self._command.pid}/task/{self._command.pid}/children")
        while self._command.poll() is None:
            for pid in children.read_text().split():
                with contextlib.suppress(OSError):
                    if status(pid)["NoNewPrivs"] == ["1"] or not self.user.pw_uid:
                        return int(pid)
            time.sleep(0.01)
        pytest.fail(f"it has ended: {self._command.communicate()[0]!r}")

    def goes_on(self, data: bytes) -> str:
        """Write the data; return what the command says."""
        reader = os.open(self.pipe, os.O_WRONLY)
        os.close(self._writer)
        self._writer = -1
        with contextlib.suppress(BrokenPipeError):
            while data:
                data = data[os.write(reader, data) :]
        os.close(reader)
        return self._command.communicate(timeout=60)[0].decode()

    def __enter__(self) -> Waiting:
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(OSError):
            os.close(self._writer)  # so the process that reads comes to its end
        self._command.kill()
        self._command.communicate()


def assert_nobodys(uid: int) -> None:
    """Check that it isn't the number of a user that systems, containers or directory services hand out."""
    assert 2_000_200_000 < uid < 1 << 31
    with pytest.raises(KeyError):
        pwd.getpwuid(uid)


@pytest.mark.parametrize("who", WHO)
@pytest.mark.parametrize("words", LOOKING, ids="-".join)
def test_files_are_read_without_rights(
    words: tuple[str, ...], who: str, forged: Any, folder: Path, everybodys: Any
) -> None:
    with Waiting(words, who, everybodys, folder) as waiting:
        seen, user = status(waiting.child), waiting.user
        if user.pw_uid:
            assert {seen[f"Cap{which}"][0].strip("0") for which in ("Inh", "Prm", "Eff", "Amb")} == {""}
            assert (seen["Gid"], seen["Groups"]) == ([str(user.pw_gid)] * 4, [])
            real, effective, saved, for_files = map(int, seen["Uid"])
            assert (real, for_files) == (saved, effective)
            assert_nobodys(real)
            if who == "root":
                assert_nobodys(effective)
            else:
                assert effective == user.pw_uid
            assert seen["NoNewPrivs"] == ["1"]
        else:
            assert seen["Uid"] == ["0"] * 4
        said = waiting.goes_on(forged(b"tick").read_bytes()[:60000])
    assert "Traceback" not in said
    assert str(waiting.pipe) in said


# What a process can do to another of its user, by name: `resource`, `os` and a process are there.
DONE_TO_OTHERS = {
    "kill": "os.kill(pid, 0)",
    "prlimit": "resource.prlimit(pid, resource.RLIMIT_NOFILE, (3, 3))",
    "mem": "open(f'/proc/{pid}/mem', 'rb')",
    "oom": "open(f'/proc/{pid}/oom_score_adj', 'w')",
    "nice": "os.setpriority(os.PRIO_PROCESS, pid, 19)",
    "idle": "os.sched_setscheduler(pid, os.SCHED_IDLE, os.sched_param(0))",
    "affinity": "os.sched_setaffinity(pid, os.sched_getaffinity(0))",
}


@pytest.mark.parametrize("who", ["root", "named", "sudo"])
def test_no_other_process_can_disturb_who_reads(who: str, forged: Any, folder: Path, everybodys: Any) -> None:
    with Waiting(("list",), who, everybodys, folder) as waiting:
        user = waiting.user
        for name, text in DONE_TO_OTHERS.items():
            if who != "root" and name in {"nice", "idle", "affinity"}:
                continue  # they ask who uses files, which is one's own user here
            done = subprocess.run(
                [everybodys.path, "-c", f"import os, resource\npid = {waiting.child}\n{text}"],
                capture_output=True, text=True, check=False, user=user.pw_uid, group=user.pw_gid, extra_groups=[],
            )  # fmt: skip
            assert done.stderr.splitlines()[-1].startswith("PermissionError"), name
        assert "victim:tick" in waiting.goes_on(forged(b"tick").read_bytes())


# Runs a command line in a container that has as many users as many have: 2^16.
CONTAINED = """
import ctypes, os, sys
us, they = os.pipe(), os.pipe()
pid = os.fork()
if not pid:
    found = ctypes.CDLL(None, use_errno=True).unshare(0x10000000)  # CLONE_NEWUSER
    os.write(us[1], b"%d" % (found == 0))
    os.read(they[0], 1)
    os.setresgid(0, 0, 0)
    os.setresuid(0, 0, 0)
    os.execv(sys.argv[1], sys.argv[1:])
if os.read(us[0], 1) == b"1":
    for name in ("uid_map", "gid_map"):
        with open(f"/proc/{pid}/{name}", "w") as file:
            file.write("0 0 65536")
    os.write(they[1], b"1")
sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
"""


def test_a_container_of_few_users_has_nobody_to_read(folder: Path, everybodys: Any) -> None:
    program = [everybodys.path, "-c", "import os\nfrom usdtbuild import apart\n"
               "apart.look('', [], lambda: print(os.getresuid()))"]  # fmt: skip
    done = subprocess.run([everybodys.path, "-c", CONTAINED, *program], env=everybodys.environment,
                          cwd=folder, capture_output=True, text=True, timeout=60, check=False)  # fmt: skip
    if done.returncode and not done.stderr:
        pytest.skip("this machine has no user namespaces")
    assert done.stdout == f"{(NOBODY,) * 3}\n", done


def at_a_terminal(*words: str, path: str = "") -> str:
    """Return what the command line says on a terminal; nobody can't read `path`, if there is one."""
    ours, theirs = pty.openpty()
    environment = {**os.environ, "PYTHONPATH": f"{path}:{ROOT}"}
    subprocess.run([sys.executable, "-m", "usdtbuild", *words], env=environment, stdin=subprocess.DEVNULL,
                   stdout=subprocess.DEVNULL, stderr=theirs, check=True)  # fmt: skip
    os.set_blocking(ours, False)
    said = b""
    with contextlib.suppress(BlockingIOError):
        said = os.read(ours, 10_000)
    os.close(theirs)
    os.close(ours)
    return said.decode()


def test_root_at_a_terminal_hears_that_rights_are_kept(
    forged: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SUDO_UID", raising=False)
    closed = tmp_path / "closed"
    closed.mkdir(0o700)
    program = str(forged(b"tick"))
    for words in (("list", program), ("trace", "--count", "--", program, "1")):
        said = at_a_terminal(*words, path=str(closed))
        assert re.match(
            r"usdtbuild: warning: files are read with root's rights, because /\S+ can't be read by the user nobody, "
            r"and usdtbuild needs it; install Python and usdtbuild below /usr or /opt, or name a user with "
            r"--user NAME\r\n",
            said,
        )
        kept = at_a_terminal(words[0], "--user", "root", *words[1:], path=str(closed))
        assert "warning" not in kept
    line = [sys.executable, "-m", "usdtbuild", "list", program]
    done = subprocess.run(line, env={**os.environ, "PYTHONPATH": f"{closed}:{ROOT}"}, capture_output=True, check=True)
    assert done.stderr == b""


def test_root_reads_what_lies_where_nobody_may_look(
    run: Any, forged: Any, tmp_path: Path, command: Any, everybodys: Any
) -> None:
    command = partial(command, python=everybodys.path, env=everybodys.environment)
    closed = tmp_path / "closed"
    closed.mkdir(0o700)
    run("gcc", "-g", "-c", forged(b"tick").with_suffix(".c"), "-o", closed / "forged.o")
    run("ar", "rcT", closed / "lib.a", closed / "forged.o")
    run("gcc", "-g", closed / "forged.o", "-no-pie", "-o", closed / "program")
    run("objcopy", "--only-keep-debug", closed / "program", closed / "program.debug")
    run("objcopy", "--strip-all", f"--add-gnu-debuglink={closed / 'program.debug'}", closed / "program")
    assert "victim:tick" in command("list", closed / "lib.a").out
    found = command("list", closed).out
    assert f"{closed / 'lib.a'}(" in found
    assert f"{closed / 'program'}: " in found
    assert " main\n" in command("functions", closed / "program").out
    assert "printf" in command("calls", closed / "program").out
    provider = closed / "victim.d"
    provider.write_text("provider victim { probe tick(int named); };\n")
    assert "int named" in command("script", "gdb", provider).out
    assert "int named" in command("script", "gdb", closed / "forged.o", "--provider", provider).out
    outside = tmp_path / "lib.a"
    run("ar", "rcT", outside, closed / "forged.o")
    assert "victim:tick" in command("list", outside).out  # below the archive's own folder
    inside = closed / "inner"
    inside.mkdir()
    run("ar", "rcT", inside / "lib.a", closed / "forged.o")
    said = command("list", inside / "lib.a")
    assert said.code == 1
    assert "permission denied; --user root keeps root's rights" in said.err
    assert "victim:tick" in command("list", "--user", "root", inside / "lib.a").out
    (closed / "forged.o").unlink()
    assert "no such file" in command("list", closed / "lib.a").err


CUT = """
import os, sys
from usdtbuild import apart, cli
from usdtbuild.commands import list_
before = list_.inspect
def inspect(image):
    os.truncate(sys.argv[2], 4096)  # as its owner can at any time
    return before(image)
list_.inspect = inspect
sys.exit(cli.main())
"""


@pytest.mark.parametrize("more", [(), ("--user", "root")])
def test_a_file_that_is_cut_short_is_one_clear_error(more: tuple[str, ...], forged: Any) -> None:
    path = forged(b"tick")
    path.chmod(0o777)
    os.truncate(path, 8 << 20)  # from 4 MB on it is mapped
    with path.open("ab") as file:
        file.write(path.read_bytes()[:60000])
    done = subprocess.run([sys.executable, "-c", CUT, "list", str(path), *more],
                          capture_output=True, text=True, check=False)  # fmt: skip
    assert done.stderr == f"usdtbuild: {path}: was cut short while it was read; try again when nobody changes it\n"
    assert (done.returncode, done.stdout) == (1, "")


def test_what_a_path_stands_for_is_known_before_it_is_opened(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    looked: list[int] = []

    def wanted(found: os.stat_result) -> bool:
        looked.append(found.st_mode)
        pipe.unlink()
        pipe.write_text("another")
        return len(looked) > 1

    assert descriptor_for(str(pipe), wanted) == -1
    assert stat.S_ISFIFO(looked[0])
    descriptor = descriptor_for(str(pipe), wanted)  # it has been replaced again
    assert os.read(descriptor, 9) == b"another"
    os.close(descriptor)


@pytest.mark.parametrize("command_", ["functions", "list --source"])
def test_a_debug_file_that_turns_into_a_fifo(
    command_: str, run: Any, forged: Any, folder: Path, attacker: Any, command: Any, tmp_path: Path
) -> None:
    debug = folder / "program.debug"
    path = forged(b"tick")
    run("objcopy", "--only-keep-debug", path, debug)
    run("objcopy", "--strip-all", f"--add-gnu-debuglink={debug}", path, folder / "program")
    debug.rename(tmp_path / "debug")
    (tmp_path / "debug").chmod(0o644)
    run("gcc", "-O2", Path(__file__).with_name("fifo_swapper.c"), "-o", tmp_path / "swapper")
    folder.chmod(0o777)
    assert attacker(tmp_path / "swapper", debug, tmp_path / "debug").stdout.readline()
    for _ in range(10):
        assert command(*command_.split(), folder / "program", timeout=20).code == 0


# -- reading apart -----------------------------------------------------------------------------------------------------


@pytest.fixture
def user(monkeypatch: pytest.MonkeyPatch) -> rights.User:
    monkeypatch.setattr(rights, "_check_reach", lambda _: None)  # the tests' own Python may be root's alone
    found = rights.chosen("daemon")
    assert found is not None
    return found


# Prints whose rights a signal's handler has that comes at any moment while it is looked up who can read files.
HANDLED = """
import os, signal, time
from usdtbuild import rights

users = set()
signal.signal(signal.SIGALRM, lambda *_: users.add(os.geteuid()))
signal.setitimer(signal.ITIMER_REAL, 0.00005, 0.00005)
until = time.monotonic() + 1
while time.monotonic() < until:
    rights._closed.cache_clear()
    rights.nobody()
signal.setitimer(signal.ITIMER_REAL, 0)
print(*users)
"""


def test_who_is_interrupted_has_all_rights(run: Any) -> None:
    """A worker takes threads' stops in a signal's handler, and without rights it puts nothing back."""
    assert run(sys.executable, "-c", HANDLED).stdout == "0\n"


def test_files_are_opened_with_rights_and_read_without(tmp_path: Path, user: rights.User) -> None:
    secret = tmp_path / "secret"
    secret.write_text("x")
    secret.chmod(0o600)

    def read(opened: Callable[[], None] | None) -> Refusal:
        assert opened is not None
        with secret.open() as file:
            opened()
            try:
                secret.read_text()
            except PermissionError:
                return Refusal(file.read(), f"{os.getresuid()} {os.getgroups()}")
        return Refusal("read again", "")

    found = apart.apart(user, read)
    assert found.what == "x"
    real = found.reason.partition(",")[0].strip("(")
    assert found.reason == f"({real}, {user.uid}, {real}) []"
    assert_nobodys(int(real))
    assert os.getresuid() == (0, 0, 0)


def test_a_trace_of_root_s_reads_files_without_any_user(user: rights.User) -> None:
    del user  # it lets the tests' own Python pass

    def read(opened: Callable[[], None] | None) -> Refusal:
        assert opened is not None
        opened()
        return Refusal(" ".join(map(str, os.getresuid())), "")

    for uid in map(int, apart.apart(rights.chosen("root"), read).what.split()):
        assert_nobodys(uid)


def test_build_commands_write_as_who_runs_them(command: Any, tmp_path: Path) -> None:
    (tmp_path / "app.d").write_text("provider app { probe go(int x); };\n")
    said = command("header", tmp_path / "app.d", "-o", tmp_path / "app.h", env={**os.environ, **SUDO})
    assert said.code == 0, said
    assert (tmp_path / "app.h").stat().st_uid == 0


class Evil:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.path),)


class EvilRecord(Evil):
    """Calls something of ours that is no record."""

    def __reduce__(self) -> Any:
        from usdtbuild.files import write_whole

        return write_whole, (str(self.path), b"")


@pytest.mark.parametrize("kind", [Evil, EvilRecord, "large", "dies"])
def test_what_has_no_rights_can_only_answer_with_records(
    kind: Any, tmp_path: Path, user: rights.User, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(apart, "ANSWER", 1000)

    def read(_: Any) -> Any:
        if kind == "dies":
            os._exit(0)
        return "x" * 2000 if kind == "large" else kind(tmp_path / "made")

    with pytest.raises(InputError, match="has ended, or gave an answer"):
        apart.apart(user, read)
    assert not (tmp_path / "made").exists()


def test_a_small_answer_does_not_unpack_to_gigabytes(user: rights.User, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each byte makes a list, of 64 bytes and more."""
    monkeypatch.setattr(pickle, "dump", lambda _, file, __: file.write(b"(" + b"]" * (24 << 20) + b"l."))
    limit, before = resource.getrlimit(resource.RLIMIT_AS), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(InputError, match="has ended, or gave an answer"):
        apart.apart(user, lambda _: None)
    assert (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) << 10 < ANSWER_MEMORY + (100 << 20)
    assert resource.getrlimit(resource.RLIMIT_AS) == limit


def stop(*_: Any) -> None:
    os.kill(os.getpid(), signal.SIGSTOP)


@pytest.mark.parametrize("moment", ["while it reads", "while it answers", "at its end"])
def test_who_stops_the_process_that_reads_does_not_stop_us(
    moment: str, user: rights.User, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In containers of few users another process of `nobody` can."""
    monkeypatch.setattr(apart, "_TICK", 0.02)
    monkeypatch.setattr(apart, "_PATIENCE", 0.2)
    read = stop if moment == "while it reads" else lambda _: Refusal("", "")
    if moment == "while it answers":
        monkeypatch.setattr(pickle, "dump", lambda _, file, __: stop(file.write(b"("), file.flush()))
    if moment == "at its end":
        monkeypatch.setattr(os, "_exit", stop)
        assert apart.apart(user, read) == Refusal("", "")
        return
    with pytest.raises(InputError, match="is kept from running"):
        apart.apart(user, read)


def stopped_now_and_then(opened: Callable[[], None] | None) -> Refusal:
    """Ask for files; a process of the same user stops this one again and again, and lets it go on for a moment."""
    assert opened is not None
    opened()
    reader = os.getpid()
    if not os.fork():
        while os.getppid() == reader:
            for number, seconds in ((signal.SIGSTOP, 0.05), (signal.SIGCONT, 0.002)):
                os.kill(reader, number)
                time.sleep(seconds)
        os._exit(0)
    for _ in range(10_000):
        time.sleep(0.001)
        apart.open_binary("/bin/sh")
    return Refusal("it has come to its end", "")


def test_who_is_stopped_now_and_then_has_no_more_time(user: rights.User, monkeypatch: pytest.MonkeyPatch) -> None:
    """As often as it is found running, and whatever it asks meanwhile."""
    monkeypatch.setattr(apart, "_TICK", 0.02)
    monkeypatch.setattr(apart, "_PATIENCE", 0.2)
    with pytest.raises(InputError, match="is kept from running"):
        apart.apart(user, stopped_now_and_then)


def test_who_is_stopped_with_us_has_all_his_time(user: rights.User, monkeypatch: pytest.MonkeyPatch) -> None:
    """By Ctrl-Z, more often than others may stop it."""
    monkeypatch.setattr(apart, "_PATIENCE", 0.2)
    hours = itertools.count(step=3600)
    monkeypatch.setattr(time, "monotonic", lambda: float(next(hours)))

    def read(_: Any) -> Refusal:
        for _ in range(5):
            if not (helper := os.fork()):
                time.sleep(0.01)
                os.kill(os.getppid(), signal.SIGCONT)
                os._exit(0)
            stop()
            os.waitpid(helper, 0)
            apart.open_binary("/bin/sh")
        return Refusal("it has come to its end", "")

    assert apart.apart(user, read).what == "it has come to its end"


# What becomes of the process that reads while it reads -> what the command says. It does to itself what others could.
ENDS = {
    "os.kill(os.getpid(), signal.SIGSTOP)": "is kept from running by a signal (SIGSTOP)",
    "os.kill(os.getpid(), signal.SIGKILL)": "was ended by signal 9 (Killed)",
    "os.kill(os.getpid(), signal.SIGBUS)": "was ended by signal 7 (Bus error)",
    "os.kill(os.getpid(), signal.SIGTERM)": "was ended by signal 15 (Terminated)",
    "os.kill(os.getpid(), signal.SIGINT)": "was ended by signal 2 (Interrupt)",
    "os.kill(os.getpid(), signal.SIGRTMAX - 1)": "was ended by signal 63 (Real-time signal 29)",
    "resource.prlimit(0, resource.RLIMIT_AS, (1 << 20, 1 << 20)); bytearray(8 << 20)":
        "cannot allocate memory; it may have a limit (ulimit -a)",
    "resource.prlimit(0, resource.RLIMIT_NOFILE, (3, 3)); open('/dev/null')":
        "too many open files; it may have a limit (ulimit -a)",
}  # fmt: skip
ENDED = """
import os, resource, signal, sys
from usdtbuild import apart, cli
from usdtbuild.commands import list_
apart._TICK, apart._PATIENCE = 0.02, 0.2
def inspect(image):
    DONE
list_.inspect = inspect
sys.exit(cli.main())
"""


@pytest.mark.parametrize("done", ENDS)
def test_whatever_becomes_of_who_reads_is_one_clear_error(done: str, forged: Any) -> None:
    words = [sys.executable, "-c", ENDED.replace("DONE", done), "list", str(forged(b"tick"))]
    said = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    assert said.stderr == f"usdtbuild: the process that reads files: {ENDS[done]}\n"
    assert (said.returncode, said.stdout) == (1, "")


def test_who_has_too_little_memory_to_answer_is_one_clear_error(user: rights.User) -> None:
    def read(_: Any) -> Any:
        return bytearray(1 << 60)

    with pytest.raises(InputError, match=r"^the process that reads files: cannot allocate memory"):
        apart.apart(user, read)


@pytest.mark.parametrize("error", [InputError("file", "is bad", "mend it"), PermissionError(13, "no", "/x")])
def test_errors_come_through(error: Exception, user: rights.User) -> None:
    def read(_: Any) -> Any:
        raise error

    with pytest.raises(type(error)) as caught:
        apart.apart(user, read)
    assert str(caught.value) == str(error)


def test_the_worker_unpickles_nothing_that_comes_after_its_job(running: str, tmp_path: Path) -> None:
    with Session(Job(Wanted(), pids=(int(running),))) as session:
        session.start()
        assert isinstance(session, Session)
        assert session._worker is not None
        session._worker.link.send(Evil(tmp_path / "made"))
        session.stop()
        list(session.batches())
    assert not (tmp_path / "made").exists()


def test_a_reader_that_is_two_users_at_once_demangles() -> None:
    """The demangler gets limits, which the kernel lets nobody set who isn't wholly the same user."""
    child = os.fork()
    if not child:
        code = 2
        try:
            os.setgroups([])
            os.setresgid(65534, 65534, 65534)
            os.setresuid(0x7A000000 + os.getpid(), 65534, 0x7A000000 + os.getpid())
            code = demangle(["_ZN4shop3taxEi"]) != {"_ZN4shop3taxEi": "shop::tax(int)"}
        finally:
            os._exit(code)
    assert os.waitpid(child, 0)[1] == 0
