"""What a `g` packet holds: a machine's registers one behind the other, as the server describes them or gdb has them.

A server describes its registers in XML (gdb's manual, "Target Descriptions"); those that don't have the order that gdb
had before there were descriptions, which is one of the machine's facts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from ...limits import ANNEXES, REGISTER_SIZE, REGISTERS
from ...machines.facts import Stopped
from ..errors import TracerError

_DEEPEST = 8  # includes within includes


class Register(NamedTuple):
    """One register: its number in packets, where it is in a `g` packet, and its size, both in bytes."""

    number: int
    offset: int
    size: int


def described(read: Callable[[str], str]) -> dict[str, Register]:
    """Return the registers of a server's description, by name; `read` returns an annex of it, '' where there is none.

    Raises TracerError for a description that is none.
    """
    from xml.parsers import expat

    found: list[tuple[int, str, int]] = []
    read_so_far: list[str] = []

    def add(annex: str, depth: int) -> None:
        read_so_far.append(annex)
        if depth > _DEEPEST or len(read_so_far) > ANNEXES:
            return
        text = read(annex)
        if not text:
            return
        # Servers don't declare the namespace of their `xi:include`, so namespaces are not looked at.
        parser = expat.ParserCreate()

        def element(tag: str, values: dict[str, str]) -> None:
            kind = tag.rpartition(":")[2]
            if kind == "include":
                add(values.get("href", ""), depth + 1)
            elif kind == "reg":
                number = int(values.get("regnum") or (found[-1][0] + 1 if found else 0))
                size = int(values.get("bitsize", "0")) // 8
                if not 0 <= size <= REGISTER_SIZE or not 0 <= number <= REGISTERS or len(found) > REGISTERS:
                    raise ValueError(number)
                found.append((number, values.get("name", ""), size))

        def entity(*_: object) -> None:
            raise ValueError("entities")  # none is needed, and they can be made to grow without end

        parser.StartElementHandler, parser.EntityDeclHandler = element, entity
        parser.Parse(text, True)

    try:
        add("target.xml", 0)
    except (expat.ExpatError, ValueError):
        raise TracerError("the server's description of its registers can't be read") from None
    registers, offset = {}, 0
    for number, name, size in sorted(found):
        registers[name] = Register(number, offset, size)
        offset += size
    return registers


def usual(stopped: Stopped, size: int) -> dict[str, Register]:
    """Return the registers of a `g` packet of `size` bytes that nobody describes. Raises TracerError."""
    fitting = [one for one in stopped.layouts if sum(bytes_ for _, bytes_ in one) <= size]
    if not fitting:
        raise TracerError("the server doesn't say which registers the program's machine has")
    registers, offset = {}, 0
    for number, (name, bytes_) in enumerate(max(fitting, key=lambda one: sum(bytes_ for _, bytes_ in one))):
        registers[name] = Register(number, offset, bytes_)
        offset += bytes_
    return registers


class Registers:
    """The registers of a stopped thread."""

    def __init__(
        self, known: Mapping[str, Register], raw: bytes, *, little: bool, more: Callable[[int], bytes | None]
    ) -> None:
        """`raw` is the `g` packet; `more` asks for a register that isn't in it by its number."""
        self._known, self._raw, self._more = known, raw, more
        self._order = "little" if little else "big"

    def get(self, name: str) -> int | None:
        """Return a register, as an unsigned number; None where it can't be had."""
        register = self._known.get(name)
        if register is None:
            return None
        content: bytes | None = self._raw[register.offset : register.offset + register.size]
        if content is None or len(content) < register.size:
            content = self._more(register.number)
        return int.from_bytes(content, self._order) if content else None  # type: ignore[arg-type]
