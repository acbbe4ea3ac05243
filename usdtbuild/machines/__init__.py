"""Machines: a folder each, with every fact about it that usdtbuild knows, and one row here.

A machine's package offers three things. `machine()` returns its `ProbeCalls`: what a probe call looks like, what
replaces it, and where its arguments are; `for_object` picks it by what an object says of itself, never by the host.
`facts()` is what everybody else asks, by machine number: NOPs, operands, relocations, branches, patchable entries.
`stubs()` says how calls into libraries go through slots; where those that load a slot themselves must be followed, its
module `steps` has what instructions do. A machine knows bytes, relocation types and registers; it knows neither files
nor ELF containers. Only the module that is asked for is loaded.
"""

from __future__ import annotations

from ..errors import UsdtError
from . import numbers

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from .calls import ProbeCalls
    from .facts import Entries, Facts
    from .stubs import FileCode, LibraryCalls

# (e_machine, 64-bit ELF class) -> (module, name of its calls, byte orders)
LITTLE, BIG = (True,), (False,)
_MODULES = {
    (numbers.EM_SPARC, False): ("sparc", "sparc", BIG),
    (numbers.EM_386, False): ("i386", "i386", LITTLE),
    (numbers.EM_MIPS, False): ("mips", "mips o32 and n32", LITTLE + BIG),
    (numbers.EM_MIPS, True): ("mips", "mips n64", LITTLE + BIG),
    (numbers.EM_SPARC32PLUS, False): ("sparc", "sparc", BIG),  # V8+: 32-bit code for 64-bit processors
    (numbers.EM_PPC, False): ("ppc", "ppc32", BIG),
    (numbers.EM_PPC64, True): ("ppc", "ppc64", LITTLE + BIG),
    (numbers.EM_S390, True): ("s390x", "s390x", BIG),
    (numbers.EM_ARM, False): ("arm", "arm", LITTLE + BIG),
    (numbers.EM_SPARCV9, True): ("sparc", "sparc64", BIG),
    (numbers.EM_X86_64, False): ("x86_64", "x32", LITTLE),
    (numbers.EM_X86_64, True): ("x86_64", "x86-64", LITTLE),
    (numbers.EM_AARCH64, False): ("aarch64", "aarch64 ilp32", LITTLE + BIG),
    (numbers.EM_AARCH64, True): ("aarch64", "aarch64", LITTLE + BIG),
    (numbers.EM_RISCV, False): ("riscv", "riscv32", LITTLE),
    (numbers.EM_RISCV, True): ("riscv", "riscv64", LITTLE),
    (numbers.EM_LOONGARCH, True): ("loongarch", "loongarch64", LITTLE),
}
_BY_NUMBER = {number: module for (number, _), (module, _, _) in _MODULES.items()}
_MOST_CALLS = 16
_calls: dict[tuple[int, bool, bool, int], ProbeCalls] = {}  # the latest, by what objects say of themselves
_facts: dict[int, Facts] = {}  # of the machines that were asked for


class UnsupportedMachineError(UsdtError):
    """The object is for a machine, or a byte order of one, that isn't known here."""


def _module(name: str) -> Any:
    return __import__(f"{__package__}.{name}", fromlist=["*"])  # importlib costs more than the module


def for_object(machine: int, *, is64: bool, little: bool, flags: int, path: str) -> ProbeCalls:
    """Return the Calls for an object's ELF header fields. Raises UnsupportedMachineError, which lists all."""
    key = (machine, is64, little, flags)
    if key not in _calls:
        if len(_calls) >= _MOST_CALLS:
            _calls.clear()
        _calls[key] = _make_calls(machine, is64, little, flags, path)
    return _calls[key]


def _make_calls(machine: int, is64: bool, little: bool, flags: int, path: str) -> ProbeCalls:
    found = _MODULES.get((machine, is64))
    if found is None or little not in found[2]:
        order = f", {'little' if little else 'big'}-endian" if found else ""
        name = found[1] if found else f"ELF machine {machine}"
        raise UnsupportedMachineError(
            f"{path}: is for {name} ({64 if is64 else 32}-bit{order}), which is not supported; "
            f"supported are {', '.join(sorted({known for _, known, _ in _MODULES.values()}))}; "
            "compile with -DUSDT_DISABLED to have no probes there"
        )
    chosen: ProbeCalls = _module(found[0]).machine(is64=is64, little=little, flags=flags)
    return chosen


def facts_of(machine: int) -> Facts | None:
    """Return what is known about an ELF machine number; None where nothing is."""
    if machine not in _facts and machine in _BY_NUMBER:
        _facts.update(_module(_BY_NUMBER[machine]).facts())
    return _facts.get(machine)


def stubs_of(machine: int, code: FileCode) -> LibraryCalls | None:
    """Return what calls into libraries look like in a file; None where nobody knows."""
    module = _BY_NUMBER.get(machine)
    found: LibraryCalls | None = _module(module).stubs(code) if module else None
    return found


def name_of(machine: int) -> str:
    """Return the machine's usual name, or `machine N`."""
    known = facts_of(machine)
    return known.name if known else f"machine {machine}"


def known_numbers() -> tuple[int, ...]:
    """Return the ELF numbers of all machines that have facts."""
    return tuple(sorted(_BY_NUMBER))


def all_entries() -> Iterator[Entries]:
    """Yield what patchable entries look like in each instruction set that is known, Thumb among them."""
    seen = set()
    for number in known_numbers():
        known = facts_of(number)
        found = [known.entries(is64, little) for is64 in (True, False) for little in (True, False)] if known else []
        for entries in (*found, known.thumb if known else None):
            if entries is not None and entries.name not in seen:
                seen.add(entries.name)
                yield entries
