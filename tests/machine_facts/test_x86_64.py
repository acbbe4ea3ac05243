"""x86-64's byte tables, decoded and followed instruction by instruction.

A replacement must be as long as the branch, must do what a probe that nobody watches does (nothing, or return 0), and
its site must be an instruction that a tracer can put a breakpoint on.
"""

from __future__ import annotations

from typing import NamedTuple

import capstone
import pytest

from usdtbuild.machines import for_object
from usdtbuild.machines.calls import ProbeCalls, Replacement
from usdtbuild.options import NOPS

R_PC32, R_PLT32, R_GOTPCREL, R_GOTPCRELX, R_REX_GOTPCRELX = 2, 4, 9, 41, 42

# What compilers emit, and the relocation types that it comes with. The four bytes of the distance are zero.
BRANCHES = {
    "call": ("e8", (R_PLT32, R_PC32)),
    "tail": ("e9", (R_PLT32, R_PC32)),
    "got call": ("ff15", (R_GOTPCRELX, R_GOTPCREL)),
    "got tail": ("ff25", (R_GOTPCRELX, R_GOTPCREL)),
    **{f"conditional {code:#x}": (f"0f{code:02x}", (R_PLT32, R_PC32)) for code in range(0x80, 0x90)},
}
ROWS = [(branch, enabled, nop) for branch in BRANCHES for enabled in (False, True) for nop in NOPS]


class Instruction(NamedTuple):
    address: int
    size: int
    mnemonic: str
    operands: str


@pytest.fixture(scope="module")
def machine() -> ProbeCalls:
    return for_object(62, is64=True, little=True, flags=0, path="x.o")


def disassemble(code: bytes) -> list[Instruction]:
    engine = capstone.Cs(capstone.CS_ARCH_X86, capstone.CS_MODE_64)
    found = [Instruction(*fields) for fields in engine.disasm_lite(code, 0)]
    assert sum(instruction.size for instruction in found) == len(code), "the bytes are no whole instructions"
    return found


def replaced(machine: ProbeCalls, branch: str, enabled: bool, nop: str) -> tuple[Replacement, int]:
    """Return what takes a branch's place between two NOPs, and the branch's length."""
    opcode = bytes.fromhex(BRANCHES[branch][0])
    code = b"\x90" + opcode + bytes(4) + b"\x90"
    found = machine.replace(memoryview(code), 1 + len(opcode), BRANCHES[branch][1][0], -4, enabled, nop)
    assert found is not None
    return found, len(opcode) + 4


def follow(instructions: list[Instruction], start: int) -> tuple[list[int], str, bool]:
    """Follow the code from `start`; return the addresses passed, how it is left, and whether eax was set to 0."""
    by_address = {instruction.address: instruction for instruction in instructions}
    passed, zeroed, address = [], False, start
    while address in by_address:
        instruction = by_address[address]
        passed.append(address)
        address += instruction.size
        if instruction.mnemonic == "ret":
            return passed, "ret", zeroed
        if instruction.mnemonic == "xor":
            assert instruction.operands in ("eax, eax", "rax, rax")
            zeroed = True
        else:
            assert instruction.mnemonic == "nop" or instruction[2:] == ("xchg", "ax, ax"), instruction
    return passed, "through", zeroed


@pytest.mark.parametrize(("branch", "enabled", "nop"), ROWS)
def test_a_replacement_does_nothing_where_the_branch_was(
    machine: ProbeCalls, branch: str, enabled: bool, nop: str
) -> None:
    found, length = replaced(machine, branch, enabled, nop)
    assert (found.start, len(found.code)) == (1, length)
    instructions = disassemble(found.code)
    site = found.site - found.start
    start = 0
    if branch.startswith("conditional"):
        start = instructions[0].size
        check_condition(instructions[0], int(branch.split()[1], 16), length)
    passed, left, zeroed = follow(instructions, start)
    assert site in passed
    assert left == ("through" if branch.endswith("call") else "ret")
    assert found.tail == (left == "ret")
    assert zeroed == enabled
    at_site = next(instruction for instruction in instructions if instruction.address == site)
    assert at_site.mnemonic in ("nop", "ret")


