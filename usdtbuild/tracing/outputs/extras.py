"""Heavy libraries that only some formats need: extras of the package, imported when they are used."""

from __future__ import annotations

import importlib
from typing import Any

from ...errors import UsageError


def imported(module: str, extra: str, option: str) -> Any:
    """Return a module of an extra. Raises UsageError, which says how to get it."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        missing = (error.name or module).partition(".")[0]
        raise UsageError(
            f"{option} needs the Python package {missing}, which isn't installed: pip install 'usdtbuild[{extra}]'"
        ) from None
