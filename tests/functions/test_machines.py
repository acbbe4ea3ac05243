"""Other machines than x86-64, through cross compilers: entries agree with the assembly, and probes run in emulators."""

from __future__ import annotations

import json
import re
import shutil
from typing import Any, NamedTuple

import pytest

from .conftest import agree

pytestmark = pytest.mark.slow


class Cross(NamedTuple):
    """A compiler for another machine, and what its entries are like."""

    compiler: str
    machine: str
    pair: str
    nop: int
    options: tuple[str, ...] = ()
    skip: frozenset[str] = frozenset()


CROSS = {
    "aarch64": Cross("aarch64-linux-gnu-gcc", "aarch64", "1,0", 4),
    "aarch64-far": Cross("aarch64-linux-gnu-gcc", "aarch64", "5,4", 4, ("-mbranch-protection=standard",)),
    "aarch64-bti": Cross("aarch64-linux-gnu-gcc", "aarch64", "2,0", 4, ("-mbranch-protection=bti",)),
    "aarch64-clang": Cross("clang --target=aarch64-linux-gnu", "aarch64", "1,0", 4),
    "aarch64-clang-bti": Cross(
        "clang --target=aarch64-linux-gnu", "aarch64", "1,0", 4, ("-mbranch-protection=standard",)
    ),
    "aarch64-clang-far": Cross(
        "clang --target=aarch64-linux-gnu", "aarch64", "5,4", 4, ("-mbranch-protection=standard",)
    ),
    "riscv64": Cross("riscv64-linux-gnu-gcc", "riscv64", "5,4", 2),
    "riscv64-large": Cross("riscv64-linux-gnu-gcc", "riscv64", "5,4", 4, ("-march=rv64g",)),
    "riscv64-clang": Cross("clang --target=riscv64-linux-gnu", "riscv64", "5,4", 2),
    "ppc64": Cross("powerpc64-linux-gnu-gcc", "ppc64", "1,0", 4),
    "ppc32": Cross("powerpc-linux-gnu-gcc", "ppc32", "1,0", 4),
    "arm": Cross("arm-linux-gnueabihf-gcc", "arm", "1,0", 4, ("-marm",)),
    "thumb": Cross("arm-linux-gnueabihf-gcc", "arm", "3,2", 2, ("-mthumb", "-Wa,-mthumb")),
    "i386": Cross("i686-linux-gnu-gcc", "i386", "7,5", 1),
    "i386-cet": Cross("i686-linux-gnu-gcc", "i386", "7,5", 1, ("-fcf-protection",)),
    "i386-clang": Cross("clang --target=i386-linux-gnu", "i386", "7,5", 1, ("-fcf-protection",)),
}
LEVELS = ["-O0", "-O2", "-Os -fPIC -ffunction-sections"]


@pytest.fixture(params=list(CROSS))
def cross(request: Any, need: Any) -> Cross:
    """Each compiler for another machine, where it is installed."""
    found = CROSS[request.param]
    need(found.compiler.split()[0])
    return found


@pytest.mark.parametrize("level", LEVELS)
def test_objects_of_other_machines_agree_with_the_assembly(
    cross: Cross, level: str, functions: Any, by_name: Any, program_c: Any, tmp_path: Any, agreement: Any
) -> None:
    built = tmp_path / "program.o"
    words = [*level.split(), *cross.options, f"-fpatchable-function-entry={cross.pair}"]
    rows, expected = agreement(cross.compiler, program_c, words, "-c", nop=cross.nop)
    assert {"leaf", "local", "main", "weak_one"} <= set(expected)
    assert functions(built)["machine"] == cross.machine
    assert rows["left_out"]["reason"] == "no-entry"
    agree(by_name(built, "--patchable", cross.pair), expected)


