"""The launcher's native door: where it is made, when it isn't, and that it starts Python only where probes are."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from usdtbuild.launch import native

PACKAGE = Path(native.__file__).parent.parent
PYTHON_DOOR = [sys.executable, "-I", "-S", str(PACKAGE / "launcher.py")]


def make(folder: Path, **environment: str) -> tuple[list[str], str]:
    """Make the door as a configure step does; return what stands before a compiler, and what was said."""
    done = subprocess.run(
        [*PYTHON_DOOR, "--native", str(folder)],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.splitlines(), done.stderr


@pytest.fixture(scope="module", params=["gcc", "musl-gcc"])
def door(request: pytest.FixtureRequest, need: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    (path,), said = make(tmp_path_factory.mktemp("a door"), CC_FOR_BUILD=need(request.param))
    assert said == ""
    return Path(path)


@pytest.fixture
def project(tmp_path: Path, usdtbuild: Any) -> Path:
    (tmp_path / "app.d").write_text("provider app { probe go(int x); };\n")
    usdtbuild("header", "--formats=dof", "app.d", "-o", "app.h", cwd=tmp_path)
    (tmp_path / "probed.c").write_text('#include "app.h"\nint f(int);\nint f(int x) { APP_GO(x); return x; }\n')
    (tmp_path / "plain.c").write_text("int g(int x);\nint g(int x) { return x; }\n")
    return tmp_path


def python_starts(folder: Path, *words: Any) -> int:
    """Run a command; return how many times it started our Python, which strace sees."""
    trace = folder / "trace"
    command = ["strace", "-f", "-qq", "-s", "4096", "-e", "trace=execve", "-e", "signal=none", "-o", trace, *words]
    done = subprocess.run([str(word) for word in command], cwd=folder, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    return sum("launcher.py" in line and line.endswith(" = 0") for line in trace.read_text().splitlines())


def test_it_is_made_once_and_told_by_what_is_in_it(door: Path, tmp_path: Path) -> None:
    before = door.stat()
    assert make(door.parent)[0] == [str(door)]
    assert door.stat().st_mtime_ns == before.st_mtime_ns
    elsewhere = native.build(tmp_path, python="/usr/bin/python3")
    assert elsewhere is not None
    assert elsewhere.name != door.name
    assert sorted(path.name for path in tmp_path.iterdir()) == [elsewhere.name, f"{elsewhere.name}.linkers"]


def test_another_version_makes_its_own(door: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / door.name
    path.write_bytes(door.read_bytes())
    path.chmod(0o755)
    monkeypatch.setattr(native, "__version__", "99.9")
    made = native.build(tmp_path)
    assert made is not None
    assert made.name.startswith("usdtbuild-cc-99.9-")
    assert path.read_bytes() == door.read_bytes()  # a build that still uses it can go on


@pytest.mark.parametrize(
    "content", [b"", b"MZ\x90\0", b"\x7fELF\x02\x01\x01" + bytes(57)], ids=["empty", "foreign", "damaged"]
)
def test_what_cannot_be_run_in_its_place_is_replaced(content: bytes, door: Path, tmp_path: Path) -> None:
    path = tmp_path / door.name
    path.write_bytes(content)
    path.chmod(0o755)
    assert make(tmp_path)[0] == [str(path)]
    assert path.stat().st_size > 1000
    subprocess.run([path, "--", "gcc", "--version"], stdout=subprocess.DEVNULL, check=True)


@pytest.mark.parametrize(("source", "starts"), [("plain.c", 0), ("probed.c", 1)], ids=["without-probes", "with-probes"])
def test_python_is_started_for_probes_only(source: str, starts: int, door: Path, project: Path, need: Any) -> None:
    need("strace")
    assert python_starts(project, door, "--tool-version=1", "--", "gcc", "-O2", "-c", source, "-o", "x.o") == starts
    assert python_starts(project, door, "--", "gcc", "-E", source) == 0


@pytest.mark.parametrize("words", ["-S -o /dev/null -xc /dev/null", "-xc -c plain.c", "-c empty.c"])
def test_what_asks_for_an_option_or_has_nothing_in_it_starts_no_python(
    words: str, door: Path, project: Path, need: Any
) -> None:
    need("strace")
    (project / "empty.c").touch()
    assert python_starts(project, door, "--", "gcc", *words.split()) == 0


@pytest.mark.parametrize(
    "words",
    [
        "-c @file",
        "-c plain.c probed.c",
        "-flto -c plain.c",
        "-c -oplain.o plain.c",
        "-c plain.c -o -",
        "-shared -flto plain.c",
        "-shared -MD plain.c",
        "-shared plain.c -x c -",
        "-shared plain.c @file",
        "-shared plain.c -fuse-ld=LLD",
        "-shared plain.c -DNAME=\N{LATIN SMALL LETTER E WITH ACUTE}",
    ],
)
def test_what_is_not_plain_is_left_to_python(words: str, door: Path, project: Path, need: Any) -> None:
    need("strace")
    (project / "file").write_text("-DA=1")
    given = [word.replace("LLD", need("ld.lld")) if "LLD" in word else word for word in words.split()]
    given += ["plain.c"] if given == ["-c", "@file"] else []
    assert python_starts(project, door, "--", need("clang"), *given) >= 1


LINKS = {
    "compiled-and-linked": ("-O1 -g -shared -fPIC plain.c -o libplain.so -lm", 0),
    "several": ("-shared -fPIC plain.c main.c", 0),
    "with-an-object": ("main.c done.o -o app", 0),
    "finished": ("done.o main.o -o app", 0),
    "linker": ("-fuse-ld=gold main.c -o app", 0),
    "with-probes": ("-shared -fPIC plain.c probed.c -o libprobed.so", 1),
}


@pytest.mark.parametrize("cc", ["gcc", "clang"])
@pytest.mark.parametrize(("words", "starts"), LINKS.values(), ids=LINKS)
def test_a_link_starts_python_for_probes_only(
    words: str, starts: int, cc: str, door: Path, project: Path, need: Any
) -> None:
    need("strace")
    need(cc)
    if "gold" in words:
        need("ld.gold")
    (project / "main.c").write_text("int main(void) { return 0; }\n")
    subprocess.run([door, "--", cc, "-c", "probed.c", "-o", "done.o"], cwd=project, check=True)
    subprocess.run([cc, "-c", "main.c"], cwd=project, check=True)
    assert python_starts(project, door, "--tool-version=1", "--", cc, *words.split()) == starts
    if starts:
        assert b".note.stapsdt" in (project / "libprobed.so").read_bytes()


def test_the_linkers_names_are_those_of_pythons_stand_ins(door: Path, run: Any) -> None:
    ours = sorted(door.with_name(f"{door.name}.linkers").iterdir())
    assert [path.name for path in ours] == sorted(path.name for path in (PACKAGE / "linker_hook").iterdir())
    done = run(ours[0], "--version", code=126)
    assert done.stderr == "USDTBUILD_LINK_PYTHON is unset; only usdtbuild cc runs this program\n"


def test_a_signal_leaves_no_half_an_object(door: Path, project: Path) -> None:
    compiler = project / "gcc"
    compiler.write_text(
        "#!/bin/sh\ntrap 'exit 1' TERM\nprintf '\\177ELF half' > half.o\n: > begun\nwhile :; do sleep 0.02; done\n"
    )
    compiler.chmod(0o755)
    process = subprocess.Popen([door, "--", compiler, "-c", "plain.c", "-o", "half.o"], cwd=project)
    deadline = time.monotonic() + 30
    while not (project / "begun").exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    process.send_signal(signal.SIGTERM)
    assert process.wait(30) == -signal.SIGTERM
    assert not (project / "half.o").exists()
    assert not list(project.glob(".half*"))


NOT_PACKED = ["::", "-1:", " 3:abc", "+1:a", "0x2:ab", "9:a", "1", ":" * 5000, "99999999999999999999:"]


@pytest.mark.parametrize("packed", NOT_PACKED)
def test_what_others_put_in_the_linkers_variables_is_refused(packed: str, door: Path, run: Any) -> None:
    linker = door.with_name(f"{door.name}.linkers") / "ld"
    environment = {**os.environ, "USDTBUILD_LINK_PYTHON": sys.executable, "USDTBUILD_LINK_0": packed,
                   "USDTBUILD_LINK_LAUNCHER": str(PACKAGE / "launcher.py")}  # fmt: skip
    done = run(linker, "--version", code=126, env=environment)
    assert done.stderr.startswith("usdtbuild cc: USDTBUILD_LINK_0 is not what usdtbuild cc has put there")


def test_the_native_launcher_is_hardened(door: Path, run: Any) -> None:
    """A static one has no relocations to protect; all have canaries."""
    symbols = door.read_bytes()
    assert b"stack smashing" in symbols or b"__stack_chk_fail" in symbols


def test_a_lost_folder_of_linkers_leaves_links_to_python(project: Path, need: Any) -> None:
    need("strace")
    (path,), _ = make(project / "a door")
    for link in Path(f"{path}.linkers").iterdir():
        link.unlink()
    assert python_starts(project, path, "--", "gcc", "-shared", "-fPIC", "probed.c", "-o", "libprobed.so") == 2
    assert b".note.stapsdt" in (project / "libprobed.so").read_bytes()


def test_it_can_be_switched_off(door: Path, project: Path, tmp_path: Path, need: Any) -> None:
    need("strace")
    assert make(tmp_path / "none", USDTBUILD_NATIVE="0")[0] == PYTHON_DOOR
    assert not (tmp_path / "none").exists()
    assert python_starts(project, "env", "USDTBUILD_NATIVE=0", door, "--", "gcc", "-c", "plain.c") == 1


def test_without_a_compiler_for_this_machine_python_does_it(tmp_path: Path) -> None:
    words, said = make(tmp_path / "none", PATH=str(tmp_path))
    assert words == PYTHON_DOOR
    assert said == "usdtbuild cc: no native launcher can be made here; Python does its work\n"


@pytest.mark.parametrize("switch", ["", "0"], ids=["native", "python"])
def test_one_line_goes_before_make_s_compiler(
    switch: str, project: Path, need: Any, usdtbuild: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("USDTBUILD_NATIVE", switch)
    folder = project / "a fold'er"
    (line,) = usdtbuild("cc", "--native", folder, "--one-line").stdout.splitlines()
    assert usdtbuild("cc", "--one-line", "--native", folder).stdout.splitlines() == [line]
    subprocess.run([need("make"), f"CC={line} -- gcc", "probed.o"], cwd=project, check=True)
    assert b".note.stapsdt" in (project / "probed.o").read_bytes()


@pytest.mark.parametrize("missing", ["python", "launcher"])
def test_without_python_no_object_is_left(missing: str, project: Path, run: Any, need: Any) -> None:
    paths = {"python": project / "python3", "launcher": project / "launcher.py"}
    paths["python"].symlink_to(sys.executable)
    paths["launcher"].touch()
    door = native.build(project / "door", str(paths["python"]), paths["launcher"])
    assert door is not None
    paths[missing].unlink()
    before = sorted(path.name for path in project.iterdir())
    done = run(door, "--", need("gcc"), "-c", "probed.c", cwd=project, code=126)
    assert done.stderr == f"usdtbuild cc: can't run {paths[missing]}: No such file or directory\n"
    assert sorted(path.name for path in project.iterdir()) == before
    run(door, "--", need("gcc"), "-c", "plain.c", cwd=project)


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path, run: Any) -> None:
    (tmp_path / "file").touch()
    done = run(*PYTHON_DOOR, "--native", tmp_path / "file" / "below", code=1)
    assert done.stdout == ""
    assert f"{tmp_path}/file/below" in done.stderr
    assert "Traceback" not in done.stderr


def test_paths_with_all_kinds_of_characters(project: Path) -> None:
    folder = project / 'wei"rd \\ $HOME `x` ü?'
    (door,), _ = make(folder)
    for source in ("plain.c", "probed.c"):
        subprocess.run([door, "--", "gcc", "-c", source], cwd=project, check=True)
    assert b".note.stapsdt" in (project / "probed.o").read_bytes()


def test_hook_runs_it_in_the_assemblers_place(project: Path, need: Any, usdtbuild: Any) -> None:
    need("strace")
    flags = usdtbuild("hook", "--into", project / "hook", "--", "gcc").stdout.splitlines()
    assert python_starts(project, "gcc", *flags, "-c", "plain.c") == 0
    assert python_starts(project, "gcc", *flags, "-c", "probed.c") == 1
    assert b".note.stapsdt" in (project / "probed.o").read_bytes()
