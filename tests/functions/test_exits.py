"""Where functions return: the `ret`s of those that return by nothing else, and of others why it can't be told."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from usdtbuild.elf.image import Image
from usdtbuild.elf.space import FUNCTIONS
from usdtbuild.functions.exits import Exits
from usdtbuild.functions.read import FunctionReader

pytestmark = pytest.mark.skipif(os.uname().machine != "x86_64", reason="the code is x86-64's")
# name -> code, and how many returns there are (with how many bytes behind each that nobody runs) or why it isn't known
CASES: dict[str, tuple[str, list[int] | str]] = {
    "plain": ("mov %edi, %eax\n ret\n .skip 7, 0x90", [7]),
    "two": ("test %edi, %edi\n je 1f\n ret\n 1: neg %eax\n ret", [0, 0]),
    "never": ("1: pause\n jmp 1b", []),
    "stranger": ("test %edi, %edi\n je whole.cold\n ret", "jumps to another function"),
    "switch": ("jmp *(%rdi)", "can't be told"),
    "cases": ("lea 3f(%rip), %rdx\n movslq (%rdx,%rdi,4), %rax\n add %rdx, %rax\n jmp *%rax\n 1: ret\n 2: ret\n"
              ".section .rodata\n 3: .long 1b - 3b, 2b - 3b, 0\n .text", "can't be told"),
    "hidden": ("jmp *%rax\n ret", "can't be told"),
    "tail": ("jmp plain", "jumps to another function"),
    "pushed": ("push %rax\n ret", "it returns by `ret"),
    "popping": ("ret $8", "it returns by `ret 8`"),
    "repeated": ("rep ret", "it returns by"),
    "retpoline": ("call 1f\n 2: pause\n jmp 2b\n 1: mov %rax, (%rsp)\n ret", "calls into its own middle"),
    "between": ("jmp 1f + 1\n 1: mov $0xc3, %eax\n ret", "between its instructions"),
    "open": ("nop\n nop", "goes on behind its end"),
    "unknown": (".byte 0x06\n ret", "no known instruction"),
    "ends": ("call abort", []),
}  # fmt: skip
PARTED = """
.type whole, @function
whole: test %edi, %edi
 je whole.cold
1: ret
.size whole, . - whole
.balign 16
.type whole.cold, @function
whole.cold: inc %eax
 jmp 1b
.size whole.cold, . - whole.cold
"""


@pytest.fixture(scope="module")
def found(run: Any, need: Any, tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[int] | str]:
    """What is found out of each."""
    folder = tmp_path_factory.mktemp("exits")
    text = [".text\n abort: ud2\n.balign 16\n", PARTED]
    for name, (code, _) in CASES.items():
        text.append(f".balign 16\n.globl {name}\n.type {name}, @function\n{name}: {code.partition(' .skip')[0]}\n")
        text.append(f".size {name}, . - {name}\n.skip 3, 0xf4\n" if ".skip" not in code else _padded(name, code))
    (folder / "exits.s").write_text("".join(text) + '.section .note.GNU-stack,"",@progbits\n')
    run(need("gcc"), "-nostdlib", "-shared", "-Wl,-Bsymbolic", "exits.s", "-o", "exits.so", cwd=folder)
    path = str(folder / "exits.so")
    reader = FunctionReader(Image(Path(path).read_bytes(), path, FUNCTIONS))
    exits = Exits(reader.space, reader.starts, reader.machine, reader.report.functions)
    named = {function.name: function for function in reader.report.functions}
    answers = {name: exits.of(function) for name, function in named.items()}
    partly = {f"{name} partly": exits.of(function, partly=True) for name, function in named.items()}
    places = {one.address: one.name for one in reader.report.functions}
    leads = {name: [places.get(at) for at in one.leads] for name, one in partly.items() if not isinstance(one, str)}
    led = {"tail partly": ["plain"], "stranger partly": ["whole.cold"]}
    assert {name: to for name, to in leads.items() if to and to[0]} == led
    answers.update(partly)
    return {name: one if isinstance(one, str) else [each.unused for each in one.exits] for name, one in answers.items()}


def _padded(name: str, code: str) -> str:
    return f".size {name}, . - {name}\n .skip{code.partition(' .skip')[2]}\n.byte 0xf4\n"


# What is told of those that may end by jumps as well, where that differs.
PARTLY: dict[str, list[int] | str] = {
    "stranger": [0], "tail": [], "switch": [], "cases": [0, 0], "hidden": "leads to some of its returns alone",
}  # fmt: skip


@pytest.mark.parametrize("partly", [False, True], ids=["", "partly"])
@pytest.mark.parametrize("name", CASES)
def test_what_is_told(name: str, partly: bool, found: Any) -> None:
    wanted = PARTLY.get(name, CASES[name][1]) if partly else CASES[name][1]
    told = found[f"{name} partly" if partly else name]
    assert wanted in told if isinstance(wanted, str) else wanted == told


def test_cold_parts_belong_to_their_functions(found: Any) -> None:
    assert found["whole"] == [11]


def test_other_machines_have_no_answer(run: Any, need: Any, tmp_path: Path) -> None:
    (tmp_path / "f.c").write_text("int f(int n) { return n + 1; }\n")
    run(need("aarch64-linux-gnu-gcc"), "-O2", "-nostdlib", "-shared", "f.c", "-o", "f.so", cwd=tmp_path)
    reader = FunctionReader(Image((tmp_path / "f.so").read_bytes(), "f.so", FUNCTIONS))
    exits = Exits(reader.space, reader.starts, reader.machine, reader.report.functions)
    (function,) = (one for one in reader.report.functions if one.name == "f")
    assert "on this machine" in exits.of(function)
