"""What a script is to do, and the parts of it that languages have in common."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from ..errors import InputError, UsageError
from ..inspection.targets import Loaded, files
from ..model import Provider
from ..tracing.filters import Comparison, Filter, FilterOperand, Tree, argument_index, with_values
from ..tracing.model import FLOAT, PROBE, STRING, Argument, Module, Target
from ..tracing.predicates import BEGIN, END
from ..tracing.selection import Wanted, declared_argument, is_meant, targets_in, with_enumerators

PROGRAM = "PROGRAM"  # stands for a path that isn't known
_OWN = ("thread", "process", "probe")


class CannotSayError(UsageError):
    """A language has no way to say what is asked for; the text says what."""


class Wish(NamedTuple):
    """What a script is to do with the hits of targets that pass a filter.

    Each is printed; or they are counted, or a number is summed up or shown as a histogram, for each value of the keys
    `by`; or it is measured how long it takes from one probe to another. `asked` is the command that asks for it.
    """

    program: str
    targets: tuple[Target, ...]
    asked: str
    where: Filter | None = None
    counts: bool = False
    by: tuple[str, ...] = ()
    sum_of: str = ""
    histogram: str = ""
    latency: tuple[str, str] | None = None

    @property
    def prints(self) -> bool:
        """Whether each hit is printed."""
        return not (self.counts or self.by or self.sum_of or self.histogram or self.latency)

    @property
    def of(self) -> str:
        """The argument that is added up; '' for none."""
        return self.sum_of or self.histogram

    def side(self, target: Target) -> str:
        """Return which hit of a pair a target's is; '' where there are no pairs."""
        sides = zip((BEGIN, END), self.latency or ())
        return next((side for side, pattern in sides if is_meant(target, pattern)), "")

    @property
    def kept(self) -> list[int]:
        """The keys, by place, that a pair's end doesn't have, so that its begin must keep them."""
        ends = [target for target in self.targets if self.side(target) == END]
        return [place for place, name in enumerate(self.by) if not all(self.has(target, name) for target in ends)]

    def has(self, target: Target, name: str) -> bool:
        """Whether a target has a key."""
        return name in _OWN or argument_index(target, name) >= 0

    def keys(self, words: Words, target: Target) -> list[str]:
        """Return the keys of a target's hits in a language."""
        return [words.key(target, name) for name in self.by]

    def used(self) -> Wish:
        """Return it with those targets only that have what it asks for. Raises UsageError if that is none of them."""
        kept = tuple(target for target in self.targets if self._serves(target))
        sides = {self.side(target) for target in kept}
        if self.latency and sides != {BEGIN, END}:
            missing = self.latency[0 if BEGIN not in sides else 1]
            raise InputError(self.program, f"no probe matches --latency {missing}")
        for target in kept if self.of else ():
            if target.arguments[argument_index(target, self.of)].kind == STRING:
                option = "--sum" if self.sum_of else "--histogram"
                raise UsageError(f"{option}: {self.of} of {target.title} is a string; --by counts how often each comes")
        if kept:
            return self._replace(targets=kept)
        if self.where is not None:
            self.where.compile(self.targets[0])  # says what is wrong, where that is it
        wanted = " or ".join(dict.fromkeys(one for one in (self.of, *self.by) if one and one not in _OWN))
        raise UsageError(f"none of the probes has an argument {wanted}")

    def _serves(self, target: Target) -> bool:
        if self.latency:
            return bool(self.side(target))
        has_all = all(self.has(target, name) for name in (self.of, *self.by) if name)
        return has_all and (self.where is None or self.where.is_for(target))


