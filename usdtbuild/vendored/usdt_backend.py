"""usdtbuild 0.1.0, optional: a build backend in front of the project's own, which `[build-system] requires` names.

setuptools, meson-python or scikit-build-core build as ever; here is only what differs where usdtbuild may be missing:
an isolated build asks for it unless USDTBUILD_DISABLED is set or the system has no tracers, and without it probes
compile to nothing. USDTBUILD_REQUIRED, a packager's choice, makes a missing one an error. Both are variables of the
environment. `usdtbuild vendor-python` wrote this file and the one beside it, which must stay together.
"""

import importlib
import importlib.util
import os
import re
import sys
from pathlib import Path
from typing import Any

import usdt_none_header

Settings = dict[str, Any] | None

# What [build-system] requires -> the backend, and how it is told: without probes, and not without.
BACKENDS = {
    "scikit-build-core": (
        "scikit_build_core.build",
        ("cmake.define.USDTBUILD_DISABLED", "cmake.define.USDTBUILD_REQUIRED"),
    ),
    "meson-python": ("mesonpy", ("-Dusdtbuild:probes=disabled", "-Dusdtbuild:probes=enabled")),
    "setuptools": ("setuptools.build_meta", ()),
}
PROJECT = Path("pyproject.toml").read_text(encoding="utf-8")  # a backend runs in the project's folder
TABLE = re.search(r"^\[build-system\](.*?)(?=^\[|\Z)", PROJECT, re.DOTALL | re.MULTILINE)
NAMED = [name for name in BACKENDS if TABLE and re.search(rf"[\"']{name}\b", TABLE[1])]
if not NAMED:
    sys.exit(f"usdt_backend: pyproject.toml: [build-system] requires names none of {', '.join(BACKENDS)}")
NAME = NAMED[0]
backend = importlib.import_module(BACKENDS[NAME][0])


def __getattr__(name: str) -> Any:
    """Every hook that isn't below is the backend's own."""
    return getattr(backend, name)


def is_set(variable: str) -> bool:
    """Whether a variable of the environment says yes."""
    return os.environ.get(variable, "").lower() not in ("", "0", "no", "off", "false")


def requirements(found: list[str]) -> list[str]:
    """What an isolated build installs: usdtbuild, too, where probes are wanted."""
    traced = sys.platform.startswith(("linux", "android", "freebsd", "sunos"))
    return [*found, "usdtbuild"] if traced and not is_set("USDTBUILD_DISABLED") else found


def get_requires_for_build_wheel(config_settings: Settings = None) -> list[str]:
    """A hook of PEP 517."""
    return requirements(backend.get_requires_for_build_wheel(config_settings))


def build_wheel(wheel_directory: str, config_settings: Settings = None, metadata_directory: Any = None) -> str:
    """A hook of PEP 517."""
    return str(backend.build_wheel(wheel_directory, prepared(config_settings), metadata_directory))


if hasattr(backend, "build_editable"):  # which older ones lack

    def get_requires_for_build_editable(config_settings: Settings = None) -> list[str]:
        """A hook of PEP 660."""
        return requirements(backend.get_requires_for_build_editable(config_settings))

    def build_editable(wheel_directory: str, config_settings: Settings = None, metadata_directory: Any = None) -> str:
        """A hook of PEP 660."""
        return str(backend.build_editable(wheel_directory, prepared(config_settings), metadata_directory))


def prepared(settings: Settings) -> Settings:
    """Get everything ready for a build with probes or without; return the settings for the backend."""
    there = importlib.util.find_spec("usdtbuild") is not None
    disabled, required = is_set("USDTBUILD_DISABLED"), is_set("USDTBUILD_REQUIRED")
    if required and not disabled and not there:
        sys.exit("usdt_backend: usdtbuild isn't installed, and USDTBUILD_REQUIRED is set; pip install usdtbuild")
    if not there:
        print("usdtbuild is not used: probes compile to nothing")
    if NAME == "setuptools":
        if not there:
            write_headers()
        return settings
    if not disabled and not required:
        return settings
    word = BACKENDS[NAME][1][0 if disabled else 1]
    if NAME == "scikit-build-core":
        return {**(settings or {}), word: "ON"}
    given = (settings or {}).get("setup-args", [])
    return {**(settings or {}), "setup-args": [*([given] if isinstance(given, str) else given), word]}


def write_headers() -> None:
    """Write the headers of the provider files that pyproject.toml names, where compilers find them."""
    folder = Path("build", "usdt-none").absolute()
    folder.mkdir(parents=True, exist_ok=True)
    for path in map(Path, re.findall(r"[\"']([^\"'\n]+\.d)[\"']", PROJECT)):
        text = usdt_none_header.header_of(path.read_text(encoding="utf-8"))
        (folder / f"{path.stem}.h").write_text(text, encoding="utf-8")
    for variable in ("CPATH", "INCLUDE"):  # GCC's and Clang's, and MSVC's
        others = os.environ.get(variable)
        os.environ[variable] = str(folder) + (os.pathsep + others if others else "")
