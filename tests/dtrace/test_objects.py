"""-G: the objects stay as they are, and what it writes makes a program of them that links and traces."""

from __future__ import annotations

import os
import random
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from usdtbuild.dtrace import main

from .conftest import APP, MAIN, SITES

# What FreeBSD's and illumos' tools write, and what `USDT_PROBES_BY_CALL` asks for: calls of undefined functions.
FOREIGN_HEADER = """\
#define	APP_REQ_START(arg0, arg1) \\
	__dtrace_app___req__start(arg0, arg1)
#define	APP_REQ_START_ENABLED() \\
	__dtraceenabled_app___req__start()
#define	APP_REQ_DONE(arg0, arg1, arg2) \\
	__dtrace_app___req__done(arg0, arg1, arg2)
#define	APP_REQ_DONE_ENABLED() \\
	__dtraceenabled_app___req__done()
#define	APP_IDLE() \\
	__dtrace_app___idle()
extern void __dtrace_app___req__start(int, const char *);
extern int __dtraceenabled_app___req__start(void);
extern void __dtrace_app___req__done(int, const char *, unsigned long);
extern int __dtraceenabled_app___req__done(void);
extern void __dtrace_app___idle(void);
"""


@pytest.fixture
def calls(app: Path, run: Any) -> Path:
    """A folder with main.o, whose probes are calls."""
    run("gcc", "-O2", "-DUSDT_PROBES_BY_CALL", "-c", "main.c", cwd=app)
    return app


@pytest.mark.parametrize("flags", [["-fPIE"], ["-no-pie"], ["-static"], ["-fPIC", "-fno-plt"], ["-mcmodel=large"]])
def test_original_objects_link_with_the_output(
    flags: list[str], app: Path, dtrace: Any, run: Any, usdtbuild: Any, made: Any
) -> None:
    (app / "app.h").write_text(FOREIGN_HEADER)
    run("gcc", "-O2", *flags, "-c", "main.c", cwd=app)
    before = (app / "main.o").read_bytes()
    done = dtrace("-G", "-s", "app.d", "main.o", "-o", "app.o", cwd=app)
    assert done.stderr == ""
    assert (app / "main.o").read_bytes() == before
    found = made(app, "gcc", *flags, "main.o", "app.o")
    assert sorted(note.what for note in found) == sorted(SITES)
    assert [bool(note.semaphore) for note in found] == [note.name == "req__done" for note in found]
    others = ["--ignore=operand"] if "-static" in flags else []  # newer C libraries have some in memory
    assert "nothing found" in usdtbuild("verify", *others, "program", cwd=app).stdout
    assert re.search(r"GNU_STACK .* RW +0x", run("readelf", "-lW", "program", cwd=app).stdout)
    assert "executable stack" not in run("gcc", "-Wl,--fatal-warnings", *flags, "main.o", "app.o", "-o", "program",
                                         cwd=app).stderr  # fmt: skip


@pytest.mark.live
def test_calls_fire(calls: Path, dtrace: Any, run: Any, trace: Callable[..., list[str]]) -> None:
    dtrace("-G", "-s", "app.d", "main.o", "-o", "app.o", cwd=calls)
    run("gcc", "main.o", "app.o", "-o", "program", cwd=calls)
    script = "\n".join(
        f'usdt:{calls}/program:app:{name} {{ printf("{name} %d %d\\n", {first}, {third}); }}'
        for name, first, third in (("req__start", "arg0", "0"), ("req__done", "arg0", "arg2"))
    )
    assert sorted(trace(script, calls / "program")) == ["req__done 1 1234", "req__start 42 0"]


def test_link_is_idempotent(calls: Path, dtrace: Any, run: Any) -> None:
    for name in ("first.o", "second.o"):
        dtrace("-G", "-s", "app.d", "main.o", "-o", name, cwd=calls)
    assert (calls / "first.o").read_bytes() == (calls / "second.o").read_bytes()
    # Both may end up in one program, as may the output among the inputs of the next run (a glob of *.o).
    dtrace("-G", "-s", "app.d", "main.o", "first.o", "-o", "third.o", cwd=calls)
    run("gcc", "main.o", "first.o", "second.o", "third.o", "-o", "program", cwd=calls)


