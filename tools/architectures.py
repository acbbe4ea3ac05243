"""Write the table of docs/architectures.md from test results: which machine was shown to do what.

    .venv/bin/python -m pytest tests/machines tests/live -n 2 --junitxml=.cache/machines.xml
    .venv/bin/python tools/architectures.py .cache/machines.xml

`make machines` does both. A cell says "yes" only if the tests behind it ran and passed; the text around the table is
written by hand. It is not part of the product.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree as ET

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs/architectures.md"
BEGIN, END = "<!-- The table is made by `make machines`; don't edit it. -->", "<!-- End of the table. -->"
COLUMNS = (
    "machine", "compilers", "linkers", "sites", "is-enabled", "SDT notes", "DOF", "run under qemu", "arguments read by",
    "fired live",
)  # fmt: skip
HEADER = f"| {' | '.join(COLUMNS)} |\n|{'---|' * len(COLUMNS)}"
# Targets of the tests that only say more of one machine -> how the table calls them.
NAMES = {
    "thumb-2": "ARM, Thumb-2", "thumb-1": "ARM, Thumb-1", "arm": "ARM, A32", "armeb": "ARM, A32, big-endian (BE8)",
    "aarch64_be": "aarch64, big-endian", "ppc64": "ppc64 ELFv1", "ppc64 elfv2": "ppc64 ELFv2, big-endian",
    "power10": "ppc64le, power10", "sparc": "sparc, 32 bits", "mips": "mips o32",
    "mipsel": "mips o32, little-endian", "mips r6": "mips o32, little-endian, release 6", "mips64": "mips n64",
    "mips64el": "mips n64, little-endian", "mips n32": "mips n32, little-endian",
}  # fmt: skip
# Targets that qemu can't run: what they compute is not known, only what was built, linked and disassembled.
NOT_RUN = {"x32", "aarch64 ilp32"}
# The machine that the live tests run on.
HOST = "x86-64"


class Corpus(NamedTuple):
    """What the corpus showed of one target with one compiler; see tests/machines/test_corpus.py."""

    compiler: str
    builds: int
    sites: int
    linkers: tuple[str, ...]
    events: int
    by_gdb: bool


def main(arguments: list[str]) -> int:
    """Read results, write the table; return the exit code."""
    if len(arguments) != 1:
        print(__doc__, file=sys.stderr)
        return 2
    cases = list(ET.parse(arguments[0]).iter("testcase"))
    failed = [case.get("name") for case in cases if case.find("failure") is not None or case.find("error") is not None]
    if failed:
        print(f"These tests failed, so there is no table: {', '.join(map(str, failed))}", file=sys.stderr)
        return 1
    passed = [case for case in cases if case.find("skipped") is None]
    table = make_table(passed)
    text = PAGE.read_text()
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    PAGE.write_text(f"{before}{BEGIN}\n{table}\n{END}{after}")
    print(f"Wrote {table.count(chr(10)) - 1} machines to {PAGE.relative_to(ROOT)}")
    return 0


def make_table(cases: list[ET.Element]) -> str:
    """Return the table's lines."""
    corpora = read_corpora(cases)
    names = {(case.get("classname") or "").rpartition(".")[2] + "." + (case.get("name") or "") for case in cases}
    live = any((case.get("classname") or "").startswith("tests.live.") for case in cases)
    rows = []
    for target, found in corpora.items():
        dof = dof_cell(target, names)
        ran = "no" if target in NOT_RUN else f"yes, {sum(corpus.builds for corpus in found)} builds"
        events = sum(corpus.events for corpus in found)
        reader = "gdb" if all(corpus.by_gdb for corpus in found) else "the tests"
        cells = (
            NAMES.get(target, target),
            ", ".join(corpus.compiler for corpus in found),
            ", ".join(sorted({linker for corpus in found for linker in corpus.linkers})),
            f"{sum(corpus.sites for corpus in found)}",
            "not run" if target in NOT_RUN else "yes",
            "yes",
            dof,
            ran,
            "–" if target in NOT_RUN else f"{reader}, {events} hits",
            ("yes" if live else "not tested") if target == HOST else "no",
        )
        rows.append(f"| {' | '.join(cells)} |")
    return "\n".join((HEADER, *rows))


def dof_cell(target: str, names: set[str]) -> str:
    """Return for which systems a target's DOF named the same places as its notes: distances (FreeBSD), addresses."""
    place = "test_corpus.test_dof_names_the_places_that_notes_name"
    shown = {system for system in ("freebsd", "illumos") if f"{place}[{target}-{system}]" in names}
    return {0: "not tested", 1: "addresses only", 2: "yes"}[len(shown)]


def read_corpora(cases: list[ET.Element]) -> dict[str, list[Corpus]]:
    """Return target -> what the corpus showed, in the order of the results."""
    found: dict[str, list[Corpus]] = {}
    order = re.findall(r'^    "([^"]+)": Target\(', (ROOT / "tests/machines/conftest.py").read_text(), re.MULTILINE)
    for case in cases:
        for entry in case.iter("property"):
            if entry.get("name") == "machine":
                target, compiler, builds, sites, linkers, events, by_gdb = (entry.get("value") or "").split("|")
                corpus = Corpus(
                    compiler, int(builds), int(sites), tuple(linkers.split()), int(events), by_gdb == "True"
                )
                found.setdefault(target, []).append(corpus)
    return {target: sorted(found[target], reverse=True) for target in order if target in found}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
