"""A file's debug information: where it is, how much of it is read, and what its entries say, through pyelftools.

What is meant by it is the business of `source_lines` and `signatures`.
"""

from __future__ import annotations

from io import BytesIO
from typing import TYPE_CHECKING, Any

from elftools.elf.elffile import ELFFile

from ..elf import layout as elf
from ..elf.debug_files import DEBUG_FOLDER, debug_file, debug_files
from ..limits import COMPRESSED_DEBUG, DEFLATE_RATIO

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..elf.image import Image
    from ..elf.space import AddressSpace
    from ..files import Data

_STEPS = 4  # more of them nobody takes from an instance to what it is one of
_DEBUG = (".debug_info", ".zdebug_info")


def debug_data(image: Image, folder: str = DEBUG_FOLDER, other: bytes = b"") -> Data | None:
    """Return the content of the file that has an image's debug information: it, or its separate debug file, which is
    looked for in `folder` and beside it; or an `other` file's content, if that is one. None: there is none."""
    if _has_any(image):
        return image.data
    found = next((file.data for file in debug_files(image, folder) if _has_any(file)), None)
    if found is not None or not other:
        return found
    more = debug_file(image, other, "what the server sent")
    return more.data if more is not None and _has_any(more) else None


def _has_any(file: Image | AddressSpace) -> bool:
    return any(s.name in _DEBUG and s.type != elf.SHT_NOBITS and s.size for s in file.sections)


def opened(content: Data, most: int = 0) -> Any:
    """Return the debug information in a file's content; `most`: bytes of it that may be read. Raises ValueError for too
    much of it, and anything for what is damaged."""
    stream: Any = BytesIO(content) if isinstance(content, bytes) else content
    file = ELFFile(stream)
    _check_size(file, most)
    return file.get_dwarf_info(follow_links=False)


def why_unread(error: Exception) -> str:
    """Return the part of a message that says why debug information can't be read."""
    detail = next(iter(str(error).splitlines()), "")[:80]
    if " " not in detail:  # a key that something hasn't got
        detail = f"{type(error).__name__} {detail}".rstrip()
    return f"its debug information can't be read ({detail})"


def _check_size(file: ELFFile, most: int) -> None:
    """Raise ValueError if the debug sections are too large, or would become so when they are decompressed."""
    total = whole = 0
    for section in file.iter_sections():
        if section.name.startswith(".zdebug_"):  # GNU's old form says how large it is, and may lie
            total += section["sh_size"] * DEFLATE_RATIO
        elif section.name.startswith(".debug_") and section.compressed:
            total += section.data_size
        elif section.name.startswith(".debug_"):
            whole += section["sh_size"]
    if total > COMPRESSED_DEBUG:
        raise ValueError(f"decompressed, more than {COMPRESSED_DEBUG >> 20} MB: objcopy --decompress-debug-sections")

    if most and whole > most:
        raise ValueError(f"it has {whole >> 20} MB, and at most {most >> 20} MB are read")


def forget(unit: Any) -> None:
    """Let go of a unit's DIEs: pyelftools keeps each it has read, which in a large program is gigabytes."""
    for kept in ("_dielist", "_diemap"):
        getattr(unit, kept, []).clear()


def ranges(dwarf: Any, unit: Any, die: Any, base: int) -> list[tuple[int, int]] | None:
    """Return the [start, end) that a DIE says it covers; None if it says nothing (DWARF 5, 2.17).

    `base` is what offsets of range lists count from: the unit's low_pc.
    """
    attributes = die.attributes
    low = attributes.get("DW_AT_low_pc")
    if "DW_AT_ranges" in attributes:
        lists = dwarf.range_lists()
        if lists is None:
            return None
        start = base
        covered = []
        for entry in lists.get_range_list_at_offset(attributes["DW_AT_ranges"].value, unit):
            if hasattr(entry, "base_address"):
                start = entry.base_address
            else:
                shift = 0 if entry.is_absolute else start
                covered.append((entry.begin_offset + shift, entry.end_offset + shift))
        return covered
    high = attributes.get("DW_AT_high_pc")
    if low is None or high is None:
        return None
    end = high.value if high.form.startswith("DW_FORM_addr") else low.value + high.value
    return [(low.value, end)]


def origins(die: Any) -> Iterator[Any]:
    """Yield a DIE, and what it is an instance of: a concrete function, the abstract one, its declaration."""
    for _ in range(_STEPS):
        yield die
        key = next((key for key in ("DW_AT_abstract_origin", "DW_AT_specification") if key in die.attributes), "")
        if not key:
            return
        die = die.get_DIE_from_attribute(key)
    yield die


def low_address(die: Any) -> int:
    """Return where the code of a DIE begins, 0 if it says nothing."""
    low = die.attributes.get("DW_AT_low_pc")
    return int(low.value) if low is not None else 0


def number(die: Any, key: str) -> int | None:
    """Return a number that a DIE has, None if it hasn't."""
    attribute = die.attributes.get(key)
    return attribute.value if attribute is not None and isinstance(attribute.value, int) else None


def text(die: Any, key: str) -> str:
    """Return a text that a DIE has, '' if it hasn't."""
    attribute = die.attributes.get(key)
    return decoded(attribute.value) if attribute is not None and isinstance(attribute.value, bytes) else ""


def decoded(text: bytes) -> str:
    """Return a text of debug information."""
    return text.decode("utf-8", "backslashreplace")
