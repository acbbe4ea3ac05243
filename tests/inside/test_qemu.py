"""The live runtime on other machines, under qemu: with threads where there is a protocol, else that it says so."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.slow  # make test-machines runs them, with all cross compilers there
HERE = Path(__file__).resolve().parent
RUNTIME = HERE.parent.parent / "usdtbuild" / "runtime" / "live"
NONE = r"""
#include <stdio.h>
#include "usdt_live.h"
int main(void)
{
	int probes = usdt_live_probe_on("*", NULL, NULL), functions = usdt_live_function_on("*", NULL, NULL, NULL);
	puts(usdt_live_error(probes));
	return probes != USDT_LIVE_BAD_MACHINE || functions != probes || usdt_live_probe_off("*") != probes;
}
"""


HOST = "int program(int argc, char **argv);\nint main(int argc, char **argv) { return program(argc, argv); }\n"
Run = Callable[..., str]


@pytest.fixture
def qemu(run: Any, runtime: Any, usdtbuild: Any, need: Any, many_functions: Any, tmp_path: Path) -> Run:
    """Compile a program of this folder for a machine, with the runtime, and run it: `qemu("aarch64", source, ...)`.

    With `guarded` all of it but a `main` is a library, whose pages the dynamic linker then guards (BTI): Debian's
    start files don't allow that to a program's own. With `functions` that many are generated and patchable, and
    nothing else is. With `archive` the program is also linked with the runtime as a static library, of which linkers
    take what has a name that is asked for, and does the same.
    """

    def build_and_run(
        machine: str, triple: str, source: Path, flags: tuple[str, ...], *words: Any, patchable: str = "",
        guarded: bool = False, version: str = "", functions: int = 0, archive: bool = False,
    ) -> str:  # fmt: skip
        cxx = source.suffix == ".cc"
        compiler, emulator = need(f"{triple}-gcc{version}"), need(f"qemu-{machine}")
        driver = need(f"{triple}-g++{version}") if cxx else compiler
        for provider in HERE.glob("*.d"):
            usdtbuild("header", "--formats=dof", provider, "-o", tmp_path / f"{provider.stem}.h")
        # Debian's libgcc finds out about atomics in a constructor that isn't fit for guards either.
        place = ("-fPIC", "-mno-outline-atomics") if guarded else ()
        objects = runtime(compiler, "-O2", *flags, *place)
        name = ("-Dmain=program",) if guarded else ()
        options = [*flags, *place, *name, *([patchable] if patchable and not functions else [])]
        if functions:
            options += [f"-DFUNCTIONS={functions}", "-DWITH_LEAVE=1"]
            many = (compiler, "-O1", *flags, *place, patchable, "-c", many_functions(tmp_path, functions))
            objects = [*objects, tmp_path / "many.o"]
            run(*many, "-o", objects[-1])
        compile_ = (driver, "-O2", *options, "-I", tmp_path, "-I", RUNTIME, "-c", source, "-o", tmp_path / "program.o")
        usdtbuild("cc", "--", *compile_)
        if not guarded:
            options = [*flags, *(() if "-fPIE" in flags else ("-static",))]

            def link_and_run(*runtime: Path) -> str:
                run(driver, *options, tmp_path / "program.o", *runtime, "-lpthread", "-o", tmp_path / "program")
                return str(run(emulator, "-L", f"/usr/{triple}", tmp_path / "program", *words).stdout)

            out = link_and_run(*objects)
            if archive:
                run(need(f"{triple}-ar"), "rcs", tmp_path / "liblive.a", *objects)
                assert link_and_run(tmp_path / "liblive.a") == out
            return out
        host, start = tmp_path / f"host{source.suffix}", tmp_path / "start.c"
        host.write_text(HOST)
        start.write_text('__attribute__((visibility("hidden"))) void *__dso_handle = &__dso_handle;\n')
        run(compiler, *flags, *place, "-c", start, "-o", tmp_path / "start.o")
        library = ("-shared", "-nostartfiles", "-Wl,-z,force-bti", tmp_path / "start.o", tmp_path / "program.o")
        run(driver, *flags, *library, *objects, "-lpthread", "-o", tmp_path / "libprogram.so")
        run(driver, host, tmp_path / "libprogram.so", "-Wl,-rpath," + str(tmp_path), "-o", tmp_path / "program")
        return str(run(emulator, "-L", f"/usr/{triple}", tmp_path / "program", *words).stdout)

    return build_and_run


@pytest.fixture(scope="session")
def guards(run: Any, need: Any, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Skip where a guarded library (BTI) isn't guarded: this emulator or this dynamic linker is too old."""
    folder = tmp_path_factory.mktemp("guards")
    compiler, emulator = need("aarch64-linux-gnu-gcc"), need("qemu-aarch64")
    (folder / "library.s").write_text(".globl library\n.type library,%function\nlibrary: nop\n ret\n")
    (folder / "host.c").write_text("void library(void);\nint main(void) { library(); return 0; }\n")
    shared = ("-shared", "-nostartfiles", "-Wl,-z,force-bti")
    run(compiler, *shared, folder / "library.s", "-o", folder / "liblibrary.so")
    run(compiler, folder / "host.c", folder / "liblibrary.so", f"-Wl,-rpath,{folder}", "-o", folder / "host")
    done = run(emulator, "-L", "/usr/aarch64-linux-gnu", folder / "host", code=None)
    if done.returncode == 0:
        pytest.skip("nothing guards indirect branches here")


