"""Root's commands give root's rights up for whoever called sudo, or is named: all but what holds a traced process.

The user is `daemon`, whom every Linux system has.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from usdtbuild import rights
from usdtbuild.errors import InputError, UsageError
from usdtbuild.tracing.job import Job
from usdtbuild.tracing.model import Refusal
from usdtbuild.tracing.selection import Wanted
from usdtbuild.tracing.session import Session

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
    words = [everybodys.path, "-m", "usdtbuild", "trace", "-p", running, "--engine", engine, "--duration", "3"]
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
    said = command("trace", "--engine", engine, "--user", "daemon", "--", *PRINTS_IDS, cwd=folder, **python)
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
        rights._check_reach(rights.chosen("daemon"))
    assert os.getresuid() == (0, 0, 0)


# -- reading apart -----------------------------------------------------------------------------------------------------


@pytest.fixture
def user(monkeypatch: pytest.MonkeyPatch) -> rights.User:
    monkeypatch.setattr(rights, "_check_reach", lambda _: None)  # the tests' own Python may be root's alone
    found = rights.chosen("daemon")
    assert found is not None
    return found


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

    found = rights.apart(user, read)
    uid = user.uid
    assert found == Refusal("x", f"({uid}, {uid}, {uid}) []")
    assert os.getresuid() == (0, 0, 0)


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
    monkeypatch.setattr(rights, "ANSWER", 1000)

    def read(_: Any) -> Any:
        if kind == "dies":
            os._exit(0)
        return "x" * 2000 if kind == "large" else kind(tmp_path / "made")

    with pytest.raises(InputError, match="has ended, or said too much"):
        rights.apart(user, read)
    assert not (tmp_path / "made").exists()


@pytest.mark.parametrize("error", [InputError("file", "is bad", "mend it"), PermissionError(13, "no", "/x")])
def test_errors_come_through(error: Exception, user: rights.User) -> None:
    def read(_: Any) -> Any:
        raise error

    with pytest.raises(type(error)) as caught:
        rights.apart(user, read)
    assert str(caught.value) == str(error)


def test_the_worker_unpickles_nothing_that_comes_after_its_job(running: str, tmp_path: Path) -> None:
    with Session(Job(Wanted(), pid=int(running))) as session:
        session.start()
        assert session._link is not None
        session._link.send(Evil(tmp_path / "made"))
        session.stop()
        list(session.batches())
    assert not (tmp_path / "made").exists()
