"""What `usdtbuild functions` shows and selects: names and their sources, patterns, sizes, totals, prologues."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

PAIR = "-fpatchable-function-entry=7,5"


@pytest.fixture(scope="module")
def program(run: Any, need: Any, program_c: Any, tmp_path_factory: Any) -> Any:
    """The C sample, linked as a PIE with debug information and a build id."""
    built = tmp_path_factory.mktemp("command") / "program"
    run(need("gcc"), "-O2", "-g", "-fPIE", "-pie", PAIR, "-DHOSTED", "-Wl,--build-id", program_c, "-o", built)
    return built


@pytest.fixture(scope="module")
def cxx_program(run: Any, need: Any, program_cc: Any, tmp_path_factory: Any) -> Any:
    """The C++ sample, linked as a PIE."""
    built = tmp_path_factory.mktemp("command") / "program"
    run(need("g++"), "-O2", "-fPIE", "-pie", PAIR, program_cc, "-o", built)
    return built


def names(found: dict[str, Any]) -> set[str]:
    """Return the names of the listed functions."""
    return {row["name"] for row in found["functions"]}


# -- text and JSON ---------------------------------------------------------------------------------------------------


def test_the_text_shows_every_column_and_the_totals_by_reason(usdtbuild: Any, program: Any, functions: Any) -> None:
    text = usdtbuild("functions", program).stdout
    lines = text.splitlines()
    assert lines[0] == f"{program}: ELF PIE or shared library, x86-64"
    assert "held to N,M = 7,5 (what most entries have)" in lines
    header = next(line for line in lines if "PATCHABLE" in line)
    assert header.split() == ["ADDRESS", "SIZE", "PATCHABLE", "PADDING", "NOPS", "NOP", "FORM", "SOURCE", "NAME"]
    found = functions(program)
    row = next(row for row in found["functions"] if row["symbol"] == "leaf")
    line = next(line for line in lines if line.endswith("leaf = another_name"))
    expected = [f"{row['address']:#x}", str(row["size"]), "yes", "5", "2", "2", "NOPs", "of", "1", "byte", "symtab"]
    assert line.split()[:11] == expected
    totals = found["totals"]
    assert re.search(rf"^ *{totals['hotpatchable']} +hotpatchable", text, re.MULTILINE)
    for reason, count in totals["unpatchable"].items():
        assert re.search(rf"^ *{count} +{reason} ", text, re.MULTILINE)
    assert f"\n{totals['functions']} functions\n" in text
    assert [line for line in lines if line != line.rstrip()] == []
    assert totals["functions"] == len(found["functions"])
    assert totals["functions"] == totals["hotpatchable"] + sum(totals["unpatchable"].values())


def test_the_relocations_that_the_table_costs_are_counted(usdtbuild: Any, program: Any, run: Any) -> None:
    text = usdtbuild("functions", "--totals", program).stdout
    count = int(re.search(r"table __patchable_function_entries: (\d+) entries, \1 dynamic relocations", text)[1])  # type: ignore[index]
    address, size = re.search(
        r"__patchable_function_entries PROGBITS +(\w+) \w+ (\w+)", run("readelf", "-SW", program).stdout
    ).groups()  # type: ignore[union-attr]
    start, end = int(address, 16), int(address, 16) + int(size, 16)
    relocated = re.findall(r"^([0-9a-f]{8,16})\s", run("readelf", "-rW", program).stdout, re.MULTILINE)
    assert count == sum(start <= int(place, 16) < end for place in relocated) == (end - start) // 8


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["-P", "leaf"], {"leaf"}),
        (["-P", "another_name"], {"leaf"}),
        (["-P", "l*"], {"leaf", "local", "loops", "left_out"}),
        (["-P", "l*", "-U", "lo*"], {"leaf", "left_out"}),
        (["-P", "lea?", "-P", "^loc"], {"leaf", "local"}),
        (["-P", "oops$"], {"loops"}),
        (["-P", "^(leaf|main)$"], {"leaf", "main"}),
        (["--match", "regex", "-P", "eaf"], {"leaf"}),
        (["--match", "glob", "-P", "eaf"], set()),
        (["-P", "[lm][eoa][ai][fn]"], {"leaf", "main"}),
    ],
)
def test_patterns_select_by_name(functions: Any, program: Any, options: list[str], expected: set[str]) -> None:
    found = functions(program, *options)
    assert names(found) == expected
    assert found["totals"]["functions"] == len(expected)


def test_sizes_and_kinds_select(functions: Any, program: Any) -> None:
    everything = functions(program)["functions"]
    large = functions(program, "-Z", 40)["functions"]
    assert large == [row for row in everything if row["size"] >= 40]
    assert 0 < len(large) < len(everything)
    patchable = functions(program, "--only", "patchable")["functions"]
    assert patchable == [row for row in everything if row["hotpatchable"]]
    others = functions(program, "--only", "unpatchable")["functions"]
    assert len(patchable) + len(others) == len(everything)


def test_a_broken_pattern_is_a_usage_error(usdtbuild: Any, program: Any) -> None:
    done = usdtbuild("functions", program, "-P", "(open", code=2)
    assert "'(open' is no regular expression" in done.stderr
    assert done.stdout == ""


def test_names_are_demangled_on_request(functions: Any, cxx_program: Any, need: Any) -> None:
    need("c++filt")
    plain = functions(cxx_program, "-P", "_ZN5space6insideEi")
    assert names(plain) == {"_ZN5space6insideEi"}
    found = functions(cxx_program, "--demangle", "-P", "space::inside*", "-U", "*clone*")
    assert [(row["name"], row["symbol"]) for row in found["functions"]] == [
        ("space::inside(int)", "_ZN5space6insideEi")
    ]
    assert names(functions(cxx_program, "-C", "-P", "space::inside(int)")) == {"space::inside(int)"}


def test_several_files_are_listed_one_after_the_other(usdtbuild: Any, program: Any, cxx_program: Any) -> None:
    done = usdtbuild("functions", "--json", program, cxx_program)
    assert [file["file"] for file in json.loads(done.stdout)["files"]] == [str(program), str(cxx_program)]
    text = usdtbuild("functions", "--totals", program, cxx_program).stdout
    assert text.count("held to N,M = 7,5") == 2


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "is empty"),
        (b"\x7fELF", "ends inside the ELF header"),
        (b"\x7fELF\x02\x01\x01" + b"\0" * 20, "ends inside the ELF header"),
        (b"!<arch>\nxxxx", "the archive is damaged at offset 0x8"),
        (b"BC\xc0\xde", "is LLVM bitcode"),
        (b"#!/bin/sh\n", "is a script"),
        (b"hello, world, this is text", "is not a program, a library or an object"),
        (b"MZ" + b"\0" * 100, "is a Windows (PE) file"),
    ],
)
def test_other_files_are_named_for_what_they_are(usdtbuild: Any, tmp_path: Any, content: bytes, words: str) -> None:
    path = tmp_path / "file"
    path.write_bytes(content)
    done = usdtbuild("functions", path, code=1)
    assert words in done.stderr
    assert done.stderr.count("\n") == 1
    assert done.stdout == ""


def test_a_file_cut_anywhere_is_an_error_or_is_read(program: Any, tmp_path: Any) -> None:
    """No cut or flipped byte of a file may end in anything but an answer or an InputError."""
    from usdtbuild.errors import InputError
    from usdtbuild.functions.read import read_functions

    data = program.read_bytes()
    path = tmp_path / "cut"
    for step in range(1, 20):
        path.write_bytes(data[: len(data) * step // 20])
        with pytest.raises(InputError):
            read_functions(str(path))
    headers = int.from_bytes(data[0x28:0x30], "little")
    places = [*range(16, 64), *range(headers, headers + 64 * 30, 13)]
    outcomes = set()
    for place in places:
        for value in (0x00, 0x7F, 0xFF):
            path.write_bytes(data[:place] + bytes([value]) + data[place + 1 :])
            try:
                read_functions(str(path))
                outcomes.add("read")
            except InputError:
                outcomes.add("refused")
    assert outcomes == {"read", "refused"}


# -- where names come from -------------------------------------------------------------------------------------------


def test_a_stripped_program_falls_back_to_table_and_unwind_records(
    run: Any, functions: Any, program: Any, cc: str, program_c: Any, tmp_path: Any
) -> None:
    for options in (["-O2"], ["-O2", "-fcf-protection"], ["-Os", "-fno-asynchronous-unwind-tables", "-fno-exceptions"]):
        whole, bare = tmp_path / "whole", tmp_path / "bare"
        run(cc, *options, "-fPIE", "-pie", PAIR, "-DHOSTED", program_c, "-o", whole)
        run("strip", whole, "-o", bare)
        named = {row["address"]: row for row in functions(whole)["functions"] if row["hotpatchable"]}
        found = functions(bare)
        nameless = {row["address"]: row for row in found["functions"] if row["hotpatchable"]}
        assert set(nameless) == set(named)
        for address, row in nameless.items():
            assert (row["padding"], row["nops"]) == (5, 2)
            assert row["name"] is None
            assert row["form"] == named[address]["form"]
        sources = {row["source"] for row in nameless.values()}
        assert sources <= {"unwind table", "__patchable_function_entries"}
        if "-fno-asynchronous-unwind-tables" not in options:
            assert sources == {"unwind table"}


def test_an_overwritten_entry_is_found_without_names(run: Any, functions: Any, program: Any, tmp_path: Any) -> None:
    from .test_refusals import overwrite

    bare = tmp_path / "bare"
    run("strip", program, "-o", bare)
    address = next(row["address"] for row in functions(bare)["functions"] if row["hotpatchable"])
    overwrite(bare, address, b"\xcc")
    (refused,) = [row for row in functions(bare)["functions"] if row["address"] == address]
    assert refused["reason"] == "entry-not-nops"


def test_a_stripped_library_keeps_its_exported_names(
    run: Any, cc: str, functions: Any, program_c: Any, tmp_path: Any
) -> None:
    library = tmp_path / "library.so"
    run(cc, "-O2", "-fPIC", "-shared", PAIR, "-DHOSTED", "-s", program_c, "-o", library)
    rows = functions(library)["functions"]
    exported = {row["name"]: row for row in rows if row["source"] == "dynsym"}
    assert {"leaf", "main", "weak_one"} <= set(exported)
    assert exported["leaf"]["hotpatchable"]
    others = [row for row in rows if row["source"] == "unwind table" and row["hotpatchable"]]
    assert others, "local functions"
    assert all(row["name"] is None for row in others)


def test_split_debug_files_are_found_by_link_and_by_build_id(
    run: Any, functions: Any, program: Any, tmp_path: Any
) -> None:
    whole = {row["symbol"]: row for row in functions(program)["functions"]}
    bare, debug, store = tmp_path / "bare", tmp_path / "bare.debug", tmp_path / "store"
    run("objcopy", "--only-keep-debug", program, debug)
    run("objcopy", "--strip-all", f"--add-gnu-debuglink={debug}", program, bare)

    def check(*options: Any) -> None:
        found = functions(bare, *options)
        rows = {row["symbol"]: row for row in found["functions"]}
        assert rows["local"]["source"] == "debug file"
        assert set(rows) == set(whole)
        assert all(rows[name]["hotpatchable"] == whole[name]["hotpatchable"] for name in whole)

    check()
    assert functions(bare)["debug_file"] == str(debug)
    identity = re.search(r"Build ID: (\w+)", run("readelf", "-n", program).stdout)[1]  # type: ignore[index]
    place = store / ".build-id" / identity[:2] / f"{identity[2:]}.debug"
    place.parent.mkdir(parents=True)
    debug.rename(place)
    check("--debug-dir", store)
    # Another program's debug file is not taken, though its name fits.
    run("objcopy", "--only-keep-debug", "/proc/self/exe", debug)
    assert functions(bare)["debug_file"] is None


def test_names_are_read_from_compressed_debug_data(run: Any, functions: Any, program: Any, tmp_path: Any) -> None:
    import lzma

    bare, small, packed = tmp_path / "bare", tmp_path / "small", tmp_path / "small.xz"
    run("objcopy", "--only-keep-debug", program, small)
    packed.write_bytes(lzma.compress(small.read_bytes()))
    run("objcopy", "--strip-all", f"--add-section=.gnu_debugdata={packed}", program, bare)
    rows = {row["symbol"]: row for row in functions(bare)["functions"]}
    assert rows["local"]["source"] == "debug data"
    assert rows["local"]["hotpatchable"]


# -- prologues -------------------------------------------------------------------------------------------------------

PROLOGUES = """
  .macro function name
  .globl \\name
  .type \\name, @function
