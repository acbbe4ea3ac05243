"""The table of sites in the loaded image (`--site-table`): what a program reads of itself where its file can't be read.

SDT notes aren't loaded. The table is: section `.usdtbuild.sites`, read-only, with nothing in it that a dynamic linker
must change, because places are distances from where they stand. Every object's part is a chunk, in the machine's byte
order, a multiple of four bytes, and linkers put chunks one behind another:

    0   4  HEAD
    4   4  bytes of the chunk
    8   4  number of entries
    12  8  an entry: the distance from its first byte to the place, and where in the chunk its texts begin,
           with the top bit set where the place is a semaphore and no site
        n  texts, each ended by NUL: provider, name, and of a site its operands as in a note, then its arguments as in
           a provider's description (`s4|int|id;...`); NULs to a multiple of four
        4  bytes of the chunk
        4  FOOT

So from any chunk one finds those before and behind it. Section headers aren't loaded either: the way to the first is a
note, `.note.usdtbuild`, owner "usdtbuild", type 1, whose four bytes are the distance from them to a chunk. There may be
zero bytes between chunks.
"""

from __future__ import annotations

from ..record import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Literal

SECTION, NOTE_SECTION = ".usdtbuild.sites", ".note.usdtbuild"
NOTE_OWNER, NOTE_TYPE = b"usdtbuild\0", 1
NOTE_FIELD = 24  # where in the note the distance is
HEAD, FOOT = int.from_bytes(b"USi1", "little"), int.from_bytes(b"1iSU", "little")
FIRST, ENTRY = 12, 8  # where the first entry is, and the size of one
_SEMAPHORE = 1 << 31


class SiteTableError(ValueError):
    """The bytes are no chunks of a table."""


class TableRow(NamedTuple):
    """A site, or with `is_semaphore` a probe's semaphore, whose texts are the first two. `place` is its address."""

    place: int
    provider: str
    name: str
    operands: str = ""
    arguments: str = ""
    is_semaphore: bool = False


def encode(entries: Sequence[TableRow], *, little: bool) -> bytes:
    """Return a chunk. The entries' places are left 0; entry i has its at FIRST + ENTRY * i."""
    order: Literal["little", "big"] = "little" if little else "big"
    texts: dict[bytes, int] = {}
    fields = bytearray()
    end = FIRST + ENTRY * len(entries)
    for entry in entries:
        words = (entry.provider, entry.name, *(() if entry.is_semaphore else (entry.operands, entry.arguments)))
        text = b"".join(word.encode("utf-8", "surrogateescape") + b"\0" for word in words)
        if text not in texts:
            texts[text] = end
            end += len(text)
        fields += bytes(4) + (texts[text] | (_SEMAPHORE if entry.is_semaphore else 0)).to_bytes(4, order)
    size = (end + 3) // 4 * 4 + 8
    head = b"".join(number.to_bytes(4, order) for number in (HEAD, size, len(entries)))
    foot = b"".join(number.to_bytes(4, order) for number in (size, FOOT))
    return (head + fields + b"".join(texts)).ljust(size - 8, b"\0") + foot


def encode_note(*, little: bool) -> bytes:
    """Return the note that leads to the table, its distance 0."""
    order: Literal["little", "big"] = "little" if little else "big"
    numbers = b"".join(number.to_bytes(4, order) for number in (len(NOTE_OWNER), 4, NOTE_TYPE))
    return (numbers + NOTE_OWNER).ljust(NOTE_FIELD + 4, b"\0")


def decode(data: bytes, address: int, *, little: bool) -> list[TableRow]:
    """Return the entries of a linked section that lies at `address`. Raises SiteTableError."""
    return [entry for start, size in _chunks(data, little) for entry in _entries(data, address, start, size, little)]


def _chunks(data: bytes, little: bool) -> Iterator[tuple[int, int]]:
    order: Literal["little", "big"] = "little" if little else "big"
    at = 0
    while at + FIRST + 8 <= len(data):
        if data[at : at + 4] == bytes(4):
            at += 4
            continue
        head, size = (int.from_bytes(data[at + i : at + i + 4], order) for i in (0, 4))
        if head != HEAD or size % 4 or size < FIRST + 8 or size > len(data) - at:
            raise SiteTableError(f"no chunk begins at {at:#x}")
        foot = [int.from_bytes(data[at + size - i : at + size - i + 4], order) for i in (8, 4)]
        if foot != [size, FOOT]:
            raise SiteTableError(f"the chunk at {at:#x} doesn't end where it says")
        yield at, size
        at += size


def _entries(data: bytes, address: int, start: int, size: int, little: bool) -> Iterator[TableRow]:
    order: Literal["little", "big"] = "little" if little else "big"
    count = int.from_bytes(data[start + 8 : start + FIRST], order)
    if count > (size - FIRST - 8) // ENTRY:
        raise SiteTableError(f"the chunk at {start:#x} has no room for {count} entries")
    for at in range(start + FIRST, start + FIRST + ENTRY * count, ENTRY):
        distance = int.from_bytes(data[at : at + 4], order, signed=True)
        text = int.from_bytes(data[at + 4 : at + 8], order)
        is_semaphore, text = bool(text & _SEMAPHORE), text & ~_SEMAPHORE
        words = bytes(data[start + text : start + size - 8]).split(b"\0", 4)[: 2 if is_semaphore else 4]
        if text >= size - 8 or len(words) < (2 if is_semaphore else 4):
            raise SiteTableError(f"the entry at {at:#x} has no texts")
        provider, name, *more = (word.decode("utf-8", "surrogateescape") for word in words)
        operands, arguments = more or ("", "")
        yield TableRow(address + at + distance, provider, name, operands, arguments, is_semaphore)
