"""README.md as the package index shows it: links and pictures lead to the repository, of the version that is built.

Hatchling loads this file when it makes a wheel or a source distribution. It is not part of the product.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

LINK = re.compile(r"(!?)(\[[^\]]*\])\((?!\w+:|#)([^)\s]+)\)")


class ReadmeHook(MetadataHookInterface):
    """Sets `readme`, which pyproject.toml calls dynamic."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Add the text to the project's metadata."""
        text = Path(self.root, "README.md").read_text(encoding="utf-8")
        where = metadata["urls"]["Source"].rstrip("/")
        version = re.search(r'__version__ = "([^"]+)"', Path(self.root, "usdtbuild/_version.py").read_text())
        assert version
        metadata["readme"] = {"content-type": "text/markdown", "text": absolute(text, where, f"v{version[1]}")}


def absolute(text: str, where: str, tag: str) -> str:
    """Return a text whose relative links lead to a tag of a repository."""
    return LINK.sub(lambda it: f"{it[1]}{it[2]}({where}/{'raw' if it[1] else 'blob'}/{tag}/{it[3]})", text)
