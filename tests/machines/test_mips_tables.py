"""MIPS files too large for one table of slots: every call is found, in the order in which the source has them."""

from __future__ import annotations

from bisect import bisect_right
from pathlib import Path
from typing import Any

import pytest

from .test_calls import listed
from .test_slot_calls import functions

# ABI -> emulation, functions of each object, what loads a word, and how gp is made of t9 (ABI supplement 4; n64 ABI 3)
_FAR = """daddiu $29, $29, -16
 lui $28, %hi(%neg(%gp_rel({name})))
 daddu $28, $28, $25
 daddiu $28, $28, %lo(%neg(%gp_rel({name})))
"""
ABIS = {"32": ("elf32btsmip", 4000, "lw", ".cpload $25\n"), "64": ("elf64btsmip", 2500, "ld", _FAR)}
OBJECTS = 5


@pytest.fixture(scope="module")
def objects(tmp_path_factory: pytest.TempPathFactory, run: Any, need: Any) -> Any:
    """Assemble objects that call thousands of functions, and the library; return the folder."""
    folders: dict[str, Path] = {}

    def make(abi: str) -> Path:
        assembler = need("mips-linux-gnu-as")
        if abi not in folders:
            folder = folders[abi] = tmp_path_factory.mktemp(f"mips{abi}")
            _, count, load, makes = ABIS[abi]
            names = [f"f{number}" for number in range(OBJECTS * count)]
            (folder / "lib.s").write_text(
                "".join(f".globl {n}\n.type {n}, @function\n{n}: jr $31\n nop\n" for n in names)
            )
            for at in range(OBJECTS):
                calls = names[at * count : (at + 1) * count]
                body = "".join(f" {load} $25, %call16({name})($28)\n jalr $25\n nop\n" for name in calls)
                name = f"run{at}"
                head = f".globl {name}\n.type {name}, @function\n.set noreorder\n.ent {name}\n{name}:\n"
                end = f" jr $31\n nop\n.end {name}\n.size {name}, . - {name}\n"
                (folder / f"{name}.s").write_text(head + makes.format(name=name) + body + end)
            for source in folder.glob("*.s"):
                options = ("-EB", f"-mabi={abi}", "-KPIC", "-mips64r2" if abi == "64" else "-mips32r2")
                run(assembler, *options, source, "-o", source.with_suffix(".o"), cwd=folder)
        return folders[abi]

    return make


@pytest.mark.parametrize("linker", ["mips-linux-gnu-ld", "ld.lld"])
@pytest.mark.parametrize("abi", ABIS)
def test_calls_through_every_table(abi: str, linker: str, objects: Any, run: Any, need: Any, workshop: Any) -> None:
    folder = objects(abi)
    emulation, count, _, _ = ABIS[abi]
    command = [need(linker), "-m", emulation]
    library, program = f"lib-{linker}.so", folder / f"program-{linker}"
    run(*command, "-shared", "-soname", library, "lib.o", "-o", library, cwd=folder)
    parts = [f"run{at}.o" for at in range(OBJECTS)]
    run(*command, "-pie", "--dynamic-linker", "/none", "-e", "run0", *parts, library, "-o", program, cwd=folder)
    (file,) = listed(workshop("mips"), [program])
    starts, names = functions(program)
    found: dict[str, list[tuple[int, int]]] = {}
    for call in file["calls"]:
        for site in call["sites"]:
            at = int(site["address"], 16)
            found.setdefault(names[bisect_right(starts, at) - 1], []).append((at, int(call["name"][1:])))
    called = {name: [number for _, number in sorted(sites)] for name, sites in found.items() if name[:3] == "run"}
    truth = {f"run{at}": list(range(at * count, (at + 1) * count)) for at in range(OBJECTS)}
    if (abi, linker) == ("64", "ld.lld"):
        assert "2 functions use a table of slots that can't be found" in file["missing"]
        truth = {name: truth[name] for name in called}
        assert len(truth) == OBJECTS - 2
    else:
        assert file["missing"] is None
    assert called == truth


@pytest.mark.parametrize(("option", "name"), [("-mips16", "MIPS16"), ("-mmicromips", "microMIPS")])
def test_code_that_is_not_read_is_told_of(
    option: str, name: str, run: Any, need: Any, workshop: Any, tmp_path: Path
) -> None:
    mode = option.removeprefix("-m").replace("ips16", "mips16")
    (tmp_path / "code.s").write_text(
        f".set {mode}\n.globl run\n.type run, @function\n.ent run\nrun: nop\n nop\n.end run\n"
    )
    run(need("mips-linux-gnu-as"), "-EB", "-mips32r2", "code.s", "-o", "code.o", cwd=tmp_path)
    run(need("mips-linux-gnu-ld"), "-m", "elf32btsmip", "-shared", "code.o", "-o", "code.so", cwd=tmp_path)
    shop = workshop("mips")
    (file,) = listed(shop, [tmp_path / "code.so"])
    assert f"some of its code is {name}" in file["missing"]


@pytest.mark.parametrize("count", [(), ("--count",)])
def test_a_trace_tells_of_code_that_is_not_read(
    count: tuple[str, ...], usdtbuild: Any, run: Any, need: Any, tmp_path: Path
) -> None:
    emulator = need("qemu-mips")
    if not Path("/usr/mips-linux-gnu").is_dir():
        pytest.skip("no C library for mips is installed")
    (tmp_path / "main.c").write_text('#include <stdio.h>\nint main(void) { return puts("x") < 0; }\n')
    run(need("mips-linux-gnu-gcc"), "-O1", "main.c", "-o", "main", cwd=tmp_path)
    data = bytearray((tmp_path / "main").read_bytes())
    data[0x24] |= 4  # e_flags: EF_MIPS_ARCH_ASE_M16
    (tmp_path / "main").write_bytes(data)
    words = ("--emulator", emulator, "--sysroot", "/usr/mips-linux-gnu", "--module", "main", "-v", *count)
    done = usdtbuild("trace", *words, "-L", "puts", "--", tmp_path / "main")
    assert "some of its code is MIPS16, which is not read" in done.stderr
    assert "puts" in done.stdout
