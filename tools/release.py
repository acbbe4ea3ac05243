"""Look whether a release could be made of this checkout, and write the recipes of other package managers for it.

    python3 tools/release.py                   all checks: `make release-check`
    python3 tools/release.py --recipes FOLDER  only packaging/*, filled in for the source distribution of this checkout
    ... --url URL                              from where they fetch it, in place of what pyproject.toml says

A line for each check: `ok`, `WRONG` with what to do, or `owner` for what only who publishes can know. Exits with 1 if
something is wrong. It is not part of the product.
"""

from __future__ import annotations

import argparse
import atexit
import datetime
import functools
import hashlib
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parent.parent
RECIPES = ROOT / "packaging"
NOWHERE = ".invalid"
KINDS = ("--sdist", "--wheel")
# What wrote the version down, beside usdtbuild/_version.py: file -> the expression that finds it.
VERSIONS = {
    "CHANGELOG.md": r"^## ([\d.]+) \(\d{4}-\d\d-\d\d\)$",
    "README.md": r"usdtbuild ([\d.]+\d) ",
    "debian/changelog": r"^usdtbuild \(([\d.]+)-",
    "docs/ci.md": r"usdtbuild@v([\d.]+)",
    "docs/committed.md": r"rev: v([\d.]+)",
    "docs/packagers.md": r"usdtbuild ([\d.]+\d) ",
    "meson/live/meson.build": r"  version: '([\d.]+)'",
    "meson/meson.build": r"  version: '([\d.]+)'",
    "sample_projects/committed-header/.pre-commit-config.yaml": r"rev: v([\d.]+)",
    "sample_projects/committed-header/counter.h": r"usdtbuild header \(usdtbuild ([\d.]+),",
    "usdtbuild/pkgconfig/usdtbuild.pc": r"^Version: ([\d.]+)",
    "man/usdtbuild.1": r'"usdtbuild ([\d.]+)"',
}


class WrongError(Exception):
    """What a check found; the message says what to do."""


def main(arguments: list[str]) -> int:
    """Check, or write recipes; return the exit code."""
    parser = argparse.ArgumentParser(description="Look whether a release could be made of this checkout.")
    parser.add_argument("--recipes", type=Path, metavar="FOLDER")
    parser.add_argument("--url")
    options = parser.parse_args(arguments)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    if options.recipes:
        with tempfile.TemporaryDirectory(prefix="usdtbuild-release-") as folder:
            options.recipes.mkdir(parents=True, exist_ok=True)
            sdist = build(Path(folder), "--sdist")
            recipes(options.recipes, sdist, project, options.url)
            (options.recipes / sdist.name).write_bytes(sdist.read_bytes())
        return 0
    fine = [is_fine(name, check, project) for name, check in CHECKS.items()]
    for line in left_to_the_owner(project):
        print(f"owner  {line}")
    return 0 if all(fine) else 1


def is_fine(name: str, check: Callable[[Any], None], project: Any) -> bool:
    """Make a check and print its line."""
    try:
        check(project)
    except WrongError as error:
        print(f"WRONG  {name}: {error}")
        return False
    print(f"ok     {name}")
    return True


# --- checks -----------------------------------------------------------------------------------------------------------


def version() -> str:
    """Return the version as the package has it."""
    found = re.search(r'"(.+)"', (ROOT / "usdtbuild/_version.py").read_text().split("__version__")[1])
    assert found
    return found[1]


def one_version(_: Any) -> None:
    """The version is the same wherever it is written."""
    for path, expression in VERSIONS.items():
        found = re.search(expression, (ROOT / path).read_text(), re.MULTILINE)
        said = found[1] if found else "none"
        if said != version():
            raise WrongError(f"{path} says {said}, and usdtbuild/_version.py {version()}")


def clean_tree(_: Any) -> None:
    """What would be released is what was committed."""
    words = ["git", "-C", str(ROOT), "status", "--porcelain"]
    changed = subprocess.run(words, capture_output=True, text=True, check=False).stdout.splitlines()
    if changed:
        raise WrongError(f"{len(changed)} files differ from what is committed, {changed[0][3:]} for one: commit first")


def texts_are_current(_: Any) -> None:
    """Man pages, completion and the list of what the product is made of are as the sources have them."""
    for tool, cure in (("manual", "make manual"), ("sbom", "make sbom")):
        words = [sys.executable, str(ROOT / f"tools/{tool}.py"), "--check"]
        if subprocess.run(words, capture_output=True, check=False).returncode:
            raise WrongError(f"tools/{tool}.py would write something else: {cure}")


def same_bytes(_: Any) -> None:
    """Two builds of one checkout are the same bytes, which two folders and two moments don't change."""
    with tempfile.TemporaryDirectory(prefix="usdtbuild-release-") as folder:
        again = [build(Path(folder), kind) for kind in KINDS]
        if [file.read_bytes() for file in again] != [file.read_bytes() for file in built()]:
            raise WrongError("two builds differ: compare them with diffoscope")


