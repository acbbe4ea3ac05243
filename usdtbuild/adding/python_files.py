"""pyproject.toml: what builds a Python project, usdtbuild among its requirements, and a table of ours."""

from __future__ import annotations

import re
import sys
from typing import Any

from ..errors import InputError

# What stands in [build-system] build-backend -> what `usdtbuild add` calls it.
BACKENDS = {
    "setuptools.build_meta": "setuptools",
    "scikit_build_core.build": "scikit-build-core",
    "mesonpy": "meson-python",
}
WITHOUT_BACKEND = (
    '[build-system]\nrequires = ["setuptools>=61", "usdtbuild"]\nbuild-backend = "setuptools.build_meta:__legacy__"\n'
)


def backend_of(text: str, path: str) -> str:
    """Return the build backend as BACKENDS calls it, "" if there is none that we know. Raises InputError."""
    system = _load(text, path).get("build-system", {})
    backend = str(system.get("build-backend", "setuptools.build_meta")).partition(":")[0]
    return BACKENDS.get(backend, "")


def with_requirement(text: str, path: str) -> str:
    """Return the text with usdtbuild in [build-system] requires. Raises InputError."""
    table = re.search(r"^\[build-system\][ \t]*(?:#[^\n]*)?$(.*?)(?=^\[|\Z)", text, re.DOTALL | re.MULTILINE)
    if not table:
        return f"{WITHOUT_BACKEND}\n{text}"
    before = _load(text, path)["build-system"].get("requires", [])
    array = re.search(r"^\s*requires\s*=\s*\[", table[1], re.MULTILINE)
    if array:
        for close in re.finditer(r"\]", table[1][array.end() :]):
            at = table.start(1) + array.end() + close.start()
            changed = _with_word(text, at)
            try:
                after = _load(changed, path)["build-system"]["requires"]
            except InputError:
                continue
            if after == [*before, "usdtbuild"]:
                return changed
    raise InputError(path, "has no [build-system] requires = [...] that can be added to", 'add "usdtbuild" there')


def _with_word(text: str, at: int) -> str:
    """Return the text with one string more before the bracket at `at`."""
    inside = text[:at].rstrip()
    gap = text[len(inside) : at]
    comma = "" if inside.endswith(("[", ",")) else ","
    if "\n" in gap:
        indentation = re.search(r"\n([ \t]+)[\"'][^\n]*$", inside)
        return f'{inside}{comma}\n{indentation[1] if indentation else "    "}"usdtbuild",{gap}{text[at:]}'
    space = " " if comma or inside.endswith(",") else ""
    return f'{inside}{comma}{space}"usdtbuild"{gap}{text[at:]}'


def with_providers(text: str, provider: str) -> str:
    """Return the text with our table, at its end."""
    return f'{text.rstrip()}\n\n[tool.usdtbuild]\nproviders = ["{provider}"]\n'


def _load(text: str, path: str) -> dict[str, Any]:
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    try:
        found: dict[str, Any] = tomllib.loads(text.replace("\r\n", "\n"))
    except ValueError as error:
        raise InputError(path, f"is no TOML: {error}") from None
    return found
