"""What is known about a machine is in its own folder in `machines/`; anything else asks there."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from usdtbuild.machines import all_entries, facts_of, known_numbers
from usdtbuild.machines.x86_64 import INT3

PACKAGE = Path(__file__).resolve().parent.parent.parent / "usdtbuild"
NAME = re.compile(
    r"(?i)s390|riscv|loongarch|aarch64|arm64|x86|amd64|\bi[36]86|sparc|(?<![a-z])ppc|powerpc|(?<![a-z])mips|\bEM_[A-Z]"
)
# Headers ask the C compiler's macros, and the patch engine has modules for the machines that it patches.
ROOMS = ("machines/", "provider/", "tracing/patch/")
# Files that name machines for another reason than to know a fact about one.
ELSEWHERE = {
    "elf/relocations.py": "MIPS n64 has its own layout of r_info, which is a fact about the format",
    "elf/bare.py": "names of sections by which linkers compare objects",
    "compilers/flags.py": "options of compilers that have one for a machine",
    "inspection/source_lines.py": "DWARF has an attribute that bears a name of one",
    "inspection/types.py": "pyelftools says so where long double has 80 bits",
    "inspection/site_code.py": "capstone's constants are named by them",
    "inspection/tracers.py": "what each tracer does with operands, measured on the machine that all of them run on",
    "commands/trace_options.py": "help has the name of an emulator as an example",
    "scripts/libbpf.py": "clang is told where headers are",
    "tracing/remote/server.py": "a feature of gdb's protocol, for all machines",
    "tracing/selection.py": "names of functions that compilers add",
}
# Files with bytes or words that look like instructions, but are other numbers.
NO_CODE = {
    "tracing/others/gdb.py": "Yama's request",
    "tracing/testing.py": "Yama's request",
    "elf/foreign.py": "what files of others begin with",
    "launch/step.py": "bitcode's beginning",
    "inspection/signatures.py": "DWARF's operations",
    "elf/layout.py": "types of sections",
    "elf/tags.py": "tags",
    "functions/calls/slots.py": "types of segments",
    "rights.py": "a version of the kernel's, and an entry of its tables",
    "inspection/process.py": "the last address of a section",
    "tracing/outputs/ctf.py": "what a packet begins with",
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
        elif isinstance(node, ast.ImportFrom):
            yield from ((node.lineno, name) for name in (node.module or "", *(alias.name for alias in node.names)))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in documentation:
            yield node.lineno, node.value


def others() -> Iterator[tuple[str, Path]]:
    """Yield name and path of what may not know a machine."""
    for path in sorted(PACKAGE.rglob("*.py")):
        name = path.relative_to(PACKAGE).as_posix()
        if not name.startswith(ROOMS):
            yield name, path


def test_no_other_file_names_a_machine() -> None:
    found: dict[str, list[str]] = {}
    for name, path in others():
        for line, word in words(path):
            if NAME.search(word):
                found.setdefault(name, []).append(f"{name}:{line}: {word[:60]}")
    assert [line for name in found.keys() - ELSEWHERE.keys() for line in found[name]] == []
    assert ELSEWHERE.keys() - found.keys() == set(), "these need no exception any more"


def looks_like_code(text: str, node: ast.AST) -> bool:
    """Whether a constant may be instructions: bytes that are no ASCII, or a number written as the digits of a word."""
    value = node.value if isinstance(node, ast.Constant) else None
    if isinstance(value, bytes):
        return any(byte > 127 for byte in value.replace(b"\xff", b"") or b"")
    if not isinstance(value, int) or value < 1 << 24 or not value & (value + 1) or not value & (value - 1):
        return False
    return re.fullmatch(r"0x[0-9a-fA-F]{7,8}", ast.get_source_segment(text, node) or "") is not None


def test_no_other_file_has_code() -> None:
    found: dict[str, list[str]] = {}
    for name, path in others():
        text = path.read_text()
        for node in ast.walk(ast.parse(text)):
            if looks_like_code(text, node):
                found.setdefault(name, []).append(f"{name}:{getattr(node, 'lineno', 0)}")
    assert [line for name in found.keys() - NO_CODE.keys() for line in found[name]] == []
    assert NO_CODE.keys() - found.keys() == set(), "these need no exception any more"


def test_only_the_patch_engine_asks_which_machine_this_is() -> None:
    """Others ask for facts by the number in a file, or whether a record of this machine (`hosts`) has something."""
    asking = re.compile(r"(platform\.machine\(\)|uname\(\)\.machine)\s*[!=]=|[!=]=\s*(platform\.machine|os\.uname)\(\)")
    assert [name for name, path in others() if asking.search(path.read_text())] == []


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
