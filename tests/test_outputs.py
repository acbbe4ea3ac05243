"""Where outputs go: to what is no regular file, through symbolic links, into folders where nothing can be made.

Whoever writes as root could replace /dev/null by a file. So these tests run in a mount namespace of their own, with
devices of their own.
"""

from __future__ import annotations

import os
import posix
import shlex
import shutil
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from usdtbuild import files
from usdtbuild.errors import InputError
from usdtbuild.outputs import Outputs

PROVIDER = "provider app { probe req__done(int fd, char *what); };\n"
SOURCE = '#include "app.h"\nint main(int c, char **v) { (void)v; APP_REQ_DONE(c, "x"); return 0; }\n'
OURS = f"{shlex.quote(sys.executable)} -m usdtbuild"
DTRACE = f"{shlex.quote(sys.executable)} -m usdtbuild.dtrace"
# What every command that writes a file is told; $O is the output.
COMMANDS = {
    "instrument": f"{OURS} instrument main.o -o $O",
    "instrument, nothing to do": f"{OURS} instrument done.o -o $O",
    "instrument, relative table": f"{OURS} instrument main.o -o $O --patchable-table=relative",
    "header": f"{OURS} header app.d -o $O",
    "header, long way": f"{OURS} header app.d --provider app -o $O",
    "header --doc": f"{OURS} header app.d -o rest.h --doc $O",
    "header --depfile": f"{OURS} header app.d -o rest.h --depfile $O",
    "dtrace -h": f"{DTRACE} -h -s app.d -o $O",
    "dtrace -G": f"{DTRACE} -G -s app.d -o $O calls.o",
    "cc gcc": f"{OURS} cc -- gcc -c main.c -o $O",
    "cc clang": f"{OURS} cc -- clang -c main.c -o $O",
    "cc as": f"{OURS} cc -- as main.s -o $O",
}
DEVICES = """
mount -t tmpfs none /dev && mknod -m 666 /dev/null c 1 3 && mknod -m 666 /dev/full c 1 7 &&
mknod -m 666 /dev/urandom c 1 9 && ln -s /proc/self/fd /dev/fd && ln -s fd/1 /dev/stdout &&
ln -s fd/2 /dev/stderr || exit 99
"""


@pytest.fixture(scope="session")
def folder(usdtbuild: Any, run: Any, tmp_path_factory: pytest.TempPathFactory, compiled: Any, header_of: Any) -> Path:
    """A provider, its header, a source, and the same as assembly and as objects."""
    made = tmp_path_factory.mktemp("outputs")
    header_of(made, "app.d", PROVIDER, "--formats=dof")
    compiled(made, "main.c", SOURCE, "-fpatchable-function-entry=4,2", "-c")
    run("gcc", "-DUSDT_PROBES_BY_CALL", "-c", "main.c", "-o", "calls.o", cwd=made)
    run("gcc", "-S", "main.c", "-o", "main.s", cwd=made)
    usdtbuild("instrument", "main.o", "-o", "done.o", cwd=made)
    return made


@pytest.fixture
def work(folder: Path, tmp_path: Path) -> Path:
    shutil.copytree(folder, tmp_path / "work")
    return tmp_path / "work"


@pytest.fixture
def with_own_devices(need: Callable[[str], str], work: Path) -> Callable[[str], None]:
    """Run a script in a mount namespace of its own, whose /dev is its own."""
    if os.geteuid() != 0:
        pytest.skip("only root can make devices, and replace them")

    def run_script(script: str) -> None:
        words = [need("unshare"), "--mount", "sh", "-ec", DEVICES + script]
        done = subprocess.run(words, cwd=work, capture_output=True, text=True, timeout=120, check=False)
        # A root folder that is no mount, as in a plain chroot, can't be parted from the machine's.
        if done.returncode == 99 or "unshare failed" in done.stderr or "root filesystem propagation" in done.stderr:
            pytest.skip("no mount namespace with devices can be made here")
        assert done.returncode == 0, done.stdout + done.stderr

    return run_script


def command(name: str, need: Callable[[str], str]) -> str:
    if name.startswith("cc "):
        need(name[3:])
    return COMMANDS[name]


