"""Several DOFs made one: what the runtime does in C when a module is loaded, here for tools that look at files.

Addresses are made absolute first, since a distance from a field is lost when the field moves. Probes of one name,
arguments and function become one, with all their sites: kernels would drop the second without a word.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ...model import Attributes
from . import layout
from .decode import decode_with_places
from .types import Dof, DofError, DofProbe, DofProvider


def resolve(data: bytes, address: int, base: int = 0) -> Dof:
    """Return the DOF at the start of `data` with absolute addresses, as a kernel would after relocation.

    `address` is where the DOF's first byte is in memory, `base` the load address that SETX adds. Raises DofError.
    """
    dof, places = decode_with_places(data)
    mask = (1 << 8 * dof.address_size) - 1
    providers = []
    for provider, fields in zip(dof.providers, places):
        probes = []
        for probe, field in zip(provider.probes, fields):
            shift = {layout.SETX: base, layout.DOFREL: address + field}.get(dof.relocation, 0)
            probes.append(probe._replace(address=probe.address + shift & mask))
        providers.append(provider._replace(probes=tuple(probes)))
    return dof._replace(relocation=0, providers=tuple(providers))


def merge(dofs: Sequence[Dof]) -> Dof:
    """Return one DOF with all probes of `dofs`, in a fixed order. Raises DofError if they don't go together.

    Each must hold absolute addresses (`resolve`). The result is to be relocated by nobody; its version is the lowest
    that can say everything.
    """
    if not dofs:
        raise DofError("there is no DOF to merge")
    first = dofs[0]
    for dof in dofs:
        if dof.relocation:
            raise DofError("a DOF whose addresses are still to be relocated can't be merged")
        if (dof.address_size, dof.little) != (first.address_size, first.little):
            raise DofError("DOFs of different machines can't be merged")
    enabled = {dof.version for dof in dofs if any(p.enabled_offsets for p in _probes(dof))}
    if len(enabled) > 1:
        raise DofError("is-enabled sites of versions 2 and 3 differ in what they do, and can't be merged")
    providers: dict[tuple[str, Attributes], list[DofProbe]] = {}
    for dof in dofs:
        for provider in dof.providers:
            providers.setdefault((provider.name, provider.attributes), []).extend(provider.probes)
    merged = tuple(
        DofProvider(name, attributes, _merge_probes(found)) for (name, attributes), found in sorted(providers.items())
    )
    return Dof(max(enabled, default=1), first.address_size, first.little, 0, merged)


def _probes(dof: Dof) -> Iterable[DofProbe]:
    return (probe for provider in dof.providers for probe in provider.probes)


def _merge_probes(probes: Sequence[DofProbe]) -> tuple[DofProbe, ...]:
    found: dict[tuple[object, ...], list[DofProbe]] = {}
    for probe in probes:
        signature = (probe.name, probe.native, probe.translated, probe.mapping, probe.function)
        found.setdefault(signature, []).append(probe)
    return tuple(_merge_same(same) for _, same in sorted(found.items()))


def _merge_same(same: Sequence[DofProbe]) -> DofProbe:
    """Return one probe with the sites of several functions of one name, counted from the first of them."""
    lowest = min(probe.address for probe in same)
    sites = {probe.address - lowest + offset for probe in same for offset in probe.offsets}
    enabled = {probe.address - lowest + offset for probe in same for offset in probe.enabled_offsets}
    return same[0]._replace(address=lowest, offsets=tuple(sorted(sites)), enabled_offsets=tuple(sorted(enabled)))
