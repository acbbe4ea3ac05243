"""Check the product with the oldest Python it supports and the newest that is to be had.

    python3 tools/pythons.py            the two of them
    python3 tools/pythons.py 3.10 3.12  these

For each: a wheel of this checkout is installed into a new virtual environment, every module is imported, `--help` of
every command is shown, and a sample project with a Python extension is made by `usdtbuild init`, built and run, and its
probes are listed. Interpreters are looked for in PATH, in pyenv's and uv's folders and, as root, among apt's packages.
A version that is not to be had is left out, and the last lines say so. It is not part of the product.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
HOMES = (
    Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"), "versions"),
    Path(os.environ.get("UV_PYTHON_INSTALL_DIR", Path.home() / ".local/share/uv/python")),
    Path("/opt/python"),
)
# Newer than any that there is.
NEWEST = 30
# Modules that run inside another program import what only that has.
HOSTS = {"gdb", "pytest", "_pytest", "mesonbuild", "setuptools"}
IMPORT_ALL = f"""
import importlib, pkgutil, usdtbuild
names = [m.name for m in pkgutil.walk_packages(usdtbuild.__path__, "usdtbuild.", onerror=lambda name: None)]
count = 0
for name in names:
    if name.endswith("__main__"):
        continue
    try:
        importlib.import_module(name)
        count += 1
    except ModuleNotFoundError as error:
        if error.name.partition(".")[0] not in {HOSTS!r}:
            raise
print(count)
"""


def main(wanted: list[str]) -> int:
    """Check each version; return the exit code."""
    found = interpreters()
    oldest = re.search(r'requires-python = ">=3\.(\d+)"', (ROOT / "pyproject.toml").read_text())
    assert oldest
    versions = [int(word.removeprefix("3.")) for word in wanted] or [int(oldest[1]), max(found)]
    missing = [minor for minor in versions if minor not in found and not install(minor, found)]
    with tempfile.TemporaryDirectory(prefix="usdtbuild-pythons-") as folder:
        wheels = Path(folder, "wheels")
        run(sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", wheels, ROOT)
        for minor in dict.fromkeys(versions):
            if minor not in missing:
                print(f"Python 3.{minor}: {check(found[minor], wheels, Path(folder, str(minor)))}", flush=True)
    for minor in missing:
        print(f"Python 3.{minor}: left out: neither in PATH nor in {', '.join(map(str, HOMES))}, nor known to apt")
    return 0


def interpreters() -> dict[int, str]:
    """Return minor version -> path of each Python 3 of this machine that can make a virtual environment."""
    found: dict[int, str] = {}
    for minor in range(6, NEWEST):
        name = f"python3.{minor}"
        inside = [str(path) for home in HOMES for path in sorted(home.glob(f"*/bin/{name}"))]
        # pyenv's stand-ins in PATH run only the versions that are chosen, so that its folders come first.
        paths = [*inside, *filter(None, [shutil.which(name)])]
        path = next((path for path in paths if works(path, minor)), None)
        if path:
            found[minor] = path
    return found


def works(path: str, minor: int) -> bool:
    """Tell whether a path is what its name says, and has what `venv` needs."""
    code = f"import sys, ensurepip, venv; sys.exit(sys.version_info[:2] != (3, {minor}))"
    return subprocess.run([path, "-c", code], capture_output=True, check=False).returncode == 0


def install(minor: int, found: dict[int, str]) -> bool:
    """Install a version with apt, if we may and apt knows it; put it into `found`."""
    packages = [f"python3.{minor}-venv", f"python3.{minor}-dev"]
    if os.geteuid() != 0 or not shutil.which("apt-get"):
        return False
    words = ["apt-get", "install", "-y", "-qq", "--no-install-recommends", *packages]
    subprocess.run(words, capture_output=True, check=False, env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"})
    path = shutil.which(f"python3.{minor}")
    if not path or not works(path, minor):
        return False
    found[minor] = path
    return True


def check(python: str, wheels: Path, folder: Path) -> str:
    """Install the wheel for one Python and use it; return what was done."""
    run(python, "-m", "venv", folder / "venv")
    inside = folder / "venv/bin"
    (wheel,) = wheels.glob("*.whl")
    run(inside / "python", "-m", "pip", "install", "-q", wheel)
    imported = int(run(inside / "python", "-c", IMPORT_ALL))
    assert imported > 50, imported
    shown = run(inside / "usdtbuild", "--help")
    commands = re.findall(r"^  ([a-z][a-z-]+)  ", shown.partition("Commands:")[2], re.MULTILINE)
    assert len(commands) > 5, shown
    for command in commands:
        assert "Usage:" in run(inside / "usdtbuild", command, "--help")
    project = folder / "sample"
    run(inside / "usdtbuild", "init", "setuptools", project)
    environment = {**os.environ, "PIP_FIND_LINKS": str(wheels), "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    run(inside / "python", "-m", "pip", "install", "-q", project, env=environment)
    listed = run(inside / "usdtbuild", "list", *(folder / "venv").glob("lib/python*/site-packages/sample/*.so"))
    assert "sample:" in listed, listed
    assert run(inside / "python", "-m", "sample", "one", "two").strip() == "2"
    version = run(inside / "python", "--version").split()[1]
    return f"{version}: the wheel with its {imported} modules, {len(commands)} commands, a sample is built and runs"


def run(*command: object, env: dict[str, str] | None = None) -> str:
    """Run a command; return what it printed, or end with all of it."""
    words = [str(word) for word in command]
    clean = {name: value for name, value in (env or os.environ).items() if not name.startswith(("PYTHON", "VIRTUAL"))}
    done = subprocess.run(words, capture_output=True, text=True, check=False, env=clean, cwd=tempfile.gettempdir())
    if done.returncode:
        sys.exit(f"{' '.join(words)}\nexited with {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
