"""Links and files of somebody else's, in a folder where everybody may make some, in the place of root's outputs."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from usdtbuild import files, new_project
from usdtbuild.errors import InputError
from usdtbuild.outputs import Outputs

NOBODY = 65534
SECRET = "root's own\n"


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    path = tmp_path / "secret"
    path.write_text(SECRET)
    path.chmod(0o600)
    return path


def link_of_theirs(path: Path, leads_to: Path) -> None:
    path.symlink_to(leads_to)
    os.chown(path, NOBODY, NOBODY, follow_symlinks=False)


@pytest.fixture
def written(tmp_path: Path, command: Any) -> Any:
    """Each command that has an output, to be run with the output's name."""
    (tmp_path / "app.d").write_text("provider app { probe go(int x); };\n")
    (tmp_path / "app.c").write_text('#include "app.h"\nint main(void) { APP_GO(1); return 0; }\n')
    assert command("header", "--formats=dof", "app.d", "-o", "app.h", cwd=tmp_path).code == 0
    os.system(f"cd {tmp_path} && gcc -c app.c -o plain.o")
    assert command("cc", "--", "gcc", "app.c", "-o", "app", cwd=tmp_path).code == 0
    lines = {
        "header": ("header", "--formats=dof", "app.d", "-o"),
        "instrument": ("instrument", "plain.o", "-o"),
        "trace": ("trace", "-o", None, "--", "./app"),
        "count": ("trace", "--count", "-o", None, "--", "./app"),
        "cc": ("cc", "--", "gcc", "-c", "app.c", "-o"),
    }

    def run(name: str, output: Path) -> Any:
        words = [str(output) if word is None else word for word in lines[name]]
        return command(*words, *([] if None in lines[name] else [output]), cwd=tmp_path)

    return run


@pytest.mark.parametrize("name", ["header", "instrument", "trace", "count"])
@pytest.mark.parametrize("way", ["last", "folder", "second"])
def test_links_of_others_are_not_followed(way: str, name: str, folder: Path, secret: Path, written: Any) -> None:
    suffix = ".jsonl" if name in ("trace", "count") else ""
    secret = secret.rename(secret.with_name("secret" + suffix))
    if way == "last":
        output = folder / f"out{suffix}"
        link_of_theirs(output, secret)
    elif way == "folder":
        link_of_theirs(folder / "theirs", secret.parent)
        output = folder / "theirs" / secret.name
    else:  # root's own link leads to theirs
        link_of_theirs(folder / f"theirs{suffix}", secret)
        output = secret.parent / f"mine{suffix}"
        output.symlink_to(folder / f"theirs{suffix}")
    said = written(name, output)
    assert said.code == 1, said
    assert f"is a link of user {NOBODY}" in said.err
    assert secret.read_text() == SECRET
    assert secret.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("name", ["header", "instrument", "trace"])
def test_files_of_others_are_not_taken_for_ours(name: str, folder: Path, written: Any) -> None:
    output = folder / ("out.jsonl" if name == "trace" else "out")
    output.write_text("theirs")
    os.chown(output, NOBODY, NOBODY)
    said = written(name, output)
    assert said.code == 1, said
    assert f"is a file of user {NOBODY}" in said.err
    assert output.read_text() == "theirs"


@pytest.mark.parametrize("name", ["header", "instrument", "trace"])
def test_own_links_are_followed_and_owner_and_mode_kept(name: str, folder: Path, secret: Path, written: Any) -> None:
    output = folder / ("out.jsonl" if name == "trace" else "out")
    output.symlink_to(secret)
    os.chown(secret, 1234, 1235)
    said = written(name, output)
    assert said.code == 0, said
    assert output.is_symlink()
    status = secret.stat()
    assert (status.st_uid, status.st_gid, status.st_mode & 0o777) == (1234, 1235, 0o600)
    assert secret.read_text(errors="replace") != SECRET


# -- folders that are made ---------------------------------------------------------------------------------------------

MAKING = {
    "init": ("init", "cmake", "--name", "app", "FOLDER"),
    "vendor": ("vendor", "meson", "FOLDER"),
    "install-dtrace": ("install-dtrace", "FOLDER"),
    "ctf": ("trace", "-o", "FOLDER", "--", "./app"),
}


@pytest.mark.parametrize("name", MAKING)
@pytest.mark.parametrize("way", ["folder", "new", "deep"])
def test_no_folder_is_made_where_a_link_of_theirs_leads(
    way: str, name: str, folder: Path, tmp_path: Path, command: Any, written: Any
) -> None:
    """`new` is a link to what isn't there yet."""
    ours = tmp_path / "ours"
    ours.mkdir()
    link_of_theirs(folder / "theirs.ctf", ours / "new" if way == "new" else ours)
    output = folder / {"folder": "theirs.ctf/x.ctf", "new": "theirs.ctf", "deep": "theirs.ctf/deep/er/x.ctf"}[way]
    said = command(*(str(output) if word == "FOLDER" else word for word in MAKING[name]), cwd=tmp_path)
    assert said.code == 1, said
    assert f"is a link of user {NOBODY}" in said.err or (name, way) == ("ctf", "deep")
    assert said.err.count("\n") == 1, said
    assert list(ours.iterdir()) == []


