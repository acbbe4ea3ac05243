"""Machines by name, with the disassembler of each: capstone's, and LLVM's for LoongArch."""

from __future__ import annotations

import functools
import shutil
import subprocess
from collections.abc import Callable
from typing import NamedTuple

import capstone as cs
import pytest

from usdtbuild import machines
from usdtbuild.machines.calls import ProbeCalls


class Kind(NamedTuple):
    """How an object's header names a machine, and capstone's architecture and mode for it (None: not known to it)."""

    number: int
    is64: bool
    little: bool
    flags: int = 0
    capstone: tuple[int, int] | None = None


LITTLE, BIG = cs.CS_MODE_LITTLE_ENDIAN, cs.CS_MODE_BIG_ENDIAN
KINDS = {
    "x86-64": Kind(62, True, True, 0, (cs.CS_ARCH_X86, cs.CS_MODE_64)),
    "x32": Kind(62, False, True, 0, (cs.CS_ARCH_X86, cs.CS_MODE_64)),
    "i386": Kind(3, False, True, 0, (cs.CS_ARCH_X86, cs.CS_MODE_32)),
    "aarch64": Kind(183, True, True, 0, (cs.CS_ARCH_ARM64, LITTLE)),
    "aarch64_be": Kind(183, True, False, 0, (cs.CS_ARCH_ARM64, LITTLE)),
    "aarch64 ilp32": Kind(183, False, True, 0, (cs.CS_ARCH_ARM64, LITTLE)),
    "arm": Kind(40, False, True, 0x05000000, (cs.CS_ARCH_ARM, cs.CS_MODE_ARM | LITTLE)),
    "thumb": Kind(40, False, True, 0x05000000, (cs.CS_ARCH_ARM, cs.CS_MODE_THUMB | LITTLE)),
    "armeb": Kind(40, False, False, 0x05000000, (cs.CS_ARCH_ARM, cs.CS_MODE_ARM | BIG)),
    "ppc32": Kind(20, False, False, 0, (cs.CS_ARCH_PPC, cs.CS_MODE_32 | BIG)),
    "ppc64": Kind(21, True, False, 1, (cs.CS_ARCH_PPC, cs.CS_MODE_64 | BIG)),
    "ppc64le": Kind(21, True, True, 2, (cs.CS_ARCH_PPC, cs.CS_MODE_64 | LITTLE)),
    "s390x": Kind(22, True, False, 0, (cs.CS_ARCH_SYSZ, BIG)),
    "riscv64": Kind(243, True, True, 5, (cs.CS_ARCH_RISCV, cs.CS_MODE_RISCV64 | cs.CS_MODE_RISCVC)),
    "riscv32": Kind(243, False, True, 3, (cs.CS_ARCH_RISCV, cs.CS_MODE_RISCV32 | cs.CS_MODE_RISCVC)),
    "sparc64": Kind(43, True, False, 0, (cs.CS_ARCH_SPARC, cs.CS_MODE_V9 | BIG)),
    "sparc": Kind(2, False, False, 0, (cs.CS_ARCH_SPARC, BIG)),
    "mips": Kind(8, False, False, 0x70001005, (cs.CS_ARCH_MIPS, cs.CS_MODE_MIPS32 | BIG)),
    "mipsel": Kind(8, False, True, 0x70001005, (cs.CS_ARCH_MIPS, cs.CS_MODE_MIPS32 | LITTLE)),
    "mips r6": Kind(8, False, True, 0x90001400, (cs.CS_ARCH_MIPS, cs.CS_MODE_MIPS32R6 | LITTLE)),
    "mips64": Kind(8, True, False, 0x80000007, (cs.CS_ARCH_MIPS, cs.CS_MODE_MIPS64 | BIG)),
    "mips64el": Kind(8, True, True, 0x80000007, (cs.CS_ARCH_MIPS, cs.CS_MODE_MIPS64 | LITTLE)),
    "mips n32": Kind(8, False, True, 0x80000027, (cs.CS_ARCH_MIPS, cs.CS_MODE_MIPS64 | LITTLE)),
    "loongarch64": Kind(258, True, True, 0x43),
}


@pytest.fixture(scope="session")
def kinds() -> dict[str, Kind]:
    """Return all kinds of machines by name."""
    return KINDS


@pytest.fixture(scope="session")
def machine() -> Callable[[str], ProbeCalls]:
    """Return a machine by name, as an object's header would choose it: `machine("s390x")`."""

    def choose(name: str) -> ProbeCalls:
        kind = KINDS[name]
        return machines.for_object(kind.number, is64=kind.is64, little=kind.little, flags=kind.flags, path="t.o")

    return choose


@pytest.fixture(scope="session")
def disassemble() -> Callable[[str, bytes], str]:
    """Return instructions as one text, by capstone or LLVM: `disassemble("aarch64", code) == "nop; ret"`."""

    def text(name: str, code: bytes) -> str:
        chosen = KINDS[name].capstone
        if chosen is None:
            return _by_llvm(code)
        decoder = cs.Cs(*chosen)
        if name == "x86-64" or name in {"x32", "i386"}:
            decoder.syntax = cs.CS_OPT_SYNTAX_ATT
        found = list(decoder.disasm(code, 0))
        assert sum(item.size for item in found) == len(code), f"{name}: {code.hex()} is no code from {found} on"
        return "; ".join(f"{item.mnemonic} {item.op_str}".strip() for item in found)

    return text


@functools.cache
def _knows_loongarch(path: str) -> bool:
    words = [path, "--disassemble", "--triple=loongarch64"]
    done = subprocess.run(words, input=b"0x00 0x00 0x40 0x03", capture_output=True, check=False)
    return b"nop" in done.stdout


def _by_llvm(code: bytes) -> str:
    names = ("llvm-mc", *(f"llvm-mc-{version}" for version in range(17, 30)))
    tool = next((path for path in filter(None, map(shutil.which, names)) if _knows_loongarch(path)), None)
    if tool is None:
        pytest.skip("no LLVM that knows LoongArch is installed (make test-all installs it)")
    lines = subprocess.run(
        [tool, "--disassemble", "--triple=loongarch64"], input=" ".join(f"0x{byte:02x}" for byte in code),
        capture_output=True, text=True, check=True,
    ).stdout.splitlines()  # fmt: skip
    return "; ".join(" ".join(line.split()) for line in lines if line.strip() and not line.strip().startswith("."))
