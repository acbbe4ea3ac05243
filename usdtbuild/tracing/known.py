"""Names and types of the arguments of well-known programs' probes, which their own records don't tell (`known.d`)."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..model import Provider


@lru_cache(maxsize=1)
def known_providers() -> tuple[Provider, ...]:
    """Return the declarations."""
    from ..provider.parser import parse

    path = Path(__file__).with_name("known.d")
    return parse(path.read_text("utf-8"), str(path))
