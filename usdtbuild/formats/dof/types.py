"""What a DOF says, as records: providers, their probes, and where in which function each probe is."""

from __future__ import annotations

from typing import NamedTuple

from ...errors import UsdtError
from ...model import Attributes


class DofError(UsdtError):
    """The bytes are no DOF that could be read, or the records none that could be written."""


class DofProbe(NamedTuple):
    """One probe in one function.

    `address` is the function's; `offsets` are the sites' and `enabled_offsets` the is-enabled sites' distances from
    it, in bytes. `native` are the argument types as the program passes them, `translated` as consumers see them, and
    `mapping[i]` is the native index that translated argument `i` comes from.
    """

    function: str
    name: str
    native: tuple[str, ...]
    translated: tuple[str, ...]
    mapping: tuple[int, ...]
    offsets: tuple[int, ...]
    enabled_offsets: tuple[int, ...] = ()
    address: int = 0


class DofProvider(NamedTuple):
    """A provider, its stability attributes, and its probes."""

    name: str
    attributes: Attributes
    probes: tuple[DofProbe, ...]


class Dof(NamedTuple):
    """One DOF. `relocation` is what its address fields need when loaded: SETX, DOFREL, or 0 for nothing."""

    version: int
    address_size: int
    little: bool
    relocation: int
    providers: tuple[DofProvider, ...]


class AddressField(NamedTuple):
    """Where in the encoded bytes the address of a probe's function stands (8 bytes), for an ELF writer to relocate."""

    offset: int
    provider: int
    probe: int


class OffsetField(NamedTuple):
    """Where a site's offset stands (4 bytes), for machines on which a linker may still move the code."""

    offset: int
    provider: int
    probe: int
    number: int
    enabled: bool


class Encoded(NamedTuple):
    """A DOF as bytes, a multiple of eight long, and the places in it that an object file's relocations fill in."""

    data: bytes
    addresses: tuple[AddressField, ...]
    offsets: tuple[OffsetField, ...]