def index_takes_it(_: Any) -> None:
    """The package index would take both, and no link of the description is relative."""
    files = built()
    words = [sys.executable, "-m", "twine", "check", "--strict", *map(str, files)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        raise WrongError(f"twine check: {done.stdout.strip()}")
    with tarfile.open(files[0]) as archive:
        names = archive.getnames()
        (member,) = (name for name in names if name.count("/") == 1 and name.endswith("/PKG-INFO"))
        extracted = archive.extractfile(member)
        assert extracted
        described = extracted.read().decode()
    if relative := re.search(r"\]\((?!https://)[^)]*\)", described):
        raise WrongError(f"the description has a relative link, {relative[0][2:-1]}")
    if not any(name.endswith("/third_party/uPlot/uPlot.iife.js") for name in names):
        raise WrongError("the source distribution lacks the source of uPlot")


def recipes_are_filled(project: Any) -> None:
    """Every recipe can be filled in."""
    with tempfile.TemporaryDirectory(prefix="usdtbuild-release-") as folder:
        recipes(Path(folder), built()[0], project, None)


def no_known_vulnerabilities(_: Any) -> None:
    """No package that is installed has a vulnerability that is known."""
    done = subprocess.run([sys.executable, str(ROOT / "tools/audit.py")], capture_output=True, text=True, check=False)
    if done.returncode:
        raise WrongError((done.stdout + done.stderr).strip().splitlines()[-1])


CHECKS: dict[str, Callable[[Any], None]] = {
    "everything is committed": clean_tree,
    "one version everywhere, and a dated changelog": one_version,
    "man pages, completion and SBOM are current": texts_are_current,
    "wheel and source distribution are reproducible": same_bytes,
    "the package index takes them; links are absolute": index_takes_it,
    "recipes for other package managers": recipes_are_filled,
    "no known vulnerabilities": no_known_vulnerabilities,
}


def left_to_the_owner(project: Any) -> Iterator[str]:
    """Yield what to fill in before anything is published."""
    for name, url in project["urls"].items():
        if NOWHERE in url:
            yield f"pyproject.toml: [project.urls] {name} is {url}"
    for key in ("authors", "maintainers"):
        yield from (f"pyproject.toml: {key}: {one['email']}" for one in project[key] if NOWHERE in one["email"])
    yield from ("run `make test-all` on a machine with root", f"sign and push the tag v{version()}")


# --- what is built ----------------------------------------------------------------------------------------------------


@functools.cache
def built() -> tuple[Path, ...]:
    """Return the source distribution and the wheel, which are built once for all checks."""
    folder = Path(tempfile.mkdtemp(prefix="usdtbuild-release-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return tuple(build(folder, kind) for kind in KINDS)


def build(folder: Path, kind: str) -> Path:
    """Return the file that is built."""
    words = [sys.executable, "-m", "build", kind, "--no-isolation", "--outdir", str(folder), str(ROOT)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        raise WrongError(f"python -m build {kind}: {(done.stdout + done.stderr).strip()[-300:]}")
    (file,) = folder.glob("*.tar.gz" if kind == "--sdist" else "*.whl")
    return file


def recipes(folder: Path, sdist: Path, project: Any, url: str | None) -> None:
    """Write packaging/* into a folder, filled in."""
    data = sdist.read_bytes()
    needed = [word for word in project["dependencies"] if ";" not in word]
    names = [re.split(r"[<>=]", word)[0] for word in needed]
    source = project["urls"]["Source"]
    words = {
        "VERSION": version(), "SUMMARY": project["description"], "HOMEPAGE": project["urls"]["Homepage"],
        "URL": url or f"{source}/releases/download/v{version()}/{sdist.name}",
        "SHA256": hashlib.sha256(data).hexdigest(), "SHA512": hashlib.sha512(data).hexdigest(),
        "PYTHON": project["requires-python"],
        "CONDA_SCRIPTS": lines("    - {} = {}", project["scripts"].items()),
        "CONDA_DEPENDENCIES": lines("    - {}", ((word.replace(">=", " >="),) for word in needed)),
        "NIX_DEPENDENCIES": " ".join(names),
        "SPACK_DEPENDENCIES": lines(
            '    depends_on("py-{}@{}:", type=("build", "run"))', (word.split(">=") for word in needed)
        ),
        "RPM_DEPENDENCIES": lines("Requires:       python3-{} >= {}", (word.split(">=") for word in needed)),
        "RPM_DATE": datetime.date.fromisoformat(released()).strftime("%a %b %d %Y"),
    }  # fmt: skip
    for path in sorted(each for each in RECIPES.rglob("*") if each.is_file() and each.name != "README.md"):
        text = re.sub(r"@([A-Z0-9_]+)@", lambda found: words[found[1]], path.read_text())
        target = folder / path.relative_to(RECIPES)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)


def released() -> str:
    """Return the date of the newest release, as the changelog has it."""
    found = re.search(r"^## [\d.]+ \(([\d-]+)\)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    if not found:
        raise WrongError("CHANGELOG.md has no dated release: write `## VERSION (YYYY-MM-DD)`")
    return found[1]


def lines(pattern: str, rows: Any) -> str:
    """Return a line for each row."""
    return "\n".join(pattern.format(*row) for row in rows)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