def check_condition(jump: Instruction, opcode: int, length: int) -> None:
    """Check that the jump leaves the replacement exactly where the branch did not branch."""
    engine = capstone.Cs(capstone.CS_ARCH_X86, capstone.CS_MODE_64)
    opposite = next(engine.disasm_lite(bytes((0x0F, opcode ^ 1)) + bytes(4), 0))[2]
    assert (jump.mnemonic, int(jump.operands, 16)) == (opposite, length)


@pytest.mark.parametrize(("branch", "enabled", "nop"), ROWS)
def test_is_enabled_sites_come_after_the_zero(machine: ProbeCalls, branch: str, enabled: bool, nop: str) -> None:
    """A tracer of DTrace's kind sets eax at the site; setting it to 0 afterwards would undo that."""
    if not enabled:
        return
    found, _ = replaced(machine, branch, enabled, nop)
    mnemonics = [i.mnemonic for i in disassemble(found.code) if i.address >= found.site - found.start]
    assert "xor" not in mnemonics


@pytest.mark.parametrize("branch", ["call", "got call"])
def test_nop_styles_at_a_call(machine: ProbeCalls, branch: str) -> None:
    """safe: one byte first, which every kernel emulates. nop5: what Linux 6.18 turns into a call."""
    assert replaced(machine, branch, False, "safe")[0].code[:1] == b"\x90"
    assert replaced(machine, branch, False, "nop5")[0].code[:5] == bytes.fromhex("0f1f440000")
    assert set(replaced(machine, branch, False, "classic")[0].code) == {0x90}


def test_no_site_is_a_ten_byte_nop(machine: ProbeCalls) -> None:
    """perf_event_open refuses it, and uprobe_multi silently never fires."""
    for branch, enabled, nop in ROWS:
        found, _ = replaced(machine, branch, enabled, nop)
        sizes = {i.address + found.start: i.size for i in disassemble(found.code)}
        assert sizes[found.site] < 10


@pytest.mark.parametrize("branch", BRANCHES)
def test_every_relocation_type_of_a_branch_is_known(machine: ProbeCalls, branch: str) -> None:
    opcode = bytes.fromhex(BRANCHES[branch][0])
    code = memoryview(opcode + bytes(4))
    for type_ in BRANCHES[branch][1]:
        assert machine.replace(code, len(opcode), type_, -4, False, "safe") is not None


# Bytes in front of a relocated word, its type and addend, which are no branch to a stub: none may be touched.
NO_BRANCHES = {
    "mov from the GOT": ("488b05", R_REX_GOTPCRELX, -4),
    "lea": ("488d3d", R_PC32, -4),
    "push from the GOT": ("ff35", R_GOTPCREL, -4),
    "increment in the GOT's slot": ("ff05", R_GOTPCRELX, -4),
    "cmp with the GOT": ("483b05", R_GOTPCREL, -4),
    "call into the middle": ("e8", R_PLT32, -3),
    "call, with an addend beyond": ("e8", R_PC32, 12),
    "call through the GOT, by another type": ("ff15", R_PC32, -4),
    "call of what the GOT holds": ("e8", R_GOTPCREL, -4),
    "movabs": ("48b8", 1, 0),
    "32-bit address": ("bf", 10, 0),
    "setcc, not jcc": ("0f94", R_PLT32, -4),
    "jcc's second byte alone": ("84", R_PLT32, -4),
}


@pytest.mark.parametrize("name", NO_BRANCHES)
def test_other_references_are_left_alone(machine: ProbeCalls, name: str) -> None:
    opcode, type_, addend = NO_BRANCHES[name]
    start = bytes.fromhex(opcode)
    for enabled in (False, True):
        code = memoryview(b"\x90" + start + bytes(8))
        assert machine.replace(code, 1 + len(start), type_, addend, enabled, "safe") is None


@pytest.mark.parametrize("offset", [0, 1, 4, 5, 100])
def test_a_relocation_at_the_edge_of_the_section_is_no_branch(machine: ProbeCalls, offset: int) -> None:
    code = memoryview(bytes.fromhex("e8000000"))
    assert machine.replace(code, offset, R_PLT32, -4, False, "safe") is None


