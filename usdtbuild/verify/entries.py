"""Checks of patchable function entries: each reason why one can't be patched safely becomes a finding."""

from __future__ import annotations

from collections.abc import Callable

from ..elf.image import Image
from ..functions.entry import REASONS
from ..functions.read import FunctionReader, ReadOptions
from ..functions.report import HARMLESS, WARNINGS
from .report import ERROR, NOTE, WARNING, Finding, FoundAt

_CURE = "compile it again with what `usdtbuild flags --patchable` gives, and let nothing change its code afterwards"
_CURES = {
    "lost-entry": "link with bfd, lld or mold, C++ with clang, or use --patchable-table=relative",
    "null-entry": "link with lld, or use --patchable-table=relative",
    "hlt": "compile with 7,5",
    "long-nop": "compile with 7,5, or with gcc, whose NOPs have one byte each",
    "too-small": "compile with what `usdtbuild flags --patchable` gives for this machine",
    "toc": "compile with clang, or with gcc from version 13 on",
    "padding-arm": "compile with -Wa,-mthumb too",
    "not-one-store": "compile with -mhotpatch=4,2 instead",
}
# Where no entry has room for a patch and nobody said which N,M there should be, another N,M is no mistake.
_OTHER_LENGTHS = {"other-nm", "padding-short", "padding-long", "entry-short", "entry-long", "too-small"}
_UNPROMISED = "another N,M than usdt_live.h can patch"
_UNASKED = "none, unless the program shall patch its own entries; then compile with `usdtbuild flags --patchable`"


def entry_checks() -> dict[str, str]:
    """Return the name of every finding of `verify_entries`, and what it is about."""
    reasons = {code: what for code, what in REASONS.items() if code not in HARMLESS}
    return {f"entry-{code.removeprefix('entry-')}": what for code, what in {**reasons, **WARNINGS}.items()}


def verify_entries(file: Image, taken: Callable[[], dict[int, list[int]]] | None = None) -> list[Finding]:
    """Return what is wrong with the patchable entries of an opened file, one finding for each reason.

    `taken` is as in `ReadOptions`. An entry that can't be patched safely is an error, one to be patched with care a
    warning, entries that were made for something else a note; functions without an entry are no finding. Raises
    InputError if the file is damaged.
    """
    places: dict[str, list[FoundAt]] = {}
    report = FunctionReader(file, ReadOptions(taken=taken)).report
    unasked = _OTHER_LENGTHS if report.promise and report.promise.origin == "usual" else set()
    for function in report.functions:
        if function.reason and function.reason not in HARMLESS:
            code = function.reason
        elif function.warnings and not function.reason:
            code = function.warnings[0]
        else:
            continue
        where = f"{function.section}+{function.address:#x}" if function.section else f"{function.address:#x}"
        where += f" ({function.name})" if function.name else ""
        detail = function.detail if function.detail not in ("", REASONS.get(code)) else ""
        where += f": {detail}" if detail else ""
        address = None if function.section else function.address
        place = FoundAt("", where, address, function.section, function.address, function.name)
        places.setdefault(code, []).append(place)
    return [
        Finding(
            f"entry-{code.removeprefix('entry-')}",
            NOTE if code in unasked else WARNING if code in WARNINGS or code == "duplicate" else ERROR,
            "patchable entries: " + (_UNPROMISED if code in unasked else WARNINGS.get(code) or REASONS[code]),
            tuple(places[code]),
            _UNASKED if code in unasked else _CURES.get(code, _CURE),
        )
        for code in sorted(places)
    ]
