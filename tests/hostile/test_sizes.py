"""Files that are small and become large: each ends in an error or without what can't be had, below 300 MB."""

from __future__ import annotations

import json
import lzma
import os
import re
import struct
import subprocess
import sys
import time
import zlib
from pathlib import Path
from typing import Any

import pytest

from usdtbuild.limits import ARGUMENTS, NOTES

MOST = 300 << 20
NOTE = """
  .text
  .globl main
main: nop
  ret
  .section .stapsdt.base,"a",@progbits
_.stapsdt.base: .byte 0
  .section .note.stapsdt,"",@note
  .rept COUNT
  .balign 4
  .4byte 8,36,3
  .asciz "stapsdt"
  .8byte main,_.stapsdt.base,0
  .asciz "a"
  .asciz "b"
  .asciz "-4@%edi"
  .balign 4
  .endr
  .section .note.GNU-stack,"",@progbits
"""


def with_notes(run: Any, folder: Path, count: int, owner: str = "stapsdt") -> Path:
    (folder / "notes.s").write_text(NOTE.replace("COUNT", str(count)).replace('"stapsdt"', f'"{owner}"'))
    run("gcc", "-no-pie", "notes.s", "-o", "notes", cwd=folder)
    return folder / "notes"


@pytest.mark.parametrize(
    "words",
    [
        ("list",),
        pytest.param(("list", "--json"), marks=pytest.mark.slow),
        ("verify",),
        ("trace", "--count", "--"),
    ],
)
def test_more_notes_than_a_program_can_have(words: tuple[str, ...], run: Any, command: Any, tmp_path: Path) -> None:
    said = command(*words, with_notes(run, tmp_path, 900_000), timeout=60)
    assert f"more than {NOTES} notes" in said.err + said.out, said
    assert "none of the records is of the owner stapsdt" not in said.out
    assert said.memory < 200 << 20  # the file has 50 MB


def test_more_notes_of_others_than_a_program_can_have(run: Any, command: Any, tmp_path: Path) -> None:
    said = command("verify", with_notes(run, tmp_path, 900_000, "another"), timeout=60)
    assert "none of the records is of the owner stapsdt" in said.out, said
    assert said.memory < 200 << 20


def test_as_many_notes_as_a_program_may_have(run: Any, command: Any, tmp_path: Path) -> None:
    said = command("list", "--json", with_notes(run, tmp_path, 50_000), timeout=60)
    assert said.code == 0, said.err


def with_section(run: Any, folder: Path, notes: list[tuple[str, str]]) -> Path:
    """Build a program that has a note for each name and arguments."""
    with (folder / "notes.bin").open("wb") as file:
        for name, arguments in notes:
            text = struct.pack("<QQQ", 0x401000, 0, 0) + f"a\0{name}\0{arguments}\0".encode()
            file.write(struct.pack("<III", 8, len(text), 3) + b"stapsdt\0" + text + bytes(-len(text) % 4))
    section = '  .section .note.stapsdt,"",@note\n  .incbin "notes.bin"\n'
    (folder / "notes.s").write_text(f"{NOTE.partition('  .section')[0]}{section}")
    run("gcc", "-no-pie", "-Wl,-z,noexecstack", "notes.s", "-o", "notes", cwd=folder)
    return folder / "notes"


@pytest.mark.parametrize("words", [("list",), ("list", "--json"), ("verify",), ("trace", "--count", "--")])
def test_notes_that_are_all_arguments(words: tuple[str, ...], run: Any, command: Any, tmp_path: Path) -> None:
    """Each of two bytes: half a million records, of which each takes a kilobyte when it is listed."""
    text = [" ".join(chr(97 + (i >> j % 8) % 2) for j in range(255)) for i in range(2_900)]
    said = command(*words, with_section(run, tmp_path, [("b", one) for one in text]))
    assert f"{ARGUMENTS} arguments, which is the most that is read" in said.err + said.out, said
    assert said.memory < 100 << 20


