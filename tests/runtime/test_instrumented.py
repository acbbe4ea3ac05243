"""From the provider file to the registration: what `usdtbuild cc` writes, linkers join, and the runtime hands over.

The sites in what is registered are those of the SDT notes, which the same build writes, moved by the load address.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from usdtbuild.formats.dof.check import check

from .conftest import HERE, RUNTIME

PROVIDER = """
provider app {
    probe req__start(int id, char *path) : (char *path, int id);
    probe req__done(int);
    probe unused__probe(int);
};
#pragma D attributes Evolving/Evolving/ISA provider app args
"""
SHARED = """
#include "app.h"
template <typename T> struct Box {
    T value;
    explicit Box(T v) : value(v) { APP_REQ_START((int)sizeof(T), const_cast<char *>("box")); }
    ~Box() { APP_REQ_DONE((int)sizeof(T)); }
    T twice(T x) { if (APP_REQ_DONE_ENABLED()) APP_REQ_DONE((int)x); return value + x; }
};
inline int shared(int x) { static int calls; APP_REQ_DONE(++calls); return x + calls; }
int other(int x);
"""
FIRST = """
#include <stdio.h>
#include "shared.h"
static int local(int x) { APP_REQ_START(x, const_cast<char *>("first")); return x; }
extern "C" int never_called(int x) { APP_UNUSED_PROBE(x); return x; }
int (*volatile hide)(int) = local;
int main()
{
    printf("%p\\n", (void *)main);
    Box<int> a(1); Box<double> b(2);
    return a.twice(3) + (int)b.twice(4) + hide(1) + shared(2) + other(5) < 0;
}
"""
SECOND = """
#include "shared.h"
static int local(int x) { APP_REQ_START(x, const_cast<char *>("second")); return x; }
int (*volatile hide2)(int) = local;
int other(int x) { Box<int> a(x); Box<double> b(2); return a.twice(3) + (int)b.twice(4) + hide2(1) + shared(x); }
"""


@pytest.fixture
def sources(tmp_path: Path, usdtbuild: Any) -> Path:
    for name, text in {"app.d": PROVIDER, "shared.h": SHARED, "first.cc": FIRST, "second.cc": SECOND}.items():
        (tmp_path / name).write_text(text)
    usdtbuild("header", "--formats=dof", "app.d", "-o", "app.h", cwd=tmp_path)
    return tmp_path


def notes(usdtbuild: Any, program: Path) -> dict[str, set[int]]:
    """Return the addresses of the SDT notes in a file, by the probes' names as DTrace spells them."""
    found: dict[str, set[int]] = {}
    (told,) = json.loads(usdtbuild("list", "--json", program).stdout)["files"]
    for probe in told["probes"]:
        if probe["format"] == "stapsdt":
            name = probe["name"].replace("__", "-")
            found.setdefault(name, set()).update(int(str(site["address"]), 0) for site in probe["sites"])
    return found


def registered(outcome: Any, kind: str = "offsets", platform: str = "freebsd") -> dict[str, set[int]]:
    """Return the addresses of all sites that were registered, in the file's terms."""
    (found,) = outcome.registered
    assert check(found.data, platform) == []
    sites: dict[str, set[int]] = {}
    for provider in found.dof.providers:
        assert provider.name == "app"
        assert [attribute.encode() for attribute in provider.attributes] == [0x04040500] * 4 + [0x05050400]
        for probe in provider.probes:
            if getattr(probe, kind):
                sites.setdefault(probe.name, set()).update(probe.address + o for o in getattr(probe, kind))
            if probe.name == "req-start":
                assert (probe.native, probe.translated, probe.mapping) == (("int", "char *"), ("char *", "int"), (1, 0))
    return sites


