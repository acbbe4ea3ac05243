"""Cross builds as users do them: the launcher in front of a cross compiler, CMake with a toolchain file.

The programs use the machine's C library, are position independent and load a shared library that has probes too.
"""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
# Triple of the compiler -> target whose emulator runs the programs.
COMPILERS = {
    "aarch64-linux-gnu": "aarch64", "arm-linux-gnueabi": "arm", "arm-linux-gnueabihf": "thumb-2",
    "i686-linux-gnu": "i386", "mips-linux-gnu": "mips", "mipsel-linux-gnu": "mipsel",
    "mips64-linux-gnuabi64": "mips64", "mips64el-linux-gnuabi64": "mips64el", "powerpc-linux-gnu": "ppc32",
    "powerpc64-linux-gnu": "ppc64", "powerpc64le-linux-gnu": "ppc64le", "riscv64-linux-gnu": "riscv64",
    "s390x-linux-gnu": "s390x", "sparc64-linux-gnu": "sparc64",
}  # fmt: skip
PROVIDER = """provider cross {
	probe greeting(const char *who, int64_t number);
	probe in__library(int value);
};
"""
LIBRARY = """#include "cross.h"
int library(int value)
{
	if (CROSS_IN_LIBRARY_ENABLED())
		CROSS_IN_LIBRARY(value);
	return value * 2;
}
"""
PROGRAM = """#include <stdio.h>
#include "cross.h"
int library(int value);
static __typeof__(&__dtrace_cross___greeting) volatile pointer = __dtrace_cross___greeting; /* names its convention */
int main(int argc, char **argv)
{
	CROSS_GREETING("world", argc);
	pointer("pointer", 2);
	printf("%d\\n", library(20) + argc);
	(void)argv;
	return 0;
}
"""


@pytest.fixture
def sources(tmp_path: Any) -> Any:
    """Put the sources into a folder and return it."""
    (tmp_path / "cross.d").write_text(PROVIDER)
    (tmp_path / "library.c").write_text(LIBRARY)
    (tmp_path / "program.c").write_text(PROGRAM)
    return tmp_path


@pytest.fixture
def emulate(workshop: Any, run: Any) -> Any:
    """Run a program that needs its machine's C library: `emulate("s390x-linux-gnu", program)`."""

    def run_program(triple: Any, program: Any, **more: Any) -> Any:
        if shutil.which(f"{triple}-gcc") is None or not Path(f"/usr/{triple}/include/stdio.h").exists():
            pytest.skip(f"there is no compiler or C library for {triple} (make test-all installs them)")
        shop = workshop(COMPILERS[triple])
        return run(*shop.target.qemu.split(), "-L", f"/usr/{triple}", program, **more).stdout

    return run_program


@pytest.mark.slow
@pytest.mark.parametrize("triple", COMPILERS)
def test_launcher_with_a_cross_compiler(triple: Any, sources: Any, run: Any, usdtbuild: Any, emulate: Any) -> None:
    """The machine is the object's, whatever the host is: compile, link a library, compile and link in one go."""
    if shutil.which(f"{triple}-gcc") is None:
        pytest.skip(f"{triple}-gcc is not installed (make test-all installs it)")
    usdtbuild("header", "--formats=dof", "cross.d", cwd=sources)
    compiler = (f"{triple}-gcc", "-O2", "-Wall", "-Werror", "-fPIC")
    usdtbuild("cc", "--", *compiler, "-c", "library.c", "-o", "library.o", cwd=sources)
    run(*compiler, "-shared", "library.o", "-o", "libcross.so", cwd=sources)
    usdtbuild(
        "cc", "--", *compiler, "-pie", "program.c", "-o", "program", "-L.", "-lcross", "-Wl,-rpath,$ORIGIN", cwd=sources
    )
    assert emulate(triple, sources / "program", cwd=sources) == "41\n"
    found = usdtbuild("list", "program", "libcross.so", cwd=sources).stdout
    assert "cross:greeting" in found
    assert "cross:in__library" in found or "cross:in-library" in found


