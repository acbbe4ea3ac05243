"""Binaries that are wrong on purpose: every wrong entry is refused with its own reason, and the others are not."""

from __future__ import annotations

import json
import re
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from usdtbuild.elf.image import Image

from .conftest import PROGRAM, SOUND

# reason -> (the wrong function, words its sentence must have). The function is called `wrong`.
WRONG = {
    "padding-short": ("function wrong 3 2\n finish wrong", "3 bytes of padding, not 5: its own N,M is 5,3, not 7,5"),
    "padding-long": ("function wrong 9 2\n finish wrong", "9 bytes of padding, not 5"),
    "entry-short": ("function wrong 5 1\n finish wrong", "1 byte of NOPs at the entry, not 2"),
    "entry-long": ("function wrong 5 3\n finish wrong", "3 bytes of NOPs at the entry, not 2"),
    "other-nm": ("function wrong 2 4\n finish wrong", "its own N,M is 6,2, not 7,5"),
    "entry-not-nops": ("function wrong 5 0\n int3\n int3\n finish wrong", "does not start with a NOP"),
    "jump-into-entry": ("function wrong 5 2\n mov %eax, %eax\n jne wrong + 1\n finish wrong", "goes to the entry+1"),
    "jump-into-padding": ("function wrong 5 2\n loop: dec %eax\n jne wrong - 4\n finish wrong", "goes to the entry-4"),
    "padding-not-nops": (
        "function wrong 5 2\n finish wrong\n .pushsection .text\n .popsection", "other instructions than NOPs"
    ),
    "duplicate": ("function wrong 5 2\n finish wrong\n entry .Lentry_wrong", "an earlier table entry"),
}  # fmt: skip


def opened(path: Path) -> Image:
    return Image(path.read_bytes(), str(path))


def overwrite(path: Any, address: int, data: bytes) -> None:
    """Change bytes of a linked file at an address; the segment with it is found with readelf's own words."""
    text = subprocess.run(["readelf", "-lW", path], capture_output=True, text=True, check=True).stdout
    for line in text.splitlines():
        fields = line.split()
        if fields[:1] == ["LOAD"]:
            offset, virtual, size = int(fields[1], 16), int(fields[2], 16), int(fields[4], 16)
            if virtual <= address < virtual + size:
                with path.open("r+b") as file:
                    file.seek(offset + address - virtual)
                    file.write(data)
                return
    raise AssertionError(f"{address:#x} is in no segment of {path}")


@pytest.mark.parametrize("reason", [r for r in WRONG if r not in ("padding-not-nops", "duplicate")])
@pytest.mark.parametrize("linked", [True, False], ids=["linked", "object"])
def test_a_wrong_entry_is_refused_with_its_own_reason(build: Any, by_name: Any, reason: str, linked: bool) -> None:
    text, words = WRONG[reason]
    rows = by_name(build(text, linked))
    assert rows["wrong"]["reason"] == reason
    assert not rows["wrong"]["hotpatchable"]
    assert words in rows["wrong"]["detail"]
    for name in SOUND:
        assert rows[name]["hotpatchable"], (name, rows[name])
    if reason.startswith("jump-into"):
        own = rows["wrong"]["address"] + (1 if reason == "jump-into-entry" else -4)
        assert re.match(rf"jne {own:#x} at ", rows["wrong"]["detail"])


def test_a_branch_from_the_preceding_function_into_the_padding_is_found(build: Any, by_name: Any) -> None:
    rows = by_name(build("function wrong 5 2\n jmp second - 2\n finish wrong"))
    assert rows["second"]["reason"] == "jump-into-padding"
    assert rows["wrong"]["hotpatchable"]


def test_a_far_branch_into_the_entry_is_found(build: Any, by_name: Any) -> None:
    far = "function wrong 5 2\n .skip 70000, 0x55\n jne first + 1\n call third + 1\n finish wrong"
    for linked in (True, False):
        rows = by_name(build(far, linked))
        assert rows["first"]["reason"] == rows["third"]["reason"] == "jump-into-entry"
        assert rows["second"]["hotpatchable"]
        assert rows["wrong"]["hotpatchable"]


def test_bytes_that_only_look_like_a_branch_are_no_branch(build: Any, by_name: Any) -> None:
    # 74 f6 as the immediate of a mov would be `je` to the entry + 1, if it were an instruction.
    rows = by_name(build("function wrong 5 2\n .byte 0xb8, 0x74, 0xfa, 0, 0\n finish wrong"))
    assert rows["wrong"]["hotpatchable"]


