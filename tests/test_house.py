"""The house: imports run down between its rooms and in no circle, and every module, class and function has its measure.

docs/design.md says what each room is for. A room stands on a floor, and imports from lower floors only. Imports in
functions and those for type checkers count: who knows the other's type knows the other.
"""

from __future__ import annotations

import ast
import builtins
import dis
import functools
import re
import subprocess
import sys
import types
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "usdtbuild"

# From the top to the ground; a name is a folder of the package, or a module of its top level.
FLOORS = (
    ("__main__",),
    ("cli",),
    ("commands",),
    ("launcher", "setuptools_ext", "meson_wrapper", "pytest_plugin", "dtrace", "new_project", "adding"),
    ("setuptools_prepare",),
    ("setuptools_options", "api", "scripts"),
    ("launch", "classic", "verify", "tracing"),
    ("compilers",),
    ("instrument", "functions"),
    ("inspection",),
    ("provider",),
    ("formats",),
    ("elf",),
    ("machines",),
    ("outputs",),
    ("apart",),
    ("files", "folders", "ending", "rights"),
    ("model",),
    ("errors", "options", "_version", "cmake", "limits"),
    ("text", "record"),
)
MODULE, CLASS, FUNCTION = 700, 300, 90  # a smoke alarm; what counts is one idea, one home


def modules() -> dict[str, Path]:
    """All modules of the package, by dotted name below it; a package's own name is its __init__'s."""
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


@functools.cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def imports(name: str, path: Path, known: dict[str, Path]) -> Iterator[str]:
    """Yield the modules that a module or a function of it imports, those for type checkers too."""
    here = name.split(".") if path.name == "__init__.py" else name.split(".")[:-1]
    for node in ast.walk(parsed(path)):
        if not isinstance(node, ast.ImportFrom):
            continue
        base = node.module or ""
        if node.level:
            base = ".".join([*here[: len(here) - node.level + 1], *([node.module] if node.module else [])])
        elif base.split(".")[0] != "usdtbuild":
            continue
        base = base.removeprefix("usdtbuild").removeprefix(".")
        for alias in node.names:
            inner = f"{base}.{alias.name}".removeprefix(".")
            yield inner if inner in known else base


def room(module: str) -> str:
    return module.split(".", maxsplit=1)[0]


def test_arrows_run_down() -> None:
    floor = {name: number for number, names in enumerate(FLOORS) for name in names}
    known = modules()
    assert {room(name) for name in known} - {""} - set(floor) == set(), "a room without a floor"
    wrong = set()
    for name, path in known.items():
        for target in imports(name, path, known):
            one, other = room(name), room(target)
            if one and other and one != other and floor[one] >= floor[other]:
                wrong.add(f"{name} -> {target}")
    assert sorted(wrong) == []


def test_modules_are_called_by_their_names() -> None:
    short = set()
    for name, path in modules().items():
        for node in ast.walk(parsed(path)):
            if isinstance(node, (ast.Import, ast.ImportFrom)):
                short |= {f"{name}: {alias.name}" for alias in node.names if len(alias.asname or alias.name) == 1}
    assert short == set()


def circles(arrows: dict[str, set[str]]) -> Iterator[set[str]]:
    """Yield the sets of modules that reach each other."""
    reached: dict[str, set[str]] = {}
    for name in arrows:
        found, pending = set[str](), [name]
        while pending:
            new = arrows.get(pending.pop(), set()) - found
            found |= new
            pending += new
        reached[name] = found
    circles = {frozenset(n for n in reached[name] if name in reached.get(n, ())) for name in arrows}
    yield from filter(None, circles)


def test_no_imports_form_a_circle() -> None:
    known = modules()
    arrows = {name: {*imports(name, path, known)} & set(known) - {name} for name, path in known.items()}
    assert not sorted(map(sorted, circles(arrows)))


# -- names -----------------------------------------------------------------------------------------------------------

# What every module has without a line of it.
GIVEN = {*vars(builtins), *vars(types.ModuleType("module")), "__annotations__", "__builtins__", "__file__", "__path__"}