@pytest.mark.usefixtures("guards")
@pytest.mark.parametrize("protection", ["none", "standard"])
def test_aarch64_frames_are_left_in_every_way(protection: str, qemu: Run, check_frames: Any) -> None:
    flags = (f"-mbranch-protection={protection}",)
    source, patchable = HERE / "frames.cc", "-fpatchable-function-entry=1,0"
    out = qemu("aarch64", "aarch64-linux-gnu", source, flags, 200, patchable=patchable, guarded=protection != "none")
    check_frames(out, 200)


@pytest.mark.usefixtures("guards")
@pytest.mark.parametrize("protection", ["none", "standard"])
def test_aarch64_sites_are_switched_under_threads(protection: str, qemu: Any) -> None:
    flags = (f"-mbranch-protection={protection}",)
    guarded = protection != "none"
    out = qemu("aarch64", "aarch64-linux-gnu", HERE / "stress_probes.c", flags, 40, 4, guarded=guarded)
    found = {name: int(value) for name, value in re.findall(r"([a-z-]+) (\d+)", out)}
    assert (found["wrong-results"], found["wrong-arguments"], found["failed"]) == (0, 0, 0)
    assert found["counted"] == 12800
    assert found["handled"] > 100


AARCH64, ARM = ("aarch64", "aarch64-linux-gnu"), ("arm", "arm-linux-gnueabihf")


def check_switched(out: str) -> None:
    found = {name: int(value) for name, value in re.findall(r"(\w+) (\d+)", out)}
    assert (found["wrong"], found["failed"], found["counted"]) == (0, 0, 300)
    assert found["entered"] > 100


@pytest.mark.usefixtures("guards")
@pytest.mark.parametrize("protection", ["none", "standard"])
def test_aarch64_functions_are_switched_under_threads(protection: str, qemu: Run) -> None:
    """Entries, trampolines and thunks in pages where an indirect branch may only land on `bti`."""
    flags, guarded = (f"-mbranch-protection={protection}",), protection != "none"
    options: Any = {"patchable": "-fpatchable-function-entry=1,0", "guarded": guarded, "functions": 300}
    check_switched(qemu(*AARCH64, HERE / "many_functions.c", flags, 40, 3, **options))


@pytest.mark.parametrize(("flags", "entries"), [(("-marm",), "1,0"), (("-mthumb", "-Wa,-mthumb"), "3,2")])
def test_arm_functions_are_switched_under_threads(flags: tuple[str, ...], entries: str, qemu: Run) -> None:
    options: Any = {"patchable": f"-fpatchable-function-entry={entries}", "functions": 300}
    check_switched(qemu(*ARM, HERE / "many_functions.c", flags, 40, 3, **options))


def open_and_close(machine: str, triple: str, flags: tuple[str, ...], run: Any, runtime: Any, tools: Any) -> str:
    """Run modules.c, which opens a library of module.c a hundred times."""
    usdtbuild, need, folder = tools
    compiler, emulator = need(f"{triple}-gcc"), need(f"qemu-{machine}")
    usdtbuild("header", "--formats=dof", HERE / "module.d", "-o", folder / "module.h")
    compile_ = (compiler, "-O2", *flags, "-fPIC", "-I", folder, "-c", HERE / "module.c", "-o", folder / "module.o")
    usdtbuild("cc", "--", *compile_)
    guard = ("-nostartfiles", "-Wl,-z,force-bti") if "-mbranch-protection=standard" in flags else ()
    run(compiler, "-shared", *guard, folder / "module.o", "-o", folder / "module.so")
    objects = runtime(compiler, "-O2", *flags)
    run(compiler, "-O2", "-I", RUNTIME, HERE / "modules.c", *objects, "-lpthread", "-ldl", "-o", folder / "modules")
    return str(run(emulator, "-L", f"/usr/{triple}", folder / "modules", folder / "module.so", 100).stdout)


