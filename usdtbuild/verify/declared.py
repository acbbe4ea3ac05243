"""Has a binary the probes that its provider files declare? The answer is for the person who reads a failed test."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterator, Sequence

from . import verify
from .report import ERROR, Finding, Verified

# Findings of `verify` that a declaration decides, though they are no errors of the file as such.
_ALSO = {"argument-mismatch", "declared-type", "semaphore-mixed", "semaphore-shared", "semaphore-value"}
# What is said here in other words, for all binaries together.
_OURS = {"no-site", "undeclared-probe", "no-probes"}


def complaints(
    paths: Sequence[str], provider_files: Sequence[str], missing: Sequence[str], extra: Sequence[str]
) -> str:
    """Return what is wrong, several lines, or '' if nothing is. Raises InputError and ParseError."""
    from ..inspection.targets import files
    from ..provider.files import read_providers

    expected = read_providers(provider_files)
    reports = [verify(image, expected) for path in paths for image in files(path, lambda error: None)]
    there = {name for report in reports for name in report.names}
    lines: list[str] = []
    declared = {(p.name, probe.name): probe.written for p in expected.values() for probe in p.probes}
    absent = [f"{p}:{stub}" for (p, name), stub in declared.items() if (p, name) not in there]
    _add(lines, "missing", [name for name in absent if not _allowed(name, missing)],
         "call it, or take it out of the provider file; was the file built through usdtbuild?")  # fmt: skip
    unknown = sorted(name for name in there if name[0] in expected and name not in declared)
    others = [f"{provider}:{name.replace('-', '__')}" for provider, name in unknown]
    _add(lines, "not declared", [name for name in others if not _allowed(name, extra)],
         "declare it, or build everything anew with the present provider file")  # fmt: skip
    for report in reports:
        lines += _findings(report)
    if not lines:
        return ""
    return "\n".join([f"The probes of {', '.join(paths)} are not those of {', '.join(provider_files)}:", *lines])


def _allowed(name: str, patterns: Sequence[str]) -> bool:
    wanted = [pattern.replace("-", "__") for pattern in patterns]
    return any(fnmatch.fnmatchcase(name if ":" in one else name.partition(":")[2], one) for one in wanted)


def _add(lines: list[str], what: str, names: Sequence[str], cure: str) -> None:
    if names:
        lines += [f"  {what}: {', '.join(names)}", f"      {cure}"]


def _findings(report: Verified) -> Iterator[str]:
    """Yield what `verify` says of one file, as far as it makes a test fail."""
    for finding in report.findings:
        if finding.check not in _OURS and (finding.severity == ERROR or finding.check in _ALSO):
            yield f"  {report.path}: {finding.what}{_places(finding)} [{finding.check}]"
            yield f"      {finding.cure}"


def _places(finding: Finding) -> str:
    names = list(dict.fromkeys(place.probe for place in finding.places if place.probe))
    return f" ({', '.join(names)})" if names else ""
