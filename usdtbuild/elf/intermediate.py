"""Compilers' intermediate code in objects (LTO): which sections hold it, and objects that hold nothing else."""

from __future__ import annotations

from ..errors import UsdtError
from . import layout
from .layout import SectionIndex
from .object import ElfObject, find_symbols

NO_MACHINE_CODE = "which holds no machine code to put probes into"


class LtoObjectError(UsdtError):
    """The object holds no machine code yet, so its probes can't be found."""


def refuse_slim_lto(source: ElfObject) -> list[SectionIndex]:
    """Return the sections with intermediate code of a fat LTO object; raise LtoObjectError for a slim one."""
    names = source.sections[source.shstrndx]
    has_gcc = source.data.find(b".gnu.lto_", names.offset, names.offset + names.size) >= 0
    code = [*source.of_type(layout.SHT_LLVM_LTO)]
    if has_gcc:
        code += [i for i, _ in source.numbered() if i and source.section_name(i).startswith(".gnu.lto_")]
        if find_symbols(source, (b"__gnu_lto_slim\0",)):
            raise LtoObjectError(
                f"{source.path}: is a slim LTO object, {NO_MACHINE_CODE}; compile this file with -fno-lto, or with "
                "-ffat-lto-objects"
            )
    return code