def test_branches_to_the_entry_itself_are_fine(build: Any, by_name: Any) -> None:
    rows = by_name(build("function wrong 5 2\n jmp wrong\n call second\n finish wrong"))
    assert rows["wrong"]["hotpatchable"]
    assert rows["second"]["hotpatchable"]


def test_nops_that_align_a_loop_are_not_the_entrys(build: Any, by_name: Any) -> None:
    # function at 16n + 5: two NOPs of the entry, then one that aligns the loop's head to 8.
    loop = "function wrong 5 2\n nop\nhead: dec %eax\n jne head\n finish wrong"
    rows = by_name(build(loop))
    assert rows["wrong"]["hotpatchable"]
    assert rows["wrong"]["nops"] == 2


def test_overwritten_bytes_are_found(build: Any, by_name: Any) -> None:
    text = "function wrong 5 2\n finish wrong"
    program = build(text)
    entry = by_name(program)["wrong"]["address"]
    overwrite(program, entry, b"\xeb")
    assert by_name(program)["wrong"]["reason"] == "entry-not-nops"
    program = build(text)
    overwrite(program, entry + 1, b"\xcc")
    assert by_name(program)["wrong"]["reason"] == "entry-short"
    program = build(text)
    overwrite(program, entry - 3, b"\xcc")
    assert by_name(program)["wrong"]["reason"] == "padding-not-nops"


def test_a_second_entry_for_a_function_is_refused_once(build: Any, functions: Any) -> None:
    program = build(WRONG["duplicate"][0])
    rows = functions(program)["functions"]
    assert [row["reason"] for row in rows if row["symbol"] == "wrong"] == [None]
    assert ["an earlier table entry" in row["detail"] for row in rows if row["reason"] == "duplicate"] == [True]


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        ("entry third + 4", "it lies 4 bytes inside third"),
        (".byte 0xcc\nstray: entry stray\n padding 7\n .quad 0", "no function symbol follows its NOPs"),
    ],
    ids=["inside a function", "outside functions"],
)
def test_an_entry_away_from_function_symbols_is_refused(build: Any, functions: Any, entry: str, words: str) -> None:
    rows = functions(build(entry))["functions"]
    (refused,) = [row for row in rows if row["reason"] == "not-a-function"]
    assert words in refused["detail"]
    assert refused["symbol"] is None
    assert refused["source"] == "__patchable_function_entries"
    assert all(row["hotpatchable"] for row in rows if row["symbol"] in SOUND)


def test_an_entry_in_data_is_refused(build: Any, functions: Any) -> None:
    fake = "real: padding 5\nfake: padding 3\n.globl fake\n.type fake, @function\n.size fake, 3\n"
    rows = functions(build(f".data\n{fake}.text\nentry real"))["functions"]
    assert [row["symbol"] for row in rows if row["reason"] == "not-executable"] == ["fake"]


def test_null_entries_are_refused(build: Any, functions: Any) -> None:
    rows = functions(build("entry 0"))["functions"]
    assert [(row["symbol"], row["address"]) for row in rows if row["reason"] == "null-entry"] == [(None, 0)]


def test_entries_for_undefined_symbols_are_refused(build: Any, functions: Any) -> None:
    rows = functions(build(".weak nowhere\n entry nowhere", linked=False))["functions"]
    (refused,) = [row for row in rows if row["reason"] == "unresolved"]
    assert "not defined in this object" in refused["detail"]


def test_addresses_that_nothing_relocates_are_refused_in_a_pie(build: Any, functions: Any) -> None:
    program = build("entry 0x1234", options=("-pie",))
    (refused,) = [row for row in functions(program)["functions"] if row["reason"] == "entry-not-relocated"]
    assert refused["address"] == 0x1234


@pytest.mark.parametrize("linked", [True, False], ids=["linked", "object"])
def test_a_truncated_table_is_refused_as_a_whole(build: Any, functions: Any, linked: bool) -> None:
    cut = '.pushsection __patchable_function_entries,"awo",@progbits,.text\n .byte 1, 2, 3\n .popsection'
    found = functions(build("", linked))
    assert found["totals"]["hotpatchable"] == 3
    # The odd bytes come last: alignment would hide them before another entry.
    text = PROGRAM % ""
    assert text.count(".section .note") == 1
    found = functions(_assemble_text(build, text.replace("  .section .note", f"{cut}\n  .section .note"), linked))
    assert found["tables"][0]["problem"] == "table-truncated"
    assert {row["reason"] for row in found["functions"] if row["symbol"] in SOUND} == {"table-truncated"}


