"""Functions that are special: shared between objects, overridden, local, thrown through, cloned, or without a size."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest

from usdtbuild.instrument.main import Options
from usdtbuild.instrument.sites import identify
from usdtbuild.model import Probe, Provider

HOST = 'extern int printf(const char *, ...); int work(int); int main(void) { printf("%d\\n", work(3)); return 0; }'


def compare(bench: Any, check: Any, plain: list[Any], *flags: str, driver: str = "gcc") -> list[tuple[str, str]]:
    """Link with and without probes, compare, and return (function, probe) of every record."""
    host = bench.compile("gcc", HOST, "-O1")
    made = [bench.instrument(path) if b"__dtrace" in path.read_bytes() else path for path in plain]
    program = bench.link(host, *made, *flags, driver=driver)
    reference = bench.link(host, *plain, bench.stubs(plain), *flags, driver=driver)
    binary = check.binary(program)
    check.records(binary, check.binary(reference))
    assert bench.output(program) == bench.output(reference)
    return sorted((min(binary.functions[binary.owner(r.address)]), r.probe) for r in binary.records())


# --- shared and overridden functions --------------------------------------------------------------------------

INLINE = """
inline int shared(int n) { APP_REQ(n, "shared"); static int calls; APP_START(); return n + ++calls; }
template <typename T> T twice(T t) { APP_REQ_DONE((int)t, "twice", 1); return t + t; }
"""


@pytest.mark.parametrize("levels", [("-O0", "-O2"), ("-O2", "-O0"), ("-O1", "-Os")])
@pytest.mark.parametrize("drivers", [("g++", "g++"), ("clang++", "clang++"), ("g++", "clang++"), ("clang++", "g++")])
def test_an_inline_function_in_two_objects_has_its_records_once(
    bench: Any, check: Any, linker: str, levels: tuple[str, str], drivers: tuple[str, str]
) -> None:
    """One copy stays, whichever compiler and level made it; offsets of the other copy would be anywhere in it."""
    sources = (
        INLINE + 'int other(int); extern "C" int work(int n) { return shared(n) + twice(n) + other(n); }',
        INLINE + "int other(int n) { return shared(n) * twice(n); }",
    )
    flags = ("-fno-inline", "-fkeep-inline-functions") if drivers == ("g++", "g++") else ("-fno-inline",)
    plain = [
        bench.compile(driver, source, level, *flags, suffix=".cpp")
        for driver, source, level in zip(drivers, sources, levels)
    ]
    found = compare(bench, check, plain, f"-fuse-ld={linker}", driver="g++")
    assert found == [("_Z5twiceIiET_S0_", "req__done"), ("_Z6sharedi", "req"), ("_Z6sharedi", "start")]


def test_a_weak_function_that_another_object_overrides(bench: Any, check: Any, linker: str) -> None:
    plain = [
        bench.compile("gcc", '__attribute__((weak)) int hook(int n) { APP_REQ(n, "weak"); return 1; }', "-O2",
                      "-ffunction-sections"),
        bench.compile("gcc", "int hook(int n) { APP_START(); return n; } int work(int n) { return hook(n); }", "-O2",
                      "-ffunction-sections"),
    ]  # fmt: skip
    assert ("work", "start") in compare(bench, check, plain, f"-fuse-ld={linker}")
    dropped = compare(bench, check, plain, f"-fuse-ld={linker}", "-Wl,--gc-sections")
    assert {probe for _, probe in dropped} == {"start"}


def test_weak_functions_that_nobody_overrides(bench: Any, check: Any, linker: str) -> None:
    """Two objects define it without a group: the linker takes the first, and the second's code stays in the file."""
    weak = '__attribute__((weak, noinline)) int hook(int n) { APP_REQ(n, "%s"); APP_START(); return n + %d; }'
    plain = [
        bench.compile("gcc", weak % ("one", 1) + "int work(int n) { return hook(n); }", "-O2"),
        bench.compile("gcc", weak % ("two", 2), "-O0"),
    ]
    assert len(compare(bench, check, plain, f"-fuse-ld={linker}")) == 4


def test_an_object_that_only_has_local_functions(bench: Any, check: Any, linker: str) -> None:
    """Nothing in it has a name that is unique in the program; gold refuses records that count from local symbols."""
    local = """
    namespace {
    struct Early { Early() { APP_START(); } } early;
    int dead(int n) { APP_REQ(n, "dead"); return n; }
    int (*volatile pointer)(int) = dead;
    }
    """
    plain = [
        bench.compile("g++", local, "-O1", "-ffunction-sections", "-fdata-sections", suffix=".cpp"),
        bench.compile("g++", local, "-O0", "-ffunction-sections", "-fdata-sections", suffix=".cpp"),
        bench.compile("gcc", "int work(int n) { return n; }"),
    ]
    assert len(compare(bench, check, plain, f"-fuse-ld={linker}")) == 4
    dropped = compare(bench, check, plain, f"-fuse-ld={linker}", "-Wl,--gc-sections")
    assert [probe for _, probe in dropped] == ["start", "start"]