@pytest.mark.parametrize("level", ["-O0", "-O2 -fPIC -ffunction-sections"])
def test_cxx_and_indirect_functions_of_other_machines_agree(
    cross: Cross, level: str, program_c: Any, program_cc: Any, agreement: Any
) -> None:
    """Templates, thunks and functions in COMDAT groups, where the compiler has C++; and resolvers of ifuncs."""
    words = [*level.split(), *cross.options, f"-fpatchable-function-entry={cross.pair}"]
    _, expected = agreement(cross.compiler, program_c, [*words, "-DIFUNC"], "-c", nop=cross.nop)
    assert "resolve_chosen" in expected
    command = cross.compiler.replace("gcc", "g++").replace("clang", "clang++")
    if not shutil.which(command.split()[0]):
        return
    _, expected = agreement(command, program_cc, [*words, "-nostdinc++"], "-c", nop=cross.nop)
    assert any(name.startswith("_Z5twiceIiET_S0_") for name in expected)


LINKED = ["aarch64", "aarch64-far", "riscv64", "arm", "thumb", "ppc64", "ppc32"]


@pytest.mark.parametrize("name", LINKED)
@pytest.mark.parametrize("how", ["-static", "-pie -fPIE", "-shared -fPIC", "-pie -fPIE -s"])
def test_linked_files_of_other_machines_agree_with_the_assembly(
    name: str, how: str, need: Any, run: Any, oracle: Any, functions: Any, by_name: Any, program_c: Any, tmp_path: Any
) -> None:
    cross = CROSS[name]
    need(cross.compiler.split()[0])
    built = tmp_path / "program"
    words = ["-O2", *cross.options, f"-fpatchable-function-entry={cross.pair}", *how.split(), "-DHOSTED"]
    run(*cross.compiler.split(), *words, program_c, "-o", built)
    compile_only = [w for w in words if w not in ("-static", "-pie", "-shared", "-s")]
    expected = oracle(cross.compiler, program_c, *compile_only, nop=cross.nop)
    if "-s" in how.split():
        rows = functions(built, "--patchable", cross.pair)["functions"]
        assert len([row for row in rows if row["hotpatchable"]]) == len(expected)
        return
    agree(by_name(built), expected)


OTHERS_LINKERS = {"lld": ["aarch64", "aarch64-far", "riscv64", "arm", "thumb", "i386"],
                  "mold": ["aarch64", "aarch64-far", "riscv64", "arm", "i386"]}  # fmt: skip


@pytest.mark.parametrize(("linker", "name"), [(linker, name) for linker, names in OTHERS_LINKERS.items()
                                              for name in names])  # fmt: skip
@pytest.mark.parametrize("collect", [[], ["--gc-sections", "--entry=main"]], ids=["whole", "collected"])
def test_other_linkers_files_of_other_machines_agree_with_the_assembly(
    linker: str, name: str, collect: list[str], need: Any, run: Any, oracle: Any, by_name: Any, program_c: Any,
    tmp_path: Any,
) -> None:  # fmt: skip
    cross = CROSS[name]
    need(cross.compiler.split()[0])
    built, library = tmp_path / "a.o", tmp_path / "a.so"
    words = ["-O1", "-fPIC", "-ffunction-sections" if collect else "-g", *cross.options]
    words += [f"-fpatchable-function-entry={cross.pair}", "-fvisibility=hidden"]
    run(*cross.compiler.split(), *words, "-c", program_c, "-o", built)
    # mold 1.10 shortens code and leaves functions' sizes as they were, so that they reach into the next one's padding.
    relax = ["--no-relax"] if (linker, name) == ("mold", "riscv64") else []
    run(need(f"ld.{linker}"), "-shared", *relax, *collect, built, "-o", library)
    alive = set(re.findall(r"\S+$", run("nm", library).stdout, re.MULTILINE))
    expected = oracle(cross.compiler, program_c, *words, nop=cross.nop)
    assert "leaf" in expected
    agree(by_name(library), {function: nops for function, nops in expected.items() if function in alive})


