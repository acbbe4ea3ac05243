"""Texts of a project's files, changed in memory; what they are as a unified diff."""

from __future__ import annotations

from pathlib import Path

from ..errors import Told
from ..text import diff


class ProjectFiles:
    """The files of one project as they will be: `text` reads, `put` changes. Paths are relative to the project."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._before: dict[str, str | None] = {}
        self.after: dict[str, str | None] = {}

    def text(self, path: str) -> str:
        """Return a file's text as it will be; bytes that are no UTF-8 come through. Raises InputError."""
        text = self.after.get(path)
        if text is None:
            file = self.root / path
            with Told(file, "can't be read"):
                text = self.after[path] = file.read_bytes().decode("utf-8", "surrogateescape")
            self._before[path] = text
        return text

    def put(self, path: str, text: str) -> None:
        """Set a file's text; lines that are new end as the file's others do."""
        if path not in self._before:
            self._before[path] = None if not (self.root / path).exists() else self.text(path)
        before = self._before[path] or ""
        if "\r\n" in before:
            text = text.replace("\r\n", "\n").replace("\n", "\r\n")
        self.after[path] = text

    def remove(self, path: str) -> None:
        """Let there be no such file."""
        self._before[path] = self.text(path)
        self.after[path] = None

    def changed(self) -> dict[str, str | None]:
        """Return the texts of the files that change, by path, in order; None for one that is removed."""
        return {path: text for path, text in sorted(self.after.items()) if text != self._before[path]}

    def is_new(self, path: str) -> bool:
        """Whether there is no such file yet."""
        return self._before[path] is None

    def diff(self) -> str:
        """Return all changes as a unified diff, which `patch -p1` and `git apply` take."""
        lines: list[str] = []
        for path, text in self.changed().items():
            before = self._before[path]
            old = "/dev/null" if before is None else f"a/{path}"
            lines += diff(before or "", text or "", old, f"b/{path}")
        return "".join(lines)
