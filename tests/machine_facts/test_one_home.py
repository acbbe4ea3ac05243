"""What is known about a machine is in its own folder in `machines/`; anything else asks there."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from usdtbuild.machines import all_entries, facts_of, known_numbers
from usdtbuild.machines.x86_64 import INT3

PACKAGE = Path(__file__).resolve().parent.parent.parent / "usdtbuild"
NAME = re.compile(r"(?i)s390|riscv|loongarch|aarch64|sparc|(?<![a-z])ppc|powerpc|(?<![a-z])mips|\bEM_[A-Z]")
# Files that name machines for another reason than to know a fact about one.
ELSEWHERE = {
    "elf/relocations.py": "MIPS n64 has its own layout of r_info, which is a fact about the format",
    "elf/bare.py": "names of sections by which linkers compare objects",
    "compilers/flags.py": "options of compilers that have one for a machine",
    "inspection/source_lines.py": "DWARF has an attribute that bears a name of one",
    "commands/trace.py": "help has the name of an emulator as an example",
    "functions/pe.py": "COFF has machine numbers of its own",
}


def words(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the identifiers and texts of a module; comments and docstrings may name what they like."""
    tree = ast.parse(path.read_text())
    documentation = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef))
        and node.body and isinstance(node.body[0], ast.Expr)
    }  # fmt: skip
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            yield node.lineno, node.id
        elif isinstance(node, ast.Attribute):
            yield node.lineno, node.attr
        elif isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            yield node.lineno, node.name
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in documentation:
            yield node.lineno, node.value


def test_no_other_file_names_a_machine() -> None:
    found: dict[str, list[str]] = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        name = path.relative_to(PACKAGE).as_posix()
        # Headers ask the C compiler's macros; the last two have a module for each machine that engines run on.
        if not name.startswith(("machines/", "provider/", "tracing/hosts/", "tracing/patch/")):
            for line, word in words(path):
                if NAME.search(word):
                    found.setdefault(name, []).append(f"{name}:{line}: {word[:60]}")
    assert [line for name in found.keys() - ELSEWHERE.keys() for line in found[name]] == []
    assert ELSEWHERE.keys() - found.keys() == set(), "these need no exception any more"


def test_no_other_file_spells_the_trap_of_x86() -> None:
    found = set()
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            value = node.value if isinstance(node, ast.Constant) else None
            if value == INT3[0] or (isinstance(value, bytes) and INT3 in value):
                found.add(path.relative_to(PACKAGE).as_posix())
    assert {name for name in found if not name.startswith("machines/")} == set()


def test_every_machine_has_facts_that_fit_together() -> None:
    for number in known_numbers():
        known = facts_of(number)
        assert known is not None
        for table in (known.quiet, known.clears):
            assert all(len(bytes.fromhex(digits)) % known.align == 0 for digits in table)
        assert known.decoded or known.quiet
        if known.length:
            for digits in known.quiet:
                code = bytes.fromhex(digits)
                order = code if known.code_orders(False)[0] is False else code[::-1]
                assert known.length(order, 0) == len(code)


def test_instruction_sets_have_one_name_each() -> None:
    names = [entries.name for entries in all_entries()]
    assert len(names) == len(set(names))
    assert {"x86-64", "i386", "aarch64", "arm", "thumb", "ppc32", "ppc64", "ppc64le", "s390x"} <= set(names)