@pytest.mark.parametrize("linked", [True, False], ids=["linked", "object"])
def test_a_misaligned_table_is_refused_as_a_whole(build: Any, functions: Any, linked: bool) -> None:
    text = (PROGRAM % "").replace("  .balign 8\n", "")
    if linked:  # something of odd size before the table, in the same segment
        text = '.section __patchable_function_entries,"awo",@progbits,.text\n' + text
        text = text.replace("  .macro entry", "  .text\n  .macro entry", 1)
    found = functions(_assemble_text(build, text, linked, "-Wl,--section-start=__patchable_function_entries=0x500004"))
    assert found["tables"][0]["problem"] == "table-misaligned"
    assert {row["reason"] for row in found["functions"] if row["symbol"] in SOUND} == {"table-misaligned"}


def _assemble_text(build: Any, text: str, linked: bool, *options: str) -> Any:
    """Assemble a whole text instead of one function of it."""
    built = build("", linked=False)
    source = built.with_name("whole.s")
    source.write_text(text)
    subprocess.run(["gcc", "-c", source, "-o", built], check=True)
    if not linked:
        return built
    program = built.with_name("whole")
    subprocess.run(["gcc", "-nostdlib", "-static", *options, built, "-o", program], check=True)
    return program


def test_the_hlt_case_is_refused(run: Any, cc: str, by_name: Any, tmp_path: Any) -> None:
    # eb f4: a thread between the two NOPs would run hlt. Without endbr64 the same padding gives f8, clc, and is fine.
    source, built = tmp_path / "a.c", tmp_path / "a.o"
    source.write_text("int one(int x) { return x; }")
    run(cc, "-O2", "-fcf-protection", "-fpatchable-function-entry=8,6", "-c", source, "-o", built)
    row = by_name(built)["one"]
    assert row["reason"] == "hlt"
    assert "f4, hlt" in row["detail"]
    run(cc, "-O2", "-fcf-protection=none", "-fpatchable-function-entry=8,6", "-c", source, "-o", built)
    assert by_name(built)["one"]["hotpatchable"]


@pytest.mark.parametrize("pair", ["2,0", "5,0", "6,5", "7,4"])
def test_pairs_without_room_are_refused(run: Any, cc: str, by_name: Any, tmp_path: Any, pair: str) -> None:
    source, built = tmp_path / "a.c", tmp_path / "a.o"
    source.write_text("int one(int x) { return x; }")
    run(cc, "-O2", f"-fpatchable-function-entry={pair}", "-c", source, "-o", built)
    assert by_name(built, "--patchable", pair)["one"]["reason"] == "too-small"


def test_the_attribute_is_told_from_the_option(run: Any, cc: str, by_name: Any, tmp_path: Any) -> None:
    source, built = tmp_path / "a.c", tmp_path / "a.o"
    source.write_text(
        "int plain(int x) { return x; } int more(int x) { return x; }\n"
        "__attribute__((patchable_function_entry(12, 8))) int other(int x) { return x; }\n"
        "__attribute__((patchable_function_entry(0, 0))) int none(int x) { return x; }\n"
    )
    run(cc, "-O2", "-fcf-protection=none", "-fpatchable-function-entry=7,5", "-c", source, "-o", built)
    rows = by_name(built)
    assert rows["plain"]["hotpatchable"]
    assert rows["other"]["reason"] == "other-nm"
    assert "its own N,M is 12,8, not 7,5" in rows["other"]["detail"]
    assert rows["none"]["reason"] == "no-entry"
    # Held to what the attribute says, it is the other way round.
    rows = by_name(built, "--patchable", "12,8")
    assert rows["plain"]["reason"] == "other-nm"
    assert rows["other"]["reason"] == "hlt"


def test_a_lost_table_is_noticed(run: Any, cc: str, program_c: Any, by_name: Any, tmp_path: Any) -> None:
    built, stripped = tmp_path / "a.o", tmp_path / "b.o"
    run(cc, "-O2", "-fpatchable-function-entry=7,5", "-c", program_c, "-o", built)
    run("objcopy", "--remove-section=__patchable_function_entries", built, stripped)
    rows = by_name(stripped)
    assert rows["leaf"]["reason"] == "lost-entry"
    assert rows["left_out"]["reason"] == "no-table"