class Words(NamedTuple):
    """How a language says what conditions and keys are made of. `number` and `text` are an argument as a number and as
    a string; `same` and `begins` compare a string's expression with a literal. `unsigned` ends numbers that only fit
    without a sign, where C's rules for constants apply."""

    name: str
    number: Callable[[Target, int], str]
    text: Callable[[Target, int], str]
    begins: Callable[[str, str, int], str]
    thread: str = "tid"
    process: str = "pid"
    same: Callable[[str, str], str] = "{} == {}".format
    both: str = " && "
    either: str = " || "
    negation: str = "!"
    unsigned: str = ""
    masks: bool = True

    def value(self, target: Target, index: int) -> str:
        """Return an argument as what it is."""
        return (self.text if target.arguments[index].kind == STRING else self.number)(target, index)

    def key(self, target: Target, name: str) -> str:
        """Return a key of a hit."""
        index = argument_index(target, name)
        if index >= 0:
            return self.value(target, index)
        return {"thread": self.thread, "process": self.process}.get(name, literal(target.title.encode()))

    def test(self, wish: Wish, target: Target) -> str:
        """Return the filter as a condition, '' where there is none."""
        if wish.where is None or not wish.where.is_for(target):
            return ""
        wish.where.compile(target)
        return self._said(wish.where.tree, target)

    def _said(self, tree: Tree, target: Target) -> str:
        if isinstance(tree, Comparison):
            return self._compared(tree, target)
        if tree.word == "not":
            return f"{self.negation}({self._said(tree.parts[0], target)})"
        word = self.both if tree.word == "and" else self.either
        return word.join(f"({self._said(part, target)})" for part in tree.parts)

    def _compared(self, tree: Comparison, target: Target) -> str:
        left, sign, right, _ = with_values(tree, target)
        texts = [one.literal for one in (left, right) if isinstance(one.literal, bytes)]
        if texts:
            place = argument_index(target, left.name or right.name)
            return self._of_texts(self.text(target, place), sign, texts[0])
        if sign not in {"==", "!=", "<", "<=", ">", ">="}:
            raise CannotSayError(f"{self.name} has no {sign}")
        return f"{self._number(left, target)} {sign} {self._number(right, target)}"

    def _number(self, operand: FilterOperand, target: Target) -> str:
        if operand.mask:
            if not self.masks:
                raise CannotSayError(f"{self.name} compares whole numbers, and no bits of them")
            return f"({self._number(operand._replace(mask=0), target)} & {self._whole(operand.mask)})"
        if operand.name and (index := argument_index(target, operand.name)) >= 0:
            return self.number(target, index)
        if operand.name:
            if own := {"thread": self.thread, "process": self.process}.get(operand.name):
                return own
            raise CannotSayError(f"{self.name} has no {operand.name} to compare with here")
        if operand.literal is None:
            return "0"
        number = operand.literal
        if isinstance(number, float) and not number.is_integer():
            raise CannotSayError(f"{self.name} compares whole numbers only, not with {number}")
        assert isinstance(number, (int, float))
        return self._whole(int(number))

    def _whole(self, number: int) -> str:
        if not -(1 << 63) <= number < 1 << 64:
            raise CannotSayError(f"{self.name} compares numbers of 64 bits, and {number} has more")
        if self.unsigned and number == -(1 << 63):
            return f"({number + 1} - 1)"  # to C it is the negative of a number that has no type
        return f"{number}{self.unsigned if number >= 1 << 63 else ''}"

    def _of_texts(self, text: str, sign: str, pattern: bytes) -> str:
        if sign in {"==", "!="}:
            same = self.same(text, literal(pattern))
            return same if sign == "==" else f"{self.negation}({same})"
        start, star, rest = pattern.partition(b"*")
        if sign != "=~" or rest or not star or any(one in start for one in b"?["):
            raise CannotSayError(f'{self.name} compares whole strings, or a beginning (name =~ "abc*")')
        return self.begins(text, literal(start), len(start))


def literal(text: bytes) -> str:
    """Return a string as all these languages write it. Raises CannotSayError."""
    if not all(0x20 <= byte < 0x7F for byte in text):
        raise CannotSayError("strings in scripts are of printable ASCII")
    return '"' + text.decode("ascii").replace("\\", "\\\\").replace('"', '\\"') + '"'


def comment(text: str, begin: str) -> str:
    """Return a line of a comment; nothing in a name can end it."""
    safe = "".join(c if c.isprintable() else "?" for c in text).replace("*/", "* /")
    return f"{begin}{safe}".rstrip()


