"""Oracle's DTrace: the one DOF must lie where the module's own file is mapped, and later versions want notes.

The stand-in for its daemon refuses what that refuses. Programs are built with `usdtbuild cc`, and what is registered is
compared with the notes in the same file.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from usdtbuild.formats.dof.check import check

from .conftest import HERE, RUNTIME, Piece, c_source, probe, provider
from .test_register import MAIN, SETX, one, two

D = "provider app { probe go(int a, char *b) : (char *b, int a); probe done(long n); };\n"
PROGRAM = """
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>
#include "app.h"
int in_library(int);
__attribute__((noinline)) int work(int a) { APP_GO(a, "work"); APP_DONE(a); return a + 1; }
int main(int argc, char **argv)
{
    (void)argv;
    printf("%p\\n", (void *)main);
    fflush(stdout);
    if (argc > 1 && fork() == 0)
        return 0;
    if (argc > 1)
        wait(NULL);
    return work(argc) + in_library(argc) < 0;
}
"""
LIBRARY = '#include "app.h"\nint in_library(int a) { APP_GO(a, "library"); return a; }\n'
SHAPES = {"pie": ("-fPIE", "-pie"), "no-pie": ("-fno-pie", "-no-pie")}


@pytest.fixture
def make(tmp_path: Path, usdtbuild: Any, run: Any, header_of: Any) -> Any:
    """Build the program in a folder, and its library if it is one: `make(formats, shape, ...) -> program`."""
    header_of(tmp_path, "app.d", D, "--formats=dof")
    (tmp_path / "program.c").write_text(PROGRAM)
    (tmp_path / "library.c").write_text(LIBRARY)

    def build(
        formats: str, shape: str = "pie", linker: str = "bfd", shared: bool = False, *runtime: str,
        system: str = "oracle",
    ) -> Path:  # fmt: skip
        pic, pie = SHAPES[shape]
        for name, option in (("program", pic), ("library", "-fPIC" if shared else pic)):
            usdtbuild(
                "cc", "--formats", formats, "--target-os", system, "--", "gcc", "-O1", option, "-c", f"{name}.c",
                "-o", f"{name}.o", cwd=tmp_path,
            )  # fmt: skip
        run("gcc", "-O1", "-fPIC", "-Wall", "-Werror", *runtime, "-c", RUNTIME, "-o", "runtime.o", cwd=tmp_path)
        rest = ["library.o"]
        if shared:
            rest = ["./liblibrary.so"]
            run("gcc", "-shared", f"-fuse-ld={linker}", "library.o", "runtime.o", "-o", rest[0], cwd=tmp_path)
        run("gcc", pie, f"-fuse-ld={linker}", "program.o", *rest, "runtime.o", "-o", "program", cwd=tmp_path)
        return tmp_path / "program"

    return build


def in_file(usdtbuild: Any, path: Path) -> dict[str, set[int]]:
    """Return the sites that the file's records tell of, by probe."""
    (told,) = json.loads(usdtbuild("list", "--json", path).stdout)["files"]
    found: dict[str, set[int]] = {}
    for each in told["probes"]:
        found.setdefault(each["name"], set()).update(int(str(site["address"]), 0) for site in each["sites"])
    return found


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("formats", ["dof", "stapsdt,dof,usdt"])
def test_the_dof_is_in_the_programs_own_data(
    formats: str, shape: str, linker: str, make: Any, watch: Any, usdtbuild: Any, symbols: Any, tmp_path: Path
) -> None:
    program = make(formats, shape, linker)
    outcome = watch(program, cwd=tmp_path)
    assert [call.split()[0] for call in outcome.calls] == ["open", "add", "close", "open", "remove", "close"]
    (found,) = outcome.registered
    assert check(found.data, "oracle") == []
    moved = int(outcome.out, 16) - symbols(program)["main"][0]
    told = {name: {address + moved for address in places} for name, places in in_file(usdtbuild, program).items()}
    seen: dict[str, set[int]] = {}
    for (_, name, _), places in found.places().items():
        seen.setdefault(name, set()).update(places)
    assert seen == told
    assert (len(seen["go"]), len(seen["done"])) == (2, 1)
    if formats == "dof":
        assert "dof-unregistered" not in usdtbuild("verify", program, code=None).stdout
        assert "DOF at" in usdtbuild("dof", "check", program).stdout


