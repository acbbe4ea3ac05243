"""The IFUNCs of programs without a dynamic segment: nothing but their own relocations says where their slots are."""

from __future__ import annotations

from typing import Any

import pytest

from .conftest import Build, find
from .test_calls import branches, listed, without_names

SOURCE = """
static int body(int value) { return value + 1; }
static int (*choose(void))(int) { return body; }
int chosen(int) __attribute__((ifunc("choose")));
void _start(void) { chosen(1); for (;;) chosen(2); }
"""
NAMES = (
    "x86-64", "i386", "aarch64", "arm", "thumb-2", "ppc32", "ppc64", "ppc64le", "s390x", "riscv64", "sparc64",
)  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_ifuncs_of_a_static_program(name: str, workshop: Any) -> None:
    shop = workshop(name)
    if "gcc" not in shop.compilers() or "bfd" not in shop.linkers() or not find(f"{shop.target.prefix}objdump"):
        pytest.skip(f"no gcc and GNU ld for {name} is installed (make test-all installs them)")
    (shop.folder / "ifunc.c").write_text(SOURCE)
    code = shop.compile(Build("gcc", f"-O1 {shop.target.no_pic}"), "ifunc.c")
    path = shop.folder / "static-ifunc"
    shop.call(*shop.linker("bfd"), *shop.target.options, "-static", "-e", "_start", code, "-o", path)
    file, bare = listed(shop, [path, without_names(shop, path)])
    (call,) = file["calls"]
    assert (call["name"], call["kind"], file["binding"], file["problem"]) == ("chosen", "ifunc", "now", None)
    goes = branches(shop, path)
    called = {int(site["address"], 16): goes.get(int(site["address"], 16)) for site in call["sites"]}
    assert len(called) == 2
    assert {f"{target:#x}" for target in called.values() if target is not None} == {call["stubs"][-1]}
    assert [{**one, "name": 0, "demangled": 0} for one in bare["calls"]] == [
        {**one, "name": 0, "demangled": 0, "canonical": None} for one in file["calls"]
    ]


def test_a_static_program_without_ifuncs_calls_nothing(workshop: Any) -> None:
    shop = workshop("x86-64")
    (shop.folder / "plain.c").write_text("void _start(void) { for (;;) ; }\n")
    code, path = shop.compile(Build("gcc", "-O1 -fno-pic"), "plain.c"), shop.folder / "static-plain"
    shop.call(*shop.linker("bfd"), "-static", code, "-o", path)
    (file,) = listed(shop, [path])
    assert "linked statically" in file["problem"]
    assert file["calls"] == []
