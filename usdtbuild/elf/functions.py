"""Where a function symbol's code is, on machines where that isn't the symbol's value.

ARM marks Thumb code by bit 0; function symbols of 64-bit PowerPC's first ABI (ELFv1) are descriptors in `.opd`, whose
first word is the code's address. Which function is around an address is `elf.symbols`' business.
"""

from __future__ import annotations

from ..machines import facts_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from .image import Image


def code_address(image: Image) -> Callable[[int], int] | None:
    """Return what turns a function symbol's value into its code's address; None where they are the same."""
    known = facts_of(image.machine)
    if known and known.thumb:
        return lambda value: value & ~1
    moved = descriptors(image)
    return (lambda value: moved.get(value, value)) if moved else None


def descriptors(image: Image) -> dict[int, int]:
    """Return the code's address behind each function descriptor of a linked file."""
    found: dict[int, int] = {}
    known = facts_of(image.machine)
    if known and known.descriptors and not image.is_object:
        for section in image.sections_named(".opd"):
            content = image.content(section)
            words = image.layout.word.iter_unpack(content[: len(content) & ~7])
            for index, (value,) in enumerate(words):
                found[section.address + 8 * index] = value
    return found


def moved_by_descriptors(image: Image) -> dict[int, int]:
    """Return the same for an object, where relocations say it; both places are `section << 64 | offset`."""
    found: dict[int, int] = {}
    known = facts_of(image.machine)
    if known and known.descriptors:
        for section in image.sections_named(".opd"):
            for relocation in image.relocations(section):
                symbol = image.symbol(relocation.symbol) if relocation.type == known.descriptors else None
                if symbol is not None:
                    place = symbol.section << 64 | symbol.value + (relocation.addend or 0)
                    found[section.number << 64 | relocation.offset] = place
    return found
