"""Taking back what `usdtbuild add --write` wrote, as long as it is still that: nothing needs to be remembered.

What was written follows from the provider file, so each file is compared with what would be written today.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from ..errors import InputError
from .changes import ProjectFiles
from .plan import header_of, manifest_line, provider_text
from .recorder import SUFFIXES
from .scratch import project_files

_CURE = "take the probe out by hand"
_FIRST = re.compile(r"^provider (\w+) \{\n.*\n    probe (\w+)\(\);$", re.MULTILINE)


def undo(root: Path) -> ProjectFiles:
    """Return the project's files without the first probe. Raises InputError."""
    files, changes = project_files(root), ProjectFiles(root)
    provider, name, probe = _find_provider(changes, files)
    header = f"{provider[:-2]}.h"
    if not (root / header).is_file() or changes.text(header) != header_of(changes.text(provider), provider):
        raise InputError(str(root / header), "isn't the header that was written with the provider file", _CURE)
    sources = [path for path in files if path.endswith(SUFFIXES) and (root / path).is_file()]
    macro = f"{name}_{probe}".upper()
    firing = [path for path in sources if macro in changes.text(path) and not _has_a_copy(changes, path, header)]
    if len(firing) != 1:
        raise InputError(str(root / provider), f"{macro} is in {len(firing)} sources, not in one", _CURE)
    from .sources import not_fired

    included = os.path.relpath(header, os.path.dirname(firing[0]) or ".")  # noqa: PTH120 (relative, with slashes)
    text = not_fired(changes.text(firing[0]), included, macro)
    if text is None:
        raise InputError(str(root / firing[0]), f"isn't as it was written: it has more or less of {macro}", _CURE)
    changes.put(firing[0], text)
    _undo_manifest(changes, manifest_line(provider))
    changes.remove(provider)
    changes.remove(header)
    return changes


def _has_a_copy(changes: ProjectFiles, source: str, header: str) -> bool:
    """Whether a source includes another header of this name: builds copy packages, and copies stay as they are."""
    named = re.search(rf'"([^"]*\b{re.escape(os.path.basename(header))})"', changes.text(source))  # noqa: PTH119
    reached = os.path.normpath(os.path.join(os.path.dirname(source), named[1])) if named else header  # noqa: PTH118, PTH120
    return reached != header and (changes.root / reached).is_file()


def _find_provider(changes: ProjectFiles, files: list[str]) -> tuple[str, str, str]:
    for path in files:
        if path.endswith(".d") and (changes.root / path).is_file():
            text = changes.text(path)
            for name, probe in _FIRST.findall(text):
                if text == provider_text(path, name, probe):
                    return path, name, probe
    raise InputError(str(changes.root), "has no provider file that is still as usdtbuild add wrote it", _CURE)


def _undo_manifest(changes: ProjectFiles, line: str) -> None:
    manifest = "MANIFEST.in"
    if (changes.root / manifest).is_file():
        text = changes.text(manifest)
        without = re.sub(rf"^{re.escape(line)}\r?\n", "", text, flags=re.MULTILINE)
        if without != text and not without:
            changes.remove(manifest)
        elif without != text:
            changes.put(manifest, without)
