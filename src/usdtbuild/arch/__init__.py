"""Machines: what a probe call looks like on each, what replaces it, and where its arguments are.

One module a machine, each offering one `Machine`; `for_object` picks it by what the object says of itself, never by
the host. A machine knows bytes, relocation types and registers; it knows neither files nor ELF containers.
"""

from __future__ import annotations

import importlib

from ..errors import UsdtError
from .machine import Machine

# (e_machine, 64-bit ELF class) -> (module, name). The numbers are ELF's (gABI, e_machine).
_MODULES = {
    (2, False): ("sparc", "sparc"),
    (3, False): ("i386", "i386"),
    (8, False): ("mips", "mips o32 and n32"),
    (8, True): ("mips", "mips n64"),
    (18, False): ("sparc", "sparc"),  # V8+: 32-bit code for 64-bit processors
    (20, False): ("ppc", "ppc32"),
    (21, True): ("ppc", "ppc64"),
    (22, True): ("s390x", "s390x"),
    (40, False): ("arm", "arm"),
    (43, True): ("sparc", "sparc64"),
    (62, False): ("x86_64", "x32"),
    (62, True): ("x86_64", "x86-64"),
    (183, False): ("aarch64", "aarch64 ilp32"),
    (183, True): ("aarch64", "aarch64"),
    (243, False): ("riscv", "riscv32"),
    (243, True): ("riscv", "riscv64"),
    (258, True): ("loongarch", "loongarch64"),
}


class UnsupportedMachineError(UsdtError):
    """The object is for a machine that has no module here."""


def for_object(machine: int, *, is64: bool, little: bool, flags: int, path: str) -> Machine:
    """Return the Machine for an object's ELF header fields. Raises UnsupportedMachineError, which lists all."""
    found = _MODULES.get((machine, is64))
    if found is None:
        raise UnsupportedMachineError(
            f"{path}: is for ELF machine {machine} ({64 if is64 else 32}-bit), which is not supported; "
            f"supported are {', '.join(sorted({name for _, name in _MODULES.values()}))}"
        )
    module = importlib.import_module(f".{found[0]}", __package__)
    chosen: Machine = module.machine(is64=is64, little=little, flags=flags)
    return chosen
