"""Stability: the words for it, the attributes that pragmas give to providers, and how an attribute is written.

Needed only where a file has pragmas, or attributes are shown.
"""

from __future__ import annotations

from ..model import Attribute, Attributes, Provider
from .diagnostics import Reports
from .lexer import Pragma

_STABILITY = ("internal", "private", "obsolete", "external", "unstable", "evolving", "stable", "standard")
_CLASSES = ("unknown", "cpu", "platform", "group", "isa", "common")


def attribute_text(attribute: Attribute) -> str:
    """Return an attribute as the language writes it: `Evolving/Evolving/Common`."""
    dependency = _CLASSES[attribute.dependency]
    shown = dependency.upper() if dependency in ("cpu", "isa") else dependency.capitalize()
    return f"{_STABILITY[attribute.name].capitalize()}/{_STABILITY[attribute.data].capitalize()}/{shown}"


def apply(pragma: Pragma, found: dict[str, Provider], reports: Reports) -> None:
    """Apply a `#pragma D attributes N/D/C provider NAME PART`; other pragmas have no meaning here."""
    words, offsets = _without_blanks(pragma, reports)
    if [word.lower() for word in words[:2]] != ["d", "attributes"]:
        return
    attribute = _attribute(words[2], offsets[2], reports) if len(words) > 2 else None
    if len(words) == 4 or (len(words) > 2 and attribute is None):
        return  # attributes of a D variable or translator, or reported already
    if len(words) != 6 or words[3].lower() != "provider" or attribute is None:
        reports.report(pragma.offset, "expected '#pragma D attributes NAME/DATA/CLASS provider PROVIDER PART'")
        return
    name, part = words[4], words[5].lower()
    if part not in Attributes._fields:
        parts = ", ".join(Attributes._fields)
        reports.report(offsets[5], f"'{words[5][:40]}' is no part of a provider; the parts are {parts}")
    elif name not in found:
        reports.report(offsets[4], f"no provider '{name[:80]}' is declared in this file")
    else:
        attributes = found[name].attributes._replace(**{part: attribute})
        found[name] = found[name]._replace(attributes=attributes)


def _without_blanks(pragma: Pragma, reports: Reports) -> tuple[list[str], list[int]]:
    """Return a pragma's words, and where they are; `Evolving / Evolving` becomes one if that is tolerated."""
    words, offsets = list(pragma.words), list(pragma.offsets)
    if not reports.forgiving or [word.lower() for word in words[:2]] != ["d", "attributes"]:
        return words, offsets
    at = 3
    while at < len(words):
        if words[at].startswith("/") or words[at - 1].endswith("/"):
            words[at - 1 : at + 1] = [words[at - 1] + words[at]]
            del offsets[at]
        else:
            at += 1
    if len(words) != len(pragma.words):
        reports.tolerate(offsets[2], "an attribute has no blanks in it", f"read as {words[2][:80]}")
    return words, offsets


def _attribute(text: str, offset: int, reports: Reports) -> Attribute | None:
    words = text.lower().split("/")
    if len(words) != 3:
        reports.report(offset, f"'{text[:80]}' is no attribute; write NAME/DATA/CLASS, as in Evolving/Evolving/Common")
        return None
    for word, known, what in zip(words, (_STABILITY, _STABILITY, _CLASSES), ("stability", "stability", "class")):
        if word not in known:
            choice = ", ".join(each.upper() if each in ("cpu", "isa") else each.capitalize() for each in known)
            reports.report(offset, f"'{word[:40]}' is no {what}; choose one of {choice}")
            return None
    return Attribute(_STABILITY.index(words[0]), _STABILITY.index(words[1]), _CLASSES.index(words[2]))