ALWAYS_RUN = """
namespace {
__attribute__((noinline)) int called(int n) { APP_REQ(n, "called"); return n; }
struct Early { Early() { APP_START(); called(1); } } early;
}
"""
SHARED = """
__attribute__((noinline, used)) static int dead(int n) { APP_REQ_DONE(n, "dead", 1); return n; }
__attribute__((noinline)) static int behind(int n) { APP_WIDE(n, "b", 1, 2, 3, 4, 5, 6); return n; }
__attribute__((weak)) int hook(int n) { return behind(n); }
"""


@pytest.mark.parametrize("shared", ["", SHARED], ids=["local only", "with weak functions"])
@pytest.mark.parametrize("dropped", [(), ("-Wl,--gc-sections",)], ids=["all", "gc"])
def test_one_object_linked_twice(bench: Any, check: Any, linker: str, shared: str, dropped: tuple[str, ...]) -> None:
    """Both copies of what runs at start have their records; of weak functions the first copy is the program's."""
    one = bench.compile("g++", ALWAYS_RUN + shared, "-O1", "-ffunction-sections", "-fdata-sections", suffix=".cpp")
    # A second note of one site, as the copy that never runs has it, is something that Oracle's reader minds.
    formats = ("stapsdt", "dof") if shared else check.formats
    made = bench.instrument(one, Options(formats=formats, target_os="freebsd"))
    weak = "int hook(int); " if shared else "static int hook(int n) { return n; } "
    host = bench.compile("g++", weak + 'extern "C" int work(int n) { return hook(n); }', suffix=".cpp")
    main = bench.compile("gcc", HOST)
    flags = (f"-fuse-ld={linker}", "-Wl,--fatal-warnings", *dropped)
    program = bench.link(main, host, made, made, *flags, driver="g++")
    reference = bench.link(main, host, one, one, bench.stubs([one]), *flags, driver="g++")
    binary, plain = check.binary(program), check.binary(reference)
    for format_ in formats:
        records = {record[:3]: record for record in binary.records(format_)}.values()
        found = Counter(record.probe for record in records)
        assert found["start"] == found["req"] == 2
        assert found["wide"] == bool(shared)
        sites = {site for record in records for site in binary.sites(record.address, record.probe)}
        assert sites == {site for address, probe in plain.calls() for site in plain.sites(address, probe)}
    assert bench.output(program) == bench.output(reference)


def test_local_functions_of_one_name(bench: Any, check: Any, linker: str) -> None:
    source = """
    static __attribute__((noinline)) int local(int n) { APP_REQ(n, "%s"); %s return n; }
    int %s(int n) { return local(n); }
    """
    plain = [
        bench.compile("gcc", source % ("one", "", "one"), "-O2"),
        bench.compile("gcc", source % ("two", "APP_START();", "two"), "-O0"),
        bench.compile("gcc", "int one(int), two(int); int work(int n) { return one(n) + two(n); }"),
    ]
    assert [name for name, _ in compare(bench, check, plain, f"-fuse-ld={linker}")] == ["local"] * 3


# --- exceptions -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("level", ["-O0", "-O1", "-O2", "-Os"])
def test_exceptions_pass_through_functions_with_probes(bench: Any, check: Any, cxx: str, level: str) -> None:
    """The unwinder looks up the address behind each call, right where sites may be."""
    source = """
    #include <string>
    struct Guard { const char *name; explicit Guard(const char *n) : name(n) {} ~Guard() { APP_REQ(1, name); } };
    __attribute__((noinline)) void bottom(int n) { APP_START(); if (n > 1) throw std::string("thrown"); APP_START(); }
    __attribute__((noinline)) void middle(int n)
    { Guard guard("middle"); APP_REQ(n, "in"); bottom(n); APP_REQ(n, "out"); }
    __attribute__((noinline)) int last(int n) noexcept { try { APP_REQ(n, "try"); middle(n); APP_START(); return 1; }
      catch (const std::string &text) { APP_REQ(n, text.c_str()); return (int)text.size(); } }
    extern "C" int work(int n) { int total = 0; for (int i = 0; i < n; i++) { total += last(i);
      try { middle(i); } catch (...) { APP_REQ_DONE(i, "any", total); } } return total; }
    """
    found = compare(bench, check, [bench.compile(cxx, source, level, suffix=".cpp")], driver=cxx)
    assert len(found) >= 9
    if cxx.endswith("/g++") and level == "-O2":
        assert any(name.endswith(".cold") for name, _ in found), found


def test_probes_don_t_stop_noexcept_from_terminating(bench: Any) -> None:
    source = """
    #include <exception>
    #include <cstdlib>
    __attribute__((noinline)) void thrower(int n) { APP_REQ(n, "throw"); throw n; }
    void strict(int n) noexcept { APP_START(); thrower(n); APP_START(); }
    int main() { std::set_terminate([] { std::_Exit(7); }); strict(1); return 0; }
    """
    program = bench.link(bench.instrument(bench.compile("g++", source, "-O2", suffix=".cpp")), driver="g++")
    bench.run(program, code=7)


# --- clones, parts, and functions of the assembler ------------------------------------------------------------

