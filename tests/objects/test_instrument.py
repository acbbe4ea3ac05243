"""`usdtbuild instrument` on whole objects: what is written, what is refused, what is left alone."""

from __future__ import annotations

import os
import re
import stat
import sys
from pathlib import Path
from typing import Any

import pytest

from usdtbuild.instrument import fast
from usdtbuild.instrument.several import InstrumentRequest

PROBES = """
int work(int n) { APP_START(); if (APP_REQ_ENABLED()) APP_REQ(n, "x"); APP_REQ_DONE(n, "y", 3); return n; }
int main(void) { return work(0); }
"""
PLAIN = "int work(int n) { return n; } int main(void) { return work(0); }"


def instrument(bench: Any, source: Any, *options: Any, **more: Any) -> Any:
    """Run the command on an object; return the process and the path of the output."""
    target = bench.fresh("out.o")
    return bench.usdtbuild("instrument", *options, source, "-o", target, **more), target


def names_in(bench: Any) -> list[str]:
    return sorted(path.name for path in bench.folder.iterdir())


# --- what is written ------------------------------------------------------------------------------------------


def test_the_input_is_not_touched(bench: Any) -> None:
    plain = bench.compile("gcc", PROBES, "-O2")
    before, status = plain.read_bytes(), plain.stat()
    _, target = instrument(bench, plain)
    assert plain.read_bytes() == before
    assert plain.stat() == status
    assert target.read_bytes() != before


def test_the_output_has_the_permissions_that_the_umask_leaves(bench: Any) -> None:
    plain = bench.compile("gcc", PROBES)
    plain.chmod(0o600)
    before = os.umask(0o027)
    try:
        _, target = instrument(bench, plain)
    finally:
        os.umask(before)
    assert stat.S_IMODE(target.stat().st_mode) == 0o640


def test_verbose_tells_each_site(bench: Any) -> None:
    done, _ = instrument(bench, bench.compile("gcc", PROBES, "-O0"), "-v")
    assert re.findall(r"(app:\w+) (\w+) at (\S+)\+", done.stdout) == [
        ("app:start", "call", ".text"),
        ("app:req", "call", ".text"),
        ("app:req__done", "call", ".text"),
    ]


@pytest.mark.parametrize("tool", [("readelf", "-aW"), ("llvm-readelf", "-a"), ("eu-elflint", "--gnu-ld")])
def test_tools_find_nothing_wrong_with_the_object(bench: Any, need: Any, cc: str, tool: tuple[str, ...]) -> None:
    need(tool[0])
    plain = bench.compile(cc, PROBES, "-O2", "-g", "-ffunction-sections")
    _, target = instrument(bench, plain)
    assert complaints(bench, tool, target) == complaints(bench, tool, plain)


def complaints(bench: Any, tool: tuple[str, ...], path: Any) -> list[str]:
    """Return a tool's warnings about an object, but for two that say what elflint doesn't know."""
    done = bench.run(*tool, path, code=None)
    if tool[0] != "eu-elflint":
        return [line for line in (done.stdout + done.stderr).splitlines() if re.search("(?i)warning|error:", line)]
    unknown = "relocation type invalid for the file type|object file note type 3 with owner name 'stapsdt'"
    lines = (line for line in done.stdout.splitlines() if line != "No errors" and not re.search(unknown, line))
    return [re.sub(r"\[ *\d+\]", "", line) for line in lines]


def test_a_debugger_shows_the_functions_and_not_our_symbols(bench: Any, run: Any) -> None:
    path, _ = bench.instrument_report(bench.compile("gcc", PROBES, "-O2", "-g"))
    program = bench.link(path)
    site = run("objdump", "-d", "--no-show-raw-insn", program).stdout
    address = re.search(r"<work>:\n((?:.*\n)*?) +([0-9a-f]+):\tnop\n", site)
    assert address
    for tool in (["addr2line", "-f", "-e"], ["llvm-symbolizer", "--functions", "-e"]):
        shown = bench.run(*tool, program, f"0x{address[2]}").stdout
        assert shown.startswith("work\n"), tool


# --- nothing to do --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        (PLAIN, "no probe calls"),
        ("static void unused(void) { APP_START(); } int work(int n) { (void)unused; return n; }", "no probe calls"),
    ],
)
def test_an_object_without_calls_is_copied_as_it_is(bench: Any, source: str, reason: str) -> None:
    plain = bench.compile("gcc", source, "-O2")
    done, target = instrument(bench, plain, "-v")
    assert target.read_bytes() == plain.read_bytes()
    assert f"left alone: {reason}" in done.stdout