@pytest.mark.slow
def test_cmake_with_a_toolchain_file(sources: Any, run: Any, usdtbuild: Any, emulate: Any) -> None:
    triple = "aarch64-linux-gnu"
    (sources / "toolchain.cmake").write_text(
        f"set(CMAKE_SYSTEM_NAME Linux)\nset(CMAKE_SYSTEM_PROCESSOR aarch64)\nset(CMAKE_C_COMPILER {triple}-gcc)\n"
        f"set(CMAKE_FIND_ROOT_PATH /usr/{triple})\nset(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)\n"
        "set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)\nset(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)\n"
        "set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)\n"
    )
    (sources / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.16...4.0)\nproject(cross LANGUAGES C)\n"
        "find_package(USDTBuild CONFIG REQUIRED)\nusdt_add_provider(cross-probes cross.d FORMATS stapsdt dof)\n"
        "add_library(cross SHARED library.c)\ntarget_usdt_providers(cross cross-probes)\n"
        "add_executable(program program.c)\ntarget_usdt_providers(program cross-probes)\n"
        "target_link_libraries(program PRIVATE cross)\n"
    )
    if shutil.which(f"{triple}-gcc") is None:
        pytest.skip(f"{triple}-gcc is not installed (make test-all installs it)")
    build = sources / "build"
    package = usdtbuild("--cmake-dir").stdout.strip()
    run(
        "cmake", "-S", sources, "-B", build, f"-DCMAKE_TOOLCHAIN_FILE={sources / 'toolchain.cmake'}",
        f"-DUSDTBuild_DIR={package}", f"-DUSDTBuild_PYTHON={sys.executable}",
    )  # fmt: skip
    run("cmake", "--build", build)
    assert emulate(triple, build / "program") == "41\n"
    found = usdtbuild("list", build).stdout
    assert "cross:greeting" in found
    run(f"{triple}-readelf", "-h", build / "program")


@pytest.mark.slow
@pytest.mark.parametrize("triple", ["aarch64-linux-gnu", "sparc64-linux-gnu", "mips-linux-gnu"])
def test_builds_are_reproducible(triple: Any, sources: Any, usdtbuild: Any) -> None:
    """The same object twice is the same to the byte."""
    if shutil.which(f"{triple}-gcc") is None:
        pytest.skip(f"{triple}-gcc is not installed (make test-all installs it)")
    usdtbuild("header", "--formats=dof", "cross.d", cwd=sources)
    for name in ("first", "second"):
        usdtbuild("cc", "--", f"{triple}-gcc", "-O2", "-fPIC", "-c", "program.c", "-o", f"{name}.o", cwd=sources)
    assert (sources / "first.o").read_bytes() == (sources / "second.o").read_bytes()


SMALL_DATA = {
    "mips-linux-gnu-gcc": "-mno-abicalls -fno-pic -G8", "mips64-linux-gnuabi64-gcc": "-mno-abicalls -fno-pic -G8",
    "clang --target=mips-linux-gnu": "-mno-abicalls -fno-pic -mgpopt -G8",
    "powerpc-linux-gnu-gcc": "-fno-pic -msdata=sysv -G8", "riscv64-linux-gnu-gcc": "-fno-pic -msmall-data-limit=8",
}  # fmt: skip


@pytest.mark.parametrize("compiler", SMALL_DATA)
def test_a_semaphore_is_no_small_data(compiler: Any, sources: Any, need: Any, run: Any, usdtbuild: Any) -> None:
    """It is read at its own address: what is read by its distance from small data must lie there."""
    program, *rest = compiler.split()
    usdtbuild("header", "--formats=dof", "cross.d", cwd=sources)
    flags = (*rest, "-O2", "-ffreestanding", "-Wall", "-Werror", *SMALL_DATA[compiler].split())
    (sources / "small.c").write_text("extern short small;\nint read_it(void);\nint read_it(void) { return small; }\n")
    raw = sources / "raw.o"
    types: dict[str, Any] = {}
    for name in ("library.c", "small.c"):
        run(need(program), *flags, "-c", name, "-o", raw, cwd=sources)
        for line in run("readelf", "-rW", raw).stdout.splitlines():
            found = re.search(r"(R_\w+) .* (small|cross_in__library_semaphore)\b", line)
            if found:
                types.setdefault(found[2], set()).add(found[1])
    near = {type_ for type_ in types["small"] if "GPREL" in type_ or "SDA" in type_}
    assert near or "riscv" in compiler  # whose linkers choose, and see where it is
    assert types["cross_in__library_semaphore"]
    assert not {type_ for type_ in types["cross_in__library_semaphore"] if "GPREL" in type_ or "SDA" in type_}
