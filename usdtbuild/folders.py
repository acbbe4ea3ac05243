"""Where the folders lie that other tools read: inside the package where it was installed, beside it in a checkout."""

from __future__ import annotations

from pathlib import Path

PACKAGE = Path(__file__).resolve().parent
# Each with something that it holds for certain: a checkout's package has a folder cmake too, which only hands on.
_HOLDS = {"cmake": "CMakeLists.txt", "meson": "meson.build", "sample_projects": "cmake-hello"}


def folder(name: str) -> Path:
    """Return the absolute path of `cmake`, `meson`, `sample_projects`, or of anything of the package itself."""
    inside = PACKAGE / name
    if name in _HOLDS and not (inside / _HOLDS[name]).exists():
        return PACKAGE.parent / name
    return inside