def test_an_instrumented_object_is_copied_as_it_is(bench: Any) -> None:
    once = instrument(bench, bench.compile("gcc", PROBES, "-O2"))[1]
    done, twice = instrument(bench, once, "-v")
    assert "already instrumented" in done.stdout
    assert twice.read_bytes() == once.read_bytes()


LACKING = {  # what is asked for -> what a complete object lacks of it, and the formats of a header that leaves it open
    "--formats=dof": ("dof", "dof"), "--formats=usdt": ("usdt", "usdt"),
    "--formats=stapsdt,dof": ("dof", "stapsdt,dof"),
    "--site-table": ("--site-table", "dof"),
    "--nop=nop5": ("--nop=nop5", "dof"), "--nop=classic": ("--nop=classic", "dof"),
}  # fmt: skip


@pytest.mark.parametrize("way", ["instrument", "cc"])
@pytest.mark.parametrize("option", LACKING)
def test_what_a_complete_object_lacks_is_refused(
    way: str, option: str, tmp_path: Path, run: Any, usdtbuild: Any, header_of: Any
) -> None:
    """And what the message says to do makes an object that has it, which is left alone the second time."""
    lacking, formats = LACKING[option]
    header_of(tmp_path, "app.d", "provider app { probe go(int); };\n")
    (tmp_path / "main.c").write_text('#include "app.h"\nint main(int n, char **v) { (void)v; APP_GO(n); return 0; }\n')
    compile_ = ("gcc", "-O2", "-c", "main.c", "-o", "main.o")
    asked = (option, *["--"] * (way == "cc"), *(compile_ if way == "cc" else ("main.o", "-o", "other.o")))
    if way == "instrument":
        run(*compile_, cwd=tmp_path)
    said = usdtbuild(way, *asked, cwd=tmp_path, code=1).stderr
    if way == "cc" and "--formats" in option:  # the header says it to the compiler
        assert "app.h:" in said
        assert "for DOF or .note.usdt make it with usdtbuild header --formats" in said
    else:
        assert (
            f"main.o: the probes of provider app are complete and have SDT notes, so {lacking} can't be added" in said
        )
        assert f"usdtbuild header --formats={formats}" in said
    made = tmp_path / ("other.o" if way == "instrument" else "main.o")
    assert not made.exists()
    if way == "cc":  # SDT notes are there
        usdtbuild("cc", "--nop=safe", "--", *compile_, cwd=tmp_path)
    usdtbuild("header", f"--formats={formats}", "app.d", cwd=tmp_path)
    run(*compile_, *["-DUSDT_PROBES_BY_CALL"] * ("nop5" in option), cwd=tmp_path)
    usdtbuild(way, *asked, cwd=tmp_path)
    again = usdtbuild("instrument", "-v", option, made, "-o", "again.o", cwd=tmp_path)
    assert "already instrumented" in again.stdout


def test_instrumenting_what_an_instrumented_and_a_plain_object_were_joined_to(bench: Any, check: Any) -> None:
    """ld -r of one of each: the plain one's calls become sites, the other's stay what they are."""
    first = bench.compile("gcc", PROBES, "-O2")
    second = bench.compile("gcc", 'int other(int n) { APP_REQ(n, "other"); return n; }', "-O2")
    joined = bench.fresh("joined.o")
    bench.run("ld", "-r", bench.instrument(first), second, "-o", joined)
    program = check.binary(bench.link(bench.instrument(joined)))
    reference = check.binary(bench.link(first, second, bench.stubs([first, second])))
    assert check.records(program, reference) == []


# --- semaphores -----------------------------------------------------------------------------------------------


def test_objects_share_a_semaphore(bench: Any, check: Any, linker: str) -> None:
    """Every site of a module shows the semaphore as soon as one object tests it, and no other probe has one."""
    objects = [
        bench.compile("gcc", 'int one(int n) { if (APP_REQ_ENABLED()) APP_REQ(n, "one"); return n; }', "-O2"),
        bench.compile("clang", 'int two(int n) { if (APP_REQ_ENABLED()) APP_REQ(n, "two"); return n; }', "-O1"),
        bench.compile("gcc", 'int three(int n) { APP_REQ(n, "three"); APP_START(); return n; }', "-O0"),
        bench.compile("gcc", "int one(int), two(int), three(int); int main(void) { return one(two(three(0))); }"),
    ]
    made = [bench.instrument(path) for path in objects[:3]]
    program = check.binary(bench.link(f"-fuse-ld={linker}", *made, objects[3]))
    found = {(record.probe, record.semaphore) for record in program.records()}
    symbols = {s.name: s["st_value"] for s in program.symbols if s.name.endswith("_semaphore")}
    assert found == {("req", symbols["app_req_semaphore"]), ("start", 0)}
    assert bench.output(program.path) == ""


