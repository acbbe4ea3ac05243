"""Changes to files that know their structure: ELF's tables, DOF's sections, and the words of provider files.

Random bytes are refused by the first check that they meet. These change one or a few fields to numbers that are nearly
right, or that are next to a limit, so that the rest of the file still makes a reader go on.
"""

from __future__ import annotations

import random
import re
import struct
from typing import Literal, NamedTuple

# Names of the fields of ELF's records and their sizes, for 64 and 32 bits, as in the gABI.
_HEADER = {True: "HHIQQQIHHHHHH", False: "HHIIIIIHHHHHH"}  # from byte 16 on
_SECTION = {True: "IIQQQQIIQQ", False: "IIIIIIIIII"}
_SEGMENT = {True: "IIQQQQQQ", False: "IIIIIIII"}
_SYMBOL = {True: "IBBHQQ", False: "IIIBBH"}
_RELOCATION = {True: {True: "QIIq", False: "QII"}, False: {True: "IIi", False: "II"}}
SHT_SYMTAB, SHT_STRTAB, SHT_RELA, SHT_NOTE, SHT_NOBITS, SHT_REL, SHT_DYNSYM, SHT_GROUP = 2, 3, 4, 7, 8, 9, 11, 17
# DOF: header and section headers, as in illumos' sys/dtrace.h (dof_hdr_t, dof_sec_t).
_DOF_HEADER, _DOF_SECTION = "IIIIQQQ", "IIIIQQ"


class Field(NamedTuple):
    """Where a number stands in a file."""

    at: int
    size: int


class Elf(NamedTuple):
    """What a mutation needs to know of an ELF file."""

    wide: bool
    order: str
    sections: tuple[tuple[int, ...], ...]
    table: int

    @classmethod
    def read(cls, data: bytes) -> Elf:
        """Read the section headers of a good file."""
        wide, order = data[4] == 2, "<" if data[5] == 1 else ">"
        header = struct.unpack_from(order + _HEADER[wide], data, 16)
        table, size, count = header[5], header[10], header[11]
        form = order + _SECTION[wide]
        return cls(wide, order, tuple(struct.unpack_from(form, data, table + i * size) for i in range(count)), table)

    def fields(self, start: int, form: str) -> list[Field]:
        """Return the fields of a record."""
        found = []
        for letter in form:
            size = struct.calcsize("=" + letter)
            found.append(Field(start, size))
            start += size
        return found


def interesting(source: random.Random, old: int, size: int, length: int, count: int) -> int:
    """Return a number to put in a field's place."""
    limit = (1 << 8 * size) - 1
    return source.choice((
        0, 1, 2, old + 1, old - 1, old ^ 1 << source.randrange(8 * size), old * 2, old // 2, limit, limit >> 1,
        (limit >> 1) + 1, limit - 1, length, length - 1, length - old, count, count - 1, 0xFF00, 0xFFFF, 0xFFF1,
        source.randrange(max(count, 1)), source.randrange(max(length, 1)), source.getrandbits(8 * size), 1 << 20,
        1 << 31,
    )) & limit  # fmt: skip


def elf(data: bytes, source: random.Random) -> bytes:
    """Return an ELF file with one to four changes."""
    content = bytearray(data)
    whole = Elf.read(data)
    for _ in range(source.choice((1, 1, 1, 2, 4))):
        change = source.choice(_ELF_CHANGES)
        change(content, whole, source)
    return bytes(content)


def _put(content: bytearray, field: Field, whole: Elf, source: random.Random) -> None:
    if 0 <= field.at <= len(content) - field.size:
        order: Literal["little", "big"] = "little" if whole.order == "<" else "big"
        old = int.from_bytes(content[field.at : field.at + field.size], order)
        value = interesting(source, old, field.size, len(content), len(whole.sections))
        content[field.at : field.at + field.size] = value.to_bytes(field.size, order)


