"""Put faults into the product, one at a time, and see that the tests find each of them.

    python tools/mutate.py            all of them (slow)
    python tools/mutate.py WORD...    those whose name has one of these words
    python tools/mutate.py --check    only see that each fault's text and tests are there

The faults are in tools/faults.toml: what was once put into the code and found by no test, and whatever is added. Each
names a piece of text, what to put in its place, and the tests that must fail then. The text is looked for in all of the
product's sources, and the tests by their names, so that both may move to other files; a text that is there twice or not
at all is an error. All happens in a copy of the tree, with an environment of its own that uses this one's packages.
It is not part of the product.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parent.parent
SOURCES = ("usdtbuild", "cmake", "meson")
PATIENCE = 600  # seconds for one fault's tests: one that never ends is found, too


class Fault(NamedTuple):
    """One row: `tests` are names of test functions."""

    name: str
    find: str
    replace: str
    tests: tuple[str, ...]


class Tree:
    """A checkout, in which faults and their tests are looked for."""

    def __init__(self, folder: Path) -> None:
        """Read the sources and tests below a folder."""
        self.folder = folder
        self.texts = {path: read(path) for name in SOURCES for path in (folder / name).rglob("*") if path.is_file()}
        self.tests = {path: read(path) for path in (folder / "tests").rglob("test_*.py")}

    def place(self, fault: Fault) -> Path:
        """Return the file that a fault is put into. Raises ValueError."""
        found = [path for path, text in self.texts.items() for _ in range(text.count(fault.find))]
        if len(found) != 1:
            raise ValueError(f"its text is in {len(found)} places, not in one: {fault.find.strip().splitlines()[0]}")
        return found[0]

    def named(self, fault: Fault) -> list[str]:
        """Return a fault's tests as pytest takes them. Raises ValueError."""
        words = []
        for name in fault.tests:
            found = [path for path, text in self.tests.items() if re.search(rf"^ *def {name}\(", text, re.MULTILINE)]
            if len(found) != 1:
                raise ValueError(f"{len(found)} files have a test {name}, not one")
            words.append(f"{found[0].relative_to(self.folder)}::{name}")
        return words


class Copy(Tree):
    """A copy of the checkout, into which faults are put."""

    def __init__(self, folder: Path) -> None:
        """Copy what git knows, and what is new."""
        listed = subprocess.run(
            ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], cwd=ROOT, capture_output=True,
            text=True, check=True,
        ).stdout  # fmt: skip
        for name in filter(None, listed.split("\0")):
            if (ROOT / name).is_file():
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, folder / name)
        (folder / ".cache").symlink_to(ROOT / ".cache")
        environment = folder / ".venv"
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", environment], check=True)
        # Folders that a .pth file names have their own .pth files ignored, and so this checkout's editable install.
        (packages,) = environment.glob("lib/python*/site-packages")
        (packages / "copy.pth").write_text(f"{folder}\n{sysconfig.get_path('purelib')}\n")
        self.python = environment / "bin/python"
        super().__init__(folder)

    def run(self, words: list[str]) -> tuple[int, str]:
        """Run tests; return pytest's exit code and its last lines."""
        environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
        command = [self.python, "-m", "pytest", "-q", "-x", "-n", "0", "-p", "no:cacheprovider", *words]
        try:
            done = subprocess.run(command, cwd=self.folder, env=environment, capture_output=True, text=True,
                                  check=False, timeout=PATIENCE)  # fmt: skip
        except subprocess.TimeoutExpired:
            return 1, "they didn't end"
        return done.returncode, done.stdout[-2000:] + done.stderr[-2000:]


def read(path: Path) -> str:
    """Return a file's text; '' of what is no text."""
    try:
        return path.read_text("utf-8")
    except UnicodeDecodeError:
        return ""


def load() -> list[Fault]:
    """Return the rows. Raises KeyError where one lacks something."""
    rows: list[dict[str, Any]] = tomllib.loads((ROOT / "tools/faults.toml").read_text())["fault"]
    faults = [Fault(row["name"], row["find"], row["replace"], tuple(row["tests"])) for row in rows]
    assert len({fault.name for fault in faults}) == len(faults), "two faults have one name"
    return faults


def main(arguments: list[str]) -> int:
    """Try the faults that are asked for; return 0 if all were found."""
    words = [word for word in arguments if word != "--check"]
    faults = [fault for fault in load() if not words or any(word in fault.name for word in words)]
    with tempfile.TemporaryDirectory(prefix="usdtbuild-mutants-") as folder:
        tree = Tree(ROOT) if "--check" in arguments else Copy(Path(folder))
        outcomes = {fault: try_fault(tree, fault) for fault in faults}
    bad = [fault for fault, outcome in outcomes.items() if outcome not in ("found", "is there", "skipped")]
    print(f"{len(faults)} faults, {list(outcomes.values()).count('found')} found, {len(bad)} not")
    return 1 if bad or not faults else 0


def try_fault(tree: Tree, fault: Fault) -> str:
    """Return what becomes of a fault, and print it."""
    try:
        path, tests = tree.place(fault), tree.named(fault)
    except ValueError as problem:
        outcome = str(problem)
    else:
        outcome = put_in(tree, fault, path, tests) if isinstance(tree, Copy) else "is there"
    print(f"{outcome.splitlines()[0]:10}  {fault.name}", *outcome.splitlines()[1:], sep="\n", flush=True)
    return outcome


def put_in(tree: Copy, fault: Fault, path: Path, tests: list[str]) -> str:
    """Run a fault's tests without and with it; return 'found', 'skipped', or what is wrong."""
    code, said = tree.run(tests)
    if code:
        return f"its tests fail or are missing without it\n{said}"
    if " passed" not in said:
        return "skipped"
    path.write_text(tree.texts[path].replace(fault.find, fault.replace), "utf-8")
    try:
        code, said = tree.run(tests)
    finally:
        path.write_text(tree.texts[path], "utf-8")
    return "found" if code == 1 else f"NOT FOUND\n{said}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