def test_a_semaphore_stands_alone_on_its_page(bench: Any, check: Any, linker: str) -> None:
    """On a page with RELRO a tracer that starts first increments another copy than the program reads."""
    path = bench.instrument(bench.compile("gcc", PROBES, "-O2"))
    program = check.binary(bench.link(f"-fuse-ld={linker}", "-pie", "-Wl,-z,now", path))
    section = program.section(".probes")
    assert section["sh_addr"] % 4096 == 0
    relro = [s for s in program.elf.iter_segments() if s["p_type"] == "PT_GNU_RELRO"]
    for segment in relro:
        end = segment["p_vaddr"] + segment["p_memsz"]
        assert not segment["p_vaddr"] <= section["sh_addr"] < end


def test_without_a_test_no_page_is_spent(bench: Any, check: Any, linker: str) -> None:
    path = bench.instrument(bench.compile("gcc", "int main(void) { APP_START(); return 0; }", "-O2"))
    program = check.binary(bench.link(f"-fuse-ld={linker}", path))
    assert program.elf.get_section_by_name(".probes") is None
    assert [record.semaphore for record in program.records()] == [0]


def test_an_is_enabled_call_reads_the_semaphore(bench: Any, check: Any) -> None:
    """Headers that call __dtraceenabled_ work with tracers that only know semaphores."""
    source = """
    #include <stdio.h>
    extern __attribute__((visibility("hidden"))) unsigned short app_req_semaphore;
    int main(void)
    {
        printf("%d", APP_REQ_ENABLED());
        app_req_semaphore = 1;
        printf("%d\\n", APP_REQ_ENABLED());
        if (APP_REQ_ENABLED())
            APP_REQ(1, "x");
        return 0;
    }
    """.replace("extern __attribute__", "extern volatile __attribute__")
    made = bench.instrument(bench.compile("gcc", source, "-O2", "-DUSDT_ENABLED_BY_CALL"))
    program = bench.link(made)
    assert bench.output(program) == "01\n"
    binary = check.binary(program)
    semaphore = next(s["st_value"] for s in binary.symbols if s.name == "app_req_semaphore")
    assert [record.semaphore for record in binary.records()] == [semaphore]


# --- refused --------------------------------------------------------------------------------------------------


def refused(bench: Any, source: Any, *patterns: str, **more: Any) -> str:
    """Instrument what must be refused with one line that says all of `patterns`, and without a trace of output."""
    before = names_in(bench)
    done, target = instrument(bench, source, code=1, **more)
    assert names_in(bench) == before
    assert not target.exists()
    assert done.stdout == ""
    lines = done.stderr.splitlines()
    assert len(lines) == 1, done.stderr
    assert lines[0].startswith(f"usdtbuild: {source}")
    for pattern in patterns:
        assert re.search(pattern, lines[0]), f"{pattern!r} is not in {lines[0]!r}"
    return str(lines[0])


@pytest.mark.parametrize(
    ("name", "patterns"),
    [
        ("__dtrace_web___hit", ("describes provider web", "--provider")),
        ("__dtrace_app___gone", ("provider app has no probe gone", "header is older or newer")),
    ],
    ids=["unknown provider", "unknown probe"],
)
def test_a_probe_that_nothing_describes(bench: Any, name: str, patterns: tuple[str, ...]) -> None:
    source = f"extern void {name}(int); int work(int n) {{ {name}(n); return n; }}"
    refused(bench, bench.compile("gcc", source), *patterns)


def test_a_provider_file_describes_probes_of_foreign_headers(bench: Any) -> None:
    plain = bench.write("plain.c", "extern void __dtrace_app___start(void); int main(void) { __dtrace_app___start(); }")
    path = bench.compile("gcc", plain)
    done, _ = instrument(bench, path, "-v", "--provider", "app.d")
    assert "app:start call at .text" in done.stdout


@pytest.mark.parametrize("compiler", ["g++", "clang++"])
def test_a_probe_declared_without_extern_c(bench: Any, need: Any, compiler: str) -> None:
    need(compiler)
    source = bench.write("x.cpp", "void __dtrace_app___req(int, const char *); void f() { __dtrace_app___req(1, 0); }")
    refused(bench, bench.compile(compiler, source), "_Z18__dtrace_app___reqiPKc", 'extern "C"')


