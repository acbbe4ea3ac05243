"""What a file is that is no ELF file, by its first bytes, and what to do about it: one table for all commands.

A cure depends on what was wanted: an object that can get records, a file that is looked at, or functions of a program.
"""

from __future__ import annotations

from ..record import NamedTuple

# How files of LLVM's intermediate code begin, bare or wrapped.
BITCODE = (b"BC\xc0\xde", b"\xde\xc0\x17\x0b")


class _Kind(NamedTuple):
    """A kind of file by its first bytes, and the cure for each of the things that may have been wanted."""

    magic: bytes
    is_what: str
    to_instrument: str
    to_read: str
    to_patch: str


_OURS = "only ELF objects can carry these probes"
_PATCHED = "compilers write a table of patchable entries into ELF files only"
_NO_CODE_YET = ", which holds no machine code yet"
_KINDS = (
    _Kind(b"!<arch>\n", "is an archive", "instrument the objects before they are put into it", "",
          "give one of its objects (ar x)"),
    _Kind(b"!<thin>\n", "is a thin archive", "instrument the objects it names", "", "give one of the objects it names"),
    *(
        _Kind(magic, f"is {name}{_NO_CODE_YET}", "compile this file with -fno-lto", "give what it is linked into",
              "give the linked file")
        for magic, name in zip(BITCODE, ("LLVM bitcode", "wrapped LLVM bitcode"))
    ),
    _Kind(b"MZ", "is a Windows (PE) file", _OURS, "", _PATCHED),
    _Kind(b"\xcf\xfa\xed\xfe", "is a Mach-O file", _OURS, "", _PATCHED),
    _Kind(b"\xca\xfe\xba\xbe", "is a Mach-O universal file", _OURS, "", _PATCHED),
    _Kind(b"\x64\x86", "is a Windows (COFF) object", _OURS, "", _PATCHED),
    _Kind(b"#!", "is a script", "give the .o file that the compiler wrote", "give the binary it runs",
          "give the program that runs it"),
)  # fmt: skip
_PROCESS = "give an ELF file, or a process"
# What was wanted -> what an empty file lacks, what any other file is not, and what to give instead.
_WANTED = {
    "object": ("compile it again", "is not an ELF object", "give the .o file that the compiler wrote"),
    "file": ("", "is not an ELF file", ""),
    "functions": ("build it again", "is not a program, a library or an object", _PROCESS),
}  # fmt: skip


def not_elf(start: bytes, wanted: str = "file") -> tuple[str, str]:
    """Return what a file is that begins with `start` and is no ELF file, and the cure; `wanted` is a key of _WANTED."""
    again, is_not, instead = _WANTED[wanted]
    if not start:
        return "is empty", again
    for kind in _KINDS:
        if start.startswith(kind.magic):
            cures = {"object": kind.to_instrument, "file": kind.to_read, "functions": kind.to_patch}
            return kind.is_what, cures[wanted]
    if start.startswith(b"\x7fELF"):
        return "the file ends inside the ELF header", again
    return is_not, instead
