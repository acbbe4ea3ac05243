"""SystemTap SDT notes (`.note.stapsdt`): what bpftrace, perf, bcc, SystemTap, gdb, LTTng and libbpf read on Linux.

A note is namesz 8, descsz, type 3, the owner `stapsdt\\0`, and a description of three addresses (pc, base,
semaphore) followed by `provider\\0name\\0arguments\\0`, padded to four bytes. Source: SystemTap's `sys/sdt.h` and its
wiki page "UserSpaceProbeImplementation"; limits of the readers: docs/formats/stapsdt.md.

This module turns notes into bytes and back. It doesn't know where the bytes go or who relocates the addresses.
"""

from __future__ import annotations

from struct import Struct

from ..errors import UsdtError
from ..limits import NOTE_TEXT, NOTES, NOTES_TEXT
from ..record import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

SECTION = ".note.stapsdt"
BASE_SECTION = ".stapsdt.base"
BASE_SYMBOL = "_.stapsdt.base"
SEMAPHORE_SECTION = ".probes"
OWNER = b"stapsdt\0"
TYPE = 3
# bpftrace, bcc and libbpf refuse a probe with more; perf and gdb read any number.
MAX_ARGUMENTS = 12
HEADER_SIZE = 12 + len(OWNER)


class NoteError(UsdtError):
    """The bytes are no sequence of SDT notes."""


class Note(NamedTuple):
    """One note: three addresses and three strings. `arguments` is the operand string, e.g. `-4@%edi 8@%rsi`."""

    pc: int
    base: int
    semaphore: int
    provider: str
    name: str
    arguments: str


class Fields(NamedTuple):
    """Where, in bytes from the note's start, its three addresses stand: these get relocations in an object."""

    pc: int
    base: int
    semaphore: int


def fields(address_size: int) -> Fields:
    """Return the offsets of the address fields for 4- or 8-byte addresses."""
    return Fields(HEADER_SIZE, HEADER_SIZE + address_size, HEADER_SIZE + 2 * address_size)


def encode(note: Note, address_size: int, *, little: bool) -> bytes:
    """Return the note's bytes, padded to a multiple of four."""
    order = "<" if little else ">"
    strings = b"".join(text.encode() + b"\0" for text in (note.provider, note.name, note.arguments))
    addresses = Struct(order + ("QQQ" if address_size == 8 else "III")).pack(note.pc, note.base, note.semaphore)
    size = len(addresses) + len(strings)
    header = Struct(order + "III").pack(len(OWNER), size, TYPE)
    return header + OWNER + addresses + strings + bytes(-size % 4)


def decode(data: bytes, address_size: int, *, little: bool) -> list[Note]:
    """Return the SDT notes in a section's bytes; notes of other owners are passed over. Raises NoteError."""
    return [note for _, note in decode_with_offsets(data, address_size, little=little)]


def decode_with_offsets(data: bytes, address_size: int, *, little: bool) -> list[tuple[int, Note]]:
    """Return (offset of the note, note) for each SDT note in a section's bytes. Raises NoteError."""
    found: list[tuple[int, Note]] = []
    addresses = _addresses(address_size, little)
    left = NOTES_TEXT
    known: dict[bytes, list[str]] = {}  # many notes say the same of their arguments
    for offset, start, end in _extents(data, addresses.size, little):
        text = end - start - addresses.size
        left -= text
        if text > NOTE_TEXT:
            most = f"{NOTE_TEXT} bytes of text, which is the most that is read"
            raise NoteError(f"note at offset {offset:#x} has more than {most}")
        if left < 0:
            raise NoteError(f"its notes have more than {NOTES_TEXT} bytes of text, which is the most that is read")
        written = data[start + addresses.size : end]
        said = known.get(written)
        if said is None:
            strings = written.split(b"\0")
            if len(strings) < 4:
                raise NoteError(f"note at offset {offset:#x} doesn't hold three NUL-terminated strings")
            said = known[written] = [text.decode("utf-8", "backslashreplace") for text in strings[:3]]
        if len(found) == NOTES:
            raise NoteError(f"it has more than {NOTES} notes, which is the most that is read")
        provider, name, arguments = said
        pc, base, semaphore = addresses.unpack_from(data, start)
        found.append((offset, Note(pc, base, semaphore, provider, name, arguments)))
    return found


def places(data: bytes, address_size: int, *, little: bool) -> list[tuple[int, int]]:
    """Return only the addresses of each note's site and base, which costs a fraction. Raises NoteError."""
    addresses = _addresses(address_size, little)
    start = Struct(("<" if little else ">") + "III8s" + ("QQ" if address_size == 8 else "II"))
    unpack, last = start.unpack_from, len(data) - start.size
    found = []
    offset = 0
    while offset <= last:
        name_size, size, type_, owner, pc, base = unpack(data, offset)
        if name_size != len(OWNER) or type_ != TYPE or owner != OWNER or size < addresses.size:
            break
        found.append((pc, base))
        offset += HEADER_SIZE + (size + 3 & ~3)
    if offset == len(data):
        return found
    # Something else is among them, or the section is damaged.
    return [addresses.unpack_from(data, start)[:2] for _, start, _ in _extents(data, addresses.size, little)]


def _addresses(address_size: int, little: bool) -> Struct:
    return Struct(("<" if little else ">") + ("QQQ" if address_size == 8 else "III"))


def _extents(data: bytes, least: int, little: bool) -> Iterator[tuple[int, int, int]]:
    """Yield where each SDT note begins, and where its `least` or more bytes of description begin and end."""
    header = Struct(("<" if little else ">") + "III")
    offset = 0
    while offset + header.size <= len(data):
        name_size, size, type_ = header.unpack_from(data, offset)
        name_start = offset + header.size
        start = name_start + (name_size + 3 & ~3)
        end = start + size
        if end > len(data):
            raise NoteError(f"note at offset {offset:#x} is {size:#x} bytes long and runs out of its section")
        if type_ == TYPE and data[name_start : name_start + name_size] == OWNER:
            if size < least:
                raise NoteError(f"note at offset {offset:#x} is too short for its three addresses")
            yield offset, start, end
        offset = start + (size + 3 & ~3)
    if data[offset:].strip(b"\0"):
        raise NoteError(f"{len(data) - offset} bytes at offset {offset:#x} are no note")