def test_program_and_library_register_one_each(linker: str, make: Any, watch: Any, tmp_path: Path) -> None:
    outcome = watch(make("dof", "pie", linker, True), LD_LIBRARY_PATH=str(tmp_path), cwd=tmp_path)
    assert sorted(each.module for each in outcome.registered) == ["liblibrary.so", "program"]
    removed = [call.split()[1] for call in outcome.calls if call.startswith("remove")]
    assert sorted(removed) == ["101", "102"]


TIGHT = {
    "one probe": [Piece((provider("app", probe("f", "p", 0, types="")),), SETX)],
    "one probe of one letter in each of ten providers": [
        Piece(tuple(provider(f"a{i}", probe("f", "p", i, types="")) for i in range(10)), SETX)
    ],
    "is-enabled sites in one provider of three": [
        Piece(
            tuple(provider(f"a{i}", probe("f", "p", 1, enabled=(2,) if i == 1 else (), types="int")) for i in range(3)),
            SETX, version=3,
        )
    ],
    "a hundred probes of one function": [
        Piece((provider("app", *(probe("f", f"p{i}", i, types="int,char *") for i in range(100))),), SETX)
    ],
    "thirty DOFs of one probe": [
        Piece((provider("app", probe("f", "p", i, types="int,struct x *")),), SETX) for i in range(30)
    ],
}  # fmt: skip


@pytest.mark.parametrize("name", TIGHT)
def test_the_whole_is_never_larger_than_its_parts(name: str, build: Any, watch: Any) -> None:
    """It replaces the row that it is made of."""
    source = c_source(["f"], TIGHT[name], "int main(void) { return f(1) == 0; }")
    for texts in ({"one": source, "runtime": "runtime"}, {"runtime": "runtime", "one": source}):
        outcome = watch(build(texts, "-pie", platform="oracle"), DTRACE_DOF_INIT_DEBUG="1")
        assert outcome.errors == "usdt_dof_register: registered: program\nusdt_dof_register: removed: program\n"
        (found,) = outcome.registered
        assert check(found.data, "oracle") == []
        told = {p.name: len(p.probes) for p in found.dof.providers}
        assert told == {p.name: len(p.probes) for p in TIGHT[name][0].providers}
        assert sum(map(len, found.places().values())) == sum(
            len(each.offsets) for piece in TIGHT[name] for p in piece.providers for each in p.probes
        )


def test_where_others_dof_leaves_no_room_it_is_said_and_space_can_be_had(build: Any, watch: Any) -> None:
    def theirs(name: str) -> str:
        return c_source([name], [Piece((provider("theirs", probe(name, "go", 0)),), SETX, trailer=False)])

    texts = {
        "one": one(SETX), "theirs": theirs("f"), "runtime": "runtime", "others": theirs("g"), "two": two(SETX),
        "main": MAIN,
    }  # fmt: skip
    outcome = watch(build(texts, "-pie", platform="oracle"), DTRACE_DOF_INIT_DEBUG="1")
    assert outcome.registered == []
    assert "usdt_dof_register: program: others' DOF stands among ours" in outcome.errors
    size = int(outcome.errors.split("-DUSDT_DOF_SPACE: ")[1].split()[0])
    program = build(texts, "-pie", platform="oracle", flags_of_c=f"-O1 -fPIC -DUSDT_DOF_SPACE={size}")
    outcome = watch(program, DTRACE_DOF_INIT_DEBUG="1")
    (found,) = outcome.registered
    assert len(found.data) == size
    assert {key[0] for key in found.places()} == {"app", "other"}
    outcome = watch(build(texts, "-pie", platform="oracle", flags_of_c=f"-O1 -fPIC -DUSDT_DOF_SPACE={size - 8}"))
    assert outcome.registered == []
    assert outcome.errors == ""