def test_a_pie_with_rel_relocations_is_read(need: Any, run: Any, tmp_path: Any, agreement: Any) -> None:
    """i386 keeps the addends in the table itself (R_386_RELATIVE)."""
    compiler = need("i686-linux-gnu-gcc")
    source = tmp_path / "a.c"
    source.write_text("int one(int x) { return x + 1; }\nstatic int two(int x) { return x; }\nint (*p)(int) = two;\n")
    agreement(compiler, source, ["-O2", "-fPIC", "-fpatchable-function-entry=7,5"], "-shared", "-nostdlib")
    assert "R_386_RELATIVE" in run("readelf", "-rW", tmp_path / "program").stdout


def test_lld_links_other_machines_with_relr(need: Any, run: Any, tmp_path: Any, agreement: Any) -> None:
    need("ld.lld")
    compiler = f"{need('clang')} --target=aarch64-linux-gnu"
    source = tmp_path / "a.c"
    source.write_text("int one(int x) { return x + 1; }\nint two(int x) { return one(x) * 3; }\n")
    link = ["-shared", "-nostdlib", "-fuse-ld=lld", "-Wl,--pack-dyn-relocs=relr"]
    agreement(compiler, source, ["-O2", "-fPIC", "-fpatchable-function-entry=1,0"], *link, nop=4)
    assert ".relr.dyn" in run("readelf", "-SW", tmp_path / "program").stdout


# -- what is refused on other machines -------------------------------------------------------------------------------


def test_toc_falsifying_nops_are_refused_on_ppc64le(
    need: Any, run: Any, by_name: Any, program_c: Any, tmp_path: Any
) -> None:
    compiler = need("powerpc64le-linux-gnu-gcc")
    built = tmp_path / "a.o"
    run(compiler, "-O2", "-fpatchable-function-entry=2,0", "-c", program_c, "-o", built)
    rows = by_name(built)
    if int(run(compiler, "-dumpversion").stdout.split(".")[0]) >= 13:
        pytest.skip("this gcc puts the NOPs where they belong")
    assert rows["reads_global"]["reason"] == "toc"
    assert rows["leaf"]["hotpatchable"], "it has no use for the TOC pointer"


RIGHT_PPC64LE = """
  .abiversion 2
  .text
  .globl right
  .type right, @function
right:
0: addis 2, 12, .TOC. - 0b@ha
  addi 2, 2, .TOC. - 0b@l
{before}
  .localentry right, . - right
{at}
  blr
  .size right, . - right
  .section __patchable_function_entries,"awo",@progbits,.text
  .balign 8
  .quad {label}
  .section .note.GNU-stack,"",@progbits
"""


@pytest.mark.parametrize(("before", "pair"), [(0, "1,0"), (2, "3,2"), (6, "7,6")])
def test_nops_at_the_local_entry_point_are_right_on_ppc64le(
    need: Any, by_name: Any, tmp_path: Any, before: int, pair: str, compiled: Any
) -> None:
    """What gcc from 13 on writes: the padding between the two entry points, the entry's NOP at the local one."""
    compiler = need("powerpc64le-linux-gnu-gcc")
    nops = "1:\n" + "  nop\n" * before
    label = "right + 8"
    built = compiled(tmp_path, "a.s", RIGHT_PPC64LE.format(before=nops, at="  nop", label=label), "-c", cc=compiler)
    row = by_name(built, "--patchable", pair)["right"]
    assert row["hotpatchable"], row
    assert (row["padding"], row["nops"]) == (4 * before, 4)


def test_two_halfwords_are_refused_on_s390x_and_hotpatch_is_read(
    need: Any, run: Any, by_name: Any, program_c: Any, tmp_path: Any, agreement: Any
) -> None:
    compiler = need("s390x-linux-gnu-gcc")
    built = tmp_path / "a.o"
    words = ["-O2", "-fpatchable-function-entry=4,2"]
    rows, _ = agreement(compiler, program_c, words, "-c", nop=2, hotpatchable=False)
    assert rows["leaf"]["reason"] == "not-one-store"
    run(compiler, "-O2", "-mhotpatch=4,2", "-c", program_c, "-o", built)
    rows = by_name(built)
    assert all(rows[name]["hotpatchable"] for name in ("leaf", "local", "main"))
    assert (rows["leaf"]["padding"], rows["leaf"]["nops"]) == (8, 4)