def test_several_outputs_in_one_program(app: Path, dtrace: Any, run: Any, made: Any) -> None:
    (app / "b.d").write_text("provider b { probe x(int); };\n")
    dtrace("-h", "-s", "b.d", cwd=app)
    (app / "other.c").write_text(
        '#include "app.h"\n#include "b.h"\nint other(void) { B_X(1); APP_REQ_START(2, "b"); return B_X_ENABLED(); }\n'
    )
    main = MAIN.replace("int main", "int other(void);\nint main").replace("return 0", "return other()")
    (app / "main.c").write_text(main)
    for name in ("main", "other"):
        run("gcc", "-O2", "-DUSDT_PROBES_BY_CALL", "-c", f"{name}.c", cwd=app)
    dtrace("-G", "-s", "app.d", "main.o", "-o", "one.o", cwd=app)
    dtrace("-G", "-s", "app.d", "other.o", "-o", "two.o", cwd=app)
    dtrace("-G", "-s", "b.d", "other.o", "-o", "three.o", cwd=app)
    found = made(app, "gcc", "main.o", "other.o", "one.o", "two.o", "three.o")
    assert sorted(note.what for note in found) == sorted([*SITES, ("b", "x", "-4@%edi")])


def test_same_probe_in_two_libraries_and_the_program(app: Path, dtrace: Any, run: Any, notes: Any, made: Any) -> None:
    for name in ("one", "two"):
        (app / f"{name}.c").write_text(
            f'#include "app.h"\nint {name}(void) {{ APP_REQ_DONE(1, "{name}", 1); return APP_REQ_DONE_ENABLED(); }}\n'
        )
        run("gcc", "-O2", "-fPIC", "-DUSDT_PROBES_BY_CALL", "-c", f"{name}.c", cwd=app)
        dtrace("-G", "-s", "app.d", f"{name}.o", "-o", f"{name}.probes.o", cwd=app)
        run("gcc", "-shared", f"{name}.o", f"{name}.probes.o", "-o", f"lib{name}.so", cwd=app)
        exported = run("readelf", "--dyn-syms", "-W", f"lib{name}.so", cwd=app).stdout
        assert "__dtrace" not in exported
        assert "semaphore" not in exported
        assert [note.name for note in notes(app / f"lib{name}.so")] == ["req__done"]
    (app / "main.c").write_text("int one(void); int two(void); int main(void) { return one() + two(); }\n")
    made(app, "gcc", "main.c", "-L.", "-lone", "-ltwo", "-Wl,-rpath,.")


def test_several_providers_and_objects(tmp_path: Path, dtrace: Any, run: Any, made: Any) -> None:
    (tmp_path / "all.d").write_text("provider a { probe x(int); };\nprovider b { probe x(char *); probe y(); };\n")
    dtrace("-h", "-s", "all.d", cwd=tmp_path)
    for name in ("one", "two"):
        (tmp_path / f"{name}.c").write_text(
            f'#include "all.h"\nstatic void inside(void) {{ A_X(1); }}\n'
            f'void {name}(void) {{ inside(); B_X("s"); B_Y(); }}\n'
        )
    (tmp_path / "main.c").write_text("void one(void); void two(void); int main(void) { one(); two(); return 0; }\n")
    for name in ("one", "two", "main"):
        run("gcc", "-O1", "-DUSDT_PROBES_BY_CALL", "-c", f"{name}.c", cwd=tmp_path)
    dtrace("-G", "-s", "all.d", "one.o", "two.o", "main.o", "-o", "all.o", cwd=tmp_path)
    assert [note.what for note in made(tmp_path, "gcc", "one.o", "two.o", "main.o", "all.o")] == [
        ("a", "x", "-4@%edi"), ("b", "x", "8@%rdi"), ("b", "y", "")
    ]  # fmt: skip