def test_objects_for_another_system_are_named(linker: str, build: Any, watch: Any, run: Any) -> None:
    """Of FreeBSD's, say: their DOF is read-only, and nothing but a space of its own is right."""
    if linker != "mold":
        pytest.skip("other linkers make one writable section of both")
    texts = {"one": one(), "runtime": "runtime", "two": two(), "main": MAIN}
    program = build(texts, "-fuse-ld=mold", platform="oracle")
    if run("readelf", "-SW", program).stdout.count(" .SUNW_dof ") == 1:
        pytest.skip("this mold makes one writable section of both")
    outcome = watch(program, DTRACE_DOF_INIT_DEBUG="1")
    assert outcome.registered == []
    assert "usdt_dof_register: program: has no DOF that could be registered" in outcome.errors


@pytest.mark.parametrize("system", ["freebsd", "oracle"])
def test_the_mark_stands_behind_the_dof_in_the_same_section(
    system: str, linker: str, make: Any, run: Any, usdtbuild: Any, need: Any, tmp_path: Path
) -> None:
    """Elsewhere it would find nothing, `verify` would advise what has been done, and gdb would read it for a DOF."""
    gdb = need("gdb")
    program = make("dof", "pie", linker, False, f"-DUSDT_DOF_PLATFORM={system}", system=system)
    sections = run("readelf", "-SW", program).stdout
    assert sections.count(" .SUNW_dof ") == 1
    assert "dof-unregistered" not in usdtbuild("verify", program, code=None).stdout
    told = run(gdb, "-nx", "-batch", "-ex", "info probes dtrace", program).stdout
    assert [line.split()[1] for line in told.splitlines() if line.startswith("dtrace")] != []
    run("gcc", "program.o", "library.o", "-o", "alone", cwd=tmp_path)
    assert "dof-unregistered" in usdtbuild("verify", tmp_path / "alone", code=None).stdout


# -- the notes era ---------------------------------------------------------------------------------------------------

# What an installed DTrace's header has, as far as it matters: names that must not clash with ours, and the ioctl, here
# with a number that only the stand-in knows.
HEADER = """
#include <stdint.h>
#include <sys/ioctl.h>
typedef struct dof_helper { char dofhp_mod[64]; uint64_t dofhp_addr, dofhp_dof; } dof_helper_t;
typedef struct dof_hdr { uint8_t dofh_ident[16]; } dof_hdr_t;
typedef struct dof_sec { uint32_t dofs_type; } dof_sec_t;
typedef struct dof_provider { uint32_t dofpv_strtab; } dof_provider_t;
typedef struct dof_probe { uint64_t dofpr_addr; } dof_probe_t;
#define DTRACEHIOC_REMOVE _IOW(0xd8, 2, int)
#define DTRACEHIOC_ADDDOF _IOW(0xd8, 3, dof_helper_t)
#define DTRACEHIOC_HASUSDT 0x4008D805
"""


@pytest.fixture(params=["sys/dtrace.h", "dtrace/ioctl.h"])
def header(request: Any, tmp_path: Path) -> str:
    """The option that finds the header of an installed DTrace."""
    path = tmp_path / "include" / request.param
    path.parent.mkdir(parents=True)
    path.write_text(HEADER)
    return f"-I{tmp_path / 'include'}"


@pytest.mark.parametrize("formats", ["usdt", "stapsdt,dof,usdt"])
def test_the_notes_era_is_told_of_a_function_of_the_module(
    formats: str, header: str, make: Any, watch: Any, tmp_path: Path
) -> None:
    """A forked child says so again, and the end of each takes it back."""
    program = make(formats, "pie", "bfd", True, header)
    outcome = watch(program, "fork", mode="notes", LD_LIBRARY_PATH=str(tmp_path), cwd=tmp_path)
    words = [call.split() for call in outcome.calls]
    told = [(each[1], each[3]) for each in words if each[0] == "notes"]
    taken_back = [(str(int(each[1]) - 100), each[2]) for each in words if each[0] == "remove"]
    assert len(told) == 4  # two modules, two processes
    assert sorted(told) == sorted(taken_back)
    assert not any(each[0] in ("add", "refused") for each in words)


def test_an_older_dtrace_gets_the_dof(header: str, make: Any, watch: Any, tmp_path: Path) -> None:
    outcome = watch(make("dof,usdt", "pie", "bfd", False, header), cwd=tmp_path)
    calls = [call.split()[0] for call in outcome.calls]
    assert calls == ["open", "refused", "add", "close", "open", "remove", "close"]