def test_arm_padding_of_a_thumb_function_is_refused(
    need: Any, run: Any, by_name: Any, program_c: Any, tmp_path: Any
) -> None:
    """gcc writes a file's first padding before it says .thumb; told beforehand, the assembler does it right."""
    compiler = need("arm-linux-gnueabihf-gcc")
    built = tmp_path / "a.o"
    words = ["-O2", "-mthumb", "-fpatchable-function-entry=3,2"]
    run(compiler, *words, "-c", program_c, "-o", built)
    refused = {row["symbol"] for row in by_name(built).values() if row["reason"] == "padding-arm"}
    assert refused == {"leaf"}
    run(compiler, *words, "-Wa,-mthumb", "-c", program_c, "-o", built)
    assert not [name for name, row in by_name(built).items() if row["reason"] == "padding-arm"]


BRANCHES = {
    "aarch64": ("aarch64-linux-gnu-gcc", "nop", ["b", "b.ne", "cbz x0,", "tbz x0, #3,"], 16),
    "arm": ("arm-linux-gnueabihf-gcc -marm", "nop", ["b", "bne", "bl"], 8),
    "thumb": ("arm-linux-gnueabihf-gcc -mthumb -Wa,-mthumb", "nop", ["b.n", "bne.n", "b.w", "bl"], 4),
    "riscv64": ("riscv64-linux-gnu-gcc", "c.nop", ["c.j", "beq a0, a1,", "c.beqz a0,", "jal"], 8),
    "ppc64le": ("powerpc64le-linux-gnu-gcc", "nop", ["b", "bne 0,", "bl"], 16),
    "i386": ("i686-linux-gnu-gcc", "nop", ["jmp", "jne", "call"], 5),
}
PAIRS = {"aarch64": "5,4", "arm": "3,2", "thumb": "3,2", "riscv64": "5,4", "ppc64le": "5,4", "i386": "7,5"}


@pytest.mark.parametrize("name", list(BRANCHES))
@pytest.mark.parametrize("linked", [True, False], ids=["linked", "object"])
def test_branches_into_the_padding_are_found_on_other_machines(
    name: str, linked: bool, need: Any, run: Any, by_name: Any, tmp_path: Any
) -> None:
    compiler, nop, branches, padding = BRANCHES[name]
    need(compiler.split()[0])
    n, m = map(int, PAIRS[name].split(","))
    width, kind = ("4", "%") if name in ("arm", "thumb", "i386") else ("8", "%")
    header = {"arm": ".syntax unified\n.arm\n", "thumb": ".syntax unified\n.thumb\n", "ppc64le": ".abiversion 2\n",
              "riscv64": ".option norelax\n"}  # fmt: skip
    lines = [header.get(name, ""), ".text"]
    for number, branch in enumerate(branches):
        lines += [".balign 16", f".Lpad{number}:", *[nop] * m, f".globl f{number}", f".type f{number}, %function"]
        lines += [".thumb_func"] * (name == "thumb")
        lines += [f"f{number}:", *[nop] * (n - m)]
        lines += {"thumb": ["adds r0, r0, #1"], "arm": ["add r0, r0, #1"], "aarch64": ["add x0, x0, #1"],
                  "riscv64": ["addi a0, a0, 1"], "ppc64le": ["addi 3, 3, 1"], "i386": ["inc %eax"]}[name]  # fmt: skip
        lines += [f"{branch} .Lpad{number}" if number else f"{branch} .Ldone", ".Ldone:" if not number else ""]
        lines += [f".size f{number}, . - f{number}"]
        lines += ['.pushsection __patchable_function_entries,"awo",%progbits,.text', f".balign {width}",
                  f".{width}byte .Lpad{number}", ".popsection"]  # fmt: skip
    source, built = tmp_path / "a.s", tmp_path / "a.o"
    source.write_text("\n".join(lines) + '\n.section .note.GNU-stack,"",%progbits\n')
    run(*compiler.split(), "-c", source, "-o", built)
    if linked:
        run(*compiler.split(), "-nostdlib", "-shared", built, "-o", tmp_path / "a.so")
        built = tmp_path / "a.so"
    rows = by_name(built, "--patchable", PAIRS[name])
    assert rows["f0"]["hotpatchable"], rows["f0"]
    for number, branch in enumerate(branches[1:], 1):
        row = rows[f"f{number}"]
        assert row["reason"] == "jump-into-padding", (branch, row)
        assert f"goes to the entry-{row['padding']}" in row["detail"]
        assert row["padding"] == padding, kind