@pytest.mark.parametrize("name", COMMANDS)
def test_what_is_no_file_is_written_to_and_stays(
    name: str, with_own_devices: Callable[[str], None], work: Path, need: Callable[[str], str]
) -> None:
    words = command(name, need)
    with_own_devices(
        f"""
        O=/dev/null; {words}; test -c /dev/null
        O=/dev/stdout; {words} > redirected; test -L /dev/stdout
        O=/dev/stdout; (echo before; {words}; echo after) > around; test -L /dev/stdout
        O=/dev/stdout; {words} | cat > piped; test -L /dev/stdout
        O=/dev/fd/7; {words} 7> numbered
        mkfifo fifo; cat fifo > fed & O=fifo; {words}; wait; test -p fifo
        O=/dev/full; if {words}; then exit 1; fi; test -c /dev/full
        """
    )
    whole = (work / "redirected").read_bytes()
    check_whole(name, whole)
    assert (work / "around").read_bytes() == b"before\n" + whole + b"after\n"
    assert (work / "piped").read_bytes() == whole
    for other in ("numbered", "fed"):
        check_whole(name, (work / other).read_bytes())
    assert not list(work.glob(".*"))


def check_whole(name: str, content: bytes) -> None:
    if "--" in name:
        assert b"app" in content
    elif "header" in name or name == "dtrace -h":
        assert content.rstrip().endswith(b"#endif") or content.rstrip().endswith(b"*/")
        assert b"APP_REQ_DONE" in content
    elif name == "dtrace -G":
        assert content[:4] == b"\x7fELF"
        assert b"__dtrace_app___req__done" in content
    else:
        assert content[:4] == b"\x7fELF"
        assert b".note.stapsdt" in content


@pytest.mark.parametrize("name", [name for name in COMMANDS if name != "cc clang"])
@pytest.mark.parametrize("dangling", [False, True], ids=["to a file", "dangling"])
def test_a_symbolic_link_stays_and_what_it_leads_to_is_replaced(
    name: str, dangling: bool, work: Path, need: Callable[[str], str], run: Any
) -> None:
    """Clang replaces links itself, and so does GNU as where the file has something in it: there we look like them."""
    if name.startswith("cc ") and not dangling:
        pytest.skip("the compiler replaces the link itself")
    real = work / "real"
    real.mkdir()
    if not dangling:
        (real / "there").write_text("old")
    (work / "second").symlink_to("real/there")
    (work / "link").symlink_to("second")
    run("sh", "-ec", f"O=link; {command(name, need)}", cwd=work)
    assert (work / "link").readlink() == Path("second")
    assert (work / "second").readlink() == Path("real/there")
    check_whole(name, (real / "there").read_bytes())
    assert [path.name for path in real.iterdir()] == ["there"]


