"""The live runtime reads operands of notes as they are written on each machine, and says no to what isn't one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).resolve().parent
RUNTIME = HERE.parent.parent / "usdtbuild" / "runtime" / "live"
YES = {
    "x86_64": {
        "%edi": "register 3", "8(%rsp)": "stack", "(%rsp)": "stack", "-4(%rax)": "register 9 + -4",
        "(%rdi)": "register 3 + 0", "$5": "5", "$-7": "-7",
    },
    "aarch64": {
        "x0": "register 0", "w14": "register 14", "[sp]": "stack", "[sp, 8]": "stack", "[sp, #8]": "stack",
        "[x8]": "register 8 + 0", "[x8, -8]": "register 8 + -8", "5": "5", "-7": "-7",
    },
    "riscv64": {"a0": "register 0", "8(sp)": "stack", "-8(a1)": "register 1 + -8", "5": "5", "-7": "-7"},
    "s390x": {"%r2": "register 0", "160(%r15)": "stack", "-8(%r3)": "register 1 + -8", "5": "5", "-7": "-7"},
    "arm": {
        "r0": "register 0", "ip": "register 4", "lr": "register 5", "[sp]": "stack", "[sp, #8]": "stack",
        "[r3]": "register 3 + 0", "[r1, #-8]": "register 1 + -8", "#5": "5", "#-7": "-7",
    },
    "ppc64le": {"3": "register 0", "96(1)": "stack", "-8(4)": "register 1 + -8", "i5": "5", "i-7": "-7"},
}  # fmt: skip
CONSTANT = {"x86_64": "$", "aarch64": "", "riscv64": "", "s390x": "", "arm": "#", "ppc64le": "i"}
WIDE = {
    "1000000000": "1000000000",
    "4611686018427387904": "4611686018427387904",
    "-9223372036854775808": "-9223372036854775808",
    "18446744073709551615": "-1",
}
TOO_WIDE = ("18446744073709551616", "99999999999999999999", "184467440737095516150")
NO = {
    "x86_64": ["", "$", "$-", "-", "-(%rax)", "%rbx", "5x", "4294967296(%rax)"],
    "aarch64": [
        "",
        "-",
        "x",
        "x15",
        "x-1",
        "x18446744073709551615",
        "[x]",
        "[x-1]",
        "[x8, ]",
        "[x8,",
        "[x8, 8",
        "[sp, -]",
        "[sp8]",
        "[x8, 4294967296]",
    ],
    "riscv64": ["", "-", "a8", "s0", "8(s0)", "8(a0", "(sp)", "4294967296(sp)"],
    "s390x": ["", "-", "%r1", "8(%r0)", "8(%r2", "(%r15)", "4294967296(%r3)"],
    "arm": ["", "#", "#-", "5", "r4", "sp", "[r4]", "[r1", "[r1, ]", "[r1, #]", "[sp, #8", "r10", "[r1, #4294967296]"],
    "ppc64le": ["", "-", "i", "i-", "2", "-3", "11", "8(11)", "8()", "8(-4)", "8(4", "4294967296", "4294967296(4)"],
}
TOOLS = {
    "x86_64": ("x86_64-linux-gnu-gcc", "qemu-x86_64"),
    "aarch64": ("aarch64-linux-gnu-gcc", "qemu-aarch64"),
    "riscv64": ("riscv64-linux-gnu-gcc", "qemu-riscv64"),
    "s390x": ("s390x-linux-gnu-gcc", "qemu-s390x"),
    "arm": ("arm-linux-gnueabihf-gcc", "qemu-arm"),
    "ppc64le": ("powerpc64le-linux-gnu-gcc", "qemu-ppc64le"),
}


@pytest.mark.parametrize("machine", TOOLS)
def test_operands_are_read(machine: str, run: Any, runtime: Any, need: Any, tmp_path: Path) -> None:
    compiler, emulator = map(need, TOOLS[machine])
    objects = runtime(compiler, "-O2")
    program = tmp_path / "operands"
    run(compiler, "-static", "-I", RUNTIME, HERE / "operands.c", *objects, "-lpthread", "-o", program)
    sign = CONSTANT[machine]
    yes = YES[machine] | {f"{sign}{constant}": value for constant, value in WIDE.items()}
    no = [*NO[machine], *(f"{sign}{constant}" for constant in TOO_WIDE)]
    found = run(emulator, program, *yes, *no).stdout.splitlines()
    assert found == [f"{text}: {where}" for text, where in yes.items()] + [f"{text}: no" for text in no]