# -- flags -----------------------------------------------------------------------------------------------------------

FLAGS = [
    ("aarch64-linux-gnu-gcc", "aarch64", ["-fpatchable-function-entry=1,0"]),
    ("riscv64-linux-gnu-gcc", "riscv64", ["-fpatchable-function-entry=5,4"]),
    ("powerpc64-linux-gnu-gcc", "ppc64", ["-fpatchable-function-entry=1,0"]),
    ("powerpc-linux-gnu-gcc", "ppc32", ["-fpatchable-function-entry=1,0"]),
    ("s390x-linux-gnu-gcc", "s390x", ["-mhotpatch=4,2"]),
    ("arm-linux-gnueabihf-gcc -marm", "arm", ["-fpatchable-function-entry=1,0"]),
    ("arm-linux-gnueabihf-gcc -mthumb", "thumb", ["-fpatchable-function-entry=3,2", "-Wa,-mthumb"]),
    ("i686-linux-gnu-gcc", "i386", ["-fpatchable-function-entry=7,5"]),
    ("clang --target=aarch64-linux-gnu", "aarch64", ["-fpatchable-function-entry=1,0"]),
    ("clang --target=riscv64-linux-gnu", "riscv64", ["-fpatchable-function-entry=5,4"]),
]


EMULATORS = {"ppc32": "ppc", "thumb": "arm"}


def find_emulator(machine: str) -> str | None:
    return shutil.which(f"qemu-{EMULATORS.get(machine, machine)}")


@pytest.mark.parametrize(("compiler", "machine", "flags"), FLAGS)
def test_flags_of_other_machines(
    usdtbuild: Any, need: Any, run: Any, compiler: str, machine: str, flags: list[str], tmp_path: Any
) -> None:
    """The probe is run where there are an emulator and a C library, and else it is said why not."""
    need(compiler.split(maxsplit=1)[0])
    source = tmp_path / "nothing.c"
    source.write_text("int main(void) { return 0; }\n")
    links = run(*compiler.split(), "-static", source, "-o", tmp_path / "nothing", code=None).returncode == 0
    # An i386 program runs on x86-64 as it is, if the kernel takes it.
    emulator = machine == "i386" or find_emulator(machine)
    found = json.loads(usdtbuild("flags", "--patchable", "--json", "--compiler", compiler).stdout)
    assert (found["machine"], found["flags"]) == (machine, flags)
    assert found["probe_ran"] == bool(links and emulator)
    said = [re.search("not run: (no emulator|it doesn't link)", text) for text in found["warnings"]]
    assert bool(said) != found["probe_ran"]
    assert all(said), found["warnings"]


def test_gcc_before_13_is_refused_on_ppc64le(usdtbuild: Any, need: Any, run: Any) -> None:
    compiler = need("powerpc64le-linux-gnu-gcc")
    version = int(run(compiler, "-dumpversion").stdout.split(".")[0])
    if version >= 13:
        assert usdtbuild("flags", "--patchable", "--compiler", compiler).stdout.startswith("-fpatchable")
        return
    done = usdtbuild("flags", "--patchable", "--compiler", compiler, code=1)
    assert "gcc can from version 13 on" in done.stderr
    done = usdtbuild("flags", "--patchable", "2,0", "--compiler", compiler, code=1)
    assert "miscompiles -fpatchable-function-entry=2,0 on ppc64le" in done.stderr
    assert "TOC pointer" in done.stderr