def test_without_the_header_the_dof_is_tried_and_its_absence_told(make: Any, watch: Any, tmp_path: Path) -> None:
    outcome = watch(make("dof,usdt"), mode="notes", DTRACE_DOF_INIT_DEBUG="1", cwd=tmp_path)
    assert [call.split()[0] for call in outcome.calls] == ["open", "refused", "close"]
    assert "the kernel didn't take the DOF: Invalid argument" in outcome.errors
    outcome = watch(make("usdt"), mode="notes", DTRACE_DOF_INIT_DEBUG="1", cwd=tmp_path)
    assert [call.split()[0] for call in outcome.calls] == ["open", "close"]
    assert "<sys/dtrace.h>, without which notes can't be announced" in outcome.errors


def test_the_header_can_be_left_out(header: str, make: Any, watch: Any, tmp_path: Path) -> None:
    outcome = watch(make("dof", "pie", "bfd", False, header, "-DUSDT_DOF_WITHOUT_HEADER"), cwd=tmp_path)
    assert [call.split()[0] for call in outcome.calls][:2] == ["open", "add"]


# -- more rights than the caller -------------------------------------------------------------------------------------


@pytest.mark.parametrize("right", ["setuid", "capability"])
@pytest.mark.parametrize("platform", ["freebsd", "oracle"])
def test_a_privileged_program_heeds_no_variable(
    right: str, platform: str, build: Any, run: Any, need: Any, tmp_path: Path
) -> None:
    """It neither stays silent to DTrace, nor talks, nor opens what its caller names."""
    if os.geteuid() != 0:
        pytest.skip("only root can give a program more rights than its caller has")
    run("gcc", "-O1", "-DWRAPPED", "-c", HERE / "helper.c", "-o", tmp_path / "helper.o")
    wrap = "-Wl,--wrap=open,--wrap=open64,--wrap=ioctl,--wrap=close"
    texts = {"one": one(SETX), "runtime": "runtime", "two": two(SETX), "main": MAIN}
    made = build(texts, "-static", wrap, platform=platform, flags_of_c="-O1 -fno-pie", more=(tmp_path / "helper.o",))
    folder = Path("/var/tmp") / f"usdt-{os.getpid()}-{right}"  # a path that another user can walk, unlike tmp_path
    folder.mkdir(mode=0o755)
    try:
        program = Path(shutil.copy(made, folder / "program"))
        log = folder / "log"
        log.write_text("")
        folder.chmod(0o777)
        log.chmod(0o666)
        if right == "setuid":
            program.chmod(0o4755)
        else:
            program.chmod(0o755)
            run(need("setcap"), "cap_net_raw+ep", program)
        variables = {
            "DTRACE_DOF_INIT_DISABLE": "1", "DTRACE_DOF_INIT_DEBUG": "1", "DTRACE_DOF_INIT_DEVNAME": str(folder / "x"),
            "HELPER_LOG": str(log),
        }  # fmt: skip

        def run_as(user: int) -> Any:
            log.write_text("")
            done = subprocess.run([program], env=variables, capture_output=True, text=True, user=user, check=True)
            return done.stderr, [call.split()[:2] for call in log.read_text().splitlines()]

        if "nosuid" in mount_options(folder):
            pytest.skip(f"{folder} is on a file system that gives no rights")
        errors, calls = run_as(65534)
        assert errors == ""
        assert calls[0] == ["open", "/dev/dtrace/helper"]
        assert [call[0] for call in calls] == ["open", "add", "close", "open", "remove", "close"]
        assert run_as(0) == ("", [])  # whom it gives no more rights than he has is heeded: DISABLE
    finally:
        shutil.rmtree(folder)


def mount_options(path: Path) -> list[str]:
    """Return the options of the file system that a path is on."""
    best, options = "", ""
    for line in Path("/proc/self/mounts").read_text().splitlines():
        _, place, _, words, *_ = line.split()
        if str(path).startswith(place.rstrip("/") + "/") and len(place) >= len(best):
            best, options = place, words
    return options.split(",")
