"""What a provider file says, as frozen records: provider, probes, arguments, types, stability attributes.

The parser makes these, the header and documentation generators print them, and `describe` carries them through the
compiler into the object, where `instrument` reads them back. Nothing here knows D syntax or ELF.

The records are NamedTuples and not dataclasses because importing `dataclasses` costs 15 ms, more than parsing a
provider of fifty probes, and every compilation of a file with probes pays for it.
"""

from __future__ import annotations

from .record import NamedTuple

INTEGER, POINTER, FLOAT, STRUCT = "integer", "pointer", "float", "struct"


class CType(NamedTuple):
    """A C argument type, resolved as far as tracers care.

    `spelling` is what the provider file wrote, with single spaces; `kind` is one of INTEGER, POINTER, FLOAT, STRUCT;
    `size64` and `size32` are its sizes in bytes under LP64 and ILP32. Pointers to char, `string` included, have
    `is_string`. `parameter` is the C type that the generated header takes for it, with typedefs resolved; it is
    known only where the provider file was read, since descriptions in objects don't carry it.
    """

    spelling: str
    kind: str
    signed: bool
    size64: int
    size32: int
    is_string: bool = False
    parameter: str = ""

    def size(self, address_size: int) -> int:
        """Bytes this type takes where addresses have `address_size` (4 or 8) bytes."""
        return self.size64 if address_size == 8 else self.size32


class Argument(NamedTuple):
    """One native argument of a probe: its type and its name ('' where the file gives none)."""

    type: CType
    name: str


class Translated(NamedTuple):
    """One translated argument: what a consumer sees, and the index (0-based) of the native argument it comes from."""

    type: str
    name: str
    native: int


class Attribute(NamedTuple):
    """Name stability, data stability and dependency class, as numbers of the DOF encoding (docs/formats/dof.md)."""

    name: int
    data: int
    dependency: int

    def encode(self) -> int:
        """Return the 32-bit DOF form: name<<24 | data<<16 | class<<8."""
        return self.name << 24 | self.data << 16 | self.dependency << 8


# Unstable/Unstable/Common, what a file without `#pragma D attributes` means: 0x04040500.
DEFAULT_ATTRIBUTE = Attribute(4, 4, 5)


class Attributes(NamedTuple):
    """The five attribute triples of a provider, in the order every record format keeps them."""

    provider: Attribute = DEFAULT_ATTRIBUTE
    module: Attribute = DEFAULT_ATTRIBUTE
    function: Attribute = DEFAULT_ATTRIBUTE
    name: Attribute = DEFAULT_ATTRIBUTE
    args: Attribute = DEFAULT_ATTRIBUTE


class Probe(NamedTuple):
    """One probe: `written` is its name in the file (`req__done`), `name` the one that DTrace shows (`req-done`)."""

    written: str
    arguments: tuple[Argument, ...]
    translated: tuple[Translated, ...] | None = None
    comment: str = ""

    @property
    def name(self) -> str:
        """The name that DTrace shows."""
        return dashed(self.written)

    @property
    def sdt_name(self) -> str:
        """The name in SDT notes: as written, as sys/sdt.h has it. perf takes no name that isn't a C identifier."""
        return self.written


class Provider(NamedTuple):
    """A provider: its name, its probes in file order, and its stability attributes."""

    name: str
    probes: tuple[Probe, ...]
    attributes: Attributes = Attributes()
    comment: str = ""

    def bare(self) -> Provider:
        """Return the provider without what only its file knows (comments, C parameter types): what objects carry."""
        probes = tuple(probe._replace(arguments=_bare(probe.arguments), comment="") for probe in self.probes)
        return self._replace(probes=probes, comment="")


def dashed(name: str) -> str:
    """Return a probe's name as DTrace shows it, in which records of all formats agree: every `__` is a `-`."""
    return name.replace("__", "-")


def unfit_for_dtrace(provider: str) -> str:
    """Return why DTrace can't show a provider of this name, which readers of SDT notes can, and what to do; or ''."""
    if not provider[-1].isdigit():
        return ""
    cure = "give it another name, or write SDT notes only (--formats=stapsdt)"
    return f"provider name '{provider}' ends in a digit, where DTrace puts the process number; {cure}"


def macro_name(provider: str, written: str) -> str:
    """Return the macro of a probe as `dtrace -h` spells it: upper case, one underscore for two."""
    return f"{provider}_{written.replace('__', '_')}".upper()


def _bare(arguments: tuple[Argument, ...]) -> tuple[Argument, ...]:
    return tuple(argument._replace(type=argument.type._replace(parameter="")) for argument in arguments)
