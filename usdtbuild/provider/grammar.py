"""Reads a file's declarations: providers and their probes are kept as written, typedefs go to the resolver.

Outside a provider only typedefs matter; other declarations, translators and D clauses are stepped over. After an error
reading goes on with the next probe or declaration. What the types are, and whether the whole fits together, is
meaning.py's to say, when the file's end is known.
"""

from __future__ import annotations

from ..model import dashed
from ..record import NamedTuple
from .comments import comment_above
from .cursor import Cursor
from .declarations import Parameter, declarator, parameters, specifiers
from .diagnostics import Reports, SyntaxProblem
from .lexer import Scan
from .types import Base, Resolver, Shape

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    Unfit = Callable[[str], str]  # why a provider can't have a name, or ''

MAX_ARGUMENTS = 255
# DTrace keeps 64 bytes for a name; a provider's gets the process number behind it, up to ten digits.
MAX_PROBE_NAME = 63
MAX_PROVIDER_NAME = 53


class DeclaredProbe(NamedTuple):
    """A probe as written: its name, where that stands, its arguments, and the comment above."""

    name: str
    offset: int
    native: list[Parameter]
    translated: list[Parameter] | None
    comment: str


class DeclaredProvider(NamedTuple):
    """A provider as written; one that is declared again is another one here."""

    name: str
    offset: int
    probes: list[DeclaredProbe]
    comment: str


