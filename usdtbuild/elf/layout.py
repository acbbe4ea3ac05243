"""Constants and record layouts of ELF, as the System V gABI (chapters 4 and 5) and binutils' elf/common.h give them.

Only numbers and struct formats; reading is `headers`, writing is `finish`.
"""

from __future__ import annotations

from struct import Struct

from ..record import NamedTuple

# A section's number is no symbol's: mypy tells them apart, and nothing is imported for it.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NewType

    SectionIndex = NewType("SectionIndex", int)
    SymbolIndex = NewType("SymbolIndex", int)
else:
    SectionIndex = SymbolIndex = int

ET_REL, ET_EXEC, ET_DYN, ET_CORE = 1, 2, 3, 4
ELFOSABI_NONE, ELFOSABI_GNU, ELFOSABI_SOLARIS, ELFOSABI_FREEBSD = 0, 3, 6, 9

SHN_UNDEF, SHN_LORESERVE, SHN_ABS, SHN_COMMON, SHN_XINDEX = 0, 0xFF00, 0xFFF1, 0xFFF2, 0xFFFF
SHT_NULL, SHT_PROGBITS, SHT_SYMTAB, SHT_STRTAB, SHT_RELA, SHT_NOTE, SHT_NOBITS, SHT_REL = 0, 1, 2, 3, 4, 7, 8, 9
SHT_DYNAMIC, SHT_DYNSYM, SHT_GROUP, SHT_SYMTAB_SHNDX, SHT_RELR = 6, 11, 17, 18, 19
SHT_ANDROID_RELR = 0x6FFFFF00
RUN_BY_LOADER = {14, 15, 16}  # SHT_INIT_ARRAY, SHT_FINI_ARRAY, SHT_PREINIT_ARRAY
SHT_LLVM_ADDRSIG, SHT_LLVM_CALL_GRAPH_OLD = 0x6FFF4C03, 0x6FFF4C02
SHT_LLVM_LTO, SHT_SUNW_DOF = 0x6FFF4C0C, 0x6FFFFFF4

SHF_WRITE, SHF_ALLOC, SHF_EXECINSTR, SHF_INFO_LINK, SHF_LINK_ORDER, SHF_GROUP = 1, 2, 4, 0x40, 0x80, 0x200
SHF_TLS = 0x400
SHF_GNU_RETAIN, SHF_EXCLUDE = 0x200000, 0x80000000
GRP_COMDAT = 1
DESCRIPTORS = ".opd"  # where ppc64 ELFv1 has its function descriptors, which is what function symbols name there

PN_XNUM = 0xFFFF  # the number of program headers is in the first section header's sh_info
PT_LOAD, PT_DYNAMIC, PT_INTERP, PT_NOTE, PT_GNU_EH_FRAME, PT_GNU_RELRO = 1, 2, 3, 4, 0x6474E550, 0x6474E552
PF_X, PF_W, PF_R = 1, 2, 4

STB_LOCAL, STB_GLOBAL, STB_WEAK = 0, 1, 2
STT_NOTYPE, STT_OBJECT, STT_FUNC, STT_SECTION, STT_GNU_IFUNC = 0, 1, 2, 3, 10
STV_DEFAULT, STV_HIDDEN = 0, 2


class Layout(NamedTuple):
    """How the records of one ELF class and byte order lie in the file."""

    is64: bool
    little: bool
    header: Struct  # from e_type on: type machine version entry phoff shoff flags ehsize phentsize phnum shentsize ...
    section: Struct  # name type flags addr offset size link info addralign entsize
    segment: Struct  # see `headers.Segment`: the two classes have p_flags in different places
    symbol: Struct
    word: Struct  # an address-sized word
    u32: Struct
    rel: Struct  # offset info
    rela: Struct  # offset info addend

    @property
    def address_size(self) -> int:
        """Bytes in an address, 4 or 8."""
        return 8 if self.is64 else 4


def _make(is64: bool, little: bool) -> Layout:
    order = "<" if little else ">"
    if is64:
        return Layout(
            True, little, Struct(order + "HHIQQQIHHHHHH"), Struct(order + "IIQQQQIIQQ"),
            Struct(order + "IIQQQQQQ"), Struct(order + "IBBHQQ"),
            Struct(order + "Q"), Struct(order + "I"), Struct(order + "QQ"), Struct(order + "QQq"),
        )  # fmt: skip
    return Layout(
        False, little, Struct(order + "HHIIIIIHHHHHH"), Struct(order + "IIIIIIIIII"),
        Struct(order + "IIIIIIII"), Struct(order + "IIIBBH"),
        Struct(order + "I"), Struct(order + "I"), Struct(order + "II"), Struct(order + "IIi"),
    )  # fmt: skip


LAYOUTS = {(is64, little): _make(is64, little) for is64 in (True, False) for little in (True, False)}
