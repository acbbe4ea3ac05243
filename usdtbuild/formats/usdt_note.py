"""`.note.usdt`: the notes that current Oracle DTrace reads in place of DOF.

Two kinds share the section. A `usdt` note (type 1 a probe, type 2 an is-enabled test) is one site: its address, the
address of the function's name, provider, probe, and the arguments as SystemTap spells operands. A `prov` note declares
a provider: stability, and its probes with native and translated types. DTrace refuses the whole file for one site whose
provider or probe isn't declared, whose number of arguments isn't the declared one (an is-enabled site may have a single
one, a pointer), or whose function's name isn't in `.rodata`; for two notes of one site, a provider that is declared
twice, and a note of an owner that it doesn't know. Notes of the owner `dver` it passes over.
Source: Oracle's dtrace-utils, `sys/usdt_note_defs.h` and `libcommon/usdt_parser_notes.c`.

A site's note has the probe's name as the source has it, `req__done`, which DTrace turns into `req-done`; a provider's
note has `req-done` itself, because there DTrace turns nothing.

This module turns notes into bytes and back; where they go and who relocates the addresses isn't its business.
"""

from __future__ import annotations

from struct import Struct

from ..errors import UsdtError
from ..model import Attribute, Attributes
from ..record import NamedTuple
from .operands import split

SECTION = ".note.usdt"
NAMES_SECTION = ".rodata"  # DTrace looks for functions' names in the section of this name, and nowhere else
SITE_OWNER, PROVIDER_OWNER, VERSION_OWNER = b"usdt\0", b"prov\0", b"dver\0"
PROBE, ENABLED = 1, 2
# Offsets in a site's note of its two addresses: 12 bytes of header, 8 of the padded owner.
PC_FIELD, FUNCTION_FIELD = 20, 28
MAX_ARGUMENTS = 255
# Names and types in bytes: what DTrace's own fields hold, less the NUL; a process number is added to a provider's name.
MAX_PROVIDER, MAX_PROBE, MAX_FUNCTION, MAX_TYPE = 53, 63, 127, 127
_SMALLEST = 12 + 8  # a note with an owner of four letters and nothing else


class UsdtNoteError(UsdtError):
    """The bytes are no such notes, or the records none that could be written."""


class SiteNote(NamedTuple):
    """One site. `function` is the address of its function's name; `arguments` are SDT operands, one each."""

    pc: int
    function: int
    provider: str
    probe: str
    arguments: tuple[str, ...]
    enabled: bool = False


class NotedProbe(NamedTuple):
    """One probe of a provider note: native types, and (type, native index) of each translated argument."""

    name: str
    native: tuple[str, ...]
    translated: tuple[tuple[str, int], ...]


class ProviderNote(NamedTuple):
    """One provider's declaration."""

    name: str
    attributes: Attributes
    probes: tuple[NotedProbe, ...]


UsdtNote = SiteNote | ProviderNote


class Guard(NamedTuple):
    """Notes to put before those of a function (see `guard`), and where in them the function's address counts.

    The eight bytes at `word` are to be the address plus `addend`; that spoils seven, which the two 32-bit words at
    `again` are to make good afterwards.
    """

    data: bytes
    word: int
    addend: int
    again: tuple[int, int]


def guard(size: int, *, little: bool) -> Guard:
    """Return notes that hide the `size` bytes of notes behind them if the function's address turns out to be 0.

    That is what linkers make of the address of code that they dropped, and some keep the notes all the same. A note
    with such an address makes DTrace refuse the file, and so does one with an owner that it doesn't know, so the notes
    must disappear in the description of another. A note with room for 256 bytes does it: added to the address,
    2**56 - 1 carries into the top byte of a word for any address but 0, and that byte is the second of the note's size.
    With 256 the next note begins behind the room; with 0 it begins in it, and is one that reaches to the end.
    """
    order = "<" if little else ">"
    header = Struct(order + "III")

    def skipped(length: int) -> bytes:
        return header.pack(len(VERSION_OWNER), length, PROBE) + _padded(VERSION_OWNER)

    room = skipped(256 - _SMALLEST + size).ljust(256, b"\0")
    start = _SMALLEST  # the word begins before the switch's header, so something stands there
    word, again = (start - 2, (start - 2, start + 1)) if little else (start + 6, (start + 7, start + 10))
    return Guard(skipped(0) + skipped(256) + room, word, (1 << 56) - 1, again)


def encode(note: UsdtNote, *, little: bool) -> bytes:
    """Return one note's bytes, padded to a multiple of four. Raises UsdtNoteError."""
    order = "<" if little else ">"
    if isinstance(note, SiteNote):
        owner, type_ = SITE_OWNER, ENABLED if note.enabled else PROBE
        description = _encode_site(note, order)
    else:
        owner, type_ = PROVIDER_OWNER, PROBE
        description = _encode_provider(note, order)
    header = Struct(order + "III").pack(len(owner), len(description), type_)
    return header + _padded(owner) + _padded(description)