class FileReader:
    """Reads one file from its first token to its last; `providers` are those found so far."""

    def __init__(self, text: str, scan: Scan, resolver: Resolver, reports: Reports, unfit: Unfit | None) -> None:
        """Take the file, whose typedefs go to `resolver` and whose problems go to `reports`; and what else is wrong
        with a provider's name."""
        self.text, self.scan, self.resolver, self.reports, self.unfit = text, scan, resolver, reports, unfit
        self.cursor = Cursor(scan, resolver.typedefs)
        self.providers: list[DeclaredProvider] = []

    def file(self) -> None:
        """Read all of the file. Raises TooManyProblems."""
        cursor = self.cursor
        while cursor.at < cursor.last:
            start = cursor.at
            try:
                token = cursor.tokens[cursor.at]
                if token == "provider":
                    self._provider()
                elif token == "typedef":
                    self._typedef()
                elif token in (";", "__extension__"):
                    cursor.at += 1
                else:
                    self._other()
            except SyntaxProblem as error:
                self.reports.report(error.offset, error.message)
                self._recover_outside(start)

    def _recover_outside(self, start: int) -> None:
        """After an error outside a provider's braces, go on behind the next ';', or at the next provider."""
        cursor = self.cursor
        cursor.at = max(cursor.at, start + 1)
        while cursor.at < cursor.last and not cursor.at_provider():
            if cursor.tokens[cursor.at] == "{":
                try:
                    cursor.skip_balanced()
                except SyntaxProblem:
                    return
            else:
                cursor.at += 1
                if cursor.tokens[cursor.at - 1] == ";":
                    return

    def _other(self) -> None:
        """Step over a declaration, translator or D clause: up to a ';' or a closing brace outside brackets."""
        cursor = self.cursor
        first, start = cursor.tokens[cursor.at], cursor.at
        if first == "probe" and cursor.tokens[cursor.at + 2 : cursor.at + 3] == ["("]:
            raise SyntaxProblem(cursor.here(), "this probe is outside of a provider: provider NAME { probe ...; };")
        while cursor.at < cursor.last:
            token = cursor.tokens[cursor.at]
            if token == ";":
                cursor.at += 1
                return
            if token == "{":
                if cursor.tokens[cursor.at + 1] == "probe" and cursor.at > start:
                    raise SyntaxProblem(cursor.offsets[start], f"expected 'provider', found '{first[:40]}'")
                cursor.skip_balanced()
                return
            if token in ("(", "["):
                cursor.skip_balanced()
            elif token == "}" and not self.reports.problems:  # of which it may come
                raise SyntaxProblem(cursor.here(), "stray '}': no brace is open here")
            elif cursor.at_provider():
                raise SyntaxProblem(cursor.offsets[start], f"stray '{first[:40]}' in front of the provider")
            else:
                cursor.at += 1
        if self.providers and not self.reports.problems:
            what = f"stray '{first[:40]}' behind the providers: no ';' ends it"
            self.reports.tolerate(cursor.offsets[start], what, "passed over")

    def _typedef(self) -> None:
        cursor = self.cursor
        cursor.at += 1
        cursor.remade = False
        base, _ = specifiers(cursor, body=True)
        while True:
            _, name, offset, _, derived = declarator(cursor, 0, False)
            if not name:
                raise cursor.wrong("the new type's name")
            if cursor.remade:
                base, derived = Base("bad", "__attribute__"), ""
            if not self.resolver.define(name, Shape(base, derived)):
                self.reports.report(offset, f"type '{name}' is defined twice, and differently")
            if cursor.tokens[cursor.at] != ",":
                break
            cursor.at += 1
        cursor.take(";", f" after typedef {name}")

    def _provider(self) -> None:
        cursor = self.cursor
        comment = comment_above(self.scan, self.text, cursor.at)
        cursor.at += 1
        offset = cursor.here()
        name = cursor.take_name("the provider's name")
        self._check_provider_name(name, offset)
        opening, opened = cursor.at, cursor.tokens[cursor.at] != "probe"
        if not opened:
            self.reports.report(cursor.here(), f"expected '{{' after provider {name}, found 'probe'")
        elif cursor.tokens[cursor.at] != "{":
            from . import cures

            raise cursor.wrong(f"'{{' after provider {name}", cures.after_provider(name, cursor.tokens, cursor.at))
        else:
            cursor.at += 1
        provider = DeclaredProvider(name, offset, [], comment)
        self.providers.append(provider)
        while cursor.tokens[cursor.at] != "}":
            start = cursor.at
            try:
                if cursor.at == cursor.last:
                    if opened:
                        self.reports.report(cursor.offsets[opening], f"this '{{' of provider {name} is never closed")
                    return
                if cursor.at_provider():
                    raise cursor.wrong(f"a '}}' that ends provider {name}")
                if cursor.tokens[cursor.at] == ";":
                    cursor.at += 1
                else:
                    self._probe(provider)
            except SyntaxProblem as error:
                self.reports.report(error.offset, error.message)
                if cursor.at_provider():
                    return
                self._recover_inside(start)
        cursor.at += 1  # real files leave out the ';' behind it

    def _recover_inside(self, start: int) -> None:
        """After an error in a probe, go on behind the next ';', or at the next probe or closing brace."""
        cursor = self.cursor
        cursor.at = max(cursor.at, start + 1)
        while cursor.at < cursor.last and cursor.tokens[cursor.at] not in ("}", "probe") and not cursor.at_provider():
            cursor.at += 1
            if cursor.tokens[cursor.at - 1] == ";":
                return

    def _check_provider_name(self, name: str, offset: int) -> None:
        if name == "pid":
            self.reports.report(offset, "provider name 'pid' is taken: DTrace's own pid provider has it")
        elif len(name) > MAX_PROVIDER_NAME:
            what = f"{len(name)} characters long, and DTrace takes {MAX_PROVIDER_NAME}"
            self.reports.report(offset, f"provider name is {what}")
        elif "___" in name or name[-1] == "_":
            what = "contains '___'" if "___" in name else "ends in '_'"
            self.reports.report(offset, f"provider name '{name}' {what}, which separates provider and probe in symbols")
        elif self.unfit and (reason := self.unfit(name)):
            self.reports.report(offset, reason)

    def _probe(self, provider: DeclaredProvider) -> None:
        cursor = self.cursor
        first = cursor.at
        cursor.take("probe")
        offset = cursor.here()
        name = cursor.take_name("the probe's name")
        if cursor.tokens[cursor.at] == "-":
            raise SyntaxProblem(cursor.here(), "a probe's name is an identifier; write '__' for '-'")
        if cursor.tokens[cursor.at] in (";", "}", "probe"):
            raise SyntaxProblem(cursor.here(), f"expected '(', as in: probe {name[:80]}();")
        cursor.take("(", f" after probe {name[:80]}")
        native = parameters(cursor, 0)
        translated = None
        if cursor.tokens[cursor.at] == ":":
            cursor.at += 1
            cursor.take("(", " before the translated arguments")
            translated = parameters(cursor, 0)
        if cursor.tokens[cursor.at] not in ("}", "probe", ";") and cursor.at < cursor.last:
            raise cursor.wrong(f"';' after probe {name[:80]}")
        if cursor.tokens[cursor.at] == ";":
            cursor.at += 1
        elif cursor.tokens[cursor.at] == "probe":  # real files leave it out behind their last probe
            what = f"expected ';' after probe {name[:80]}, found {cursor.found()}"
            self.reports.tolerate(cursor.behind_last(), what, "read as if it were there")
        if len(dashed(name)) > MAX_PROBE_NAME:
            self.reports.report(offset, f"probe name is {len(name)} characters long, and DTrace takes {MAX_PROBE_NAME}")
        for what, count in (("", len(native)), ("translated ", len(translated or ()))):
            if count > MAX_ARGUMENTS:
                limit = f"{what}arguments, and DTrace takes {MAX_ARGUMENTS}"
                self.reports.report(offset, f"probe '{name[:80]}' has {count} {limit}")
        comment = comment_above(self.scan, self.text, first)
        provider.probes.append(DeclaredProbe(name, offset, native, translated, comment))
