"""Reads the D provider language: a provider file's text becomes `model.Provider` records, or a list of diagnostics.

The grammar is what DTrace's own compiler takes, and what real files contain besides (docs/provider-language.md lists
both). Outside a provider only typedefs matter; other declarations, translators and D clauses are stepped over. Types
are resolved when the whole file is known, so a typedef may follow its use. After an error the parser goes on with
the next probe, and reports everything it found. Nothing here knows the header or ELF.
"""

from __future__ import annotations

from ..errors import InputError, UsdtError
from ..record import NamedTuple
from .lexer import DIGITS, LETTERS, Pragma, scan
from .model import Argument, Attribute, Attributes, CType, Probe, Provider, Translated
from .types import UNSUPPORTED_TYPES, Base, Resolver, Shape, TypeProblem, is_known

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

MAX_DIAGNOSTICS = 20
MAX_ARGUMENTS = 255
# DTrace keeps 64 bytes for a name; a provider's gets the process number behind it, up to ten digits.
MAX_PROBE_NAME = 63
MAX_PROVIDER_NAME = 53
# No declaration that means anything nests its parentheses deeper.
_MAX_NESTING = 16
_SHOWN_WIDTH = 120
_LONGEST_COMMENT = 1 << 16  # characters of what stands above a probe; what is longer documents nothing

_STABILITY = ("internal", "private", "obsolete", "external", "unstable", "evolving", "stable", "standard")
_CLASSES = ("unknown", "cpu", "platform", "group", "isa", "common")

_TAGS = frozenset(("struct", "union", "enum"))
# Qualifiers and storage classes, and how they appear in the type's spelling.
_QUALIFIERS = {
    "const": "const", "__const": "const", "__const__": "const",
    "volatile": "volatile", "__volatile": "volatile", "__volatile__": "volatile",
    "restrict": "restrict", "__restrict": "restrict", "__restrict__": "restrict",
    "register": "", "auto": "", "extern": "", "static": "", "inline": "", "__inline": "", "__inline__": "",
    "__extension__": "", "_Noreturn": "", "_Atomic": "", "userland": "", "_Thread_local": "", "__thread": "",
}  # fmt: skip
_WORDS = {
    "void": "void", "char": "char", "short": "short", "int": "int", "long": "long", "float": "float",
    "double": "double", "signed": "signed", "__signed": "signed", "__signed__": "signed", "unsigned": "unsigned",
    "_Complex": "_Complex", "__complex__": "_Complex", "__int128": "__int128",
}  # fmt: skip
_WITH_PARENTHESES = frozenset(
    ("__attribute__", "__attribute", "__asm__", "__asm", "asm", "_Alignas", "alignas", "__declspec")
)
_TYPEOF = frozenset(("typeof", "__typeof", "__typeof__", "_Atomic"))
# An attribute that makes another type of what is declared.
_REMAKING = frozenset(("mode", "__mode__", "vector_size", "__vector_size__"))


def _combinations() -> dict[tuple[str, ...], str]:
    """Return the type for each permitted combination of type words, which C lets stand in any order."""
    table: dict[tuple[str, ...], str] = {}
    for name in ("void", "char", "float", "double", "long double", "signed char", "unsigned char", "__int128",
                 "unsigned __int128"):  # fmt: skip
        table[tuple(sorted(name.split()))] = name
    table["__int128", "signed"] = "__int128"
    for length in ("", "short", "long", "long long"):
        for sign in ("", "signed", "unsigned"):
            for integer in ("", "int"):
                words = f"{sign} {length} {integer}".split()
                shortest = " ".join(word for word in (sign if sign == "unsigned" else "", length) if word)
                table[tuple(sorted(words))] = shortest if length else f"{shortest} int".strip()
    del table[()]
    for real in ("float", "double", "long double"):
        table[tuple(sorted([*real.split(), "_Complex"]))] = "_Complex"
    return table


_COMBINATIONS = _combinations()