def test_cxx_objects_of_gcc_that_lose_entries_are_noticed(run: Any, need: Any, by_name: Any, tmp_path: Any) -> None:
    """gcc 12 writes one table outside the COMDAT groups; bfd drops it with the second copy of an inline function."""
    source = tmp_path / "a.cc"
    source.write_text("inline int shared(int x) { return x * 2; }\n"
                      "int NAME(int x) { return shared(x) + 1; }\n")  # fmt: skip
    objects = []
    for name in ("one", "two"):
        objects.append(tmp_path / f"{name}.o")
        options = ["-O2", "-fPIC", "-fno-inline", "-fpatchable-function-entry=7,5", f"-DNAME={name}"]
        run(need("g++"), *options, "-c", source, "-o", objects[-1])
    program = tmp_path / "program.so"
    run(need("g++"), "-shared", "-fuse-ld=bfd", *objects, "-o", program, code=None)
    if not program.exists():
        pytest.skip("this linker refuses such objects")
    rows = by_name(program)
    assert rows["_Z3onei"]["hotpatchable"]
    groups = run("readelf", "-gW", objects[1]).stdout
    if "__patchable_function_entries" not in groups:  # a compiler with the flaw
        assert rows["_Z3twoi"]["reason"] == "lost-entry"
    else:
        assert rows["_Z3twoi"]["hotpatchable"]


def test_a_patch_across_cache_lines_is_flagged_not_refused(build: Any, by_name: Any) -> None:
    lines = [".p2align 6", ".skip 58, 0xcc", "entry before", "before: padding 5", ".type wrong, @function"]
    rows = by_name(build("\n".join([*lines, "wrong: padding 2", "finish wrong"])))
    assert rows["wrong"]["address"] % 64 == 63
    assert rows["wrong"]["hotpatchable"]
    assert rows["wrong"]["warnings"] == ["crosses-cache-line"]
    assert rows["first"]["warnings"] == []


def test_unknown_machines_are_said_to_be_unknown(build: Any, by_name: Any) -> None:
    program = build("")
    with program.open("r+b") as file:
        file.seek(18)
        file.write(b"\xf3\x01")
    assert by_name(program)["first"]["reason"] == "machine"


def test_a_process_with_other_bytes_than_its_file_is_noticed(
    run: Any, usdtbuild: Any, need: Any, tmp_path: Any
) -> None:
    source, program = tmp_path / "a.c", tmp_path / "a"
    source.write_text(
        "#include <unistd.h>\n"
        "__attribute__((noinline)) int work(int x) { return x + 1; }\n"
        "__attribute__((noinline)) int rest(int x) { return x + 2; }\n"
        'int main(void) { char c; volatile int n = 1; write(1, "go", 2);\n'
        "return (int)read(0, &c, 1) + work(n) + rest(n); }\n"
    )
    run(need("gcc"), "-O2", "-fpatchable-function-entry=7,5", source, "-o", program)
    with subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.read(2) == b"go"
            first = _process_rows(usdtbuild, process.pid, str(program))
            assert first["work"]["hotpatchable"]
            assert first["rest"]["hotpatchable"]
            try:
                with Path(f"/proc/{process.pid}/mem").open("r+b", buffering=0) as memory:
                    memory.seek(first["work"]["address"])
                    memory.write(b"\xeb\xf9")
            except OSError as error:
                pytest.skip(f"this machine lets no process write another's memory: {error}")
            again = _process_rows(usdtbuild, process.pid, str(program))
            assert again["work"]["reason"] == "changed-in-memory"
            assert "ebf9" in again["work"]["detail"]
            assert again["rest"]["hotpatchable"]
        finally:
            process.kill()


def _process_rows(usdtbuild: Any, pid: int, path: str) -> dict[str, Any]:
    files = json.loads(usdtbuild("functions", "--json", pid).stdout)["files"]
    (file,) = [file for file in files if file["file"] == path]
    assert len(files) > 1, "the C library is missing"
    assert all(not other["functions"] for other in files if not other["tables"])
    return {row["symbol"]: row for row in file["functions"]}


def test_processes_that_are_gone_are_an_error(usdtbuild: Any) -> None:
    with subprocess.Popen(["true"]) as process:
        process.wait()
    for _ in range(50):
        if not Path(f"/proc/{process.pid}").exists():
            break
        time.sleep(0.1)
    done = usdtbuild("functions", process.pid, code=1)
    assert "there is no such process" in done.stderr
    assert done.stdout == ""


# -- for `usdtbuild verify` ------------------------------------------------------------------------------------------


