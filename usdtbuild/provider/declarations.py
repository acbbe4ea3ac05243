"""Reads C declarations: specifiers, declarators and parameters become unresolved types (`types.Shape`) and spellings.

Plain functions over the cursor, each of which leaves it behind what it has read. What a name stands for isn't decided
here (`types.Resolver` does that); a known name only tells a declarator in parentheses from a function's parameters.
"""

from __future__ import annotations

from ..record import NamedTuple
from .cursor import Cursor
from .diagnostics import SyntaxProblem
from .lexer import LETTERS
from .types import UNSUPPORTED_TYPES, Base, Shape, is_known

# No declaration that means anything nests its parentheses deeper.
_MAX_NESTING = 16

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


class Parameter(NamedTuple):
    """An argument as written: its type, unresolved, its spelling, its name, and where it stands."""

    shape: Shape
    spelling: str
    name: str
    offset: int


def parameters(cursor: Cursor, depth: int, variable: bool = False) -> list[Parameter]:
    """Read parameters up to and with the ')'; a sole `void` is none at all."""
    found: list[Parameter] = []
    tokens = cursor.tokens
    if tokens[cursor.at] == ")":
        cursor.at += 1
        return found
    while True:
        if tokens[cursor.at] == "..." and variable and found:
            found.append(Parameter(Shape(Base("basic", "void"), ""), "...", "", cursor.here()))
            cursor.at += 1
        else:
            found.append(_parameter(cursor, depth))
        if tokens[cursor.at] == ",":
            cursor.at += 1
            continue
        if tokens[cursor.at] != ")":
            from . import cures

            raise cursor.wrong("')' or ',' after the argument", cures.after_argument(tokens, cursor.at))
        cursor.at += 1
        break
    if len(found) == 1 and not depth and found[0].spelling == "void" and not found[0].name:
        return []
    return found


def _parameter(cursor: Cursor, depth: int) -> Parameter:
    offset = cursor.here()
    if cursor.tokens[cursor.at] == "...":
        raise SyntaxProblem(offset, "a probe has a fixed number of arguments")
    base, words = specifiers(cursor, body=False)
    if cursor.tokens[cursor.at] in (",", ")"):
        return Parameter(Shape(base, ""), words, "", offset)
    prefix, name, _, suffix, derived = declarator(cursor, depth, True)
    attributes(cursor)
    abstract = prefix + suffix
    return Parameter(Shape(base, derived), f"{words} {abstract}" if abstract else words, name, offset)


def declarator(cursor: Cursor, depth: int, abstract: bool) -> tuple[str, str, int, str, str]:
    """Read a declarator; return the spelling before and behind the name, the name, its offset, the derivations."""
    if depth > _MAX_NESTING:
        raise SyntaxProblem(cursor.here(), "this declaration is nested too deeply")
    prefix, stars = _pointers(cursor)
    name, offset, suffix, derived = "", cursor.here(), "", ""
    token = cursor.tokens[cursor.at]
    if token == "(" and _nested(cursor, abstract):
        cursor.at += 1
        inner, name, offset, outer, derived = declarator(cursor, depth + 1, abstract)
        cursor.take(")")
        prefix, suffix = f"{prefix}({inner}", f"{outer})"
        # Parentheses around nothing but a name change nothing.
        if prefix.endswith("(") and suffix == ")" and not inner:
            prefix, suffix = prefix[:-1], ""
    elif token[:1] in LETTERS and token not in _WORDS and token not in _QUALIFIERS and token not in _TAGS:
        name = token
        cursor.at += 1
    attributes(cursor)
    suffixes: list[str] = []
    while cursor.tokens[cursor.at] in ("[", "("):
        if cursor.tokens[cursor.at] == "[":
            suffixes.append(_array(cursor))
        else:
            cursor.at += 1
            inside = parameters(cursor, depth + 1, variable=True)
            suffixes.append(f"({', '.join(p.spelling for p in inside)})")
        attributes(cursor)
    suffix += "".join(suffixes)
    derived += "".join(text[0] for text in suffixes)
    # Only the outermost derivations matter (types.Shape), and a thousand stars shall not cost a thousand steps.
    return prefix, name, offset, suffix, (derived + stars)[:3]


def _pointers(cursor: Cursor) -> tuple[str, str]:
    """Read `*` and the qualifiers between; return their spelling, and a star for each."""
    pieces: list[str] = []
    stars = 0
    while True:
        token = cursor.tokens[cursor.at]
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
            attributes(cursor)
            continue
        else:
            return "".join(pieces), "*" * stars
        cursor.at += 1


