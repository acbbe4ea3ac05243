"""Every way in which compilers call a stub: what becomes a site in place, and what falls back to a stub.

Headers that write the branch themselves leave compilers no choice; they have tests of their own (test_branches).

Each case is compiled by a real compiler; the references in the object are read first, so that a case that no longer
shows what it is for fails instead of passing emptily. Then the object is instrumented, linked and run.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

import pytest
from elftools.elf.elffile import ELFFile

from usdtbuild.elf.object import ElfError
from usdtbuild.instrument.main import Options
from usdtbuild.options import NOPS
from usdtbuild.provider.describe import plain_name
from usdtbuild.provider.parser import parse_file

MAIN = """
extern int printf(const char *, ...);
int work(int);
int main(void) { printf("%d %d\\n", work(3), work(0)); return 0; }
"""
# Declarations as other tools' headers have them: not hidden, so that -fno-plt and -fPIC go through the GOT.
OPEN = """
extern void __dtrace_app___start(void);
extern void __dtrace_app___req(int, const char *);
extern int __dtraceenabled_app___req(void);
#define APP_START() __dtrace_app___start()
#define APP_REQ(a, b) __dtrace_app___req(a, b)
#define APP_REQ_ENABLED() __dtraceenabled_app___req()
"""
CALL = 'int work(int n) { APP_REQ(n, "x"); return n + 1; }'
TAIL = """
__attribute__((noinline)) static void last(int n) { APP_REQ(n, "x"); }
int work(int n) { last(n); return n + 1; }
"""
CONDITIONAL = """
__attribute__((noinline)) static void last(int n) { if (n & 1) __dtrace_app___start(); }
int work(int n) { last(n); return n + 1; }
"""
POINTER = 'int work(int n) { void (*volatile f)(int, const char *) = __dtrace_app___req; f(n, "x"); return n + 1; }'
TABLE = """
static void (*const volatile table[2])(int, const char *) = {__dtrace_app___req, __dtrace_app___req};
int work(int n) { table[n & 1](n, "x"); return n + 1; }
"""
LOOP = """
int work(int n) { int t = 0; for (int i = 0; i < n; i++) { APP_REQ(i, "a"); APP_REQ(t, "b"); t += i; } return t; }
"""
ENABLED = 'int work(int n) { if (APP_REQ_ENABLED()) { APP_REQ(n, "x"); return 7; } return n + 1; }'
ENABLED_TAIL = "int work(int n) { (void)n; return __dtraceenabled_app___req(); }"


class Case(NamedTuple):
    """Source and flags; the reference that must be in the object: opcode ('data' outside code), type and symbol.

    `stub` says whether a stub gets defined, and so becomes the site.
    """

    source: str
    flags: str
    opcode: str
    type: str
    symbol: str
    stub: bool = False
    compilers: tuple[str, ...] = ("gcc", "clang")
    open: bool = False


REQ, ENABLED_REQ = "__dtrace_app___req", "__dtraceenabled_app___req"
PIC = "-O2 -fPIC -fno-plt"
# After each call the program compares what the call left below the stack pointer with the address behind the call.
HARDENED = "-mspeculative-load-hardening"
CASES = {
    "call": Case(CALL, "-O0", "e8", "PLT32", REQ),
    "call, position independent": Case(CALL, "-O2 -fPIC", "e8", "PLT32", REQ),
    "call, no PLT, hidden stub": Case(CALL, PIC, "e8", "P(?:LT|C)32", REQ),
    "tail call": Case(TAIL, "-O2", "e9", "PLT32", REQ),
    "conditional tail call": Case(CONDITIONAL, "-Os", "0f 8[45]", "PLT32", "__dtrace_app___start", False, ("clang",)),
    "call through the GOT": Case(CALL, PIC, "ff 15", "GOTPCRELX", REQ, open=True),
    "tail call through the GOT": Case(TAIL, PIC, "ff 25", "GOTPCRELX", REQ, open=True),
    "function pointer": Case(POINTER, "-O2 -fno-pie", "(?:48 c7|bf|48 bf)", "(?:32S?|64)", REQ, True),
    "function pointer, position independent": Case(POINTER, "-O2 -fPIC", "48 8d", "PC32", REQ, True),
    "function pointer from the GOT": Case(POINTER, "-O2 -fPIC", "48 8b", "REX_GOTPCRELX", REQ, True, open=True),
    "table": Case(TABLE, "-O2 -fno-pie", "data", "64", REQ, True),
    "table, position independent": Case(TABLE, "-O2 -fPIC", "data", "64", REQ, True),
    "large code model": Case(CALL, "-O2 -fno-pie -mcmodel=large", "(?:48|49) b", "64", REQ, True),
    "large code model, position independent": Case(
        CALL, "-O2 -fPIC -mcmodel=large", "(?:48|49) b", "(?:PLTOFF64|GOTOFF64|GOT64)", REQ, True
    ),
    "address kept in a register": Case(LOOP, PIC, "(?:48|4c) 8b", "REX_GOTPCRELX", REQ, True, ("clang",), True),
    "retpoline": Case(CALL, f"{PIC} -mindirect-branch=thunk", "", "\\w*GOTPCREL\\w*", REQ, True, ("gcc",), True),
    "retpoline of clang": Case(CALL, f"{PIC} -mretpoline", "", "\\w*GOTPCREL\\w*", REQ, True, ("clang",), True),
    "is-enabled call": Case(ENABLED, "-O2 -DUSDT_ENABLED_BY_CALL", "e8", "PLT32", ENABLED_REQ),
    "is-enabled tail call": Case(ENABLED_TAIL, "-O2 -DUSDT_ENABLED_BY_CALL", "e9", "PLT32", ENABLED_REQ),
    "is-enabled call through the GOT": Case(ENABLED, PIC, "ff 15", "GOTPCRELX", ENABLED_REQ, open=True),
    "hardened call": Case(LOOP, f"-O2 {HARDENED}", "e8", "PLT32", REQ, True, ("clang",)),
    "hardened call with no load or branch near": Case(CALL, f"-O2 {HARDENED}", "e8", "PLT32", REQ, False, ("clang",)),
    "hardened call, unoptimised": Case(CALL, f"-O0 {HARDENED}", "e8", "PLT32", REQ, True, ("clang",)),
    "hardened call, not position independent": Case(
        LOOP, f"-O1 -fno-pie {HARDENED}", "e8", "PLT32", REQ, True, ("clang",)
    ),
    "hardened call, no PLT": Case(
        CALL, f"{PIC} {HARDENED}", "(?:48|4c) 8b", "REX_GOTPCRELX", REQ, True, ("clang",), True
    ),
    "hardened call, address computed before it": Case(
        LOOP, f"-O2 -mno-red-zone {HARDENED}", "e8", "PLT32", REQ, False, ("clang",)
    ),
    "hardened tail call": Case(TAIL, f"-O2 {HARDENED}", "e9", "PLT32", REQ, False, ("clang",)),
    "hardened is-enabled call": Case(
        ENABLED, f"-O2 -DUSDT_ENABLED_BY_CALL {HARDENED}", "e8", "PLT32", ENABLED_REQ, True, ("clang",)
    ),
    "branch protection": Case(CALL, "-O2 -fcf-protection=full", "e8", "PLT32", REQ),
}


def cases() -> list[Any]:
    return [
        pytest.param(case, compiler, id=f"{compiler}-{name}")
        for name, case in CASES.items()
        for compiler in case.compilers
    ]


def compile_case(bench: Any, case: Case, compiler: str) -> Any:
    source = (OPEN if case.open else '#include "app.h"\n') + case.source
    path = bench.compile(compiler, bench.write("case.c", source), *case.flags.split(), "-Wall", "-Werror")
    wanted = f"{case.opcode}.* R_X86_64_{case.type} {case.symbol}"
    listing = references(bench, path)
    assert any(re.match(wanted, line) for line in listing), f"the compiler no longer emits {wanted}: {listing}"
    return path


def references(bench: Any, path: Any) -> list[str]:
    """Return each relocation against a stub as `BYTES TYPE SYMBOL`, with `data` for the bytes outside code."""
    lines = bench.run("objdump", "-drw", path).stdout.splitlines()
    found = [
        " ".join((match[1].strip(), match[2], plain_name(match[3])))
        for line in lines
        if (match := re.match(r" *[0-9a-f]+:\t([0-9a-f ]+)\t.*: (R_X86_64_\w+)\t(__dtrace\w+)", line))
    ]
    in_code = True
    for line in bench.run("objdump", "-rw", path).stdout.splitlines():
        if line.startswith("RELOCATION RECORDS"):
            in_code = ".text" in line
        match = re.match(r"[0-9a-f]+ (R_X86_64_\w+) +(__dtrace\w+)", line)
        if match and not in_code:
            found.append(f"data {match[1]} {plain_name(match[2])}")
    return found


def options(bench: Any, case: Case, **more: Any) -> Options:
    return Options(providers=tuple(parse_file(str(bench.folder / "app.d"))) if case.open else (), **more)


@pytest.mark.parametrize(("case", "compiler"), cases())
def test_references_become_sites(bench: Any, check: Any, need: Any, case: Case, compiler: str) -> None:
    need(compiler)
    plain = compile_case(bench, case, compiler)
    path, report = bench.instrument_report(plain, options(bench, case))
    assert any(site.in_stub for site in report.sites) == case.stub
    compare(bench, check, plain, path, case)


def compare(bench: Any, check: Any, plain: Any, path: Any, case: Case) -> None:
    """Link with and without probes, and compare records and output."""
    main = bench.compile("gcc", bench.write("main.c", MAIN), "-O1")
    around = (main, "-no-pie" if "-fno-pie" in case.flags else "-pie")
    program = bench.link(*around, path)
    reference = bench.link(*around, plain, bench.stubs([plain]))
    kept = case.stub and HARDENED in case.flags and case.opcode == "e8"
    in_stubs = check.records(check.binary(program), check.binary(reference), kept=kept)
    assert bool(in_stubs) == case.stub
    assert bench.output(program) == bench.output(reference)


@pytest.mark.parametrize(("beyond", "refused"), [(-1, False), (0, True), (1, True), (1 << 40, True)])
def test_a_reference_at_the_end_of_its_section_or_behind_is_refused(bench: Any, beyond: int, refused: bool) -> None:
    """In a table, where no instruction is looked at; the last byte is still inside."""
    plain = bench.compile("gcc", "void (*pointer)(int, const char *) = __dtrace_app___req;", "-O2", "-fPIC")
    content = bytearray(plain.read_bytes())
    with plain.open("rb") as file:
        elf = ELFFile(file)
        table = next(s for s in elf.iter_sections() if s.name.startswith(".rela.data"))
        size = elf.get_section(table["sh_info"])["sh_size"]
        content[table["sh_offset"] : table["sh_offset"] + 8] = (size + beyond).to_bytes(8, "little")
    plain.write_bytes(content)
    if refused:
        with pytest.raises(ElfError, match=rf"relocation at {size + beyond:#x} lies outside section"):
            bench.instrument(plain)
    else:
        bench.instrument(plain)


@pytest.mark.parametrize("nop", NOPS)
@pytest.mark.parametrize("name", ["call", "tail call", "conditional tail call", "call through the GOT", "table"])
def test_every_nop_style_works(bench: Any, check: Any, name: str, nop: str) -> None:
    case = CASES[name]
    plain = compile_case(bench, case, case.compilers[-1])
    compare(bench, check, plain, bench.instrument(plain, options(bench, case, nop=nop)), case)


def test_stack_arguments_lie_behind_a_return_address_after_a_tail_call(bench: Any, check: Any) -> None:
    source = """
    int __attribute__((noinline)) call(int n) { APP_WIDE(1, "b", 3, 4, 5, 6, n, 8); return n; }
    void __attribute__((noinline)) tail(int a, const char *b, unsigned char c, long d, short e, int f, int g, long h)
    { APP_WIDE(a, b, c, d, e, f, g, h); }
    int main(void) { tail(1, "b", 3, 4, 5, 6, 7, 8); return call(0); }
    """
    program = check.binary(bench.link(bench.instrument(bench.compile("gcc", source, "-O2"))))
    registers = "-4@%edi 8@%rsi 1@%edx -8@%rcx -2@%r8d -4@%r9d"
    seen = {program.functions[program.owner(r.address)][0]: r.arguments for r in program.records()}
    assert seen == {
        "call": f"{registers} -4@0(%rsp) 8@8(%rsp)",
        "tail": f"{registers} -4@8(%rsp) 8@16(%rsp)",
    }


def test_references_from_debug_information_define_no_stub(bench: Any) -> None:
    """DW_AT_call_origin and the like name functions by other means, but .debug_* may hold addresses."""
    assembly = """
    .text
    .globl work
    work: call __dtrace_app___start
    ret
    .section .debug_info,"",@progbits
    .quad __dtrace_app___start
    .section .note.GNU-stack,"",@progbits
    """
    described = bench.compile("gcc", "int unused;")
    plain = bench.compile("gcc", assembly, suffix=".s")
    both = bench.fresh("both.o")
    bench.run("ld", "-r", plain, described, "-o", both)
    _, report = bench.instrument_report(both)
    assert [site.in_stub for site in report.sites] == [False]