CLONES = """
static __attribute__((noinline)) int constant(int n, int step) { APP_REQ(n, "constant"); return n * step + step; }
static __attribute__((noinline)) int scalar(int used, int unused) { APP_REQ(used, "scalar"); return used; }
__attribute__((noinline, cold)) static int rare(int n) { APP_WIDE(n, "b", 1, 2, 3, 4, 5, 6); return n; }
static int parts(int n) { if (n == 0) return 0; APP_START(); APP_REQ(n, "part"); return rare(n) + constant(n, 7); }
int work(int n)
{
    if (n == 12345) { APP_REQ_DONE(n, "rare", n); return 5 * rare(n); }
    return constant(n, 7) + scalar(n + 1, n + 2) + parts(n) + parts(n - 3) + parts(n * n);
}
"""


@pytest.mark.parametrize(("suffix", "flags"), [("constprop", ()), ("part", ()), ("isra", ("-fno-ipa-cp",))])
def test_clones(bench: Any, check: Any, suffix: str, flags: tuple[str, ...]) -> None:
    found = compare(bench, check, [bench.compile("gcc", CLONES, "-O2", *flags)])
    names = [name for name, _ in found]
    assert any(f".{suffix}" in name for name in names), f"gcc makes no .{suffix} here any more: {names}"


def test_sections_of_start_up_and_unlikely_code(bench: Any, check: Any) -> None:
    source = CLONES + "__attribute__((constructor)) static void early(void) { APP_START(); }"
    plain = bench.compile("gcc", source, "-O2", "-ffunction-sections")
    _, report = bench.instrument_report(plain)
    sections = [site.section for site in report.sites]
    assert ".text.startup.early" in sections
    assert any(section.startswith(".text.unlikely.") for section in sections)
    compare(bench, check, [plain], "-Wl,--gc-sections")


ASSEMBLY = """
    .text
    .globl work
work:                       # neither type nor size
untyped_start:
    mov %edi, %ebx
    push %rbx
    call __dtrace_app___start
    mov $5, %edi
    lea 0f(%rip), %rsi
    call __dtrace_app___req
untyped_middle:
    pop %rax
    lea 0f(%rip), %rsi
    jmp untyped_end
    nop
untyped_end:
    push %rax
    call __dtrace_app___start
    pop %rax
    ret
0:  .asciz "text"
    .section .text.only_local,"ax",@progbits
untyped_local:
    jmp __dtrace_app___start
    .section .note.GNU-stack,"",@progbits
"""


@pytest.mark.parametrize("compiler", ["gcc", "clang"])
def test_functions_of_the_assembler(bench: Any, check: Any, need: Any, compiler: str) -> None:
    """Without types and sizes there is no function to speak of, but a call is a call."""
    need(compiler)
    described = bench.compile("gcc", "static int unused __attribute__((unused));")
    joined = bench.fresh("joined.o")
    bench.run("ld", "-r", bench.compile(compiler, ASSEMBLY, suffix=".s"), described, "-o", joined)
    found = compare(bench, check, [joined])
    assert [probe for _, probe in found].count("start") == 3


def test_two_probes_at_the_ends_of_a_function(bench: Any, check: Any) -> None:
    """The first instruction of one function and the last of another: both belong where they are."""
    assembly = """
    .text
    .type one,@function
one: call __dtrace_app___start
    ret
    .size one, .-one
    .globl two
    .type two,@function
two: jmp __dtrace_app___start
    .size two, .-two
    .globl work
    .type work,@function
work: push %rdi
    call one
    call two
    pop %rax
    ret
    .size work, .-work
    .section .note.GNU-stack,"",@progbits
    """
    described = bench.compile("gcc", "static int unused __attribute__((unused));")
    joined = bench.fresh("joined.o")
    bench.run("ld", "-r", bench.compile("gcc", assembly, suffix=".s"), described, "-o", joined)
    assert compare(bench, check, [joined]) == [("one", "start"), ("two", "start")]


def test_of_two_names_for_a_function_dof_has_the_global_one(bench: Any, check: Any) -> None:
    """The weak one comes first in the symbol table."""
    aliased = '__asm__(".weak other\\n .set other, work"); int work(int n) { APP_REQ(n, "x"); return n; }'
    plain = bench.compile("gcc", aliased, "-O1")
    host = bench.compile("gcc", HOST, "-O1")
    program = bench.link(host, bench.instrument(plain, Options(formats=("dof",))))
    assert [record.function for record in check.binary(program).records("dof")] == ["work"]


def test_of_two_providers_that_a_stub_may_mean_the_longer_name_counts() -> None:
    """Other tools may have a provider `a___b`, whose probe `c` has the stub that `b___c` of `a` would have."""
    short, long = Provider("a", (Probe("b___c", ()),)), Provider("a___b", (Probe("c", ()),))
    source: Any = SimpleNamespace(path="x.o")
    for order in ((short, long), (long, short)):
        found = identify(source, "__dtrace_a___b___c", {provider.name: provider for provider in order})
        assert (found.provider, found.probe.written) == ("a___b", "c")
    assert identify(source, "__dtrace_a___b___c", {"a": short}).probe.written == "b___c"