def signature(target: Target) -> str:
    """Return a probe with its arguments, for a comment."""
    return f"{target.title}({', '.join(spelled(one, index) for index, one in enumerate(target.arguments))})"


def spelled(argument: Argument, index: int) -> str:
    """Return an argument's type and name."""
    type_ = argument.type or f"{'' if argument.signed else 'u'}int{8 * argument.size}_t"
    return f"{type_}{'' if type_.endswith('*') else ' '}{label(argument, index)}"


def label(argument: Argument, index: int) -> str:
    """Return what an argument is called."""
    return argument.name or f"arg{index}"


def heading(wish: Wish, begin: str, *lines: str) -> list[str]:
    """Return a script's first comment."""
    probes = [signature(target) for target in wish.targets]
    return [comment(line, begin) for line in (f"Made by: {wish.asked}", *lines, "", *probes)]


def clauses(
    wish: Wish,
    words: Words,
    begun: str,
    head: Callable[[Target], str],
    action: Callable[[Wish, Target, str], list[str]],
    always: str = "",
) -> list[str]:
    """Return what bpftrace and DTrace do at each probe: its name, a test, and statements. `begun` says that the thread
    has hit the begin of a pair, `always` is what must be true besides."""
    lines = []
    for target in wish.targets:
        side, test = wish.side(target), words.test(wish, target)
        tests = [always, begun if side == END else "", f"({test})" if test else ""]
        condition = " && ".join(filter(None, tests))
        lines += ["", head(target), *([f"/ {condition} /"] if condition else [])]
        lines += ["{", *(f"\t{line}" for line in action(wish, target, side)), "}"]
    return lines


def format_of(target: Target, number: Callable[[Argument], str], text: str) -> str:
    """Return the line that a hit is printed as, with a conversion for each argument."""
    words = [target.title]
    for index, one in enumerate(target.arguments):
        words.append(f"{label(one, index)}={text if one.kind == STRING else number(one)}")
    return " ".join(words)


def unreadable(language: str, target: Target, index: int) -> CannotSayError:
    """Return the error for an argument that a language's scripts can't read."""
    what = f"{label(target.arguments[index], index)} of {target.title}"
    why = "" if is_whole(target, index) else ", a floating-point number"
    cure = "leave it out (-P with the others), or --count its hits"
    return CannotSayError(f"{language} can't read {what}{why}; {cure}")


def is_whole(target: Target, index: int) -> bool:
    """Whether an argument is no floating-point number."""
    floating = (site.operands[index].floating for site in target.sites if index < len(site.operands))
    return target.arguments[index].kind != FLOAT and not any(floating)


# -- where probes come from -------------------------------------------------------------------------------------------


def of_file(path: str, wanted: Wanted) -> Iterator[Target]:
    """Yield the probes of a program or library. Raises InputError."""

    def fail(error: InputError) -> None:
        raise error

    for image in files(path, fail):
        if image.path != path:  # of a folder, or an archive
            raise InputError(path, "isn't one file that runs", "name a program or a library")
        yield from targets_in(Loaded(image, 0), wanted)


def of_providers(providers: Sequence[Provider], wanted: Wanted) -> Iterator[Target]:
    """Yield the probes of provider files, which no program is known for."""
    module = Module(PROGRAM, 0, "", 0)
    for provider in providers:
        for probe in provider.probes:
            if wanted.takes_probe(provider.name, probe.sdt_name):
                arguments = [declared_argument(one, one.type.size64, signed=one.type.signed) for one in probe.arguments]
                target = Target(0, PROBE, provider.name, probe.sdt_name, module, tuple(arguments), ())
                yield with_enumerators(target, wanted)


def plain_path(path: str) -> str:
    """Return the absolute path of a program, as scripts may have it. Raises CannotSayError."""
    path = path if path == PROGRAM else os.path.abspath(path)  # noqa: PTH100 - links stay as they were given
    if not all(c.isalnum() or c in "/._+-@%=~" for c in path):
        raise CannotSayError(f"a script has no safe way to name {path!r}; make a link to it with another name")
    return path
