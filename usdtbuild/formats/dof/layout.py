"""Numbers of the DOF: section types, record layouts, limits. Source: `sys/dtrace.h` of FreeBSD and illumos.

Record layouts are the same for 32- and 64-bit programs; the byte order is the program's.
"""

from __future__ import annotations

from struct import Struct
from typing import NamedTuple

MAGIC = b"\x7fDOF"
MODEL_ILP32, MODEL_LP64 = 1, 2
ENCODING_LSB, ENCODING_MSB = 1, 2
DIF_VERSION, INTEGER_REGISTERS, TUPLE_REGISTERS = 2, 8, 8
HEADER_SIZE, SECTION_SIZE = 64, 32
FLAG_LOAD = 1

NONE, COMMENTS, STRTAB, RELTAB, URELHDR, PROVIDER, PROBES, PRARGS, PROFFS = 0, 1, 8, 10, 12, 15, 16, 17, 18
UTSNAME, PREXPORT, PRENOFFS = 20, 25, 26
NAMES = {
    NONE: "NONE", COMMENTS: "COMMENTS", 2: "SOURCE", 3: "ECBDESC", 4: "PROBEDESC", 5: "ACTDESC", 6: "DIFOHDR", 7: "DIF",
    STRTAB: "STRTAB", 9: "VARTAB", RELTAB: "RELTAB", 11: "TYPTAB", URELHDR: "URELHDR", 13: "KRELHDR", 14: "OPTDESC",
    PROVIDER: "PROVIDER", PROBES: "PROBES", PRARGS: "PRARGS", PROFFS: "PROFFS", 19: "INTTAB", UTSNAME: "UTSNAME",
    21: "XLTAB", 22: "XLMEMBERS", 23: "XLIMPORT", 24: "XLEXPORT", PREXPORT: "PREXPORT", PRENOFFS: "PRENOFFS",
}  # fmt: skip

# Those that mean nothing without being loaded: all but comments, sources and the name of the build host.
LOADABLE = frozenset(range(3, 20)) | frozenset(range(21, 27))

# DOF relocations: SETX adds the module's load address; DOFREL (FreeBSD) adds the field's own address in memory.
SETX, DOFREL = 1, 2
RELOCATION_NAMES = {0: "none", SETX: "SETX", DOFREL: "DOFREL"}

PROBE_SIZE, RELOCATION_SIZE, URELHDR_SIZE = 48, 24, 12
PROVIDER_SIZES = {1: 40, 2: 44, 3: 44}

# What follows each DOF of ours in its ELF section, outside of the DOF: these bytes and the DOF's size as a 32-bit word.
# Linkers put the DOFs of a module's objects in a row, which the registration runtime can so walk backwards, too.
TRAILER_MAGIC, TRAILER_SIZE = b"UDOF", 8

# What consumers take at most (dof.md, "What consumers check").
MAX_SIZE, MAX_SIZE_ORACLE = 8 << 20, 256 << 20
# Names in bytes. FreeBSD takes longer functions' names than illumos and Oracle.
MAX_PROVIDER, MAX_FUNCTION, MAX_FUNCTION_ELSEWHERE, MAX_PROBE, MAX_TYPE = 53, 191, 127, 63, 127
MAX_ARGUMENTS, MAX_OFFSETS = 255, 65535


class Structs(NamedTuple):
    """The records in one byte order."""

    header: Struct  # from byte 16: flags hdrsize secsize secnum secoff loadsz filesz pad
    section: Struct  # type align flags entsize offset size
    provider: Struct  # strtab probes prargs proffs name provattr modattr funcattr nameattr argsattr
    u32: Struct
    probe: Struct  # addr func name nargv xargv argidx offidx nargc xargc noffs enoffidx nenoffs pad pad
    relocation: Struct  # name type offset data
    urelhdr: Struct  # strtab relsec tgtsec


def structs(little: bool) -> Structs:
    """Return the record layouts in the given byte order."""
    order = "<" if little else ">"
    return Structs(
        *(Struct(order + text) for text in ("IIIIQQQQ", "IIIIQQ", "10I", "I", "QIIIIIIBBHIHHI", "IIQQ", "III"))
    )


def encode_text(text: str) -> bytes:
    """Return a name's bytes; those that are no UTF-8 are carried as Python carries them in file names."""
    return text.encode("utf-8", "surrogateescape")
