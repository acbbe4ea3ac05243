"""The house: imports run down between its rooms and in no circle, and every module, class and function has its measure.

docs/design.md says what each room is for. A room stands on a floor; it imports from rooms on lower floors, and from
those that `BESIDE` names on its own. What is imported only for type checkers is no arrow.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "usdtbuild"

# From the top to the ground; a name is a folder of the package, or a module of its top level.
FLOORS = (
    ("__main__", "cli"),
    ("commands",),
    ("launcher", "setuptools_ext", "meson_wrapper", "pytest_plugin", "dtrace", "new_project", "adding"),
    ("setuptools_prepare",),
    ("setuptools_options",),
    ("launch", "classic", "verify", "tracing"),
    ("compilers",),
    ("instrument", "inspection", "functions"),
    ("formats", "provider"),
    ("elf",),
    ("machines",),
    ("outputs",),
    ("files", "folders", "ending", "vendored"),
    ("errors", "options", "_version", "cmake", "record"),
)
# Arrows on one floor, and the one that goes up.
BESIDE = {
    ("__main__", "cli"),
    ("formats", "provider"),  # stability and translated types stand in records
    ("provider", "formats"),  # the drop-in's header lets the assembler write notes
    ("inspection", "functions"),  # separate debug files
    ("launch", "cli"),  # `usdtbuild cc --help`
}
MODULE, CLASS, FUNCTION = 500, 200, 60


def modules() -> dict[str, Path]:
    """All modules of the package, by dotted name below it; a package's own name is its __init__'s."""
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imports(name: str, path: Path, known: dict[str, Path], *, lazy: bool) -> Iterator[str]:
    """Yield the modules that a module imports; with `lazy` also those that its functions import."""
    tree = ast.parse(path.read_text())
    skipped: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            skipped |= {id(inner) for part in node.body for inner in ast.walk(part)}
        elif not lazy and isinstance(node, ast.FunctionDef):
            skipped |= {id(inner) for inner in ast.walk(node)}
    here = name.split(".") if path.name == "__init__.py" else name.split(".")[:-1]
    for node in ast.walk(tree):
        if id(node) in skipped or not isinstance(node, ast.ImportFrom):
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
    wrong, beside = set(), set()
    for name, path in known.items():
        for target in imports(name, path, known, lazy=True):
            one, other = room(name), room(target)
            if one and other and one != other and floor[one] >= floor[other]:
                beside.add((one, other))
                if (one, other) not in BESIDE:
                    wrong.add(f"{name} -> {target}")
    assert sorted(wrong) == []
    assert BESIDE - beside == set(), "nothing goes this way any more"


def test_modules_are_called_by_their_names() -> None:
    short = set()
    for name, path in modules().items():
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, (ast.Import, ast.ImportFrom)):
                short |= {f"{name}: {alias.name}" for alias in node.names if len(alias.asname or alias.name) == 1}
    assert short == set()


def test_no_imports_form_a_circle() -> None:
    known = modules()
    arrows = {name: {*imports(name, path, known, lazy=False)} - {name} for name, path in known.items()}
    done: set[str] = set()

    def walk(name: str, way: tuple[str, ...]) -> None:
        assert name not in way, " -> ".join((*way[way.index(name) :], name))
        if name not in done:
            for target in sorted(arrows.get(name, ())):
                walk(target, (*way, name))
            done.add(name)

    for name in known:
        walk(name, ())


def measured() -> Iterator[tuple[str, int, int]]:
    """Yield what there is, its lines, and how many it may have."""
    for path in sorted(PACKAGE.rglob("*.py")):
        name, text = path.relative_to(PACKAGE).as_posix(), path.read_text()
        yield name, len(text.splitlines()), MODULE
        for node in ast.walk(ast.parse(text)):
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
