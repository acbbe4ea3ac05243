"""What `usdtbuild functions` can be asked about: the same as `usdtbuild list`, with the same rule for numbers."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture(scope="module")
def tree(run: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with an object, an archive of two, a thin one, a program that waits, and a file that was cut short."""
    folder = tmp_path_factory.mktemp("tree")
    (folder / "one.c").write_text("int one(void) { return 1; }\n")
    (folder / "two.c").write_text("int two(void) { return 2; }\n")
    waits = '#include <stdio.h>\nint main(void) { puts("ready"); fflush(stdout); getchar(); }\n'
    (folder / "main.c").write_text(waits)
    options = ["gcc", "-fpatchable-function-entry=4,2"]
    run(*options, "-c", "one.c", "two.c", cwd=folder)
    run(*options, "main.c", "-o", "program", cwd=folder)
    run("ar", "rc", "lib.a", "one.o", "two.o", cwd=folder)
    run("ar", "rcT", "thin.a", "one.o", "two.o", cwd=folder)
    (folder / "sub").mkdir()
    (folder / "two.o").rename(folder / "sub" / "two.o")
    shutil.copy(folder / "sub" / "two.o", folder / "two.o")
    return folder


def functions(usdtbuild: Any, *targets: Any, **more: Any) -> dict[str, list[str]]:
    files = json.loads(usdtbuild("functions", "--json", *targets, **more).stdout)["files"]
    return {file["file"]: [function["name"] for function in file["functions"]] for file in files}


@pytest.mark.parametrize("archive", ["lib.a", "thin.a"])
def test_an_archives_members(archive: str, tree: Path, usdtbuild: Any) -> None:
    assert functions(usdtbuild, archive, cwd=tree) == {f"{archive}(one.o)": ["one"], f"{archive}(two.o)": ["two"]}


def test_a_folders_files(tree: Path, usdtbuild: Any, tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    shutil.copytree(tree, folder)
    (folder / "cut.o").write_bytes((tree / "one.o").read_bytes()[:300])
    (folder / "program").unlink()
    found = functions(usdtbuild, folder, code=0)
    names = ["lib.a(one.o)", "lib.a(two.o)", "one.o", "thin.a(one.o)", "thin.a(two.o)", "two.o", "sub/two.o"]
    assert list(found) == [f"{folder}/{name}" for name in names]
    done = usdtbuild("functions", "--totals", folder)
    assert done.stderr.startswith(f"usdtbuild: warning: {folder}/cut.o: ")
    assert done.stdout.count("hotpatchable") == len(names)


def test_explanations_of_an_archives_members(tree: Path, usdtbuild: Any) -> None:
    assert "prologue patch" in usdtbuild("functions", "--explain", "--patchable", "9,9", "lib.a", cwd=tree).stdout


def test_a_number_is_a_process_and_a_file_is_given_with_its_folder(tree: Path, usdtbuild: Any, tmp_path: Path) -> None:
    with subprocess.Popen([tree / "program"], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        shutil.copy(tree / "one.o", tmp_path / str(process.pid))
        for command in ("functions", "list"):
            by_number = usdtbuild(command, "--json", process.pid, cwd=tmp_path).stdout
            by_path = usdtbuild(command, "--json", f"./{process.pid}", cwd=tmp_path).stdout
            assert f"./{process.pid}" not in by_number
            assert f"./{process.pid}" in by_path
        process.kill()


@pytest.mark.parametrize("number", ["²", "٣", "①", "1" * 30, "-1", "0"])
@pytest.mark.parametrize("command", ["functions", "list", "verify"])
def test_what_is_no_number_or_no_process_is_one_line(command: str, number: str, usdtbuild: Any) -> None:
    done = usdtbuild(command, "--", number, code=1)
    (line,) = done.stderr.splitlines()
    assert line.startswith("usdtbuild: ")


@pytest.mark.parametrize("command", ["functions", "list", "verify"])
def test_standard_input_is_read(command: str, tree: Path, run: Any) -> None:
    ours = f"{sys.executable} -m usdtbuild {command}"
    directly = run("sh", "-c", f"{ours} program", cwd=tree, code=None)
    for way in ("cat program | {} /dev/stdin", "{} /dev/stdin < program", "{} /dev/fd/7 7< program"):
        done = run("sh", "-c", way.format(ours), cwd=tree, code=None)
        assert done.returncode == directly.returncode
        said = (done.stdout + done.stderr).replace("/dev/stdin", "program").replace("/dev/fd/7", "program")
        assert said == directly.stdout + directly.stderr
    assert os.path.exists("/dev/stdin")  # noqa: PTH110