@pytest.mark.usefixtures("guards")
@pytest.mark.parametrize("protection", ["none", "standard"])
def test_aarch64_a_library_is_opened_and_closed_again(
    protection: str, run: Any, runtime: Any, usdtbuild: Any, need: Any, tmp_path: Path
) -> None:
    """The dynamic linker tells of it before the library's constructor fires a probe."""
    flags = (f"-mbranch-protection={protection}",)
    out = open_and_close(*AARCH64, flags, run, runtime, (usdtbuild, need, tmp_path))
    assert out == "first 0 fired 1100 hits 1100 more points 0\n"


@pytest.mark.parametrize("flag", ["-marm", "-mthumb"])
def test_arm_a_library_is_opened_and_closed_again(
    flag: str, run: Any, runtime: Any, usdtbuild: Any, need: Any, tmp_path: Path
) -> None:
    out = open_and_close(*ARM, (flag,), run, runtime, (usdtbuild, need, tmp_path))
    assert out == "first 0 fired 1100 hits 1100 more points 0\n"


def test_aarch64_long_vectors_are_kept(qemu: Run) -> None:
    length = int(qemu("aarch64", "aarch64-linux-gnu", HERE / "long_vectors.c", ("-mbranch-protection=none",)))
    if not length:
        pytest.skip("this emulator's processor has no vectors of more than sixteen bytes")
    assert length >= 16


# machine, triple, flags, the entries' N,M, sites in all
# Under qemu a static program of riscv64 has no free memory within the megabyte that a jump reaches.
MACHINES = [
    ("riscv64", "riscv64-linux-gnu", ("-fPIE",), "-fpatchable-function-entry=5,4", 128),
    ("s390x", "s390x-linux-gnu", (), "-mhotpatch=4,2", 64),
    ("ppc64le", "powerpc64le-linux-gnu", (), "", 128),
    ("arm", "arm-linux-gnueabihf", ("-marm",), "-fpatchable-function-entry=1,0", 128),
    ("arm", "arm-linux-gnueabihf", ("-mthumb", "-Wa,-mthumb"), "-fpatchable-function-entry=3,2", 128),
]


@pytest.mark.parametrize(("flag", "divided"), [("-marm", 0), ("-mthumb", 2)])
def test_arm_keeps_all_registers_and_sites_across_pages_are_switched(flag: str, divided: int, qemu: Run) -> None:
    found = numbers(qemu(*ARM, HERE / "arm.c", (flag, "-mfpu=neon")))
    # Ten rounds of sixteen calls and as many tail calls, and seven times the one whose registers are looked at.
    assert found == {"on": 33, "divided": divided, "counted": 327, "seen": 327, "wrong": 0, "kept": 7}


def numbers(out: str) -> dict[str, int]:
    return {name: int(value) for name, value in re.findall(r"([a-z-]+) (\d+)", out)}


@pytest.mark.parametrize(("machine", "triple", "flags", "patchable", "sites"), MACHINES)
def test_sites_are_switched(
    machine: str, triple: str, flags: tuple[str, ...], patchable: str, sites: int, qemu: Run
) -> None:
    del patchable
    found = numbers(qemu(machine, triple, HERE / "stress_probes.c", flags, 40, 0, archive=True))
    assert (found["wrong-results"], found["wrong-arguments"], found["failed"]) == (0, 0, 0)
    assert found["counted"] == 100 * sites
    # Five times eight switches: after three of them calls' sites have one handler, after a fourth two; tails' have one
    # after three.
    assert found["handled"] == 5 * (5 * 64 + 3 * (sites - 64))


@pytest.mark.parametrize(("machine", "triple", "flags", "patchable", "sites"), [m for m in MACHINES if m[3]])
def test_frames_are_left_in_every_way(
    machine: str, triple: str, flags: tuple[str, ...], patchable: str, sites: int, qemu: Run, check_frames: Any
) -> None:
    del sites
    check_frames(qemu(machine, triple, HERE / "frames.cc", flags, 50, patchable=patchable), 50)


PPC64LE = ("ppc64le", "powerpc64le-linux-gnu")


