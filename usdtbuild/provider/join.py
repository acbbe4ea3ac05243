"""One provider that several files declare in parts becomes one: who says more wins, who says otherwise is named.

Large programs have a provider file in each directory, all of one provider, and each with the probes of its directory.
Parts may overlap: what one leaves open (an argument's name, the attributes) another may say. Only what can't both be
true is a contradiction. Knows records, not files or messages.
"""

from __future__ import annotations

from ..model import DEFAULT_ATTRIBUTE, Argument, Attributes, Probe, Provider

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable


def join(first: Provider, second: Provider) -> tuple[Provider, tuple[str, ...]]:
    """Return two parts of a provider as one, and in words what they contradict each other in; there `first` wins.

    Probes keep the order in which they were first named.
    """
    probes = {probe.name: probe for probe in first.probes}
    differing: list[str] = []
    for probe in second.probes:
        known = probes.get(probe.name)
        joined = probe if known is None else _join_probes(known, probe)
        if joined is None:
            differing.append(f"probe {probe.written}")
        else:
            probes[probe.name] = joined
    triples = []
    for field, one, other in zip(Attributes._fields, first.attributes, second.attributes):
        if one != other and DEFAULT_ATTRIBUTE not in (one, other):
            differing.append(f"the attributes of its {field}")
        triples.append(other if one == DEFAULT_ATTRIBUTE else one)
    comment = first.comment or second.comment
    return Provider(first.name, tuple(probes.values()), Attributes(*triples), comment), tuple(differing)


def join_all(parts: Iterable[Provider]) -> tuple[dict[str, Provider], dict[str, tuple[str, ...]]]:
    """Return name -> provider, of all parts together, and name -> contradictions, where there are any."""
    providers: dict[str, Provider] = {}
    differing: dict[str, tuple[str, ...]] = {}
    for part in parts:
        known = providers.get(part.name)
        if known is None:
            providers[part.name] = part
        elif known != part:
            providers[part.name], found = join(known, part)
            if found:
                differing[part.name] = tuple(dict.fromkeys((*differing.get(part.name, ()), *found)))
    return providers, differing


def _join_probes(one: Probe, other: Probe) -> Probe | None:
    """Return what two declarations of a probe say together; None if they can't both be true."""
    if len(one.arguments) != len(other.arguments):
        return None
    if one.translated != other.translated and None not in (one.translated, other.translated):
        return None
    arguments = []
    for mine, its in zip(one.arguments, other.arguments):
        same = mine.type._replace(parameter="") == its.type._replace(parameter="")
        if not same or (mine.name != its.name and mine.name and its.name):
            return None
        arguments.append(Argument(mine.type, mine.name or its.name))
    translated = other.translated if one.translated is None else one.translated
    return Probe(one.written, tuple(arguments), translated, one.comment or other.comment)
