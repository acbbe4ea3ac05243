"""Filters of hits: `length > 4096 and name == "x"`, read once, compiled once for each probe.

The language: comparisons (== != < <= > >=, and =~ with a glob) of arguments, by name or as arg0, arg1, ..., with
numbers, strings, NULL, what the argument calls a value (`colour == RED`), or each other; whole numbers by some of their
bits, `flags & 6 == 2`, where `flags & 6` alone means that one is set; `and`, `or`, `not` and parentheses. `thread` and
`process` are the numbers of those that hit, and `time` is how long the trace has run (in seconds, or 5s, 200ms), where
no argument is called so. What an engine couldn't read compares with nothing: each comparison with it is false, under
`not` too. Nothing here knows where hits come from or go to.
"""

from __future__ import annotations

import contextlib
import fnmatch
import math
import operator
import re
import time
from collections.abc import Callable, Sequence
from copy import copy
from typing import Any, NamedTuple, NoReturn

from ..errors import UsageError
from .measures import PROCESS, THREAD
from .model import FLOAT, INTEGER, MISSING, POINTER, STRING, Argument, Event, Target, Unreadable, Value

Test = Callable[..., bool]  # of a hit's values, and `own_of` it

_TOKEN = re.compile(
    r"""\s*(?:(?P<duration>(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:us|ms|s|m|h)(?![\w.]))
    |(?P<number>[-+]inf(?![\w.])|[-+]?(?:0[xX][0-9a-fA-F]+|(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?)(?![\w.]))
    |(?P<string>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')
    |(?P<word>[^\W\d]\w*(?:(?:\.|->)[^\W\d]\w*)*)
    |(?P<sign>==|!=|<=|>=|=~|&&|\|\||[<>()!&]))""",
    re.VERBOSE | re.DOTALL,
)
_WORDS = {"&&": "and", "||": "or", "!": "not"}
TIME = "time"
_OWN = (THREAD, PROCESS, TIME)
_UNITS = {"us": 1e-6, "ms": 1e-3, "s": 1, "m": 60, "h": 3600}
_KEYWORDS = frozenset(("and", "or", "not", "NULL"))
OPPOSITES = {"==": "!=", "!=": "==", "<": ">=", ">=": "<", ">": "<=", "<=": ">", "=~": "!~"}
_OPERATORS: dict[str, Callable[[Any, Any], bool]] = {
    "==": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip
_ESCAPES = {"n": b"\n", "t": b"\t", "r": b"\r", "0": b"\0"}
_ESCAPE = re.compile(r"\\(x[0-9a-fA-F]{2}|.)", re.DOTALL)
_INFINITY = "inf"
_POSITION = re.compile(r"arg(0|[1-9][0-9]*)")
_DEEPEST = 100
_SHOWN = 200  # characters on each side of the place of an error
_FEW = 20  # enumerators that are named


class FilterError(UsageError):
    """A filter can't be understood, or asks for what a probe doesn't have; the text shows the place."""

    def __init__(self, text: str, at: int, what: str, option: str = "--filter") -> None:
        what = what if len(what) <= 2 * _SHOWN else f"{what[:_SHOWN]} ... {what[-_SHOWN:]}"
        self.at, self.what = at, what
        first = max(0, at - _SHOWN)
        before, after = "... " if first else "", " ..." if len(text) > at + _SHOWN else ""
        line = "".join(c if c.isprintable() else " " for c in text[first : at + _SHOWN])
        super().__init__(f"{option}: {what}\n  {before}{line}{after}\n  {' ' * (len(before) + at - first)}^")


class _Token(NamedTuple):
    kind: str  # number, string, word, sign, end
    text: str
    at: int


class FilterOperand(NamedTuple):
    """Either the argument `name`, of which only the bits of `mask` count if that isn't 0, or a literal (then `name` is
    '')."""

    name: str
    literal: Value
    at: int
    mask: int = 0


class _Duration(float):
    """A literal with a unit, in seconds."""


class Comparison(NamedTuple):
    """Two operands of which at least one is an argument; `sign` is as written."""

    left: FilterOperand
    sign: str
    right: FilterOperand
    at: int


class Joined(NamedTuple):
    """`word` is `and`, `or`, or `not` (of one part)."""

    word: str
    parts: tuple[Tree, ...]


Tree = Comparison | Joined


class Filter:
    """A filter as it was written, checked as far as that goes without a probe; `tree` is what it says, and `time` in it
    counts from `begun`, in nanoseconds of CLOCK_MONOTONIC."""

    def __init__(self, text: str, string_size: int = 64, option: str = "--filter") -> None:
        """Read it; `string_size` is how much of a string hits have, `option` who asks for it. Raises FilterError."""
        self.text, self.option, self.begun = text, option, time.monotonic_ns()
        self._string_size = string_size
        try:
            self.tree = _Parser(text).parse()
        except FilterError as error:
            raise FilterError(text, error.at, error.what, option) from None

    def compile(self, target: Target) -> Test:
        """Return a predicate that tells whether a hit with these values passes. Raises FilterError for arguments that
        the probe doesn't have."""
        return self._compiled(self.tree, target, False)

    def asks(self, target: Target) -> set[int]:
        """Return which of a target's arguments it asks for."""
        return {argument_index(target, name) for name in self.names()} - {-1}

    def names(self) -> set[str]:
        """Return what it asks for."""
        trees, found = [self.tree], set[str]()
        for tree in trees:
            if isinstance(tree, Joined):
                trees += tree.parts
            else:
                found.update((tree.left.name, tree.right.name))
        return found - {""}

    def is_for(self, target: Target) -> bool:
        """Whether it can be compiled for a target."""
        with contextlib.suppress(FilterError):
            self.compile(target)
            return True
        return False

    def part_for(self, target: Target) -> Filter | None:
        """Return those of its conditions that a target can answer, where all must be true; None if it can none."""
        kept = [one for one in self.conditions if one.is_for(target)]
        trees = tuple(one.tree for one in kept)
        return self._of(trees[0] if len(trees) == 1 else Joined("and", trees)) if trees else None

    @property
    def conditions(self) -> list[Filter]:
        """What must all be true: the parts that are joined by `and`, or all of it."""
        trees, found = [self.tree], list[Filter]()
        while trees:
            tree = trees.pop()
            if isinstance(tree, Joined) and tree.word == "and":
                trees += reversed(tree.parts)
            else:
                found.append(self._of(tree))
        return found

    def _of(self, tree: Tree) -> Filter:
        made = copy(self)
        made.tree = tree
        return made

    def _compiled(self, tree: Tree, target: Target, negated: bool) -> Test:
        if isinstance(tree, Comparison):
            return self._comparison(tree, target, negated)
        if tree.word == "not":
            return self._compiled(tree.parts[0], target, not negated)
        tests = [self._compiled(part, target, negated) for part in tree.parts]
        if (tree.word == "and") != negated:
            return lambda values, own=(): all(test(values, own) for test in tests)
        return lambda values, own=(): any(test(values, own) for test in tests)

    def _comparison(self, tree: Comparison, target: Target, negated: bool) -> Test:
        tree = with_values(tree, target)
        kinds = [self._kind(*both, target) for both in ((tree.left, tree.right), (tree.right, tree.left))]
        self._check(tree, target, kinds)
        tree = with_moments(tree, target, self.begun)
        left, right = tree.left, tree.right
        sign = OPPOSITES[tree.sign] if negated else tree.sign
        if sign in {"=~", "!~"}:
            compare = _glob(right.literal, sign == "=~")
        else:
            compare = _of_strings(sign) if STRING in kinds else _OPERATORS[sign]
        null = None if STRING in kinds else 0  # of strings it is a value of its own
        first, second = (_getter(operand, target, null) for operand in (left, right))

        def test(values: Sequence[Value], own: Sequence[int] = ()) -> bool:
            one, other = first(values, own), second(values, own)
            return one is not MISSING and other is not MISSING and compare(one, other)

        return test

    def _kind(self, operand: FilterOperand, other: FilterOperand, target: Target) -> str:
        """Return an argument's kind; for literals STRING, FLOAT (which is any number) or '' (NULL). `other` is what
        it is compared with."""
        if operand.name:
            index = argument_index(target, operand.name)
            if index < 0 and operand.name in _OWN:
                return INTEGER
            if index < 0:
                compared = _argument(target, other.name)
                names = [name for _, name in compared.values][:_FEW]
                there = f"values of {other.name} are {', '.join(names)}" if names else said_arguments(target)
                if not names and "enum " in compared.type:
                    there += (f"; what {other.name} ({compared.type}) calls its values isn't known: write a number, or"
                              " name a file that declares them, --provider FILE.d")  # fmt: skip
                self._fail(operand.at, f"{target.title} has no argument {operand.name}; {there}")
            return target.arguments[index].kind
        return "" if operand.literal is None else STRING if isinstance(operand.literal, bytes) else FLOAT

    def _check(self, tree: Comparison, target: Target, kinds: list[str]) -> None:
        """Refuse what could never be meant: strings against numbers, and strings longer than what is read of them."""
        for kind, operand in zip(kinds, (tree.left, tree.right)):
            if operand.mask and (kind not in {INTEGER, POINTER} or is_time(operand, target)):
                self._fail(operand.at, f"& is for whole numbers, and {operand.name} of {target.title} is none")
        if tree.sign == "=~" and kinds[0] != STRING:
            self._fail(tree.at, f"=~ is for strings, and {tree.left.name} of {target.title} is none")
        if "" in kinds and tree.sign not in {"==", "!="}:
            self._fail(tree.at, "NULL can be compared by == and != only")
        strings = [kind == STRING for kind in kinds if kind]
        if strings and strings[0] != strings[-1]:
            which = tree.left if tree.left.name else tree.right
            is_string = kinds[0 if which is tree.left else 1] == STRING
            cure = 'compare it with a string, "..."' if is_string else "compare it with a number"
            self._fail(which.at, f"{which.name} of {target.title} is {'a string' if is_string else 'a number'}; {cure}")
        for operand, other in ((tree.left, tree.right), (tree.right, tree.left)):
            if is_time(operand, target) and not isinstance(other.literal, int | float):
                self._fail(other.at, "time is compared with seconds, or with a unit: 0.5, 5s, 200ms, 2m")
            if operand.literal in {math.inf, -math.inf} and set(kinds) != {FLOAT}:  # as which literals count
                self._fail(operand.at, f"only floating-point numbers are infinite, and {other.name} of {target.title}"
                                       " is none")  # fmt: skip
            if isinstance(operand.literal, _Duration) and not is_time(other, target):
                self._fail(operand.at, f"only time is compared with a time, and {other.name} of {target.title} is none")
            if isinstance(operand.literal, bytes) and tree.sign != "=~" and len(operand.literal) >= self._string_size:
                self._fail(operand.at, f"strings are read up to {self._string_size} bytes; --string-size reads more,"
                                       " and =~ compares with a beginning")  # fmt: skip
            if isinstance(operand.literal, bytes) and _shortest(operand.literal) > self._string_size:
                self._fail(operand.at, f"strings are read up to {self._string_size} bytes, and what matches this has"
                                       " more; --string-size reads more")  # fmt: skip

    def _fail(self, at: int, what: str) -> NoReturn:
        raise FilterError(self.text, at, what, self.option)


def _shortest(pattern: bytes) -> int:
    """Return how many bytes a string has at least that a pattern matches."""
    return len(re.sub(rb"\[\]?[^]]*\]", b"?", pattern).replace(b"*", b""))


def with_values(tree: Comparison, target: Target) -> Comparison:
    """Return a comparison in which what an argument calls a value is that value: `RED`, or as a string; `inf`, too."""

    def value(one: FilterOperand, other: FilterOperand) -> FilterOperand:
        index = argument_index(target, other.name) if other.name else -1
        if index < 0 or (one.name and argument_index(target, one.name) >= 0):
            return one
        called = one.literal.decode("utf-8", "replace") if isinstance(one.literal, bytes) else one.name
        found = [number for number, name in target.arguments[index].values if name == called]
        return FilterOperand("", found[0] if found else math.inf, one.at) if found or one.name == _INFINITY else one

    return tree._replace(left=value(tree.left, tree.right), right=value(tree.right, tree.left))


def is_time(operand: FilterOperand, target: Target) -> bool:
    """Whether an operand is how long the trace has run, and no argument of that name."""
    return operand.name == TIME and argument_index(target, TIME) < 0


def with_moments(tree: Comparison, target: Target, begun: int) -> Comparison:
    """Return a comparison in which what `time` is compared with is a moment: nanoseconds of CLOCK_MONOTONIC."""

    def moment(one: FilterOperand, other: FilterOperand) -> FilterOperand:
        seconds = one.literal
        if not is_time(other, target) or not isinstance(seconds, int | float) or math.isinf(seconds * 1e9):
            return one
        return one._replace(literal=begun + round(seconds * 1_000_000_000))

    return tree._replace(left=moment(tree.left, tree.right), right=moment(tree.right, tree.left))


def argument_index(target: Target, name: str) -> int:
    """Return which argument of a target `name` means (its own name, or argN); -1 for none."""
    for index, argument in enumerate(target.arguments):
        if argument.name == name:
            return index
    position = _POSITION.fullmatch(name)
    return int(position[1]) if position and int(position[1]) < len(target.arguments) else -1


def _argument(target: Target, name: str) -> Argument:
    index = argument_index(target, name) if name else -1
    return target.arguments[index] if index >= 0 else Argument("", "", 8, False, INTEGER)


def own_of(event: Event) -> tuple[int, ...]:
    """Return what a filter may ask of a hit besides its values."""
    return event.tid, event.pid, event.time


def said_arguments(target: Target) -> str:
    """Return the part of a sentence that says which arguments a target has."""
    names = [argument.name or f"arg{index}" for index, argument in enumerate(target.arguments)]
    return f"it has {', '.join(names)}" if names else "it has no arguments"


def _getter(operand: FilterOperand, target: Target, null: Value) -> Callable[[Sequence[Value], Sequence[int]], Value]:
    if not operand.name:
        literal = null if operand.literal is None else operand.literal
        return lambda values, own: literal
    index, mask = argument_index(target, operand.name), operand.mask
    if mask:
        plain: Callable[..., Any] = _getter(operand._replace(mask=0), target, null)
        return lambda values, own: found if (found := plain(values, own)) is MISSING else found & mask
    if index < 0:
        place = _OWN.index(operand.name)
        return lambda values, own: own[place]
    return lambda values, own: values[index] if index < len(values) else MISSING


def _of_strings(sign: str) -> Callable[[Any, Any], bool]:
    """Compare strings, byte by byte. NULL is equal to NULL only, and neither less nor greater than anything."""
    compare = _OPERATORS[sign]

    def test(one: Any, other: Any) -> bool:
        if isinstance(one, bytes) and isinstance(other, bytes):
            return compare(one, other)
        if one is not None and other is not None:
            return False  # one of them could not be read
        return one is other if sign == "==" else one is not other if sign == "!=" else False

    return test


def _glob(pattern: Value, wanted: bool) -> Callable[[Any, Any], bool]:
    assert isinstance(pattern, bytes)
    # In latin-1 each byte is one character, so that `?` and sets mean bytes, and nothing is invalid.
    matches = re.compile(fnmatch.translate(pattern.decode("latin-1"))).match

    def test(one: Any, _: Any) -> bool:
        if isinstance(one, Unreadable):
            return False
        return (isinstance(one, bytes) and bool(matches(one.decode("latin-1")))) == wanted

    return test


# --- reading ----------------------------------------------------------------------------------------------------------


class _Parser:
    """Reads a filter by recursive descent: or, and, not, comparison."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = list(_tokens(text))
        self._next = 0
        self._depth = 0

    def parse(self) -> Tree:
        if self._token.kind == "end":
            self._fail("is empty; it compares arguments, as in length > 4096")
        tree = self._either()
        if self._token.kind != "end":
            self._fail(f"{_shown(self._token)} was not expected here; comparisons are joined by and, or")
        return tree

    @property
    def _token(self) -> _Token:
        return self._tokens[self._next]

    def _take(self, text: str) -> bool:
        found = self._token.kind in {"word", "sign"} and self._token.text == text
        self._next += found
        return found

    def _either(self) -> Tree:
        parts = [self._both()]
        while self._take("or"):
            parts.append(self._both())
        return parts[0] if len(parts) == 1 else Joined("or", tuple(parts))

    def _both(self) -> Tree:
        parts = [self._one()]
        while self._take("and"):
            parts.append(self._one())
        return parts[0] if len(parts) == 1 else Joined("and", tuple(parts))

    def _one(self) -> Tree:
        self._depth += 1
        if self._depth > _DEEPEST:
            self._fail(f"is nested deeper than {_DEEPEST} levels")
        if self._take("not"):
            tree: Tree = Joined("not", (self._one(),))
        elif not self._is_masked() and self._take("("):
            opened = self._tokens[self._next - 1].at
            tree = self._either()
            if not self._take(")"):
                self._fail(f"the parenthesis opened at character {opened + 1} is not closed")
        else:
            tree = self._comparison()
        self._depth -= 1
        return tree

    def _comparison(self) -> Tree:
        left = self._operand()
        sign = self._token
        if left.mask and (sign.kind == "end" or sign.text in {"and", "or", ")"}):
            return Comparison(left, "!=", FilterOperand("", 0, left.at), left.at)
        if sign.kind != "sign" or sign.text not in OPPOSITES:
            self._fail("a comparison must follow: == != < <= > >= or =~")
        self._next += 1
        right = self._operand()
        if not left.name and not right.name:
            self._fail("one side of a comparison must be an argument", left.at)
        if sign.text == "=~" and not (left.name and isinstance(right.literal, bytes)):
            self._fail('=~ compares an argument with a pattern, as in name =~ "*.html"', sign.at)
        if (left.mask and right.name) or (right.mask and left.name):
            self._fail("what is masked by & is compared with a number", left.at)
        if self._token.kind == "sign" and self._token.text in OPPOSITES:
            self._fail("comparisons are not chained; join two by and")
        return Comparison(left, sign.text, right, sign.at)

    def _is_masked(self) -> bool:
        """Whether an argument with its mask stands here in parentheses, as C wants it: `(flags & 6) == 2`."""
        return [one.text for one in self._tokens[self._next : self._next + 5 : 2]] == ["(", "&", ")"]

    def _mask(self) -> int:
        token = self._token
        number = self._number(token) if token.kind == "number" else 0
        if not isinstance(number, int) or not 0 < number < 1 << 64:
            self._fail("a mask must stand behind &: a whole number greater than 0, of at most 64 bits")
        self._next += 1
        return number

    def _operand(self) -> FilterOperand:
        if self._is_masked():
            self._next += 1
            found = self._operand()
            self._next += 1
            return found
        token = self._token
        if token.kind == "word" and (token.text not in _KEYWORDS or token.text == "NULL"):
            found = FilterOperand("" if token.text == "NULL" else token.text, None, token.at)
        elif token.kind == "duration":
            number, unit = re.fullmatch(r"(.*?)([a-z]+)", token.text).groups()  # type: ignore[union-attr]
            found = FilterOperand("", _Duration(float(number) * _UNITS[unit]), token.at)
        elif token.kind == "number":
            found = FilterOperand("", self._number(token), token.at)
        elif token.kind == "string":
            found = FilterOperand("", _unescaped(token.text[1:-1]), token.at)
        else:
            self._fail(f"an argument, a number or a string must stand here, not {_shown(token)}")
        self._next += 1
        return found._replace(mask=self._mask()) if found.name and self._take("&") else found

    def _number(self, token: _Token) -> int | float:
        try:
            found = _number(token.text)
            is_finite = math.isfinite(float(found))
        except (ValueError, OverflowError):
            found, is_finite = 0, False
        if not is_finite and token.text[1:] != _INFINITY:
            self._fail(f"{_shown(token)} is a greater number than any argument can be; infinity is {_INFINITY}")
        return found

    def _fail(self, what: str, at: int = -1) -> NoReturn:
        raise FilterError(self._text, self._token.at if at < 0 else at, what)


def _tokens(text: str) -> list[_Token]:
    """Return the tokens, with one of kind `end` behind them. Raises FilterError."""
    found, at = [], 0
    end = len(text.rstrip())
    while at < end:
        match = _TOKEN.match(text, at)
        if match is None:
            at += len(text[at:]) - len(text[at:].lstrip())
            if text[at] in "\"'":
                raise FilterError(text, at, "the string that begins here has no end")
            cure = "; equality is ==" if text[at] == "=" else ""
            raise FilterError(text, at, f"{text[at]!r} means nothing here{cure}")
        kind = match.lastgroup or ""
        word = match[kind]
        found.append(_Token(kind, _WORDS.get(word, word) if kind == "sign" else word, match.start(kind)))
        at = match.end()
    return [*found, _Token("end", "", end)]


def _shown(token: _Token) -> str:
    return "the end" if token.kind == "end" else token.text


def _number(text: str) -> int | float:
    try:
        return int(text, 0)
    except ValueError:  # 017 is no Python, and was meant as it is read
        return int(text) if text.lstrip("+-").isdigit() else float(text)


def _unescaped(text: str) -> bytes:
    """Return a string's bytes; a byte that is no UTF-8 on the command line stays itself."""
    pieces, at = [], 0
    for match in _ESCAPE.finditer(text):
        body = match[1]
        one = bytes([int(body[1:], 16)]) if len(body) == 3 else _ESCAPES.get(body) or _bytes(body)
        pieces += [_bytes(text[at : match.start()]), one]
        at = match.end()
    return b"".join(pieces) + _bytes(text[at:])


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")