@pytest.mark.parametrize("link", ["", "-Wl,--gc-sections", "-Wl,-r"])
@pytest.mark.parametrize("shape", ["-pie -fPIE", pytest.param("-no-pie -fno-pie", marks=pytest.mark.slow)])
def test_templates_of_two_objects_are_registered_once_with_all_sites(
    link: str, shape: str, linker: str, sources: Path, usdtbuild: Any, run: Any, watch: Any
) -> None:
    """One object is built with -O0 and one with -O2, so that they disagree on every function they share."""
    if link == "-Wl,-r" and linker == "mold":
        pytest.skip("what mold -r writes of groups, linkers refuse or lose")
    link_word, compile_word = shape.split()
    for name, level in (("first", "-O0"), ("second", "-O2")):
        usdtbuild(
            "cc", "--formats", "stapsdt,dof", "--target-os", "freebsd", "--", "g++", level, "-ffunction-sections",
            compile_word, "-c", f"{name}.cc", "-o", f"{name}.o", cwd=sources,
        )  # fmt: skip
    run("gcc", "-O1", "-fPIC", "-DUSDT_DOF_PLATFORM=freebsd", "-c", RUNTIME, "-o", "runtime.o", cwd=sources)
    objects = ["first.o", "runtime.o", "second.o"]
    if link == "-Wl,-r":
        run("g++", "-r", "-nostdlib", "-no-pie", f"-fuse-ld={linker}", *objects, "-o", "whole.o", cwd=sources)
        objects, link = ["whole.o"], ""
    run("g++", f"-fuse-ld={linker}", link_word, *link.split(), *objects, "-o", "program", cwd=sources)
    program = sources / "program"
    outcome = watch(program)
    wanted = notes(usdtbuild, program)
    assert ("unused-probe" in wanted) == (link != "-Wl,--gc-sections")
    found = registered(outcome)
    assert found == wanted
    assert len(found["req-start"]) >= 4
    checked = usdtbuild("dof", "check", program).stdout
    assert checked.count("freebsd: accepted") == checked.count("DOF at")


def test_is_enabled_calls_are_registered_too(sources: Path, usdtbuild: Any, run: Any, watch: Any) -> None:
    """As on FreeBSD: no SDT notes, and tests of whether a probe is enabled are sites themselves."""
    for name in ("first", "second"):
        usdtbuild(
            "cc", "--formats", "dof", "--target-os", "freebsd", "--", "g++", "-O1", "-fno-inline",
            "-DUSDT_ENABLED_BY_CALL", "-c", f"{name}.cc", "-o", f"{name}.o", cwd=sources,
        )  # fmt: skip
    run("g++", "-O1", "-x", "c++", "-DUSDT_DOF_PLATFORM=freebsd", "-c", RUNTIME, "-o", "runtime.o", cwd=sources)
    run("g++", "first.o", "second.o", "runtime.o", "-o", "program", cwd=sources)
    outcome = watch(sources / "program")
    enabled = registered(outcome, "enabled_offsets")
    assert list(enabled) == ["req-done"]
    assert len(enabled["req-done"]) == 2  # Box<int>::twice and Box<double>::twice
    code = (sources / "program").read_bytes()
    for address in enabled["req-done"]:  # xor %eax,%eax stands before it, and a NOP of three bytes is there
        assert code[address - 2 : address + 3] == bytes.fromhex("31c00f1f00")


