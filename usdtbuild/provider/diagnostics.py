"""What is wrong with a provider file: how it is noted while the file is read, and how it is shown.

While a file is read, a problem is an offset and a sentence; line and column, which cost a search, are found at the end
for those that are shown. Knows lines and line markers, not the language.
"""

from __future__ import annotations

from ..errors import UsdtError
from ..record import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .lexer import Scan

MAX_DIAGNOSTICS = 20
_SHOWN_WIDTH = 120


class Diagnostic(NamedTuple):
    """One error or warning: where (line and column from 1), the sentence, and the line it is about."""

    path: str
    line: int
    column: int
    message: str
    source: str
    kind: str = "error"

    def __str__(self) -> str:
        """Return it as compilers print theirs: a line with the place, the source line, a caret under the column.
        Of an empty line only the place is shown."""
        start = max(0, self.column - 1 - _SHOWN_WIDTH // 2) if len(self.source) > _SHOWN_WIDTH else 0
        part = self.source[start : start + _SHOWN_WIDTH]
        printable = "".join(c if c == "\t" or c.isprintable() else "?" for c in part)
        padding = "".join("\t" if c == "\t" else " " for c in printable[: self.column - 1 - start])
        from ..text import one_line

        place = f"{one_line(self.path)}:{self.line}:{self.column}"
        shown = f"\n  {printable}\n  {padding}^" if printable.strip() else ""
        return f"{place}: {self.kind}: {self.message}{shown}"


class ParseError(UsdtError):
    """A provider file is wrong; `diagnostics` are the errors in the order of the file."""

    def __init__(self, diagnostics: tuple[Diagnostic, ...]) -> None:
        self.diagnostics = diagnostics
        super().__init__("\n".join(str(diagnostic) for diagnostic in diagnostics))

    @property
    def told(self) -> str:
        """What standard error says: as compilers do, so that editors find each place."""
        return str(self)


class SyntaxProblem(Exception):  # noqa: N818 - becomes a diagnostic, never an error of its own
    """Ends the reading of one declaration or probe; it is reported, and reading goes on behind it."""

    def __init__(self, offset: int, message: str) -> None:
        self.offset, self.message = offset, message


class TooManyProblems(Exception):  # noqa: N818 - ends the reading of a file, whose problems are all noted
    """The file has so many errors that the rest is likely noise."""


class Reports:
    """The problems and warnings of one file; `forgiving` takes what SystemTap's `dtrace` takes."""

    def __init__(self, scan: Scan, forgiving: bool) -> None:
        self.forgiving = forgiving
        problems = scan.problems + ([] if forgiving else scan.directives[:1])  # with -C the others are right, too
        self.problems = sorted(problems)[:MAX_DIAGNOSTICS]
        self.warnings: list[tuple[int, str]] = []
        if forgiving:
            self.warnings += [(offset, f"{message}: passed over") for offset, message in scan.directives]

    def report(self, offset: int, message: str) -> None:
        """Note an error. Raises TooManyProblems when there are enough of them."""
        self.problems.append((offset, message))
        if len(self.problems) >= MAX_DIAGNOSTICS:
            raise TooManyProblems

    def tolerate(self, offset: int, message: str, so: str) -> None:
        """Note what SystemTap's `dtrace` takes, and what becomes of it; where that isn't wanted it is an error."""
        if self.forgiving:
            self.warnings.append((offset, f"{message}: {so}"))
        else:
            self.report(offset, message)


def diagnostics(problems: list[tuple[int, str]], kind: str, scan: Scan, text: str, path: str) -> tuple[Diagnostic, ...]:
    """Return the problems as diagnostics, in the file's order and each once."""
    shown = sorted(set(problems))[:MAX_DIAGNOSTICS]
    return tuple(_place(offset, message, kind, scan, text, path) for offset, message in shown)


def _place(offset: int, message: str, kind: str, scan: Scan, text: str, path: str) -> Diagnostic:
    start = text.rfind("\n", 0, offset) + 1
    end = text.find("\n", start)
    source = text[start : end if end >= 0 else len(text)]
    line = text.count("\n", 0, start) + 1
    last = next((marker for marker in reversed(scan.markers) if marker.offset <= start), None)
    if last:  # only this one counts: a preprocessed file has a marker every few lines
        path, line = last.path, last.line + text.count("\n", last.offset, start)
    return Diagnostic(path, line, offset - start + 1, message, source, kind)
