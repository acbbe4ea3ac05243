"""Links and files of somebody else's, in a folder where everybody may make some, in the place of root's outputs."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

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