def _header(content: bytearray, whole: Elf, source: random.Random) -> None:
    _put(content, source.choice([Field(4, 1), Field(5, 1), Field(7, 1), *whole.fields(16, _HEADER[whole.wide])]), whole,
         source)  # fmt: skip


def _section_header(content: bytearray, whole: Elf, source: random.Random) -> None:
    form = _SECTION[whole.wide]
    start = whole.table + source.randrange(len(whole.sections)) * struct.calcsize("=" + form)
    _put(content, source.choice(whole.fields(start, form)), whole, source)


def _swap_headers(content: bytearray, whole: Elf, source: random.Random) -> None:
    size = struct.calcsize("=" + _SECTION[whole.wide])
    one, two = (whole.table + source.randrange(len(whole.sections)) * size for _ in range(2))
    first, second = bytes(content[one : one + size]), bytes(content[two : two + size])
    content[one : one + size] = second
    if source.random() < 0.7:
        content[two : two + size] = first


def _segment(content: bytearray, whole: Elf, source: random.Random) -> None:
    form = _SEGMENT[whole.wide]
    _put(content, source.choice(whole.fields(52 + 12 * whole.wide + source.randrange(12) * struct.calcsize("=" + form),
                                             form)), whole, source)  # fmt: skip


def _record(content: bytearray, whole: Elf, source: random.Random) -> None:
    """A field of a symbol or relocation, or a word of a note, a group, or another table."""
    section = source.choice([s for s in whole.sections if s[5] and s[1] != SHT_NOBITS] or [(0,) * 10])
    kind, offset, size = section[1], section[4], section[5]
    form = {SHT_SYMTAB: _SYMBOL[whole.wide], SHT_DYNSYM: _SYMBOL[whole.wide], SHT_RELA: _RELOCATION[whole.wide][True],
            SHT_REL: _RELOCATION[whole.wide][False]}.get(kind, "I")  # fmt: skip
    length = struct.calcsize("=" + form)
    if size >= length:
        start = offset + source.randrange(size // length) * length
        _put(content, source.choice(whole.fields(start, form)), whole, source)


def _bytes(content: bytearray, whole: Elf, source: random.Random) -> None:
    """Bytes of one section: names, code, our own descriptions."""
    section = source.choice([s for s in whole.sections if s[5] and s[1] != SHT_NOBITS] or [(0, 0, 0, 0, 0, 16)])
    for _ in range(source.choice((1, 4))):
        at = section[4] + source.randrange(section[5])
        if at < len(content):
            content[at] = source.choice((0, 0xFF, 0x80, 0x90, 0xE8, content[at] ^ 1 << source.randrange(8)))


def _cut(content: bytearray, _: Elf, source: random.Random) -> None:
    if source.random() < 0.2:
        del content[source.randrange(len(content)) :]


_ELF_CHANGES = (_header, _section_header, _section_header, _swap_headers, _segment, _record, _record, _bytes, _cut)


# What a note may hold in the place of a name or an operand.
_NOTE_WORDS = (
    b"\0", b"victim\0", b"a" * 40, b"\x1b[2J\0", b"x\ny\0", b"\xff\xfe\0", b"-4@%edi 8@8(%rsp)\0", b" " * 30,
    b"8@-0(%rsp,%rsp,9)\0", b"99999999@%rax\0", b"-4@$99999999999999999999999\0", b"8@sym+1(%rip)\0",
    b"@@@@ 4@ @%\0", b"4@[x0, #99999]\0",
)  # fmt: skip


def notes(data: bytes, source: random.Random, kept: list[bytes]) -> bytes:
    """Return an ELF file whose SDT notes are changed: their sizes, addresses, names and operands."""
    content = bytearray(data)
    whole = Elf.read(data)
    sections = [s for s in whole.sections if s[1] == SHT_NOTE and s[5] and b"stapsdt" in data[s[4] : s[4] + s[5]]]
    for _, _, _, _, start, size, *_ in sections:
        if kept and source.random() < 0.2:
            content[start : start + size] = source.choice(kept)[:size].ljust(size, b"\0")
        for _ in range(source.choice((1, 2, 5))):
            at = start + source.randrange(size)
            if source.random() < 0.5:
                _put(content, Field(at & -4, source.choice((4, 8))), whole, source)
            else:
                word = source.choice(_NOTE_WORDS)[: start + size - at]
                content[at : at + len(word)] = word
    return bytes(content)


def with_notes(data: bytes, kept: bytes) -> bytes:
    """Return an ELF file whose first SDT notes are these bytes."""
    start, size = next((s[4], s[5]) for s in Elf.read(data).sections
                       if s[1] == SHT_NOTE and b"stapsdt" in data[s[4] : s[4] + s[5]])  # fmt: skip
    content = bytearray(data)
    content[start : start + size] = kept[:size].ljust(size, b"\0")
    return bytes(content)


def dof(data: bytes, source: random.Random) -> bytes:
    """Return a DOF with one to four changes in its header, its sections' headers or its contents."""
    content = bytearray(data)
    whole = Elf(True, "<" if data[5] == 1 else ">", (), 0)
    for _ in range(source.choice((1, 1, 2, 4))):
        if not content:
            break
        count = max(len(content) // 32 - 2, 1)
        place = source.randrange(4)
        if place == 0:
            _put(content, source.choice([*(Field(i, 1) for i in range(4, 16)), *whole.fields(16, _DOF_HEADER)]), whole,
                 source)  # fmt: skip
        elif place == 1:
            start = 64 + source.randrange(min(count, 16)) * 32
            _put(content, source.choice(whole.fields(start, _DOF_SECTION)), whole, source)
        elif place == 2:
            _put(content, Field(source.randrange(0, len(content), 4), 4), whole, source)
        elif source.random() < 0.2:
            del content[source.randrange(len(content)) :]
    return bytes(content)


_WORDS = re.compile(rb"\s+|\w+|/\*.*?\*/|[^\w\s]", re.DOTALL)
_DICTIONARY = (
    b"provider", b"probe", b"{", b"}", b"(", b")", b";", b",", b"*", b"[", b"]", b"[9]", b"[0x7fffffff]", b":", b"/*",
    b"*/", b"//", b'"', b"'", b"\\\n", b"\n#pragma D attributes Evolving/Evolving/Common provider x provider\n",
    b"#define X Y\n", b'# 1 "x.d"\n', b"#include <stdint.h>\n", b"struct", b"union", b"enum", b"typedef", b"const",
    b"unsigned", b"long", b"int", b"char", b"void", b"double", b"string", b"uint64_t", b"__", b"___", b"\0", b"\xff",
    b"\xc3\xa9", b"99999999999999999999", b"-", b"x" * 300, b"...", b"inline", b"import", b"extern", b"D`int", b"`",
    b"\r\n", b"\x1a", b"/", b"#", b"$1", b"@",
)  # fmt: skip


def provider(data: bytes, source: random.Random) -> bytes:
    """Return a provider file with one to six changes of its words."""
    words = _WORDS.findall(data)
    for _ in range(source.choice((1, 1, 2, 3, 6))):
        if not words:
            break
        at, how = source.randrange(len(words)), source.randrange(7)
        if how == 0:
            del words[at : at + source.choice((1, 2, 5))]
        elif how == 1:
            words.insert(at, source.choice(_DICTIONARY))
        elif how == 2:
            words[at] = source.choice(_DICTIONARY)
        elif how == 3:
            other = source.randrange(len(words))
            words[at], words[other] = words[other], words[at]
        elif how == 4:
            words[at:at] = words[at : at + source.randrange(1, 20)] * source.choice((1, 2, 50))
        elif how == 5:
            words[at:at] = [source.choice((*_DICTIONARY, words[at]))] * source.choice((2, 100, 5000, 50_000))
        else:
            del words[at:]
    return b"".join(words)
