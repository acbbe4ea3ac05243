"""What a traced run saw: hits with their arguments as Python values. Nothing here knows which tracer saw them."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, NamedTuple

from ...formats.operands import MEMORY
from ...provider.model import FLOAT, POINTER

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ...inspection.probes import Argument


class Field(NamedTuple):
    """How one argument is read: its name ('' where nobody gave it one), its size in bytes, and what it stands for.

    `stack` is its distance from the stack pointer, in bytes, if it lies there, at all sites alike; else -1.
    """

    name: str
    size: int
    signed: bool
    kind: str
    is_string: bool
    stack: int = -1

    def value(self, raw: int | str | float | None) -> Any:
        """Return the Python value of what a tracer read: an int for every number and pointer, str for strings."""
        if not isinstance(raw, int):
            return raw
        bits = raw & ((1 << 8 * self.size) - 1)
        if self.kind == FLOAT and self.size in (4, 8):
            return struct.unpack("<f" if self.size == 4 else "<d", bits.to_bytes(self.size, "little"))[0]
        return bits - (1 << 8 * self.size) if self.signed and bits >> (8 * self.size - 1) else bits


def field(arguments: Sequence[Argument], type_: Any) -> Field:
    """Return how an argument is read, given it at each site; `type_` is its CType, or None where the file has none."""
    argument = arguments[0]
    places = {one.operand.place._replace(text="") for one in arguments}
    place = places.pop()
    on_stack = not places and place.kind == MEMORY and place.base == "rsp" and not place.index_register
    size = argument.operand.size or 8
    kind = type_.kind if type_ is not None else "integer"
    text = bool(type_ is not None and type_.is_string)
    return Field(
        argument.name,
        size,
        argument.operand.signed and kind != POINTER,
        kind,
        text,
        place.displacement if on_stack else -1,
    )


class Traced(NamedTuple):
    """A probe that is watched, and its arguments in order."""

    provider: str
    probe: str
    fields: tuple[Field, ...]

    @property
    def name(self) -> str:
        """`provider:probe`, the probe as tracers on Linux spell it."""
        return f"{self.provider}:{self.probe}"


class Hit(NamedTuple):
    """One firing of a probe. `args` are its arguments: int, float for doubles and floats, str for C strings.

    A string is None where the pointer is NULL, and the address, an int, where it can't be read.
    """

    provider: str
    probe: str
    args: tuple[Any, ...]
    names: tuple[str, ...]

    @property
    def named(self) -> dict[str, Any]:
        """The arguments by the names that the provider file gives them."""
        return {name: value for name, value in zip(self.names, self.args) if name}


def make_hit(traced: Traced, raw: Sequence[int | str | float | None]) -> Hit:
    """Return a hit from what a tracer read."""
    values = tuple(one.value(value) for one, value in zip(traced.fields, raw))
    return Hit(traced.provider, traced.probe, values, tuple(one.name for one in traced.fields))


class UnknownProbeError(LookupError):
    """A test asks for hits of a probe that wasn't watched."""


class Hits:
    """The hits of one traced run in the order in which they came, and by probe: `hits["app:done"][0].args`."""

    def __init__(self, traced: Sequence[Traced]) -> None:
        self._traced = tuple(traced)
        self._hits: list[Hit] = []

    def extend(self, hits: Sequence[Hit]) -> None:
        """Add what a tracer saw."""
        self._hits.extend(hits)

    def __iter__(self) -> Iterator[Hit]:
        return iter(self._hits)

    def __len__(self) -> int:
        return len(self._hits)

    def __getitem__(self, name: str) -> list[Hit]:
        """Return the hits of one probe, named `provider:probe` or `probe`, with `__` or `-`.

        The list is empty if it was watched and never fired. Raises UnknownProbeError if it wasn't watched.
        """
        wanted = find(self._traced, name)
        if not wanted:
            watched = ", ".join(traced.name for traced in self._traced)
            raise UnknownProbeError(f"{name} was not watched; these were: {watched or 'none'}")
        names = {(traced.provider, traced.probe) for traced in wanted}
        return [hit for hit in self._hits if (hit.provider, hit.probe) in names]

    def count(self, name: str) -> int:
        """Return how often a probe fired."""
        return len(self[name])

    def __repr__(self) -> str:
        shown = (f"{hit.provider}:{hit.probe}({', '.join(map(repr, hit.args))})" for hit in self._hits[:20])
        more = f", and {len(self) - 20} more" if len(self) > 20 else ""
        return f"<{len(self)} hits: {', '.join(shown)}{more}>" if self._hits else "<no hits>"


def find(probes: Sequence[Traced], name: str) -> list[Traced]:
    """Return the probes that a name means: `provider:probe`, or `probe` alone; `-` is as good as `__`."""
    provider, _, probe = name.rpartition(":")
    probe = probe.replace("-", "__")
    return [one for one in probes if one.probe.replace("-", "__") == probe and provider in ("", one.provider)]