def test_archive(calls: Path, dtrace: Any, run: Any, notes: Any) -> None:
    run("ar", "rcs", "lib.a", "main.o", cwd=calls)
    dtrace("-G", "-s", "app.d", "lib.a", "-o", "app.o", cwd=calls)
    run("gcc", "-Wl,--whole-archive", "lib.a", "-Wl,--no-whole-archive", "app.o", "-o", "program", cwd=calls)
    assert sorted(note.what for note in notes(calls / "program")) == sorted(SITES)


def test_libtool_object(calls: Path, dtrace: Any, run: Any, notes: Any) -> None:
    (calls / ".libs").mkdir()
    (calls / "main.o").rename(calls / ".libs" / "main.o")
    (calls / "main.lo").write_text(
        "# main.lo - a libtool object file\n# Generated by libtool\npic_object='.libs/main.o'\nnon_pic_object=none\n"
    )
    dtrace("-G", "-s", "app.d", "main.lo", "-o", "app.o", cwd=calls)
    run("gcc", ".libs/main.o", "app.o", "-o", "program", cwd=calls)
    assert len(notes(calls / "program")) == 3


def test_objects_that_systemtaps_header_made(app: Path, systemtap: str, dtrace: Any, run: Any, made: Any) -> None:
    """They hold their sites, and refer to semaphores that -G shall define, whether it sees the objects or not."""
    run(systemtap, "-h", "-s", "app.d", "-o", "app.h", cwd=app)
    run("gcc", "-O2", "-c", "main.c", cwd=app)
    for objects in (["main.o"], [], ["not-there-yet.o"]):
        dtrace("-G", "-s", "app.d", *objects, "-o", "app.o", cwd=app)
        found = made(app, "gcc", "main.o", "app.o")
        assert [note.name for note in found] == ["idle", "req__done", "req__start"]
        assert all(note.semaphore for note in found)
        assert len({note.semaphore for note in found}) == 3


def test_without_objects_semaphores_can_be_read_by_hand(app: Path, dtrace: Any, made: Any) -> None:
    (app / "main.c").write_text(MAIN.replace("return 0", "return app_idle_semaphore + app_req__start_semaphore"))
    dtrace("-G", "-s", "app.d", "-o", "app.o", cwd=app)
    made(app, "gcc", "-O2", "main.c", "app.o")


@pytest.mark.parametrize("compiler", ["gcc", "clang"])
def test_objects_for_link_time_optimisation(
    compiler: str, app: Path, dtrace: Any, run: Any, need: Any, made: Any
) -> None:
    words = [need(compiler), "-O2", "-flto", *(["-fuse-ld=lld"] if compiler == "clang" else [])]
    run(*words, "-c", "main.c", cwd=app)
    assert dtrace("-G", "--strict", "-s", "app.d", "main.o", "-o", "app.o", cwd=app).stderr == ""
    assert len(made(app, *words, "main.o", "app.o")) == 3