@pytest.mark.parametrize("machine", ["powerpc64le", "s390x", "arm"])
def test_machines_that_clang_refuses_are_refused(usdtbuild: Any, need: Any, run: Any, machine: str) -> None:
    compiler = f"{need('clang')} --target={machine}-linux-gnu"
    words = ["-fpatchable-function-entry=1,0", "-x", "c", "-c", "/dev/null", "-o", "/dev/null"]
    if run(*compiler.split(), *words, code=None).returncode == 0:
        pytest.skip(f"this clang takes it for {machine}")
    done = usdtbuild("flags", "--patchable", "--compiler", compiler, code=1)
    assert "does not take" in done.stderr


def test_pairs_for_s390x_are_refused(usdtbuild: Any, need: Any) -> None:
    compiler = need("s390x-linux-gnu-gcc")
    done = usdtbuild("flags", "--patchable", "4,2", "--compiler", compiler, code=1)
    assert "no single store can replace them safely; leave N,M out to get -mhotpatch=4,2" in done.stderr


# -- prologues -------------------------------------------------------------------------------------------------------

AARCH64_PROLOGUES = {
    "plain": (["stp x29, x30, [sp, -16]!", "ldp x29, x30, [sp], 16", "ret"], True, ""),
    "page": (["adrp x0, here", "ldr w0, [x0, :lo12:here]", "ret"], True, ""),
    "literal": (["ldr x0, =0x123456789abcdef", "ret", ".ltorg"], False, "literal load"),
    "branch": (["cbz x0, 1f", "mov x0, 1", "1: ret"], False, "branch at"),
    "calls": (["bl plain", "ret"], False, "call in the first bytes"),
    "lands": (["bti c", "mov x0, 3", "ret"], True, ""),
    "empty": ([], False, "too short"),
}


@pytest.mark.parametrize("linked", [True, False], ids=["linked", "object"])
def test_prologues_of_aarch64_are_explained(need: Any, run: Any, by_name: Any, tmp_path: Any, linked: bool) -> None:
    compiler = need("aarch64-linux-gnu-gcc")
    source, built = tmp_path / "a.s", tmp_path / "a.o"
    lines = [".arch armv8.5-a", ".text", ".globl _start", "_start:"]
    for name, (body, _, _) in AARCH64_PROLOGUES.items():
        lines += [".balign 64", f".globl {name}", f".type {name}, %function", f"{name}:", *body]
        lines.append(f".size {name}, . - {name}")
    source.write_text("\n".join([*lines, ".data", "here: .long 0", ""]))
    run(compiler, "-c", source, "-o", built)
    if linked:
        run(compiler, "-nostdlib", "-static", built, "-o", tmp_path / "a")
        built = tmp_path / "a"
    rows = by_name(built, "--explain")
    for name, (_, possible, words) in AARCH64_PROLOGUES.items():
        explanation = rows[name]["explain"]
        assert explanation["possible"] == possible, (name, explanation)
        assert words in "; ".join(explanation["against"])
        if possible:
            assert explanation["needed"] == explanation["covered"] == 4
    (fix,) = [i["fix"] for i in rows["page"]["explain"]["instructions"]]
    assert ("PC-relative address" if linked else "the linker fills it in") in fix
    assert rows["lands"]["explain"]["instructions"][0]["text"].startswith("mov")


def test_other_machines_say_that_prologues_are_not_known(
    need: Any, run: Any, by_name: Any, program_c: Any, tmp_path: Any
) -> None:
    built = tmp_path / "a.o"
    run(need("riscv64-linux-gnu-gcc"), "-O2", "-c", program_c, "-o", built)
    assert by_name(built, "--explain")["leaf"]["explain"]["against"] == ["prologue patches are not known for riscv64"]
