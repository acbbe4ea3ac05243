"""Notes that aren't loaded, and linkers that keep them when they drop the code: how such a note takes itself back.

bfd and lld drop a record section with its code. gold and mold don't; there a relocation against the code's address,
which becomes 0, makes of the note one that every reader passes over.
"""

from __future__ import annotations

from ..elf.edit import NewRelocation
from ..formats import stapsdt

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Literal

    from ..machines.calls import ProbeCalls
    from .context import Context

    # A relocation of a note's owner: offset in the note, type, which symbol it is against, and addend.
    Owner = tuple[int, int, int, int]

CODE, ZERO, NO_SYMBOL = 0, 1, 2  # symbols: the code's, one whose value is 0 (`Context.zero_symbol`), none


def void_if_dropped(machine: ProbeCalls, note: bytes, *, little: bool) -> list[Owner]:
    """Return relocations that give a note another owner if the linker drops the code that it describes.

    gold and mold keep notes that aren't loaded, whatever becomes of the code; the code's symbol is 0 then. A note
    at a small address spoils the whole file for perf and the probe for libbpf, while notes of other owners are
    passed over by every reader. (Of another type they aren't: perf stops reading there.) So the address is added
    to `'s' << 56`, less one, in an eight-byte word whose top byte is the first letter of the owner: any address
    from 1 on carries into it, 0 doesn't, and the owner is "rtapsdt". The seven bytes that this spoils are then
    written again, by relocations without a symbol. They come after it in file order and in the order of offsets,
    because bfd sorts relocations (stably) when it links with -r.
    """
    if machine.absolute32 is None:
        return []
    owner = stapsdt.HEADER_SIZE - len(stapsdt.OWNER)
    order: Literal["little", "big"] = "little" if little else "big"
    word, again = (owner - 7, (owner - 7, owner - 4)) if little else (owner, (owner + 1, owner + 4))
    test = (word, machine.absolute, CODE, (stapsdt.OWNER[0] << 56) - 1)
    end = [(word, machine.none, NO_SYMBOL, 0)] if machine.chains else []
    values = [(offset, int.from_bytes(note[offset : offset + 4], order)) for offset in again]
    return [test, *end, *((offset, machine.absolute32, ZERO, value) for offset, value in values)]


def hide_if_dropped(context: Context, size: int, code: int) -> tuple[bytes, list[NewRelocation]] | None:
    """Return bytes to put before `size` bytes of notes, with relocations, so that they vanish with their code.

    See `void_if_dropped` for why, and `usdt_note.guard` for how.
    """
    from ..formats import usdt_note

    type32 = context.machine.absolute32
    if type32 is None:
        return None
    order: Literal["little", "big"] = "little" if context.source.layout.little else "big"
    guard = usdt_note.guard(size, little=order == "little")
    relocations = [NewRelocation(guard.word, context.machine.absolute, code, guard.addend)]
    if context.machine.chains:
        relocations.append(NewRelocation(guard.word, context.machine.none, 0, 0))
    for offset in guard.again:
        value = int.from_bytes(guard.data[offset : offset + 4], order)
        relocations.append(NewRelocation(offset, type32, context.zero_symbol(), value))
    return guard.data, relocations