def test_objects_for_freebsd(app: Path, dtrace: Any, run: Any, need: Any, usdtbuild: Any) -> None:
    """The header's macros are calls there, and records are in DTrace's own format."""
    compiler = [need("clang"), "-target", "x86_64-unknown-freebsd13", "-O2"]
    run(*compiler, "-c", "main.c", cwd=app)
    before = (app / "main.o").read_bytes()
    # There are no headers of that system here; its interface is spoken by what is compiled for this one.
    (app / "cc").write_text('#!/bin/sh\nexec gcc -DUSDT_DOF_PLATFORM=freebsd "$@"\n')
    (app / "cc").chmod(0o755)
    environment = {**os.environ, "CC": f"{app}/cc"}
    assert dtrace("-G", "-s", "app.d", "main.o", "-o", "app.o", cwd=app, env=environment).stderr == ""
    assert (app / "main.o").read_bytes() == before
    run("gcc", "main.o", "app.o", "-o", "program", cwd=app)
    variables = {"DTRACE_DOF_INIT_DEBUG": "1", "DTRACE_DOF_INIT_DEVNAME": "/no/device"}
    done = run("./program", cwd=app, env={**os.environ, **variables})
    assert done.stderr == "usdt_dof_register: /no/device: No such file or directory\n"
    environment["CC"] = " ".join(compiler)
    done = dtrace("-G", "-s", "app.d", "main.o", "-o", "app.o", cwd=app, env=environment)
    assert "the output won't register its probes with DTrace, so compile " in done.stderr
    run(need("ld.lld"), "-e", "main", "main.o", "app.o", "-o", "program", cwd=app)
    said = usdtbuild("dof", "dump", "program", cwd=app).stdout
    assert all(name in said for name in ("app", "req-start", "req-done", "idle", "__dtrace_app___idle"))
    usdtbuild("dof", "check", "--platform", "freebsd", "program", cwd=app)
    dtrace("-G", "-s", "app.d", "-o", "app.o", cwd=app, env=environment)
    assert ".probes" not in run("readelf", "-SW", "app.o", cwd=app).stdout


@pytest.mark.parametrize("fat", [[], ["-ffat-lto-objects"]])
def test_calls_in_objects_for_link_time_optimisation(
    fat: list[str], app: Path, dtrace: Any, run: Any, made: Any
) -> None:
    run("gcc", "-O2", "-g", "-flto", *fat, "-DUSDT_PROBES_BY_CALL", "-c", "main.c", cwd=app)
    dtrace("-G", "-s", "app.d", "main.o", "-o", "app.o", cwd=app)
    assert sorted(note.what for note in made(app, "gcc", "-O2", "-flto", "main.o", "app.o")) == sorted(SITES)


# --- what is wrong ----------------------------------------------------------------------------------------------


def test_no_site_of_the_provider(app: Path, dtrace: Any, run: Any) -> None:
    (app / "main.c").write_text("int main(void) { return 0; }\n")
    run("gcc", "-c", "main.c", cwd=app)
    done = dtrace("-G", "-s", "app.d", "main.o", "-o", "app.o", cwd=app)
    assert done.stderr == "dtrace: warning: no probe site of provider app in the object\n"
    run("gcc", "main.o", "app.o", "-o", "program", cwd=app)
    (app / "app.o").unlink()
    done = dtrace("-G", "--strict", "-s", "app.d", "main.o", "main.o", "-o", "app.o", cwd=app, code=1)
    assert "no probe site of provider app in any of the 2 objects; compile with" in done.stderr
    assert not (app / "app.o").exists()


@pytest.mark.parametrize("by_call", [False, True])
def test_strict_is_content_with_sites_of_either_kind(by_call: bool, app: Path, dtrace: Any, run: Any) -> None:
    run("gcc", "-O2", *(["-DUSDT_PROBES_BY_CALL"] if by_call else []), "-c", "main.c", cwd=app)
    assert dtrace("-G", "--strict", "-s", "app.d", "main.o", "-o", "app.o", cwd=app).stderr == ""


def test_wrong_machine_mixed_in(calls: Path, dtrace: Any, run: Any, need: Any) -> None:
    run(need("aarch64-linux-gnu-gcc-12"), "-O2", "-c", "main.c", "-o", "arm.o", cwd=calls)
    run(need("i686-linux-gnu-gcc-12"), "-O2", "-c", "main.c", "-o", "small.o", cwd=calls)
    for name, kind in (("arm.o", "aarch64"), ("small.o", "i386")):
        done = dtrace("-G", "-s", "app.d", "main.o", name, "-o", "app.o", cwd=calls, code=1)
        assert f"{name}: is for {kind} (little-endian), while main.o is for x86-64 (little-endian)" in done.stderr
        assert not (calls / "app.o").exists()