def test_verify_reports_each_reason_once_with_its_places(build: Any, run: Any, cc: str, tmp_path: Any) -> None:
    from usdtbuild.verify.entries import verify_entries

    wrong = "function wrong 3 2\n finish wrong\n function other 2 2\n finish other\n entry 0"
    found = {finding.check: finding for finding in verify_entries(opened(build(wrong)))}
    assert set(found) == {"entry-padding-short", "entry-null-entry"}
    assert all(finding.severity == "error" for finding in found.values())
    short = found["entry-padding-short"]
    assert [place.function for place in short.places] == ["wrong", "other"]
    assert "its own N,M is 5,3, not 7,5" in short.places[0].where
    assert short.cure
    source, built = tmp_path / "a.c", tmp_path / "a.o"
    source.write_text("int one(int x) { return x; }\n")
    for options in ([], ["-fpatchable-function-entry=7,5"]):
        run(cc, "-O2", *options, "-c", source, "-o", built)
        assert verify_entries(opened(built)) == []


def test_folded_functions_are_listed_once_and_no_error(run: Any, need: Any, by_name: Any, tmp_path: Any) -> None:
    from usdtbuild.verify.entries import verify_entries

    need("ld.lld")
    source, library = tmp_path / "a.c", tmp_path / "a.so"
    body = "(int x) { return x * 3; }\n"
    source.write_text(f"int one{body}int two{body}int more(int x) {{ return x; }}\n")
    words = ["-O2", "-fPIC", "-ffunction-sections", "-fpatchable-function-entry=7,5", "-shared", "-nostdlib"]
    run(need("clang"), *words, "-fuse-ld=lld", "-Wl,--icf=all", source, "-o", library)
    rows = by_name(library)
    assert rows["one"] is rows["two"]
    assert rows["one"]["hotpatchable"]
    assert rows["more"]["hotpatchable"]
    assert {finding.severity for finding in verify_entries(opened(library))} <= {"warning"}


def test_branches_with_prefixes_and_transactions_are_found(build: Any, by_name: Any) -> None:
    # 3e 75 rel8 (a hint), f2 eb rel8 (bnd), xbegin rel32: all to wrong + 1.
    hint, bound = (f"1: .byte {code}, wrong + 1 - 1b - 3" for code in ("0x3e, 0x75", "0xf2, 0xeb"))
    for branch in (hint, bound, "xbegin wrong + 1"):
        text = f"function wrong 5 2\n mov %eax, %eax\n {branch}\n finish wrong"
        assert by_name(build(text))["wrong"]["reason"] == "jump-into-entry", branch
    assert by_name(build("function wrong 5 2\n xbegin 1f\n1: finish wrong"))["wrong"]["hotpatchable"]


def test_names_that_are_no_text_do_no_harm(usdtbuild: Any, build: Any, functions: Any) -> None:
    import shutil

    program = build('function wrong 5 2\n .globl "odd"\n .type odd, @function\n .set odd, wrong\n finish wrong')
    data = program.read_bytes()
    assert b"\0odd\0" in data
    odd = shutil.copy(program, program.with_name("odd"))
    odd.write_bytes(data.replace(b"\0odd\0", b"\0\x1b\xffd\0"))
    assert "odd" not in usdtbuild("functions", odd).stdout.split("NAME")[1]
    text = usdtbuild("functions", odd).stdout
    assert "\x1b" not in text
    assert "\\x1b" in text
    (row,) = [row for row in functions(odd)["functions"] if row["symbol"] == "wrong"]
    assert row["aliases"] == ["\x1b\\xffd"]


def test_what_has_the_same_reason_is_told_together(usdtbuild: Any, tmp_path: Path, compiled: Any) -> None:
    """A program that wasn't compiled for it has thousands of functions, and its libraries have more."""
    names = [f"plain_{number}" for number in range(30)]
    text = "".join(f"__attribute__((noinline)) int {name}(int x) {{ return x + {len(name)}; }}\n" for name in names)
    calls = " + ".join(f"{name}({number})" for number, name in enumerate(names))
    compiled(tmp_path, "plain.c", f"{text}int main(void) {{ return ({calls}) == 0; }}\n", "-O1", "-falign-functions=16")
    done = usdtbuild("trace", "-F", "plain_*", "--count", "--", tmp_path / "plain")
    told = [line for line in done.stderr.splitlines() if "not traced" in line]
    assert len(told) <= 9
    assert " and 27 more: the instruction there is no NOP" in told[0]
    assert told[-1].endswith("30 places in all; -v names each")
    all_of_them = usdtbuild("trace", "-v", "-F", "plain_*", "--count", "--", tmp_path / "plain").stderr
    assert all_of_them.count("not traced: plain_") == 30