def test_several_objects_into_a_folder_go_through_pipes_and_links_too(work: Path, run: Any) -> None:
    out = work / "out"
    out.mkdir()
    shutil.copy(work / "main.o", work / "two.o")
    os.mkfifo(out / "main.o")
    (out / "two.o").symlink_to("elsewhere.o")
    run("sh", "-ec", f"cat out/main.o > fed & {OURS} instrument main.o two.o --output-dir out; wait", cwd=work)
    for path in (work / "fed", out / "elsewhere.o"):
        check_whole("instrument", path.read_bytes())
    assert stat.S_ISFIFO((out / "main.o").stat().st_mode)
    assert (out / "two.o").is_symlink()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_who_waits_for_the_reader_of_a_pipe_is_ended_by_a_signal(number: int, work: Path) -> None:
    """A trace, too, which has its own use for signals as long as it traces."""
    os.mkfifo(work / "pipe")
    words = [*OURS.split(), "trace", "-o", "pipe", "--", "sh", "-c", "echo over"]
    with subprocess.Popen(words, cwd=work, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as trace:
        assert trace.stdout is not None
        assert trace.stdout.readline() == b"over\n"
        deadline = time.monotonic() + 60
        while trace.poll() is None and time.monotonic() < deadline:  # the first ones end the trace
            trace.send_signal(number)
            time.sleep(0.2)
        assert trace.poll() in {-number, 128 + number}
    assert sorted(path.name for path in work.glob("*pipe*")) == ["pipe"]


@pytest.mark.parametrize("name", [name for name in COMMANDS if not name.startswith("cc ")])
def test_a_new_file_has_the_umasks_mode_whatever_the_inputs(name: str, work: Path, run: Any) -> None:
    for path in ("main.o", "done.o", "app.d"):
        (work / path).chmod(0o500)
    run("sh", "-ec", f"O=made; {COMMANDS[name]}", cwd=work, umask=0o027)
    assert stat.S_IMODE((work / "made").stat().st_mode) == 0o640


def test_objects_changed_in_place_keep_their_mode(work: Path, run: Any) -> None:
    (work / "main.o").chmod(0o604)
    run("sh", "-ec", f"{DTRACE} -G --in-place -s app.d -o app.o main.o", cwd=work, umask=0o027)
    check_whole("instrument", (work / "main.o").read_bytes())
    assert stat.S_IMODE((work / "main.o").stat().st_mode) == 0o604


@pytest.mark.parametrize("kind", ["fifo", "device"])
def test_install_dtrace_and_vendor_leave_alone_what_is_no_file(
    kind: str, with_own_devices: Callable[[str], None]
) -> None:
    make = "mkfifo" if kind == "fifo" else "cp -a /dev/full"
    with_own_devices(
        f"""
        mkdir -p bin subprojects/usdtbuild
        for path in bin/dtrace subprojects/usdtbuild/meson.build; do {make} $path; done
        if timeout 20 {OURS} install-dtrace bin; then exit 1; fi
        if timeout 20 {OURS} vendor meson; then exit 1; fi
        test ! -f bin/dtrace; test ! -f subprojects/usdtbuild/meson.build; test ! -e subprojects/usdtbuild.wrap
        """
    )


# --- all or nothing ---------------------------------------------------------------------------------------------------


def content_of(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize(
    "words",
    [
        "instrument main.o bad.o --output-dir out",
        "instrument main.o --output-dir nowhere",
        "instrument main.o missing.o --output-dir out",
        "instrument main.o two.o other/dir.o --output-dir out",
        "header app.d -o new.h --doc out/doc.md --depfile nowhere/d",
        "header app.d -o new.h --doc out/dir.o",
    ],
)
def test_with_one_bad_file_nothing_is_written(words: str, work: Path, usdtbuild: Any) -> None:
    out = work / "out"
    (out / "dir.o").mkdir(parents=True)
    (out / "main.o").write_text("old")
    (work / "other").mkdir()
    for name in ("two.o", "other/dir.o"):
        shutil.copy(work / "main.o", work / name)
    (work / "bad.o").write_bytes((work / "main.o").read_bytes()[:-700])
    before = content_of(work)
    usdtbuild(*words.split(), code=1, cwd=work)
    assert content_of(work) == before


def test_in_place_with_one_bad_object_changes_none(work: Path, run: Any) -> None:
    (work / "bad.o").write_bytes((work / "main.o").read_bytes()[:-700])
    before = content_of(work)
    words = [sys.executable, "-m", "usdtbuild.dtrace", "-G", "--in-place", "-s", "app.d", "-o", "app.o"]
    run(*words, "main.o", "bad.o", cwd=work, code=1)
    assert content_of(work) == before


def test_in_place_with_an_output_that_cannot_be_written_changes_none(work: Path, run: Any) -> None:
    before = content_of(work)
    words = [sys.executable, "-m", "usdtbuild.dtrace", "-G", "--in-place", "-s", "app.d", "-o", "nowhere/app.o"]
    run(*words, "main.o", cwd=work, code=1)
    assert content_of(work) == before


# --- folders where nothing can be made --------------------------------------------------------------------------------


@pytest.fixture
def other_user(run: Any, need: Callable[[str], str]) -> list[str]:
    if os.geteuid() != 0:
        pytest.skip("only root may become another user")
    prefix = [need("setpriv"), "--reuid=65534", "--regid=65534", "--clear-groups"]
    if run(*prefix, sys.executable, "-c", "import usdtbuild.cli", code=None, cwd="/").returncode:
        pytest.skip("another user can't read this checkout")
    return prefix


@pytest.mark.parametrize("name", ["instrument", "header", "dtrace -G", "cc gcc", "cc clang", "cc as"])
def test_in_a_read_only_folder_a_writable_file_is_written(
    name: str, folder: Path, other_user: list[str], need: Callable[[str], str], run: Any
) -> None:
    words = command(name, need)
    work = Path(run("mktemp", "-d").stdout.strip())  # pytest's own folders are closed to others
    try:
        shutil.copytree(folder, work, dirs_exist_ok=True)
        for path in work.iterdir():
            path.chmod(0o644)
        (work / "made").write_bytes(b"old" * 10_000)
        (work / "made").chmod(0o666)
        work.chmod(0o755)
        run(*other_user, *shlex.split(words.replace("$O", "made")), cwd=work)
        check_whole(name, (work / "made").read_bytes())
        assert b"oldold" not in (work / "made").read_bytes()
        assert not list(work.glob(".*"))
    finally:
        shutil.rmtree(work)


def test_in_a_read_only_folder_an_object_that_cannot_be_instrumented_is_emptied(
    folder: Path, other_user: list[str], run: Any
) -> None:
    work = Path(run("mktemp", "-d").stdout.strip())
    try:
        (work / "main.c").write_text("void __dtrace_other___go(int); void f(void) { __dtrace_other___go(1); }\n")
        (work / "main.o").write_text("old")
        (work / "main.c").chmod(0o644)
        (work / "main.o").chmod(0o666)
        work.chmod(0o755)
        words = shlex.split(f"{OURS} cc -- gcc -c main.c -o main.o")
        done = run(*other_user, *words, cwd=work, code=1)
        assert "usdtbuild: main.o: " in done.stderr
        assert (work / "main.o").read_bytes() == b""
    finally:
        shutil.rmtree(work)


# --- what others may see and do meanwhile -----------------------------------------------------------------------------


def test_what_was_there_comes_back_when_a_later_file_cannot_be_renamed(tmp_path: Path) -> None:
    (tmp_path / "one").write_text("old")
    with pytest.raises(InputError, match="three"), Outputs() as outputs:  # noqa: PT012
        for name in ("one", "two", "three"):
            Path(outputs.stage(str(tmp_path / name))).write_text("new")
        (tmp_path / "three").mkdir()
    assert content_of(tmp_path) == {"one": b"old"}


@pytest.mark.parametrize("flag", [os.O_TMPFILE, os.O_DIRECTORY], ids=["nameless", "named"])
@pytest.mark.parametrize("planted", ["file", "link"])
def test_a_file_that_somebody_put_at_the_temporary_name_is_left_alone(
    planted: str, flag: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(posix, "O_TMPFILE", flag)  # a folder, opened to write to, fails as where there is none
    monkeypatch.setattr(files, "temporary_beside", lambda path: f"{path}.tmp")
    theirs = tmp_path / "out.tmp"
    if planted == "link":
        (tmp_path / "theirs").write_text("theirs")
        theirs.symlink_to("theirs")
    else:
        theirs.write_text("theirs")
    with pytest.raises(InputError, match="file exists"):
        files.write_whole(str(tmp_path / "out"), b"ours")
    assert theirs.read_text() == "theirs"
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("how", ["given", "replaced"])
def test_a_private_file_is_private_while_it_is_written(
    how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[int] = []
    write = files._write_all

    def look(descriptor: int, data: bytes | bytearray, offset: int | None) -> None:
        seen.append(stat.S_IMODE(os.fstat(descriptor).st_mode))
        write(descriptor, data, offset)

    monkeypatch.setattr(files, "_write_all", look)
    target = tmp_path / "target"
    target.write_bytes(b"old")
    target.chmod(0o600)
    with files.open_input(str(target)) as opened:
        if how == "given":
            target.chmod(0o644)
            files.write_edited(opened, [], b" and more", str(target), mode=0o600)
        else:
            files.write_edited(opened, [], b" and more", str(target))
    assert seen == [0o600]
    assert stat.S_IMODE(target.stat().st_mode) == 0o600
    assert target.read_bytes() == b"old and more"


KILLED = """
import os, sys
from usdtbuild import files
files.%s = lambda *_: os.kill(os.getpid(), 9)
if sys.argv[1] == "whole":
    files.write_whole("new", b"content")
else:
    with files.open_input("source") as source:
        files.write_edited(source, [(0, b"C")], b"", "new")
"""


@pytest.mark.parametrize("how", ["whole", "edited"])
@pytest.mark.parametrize("before", ["_write_all", "keep_owner", "give_name"])
def test_a_killed_command_leaves_no_file_beside_its_output(how: str, before: str, tmp_path: Path) -> None:
    (tmp_path / "source").write_bytes(b"content")
    try:
        os.close(os.open(tmp_path, os.O_TMPFILE | os.O_WRONLY))
    except OSError:
        pytest.skip("the file system has no files without names")
    words = [sys.executable, "-c", KILLED % before, how]
    environment = {**os.environ, "PYTHONPATH": str(Path(files.__file__).parent.parent)}
    assert subprocess.run(words, cwd=tmp_path, env=environment, check=False).returncode == -9
    assert [path.name for path in tmp_path.iterdir()] == ["source"]
