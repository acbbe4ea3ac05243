"""Text from outside, made fit to be shown to people: the one place that decides what may reach a terminal.

Names in binaries, paths, and what other programs say can hold anything, also what a terminal takes for commands. So
whatever is shown goes through `shown`, as late as possible. `commands.say` prints with it, and a test keeps all other
modules from printing by themselves.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


class _Spelled(dict[int, str]):
    """For `str.translate`: how a character is shown, found out when it first comes."""

    def __missing__(self, number: int) -> str:
        self[number] = found = _spelled(number)
        return found


def _spelled(number: int) -> str:
    character = chr(number)
    if character.isprintable() or character in "\n\t":
        return character
    if 0xDC80 <= number <= 0xDCFF:  # a byte of a file's name, as Python has it
        return f"\\x{number & 0xFF:02x}"
    if number < 0x100:
        return f"\\x{number:02x}"
    return f"\\u{number:04x}" if number < 0x10000 else f"\\U{number:08x}"


_SPELLED = _Spelled()


def shown(text: str) -> str:
    """Return a text in which every character that isn't printable is escaped: `\\x1b`, `\\u202e`.

    Newlines and tabs stay. A byte that is no UTF-8 comes out as `\\xff`. JSON stays
    as it is, because its own escapes are ASCII.
    """
    return text.translate(_SPELLED)


def one_line(text: str | bytes) -> str:
    """Return the same without newlines and tabs, which come out as `\\n` and `\\t`."""
    if isinstance(text, bytes):
        text = text.decode("utf-8", "backslashreplace")
    return shown(text).replace("\n", "\\n").replace("\t", "\\t")


def plural(count: int, word: str) -> str:
    """Return a number of what `word` names."""
    return f"{count} {word}{'' if count == 1 else 's'}"


def few(names: Sequence[str], most: int) -> str:
    """Return the first names, and how many more there are."""
    more = f" and {len(names) - most:,} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


ELLIPSIS = "…"


def elide(text: str, width: int) -> str:
    """Return `text` with its middle left out, if it is longer than `width` characters (3 or more)."""
    if len(text) <= width:
        return text
    tail = (width - 1) // 2
    return text[: width - 1 - tail] + ELLIPSIS + text[len(text) - tail :]


def diff(old: str, new: str, old_path: str, new_path: str) -> Iterator[str]:
    """Yield the lines of a unified diff, each with its end, as patch takes them."""
    from difflib import unified_diff

    for line in unified_diff(_lines(old), _lines(new), old_path, new_path):
        yield line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n"


def _lines(text: str) -> list[str]:
    """Lines with their ends; only a line feed ends one, as for patch."""
    found = text.split("\n")
    return [f"{line}\n" for line in found[:-1]] + ([found[-1]] if found[-1] else [])
