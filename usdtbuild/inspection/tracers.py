"""What each tracer makes of a record: which operands it understands, and where it looks for sites and semaphores.

Measured with bpftrace 0.17 and 0.27, bcc 0.26, perf 6.1, libbpf 1.1 and gdb 13 on x86-64, by giving each of them every
form of operand; later versions of libbpf, and other machines, by reading libbpf's `src/usdt.c` and bcc's
`src/cc/usdt/usdt_args.cc`. tests/inspection/test_tracers.py measures again. `verify` turns this into findings; nothing
here reads a file.
"""

from __future__ import annotations

import re

from ..elf.sections import ImageSection
from ..formats.operands import CONSTANT, MEMORY, REGISTER, Operand, OperandPlace
from ..machines import facts_of
from ..record import NamedTuple

# libbpf's BPF_USDT_MAX_ARG_CNT, and the size of its table of distinct argument strings (BPF_USDT_MAX_SPEC_CNT).
LIBBPF_ARGUMENTS, LIBBPF_SPECS = 12, 256
# The kernel's MAX_EVENT_NAME_LEN less its NUL; perf puts `sdt_` before the provider's name.
PERF_PROBE_NAME, PERF_PROVIDER_NAME = 63, 59
# perf 6.1 finds no probe of a file with a build-id of 12 bytes or less (measured; lld's default has 8).
PERF_BUILD_ID = 13

_LEFT_OUT = "perf leaves the argument out"


class Trouble(NamedTuple):
    """What one tracer does wrong with an operand. `mild`: it shows the probe, and less of it."""

    tracer: str
    effect: str
    mild: bool = False

    def __str__(self) -> str:
        return self.effect


PERF_LEAVES_OUT = Trouble("perf", _LEFT_OUT, mild=True)
_PERF_REFUSES = Trouble("perf", "perf can't add the probe")
_PERF_SHOWS_NONE = Trouble("perf", "perf shows no probe of the file")
_LIBBPF_REFUSES = Trouble("libbpf", "libbpf refuses the probe, and with it bpftrace (0.27)")
_LIBBPF_OLD = Trouble("libbpf", "libbpf before 1.7 refuses the probe")
_GDB_CANNOT = Trouble("gdb", "gdb can't read the argument")
_GDB_NONE = Trouble("gdb", "gdb shows no argument of the probe")
_BCC_DROPS = Trouble("bcc", "bpftrace and bcc drop the argument and number the rest wrongly")
_BPFTRACE_ABORTS = Trouble("bpftrace", "bpftrace aborts")


def operand_troubles(operand: Operand, machine: int) -> list[Trouble]:
    """Return what goes wrong with an operand, on ELF machine `machine`; nothing where every tracer reads it."""
    troubles = _size_troubles(operand)
    known = facts_of(machine)
    if known and known.decoded:
        troubles += _x86_troubles(operand.place, operand.floating)
    elif known:
        for tracer, form in known.operands.readable.items():
            if not re.fullmatch(form, operand.place.text):
                troubles.append(_DOES_NOT_READ[tracer])
    return list(dict.fromkeys(troubles))


def _size_troubles(operand: Operand) -> list[Trouble]:
    if operand.floating:
        return [_GDB_CANNOT, _BCC_DROPS, _LIBBPF_REFUSES]
    if operand.size in {1, 2, 4, 8}:
        return []
    if "@" not in operand.text:
        return [_LIBBPF_REFUSES]
    if not re.fullmatch(r"-?[0-9]+@.+", operand.text):
        return [_GDB_CANNOT, _BCC_DROPS, _LIBBPF_REFUSES]
    troubles = [_GDB_NONE, _BPFTRACE_ABORTS, _LIBBPF_REFUSES]
    return [*troubles, _PERF_SHOWS_NONE] if operand.size > 8 else troubles


# -- x86 ---------------------------------------------------------------------------------------------------------------