class Diagnostic(NamedTuple):
    """One error or warning: where (line and column from 1), the sentence, and the line it is about."""

    path: str
    line: int
    column: int
    message: str
    source: str
    kind: str = "error"

    def __str__(self) -> str:
        """Return it as compilers print theirs: a line with the place, the source line, a caret under the column."""
        start = max(0, self.column - 1 - _SHOWN_WIDTH // 2) if len(self.source) > _SHOWN_WIDTH else 0
        shown = self.source[start : start + _SHOWN_WIDTH]
        printable = "".join(c if c == "\t" or c.isprintable() else "?" for c in shown)
        padding = "".join("\t" if c == "\t" else " " for c in printable[: self.column - 1 - start])
        place = f"{self.path}:{self.line}:{self.column}"
        return f"{place}: {self.kind}: {self.message}\n  {printable}\n  {padding}^"


class ParseError(UsdtError):
    """A provider file is wrong; `diagnostics` are the errors in the order of the file."""

    def __init__(self, diagnostics: tuple[Diagnostic, ...]) -> None:
        """Take the diagnostics; the exception's text is all of them."""
        self.diagnostics = diagnostics
        super().__init__("\n".join(str(diagnostic) for diagnostic in diagnostics))


def parse(text: str, path: str, warn: Callable[[Diagnostic], None] | None = None) -> tuple[Provider, ...]:
    """Return the providers of a file in the order in which they are declared. Raises ParseError.

    With `warn`, what SystemTap's `dtrace` takes and DTrace doesn't is no error: `warn` is told of it.
    """
    if "\r" in text:
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    parser = _Parser(text, path, forgiving=warn is not None)
    try:
        parser.file()
        providers = parser.finish()
    except _TooManyError:
        providers = ()
    if warn:
        for warning in parser.diagnostics(parser.warnings, "warning"):
            warn(warning)
    if parser.problems:
        raise ParseError(parser.diagnostics(parser.problems, "error"))
    return providers


def parse_bytes(
    data: bytes, path: str, warn: Callable[[Diagnostic], None] | None = None
) -> tuple[Provider, ...]:
    """Like `parse`, for a file's content. Only comments can hold bytes that aren't ASCII. Raises ParseError."""
    return parse(data.decode("utf-8-sig", "replace"), path, warn)


def parse_file(path: str) -> tuple[Provider, ...]:
    """Like `parse`, for a file, which must not need the C preprocessor. Raises ParseError, InputError."""
    return parse_bytes(read_file(path), path)


def read_file(path: str) -> bytes:
    """Return a provider file's content. Raises InputError."""
    try:
        with open(path, "rb") as file:  # noqa: PTH123 - importing pathlib costs more than parsing
            return file.read()
    except OSError as error:
        raise InputError(path, (error.strerror or str(error)).lower()) from None


class _SyntaxError(Exception):
    """Ends the reading of one declaration or probe; the parser reports it and goes on behind it."""

    def __init__(self, offset: int, message: str) -> None:
        self.offset, self.message = offset, message


class _TooManyError(Exception):
    """The file has so many errors that the rest is likely noise."""


class _Parameter(NamedTuple):
    """An argument as written: its type, unresolved, its spelling, its name, and where it stands."""

    shape: Shape
    spelling: str
    name: str
    offset: int


class _Probe(NamedTuple):
    name: str
    offset: int
    native: list[_Parameter]
    translated: list[_Parameter] | None
    comment: str


class _Provider(NamedTuple):
    name: str
    offset: int
    probes: list[_Probe]
    comment: str


class _Parser:
    """One file's parse: tokens, the place in them, and what was found so far."""

    def __init__(self, text: str, path: str, forgiving: bool) -> None:
        self.text, self.path, self.forgiving = text, path, forgiving
        self.scan = scan(text)
        self.tokens, self.offsets = self.scan.tokens, self.scan.offsets
        self.at = 0
        self.last = len(self.tokens) - 1
        self.resolver = Resolver()
        self.providers: list[_Provider] = []
        self.problems: list[tuple[int, str]] = []
        self.warnings: list[tuple[int, str]] = []
        self.remade = False
        self.types: dict[tuple[Shape, str], CType] = {}
        problems = self.scan.problems + ([] if forgiving else self.scan.directives)
        self.problems += sorted(problems)[:MAX_DIAGNOSTICS]
        if forgiving:
            self.warnings += [(offset, f"{message}: passed over") for offset, message in self.scan.directives]

    # --- errors ---------------------------------------------------------------------------------------------------

    def report(self, offset: int, message: str) -> None:
        self.problems.append((offset, message))
        if len(self.problems) >= MAX_DIAGNOSTICS:
            raise _TooManyError

    def tolerate(self, offset: int, message: str, so: str) -> None:
        """Note what SystemTap's `dtrace` takes, and what becomes of it; where that isn't wanted it is an error."""
        if self.forgiving:
            self.warnings.append((offset, f"{message}: {so}"))
        else:
            self.report(offset, message)

    def diagnostics(self, problems: list[tuple[int, str]], kind: str) -> tuple[Diagnostic, ...]:
        """Return the problems as diagnostics, in the file's order and each once."""
        return tuple(self._place(*problem, kind) for problem in sorted(set(problems))[:MAX_DIAGNOSTICS])

    def _place(self, offset: int, message: str, kind: str) -> Diagnostic:
        text = self.text
        start = text.rfind("\n", 0, offset) + 1
        end = text.find("\n", start)
        source = text[start : end if end >= 0 else len(text)]
        path, line = self.path, text.count("\n", 0, start) + 1
        last = next((marker for marker in reversed(self.scan.markers) if marker.offset <= start), None)
        if last:  # only this one counts: a preprocessed file has a marker every few lines
            path, line = last.path, last.line + text.count("\n", last.offset, start)
        return Diagnostic(path, line, offset - start + 1, message, source, kind)

    def here(self) -> int:
        """Return the current token's offset; at the end of the file, the place behind the last token."""
        if self.at < self.last or not self.at:
            return self.offsets[self.at]
        return self.offsets[self.at - 1] + len(self.tokens[self.at - 1])

    def wrong(self, expected: str, cure: str = "") -> _SyntaxError:
        found = f"'{self.tokens[self.at][:40]}'" if self.at < self.last else "the end of the file"
        return _SyntaxError(self.here(), f"expected {expected}, found {found}{cure}")

    # --- tokens ---------------------------------------------------------------------------------------------------

    def take(self, token: str, where: str = "") -> None:
        if self.tokens[self.at] != token:
            raise self.wrong(f"'{token}'{where}")
        self.at += 1

    def take_name(self, what: str) -> str:
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
        raise _SyntaxError(self.offsets[start], f"this '{opening}' is never closed")

    # --- the file -------------------------------------------------------------------------------------------------

    def file(self) -> None:
        while self.at < self.last:
            start = self.at
            try:
                token = self.tokens[self.at]
                if token == "provider":
                    self.provider()
                elif token == "typedef":
                    self.typedef()
                elif token in (";", "__extension__"):
                    self.at += 1
                else:
                    self.other()
            except _SyntaxError as error:
                self.report(error.offset, error.message)
                self.recover_outside(start)

    def recover_outside(self, start: int) -> None:
        """After an error outside a provider's braces, go on behind the next ';', or at the next provider."""
        self.at = max(self.at, start + 1)
        while self.at < self.last and not self.at_provider():
            if self.tokens[self.at] == "{":
                try:
                    self.skip_balanced()
                except _SyntaxError:
                    return
            else:
                self.at += 1
                if self.tokens[self.at - 1] == ";":
                    return

    def at_provider(self) -> bool:
        """Return whether a provider's declaration begins here."""
        tokens, at = self.tokens, self.at
        return tokens[at] == "provider" and at + 2 <= self.last and tokens[at + 2] == "{"

    def other(self) -> None:
        """Step over a declaration, translator or D clause: up to a ';' or a closing brace outside brackets."""
        first, start = self.tokens[self.at], self.at
        if first == "probe" and self.tokens[self.at + 2 : self.at + 3] == ["("]:
            raise _SyntaxError(self.here(), "this probe is outside of a provider: provider NAME { probe ...; };")
        while self.at < self.last:
            token = self.tokens[self.at]
            if token == ";":
                self.at += 1
                return
            if token == "{":
                if self.tokens[self.at + 1] == "probe" and self.at > start:
                    raise _SyntaxError(self.offsets[start], f"expected 'provider', found '{first[:40]}'")
                self.skip_balanced()
                return
            if token in ("(", "["):
                self.skip_balanced()
            elif self.at_provider():
                raise _SyntaxError(self.offsets[start], f"stray '{first[:40]}' in front of the provider")
            else:
                self.at += 1

    def typedef(self) -> None:
        self.at += 1
        self.remade = False
        base, _ = self.base(body=True)
        while True:
            _, name, offset, _, derived = self.declarator(0, False)
            if not name:
                raise self.wrong("the new type's name")
            if self.remade:
                base, derived = Base("bad", "__attribute__"), ""
            if not self.resolver.define(name, Shape(base, derived)):
                self.report(offset, f"type '{name}' is defined twice, and differently")
            if self.tokens[self.at] != ",":
                break
            self.at += 1
        self.take(";", f" after typedef {name}")

    def attributes(self) -> None:
        """Step over compilers' attributes; note whether one of them makes another type of what it stands at."""
        while self.tokens[self.at] in _WITH_PARENTHESES or self.tokens[self.at] == "__extension__":
            start = self.at
            self.at += 1
            if self.tokens[self.at] == "(":
                self.skip_balanced()
            self.remade = self.remade or not _REMAKING.isdisjoint(self.tokens[start : self.at])

    # --- providers and probes -------------------------------------------------------------------------------------

    def provider(self) -> None:
        comment = self.comment_above(self.at)
        self.at += 1
        offset = self.here()
        name = self.take_name("the provider's name")
        self.check_provider_name(name, offset)
        opening = self.at
        if self.tokens[self.at] == "probe":
            self.report(self.here(), f"expected '{{' after provider {name}, found 'probe'")
        elif self.tokens[self.at] != "{":
            from . import cures

            raise self.wrong(f"'{{' after provider {name}", cures.after_provider(name, self.tokens, self.at))
        else:
            self.at += 1
        provider = _Provider(name, offset, [], comment)
        self.providers.append(provider)
        while self.tokens[self.at] != "}":
            start = self.at
            try:
                if self.at == self.last:
                    self.report(self.offsets[opening], f"this '{{' of provider {name} is never closed")
                    return
                if self.at_provider():
                    raise self.wrong(f"a '}}' that ends provider {name}")
                if self.tokens[self.at] == ";":
                    self.at += 1
                else:
                    self.probe(provider)
            except _SyntaxError as error:
                self.report(error.offset, error.message)
                if self.at_provider():
                    return
                self.recover_inside(start)
        self.at += 1

    def recover_inside(self, start: int) -> None:
        """After an error in a probe, go on behind the next ';', or at the next probe or closing brace."""
        self.at = max(self.at, start + 1)
        while self.at < self.last and self.tokens[self.at] not in ("}", "probe") and not self.at_provider():
            self.at += 1
            if self.tokens[self.at - 1] == ";":
                return

    def check_provider_name(self, name: str, offset: int) -> None:
        if name[-1] in DIGITS:
            what = f"provider name '{name[:80]}' ends in a digit, where DTrace puts the process number"
            self.tolerate(offset, what, "only tracers of SDT notes will know it")
        elif name == "pid":
            self.report(offset, "provider name 'pid' is taken: DTrace's own pid provider has it")
        elif len(name) > MAX_PROVIDER_NAME:
            self.report(offset, f"provider name is {len(name)} characters long, and DTrace takes {MAX_PROVIDER_NAME}")
        elif "___" in name or name[-1] == "_":
            what = "contains '___'" if "___" in name else "ends in '_'"
            self.report(offset, f"provider name '{name}' {what}, which separates provider and probe in symbols")

    def probe(self, provider: _Provider) -> None:
        first = self.at
        self.take("probe")
        offset = self.here()
        name = self.take_name("the probe's name")
        if self.tokens[self.at] == "-":
            raise _SyntaxError(self.here(), "a probe's name is an identifier; write '__' for '-'")
        if self.tokens[self.at] in (";", "}", "probe"):
            raise _SyntaxError(self.here(), f"expected '(', as in: probe {name[:80]}();")
        self.take("(", f" after probe {name[:80]}")
        native = self.parameters(0)
        translated = None
        if self.tokens[self.at] == ":":
            self.at += 1
            self.take("(", " before the translated arguments")
            translated = self.parameters(0)
        if self.tokens[self.at] == ";":
            self.at += 1
        elif self.tokens[self.at] not in ("}", "probe") and self.at < self.last:
            raise self.wrong(f"';' after probe {name[:80]}")
        if len(name.replace("__", "-")) > MAX_PROBE_NAME:
            self.report(offset, f"probe name is {len(name)} characters long, and DTrace takes {MAX_PROBE_NAME}")
        for what, count in (("", len(native)), ("translated ", len(translated or ()))):
            if count > MAX_ARGUMENTS:
                limit = f"{what}arguments, and DTrace takes {MAX_ARGUMENTS}"
                self.report(offset, f"probe '{name[:80]}' has {count} {limit}")
        provider.probes.append(_Probe(name, offset, native, translated, self.comment_above(first)))

    # --- types ----------------------------------------------------------------------------------------------------

    def parameters(self, depth: int, variable: bool = False) -> list[_Parameter]:
        """Read parameters up to and with the ')'; a sole `void` is none at all."""
        found: list[_Parameter] = []
        tokens = self.tokens
        if tokens[self.at] == ")":
            self.at += 1
            return found
        while True:
            if tokens[self.at] == "..." and variable and found:
                found.append(_Parameter(Shape(Base("basic", "void"), ""), "...", "", self.here()))
                self.at += 1
            else:
                found.append(self.parameter(depth))
            if tokens[self.at] == ",":
                self.at += 1
                continue
            if tokens[self.at] != ")":
                from . import cures

                raise self.wrong("')' or ',' after the argument", cures.after_argument(tokens, self.at))
            self.at += 1
            break
        if len(found) == 1 and not depth and found[0].spelling == "void" and not found[0].name:
            return []
        return found

    def parameter(self, depth: int) -> _Parameter:
        offset = self.here()
        if self.tokens[self.at] == "...":
            raise _SyntaxError(offset, "a probe has a fixed number of arguments")
        base, words = self.base(body=False)
        if self.tokens[self.at] in (",", ")"):
            return _Parameter(Shape(base, ""), words, "", offset)
        prefix, name, _, suffix, derived = self.declarator(depth, True)
        self.attributes()
        abstract = prefix + suffix
        return _Parameter(Shape(base, derived), f"{words} {abstract}" if abstract else words, name, offset)

    def base(self, body: bool) -> tuple[Base, str]:
        """Read specifiers and qualifiers; return what they name, and their spelling."""
        start = self.at
        spelled: list[str] = []
        words: list[str] = []
        named: Base | None = None
        volatile = False
        while True:
            token = self.tokens[self.at]
            if token in _WORDS and named is None:
                words.append(_WORDS[token])
                spelled.append(_WORDS[token])
            elif token in _QUALIFIERS and not (token in _TYPEOF and self.tokens[self.at + 1] == "("):
                if _QUALIFIERS[token]:
                    spelled.append(_QUALIFIERS[token])
                volatile = volatile or _QUALIFIERS[token] == "volatile"
            elif token in _WITH_PARENTHESES:
                self.attributes()
                continue
            elif named is None and not words and (token[:1] in LETTERS or token == "`"):
                named = self.named(body, spelled)
                continue
            else:
                break
            self.at += 1
        if named is None:
            if not words:
                raise self.wrong("a type")
            named = self.combination(words, start)
        return (named._replace(volatile=True) if volatile else named), " ".join(spelled)

    def combination(self, words: list[str], start: int) -> Base:
        name = _COMBINATIONS.get(tuple(sorted(words)))
        if name is None:
            raise _SyntaxError(self.offsets[start], f"'{' '.join(words)[:80]}' is no type")
        return Base("bad" if name in UNSUPPORTED_TYPES else "basic", name)

    def named(self, body: bool, spelled: list[str]) -> Base:
        """Read a type that is no keyword: a tag with its kind, a name, or a name of another module (``D`name``)."""
        token = self.tokens[self.at]
        if token in _TYPEOF:
            self.at += 1
            self.skip_balanced()
            return Base("bad", "typeof")
        kind = "name"
        if token in _TAGS:
            kind = token
            self.at += 1
            self.attributes()
            spelled.append(token)
        name, scope = "", ""
        if self.tokens[self.at][:1] in LETTERS:
            name = self.take_name("a type")
        if self.tokens[self.at] == "`":
            self.at += 1
            scope, name = name + "`", self.take_name("a type")
        if name:
            spelled.append(scope + name)
        elif kind == "name":
            raise self.wrong("a type")
        if kind != "name":
            self.tag_body(kind, name, body)
        if kind == "enum" and self.tokens[self.at] == ":" and body:
            self.at += 1
            self.base(False)
            self.tag_body(kind, name, body)
        return Base(kind, name, False, bool(scope))

    def tag_body(self, kind: str, name: str, body: bool) -> None:
        """Step over the members of a struct, union or enum, where they may stand."""
        if self.tokens[self.at] == "{":
            if not body:
                raise _SyntaxError(self.here(), f"declare this {kind} in front of the provider, not in an argument")
            self.skip_balanced()
        elif not name and self.tokens[self.at] != ":":
            raise self.wrong(f"the name of the {kind}")

    def declarator(self, depth: int, abstract: bool) -> tuple[str, str, int, str, str]:
        """Read a declarator; return the spelling before and behind the name, the name, its offset, the derivations."""
        if depth > _MAX_NESTING:
            raise _SyntaxError(self.here(), "this declaration is nested too deeply")
        prefix, stars = self.pointers()
        name, offset, suffix, derived = "", self.here(), "", ""
        token = self.tokens[self.at]
        if token == "(" and self.nested(abstract):
            self.at += 1
            inner, name, offset, outer, derived = self.declarator(depth + 1, abstract)
            self.take(")")
            prefix, suffix = f"{prefix}({inner}", f"{outer})"
            # Parentheses around nothing but a name change nothing.
            if prefix.endswith("(") and suffix == ")" and not inner:
                prefix, suffix = prefix[:-1], ""
        elif token[:1] in LETTERS and token not in _WORDS and token not in _QUALIFIERS and token not in _TAGS:
            name = token
            self.at += 1
        self.attributes()
        suffixes: list[str] = []
        while self.tokens[self.at] in ("[", "("):
            if self.tokens[self.at] == "[":
                suffixes.append(self.array())
            else:
                self.at += 1
                inside = self.parameters(depth + 1, variable=True)
                suffixes.append(f"({', '.join(p.spelling for p in inside)})")
            self.attributes()
        suffix += "".join(suffixes)
        derived += "".join(text[0] for text in suffixes)
        # Only the outermost derivations matter (types.Shape), and a thousand stars shall not cost a thousand steps.
        return prefix, name, offset, suffix, (derived + stars)[:3]

    def pointers(self) -> tuple[str, str]:
        """Read `*` and the qualifiers between; return their spelling, and a star for each."""
        pieces: list[str] = []
        stars = 0
        while True:
            token = self.tokens[self.at]
            if token == "*":
                stars += 1
                if pieces and pieces[-1] != "*":
                    pieces.append(" ")
                pieces.append("*")
            elif token in _QUALIFIERS:
                word = _QUALIFIERS[token]
                if word and pieces:
                    pieces.append(word if pieces[-1] == "*" else " " + word)
            elif token in _WITH_PARENTHESES:
                self.attributes()
                continue
            else:
                return "".join(pieces), "*" * stars
            self.at += 1

    def nested(self, abstract: bool) -> bool:
        """Return whether a '(' opens a declarator in parentheses, and not a function's parameters."""
        token = self.tokens[self.at + 1]
        if token in ("*", "(", "[") or token in _WITH_PARENTHESES:
            return True
        if token[:1] not in LETTERS or token in _WORDS or token in _QUALIFIERS or token in _TAGS:
            return False
        return not abstract or not (is_known(token) or token in self.resolver.typedefs)

    def array(self) -> str:
        """Step over `[size]`; return its spelling."""
        start = self.at
        self.skip_balanced()
        size = self.tokens[start + 1 : self.at - 1]
        for position, token in enumerate(size, start + 1):
            if token[0] in "\"';{}":
                raise _SyntaxError(self.offsets[position], "expected the array's size")
        return f"[{' '.join(size)}]"

    # --- comments -------------------------------------------------------------------------------------------------

    def comment_above(self, token: int) -> str:
        """Return the text of the comments that stand on the lines directly above a token."""
        comments, text = self.scan.comments, self.text
        low, high = 0, len(comments)
        while low < high:
            middle = (low + high) // 2
            if comments[middle].token <= token:
                low = middle + 1
            else:
                high = middle
        pieces: list[str] = []
        below, left = self.offsets[token], _LONGEST_COMMENT
        for comment in reversed(comments[:low]):
            gap = text[comment.end : below]
            # Indentation is short; a file of one line must not be searched to its start for every comment.
            before = text[max(0, comment.start - _SHOWN_WIDTH) : comment.start].rpartition("\n")[2]
            if comment.token != token or gap.strip() or gap.count("\n") > 1 or before.strip():
                break
            pieces.append(_comment_text(text[comment.start : min(comment.end, comment.start + left)]))
            below, left = comment.start, left - (comment.end - comment.start)
            if left <= 0:
                break
        return _without_margin("\n".join(piece for piece in reversed(pieces) if piece))

    # --- the result -----------------------------------------------------------------------------------------------

    def finish(self) -> tuple[Provider, ...]:
        """Resolve types, apply pragmas, and check what can be checked only when the whole file is known."""
        found: dict[str, Provider] = {}
        macros: dict[str, str] = {}
        for provider in self.providers:
            probes = self.probes(provider)
            if provider.name in found:
                self.check_reopened(provider, found[provider.name], probes)
                continue
            found[provider.name] = Provider(provider.name, probes, Attributes(), provider.comment)
            for probe in provider.probes:
                self.check_macros(provider.name, probe, macros)
        for pragma in self.scan.pragmas:
            self.pragma(pragma, found)
        return tuple(found.values())

    def probes(self, provider: _Provider) -> tuple[Probe, ...]:
        seen: dict[str, Probe] = {}
        for probe in provider.probes:
            if probe.name in seen:
                self.report(probe.offset, f"probe '{probe.name[:80]}' is declared twice in provider {provider.name}")
                continue
            native = tuple(Argument(self.resolve(p), p.name) for p in probe.native)
            translated = None if probe.translated is None else self.translated(probe)
            seen[probe.name] = Probe(probe.name, native, translated, probe.comment)
        return tuple(seen.values())

    def resolve(self, parameter: _Parameter) -> CType:
        key = (parameter.shape, parameter.spelling)
        if key not in self.types:
            try:
                self.types[key] = self.resolver.resolve(*key)
            except TypeProblem as problem:
                if problem.instead is None or not self.forgiving:
                    self.report(parameter.offset, str(problem))
                    return CType("", "", False, 0, 0)
                self.tolerate(parameter.offset, str(problem), problem.so)
                self.types[key] = problem.instead
        return self.types[key]

    def translated(self, probe: _Probe) -> tuple[Translated, ...]:
        """Say which native argument each translated one comes from: the one of its name, else of its place."""
        found: list[Translated] = []
        names = [native.name for native in probe.native]
        for index, (_, spelling, name, offset) in enumerate(probe.translated or ()):
            if len(spelling) > 127:
                self.report(offset, f"the type is {len(spelling)} characters long, and DTrace takes 127")
            if name and name in names:
                found.append(Translated(spelling, name, names.index(name)))
            elif name:
                self.report(offset, f"translated argument '{name[:80]}' has no argument of that name to come from")
            elif index < len(names):
                found.append(Translated(spelling, name, index))
            else:
                self.report(offset, f"translated argument {index + 1} has no argument to come from")
        return tuple(found)

    def check_reopened(self, provider: _Provider, first: Provider, probes: tuple[Probe, ...]) -> None:
        """A provider may be declared again with probes that it has; anything else is two providers of one name."""
        known = {probe.stub: probe._replace(comment="") for probe in first.probes}
        for probe, place in zip(probes, provider.probes):
            if known.get(probe.stub) != probe._replace(comment=""):
                self.report(place.offset, f"provider {first.name} is declared already, and has no such probe")

    def check_macros(self, provider: str, probe: _Probe, macros: dict[str, str]) -> None:
        """Two probes must not become one macro (`a_b` and `a__b`; `a` and `a_enabled`)."""
        name = f"{provider}:{probe.name}"
        macro = macro_name(provider, probe.name)
        for each in (macro, f"{macro}_ENABLED"):
            other = macros.setdefault(each, name)
            if other != name:
                self.report(probe.offset, f"probes {other[:120]} and {name[:120]} would both be the macro {each[:120]}")
                return

    def pragma(self, pragma: Pragma, found: dict[str, Provider]) -> None:
        """Apply a `#pragma D attributes N/D/C provider NAME PART`; other pragmas have no meaning here."""
        words, offsets = self.without_blanks(pragma)
        if [word.lower() for word in words[:2]] != ["d", "attributes"]:
            return
        attribute = self.attribute(words[2], offsets[2]) if len(words) > 2 else None
        if len(words) == 4 or (len(words) > 2 and attribute is None):
            return  # attributes of a D variable or translator, or reported already
        if len(words) != 6 or words[3].lower() != "provider" or attribute is None:
            self.report(pragma.offset, "expected '#pragma D attributes NAME/DATA/CLASS provider PROVIDER PART'")
            return
        name, part = words[4], words[5].lower()
        if part not in Attributes._fields:
            parts = ", ".join(Attributes._fields)
            self.report(offsets[5], f"'{words[5][:40]}' is no part of a provider; the parts are {parts}")
        elif name not in found:
            self.report(offsets[4], f"no provider '{name[:80]}' is declared in this file")
        else:
            attributes = found[name].attributes._replace(**{part: attribute})
            found[name] = found[name]._replace(attributes=attributes)

    def without_blanks(self, pragma: Pragma) -> tuple[list[str], list[int]]:
        """Return a pragma's words, and where they are; `Evolving / Evolving` becomes one if that is tolerated."""
        words, offsets = list(pragma.words), list(pragma.offsets)
        if not self.forgiving or [word.lower() for word in words[:2]] != ["d", "attributes"]:
            return words, offsets
        at = 3
        while at < len(words):
            if words[at].startswith("/") or words[at - 1].endswith("/"):
                words[at - 1 : at + 1] = [words[at - 1] + words[at]]
                del offsets[at]
            else:
                at += 1
        if len(words) != len(pragma.words):
            self.tolerate(offsets[2], "an attribute has no blanks in it", f"read as {words[2][:80]}")
        return words, offsets

    def attribute(self, text: str, offset: int) -> Attribute | None:
        words = text.lower().split("/")
        if len(words) != 3:
            self.report(offset, f"'{text[:80]}' is no attribute; write NAME/DATA/CLASS, as in Evolving/Evolving/Common")
            return None
        for word, known, what in zip(words, (_STABILITY, _STABILITY, _CLASSES), ("stability", "stability", "class")):
            if word not in known:
                choice = ", ".join(each.upper() if each in ("cpu", "isa") else each.capitalize() for each in known)
                self.report(offset, f"'{word[:40]}' is no {what}; choose one of {choice}")
                return None
        return Attribute(_STABILITY.index(words[0]), _STABILITY.index(words[1]), _CLASSES.index(words[2]))


def macro_name(provider: str, stub: str) -> str:
    """Return the macro of a probe as `dtrace -h` spells it: upper case, one underscore for two."""
    return f"{provider}_{stub.replace('__', '_')}".upper()


def attribute_text(attribute: Attribute) -> str:
    """Return an attribute as the language writes it: `Evolving/Evolving/Common`."""
    dependency = _CLASSES[attribute.dependency]
    shown = dependency.upper() if dependency in ("cpu", "isa") else dependency.capitalize()
    return f"{_STABILITY[attribute.name].capitalize()}/{_STABILITY[attribute.data].capitalize()}/{shown}"


def _comment_text(comment: str) -> str:
    """Return what a comment says: without its signs, and without the stars down its side."""
    comment = "".join(c if c.isprintable() or c == "\n" else " " for c in comment.expandtabs())
    if comment.startswith("/*"):
        body = comment[3:] if comment[2:3] in ("*", "!") and comment[3:4] != "/" else comment[2:]
        lines = body[:-2].split("\n") if body.endswith("*/") else body.split("\n")
        rest = [line.lstrip(" ") for line in lines[1:]]
        if all(line.startswith("*") or not line for line in rest):
            lines[1:] = [line[1:] for line in rest]
        lines[1:] = _without_margin("\n".join(lines[1:])).split("\n") if rest else []
        lines[0] = lines[0].lstrip(" ")
    elif comment[0] == "#":
        lines = [comment[1:].removeprefix(" ")]
    else:
        line = comment.lstrip("/")
        lines = [(line[1:] if line[:1] in ("!", "<") else line).removeprefix(" ")]
    return "\n".join(line.rstrip(" ") for line in lines).strip("\n").replace("*/", "* /")


def _without_margin(text: str) -> str:
    """Return the text without the indentation that all of its lines have."""
    lines = [line.rstrip(" ") for line in text.split("\n")]
    margin = min((len(line) - len(line.lstrip(" ")) for line in lines if line), default=0)
    return "\n".join(line[margin:] for line in lines)