@pytest.mark.parametrize("linker", ["bfd", "lld"])
@pytest.mark.parametrize("shape", ["-pie -fPIE", "-no-pie -fno-pie"])
def test_oracle_gets_is_enabled_sites_that_it_can_answer(
    shape: str, linker: str, sources: Path, usdtbuild: Any, run: Any, watch: Any, need: Any
) -> None:
    """Version 3, and absolute addresses: in a PIE those that the loader has put there."""
    need(f"ld.{linker}")
    link_word, compile_word = shape.split()
    for name in ("first", "second"):
        usdtbuild(
            "cc", "--formats", "stapsdt,dof,usdt", "--target-os", "oracle", "--", "g++", "-O1", "-fno-inline",
            "-DUSDT_ENABLED_BY_CALL", compile_word, "-c", f"{name}.cc", "-o", f"{name}.o", cwd=sources,
        )  # fmt: skip
    run("gcc", "-O1", "-fPIC", "-DUSDT_DOF_PLATFORM=oracle", "-c", RUNTIME, "-o", "runtime.o", cwd=sources)
    objects = ("first.o", "runtime.o", "second.o")
    run("g++", f"-fuse-ld={linker}", link_word, "-Wl,--fatal-warnings", *objects, "-o", "program", cwd=sources)
    program = sources / "program"
    outcome = watch(program)
    moved = 0 if "no" in link_word else loaded_at(outcome.out, program, run)
    found, enabled = (registered(outcome, kind, "oracle") for kind in ("offsets", "enabled_offsets"))
    assert outcome.registered[0].dof.version == 3
    assert found == {name: {a + moved for a in places} for name, places in notes(usdtbuild, program).items()}
    (told,) = json.loads(usdtbuild("list", "--json", program).stdout)["files"]
    (asked,) = [p for p in told["probes"] if (p["format"], p["name"]) == ("usdt", "req__done")]
    asking = {site["address"] for site in asked["sites"] if site["is_enabled"]}
    assert enabled == {"req-done": {int(str(address), 0) + moved for address in asking}}
    assert len(asking) == 1


def loaded_at(out: str, program: Path, run: Any) -> int:
    """Return by how much a program was moved, which prints where its main is."""
    (line,) = [line for line in run("nm", program).stdout.splitlines() if line.endswith(" T main")]
    return int(out.split(maxsplit=1)[0], 16) - int(line.split()[0], 16)


MACHINES = {
    "i386": ("i686", "qemu-i386"), "ppc": ("powerpc", "qemu-ppc"), "ppc64": ("powerpc64", "qemu-ppc64"),
    "aarch64": ("aarch64", "qemu-aarch64"), "s390x": ("s390x", "qemu-s390x"), "riscv64": ("riscv64", "qemu-riscv64"),
    "sparc64": ("sparc64", "qemu-sparc64"),
}  # fmt: skip
PORTABLE = """
#include <stdio.h>
#include "app.h"
static __attribute__((noinline)) int pad(int x) { printf("%d", x); return x; }
__attribute__((noinline)) int serve(int x) { pad(x); APP_REQ_START(x, (char *)"one"); return pad(x + 1); }
__attribute__((noinline)) int finish(int x) { pad(x); pad(x); APP_REQ_DONE(x); APP_REQ_START(x, 0); return x; }
int main(void) { return serve(1) + finish(2) == 0; }
"""


@pytest.mark.parametrize("machine", MACHINES)
def test_other_machines_register_their_sites(
    machine: str, sources: Path, usdtbuild: Any, run: Any, need: Any, need_c_library: Any, watch: Any
) -> None:
    prefix, emulator = MACHINES[machine]
    compiler, emulator = need(f"{prefix}-linux-gnu-gcc"), need(emulator)
    need_c_library(compiler, "-static")
    (sources / "main.c").write_text(PORTABLE)
    usdtbuild(
        "cc", "--formats", "stapsdt,dof", "--target-os", "freebsd", "--", compiler, "-O1", "-ffunction-sections",
        "-fno-pie", "-c", "main.c", "-o", "main.o", cwd=sources,
    )  # fmt: skip
    run(compiler, "-O1", "-DUSDT_DOF_PLATFORM=freebsd", "-c", RUNTIME, "-o", "runtime.o", cwd=sources)
    run(compiler, "-O1", "-DWRAPPED", "-c", HERE / "helper.c", "-o", "helper.o", cwd=sources)
    wrap = "-Wl,--wrap=open,--wrap=open64,--wrap=ioctl,--wrap=close"
    run(compiler, "-static", wrap, "main.o", "runtime.o", "helper.o", "-o", "program", cwd=sources)
    found = registered(watch(emulator, sources / "program", preload=False))
    assert found == notes(usdtbuild, sources / "program")
    assert [len(places) for _, places in sorted(found.items())] == [1, 2]