@pytest.mark.slow
@pytest.mark.parametrize("options", [["--count"], ["--filter", "arg0 == 1", "--count"]])
def test_as_many_probes_as_there_is_room_for_on_nops_side_by_side(
    options: list[str], run: Any, attacker: Any, command: Any, folder: Path
) -> None:
    """Nearly none can have a jump. All are armed, or it takes too long, and the trace ends on time all the same."""
    count = 60_000
    main = "main: call getpid\n1: mov $1000, %edi\n  call usleep\n  jmp 1b\n"
    code = f"  .text\n  .globl main\n  push %rbx\n{main}code: .fill {count}, 1, 0x90\n  ret\n"
    note = """  .balign 4
  .4byte 8,41,3
  .asciz "stapsdt"
  .8byte code+{0},0,0
  .asciz "a"
  .asciz "b{0:05d}"
  .asciz "-4@%edi"
"""
    notes = "".join(map(note.format, range(count)))
    (folder / "near.s").write_text(f'{code}  .section .note.stapsdt,"",@note\n{notes}  .balign 4\n')
    run("gcc", "-no-pie", "-Wl,-z,noexecstack", "near.s", "-o", "near", cwd=folder)
    process = attacker(folder / "near")
    before = time.monotonic()
    said = command("trace", "-p", process.pid, "--duration", "1", *options, timeout=60)
    took = time.monotonic() - before
    assert said.code == 0 or "--duration and 2 s more were over" in said.err, said.err[-2000:]
    assert took < 3 + 4  # Python starts besides, and puts back what it had armed; all would take 10 s and more
    start = re.search(r"^(\w+) t code$", run("nm", folder / "near").stdout, re.MULTILINE)
    assert start is not None
    with Path(f"/proc/{process.pid}/mem").open("rb") as memory:
        memory.seek(int(start[1], 16))
        assert memory.read(count) == b"\x90" * count


@pytest.mark.slow
@pytest.mark.parametrize("words", [("list", "--json"), ("verify", "--json")])
def test_as_many_probes_as_a_program_may_have(words: tuple[str, ...], run: Any, command: Any, tmp_path: Path) -> None:
    program = with_section(run, tmp_path, [(f"b{i}", "") for i in range(NOTES)])
    said = command(*words, program, timeout=120)
    assert len(json.loads(said.out)["files"]) == 1
    assert said.memory < MOST


def test_function_names_that_unpack_to_gigabytes(run: Any, command: Any, tmp_path: Path) -> None:
    (tmp_path / "main.c").write_text("int main(void) { return 0; }\n")
    run("gcc", "-s", "-fpatchable-function-entry=5", "main.c", "-o", "main", cwd=tmp_path)
    packer = lzma.LZMACompressor(preset=0)
    with (tmp_path / "bomb.xz").open("wb") as file:
        file.write(packer.compress(b"\x7fELF"))
        for _ in range(128):  # 512 MB
            file.write(packer.compress(bytes(4 << 20)))
        file.write(packer.flush())
    run("objcopy", "--add-section", ".gnu_debugdata=bomb.xz", "main", cwd=tmp_path)
    said = command("functions", tmp_path / "main")
    assert said.code == 0, said
    assert said.memory < MOST


@pytest.mark.parametrize("what", ["arguments", "provider"])
@pytest.mark.parametrize("words", [("list",), ("verify",), ("trace", "--count", "--")])
def test_notes_whose_text_is_megabytes(
    words: tuple[str, ...], what: str, run: Any, command: Any, tmp_path: Path
) -> None:
    text = "-4@%edi" if what == "provider" else "4" * 3_000_000
    name = "a" if what == "arguments" else "a" * 3_000_000
    (tmp_path / "text.s").write_text(
        NOTE.replace("COUNT", "1")
        .replace(",36,3", f",{24 + len(name) + len(text) + 4},3")
        .replace('"a"\n', f'"{name}"\n')
        .replace("-4@%edi", text)
    )
    run("gcc", "-no-pie", "text.s", "-o", "text", cwd=tmp_path)
    said = command(*words, tmp_path / "text")
    assert "which is the most that is read" in said.err + said.out, said
    assert said.memory < 100 << 20


