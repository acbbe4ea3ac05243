"""An object without code, made to resemble another: same machine, same ABI marks, texts, and undefined symbols.

It is what `elf.edit` can then add to. The marks are the sections by which linkers decide whether two objects go
together, or what the whole program supports; an object without them would spoil them for the program. The stack
is marked as not executable.
"""

from __future__ import annotations

from ..limits import SECTION_ALIGNMENT
from ..record import NamedTuple
from . import layout
from .object import ElfObject

# Control-flow protection (x86, AArch64), floating point and other ABI variants (ARM, RISC-V, MIPS, PowerPC).
_MARKS = (
    ".note.gnu.property", ".ARM.attributes", ".riscv.attributes", ".MIPS.abiflags", ".reginfo", ".MIPS.options",
    ".gnu.attributes",
)  # fmt: skip
_STACK = ".note.GNU-stack"


class Text(NamedTuple):
    """A section that isn't loaded, in a COMDAT group of its own with the name `signature`."""

    name: str
    signature: str
    content: bytes


class _Section(NamedTuple):
    name: str
    type: int
    flags: int
    data: bytes
    link: int = 0
    info: int = 0
    align: int = 1
    entsize: int = 0


def bare_object(template: ElfObject, texts: list[Text], undefined: list[str]) -> bytes:
    """Return the bytes of an object like `template` that refers to the global hidden symbols `undefined`."""
    marks = [
        _Section(name, s.type, s.flags & ~layout.SHF_GROUP, bytes(template.content(i)), 0, 0, s.align, s.entsize)
        for i, s in template.numbered()
        for name in (template.section_name(i),)
        if name in _MARKS
    ]
    strings = bytearray(b"\0")
    symbols = bytearray(template.layout.symbol.size)
    first_text = 2 + len(marks)
    table = first_text + 2 * len(texts)
    groups = []
    for number, text in enumerate(texts):  # a group stands before its members
        group = first_text + 2 * number
        word = template.layout.u32.pack
        groups += [
            _Section(".group", layout.SHT_GROUP, 0, word(layout.GRP_COMDAT) + word(group + 1), table, number + 1, 4, 4),
            _Section(text.name, layout.SHT_PROGBITS, layout.SHF_GROUP, text.content),
        ]
        symbols += _symbol(template, len(strings), layout.STB_LOCAL, layout.STV_DEFAULT, group)
        strings += text.signature.encode() + b"\0"
    for name in undefined:
        symbols += _symbol(template, len(strings), layout.STB_GLOBAL, layout.STV_HIDDEN, layout.SHN_UNDEF)
        strings += name.encode("utf-8", "surrogateescape") + b"\0"
    sections = [
        _Section("", layout.SHT_NULL, 0, b"", align=0),
        *marks,
        _Section(_STACK, layout.SHT_PROGBITS, 0, b""),
        *groups,
        _Section(".symtab", layout.SHT_SYMTAB, 0, bytes(symbols), table + 1, 1 + len(texts),
                 template.layout.address_size, template.layout.symbol.size),
        _Section(".strtab", layout.SHT_STRTAB, 0, bytes(strings)),
    ]  # fmt: skip
    return _lay_out(template, sections)


def _symbol(template: ElfObject, name: int, binding: int, visibility: int, section: int) -> bytes:
    info = binding << 4 | layout.STT_NOTYPE
    if template.layout.is64:
        return template.layout.symbol.pack(name, info, visibility, section, 0, 0)
    return template.layout.symbol.pack(name, 0, 0, info, visibility, section)


def _lay_out(template: ElfObject, sections: list[_Section]) -> bytes:
    records = template.layout
    names = bytearray(b"\0")
    header_size = 16 + records.header.size
    body = bytearray(header_size)
    headers = bytearray()
    index_of_names = len(sections)
    for section in [*sections, _Section(".shstrtab", layout.SHT_STRTAB, 0, b"")]:
        name = len(names) if section.name else 0
        if section.name:
            names += section.name.encode() + b"\0"
        data = bytes(names) if section.name == ".shstrtab" else section.data
        body += bytes(-len(body) % min(max(section.align, 1), SECTION_ALIGNMENT))
        offset = len(body) if section.type else 0
        body += data
        headers += records.section.pack(
            name, section.type, section.flags, 0, offset, len(data), section.link, section.info, section.align,
            section.entsize,
        )  # fmt: skip
    body += bytes(-len(body) % records.address_size)
    ident = bytes(template.data[:7]) + bytes((template.osabi, template.data[8])) + bytes(7)
    count = index_of_names + 1
    fields = (layout.ET_REL, template.machine, 1, 0, 0, len(body), template.flags, header_size, 0, 0,
              records.section.size, count, index_of_names)  # fmt: skip
    body[:header_size] = ident + records.header.pack(*fields)
    return bytes(body + headers)