def test_bits(app: Path, dtrace: Any, run: Any, need: Any) -> None:
    compiler = need("i686-linux-gnu-gcc-12")
    run(compiler, "-O2", "-DUSDT_PROBES_BY_CALL", "-c", "main.c", cwd=app)
    for option in ([], ["-32"], ["-m32"]):
        dtrace("-G", *option, "-s", "app.d", "main.o", "-o", "app.o", cwd=app)
        run(compiler, "main.o", "app.o", "-o", "program", cwd=app)
    done = dtrace("-G", "-64", "-s", "app.d", "main.o", "-o", "app.o", cwd=app, code=1)
    assert "main.o: is for i386 (little-endian), and -64 asks for 64 bits" in done.stderr
    dtrace("-G", "-32", "-s", "app.d", "-o", "app.o", cwd=app)
    assert "ELF32" in run("readelf", "-h", "app.o", cwd=app).stdout


@pytest.mark.parametrize("content", [b"", b"text\n", b"\x7fELF", b"\x7fELF\x02\x01\x01" + bytes(80)])
def test_input_that_is_no_object(content: bytes, app: Path, dtrace: Any) -> None:
    (app / "main.o").write_bytes(content)
    done = dtrace("-G", "-s", "app.d", "main.o", "-o", "app.o", cwd=app, code=1)
    assert done.stderr.startswith("dtrace: main.o: ")
    assert done.stderr.count("\n") == 1
    assert not (app / "app.o").exists()