@pytest.mark.parametrize("name", ["list", "verify", "functions", "calls"])
def test_a_thousand_folders_within_each_other(name: str, command: Any, tmp_path: Path) -> None:
    here = os.open(tmp_path, os.O_PATH)
    for _ in range(1500):
        os.mkdir("e", dir_fd=here)
        below = os.open("e", os.O_PATH, dir_fd=here)
        os.close(here)
        here = below
    os.close(here)
    said = command(name, tmp_path / "e")
    assert "folders is left out" in said.err, said
    run = ["rm", "-r", str(tmp_path / "e")]
    subprocess.run(run, check=True)


@pytest.mark.parametrize("kind", ["sparse", "device"])
def test_a_provider_file_without_an_end(kind: str, command: Any, tmp_path: Path) -> None:
    with (tmp_path / "sparse").open("wb") as file:
        file.truncate(4 << 40)
    (tmp_path / "device").symlink_to("/dev/zero")
    said = command("header", tmp_path / kind, "-o", tmp_path / "x.h")
    assert said.code == 1
    assert said.err.count("\n") == 1
    assert said.memory < MOST


def name_that_is_written_long(doublings: int) -> str:
    """Return the name of a function whose parameters are A, Q<A, A>, Q<Q<A, A>, Q<A, A>> and so on."""
    digits = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"
    earlier = (f"S{digits[i // 36]}{digits[i % 36]}_" if i >= 36 else f"S{digits[i]}_" for i in range(1, doublings))
    return "_Z1f1A1QIS_S_E" + "".join(f"S0_I{one}{one}E" for one in earlier)


@pytest.mark.parametrize("words", [("list",), ("functions", "-C"), ("calls",), ("trace", "-F", "shop::*", "--")])
def test_function_names_that_are_written_in_gigabytes(
    words: tuple[str, ...], run: Any, command: Any, tmp_path: Path
) -> None:
    name = name_that_is_written_long(40)
    (tmp_path / "main.s").write_text(f"""
  .text
  .globl {name}, main
  .type {name}, @function
  .type main, @function
{name}:
main: call {name}2@plt
  nop
  xor %eax, %eax
  ret
  .size main, .-main
  .size {name}, .-{name}
  .section .note.stapsdt,"",@note
  .4byte 8,29,3
  .asciz "stapsdt"
  .8byte main+5,0,0
  .asciz "a"
  .asciz "b"
  .asciz ""
  .balign 4
  .section .note.GNU-stack,"",@progbits
""")
    (tmp_path / "other.s").write_text(f"  .globl {name}2\n  .type {name}2, @function\n{name}2: ret\n")
    run("gcc", "-shared", "other.s", "-o", "libother.so", cwd=tmp_path)
    run("gcc", "main.s", "-o", "main", "-L.", "-lother", "-Wl,-rpath,$ORIGIN", cwd=tmp_path)
    said = command(*words, tmp_path / "main", timeout=60)
    assert said.code == (1 if words[0] == "trace" else 0), said
    assert said.memory < MOST


@pytest.mark.parametrize(
    "form", [pytest.param("gnu", marks=pytest.mark.slow), "gabi", pytest.param("lie", marks=pytest.mark.slow)]
)
def test_debug_sections_that_unpack_to_gigabytes(form: str, run: Any, built: Any, command: Any, tmp_path: Path) -> None:
    program = built("victim", "-g")
    packer = zlib.compressobj()
    packed = b"".join([*(packer.compress(bytes(4 << 20)) for _ in range(128)), packer.flush()])
    size = 512 << 20 if form != "lie" else 1000
    if form == "gnu":
        name, content = ".zdebug_info", b"ZLIB" + struct.pack(">Q", size) + packed
    else:
        name, content = ".debug_info", struct.pack("<IIQQ", 1, 0, size, 1) + packed
    (tmp_path / "bomb").write_bytes(content)
    run("objcopy", "--remove-section", ".debug_info", "--add-section", f"{name}=bomb", program, cwd=tmp_path)
    if form != "gnu":
        run("objcopy", "--set-section-flags", f"{name}=readonly,debug", program, cwd=tmp_path)
        mark_compressed(program, name)
    said = command("list", "--source", program)
    assert said.code == 0, said
    assert said.memory < MOST


