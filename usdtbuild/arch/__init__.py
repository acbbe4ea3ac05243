"""Machines: what a probe call looks like on each, what replaces it, and where its arguments are.

One module a machine, each offering one `Machine`; `for_object` picks it by what the object says of itself, never by
the host. A machine knows bytes, relocation types and registers; it knows neither files nor ELF containers.
"""

from __future__ import annotations

import importlib

from ..errors import UsdtError
from .machine import Machine

# (e_machine, 64-bit ELF class) -> (module, name, byte orders). The numbers are ELF's (gABI, e_machine).
LITTLE, BIG = (True,), (False,)
_MODULES = {
    (2, False): ("sparc", "sparc", BIG),
    (3, False): ("i386", "i386", LITTLE),
    (8, False): ("mips", "mips o32 and n32", LITTLE + BIG),
    (8, True): ("mips", "mips n64", LITTLE + BIG),
    (18, False): ("sparc", "sparc", BIG),  # V8+: 32-bit code for 64-bit processors
    (20, False): ("ppc", "ppc32", BIG),
    (21, True): ("ppc", "ppc64", LITTLE + BIG),
    (22, True): ("s390x", "s390x", BIG),
    (40, False): ("arm", "arm", LITTLE + BIG),
    (43, True): ("sparc", "sparc64", BIG),
    (62, False): ("x86_64", "x32", LITTLE),
    (62, True): ("x86_64", "x86-64", LITTLE),
    (183, False): ("aarch64", "aarch64 ilp32", LITTLE + BIG),
    (183, True): ("aarch64", "aarch64", LITTLE + BIG),
    (243, False): ("riscv", "riscv32", LITTLE),
    (243, True): ("riscv", "riscv64", LITTLE),
    (258, True): ("loongarch", "loongarch64", LITTLE),
}


class UnsupportedMachineError(UsdtError):
    """The object is for a machine, or a byte order of one, that isn't known here."""


def for_object(machine: int, *, is64: bool, little: bool, flags: int, path: str) -> Machine:
    """Return the Machine for an object's ELF header fields. Raises UnsupportedMachineError, which lists all."""
    found = _MODULES.get((machine, is64))
    if found is None or little not in found[2]:
        order = f", {'little' if little else 'big'}-endian" if found else ""
        name = found[1] if found else f"ELF machine {machine}"
        raise UnsupportedMachineError(
            f"{path}: is for {name} ({64 if is64 else 32}-bit{order}), which is not supported; "
            f"supported are {', '.join(sorted({known for _, known, _ in _MODULES.values()}))}; "
            "compile with -DUSDT_DISABLED to have no probes there"
        )
    module = importlib.import_module(f".{found[0]}", __package__)
    chosen: Machine = module.machine(is64=is64, little=little, flags=flags)
    return chosen