@pytest.mark.parametrize("flags", [[], ["-DUSDT_PROBES_BY_CALL"], ["-DUSDT_PROBES_BY_CALL", "-flto"]])
def test_damaged_objects_are_refused_or_have_no_effect(
    flags: list[str], app: Path, run: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever a byte says: exit code 0, or 1 with a message and without an output."""
    run("gcc", "-O2", *flags, "-c", "main.c", cwd=app)
    monkeypatch.chdir(app)
    content = Path("main.o").read_bytes()
    random_ = random.Random(f"damage {flags}")
    for _ in range(200):
        damaged = bytearray(content)
        for _ in range(random_.choice((1, 2, 8))):
            at = random_.choice((random_.randrange(64), random_.randrange(len(content))))
            damaged[at] = random_.choice((0, 1, 0x7F, 0x80, 0xFF, damaged[at] ^ 1 << random_.randrange(8)))
        length = random_.choice((len(content), len(content), random_.randrange(len(content))))
        Path("damaged.o").write_bytes(damaged[:length])
        code = main(["-G", "-s", "app.d", "damaged.o", "-o", "out.o"])
        said = capsys.readouterr().err
        assert code in (0, 1)
        assert Path("out.o").exists() == (code == 0)
        assert code == 0 or said.startswith("dtrace: damaged.o: "), said
        Path("out.o").unlink(missing_ok=True)


def test_programs_and_folders_are_refused(app: Path, dtrace: Any, run: Any) -> None:
    run("gcc", "main.c", "-o", "program", cwd=app)
    assert "not a relocatable object" in dtrace("-G", "-s", "app.d", "program", "-o", "app.o", cwd=app, code=1).stderr
    assert "is a directory" in dtrace("-G", "-s", "app.d", ".", "-o", "app.o", cwd=app, code=1).stderr


def test_header_and_file_that_differ(calls: Path, dtrace: Any) -> None:
    (calls / "app.d").write_text("provider app { probe req__start(int, char *); };\n")
    done = dtrace("-G", "-s", "app.d", "main.o", "-o", "app.o", cwd=calls, code=1)
    assert "provider app has no probe" in done.stderr
    assert not (calls / "app.o").exists()


# --- in place ---------------------------------------------------------------------------------------------------


def test_in_place(calls: Path, dtrace: Any, run: Any, made: Any) -> None:
    """Calls become NOPs; a second run changes nothing; the output is needed no more, and does no harm."""
    dtrace("-G", "--in-place", "-s", "app.d", "main.o", "-o", "app.o", cwd=calls)
    once = (calls / "main.o").read_bytes()
    assert not re.search("PLT32 .*__dtrace_app___", run("readelf", "-rW", "main.o", cwd=calls).stdout)
    dtrace("-G", "--in-place", "-s", "app.d", "main.o", "-o", "app.o", cwd=calls)
    assert (calls / "main.o").read_bytes() == once
    for objects in (["main.o"], ["main.o", "app.o"]):
        found = made(calls, "gcc", *objects)
        assert sorted(note.what for note in found) == sorted(SITES)
    assert {path.name for path in calls.iterdir()} == {"app.d", "app.h", "app.o", "main.c", "main.o", "program"}


def test_in_place_leaves_what_it_does_not_know(calls: Path, dtrace: Any, run: Any) -> None:
    (calls / "b.d").write_text("provider b { probe x(int); };\n")
    (calls / "app.h").write_text(FOREIGN_HEADER)
    run("gcc", "-O2", "-c", "main.c", cwd=calls)
    before = (calls / "main.o").read_bytes()
    done = dtrace("-G", "--in-place", "-s", "b.d", "main.o", "-o", "b.o", cwd=calls)
    assert "main.o calls probes that the given files don't describe" in done.stderr
    assert (calls / "main.o").read_bytes() == before
    dtrace("-G", "--in-place", "-s", "b.d", "-s", "app.d", "main.o", "-o", "b.o", cwd=calls)
    assert (calls / "main.o").read_bytes() != before


def test_the_output_says_what_the_probes_are(calls: Path, dtrace: Any, usdtbuild: Any) -> None:
    dtrace("-G", "-s", "app.d", "main.o", "-o", "app.o", cwd=calls)
    assert "int fd" in usdtbuild("list", "app.o", cwd=calls).stdout


def test_control_flow_protection_is_kept(app: Path, dtrace: Any, run: Any) -> None:
    """A linker drops the mark of a program if one of its objects hasn't got it."""
    run("gcc", "-O2", "-fcf-protection", "-DUSDT_PROBES_BY_CALL", "-c", "main.c", cwd=app)
    dtrace("-G", "-s", "app.d", "main.o", "-o", "app.o", cwd=app)
    run("gcc", "-r", "-nostdlib", "main.o", "app.o", "-o", "whole.o", cwd=app)
    assert "IBT, SHSTK" in run("readelf", "-nW", "whole.o", cwd=app).stdout


def test_file_with_many_probes_and_few_calls(tmp_path: Path, dtrace: Any, run: Any, notes: Any) -> None:
    """Only what is called gets a site."""
    (tmp_path / "app.d").write_text(APP)
    (tmp_path / "main.c").write_text(FOREIGN_HEADER + "int main(void) { APP_IDLE(); return 0; }\n")
    run("gcc", "-O2", "-c", "main.c", cwd=tmp_path)
    dtrace("-G", "-s", "app.d", "main.o", "-o", "app.o", cwd=tmp_path)
    run("gcc", "main.o", "app.o", "-o", "program", cwd=tmp_path)
    assert [note.what for note in notes(tmp_path / "program")] == [("app", "idle", "")]


@pytest.mark.parametrize("options", [[], ["--in-place"]])
def test_a_name_that_is_no_utf8_is_refused_in_one_line(options: list[str], tmp_path: Path, run: Any) -> None:
    (tmp_path / "app.d").write_text("provider app { probe go(int a); };\n")
    (tmp_path / "a.c").write_text("void __dtrace_app___go(int);\nvoid f(void) { __dtrace_app___go(1); }\n")
    run("gcc", "-c", "a.c", cwd=tmp_path)
    content = (tmp_path / "a.o").read_bytes().replace(b"__dtrace_app___go", b"__dtrace_app___g\xff")
    (tmp_path / "a.o").write_bytes(content)
    words = [sys.executable, "-m", "usdtbuild.dtrace", "-G", *options, "-s", "app.d", "-o", "app.o", "a.o"]
    done = run(*words, cwd=tmp_path, code=1, errors="surrogateescape")
    assert done.stderr.splitlines()[-1].startswith("dtrace: a.o: provider app has no probe g\\xff")
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "app.o").exists()
    assert (tmp_path / "a.o").read_bytes() == content
