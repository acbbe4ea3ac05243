"""A place in a file's tokens, and the steps that all of the grammar takes from there.

Knows tokens and brackets; what they declare is read by `declarations` and `grammar`.
"""

from __future__ import annotations

from .diagnostics import SyntaxProblem
from .lexer import LETTERS, Scan
from .types import Shape


class Cursor:
    """The current token is `tokens[at]`; the one at `last` is empty and ends the file.

    `typedefs` are the names that the file has declared so far, without which C can't be read. `remade` says whether an
    attribute stepped over makes another type of what is declared; who wants to know clears it before.
    """

    __slots__ = ("at", "last", "offsets", "remade", "tokens", "typedefs")

    def __init__(self, scan: Scan, typedefs: dict[str, Shape]) -> None:
        self.tokens, self.offsets = scan.tokens, scan.offsets
        self.at = 0
        self.last = len(self.tokens) - 1
        self.typedefs = typedefs
        self.remade = False

    def here(self) -> int:
        """Return the current token's offset; at the end of the file, the place behind the last token."""
        return self.offsets[self.at] if self.at < self.last or not self.at else self.behind_last()

    def behind_last(self) -> int:
        """Return the place behind the token before the current one."""
        return self.offsets[self.at - 1] + len(self.tokens[self.at - 1])

    def wrong(self, expected: str, cure: str = "") -> SyntaxProblem:
        """Return what to raise where something else is expected than the current token."""
        return SyntaxProblem(self.here(), f"expected {expected}, found {self.found()}{cure}")

    def found(self) -> str:
        """Return the current token as messages show it."""
        return f"'{self.tokens[self.at][:40]}'" if self.at < self.last else "the end of the file"

    def take(self, token: str, where: str = "") -> None:
        """Step over this token. Raises SyntaxProblem if it isn't the current one."""
        if self.tokens[self.at] != token:
            raise self.wrong(f"'{token}'{where}")
        self.at += 1

    def take_name(self, what: str) -> str:
        """Step over a name and return it. Raises SyntaxProblem if `what` isn't here."""
        token = self.tokens[self.at]
        if token[:1] not in LETTERS:
            raise self.wrong(what)
        self.at += 1
        return token

    def skip_balanced(self) -> None:
        """Step over a bracket and everything up to the one that closes it; only in braces may that hold a ';'."""
        tokens, opening = self.tokens, self.tokens[self.at]
        closing, final = {"{": ("}", ""), "(": (")", ";"), "[": ("]", ";")}[opening]
        start, depth, at = self.at, 0, self.at
        while tokens[at] and tokens[at] != final:
            if tokens[at] == opening:
                depth += 1
            elif tokens[at] == closing:
                depth -= 1
                if not depth:
                    self.at = at + 1
                    return
            at += 1
        self.at = at
        raise SyntaxProblem(self.offsets[start], f"this '{opening}' is never closed")

    def at_provider(self) -> bool:
        """Return whether a provider's declaration begins here."""
        tokens, at = self.tokens, self.at
        return tokens[at] == "provider" and at + 2 <= self.last and tokens[at + 2] == "{"
