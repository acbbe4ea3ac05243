"""Files that are nearly right: each is taken, or refused in a word, at once, in little memory, and leaves no trace.

`make test` runs some hundred cases that are always the same, `make fuzz` new ones for as long as one likes. The seeds
are objects, instrumented objects, shared libraries and programs of a dozen machines, as far as the compilers are
installed, their DOF, and the provider files of large projects. mutations.py says what is changed.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from . import mutations
from .conftest import HOST, PROVIDER, pick, tool

FORMATS = ("stapsdt", "stapsdt,dof", "dof", "usdt", "stapsdt,dof,usdt")
FINISHED = ("instrumented", "library", "program")
FILES = sorted((Path(__file__).resolve().parent.parent / "provider/files").glob("*.d"))
# What eu-elflint has against any file with such records, and against relocations that do nothing (R_386_NONE).
OF_RECORDS = re.compile(
    r"(unknown|malformed) object file note type N with owner name '(stapsdt|usdt|dver|prov)'"
    r"|'\.SUNW_dof' has unsupported type N|'\.rela?\.SUNW_dof': invalid destination section type"
    r"|relocation type invalid for the file type"
)
COMPLAINT = re.compile(r"error|warning|corrupt|invalid|malformed|unrecognized|out of range|bad ", re.IGNORECASE)


def test_the_seeds_are_good_and_are_of_many_machines(seeds: Any, attempt: Any, cases: Any, made: Path) -> None:
    case = next(cases(1))
    machines = {seed.machine for seed in seeds}
    assert "x86-64" in machines or len(machines) > 1
    if shutil.which("clang"):
        assert len(machines) >= 8, machines
    for seed in pick(seeds, "object", "group"):
        words = ("usdtbuild", "instrument", "in.o", "-o", "out.o")
        assert attempt(case, seed.content, "in.o", *words, output="out.o").code == 0
        compare_tools(case.name, seed.machine, made / "in.o", made / "out.o")
    for seed in seeds:
        assert attempt(case, seed.content, "in", "usdtbuild", "list", "in").code == 0, seed
        if seed.kind.startswith(FINISHED):
            answer = attempt(case, seed.content, "in", "usdtbuild", "list", "in")
            assert "app:req" in answer.out, seed


def test_changed_objects(seeds: Any, attempt: Any, cases: Any, made: Path) -> None:
    outcomes: Counter[int] = Counter()
    for case in cases(150):
        seed = case.source.choice(pick(seeds, "object", "group"))
        content = mutations.elf(seed.content, case.source)
        words = ["--formats", case.source.choice(FORMATS), "--target-os", case.source.choice(("linux", "freebsd"))]
        answer = attempt(
            case, content, "in.o", "usdtbuild", "instrument", *words, "in.o", "-o", "out.o", output="out.o"
        )
        outcomes[answer.code] += 1
        if not answer.code and case.source.random() < 0.3:
            compare_tools(case.name, seed.machine, made / "in.o", made / "out.o")
        if case.source.random() < 0.3:
            read(case, attempt, content)
    assert outcomes[0] > 10
    assert outcomes[1] > 10


def test_changed_objects_for_the_drop_in(seeds: Any, attempt: Any, cases: Any, tmp_path: Path) -> None:
    """-G changes nothing but its own output unless it is asked to, and that only if all is well."""
    (tmp_path / "app.d").write_text(PROVIDER)
    here = [seed for seed in pick(seeds, "calls") if seed.machine == HOST]
    if not here or not shutil.which("cc"):
        pytest.skip("-G needs a compiler for this machine")
    outcomes: Counter[int] = Counter()
    for case in cases(40):
        content = mutations.elf(case.source.choice(here).content, case.source)
        words = ("dtrace", "-G", "-s", tmp_path / "app.d", "in.o", "-o", "out.o")
        outcomes[attempt(case, content, "in.o", *words, output="out.o").code] += 1
    assert outcomes[0] > 5
    assert outcomes[1] > 5


def test_changed_binaries(seeds: Any, attempt: Any, cases: Any) -> None:
    outcomes: Counter[int] = Counter()
    for case in cases(150):
        seeds_ = [seed for seed in seeds if seed.kind.startswith(FINISHED)]
        seed = case.source.choice(seeds_)
        outcomes[read(case, attempt, mutations.elf(seed.content, case.source))] += 1
    assert outcomes[0] > 10
    assert outcomes[1] > 10


def read(case: Any, attempt: Any, content: bytes) -> int:
    """Let one of the commands that read look at a file; return its exit code."""
    command = case.source.choice((
        ("list",), ("list", "--json"), ("verify",), ("verify", "--json"), ("functions", "--json"),
        ("functions", "--explain"), ("dof", "dump"), ("dof", "check"), ("calls", "--json"), ("calls", "--sites"),
        ("list", "--source"),
    ))  # fmt: skip
    code = attempt(case, content, "in", "usdtbuild", *command, "in").code
    assert isinstance(code, int)
    return code


def test_changed_dof(seeds: Any, attempt: Any, cases: Any) -> None:
    tables = []
    for seed in pick(seeds, "library-object", "instrumented-object"):
        whole = mutations.Elf.read(seed.content)
        tables += [seed.content[s[4] : s[4] + s[5]] for s in whole.sections if seed.content[s[4] :][:4] == b"\x7fDOF"]
    assert tables
    outcomes: Counter[int] = Counter()
    for case in cases(80):
        content = mutations.dof(case.source.choice(tables), case.source)
        command = case.source.choice((("dump",), ("dump", "--json"), ("check",), ("check", "--json")))
        outcomes[attempt(case, content, "in", "usdtbuild", "dof", *command, "in").code] += 1
    assert outcomes[0] > 5
    assert outcomes[1] > 5


def test_changed_provider_files(attempt: Any, cases: Any) -> None:
    contents = [PROVIDER.encode(), *(path.read_bytes() for path in FILES)]
    assert len(contents) > 5
    outcomes: Counter[int] = Counter()
    for case in cases(120):
        content = mutations.provider(case.source.choice(contents), case.source)
        command = case.source.choice((
            ("usdtbuild", "header", "--formats=dof", "in.d", "-o", "out.h"),
            ("dtrace", "-h", "-s", "in.d", "-o", "out.h"),
        ))  # fmt: skip
        outcomes[attempt(case, content, "in.d", *command, output="out.h").code] += 1
    assert outcomes[0] > 5
    assert outcomes[1] > 5


# -- other programs ----------------------------------------------------------------------------------------------------


def compare_tools(name: str, machine: str, before: Path, after: Path) -> None:
    """What other programs took before instrumenting, they take after."""
    out = before.parent / "tool.out"
    linker, strip, objcopy = (tool(machine, which) for which in ("ld", "strip", "objcopy"))
    commands: list[list[Any]] = [["readelf", "-aW"], ["eu-elflint", "--gnu-ld"]]
    commands += [[strip, "-g", "-o", out], [objcopy, "{}", out], [linker, "-r", "-o", out]]
    for words in commands:
        if not words[0] or not shutil.which(words[0]):
            continue
        complaints = [complain(words, path) for path in (before, after)]
        out.unlink(missing_ok=True)
        new = {line for line in complaints[1] if not OF_RECORDS.search(line)}
        if not complaints[0] and new:
            pytest.fail(f"{name}: {machine}: {words[0]} takes the object, but not what became of it: {new}")


def complain(words: list[Any], path: Path) -> set[str]:
    """Return what a program has against a file, without the numbers; nothing if it takes it."""
    command = [str(path) if word == "{}" else str(word) for word in words]
    done = subprocess.run(
        [*command, *([] if "{}" in words else [str(path)])], capture_output=True, check=False, timeout=60
    )
    said = done.stderr + (done.stdout if "elflint" in command[0] or done.returncode else b"")
    lines = {re.sub(r"0x\w+|\d+", "N", line) for line in said.decode("utf-8", "replace").splitlines()}
    found = {line for line in lines if "elflint" in command[0] or COMPLAINT.search(line)}
    return (found or {f"exit code {done.returncode}"}) if done.returncode else found - {"No errors"}
