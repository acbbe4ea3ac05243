"""What an object is instrumented for: the choices of a caller, the target system, and the formats its tracers read."""

from __future__ import annotations

import sys

from ..elf import layout as elf
from ..elf.object import ElfObject
from ..errors import UsdtError
from ..model import Provider
from ..options import FORMATS, SAFE, SYSTEMS
from ..provider import describe
from ..record import NamedTuple
from . import sites


class Options(NamedTuple):
    """What a caller may choose. `providers` are known besides those that the object itself describes.

    `formats` are the records to write; none means what the tracers of the target system read. `target_os` is one of
    SYSTEMS, or '' for what the object says of itself. `keep_calls` leaves calls as they are, and defines their stubs.
    `site_table` writes the loaded table of sites beside the records.
    """

    nop: str = SAFE
    formats: tuple[str, ...] = ()
    providers: tuple[Provider, ...] = ()
    target_os: str = ""
    keep_calls: bool = False
    site_table: bool = False


# The objects of FreeBSD and illumos name their system (EI_OSABI).
_SYSTEM_OF = {elf.ELFOSABI_FREEBSD: "freebsd", elf.ELFOSABI_SOLARIS: "illumos"}
# The same by the beginning of `sys.platform`.
_SYSTEM_OF_HOST = {"freebsd": "freebsd", "sunos": "illumos"}
DEFAULTS = Options()
_MOST_KNOWN = 16
# The latest, by what objects say and by options: most of a project's objects say the same.
_known: dict[tuple[tuple[bytes, ...], tuple[Provider, ...]], sites.Known] = {}
_filled: list[tuple[Options, int, Options]] = []  # the latest options, the system that an object named, what they give


def system_of(osabi: int) -> str:
    """Return the system that an object is for, by its EI_OSABI, or, where that says nothing, the one this runs on.

    GNU's assembler says nothing when it writes for illumos, or for FreeBSD on other machines than x86.
    """
    if osabi != elf.ELFOSABI_NONE:
        return _SYSTEM_OF.get(osabi, "linux")
    return next((system for name, system in _SYSTEM_OF_HOST.items() if sys.platform.startswith(name)), "linux")


def with_target(source: ElfObject, options: Options) -> Options:
    """Return the options with target system and formats filled in. Raises UsdtError on what doesn't go together."""
    for given, osabi, filled in _filled:
        if given is options and osabi == source.osabi:
            return filled
    filled = _fill(options, source.osabi)
    _filled[:] = [(options, source.osabi, filled)]
    return filled


def _fill(options: Options, osabi: int) -> Options:
    system = options.target_os or system_of(osabi)
    if system not in SYSTEMS:
        raise UsdtError(f"target system {system} is unknown; there are {', '.join(SYSTEMS)}")
    formats = options.formats or SYSTEMS[system]
    unknown = [name for name in formats if name not in FORMATS]
    if unknown:
        raise UsdtError(f"{unknown[0]} is no record format; there are {', '.join(FORMATS)}")
    ordered = tuple(name for name in FORMATS if name in formats)
    return options._replace(formats=ordered, target_os=system)


def known_providers(source: ElfObject, options: Options) -> sites.Known:
    """Return the providers that the object describes and those of the options. Raises UsdtError."""
    key = (sites.described(source), options.providers)
    if key not in _known:
        if len(_known) >= _MOST_KNOWN:
            _known.clear()
        text = sites.description(source)
        _known[key] = sites.Known(_joined(source, text, options), describe.marked(text, describe.BRANCH))
    return _known[key]


def _joined(source: ElfObject, text: str, options: Options) -> dict[str, Provider]:
    try:
        described = describe.decode(text)
    except describe.DescriptionError as error:
        raise UsdtError(f"{source.path}: section {describe.SECTION}: {error}; make the header again") from None
    providers = {name: provider for name, (provider, _) in described.items()}
    if options.providers:
        from ..provider.join import join_all

        providers, _ = join_all([*providers.values(), *options.providers])
    return providers