\\name:
  .endm
  .macro finish name
  .size \\name, . - \\name
  .endm
  .text
  function plain
  push %rbp
  mov %rsp, %rbp
  sub $16, %rsp
  leave
  ret
  finish plain
  function relative
  lea here(%rip), %rax
  ret
  finish relative
  function short
  ret
  finish short
  function calls
  push %rax
  call plain
  pop %rax
  ret
  finish calls
  function counts
  mov $3, %ecx
again: nop
  loop again
  ret
  finish counts
  function early_loop
  mov %edi, %ecx
  loop early_loop
  ret
  finish early_loop
  function branches
  test %edi, %edi
  jne 1f
  mov $1, %eax
1: ret
  finish branches
  function goes_back
  mov %edi, %eax
middle: dec %eax
  add $1, %edx
  jne middle
  ret
  finish goes_back
  function returns
  test %eax, %eax
  ret
  nop
  nop
  nop
  finish returns
  function lands
  endbr64
  push %rbx
  sub $32, %rsp
  add $32, %rsp
  pop %rbx
  ret
  finish lands
  .globl _start
_start: ret
  .data
here: .long 0
  .section .note.GNU-stack,"",@progbits
"""


@pytest.mark.parametrize("linked", [True, False], ids=["linked", "object"])
def test_explain_says_what_a_prologue_patch_would_need(
    run: Any, need: Any, by_name: Any, tmp_path: Any, linked: bool
) -> None:
    source, built = tmp_path / "a.s", tmp_path / "a.o"
    source.write_text(PROLOGUES)
    run(need("gcc"), "-c", source, "-o", built)
    if linked:
        run(need("gcc"), "-nostdlib", "-static", built, "-o", tmp_path / "a")
        built = tmp_path / "a"
    explained = {name: row["explain"] for name, row in by_name(built, "--explain").items() if row["symbol"]}
    possible = {name for name, explanation in explained.items() if explanation["possible"]}
    assert possible == {"plain", "relative", "branches", "lands", "counts"}
    assert explained["plain"]["covered"] == 8
    assert [i["text"] for i in explained["plain"]["instructions"]] == ["push rbp", "mov rbp, rsp", "sub rsp, 0x10"]
    assert [i["text"] for i in explained["lands"]["instructions"]] == ["push rbx", "sub rsp, 0x20"]
    assert explained["plain"]["instructions"][0]["address"] == by_name(built)["plain"]["address"]
    (fix,) = [i["fix"] for i in explained["relative"]["instructions"]]
    assert ("PC-relative operand" if linked else "the linker fills it in") in fix
    assert any(i["fix"] and "branch to" in i["fix"] for i in explained["branches"]["instructions"])
    against = {name: "; ".join(explanation["against"]) for name, explanation in explained.items()}
    assert "it ends after 1 bytes" in against["short"]
    assert "call in the first bytes" in against["calls"]
    assert "loop at" in against["early_loop"]
    assert "jump back into the patched bytes: jne" in against["goes_back"]
    assert "ret inside" in against["returns"]


def test_explain_says_it_in_the_text_too(usdtbuild: Any, program: Any) -> None:
    text = usdtbuild("functions", "--explain", "-P", "left_out", "-P", "_start", program).stdout
    assert "no prologue patch: ret inside: it ends after 4 bytes, and a patch needs 5" in text
    assert "a prologue patch of 5 bytes would cover" in text


# -- speed -----------------------------------------------------------------------------------------------------------


def test_ten_thousand_functions_are_listed_quickly(run: Any, need: Any, tmp_path: Any, compiled: Any) -> None:
    """Not a benchmark (benchmarks/functions.py is): 10,000 functions must not need anything near a minute."""
    import resource
    import subprocess
    import sys

    one = (
        ".p2align 4\n.L{0}: .rept 5\nnop\n.endr\n.globl f{0}\n.type f{0}, @function\nf{0}: nop\nnop\n"
        "push %rbp\ntest %edi, %edi\njne 1f\nlea 4(%rdi), %eax\n1: pop %rbp\nret\n.size f{0}, . - f{0}\n"
        '.pushsection __patchable_function_entries,"awo",@progbits,.text\n.quad .L{0}\n.popsection\n'
    )
    built = compiled(tmp_path, "a.s", ".text\n" + "".join(one.format(number) for number in range(10000)), "-c")
    program = tmp_path / "a.so"
    run(need("gcc"), "-shared", "-nostdlib", built, "-o", program)
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(
        [sys.executable, "-m", "usdtbuild", "functions", program], capture_output=True, text=True, check=True
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert re.search(r"^10000 +hotpatchable", done.stdout, re.MULTILINE)
    spent = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
    assert spent < 6, f"{spent:.2f} s CPU; 1.5 s are the aim on an ordinary machine"