def _encode_site(note: SiteNote, order: str) -> bytes:
    where = f"{note.provider}:{note.probe}"
    _check_count(note.arguments, where)
    _check_names(where, (note.provider, MAX_PROVIDER), (note.probe, MAX_PROBE))
    strings = _string(note.provider) + _string(note.probe)
    operands = bytes([len(note.arguments)]) + _string(" ".join(note.arguments))
    return Struct(order + "QQ").pack(note.pc, note.function) + strings + operands


def _encode_provider(note: ProviderNote, order: str) -> bytes:
    words = [attribute.encode() for attribute in note.attributes]
    out = bytearray(_padded(_string(note.name)))
    out += Struct(order + "6I").pack(*words, len(note.probes))
    for probe in note.probes:
        out = bytearray(_padded(bytes(out)))
        where = f"{note.name}:{probe.name}"
        _check_count(probe.native, where)
        _check_count(probe.translated, where)
        types = [*probe.native, *(text for text, _ in probe.translated)]
        _check_names(where, (note.name, MAX_PROVIDER), (probe.name, MAX_PROBE), *((text, MAX_TYPE) for text in types))
        if any(not 0 <= index < len(probe.native) for _, index in probe.translated):
            raise UsdtNoteError(f"probe {where}: a translated argument comes from none of the native ones")
        out += _string(probe.name) + bytes([len(probe.native)])
        out += b"".join(_string(text) for text in probe.native) + bytes([len(probe.translated)])
        out += b"".join(_string(text) + bytes([index]) for text, index in probe.translated)
    return bytes(out)


def _check_count(items: tuple[object, ...], where: str) -> None:
    if len(items) > MAX_ARGUMENTS:
        raise UsdtNoteError(f"probe {where}: {len(items)} arguments; DTrace takes {MAX_ARGUMENTS}")


def _check_names(where: str, *names: tuple[str, int]) -> None:
    for text, limit in names:
        if "\0" in text or not 0 < len(text.encode()) <= limit:
            raise UsdtNoteError(f"probe {where}: {text[:60]!r} has not 1 to {limit} bytes, which DTrace has room for")


def _string(text: str) -> bytes:
    return text.encode() + b"\0"


def _padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % 4)


def decode(data: bytes, *, little: bool) -> list[UsdtNote]:
    """Return the notes in a section's bytes; notes of other owners are passed over. Raises UsdtNoteError."""
    header = Struct(("<" if little else ">") + "III")
    found: list[UsdtNote] = []
    offset = 0
    while offset + header.size <= len(data):
        name_size, size, type_ = header.unpack_from(data, offset)
        name = offset + header.size
        start = name + (name_size + 3 & ~3)
        if start + size > len(data):
            raise UsdtNoteError(f"note at offset {offset:#x} is {size:#x} bytes long and runs out of its section")
        owner = data[name : name + name_size]
        reader = _Reader(bytes(data[start : start + size]), "<" if little else ">", offset)
        if owner == SITE_OWNER and type_ in (PROBE, ENABLED):
            found.append(reader.site(type_ == ENABLED))
        elif owner == PROVIDER_OWNER and type_ == PROBE:
            found.append(reader.provider())
        offset = start + (size + 3 & ~3)
    return found


class _Reader:
    """Reads one note's description from front to back; anything missing is a UsdtNoteError."""

    def __init__(self, data: bytes, order: str, note: int) -> None:
        self.data, self.order, self.note, self.place = data, order, note, 0

    def numbers(self, kind: str) -> tuple[int, ...]:
        layout = Struct(self.order + kind)
        if self.place + layout.size > len(self.data):
            raise UsdtNoteError(f"note at offset {self.note:#x} ends too early")
        self.place += layout.size
        values: tuple[int, ...] = layout.unpack_from(self.data, self.place - layout.size)
        return values

    def string(self) -> str:
        end = self.data.find(b"\0", self.place)
        if end < 0:
            raise UsdtNoteError(f"note at offset {self.note:#x} has a string without end")
        text = self.data[self.place : end].decode("utf-8", "backslashreplace")
        self.place = end + 1
        return text

    def align(self) -> None:
        self.place += -self.place % 4

    def site(self, enabled: bool) -> SiteNote:
        pc, function = self.numbers("QQ")
        provider, probe = self.string(), self.string()
        (count,) = self.numbers("B")
        operands = tuple(split(self.string()))
        if len(operands) != count:
            raise UsdtNoteError(f"note at offset {self.note:#x} announces {count} arguments and has {len(operands)}")
        return SiteNote(pc, function, provider, probe, operands, enabled)

    def provider(self) -> ProviderNote:
        name = self.string()
        self.align()
        *words, count = self.numbers("6I")
        attributes = Attributes(*(Attribute(w >> 24, w >> 16 & 0xFF, w >> 8 & 0xFF) for w in words))
        return ProviderNote(name, attributes, tuple(self.probe() for _ in range(count)))

    def probe(self) -> NotedProbe:
        self.align()
        name = self.string()
        (count,) = self.numbers("B")
        native = tuple(self.string() for _ in range(count))
        (count,) = self.numbers("B")
        return NotedProbe(name, native, tuple((self.string(), self.numbers("B")[0]) for _ in range(count)))