class AtRunTime(ast.NodeTransformer):
    """Leaves out what stands there for type checkers only."""

    def visit_If(self, node: ast.If) -> ast.AST | list[ast.stmt]:
        """Replace a condition that is never met at run time by its other branch."""
        self.generic_visit(node)
        if ast.unparse(node.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING"):
            return node.orelse or ast.Pass()
        return node


def codes(code: types.CodeType) -> Iterator[types.CodeType]:
    """Yield a module's code and that of all its classes and functions."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from codes(constant)


def nowhere_defined(source: str) -> set[str]:
    """Return the global names that a module's code loads and that nothing of it which runs defines."""
    tree = ast.fix_missing_locations(AtRunTime().visit(ast.parse(source)))
    module = compile(tree, "module", "exec", dont_inherit=True)
    defined, loaded = set(GIVEN), set()
    for code in codes(module):
        by_kind: dict[str, set[str]] = {}
        for instruction in dis.get_instructions(code):
            by_kind.setdefault(instruction.opname, set()).add(instruction.argval)
        own = by_kind.get("STORE_NAME", set())  # of the module, or of a class' body
        defined |= by_kind.get("STORE_GLOBAL", set()) | (own if code is module else set())
        loaded |= {name for kind in ("LOAD_GLOBAL", "LOAD_NAME") for name in by_kind.get(kind, ())} - own
    return loaded - defined


def test_what_runs_uses_no_name_that_only_type_checkers_know() -> None:
    """Such a name is found out when its line is run, which may be on one machine only."""
    found = {name: names for name, path in modules().items() if (names := nowhere_defined(path.read_text()))}
    assert found == {}


@pytest.mark.parametrize(
    ("line", "names"),
    [
        ("def f(x: Alias) -> Size: return len(x)", set()),
        ("def f(): return [Size(x) for x in range(3)]", {"Size"}),
        ("def f(): return lambda: Alias", {"Alias"}),
        ("class C:\n    own = 1\n    other = own\n    def f(self): return Size", {"Size"}),
        ("if not TYPE_CHECKING: Alias = int\ndef f(): return Alias", set()),
        ("def f():\n    global later\n    later = misspelt\ndef g(): return later", {"misspelt"}),
    ],
)
def test_such_names_are_found(line: str, names: set[str]) -> None:
    only_for_checkers = "if TYPE_CHECKING:\n    from sizes import Size\n    Alias = dict[str, Size]\n"
    start = "from __future__ import annotations\nfrom typing import TYPE_CHECKING\n"
    assert nowhere_defined(start + only_for_checkers + line) == names


# -- printing ----------------------------------------------------------------------------------------------------------

# Who prints without `commands.say`: modules that import no click, with `text.shown`, and what is no text for people.
PRINTERS = {
    "commands.say", "commands.progress", "apart", "cli", "dtrace", "ending", "meson_wrapper",
    "commands.functions", "commands.verify", "commands.dof", "commands.hook", "launcher",
    "setuptools_ext", "compilers.preprocess", "instrument.fast", "provider.check", "provider.fast",
    "provider.generate", "tracing.outputs.choose", "tracing.outputs.top",
}  # fmt: skip
PRINTING = re.compile(r"click\.s?echo\(|click\.style\(|^ *print\(|sys\.std(out|err)\.write\(|\bConsole\(", re.MULTILINE)


def test_text_for_people_goes_through_one_function() -> None:
    """Names and paths from outside may hold what a terminal takes for commands (`usdtbuild.text`)."""
    found = {name for name, path in modules().items() if PRINTING.search(path.read_text())}
    assert found - PRINTERS == set()
    unescaped = [
        f"{name}: {line.strip()}"
        for name in found - {"commands.say", "commands.hook", "meson_wrapper"}
        for line in modules()[name].read_text().splitlines()
        if re.search(r"std(out|err)\.write\(f?\"[^\"]*\{", line)
        and "shown(" not in line
        and "{__version__}" not in line
    ]
    assert unescaped == []


# -- measures --------------------------------------------------------------------------------------------------------


def measured() -> Iterator[tuple[str, int, int]]:
    """Yield what there is, its lines, and how many it may have."""
    for path in sorted(PACKAGE.rglob("*.py")):
        name, text = path.relative_to(PACKAGE).as_posix(), path.read_text()
        if "made by tools/templates.py" in text[:100]:  # nobody reads it
            continue
        yield name, len(text.splitlines()), MODULE
        for node in ast.walk(parsed(path)):
            if isinstance(node, (ast.ClassDef, ast.FunctionDef)):
                lines = (node.end_lineno or 0) - node.lineno + 1
                yield f"{name}:{node.name}", lines, CLASS if isinstance(node, ast.ClassDef) else FUNCTION


def test_modules_classes_and_functions_have_their_measure() -> None:
    large = {name: lines for name, lines, most in measured() if lines > most}
    assert large == {}


def test_the_page_about_the_design_names_every_room() -> None:
    page = (ROOT / "docs" / "design.md").read_text()
    named = {word.split(".")[0].strip("/") for word in re.findall(r"`([\w./]+)`", page)}
    silent = {"__main__", "_version"}  # the package's start and its version
    assert {room(name) for name in modules()} - {""} - silent - named == set()


def test_the_page_about_additions_names_files_that_exist() -> None:
    page = (ROOT / "docs" / "contributing.md").read_text()
    paths = re.findall(r"`((?:usdtbuild|tests|tools|docs|cmake|meson|man|completion|sample_projects)/[\w./]*)`", page)
    assert len(paths) > 20
    missing = [path for path in paths if "NAME" not in path and not (ROOT / path).exists()]
    assert missing == []


def test_the_faults_that_tests_must_find_are_there() -> None:
    """`make mutants` puts each fault of tools/faults.toml into the product: whoever moves the text moves the fault."""
    words = [sys.executable, str(ROOT / "tools/mutate.py"), "--check"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_table_of_long_tests_names_tests_that_exist() -> None:
    tests = PACKAGE.parent / "tests"
    lines = [line for line in (tests / "long.txt").read_text().splitlines() if not line.startswith("#")]
    names = [line.split()[1].split("::") for line in lines]
    assert [name for file, name in names if f"def {name}(" not in (tests / file).read_text()] == []
    assert names == sorted(names)
    assert len(names) == len({*map(tuple, names)})