def test_a_description_that_is_damaged(bench: Any) -> None:
    path = bench.compile("gcc", PROBES)
    path.write_bytes(path.read_bytes().replace(b"probe\treq\ts4|int", b"probe\treq\tq4|int"))
    refused(bench, path, r"section \.usdtbuild\.provider", "make the header again")


FOREIGN = {
    "empty": (b"", "is empty"),
    "text": (b"int main(void) { return 0; }\n", "is not an ELF object"),
    "archive": (b"!<arch>\n" + b" " * 60, "is an archive"),
    "thin archive": (b"!<thin>\n" + b" " * 60, "is a thin archive"),
    "script": (b"#!/bin/sh\nexit 0\n", "is a script"),
    "PE": (b"MZ" + bytes(100), r"Windows \(PE\)"),
    "Mach-O": (b"\xcf\xfa\xed\xfe" + bytes(100), "Mach-O"),
    "COFF": (b"\x64\x86" + bytes(100), "COFF"),
    "magic alone": (b"\x7fELF", "ends inside the ELF header"),
    "half a header": (b"\x7fELF\x02\x01\x01" + bytes(25), "ends inside the ELF header"),
    "no class": (b"\x7fELF\x07\x01\x01" + bytes(60), "class 7"),
}


@pytest.mark.parametrize("name", FOREIGN)
def test_foreign_files(bench: Any, name: str) -> None:
    content, what = FOREIGN[name]
    path = bench.folder / "foreign.o"
    path.write_bytes(content)
    refused(bench, path, what)


def test_an_executable_and_a_library(bench: Any) -> None:
    path = bench.compile("gcc", PLAIN, "-fPIC")
    refused(bench, bench.link(path, "-no-pie"), "is an executable, not a relocatable object")
    refused(bench, bench.link(path, "-shared"), "is a shared library or PIE, not a relocatable object")


@pytest.mark.parametrize(
    ("at", "byte", "patterns"),
    [(18, 94, ("ELF machine 94", "supported are .*x86-64")), (4, 1, ("",))],
    ids=["unknown machine: Xtensa", "wrong class"],
)
def test_an_object_that_we_do_not_write(bench: Any, at: int, byte: int, patterns: tuple[str, ...]) -> None:
    path = bench.compile("gcc", PROBES)
    content = bytearray(path.read_bytes())
    content[at] = byte
    path.write_bytes(content)
    refused(bench, path, *patterns)


def test_a_folder(bench: Any) -> None:
    (bench.folder / "folder").mkdir()
    refused(bench, bench.folder / "folder", "is a directory, not an object")


def test_a_file_that_is_not_there(bench: Any) -> None:
    refused(bench, bench.folder / "nowhere.o", "no such file")


@pytest.mark.parametrize("device", ["/dev/null", "/dev/zero", "/dev/full"])
def test_devices(bench: Any, device: str) -> None:
    """/dev/zero never ends: it must not be read to its end."""
    refused(bench, device, "is a device, not a file", timeout=20)


def test_a_pipe_without_a_writer(bench: Any) -> None:
    """Opening it would wait for ever."""
    path = bench.folder / "pipe"
    os.mkfifo(path)
    refused(bench, path, "is empty", timeout=20)


def test_an_object_through_a_pipe(bench: Any) -> None:
    plain = bench.compile("gcc", PROBES)
    _, expected = instrument(bench, plain)
    target = bench.fresh("out.o")
    command = f"cat {plain} | '{sys.executable}' -m usdtbuild instrument /dev/stdin -o {target}"
    bench.run("bash", "-c", command)
    assert target.read_bytes() == expected.read_bytes()


def test_a_target_that_can_t_be_written(bench: Any) -> None:
    path = bench.compile("gcc", PROBES)
    target = bench.folder / "nowhere" / "out.o"
    done = bench.usdtbuild("instrument", path, "-o", target, code=1)
    assert re.fullmatch(f"usdtbuild: {target}: can't be written: no such file or directory\n", done.stderr)


def test_a_target_that_is_a_folder(bench: Any) -> None:
    path = bench.compile("gcc", PROBES)
    target = bench.folder / "folder.o"
    target.mkdir()
    before = names_in(bench)
    done = bench.usdtbuild("instrument", path, "-o", target, code=1)
    assert "can't be written: is a directory" in done.stderr
    assert names_in(bench) == before