@pytest.fixture(scope="session")
def ppc64le_version(run: Any) -> str:
    """Return how the name of a GCC ends that puts NOPs at local entry points, "" or "-14"; skip where there is none."""
    for version in ("", "-16", "-15", "-14", "-13"):
        compiler = shutil.which(f"{PPC64LE[1]}-g++{version}")
        if compiler and int(run(compiler, "-dumpversion").stdout.split(".")[0]) >= 13:
            return version
    pytest.skip("GCC 13 or newer for ppc64le is not installed; GCC 12 puts NOPs where the TOC pointer is made")


def test_ppc64le_frames_are_left_in_every_way(ppc64le_version: str, qemu: Run, check_frames: Any) -> None:
    options: Any = {"patchable": "-fpatchable-function-entry=1,0", "version": ppc64le_version}
    check_frames(qemu(*PPC64LE, HERE / "frames.cc", (), 50, **options), 50)


def test_ppc64le_exceptions_leave_a_librarys_functions(
    ppc64le_version: str, run: Any, runtime: Any, need: Any, tmp_path: Path
) -> None:
    """What catches finds its own TOC pointer, which unwinders load from the stack where a call went to another file."""
    compiler, driver = (need(f"{PPC64LE[1]}-{name}{ppc64le_version}") for name in ("gcc", "g++"))
    entries, library = "-fpatchable-function-entry=1,0", tmp_path / "libcrossing.so"
    run(driver, "-O2", "-fPIC", "-shared", "-DLIBRARY", entries, HERE / "crossing.cc", "-o", library)
    objects = runtime(compiler, "-O2")
    words = ("-O2", "-I", RUNTIME, HERE / "crossing.cc", *objects, library, f"-Wl,-rpath,{tmp_path}", "-lpthread")
    run(driver, *words, "-o", tmp_path / "crossing")
    libc = Path(run(compiler, "-print-file-name=libc.so.6").stdout.strip()).resolve()
    out = run(need("qemu-ppc64le"), "-L", libc.parent.parent, tmp_path / "crossing").stdout
    assert out == "on 2 sum 123 left 3 caught 200\n"


@pytest.mark.parametrize(
    ("machine", "triple", "flags"), [("aarch64", "aarch64-linux-gnu", ()), *((m[0], m[1], m[2]) for m in MACHINES)]
)
def test_arguments_on_the_stack_are_read(machine: str, triple: str, flags: tuple[str, ...], qemu: Run) -> None:
    assert qemu(machine, triple, HERE / "many_arguments.c", flags, archive=True) == "seen 1 right 1\n"


PATCHABLE = r"""
#include <stdio.h>
#include <string.h>
#include "usdt_live.h"
static volatile int one = 1;
__attribute__((noinline)) int f_one(int x) { return x + one; }
static int show(const usdt_live_point *point, unsigned long long count, void *data)
{
	(void)count;
	(void)data;
	if (!strcmp(point->name, "f_one"))
		puts(point->reason ? point->reason : "yes");
	return 0;
}
int main(void)
{
	int on = usdt_live_function_on("f_one", NULL, NULL, NULL), sum = f_one(1);
	usdt_live_each(USDT_LIVE_FUNCTIONS, "*", show, NULL);
	return on != 0 || sum != 2;
}
"""


def test_two_nops_of_s390x_are_refused(qemu: Run, tmp_path: Path) -> None:
    source = tmp_path / "patchable.c"
    source.write_text(PATCHABLE)
    patchable = "-fpatchable-function-entry=7,5"
    assert qemu("s390x", "s390x-linux-gnu", source, (), patchable=patchable) == "not-one-store\n"


def test_nops_before_the_toc_pointer_are_refused(qemu: Run, run: Any, need: Any, tmp_path: Path) -> None:
    if int(run(need(f"{PPC64LE[1]}-gcc"), "-dumpversion").stdout.split(".")[0]) >= 13:
        pytest.skip("this GCC puts NOPs at local entry points")
    source = tmp_path / "patchable.c"
    source.write_text(PATCHABLE)
    assert qemu(*PPC64LE, source, (), patchable="-fpatchable-function-entry=2,0") == "toc\n"


@pytest.mark.parametrize(
    ("machine", "triple"),
    [("ppc64", "powerpc64-linux-gnu"), ("arm", "arm-linux-gnueabi")],  # the latter is for version 5
)
def test_machines_without_a_protocol_say_so(machine: str, triple: str, qemu: Any, tmp_path: Path) -> None:
    source = tmp_path / "none.c"
    source.write_text(NONE)
    assert qemu(machine, triple, source, ()) == "nothing can be switched on this machine\n"