def test_a_new_project_is_written_where_it_was_begun(
    theirs: Path, secret: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The folder that is to be filled is theirs, and they put a link in the place of what root has made in it."""
    before = set(secret.parent.iterdir())
    write_whole = files.write_whole

    def swapped(target: str, content: bytes) -> None:
        if not (theirs / "moved").exists():
            (theirs / "project").rename(theirs / "moved")
            link_of_theirs(theirs / "project", secret.parent)
        write_whole(target, content)

    monkeypatch.setattr("usdtbuild.new_project.write_whole", swapped)
    with contextlib.suppress(InputError):
        new_project.write({"one.txt": "1", "secret": "2", "two/three.txt": "3"}, theirs / "project")
    assert set(secret.parent.iterdir()) == before
    assert secret.read_text() == SECRET


# -- a folder that is theirs -------------------------------------------------------------------------------------------


@pytest.fixture
def theirs(folder: Path) -> Path:
    """A folder of somebody else's, in which only he may write; and root."""
    path = folder / "theirs"
    path.mkdir(0o755)
    os.chown(path, NOBODY, NOBODY)
    return path


@pytest.mark.parametrize("name", ["header", "instrument", "trace"])
@pytest.mark.parametrize("way", ["last", "folder"])
def test_their_links_lead_to_their_own_folders_only(
    way: str, name: str, theirs: Path, secret: Path, written: Any
) -> None:
    suffix = ".jsonl" if name == "trace" else ""
    secret = secret.rename(secret.with_name("secret" + suffix))
    link_of_theirs(theirs / f"link{suffix}", secret if way == "last" else secret.parent)
    output = theirs / f"link{suffix}" if way == "last" else theirs / f"link{suffix}" / secret.name
    said = written(name, output)
    assert said.code == 1, said
    assert f"a link of user {NOBODY} leads to {secret}, in a folder that isn't his" in said.err
    assert secret.read_text() == SECRET
    within = theirs / "within"
    within.mkdir()
    os.chown(within, NOBODY, NOBODY)
    link_of_theirs(theirs / "good", within)
    assert written(name, theirs / "good" / f"out{suffix}").code == 0
    assert (within / f"out{suffix}").stat().st_size


@pytest.fixture
def pipe_of_theirs(theirs: Path) -> Path:
    path = theirs / "pipe.jsonl"
    os.mkfifo(path, 0o600)
    os.chown(path, NOBODY, NOBODY)
    return path


@pytest.mark.parametrize("name", ["header", "instrument", "trace", "count", "cc"])
def test_a_pipe_of_theirs_that_nobody_reads_is_an_error(name: str, pipe_of_theirs: Path, written: Any) -> None:
    said = written(name, pipe_of_theirs)
    assert (said.code, "pipe of another user, and nobody reads it" in said.err) == (1, True), said


@contextlib.contextmanager
def slowly(reader: int) -> Iterator[None]:
    """Let a pipe be read, but slowly, in the body of the `with`."""
    over = threading.Event()

    def read() -> None:
        while not over.wait(0.02):
            with contextlib.suppress(BlockingIOError):
                os.read(reader, 4096)

    thread = threading.Thread(target=read)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def test_who_opens_a_pipe_of_theirs_and_does_not_read_it_is_not_waited_for(
    pipe_of_theirs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "_PATIENCE", 0.1)
    reader = os.open(pipe_of_theirs, os.O_RDONLY | os.O_NONBLOCK)
    try:
        with pytest.raises(InputError, match=r"not all was read in 0\.1 s"):
            files.write_whole(str(pipe_of_theirs), b"x" * 1_000_000)
        os.read(reader, 1_000_000)
        with pytest.raises(InputError, match=r"not all was read in 0\.1 s"), slowly(reader):
            files.write_whole(str(pipe_of_theirs), b"x" * 10_000_000)
        os.set_blocking(reader, False)
        with contextlib.suppress(BlockingIOError):
            while os.read(reader, 1_000_000):
                pass
        files.write_whole(str(pipe_of_theirs), b"short")
        assert os.read(reader, 100) == b"short"
    finally:
        os.close(reader)


@pytest.mark.parametrize("when", ["before it is written", "before it is in its place"])
def test_a_folder_that_is_swapped_leads_nowhere_else(when: str, theirs: Path, secret: Path) -> None:
    inner = theirs / "inner"
    inner.mkdir()
    os.chown(inner, NOBODY, NOBODY)
    before = set(secret.parent.iterdir())

    def swap() -> None:
        inner.rename(theirs / "moved")
        link_of_theirs(inner, secret.parent)

    with Outputs() as outputs:
        staged = outputs.stage(str(inner / "secret"))
        if when == "before it is written":
            swap()
        Path(staged).write_text("output")
        if when != "before it is written":
            swap()
    assert secret.read_text() == SECRET
    assert set(secret.parent.iterdir()) == before
    assert (theirs / "moved/secret").read_text() == "output"


def test_what_they_put_in_the_place_of_a_staged_file_keeps_its_owner(theirs: Path, secret: Path) -> None:
    target = theirs / "out"
    target.write_text("old")
    os.chown(target, NOBODY, NOBODY)
    with pytest.raises(InputError, match="somebody else has replaced it"), Outputs() as outputs:  # noqa: PT012
        staged = Path(outputs.stage(str(target)))
        staged.write_text("output")
        staged.unlink()
        os.link(secret, staged)
    assert (secret.stat().st_uid, secret.read_text()) == (0, SECRET)
    assert target.read_text() == "old"


def test_what_can_t_be_found_again_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def closed(path: str) -> None:
        raise PermissionError(13, "Permission denied", path)

    with pytest.raises(InputError, match="can't be written: permission denied"), Outputs() as outputs:  # noqa: PT012
        Path(outputs.stage(str(tmp_path / "out"))).write_text("output")
        monkeypatch.setattr("usdtbuild.outputs.os.lstat", closed)