def _nested(cursor: Cursor, abstract: bool) -> bool:
    """Return whether a '(' opens a declarator in parentheses, and not a function's parameters."""
    token = cursor.tokens[cursor.at + 1]
    if token in ("*", "(", "[") or token in _WITH_PARENTHESES:
        return True
    if token[:1] not in LETTERS or token in _WORDS or token in _QUALIFIERS or token in _TAGS:
        return False
    return not abstract or not (is_known(token) or token in cursor.typedefs)


def _array(cursor: Cursor) -> str:
    start = cursor.at
    cursor.skip_balanced()
    size = cursor.tokens[start + 1 : cursor.at - 1]
    for position, token in enumerate(size, start + 1):
        if token[0] in "\"';{}":
            raise SyntaxProblem(cursor.offsets[position], "expected the array's size")
    return f"[{' '.join(size)}]"


def specifiers(cursor: Cursor, body: bool) -> tuple[Base, str]:
    """Read specifiers and qualifiers; return what they name, and their spelling."""
    start = cursor.at
    spelled: list[str] = []
    words: list[str] = []
    named: Base | None = None
    volatile = False
    while True:
        token = cursor.tokens[cursor.at]
        if token in _WORDS and named is None:
            words.append(_WORDS[token])
            spelled.append(_WORDS[token])
        elif token in _QUALIFIERS and not (token in _TYPEOF and cursor.tokens[cursor.at + 1] == "("):
            if _QUALIFIERS[token]:
                spelled.append(_QUALIFIERS[token])
            volatile = volatile or _QUALIFIERS[token] == "volatile"
        elif token in _WITH_PARENTHESES:
            attributes(cursor)
            continue
        elif named is None and not words and (token[:1] in LETTERS or token == "`"):
            named = _named(cursor, body, spelled)
            continue
        else:
            break
        cursor.at += 1
    if named is None:
        if not words:
            raise cursor.wrong("a type")
        named = _combination(cursor, words, start)
    return (named._replace(volatile=True) if volatile else named), " ".join(spelled)


def _combination(cursor: Cursor, words: list[str], start: int) -> Base:
    name = _COMBINATIONS.get(tuple(sorted(words)))
    if name is None:
        raise SyntaxProblem(cursor.offsets[start], f"'{' '.join(words)[:80]}' is no type")
    return Base("bad" if name in UNSUPPORTED_TYPES else "basic", name)


def _named(cursor: Cursor, body: bool, spelled: list[str]) -> Base:
    """Read a type that is no keyword: a tag with its kind, a name, or a name of another module (``D`name``)."""
    token = cursor.tokens[cursor.at]
    if token in _TYPEOF:
        cursor.at += 1
        cursor.skip_balanced()
        return Base("bad", "typeof")
    kind = "name"
    if token in _TAGS:
        kind = token
        cursor.at += 1
        attributes(cursor)
        spelled.append(token)
    name, scope = "", ""
    if cursor.tokens[cursor.at][:1] in LETTERS:
        name = cursor.take_name("a type")
    if cursor.tokens[cursor.at] == "`":
        cursor.at += 1
        scope, name = name + "`", cursor.take_name("a type")
    if name:
        spelled.append(scope + name)
    elif kind == "name":
        raise cursor.wrong("a type")
    if kind != "name":
        _tag_body(cursor, kind, name, body)
    if kind == "enum" and cursor.tokens[cursor.at] == ":" and body:
        cursor.at += 1
        specifiers(cursor, False)
        _tag_body(cursor, kind, name, body)
    return Base(kind, name, False, bool(scope))


def _tag_body(cursor: Cursor, kind: str, name: str, body: bool) -> None:
    """Step over the members of a struct, union or enum, where they may stand."""
    if cursor.tokens[cursor.at] == "{":
        if not body:
            raise SyntaxProblem(cursor.here(), f"declare this {kind} in front of the provider, not in an argument")
        cursor.skip_balanced()
    elif not name and cursor.tokens[cursor.at] != ":":
        raise cursor.wrong(f"the name of the {kind}")


def attributes(cursor: Cursor) -> None:
    """Step over compilers' attributes; note whether one of them makes another type of what it stands at."""
    while cursor.tokens[cursor.at] in _WITH_PARENTHESES or cursor.tokens[cursor.at] == "__extension__":
        start = cursor.at
        cursor.at += 1
        if cursor.tokens[cursor.at] == "(":
            cursor.skip_balanced()
        cursor.remade = cursor.remade or not _REMAKING.isdisjoint(cursor.tokens[start : cursor.at])
