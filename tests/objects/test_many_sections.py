"""Objects with so many sections that their numbers don't fit 16 bits: in the input, or only with what we add."""

from __future__ import annotations

import json
from typing import Any

import pytest

LIMIT = 0xFF00  # SHN_LORESERVE: from here on numbers are in .symtab_shndx
CALLER = """
extern int before(int), after(int);
extern void (*pointer)(void);
int main(void) { pointer(); return before(0) + after(0); }
"""


def source(sections: int) -> str:
    """A function with a probe before, and one behind, `sections` sections with one function each."""
    many = f"""
        .altmacro
        .macro one number
        .section .text.f\\number,"ax",@progbits
        .globl f\\number
        f\\number: ret
        .endm
        .set count,0
        .rept {sections}
        one %count
        .set count,count+1
        .endr
        .section .text.after,"ax",@progbits
    """
    lines = "".join(json.dumps(line.strip() + "\n") + "\n" for line in many.strip().splitlines())
    return f"""
        int before(int n) {{ if (APP_REQ_ENABLED()) APP_REQ(n, "before"); return n; }}
        __asm__({lines});
        __attribute__((section(".text.after"))) int after(int n) {{ APP_START(); APP_REQ(n, "after"); return n; }}
        void (*pointer)(void) = __dtrace_app___start;
    """


@pytest.fixture(scope="module")
def crossing(session_bench: Any) -> Any:
    """An object that only our sections take across the limit."""
    header = session_bench.run("readelf", "-hW", compile_many(session_bench, 10)).stdout
    own = int(header.split("Number of section headers:")[1].split()[0]) - 10
    return compile_many(session_bench, LIMIT - 5 - own)


def compile_many(bench: Any, sections: int) -> Any:
    return bench.compile("gcc", source(sections), "-O2", "-fno-toplevel-reorder", "-ffunction-sections")


def compare(bench: Any, check: Any, plain: Any, linker: str) -> None:
    path = bench.instrument(plain)
    shown = bench.run("readelf", "-SsW", path)
    assert ".symtab_shndx" in shown.stdout
    assert shown.stderr == ""
    caller = bench.compile("gcc", CALLER, "-O1")
    program = bench.link(f"-fuse-ld={linker}", "-Wl,--gc-sections", caller, path)
    reference = bench.link(f"-fuse-ld={linker}", "-Wl,--gc-sections", caller, plain, bench.stubs([plain]))
    assert [r.probe for r in check.records(check.binary(program), check.binary(reference))] == ["start"]
    assert bench.output(program) == ""


def test_our_sections_cross_the_limit(session_bench: Any, check: Any, crossing: Any) -> None:
    assert ".symtab_shndx" not in session_bench.run("readelf", "-SW", crossing).stdout
    compare(session_bench, check, crossing, "mold")


def test_what_was_written_beyond_the_limit_can_be_read_again(session_bench: Any, crossing: Any) -> None:
    once = session_bench.instrument(crossing)
    done = session_bench.usdtbuild("instrument", "-v", once, "-o", session_bench.fresh("twice.o"))
    assert "already instrumented" in done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("linker", ["bfd", "gold", "lld", "mold"])
def test_the_input_is_beyond_the_limit(session_bench: Any, check: Any, need: Any, linker: str) -> None:
    need(f"ld.{linker}")
    plain = compile_many(session_bench, LIMIT + 10)
    assert ".symtab_shndx" in session_bench.run("readelf", "-SW", plain).stdout
    compare(session_bench, check, plain, linker)