def mark_compressed(program: Path, name: str) -> None:
    """Set SHF_COMPRESSED of a section, which no tool sets without compressing."""
    raw = bytearray(program.read_bytes())
    start, size, count, names = struct.unpack_from("<Q", raw, 40)[0], *struct.unpack_from("<HHH", raw, 58)
    strings = struct.unpack_from("<Q", raw, start + names * size + 24)[0]
    for at in range(start, start + count * size, size):
        place = strings + struct.unpack_from("<I", raw, at)[0]
        if raw[place : raw.index(b"\0", place)] == name.encode():
            flags = struct.unpack_from("<Q", raw, at + 8)[0] | 0x800
            struct.pack_into("<Q", raw, at + 8, flags)
    program.write_bytes(raw)


def test_an_object_whose_code_is_aligned_to_gigabytes(run: Any, command: Any, tmp_path: Path) -> None:
    (tmp_path / "app.d").write_text("provider app { probe go(int x); };\n")
    module = [sys.executable, "-m", "usdtbuild.dtrace"]
    run(*module, "-h", "-s", "app.d", "-o", "app.h", cwd=tmp_path)
    (tmp_path / "app.c").write_text('#include "app.h"\nvoid f(int x) { APP_GO(x); }\n')
    run("gcc", "-c", "app.c", "-o", "app.o", cwd=tmp_path)
    raw = bytearray((tmp_path / "app.o").read_bytes())
    start, size, count = struct.unpack_from("<Q", raw, 40)[0], *struct.unpack_from("<HH", raw, 58)
    for at in range(start + size, start + count * size, size):
        struct.pack_into("<Q", raw, at + 48, 1 << 31)
    (tmp_path / "app.o").write_bytes(raw)
    words = ["prlimit", f"--as={600 << 20}", *module, "-G", "-s", "app.d", "-o", "made.o", "app.o"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert "Traceback" not in done.stderr
    assert "MemoryError" not in done.stderr
    made = tmp_path / "made.o"
    assert not made.exists() or made.stat().st_size < 1 << 20


@pytest.mark.parametrize("what", ["device", "sparse"])
def test_a_mapped_file_without_an_end(what: str, run: Any, attacker: Any, command: Any, folder: Path) -> None:
    (folder / "map.c").write_text(
        "#include <fcntl.h>\n#include <stdio.h>\n#include <sys/mman.h>\n#include <unistd.h>\n"
        "int main(int c, char **v) { int f = open(v[1], O_RDWR | O_CREAT, 0600); (void)c;\n"
        '  if (c > 2 && (ftruncate(f, 4L << 40) || pwrite(f, "\\177ELF\\2\\1\\1", 7, 0) != 7)) return 1;\n'
        "  if (mmap(0, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, f, 0) == MAP_FAILED) return 2;\n"
        '  printf("%d\\n", (int)getpid()); fflush(stdout); pause(); }\n'
    )
    run("gcc", "map.c", "-o", "map", cwd=folder)
    more = ["/dev/zero"] if what == "device" else [str(folder / "sparse"), "sparse"]
    pid = attacker(folder / "map", *more).stdout.readline().strip()
    if not pid:
        pytest.skip("this file system has no sparse files of 4 TB")
    for words in (("functions", pid), ("list", pid), ("calls", pid)):
        said = command(*words, timeout=60)
        assert said.memory < MOST, words
