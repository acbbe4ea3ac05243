"""`usdtbuild init`: what it writes builds as it is, under its new name; and what it refuses."""

from __future__ import annotations

import re
import shutil
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

from usdtbuild.errors import UsdtError
from usdtbuild.new_project import SAMPLES, name_of_folder, plan, write

KINDS = list(SAMPLES)


@pytest.mark.parametrize("kind", KINDS)
def test_the_new_name_stands_everywhere(usdtbuild: Any, tmp_path: Path, kind: str) -> None:
    said = usdtbuild("init", kind, tmp_path / "Web-Server").stdout
    folder = tmp_path / "Web-Server"
    assert "the project is called web_server (--name gives it another name)" in said
    written = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    assert {"README.md", "web_server.d"} <= written
    assert all(f"    {path}\n" in said for path in written)
    word = SAMPLES[kind].word
    for path in written:
        text = (folder / path).read_text()
        assert word not in path
        assert word.upper() not in text
        # What is left is English: between spaces, in a comment, a string or the README.
        left = re.findall(rf"(?<![a-z])(?:(?<!\s){word}\b|{word}[^a-z\s,;.])", text)
        assert left == [], (path, left)
    assert "WEB_SERVER_" in "".join((folder / path).read_text() for path in written if path.endswith(".c"))


def test_a_name_that_was_made_up_is_told(usdtbuild: Any, tmp_path: Path) -> None:
    said = usdtbuild("init", "cmake", "café-server", cwd=tmp_path).stdout
    assert said.startswith("café-server: the project is called cafe_server (--name gives it another name); ")
    assert "otherwise" not in usdtbuild("init", "cmake", "plain", cwd=tmp_path).stdout
    assert "otherwise" not in usdtbuild("init", "cmake", "Other", "--name", "mine", cwd=tmp_path).stdout


@pytest.mark.parametrize("kind", KINDS)
def test_the_samples_own_name_changes_nothing(kind: str) -> None:
    sample = Path(__file__).resolve().parent.parent.parent / "sample_projects" / SAMPLES[kind].folder
    for path, text in plan(kind, SAMPLES[kind].word).items():
        assert (sample / path).read_text() == text


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["x", "--name", "Foo"], "'Foo' is no name for a provider"),
        (["x", "--name", "a__b"], "single underscores"),
        (["x", "--name", "namespace"], "means something already"),
        (["x", "--name", "test"], "means something already"),
        (["x", "--name", "main"], "is used for something else in this project"),
        (["x", "--name", "stdio"], "is used for something else in this project"),
        (["journal"], "is used for something else in this project (CMakeLists.txt); name the project with --name"),
        (["..."], "'' is no name for a provider"),
        ([""], "Invalid value for 'DIR': it is empty."),
    ],
)
def test_name_that_would_not_work_is_refused(usdtbuild: Any, tmp_path: Path, words: list[str], message: str) -> None:
    said = usdtbuild("init", "cmake", *words, cwd=tmp_path, code=2).stderr
    assert message in said
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(sys.version_info < (3, 10), reason="this Python has no list of its own modules")
def test_module_of_the_standard_library_is_refused(usdtbuild: Any, tmp_path: Path) -> None:
    said = usdtbuild("init", "setuptools", tmp_path / "json", code=2).stderr
    assert "Python has a module named 'json' already" in said


def test_unknown_kind_is_refused_with_those_that_there_are(usdtbuild: Any, tmp_path: Path) -> None:
    said = usdtbuild("init", "bazel", tmp_path / "x", code=2).stderr
    assert "'cmake', 'meson', 'setuptools', 'scikit-build-core', 'meson-python'" in said


def test_folder_with_something_in_it_is_left_alone(usdtbuild: Any, tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    said = usdtbuild("init", "cmake", tmp_path, "--name", "app", code=1).stderr
    assert said.endswith("is a folder with something in it; name a folder that is empty or doesn't exist yet\n")
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]
    said = usdtbuild("init", "cmake", tmp_path / "mine.txt", "--name", "app", code=1).stderr
    assert "is a file" in said


def test_empty_folder_and_new_folders_are_filled(usdtbuild: Any, tmp_path: Path) -> None:
    usdtbuild("init", "cmake", ".", "--name", "app", cwd=tmp_path)
    assert (tmp_path / "app.d").exists()
    usdtbuild("init", "cmake", "new/and/deep", "--name", "app", cwd=tmp_path)
    assert (tmp_path / "new/and/deep/app.d").exists()
    assert not list(tmp_path.rglob(".usdtbuild*"))


def test_nothing_is_left_of_what_could_not_be_written_whole(tmp_path: Path) -> None:
    files = {"one.txt": "fine", "two/three.txt": "fine", "x" * 300: "a name that no file system takes"}
    with pytest.raises(UsdtError, match="can't be written: file name too long"):
        write(files, tmp_path / "new/deep")
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "empty").mkdir()
    with pytest.raises(UsdtError, match="can't be written"):
        write(files, tmp_path / "empty")
    assert list((tmp_path / "empty").iterdir()) == []


# --- it builds ------------------------------------------------------------------------------------------------------


@pytest.mark.project
@pytest.mark.parametrize("kind", KINDS)
def test_new_project_builds_and_shows_its_probes(
    kind: str, build_backends: Any, run: Any, need: Any, tmp_path: Path
) -> None:
    """With the installed wheel; the commands are those of the README."""
    need("ninja")
    python, environment = build_backends
    folder = tmp_path / "web-server"

    def do(*words: Any) -> str:
        return str(run(*words, cwd=folder, env=environment).stdout)

    tool = python.parent / "usdtbuild"
    run(tool, "init", kind, folder, cwd=tmp_path, env=environment)
    if kind == "cmake":
        do(need("cmake"), "-S", ".", "-B", "build", "-G", "Ninja", f"-DUSDTBuild_DIR={do(tool, '--cmake-dir').strip()}")
        do(need("cmake"), "--build", "build")
        binary = folder / "build/web_server"
        assert "Hello, Ada!" in do(binary, "Ada")
    elif kind == "meson":
        do(python.parent / "meson", "setup", "build")
        do("ninja", "-C", "build")
        binary = folder / "build/web_server"
        assert "Hello, Ada!" in do(binary, "Ada")
    else:
        pip = [sys.executable, "-m", "pip", "--python", python, "wheel", "-q", "--no-build-isolation", "--no-deps"]
        if kind == "scikit-build-core":
            need("cmake")
        do(*pip, "-w", "dist", ".")
        (wheel,) = (folder / "dist").glob("web_server-*.whl")
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(tmp_path / "unpacked")
        do(python, "-c", f"import sys; sys.path.insert(0, {str(tmp_path / 'unpacked')!r}); import web_server")
        binary = next((tmp_path / "unpacked/web_server").glob("_core*.so"))
    shown = do(tool, "list", binary)
    for probe in re.findall(r"^\s*probe (\w+)", (folder / "web_server.d").read_text(), re.M):
        assert f"web_server:{probe} " in shown
    shutil.rmtree(folder)


NAMES = {"app2": "app2", "sqlite3": "sqlite3", "my-app-2": "my_app_2", "clock-1.23": "clock", "tmux-3.3a": "tmux",
         "libevent-2.1.12-stable": "libevent"}  # fmt: skip


@pytest.mark.parametrize("folder", NAMES)
def test_a_folder_has_the_same_name_for_init_and_add(folder: str) -> None:
    assert name_of_folder(Path("/anywhere", folder)) == NAMES[folder]
