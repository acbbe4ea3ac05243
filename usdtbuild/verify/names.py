"""Checks of names and of the provider's description that a file carries."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ..inspection import probes as look
from ..inspection import tracers
from ..model import dashed
from ..provider import describe
from .report import ERROR, NOTE, WARNING, Finding, FoundAt, Gathered, Subject, section_place, site_place

_C_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def _names(subject: Subject) -> Iterator[Finding]:
    """Names that perf, or the kernel's trace events behind it, can't take."""
    gathered = Gathered("name", WARNING, "use letters, digits and underscores, and shorter names")
    for probe in subject.seen.probes:
        if probe.format != "stapsdt":
            continue
        place = site_place(subject, probe.sites[0].record)
        if not probe.name or not probe.provider:
            gathered.add("a provider or probe has no name: libbpf refuses the file", place, severity=ERROR)
            continue
        for word, text, limit in (
            ("provider", probe.provider, tracers.PERF_PROVIDER_NAME),
            ("probe", probe.name, tracers.PERF_PROBE_NAME),
        ):
            if not _C_NAME.fullmatch(text):
                gathered.add(
                    f"perf can add no probe of the file: the {word}'s name `{text[:80]}` is no C identifier", place
                )
            elif len(text) > limit:
                gathered.add(f"the {word}'s name has {len(text)} letters, and perf takes {limit}", place)
    yield from gathered


def _descriptions(subject: Subject) -> Iterator[Finding]:
    """The provider's description that the file carries, if it does: is it whole, and one, and used?"""
    section = next(iter(subject.image.sections_named(describe.SECTION)), None)
    if section is None:
        return
    place = section_place(section)
    if subject.seen.problem:
        what = f"the description of its providers can't be read ({subject.seen.problem})"
        yield Finding("description", WARNING, what, (place,), "make the headers again, all with one usdtbuild")
        return
    for name, differing in describe.conflicts(look.description_text(subject.image)).items():
        what = f"holds two versions of provider {name} ({_some(differing)}): some objects had another header"
        yield Finding(
            "description-conflict", WARNING, what, (place,), "compile everything that includes the header again"
        )
    if subject.image.is_object:  # which object calls which probe is nobody's business
        return
    gathered = Gathered("no-site", NOTE, "nothing needs to be done if another file of the program calls it")
    present = {(probe.provider, dashed(probe.name)) for probe in subject.seen.probes}
    for name, (provider, _) in subject.seen.providers.items():
        for probe in provider.probes:
            if (name, probe.name) not in present and name not in subject.expected:
                place = FoundAt(f"{name}:{probe.written}", "", None, "", 0)
                gathered.add("declared, and not called in this file", place)
    yield from gathered


def _some(words: tuple[str, ...]) -> str:
    return ", ".join(words[:3]) + (f" and {len(words) - 3} more" if len(words) > 3 else "")


CHECKS = (_names, _descriptions)