@pytest.mark.parametrize("nop", NOPS)
@pytest.mark.parametrize(("enabled", "semaphore"), [(False, False), (False, True), (True, False), (True, True)])
def test_stubs(machine: ProbeCalls, enabled: bool, semaphore: bool, nop: str) -> None:
    """A stub may be called through a pointer under CET; what it returns is 0 or the semaphore, read in place."""
    stub = machine.stub(enabled, semaphore, nop)
    instructions = disassemble(stub.code)
    assert instructions[0].mnemonic == "endbr64"
    assert instructions[-1].mnemonic == "ret"
    assert stub.site in [i.address for i in instructions if i.mnemonic in ("nop", "ret")]
    body = [i for i in instructions[1:] if i.mnemonic not in ("nop", "ret")]
    if enabled and semaphore:
        assert [(i.mnemonic, i.operands) for i in body] == [("movzx", "eax, word ptr [rip]")]
        relocation = stub.relocations[0]
        assert (relocation.type, relocation.addend) == (R_PC32, -4)
        assert relocation.offset + 4 == body[0].address + body[0].size
    elif enabled:
        assert [(i.mnemonic, i.operands) for i in body] == [("xor", "eax, eax")]
    else:
        assert body == []
    assert bool(stub.relocations) == (enabled and semaphore)


OPERANDS = [
    ((), False, ()),
    (((4, True), (8, False), (1, False), (2, True)), False, ("-4@%edi", "8@%rsi", "1@%edx", "-2@%ecx")),
    (((8, True),) * 7, False, ("-8@%rdi", "-8@%rsi", "-8@%rdx", "-8@%rcx", "-8@%r8", "-8@%r9", "-8@0(%rsp)")),
    (((1, True),) * 8, True, ("-1@%edi", "-1@%esi", "-1@%edx", "-1@%ecx", "-1@%r8d", "-1@%r9d", "-1@8(%rsp)",
                              "-1@16(%rsp)")),
]  # fmt: skip


@pytest.mark.parametrize(("arguments", "tail", "expected"), OPERANDS)
def test_operands(
    machine: ProbeCalls, arguments: tuple[tuple[int, bool], ...], tail: bool, expected: tuple[str, ...]
) -> None:
    assert machine.operands(arguments, tail) == expected


# The mnemonics beside the rows of the table, assembled: keystone is right about all but `nopl 0(%rax,%rax,1)`.
ASSEMBLY = {
    ("call", False, "safe"): "nop; nop dword ptr [rax]",
    ("call", False, "classic"): "nop; nop; nop; nop; nop",
    ("tail", False, "safe"): "nop; ret; nop dword ptr [rax]",
    ("tail", False, "classic"): "ret; nop; nop; nop; nop",
    ("got tail", False, "safe"): "nop; ret; nop dword ptr [rax]",
    ("got tail", False, "classic"): "ret; nop; nop; nop; nop; nop",
    ("call", True, "safe"): "xor eax, eax; nop dword ptr [rax]",
    ("tail", True, "safe"): "xor eax, eax; nop; ret; nop",
    ("got tail", True, "safe"): "xor eax, eax; nop; ret; xchg ax, ax",
    ("conditional 0x84", False, "safe"): "jne 6; nop; ret; xchg ax, ax",
    ("conditional 0x8f", True, "safe"): "jle 6; xor eax, eax; nop; ret",
}


@pytest.mark.parametrize("row", ASSEMBLY, ids=lambda row: "-".join(map(str, row)))
def test_rows_are_what_an_assembler_makes_of_their_mnemonics(machine: ProbeCalls, row: tuple[str, bool, str]) -> None:
    keystone = pytest.importorskip("keystone", reason="keystone has wheels for x86-64 only")
    engine = keystone.Ks(keystone.KS_ARCH_X86, keystone.KS_MODE_64)
    # nopl 0(%rax) has two encodings, and compilers' four-byte NOP is the one with a displacement of zero.
    expected = normal(bytes(engine.asm(ASSEMBLY[row])[0]))
    assert normal(replaced(machine, *row)[0].code) == expected


def normal(code: bytes) -> list[tuple[str, str]]:
    return [(i.mnemonic, i.operands) for i in disassemble(code)]