_LETTERS = ("ax", "bx", "cx", "dx", "si", "di", "bp", "sp")
_NUMBERED = tuple(f"r{number}" for number in range(8, 16))
_ADDRESSES = {f"r{name}" for name in _LETTERS} | set(_NUMBERED)
_KNOWN = (
    _ADDRESSES
    | {f"e{name}" for name in _LETTERS}
    | set(_LETTERS)
    | {f"{name}{width}" for name in _NUMBERED for width in "dw"}
    | {"al", "bl", "cl", "dl", "sil", "dil", "bpl", "spl"}
)
_LOW_BYTES = {f"{name}b" for name in _NUMBERED}
_HIGH_BYTES = {"ah", "bh", "ch", "dh"}


def _x86_troubles(place: OperandPlace, floating: bool) -> list[Trouble]:
    if place.kind == REGISTER:
        return _x86_register(place.register, floating)
    if place.kind == CONSTANT:
        return [PERF_LEAVES_OUT, *([_GDB_CANNOT, _LIBBPF_REFUSES] if "x" in place.text else [])]
    if place.kind == MEMORY:
        return _x86_memory(place)
    return [PERF_LEAVES_OUT, _GDB_CANNOT, _BCC_DROPS, _LIBBPF_REFUSES]


def _x86_register(name: str, floating: bool) -> list[Trouble]:
    if name in _KNOWN:
        return []
    if name in _LOW_BYTES:
        return [_GDB_CANNOT]
    if name in _HIGH_BYTES:
        return [Trouble("perf", "perf reads another byte"), _BCC_DROPS, _LIBBPF_REFUSES]
    if name == "rip":
        return [_PERF_REFUSES]
    if name == "eip":
        return [_PERF_REFUSES, _GDB_CANNOT, _BCC_DROPS]
    if name.startswith("xmm") and not floating:
        return [_PERF_REFUSES, _BPFTRACE_ABORTS, _LIBBPF_REFUSES]
    known_to_gdb = re.fullmatch(r"[xyz]mm\d+|k\d|[c-gs]s", name)
    return [_PERF_REFUSES, *([] if known_to_gdb else [_GDB_CANNOT]), _BCC_DROPS, _LIBBPF_REFUSES]


def _x86_memory(place: OperandPlace) -> list[Trouble]:
    if place.symbol:
        reads = Trouble("bcc", "bpftrace reads some other memory")
        return [PERF_LEAVES_OUT, _GDB_CANNOT, reads, _LIBBPF_REFUSES]
    if not place.base:
        return [PERF_LEAVES_OUT, _GDB_CANNOT, _BCC_DROPS, _LIBBPF_REFUSES]
    troubles: list[Trouble] = []
    if "x" in place.text.partition("(")[0].lower():
        troubles += [PERF_LEAVES_OUT, _GDB_CANNOT, _LIBBPF_REFUSES]
    if place.index_register:
        troubles += [PERF_LEAVES_OUT, _LIBBPF_OLD]
    if place.base in {"rip", "eip"}:
        troubles.append(_PERF_REFUSES)
    elif place.base not in _KNOWN:
        troubles += [_PERF_REFUSES, _BCC_DROPS, _LIBBPF_REFUSES]
    return troubles


# What happens to an operand of another machine that a tracer doesn't read (`machines.facts.Operands.readable`).
_DOES_NOT_READ = {"libbpf": _LIBBPF_REFUSES, "bcc": _BCC_DROPS, "perf": PERF_LEAVES_OUT}


# -- where readers look -----------------------------------------------------------------------------------------------


def perf_site_offset(written_site: int, written_base: int, base: ImageSection | None) -> int:
    """Return the file offset at which perf puts its event.

    perf takes the difference between address and file offset from `.stapsdt.base` and not from the segment that the
    site is in (`sdt_adjust_loc` in tools/perf/util/symbol-elf.c), so it is right only where the two agree.
    """
    if base is None or not base.offset:
        return written_site
    return written_site + base.offset - written_base


def semaphore_offset(written: int, probes: ImageSection | None) -> int:
    """Return the file offset that perf and bcc take a semaphore to have: they know the section `.probes` only."""
    if probes is None or not probes.offset:
        return written
    return written - (probes.address - probes.offset)