def test_no_space_leaves_no_output_behind(bench: Any) -> None:
    """A limit on file sizes stands for a full disk."""
    path = bench.compile("gcc", PROBES)
    target = bench.folder / "out.o"
    before = names_in(bench)
    script = f"ulimit -f 1; exec '{sys.executable}' -m usdtbuild instrument {path} -o {target}"
    done = bench.run("bash", "-c", script, code=None)
    assert done.returncode == 1, done.stderr
    assert "can't be written" in done.stderr
    assert names_in(bench) == before


def test_an_older_output_stays_when_the_input_is_refused(bench: Any) -> None:
    target = bench.write("out.o", "older")
    bench.usdtbuild("instrument", bench.write("bad.o", "bad"), "-o", target, code=1)
    assert target.read_text() == "older"


def test_the_input_can_t_be_the_output(bench: Any) -> None:
    path = bench.compile("gcc", PROBES)
    before = path.read_bytes()
    link = bench.folder / "link.o"
    link.symlink_to(path)
    for target in (path, link, bench.folder / "." / path.name):
        done = bench.usdtbuild("instrument", path, "-o", target, code=2)
        assert "is the input itself" in done.stderr
    assert path.read_bytes() == before


def test_an_unknown_system_is_wrong_use(bench: Any) -> None:
    path = bench.compile("gcc", "int f(void) { return 1; }\n")
    done = bench.usdtbuild("instrument", path, "-o", bench.folder / "out.o", "--target-os", "linx", code=2)
    assert "linx is an unknown system; there are linux, freebsd, illumos, oracle" in done.stderr


# --- the quick way --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "request_"),
    [
        (["a.o", "-o", "b.o"], InstrumentRequest(("a.o",), "b.o")),
        (["--output", "b.o", "a.o"], InstrumentRequest(("a.o",), "b.o")),
        (["a.o", "--output-dir", "out", "b.o"], InstrumentRequest(("a.o", "b.o"), output_dir="out")),
        # What makes no sense is told by the same code that the proper command line has.
        (["a.o", "b.o", "-o", "c.o"], InstrumentRequest(("a.o", "b.o"), "c.o")), (["a.o"], InstrumentRequest(("a.o",))),
        (["a.o", "-v", "-o", "b.o"], None), (["a.o", "--help"], None), (["-o", "b.o"], None), ([], None),
        (["a.o", "-o"], None), (["a.o", "-o", ""], None), (["a.o", "-o", "-x"], None), (["", "-o", "b.o"], None),
        (["a.o", "-ob.o"], None), (["a.o", "--output=b.o"], None), (["--", "a.o", "-o", "b.o"], None),
        (["a.o", "-o", "x", "--output", "y"], None), (["a.o", "--nop", "safe", "-o", "b.o"], None),
    ],
)  # fmt: skip
def test_plain_command_lines_are_read_without_a_library(
    arguments: list[str], request_: InstrumentRequest | None
) -> None:
    assert fast.read(arguments) == request_


def test_both_ways_do_the_same(bench: Any) -> None:
    objects = [bench.compile("gcc", PROBES), bench.compile("gcc", PLAIN)]
    results = []
    for name, words in (("quick", []), ("slow", ["--nop=safe"])):  # an option with its default
        folder = bench.folder / name
        folder.mkdir()
        bench.usdtbuild("instrument", *objects, *words, "--output-dir", folder)
        results.append({path.name: path.read_bytes() for path in folder.iterdir()})
    assert sorted(results[0]) == sorted(path.name for path in objects)
    assert results[0] == results[1]


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        ("nothing.o -o x.o", 1, "nothing.o: no such file or directory"),
        ("folder/ --output-dir folder", 1, "folder/: is a directory, not an object"),
        ("a.o --output-dir nowhere", 1, "nowhere: is no folder; make it first (mkdir -p)"),
        ("a.o folder/../a.o --output-dir folder", 2, "a.o and folder/../a.o would both be written to folder/a.o"),
        ("a.o", 2, "give either -o FILE, for one object, or --output-dir DIR"),
        ("a.o b.o -o x.o", 2, "-o takes one object, and there are 2; use --output-dir"),
    ],
)
def test_both_ways_say_the_same(words: str, code: int, said: str, bench: Any) -> None:
    (bench.folder / "folder").mkdir()
    for name in ("a.o", "b.o"):
        bench.compile("gcc", PLAIN).rename(bench.folder / name)
    before = names_in(bench)
    told = [bench.usdtbuild("instrument", *words.split(), *more, code=code).stderr for more in ([], ["--nop=safe"])]
    assert told[0] == told[1]
    assert told[0].startswith(f"usdtbuild: {said}")
    assert names_in(bench) == before
    assert not any((bench.folder / "folder").iterdir())
