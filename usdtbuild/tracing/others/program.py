"""bpftrace's language: what is done with each hit of some probes. It is counted and printed, or added up in maps.

Every version understands it alike (0.17 and 0.23 were measured). In 0.17 min() keeps 32 bits and max() begins with 0,
so max() gets numbers of 63 bits, and min() nothing; a sum() has 64 bits, so numbers of 8 bytes are summed up in halves;
`/` and `>>` are for unsigned numbers. Keys of a map have the same types wherever it is used, and are shown as signed.
Six arguments have names; a string has at most 200 bytes, and all of a hit's together must fit on BPF's stack of 512.

A measure has a table of rows. What is known of a row stands in several maps, all with the same keys: the probe's
index, the process, two keys of hits, and a class, or the highest bit of an 8-byte number. For pairs of hits there is a
stack for each thread.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from ...formats.operands import MEMORY, OTHER, REGISTER, Operand
from ..measures import ALL, Cell, Measure, Table, Tables, Unpaired
from ..model import COUNT, FLOAT, STRING, Site, Target
from ..patch.evaluated import Function, asked, functions_of_begins, is_apart
from ..patch.tables import MOST_WAITING
from ..predicates import BEGIN, PROCESS, THREAD, TIME, Compare, Joined, NotHereError, Predicate, Tally

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from ..plan import Plan

    Maps = Mapping[str, Mapping[str, int]]  # by name: what stands there, by keys

# What BPF's stack can hold of strings, and what bpftrace takes at most for one.
ALL_STRINGS, LONGEST = 400, 200
MOST_ARGUMENTS = 6
KEYS = 16384  # of a map, at most
_OFTEN, _SELDOM = 200, 1000  # milliseconds between two looks at maps; at those with many keys
_WORD, _POSITIVE = (1 << 64) - 1, (1 << 63) - 1
_IN_PAGE = 4095
_PASSED, _TESTED, _KEYED, _LEFT = 1, 2, 4, 8  # what is known of a begin
_MAY_PASS = f"($f & {_PASSED | _TESTED}) != {_TESTED}"
_NEGATIVE = 512  # added to the class of a negative number
_TOP_CLASS = 488  # of 1 << 63


class Program:
    """What a bpftrace does with the hits of targets as a plan asks. Raises NotHereError if it can't (`check`)."""

    def __init__(self, plan: Plan, targets: Sequence[Target]) -> None:
        self.plan, self.targets = plan, targets
        self._tallies = [_asked(plan, one, numbers_of(one))[1] if plan.evaluates else [] for one in targets]

    def text(self, probes: Sequence[str], guard: str, separator: str, every: float = math.inf) -> str:
        """Return it; `probes` are what the targets are called in the language.

        RECORD prints `h`, the probe's index, time, process, thread, and the arguments, strings behind all numbers, each
        after the separator; and `t` with a processor and a time says that all before it from there is printed. Maps
        are printed between `m`, with the time, and `e`. `guard` is a test that hits have to pass, '' for none;
        `every` is how often somebody looks at tables (seconds).
        """
        guard = guard and f" /{guard}/"
        maps, lines = {"@c": None}, list[str]()
        around = functions_of_begins(self.plan.measures, ((one, site) for one in self.targets for site in one.sites))
        begins = [index for index, all_ in enumerate(self._tallies) if any(one.side == BEGIN for one in all_)]
        # Begins first: what stands in their maps has a type then, wherever it is read.
        for index in dict.fromkeys([*begins, *range(len(self.targets))]):
            block = _Block(index, self.plan, self.targets[index], separator, around)
            maps.update(block.maps)
            lines += [f"{probes[index]}{guard} {{", *(f"  {line}" for line in block.lines), "}"]
        if self.plan.what != COUNT:
            lines.append('profile:hz:20 { printf("t %d %llu", cpu, nsecs); }')
        often = _SELDOM if any(measure.by for measure in self.plan.measures) else _OFTEN
        often = min(often, max(_OFTEN // 2, int(min(every, 1e6) * 500)))
        shown = " ".join(f"print({name});" for name in maps)
        lines.append(f'interval:ms:{often} {{ printf("m %llu", nsecs); {shown} printf("e"); }}')
        return "\n".join(lines)

    def hits(self, maps: Maps, processes: Container[int]) -> dict[int, int]:
        """Return how many hits there were by target, of some processes."""
        return self._by_target(maps, "@c", processes)

    def _by_target(self, maps: Maps, name: str, processes: Container[int]) -> dict[int, int]:
        found: dict[int, int] = {}
        for (index, pid), count in _numbers(maps, name):
            if pid in processes:
                number = self.targets[index].number
                found[number] = found.get(number, 0) + count
        return found

    def tables(self, maps: Maps, processes: Container[int]) -> Tables:
        """Return what hits of some processes have added up to. Of what had no room only the number is known."""
        hits = self.hits(maps, processes)
        found: Tables = {}
        for place, measure in enumerate(self.plan.measures):
            tallies = {
                index: tally
                for index, all_ in enumerate(self._tallies)
                for tally in all_
                if tally.measure == measure and tally.side != BEGIN
            }
            tables = {index: Table({}, Cell()) for index in tallies}
            for (index, pid, *_, part), count in _numbers(maps, f"@n{place}"):
                if pid in processes:
                    row = _Row(maps, place, (index, pid, *_, part), count)
                    row.add_to(tables[index], tallies[index], numbers_of(self.targets[index]))
            of_pairs = self._by_target(maps, f"@p{place}", processes)
            for index, table in tables.items():
                number = self.targets[index].number
                found[number, measure] = table
                left = (of_pairs if measure.pair else hits).get(number, 0)
                left -= sum(cell.count for cell in table.cells.values())
                if measure.by and left > 0:
                    table.others.plus(Cell(left, math.nan, math.nan, math.nan))
            if measure.pair and any(all_ for all_ in self._tallies):
                unpaired = _unpaired(maps, place, processes)
                found[ALL, measure] = Table({}, Cell(), unpaired, 1.0)  # nanoseconds
        return found


def check(plan: Plan, target: Target) -> None:
    """Raise NotHereError if bpftrace can't do what a plan asks with the hits of a target."""
    _Block(0, plan, target, "")


# --- arguments --------------------------------------------------------------------------------------------------------


def expression(position: int, stack: int) -> str:
    """Return an argument in bpftrace's language, '' if there is no way; `stack` is its distance from the stack pointer
    in bytes, -1 if it isn't there."""
    if position < MOST_ARGUMENTS:
        return f"arg{position}"
    return f'*(uint64 *)(reg("sp") + {stack})' if stack >= 0 else ""


def expressions(target: Target) -> list[str]:
    """Return a probe's arguments in bpftrace's language; '' for one that it has no way to read."""
    found = []
    for position in range(len(target.arguments)):
        operands = [site.operands[position] for site in target.sites if position < len(site.operands)]
        places = {operand.place._replace(text="") for operand in operands}
        place = places.pop()
        plain = not places and place.kind == MEMORY and place.base == "rsp" and not place.index_register
        text = expression(position, place.displacement if plain else -1)
        found.append("" if any(operand.floating for operand in operands) else text)
    return found


def cast(text: str, size: int, *, signed: bool) -> str:
    """Return the number that the low bytes of an argument stand for."""
    return f"({'' if signed else 'u'}int{8 * size}){text}"


def attached(file: Path | str, target: Target) -> str:
    """Return what a probe of a file is called in the language, and in what bpftrace says of it."""
    return f"usdt:{file}:{target.provider}:{target.name}"


def string_length(targets: Sequence[Target], wanted: int) -> int:
    """Return how many bytes bpftrace is told to keep for a string, the NUL among them, if `wanted` are without it."""
    most = max((sum(one.kind == STRING for one in target.arguments) for target in targets), default=0)
    return min(LONGEST, ALL_STRINGS // max(1, most), wanted + 8 & -8)


def numbers_of(target: Target) -> list[Operand]:
    """Return what the arguments are at all sites of a target, wherever they are there. Raises NotHereError."""
    found = []
    for position, text in enumerate(expressions(target)):
        operands = [site.operands[position] for site in target.sites if position < len(site.operands)]
        if len({(one.size or 8, one.signed, one.floating) for one in operands}) > 1:
            raise NotHereError(f"argument {position} has another size or sign at another place")
        place = operands[0].place._replace(kind=REGISTER if text else OTHER, text=text, register=text)
        found.append(operands[0]._replace(place=place))
    return found


# --- what is written --------------------------------------------------------------------------------------------------


class _Block:
    """The lines for one target, and the names of the maps in them. Raises NotHereError."""

    def __init__(
        self, index: int, plan: Plan, target: Target, separator: str, around: Container[Function] = ()
    ) -> None:
        """`around` are the functions around begins."""
        self.maps: dict[str, None] = {}
        self._with_begin = _whether_at([(site.address, is_apart(around, target, site)) for site in target.sites])
        self._places = list(_places(target.sites))
        self._index, self._operands = index, [] if not plan.evaluates else numbers_of(target)
        predicate, tallies = _asked(plan, target, self._operands) if plan.evaluates else (True, [])
        test, used = _test(predicate), sorted(_used(predicate, tallies))
        if any(target.arguments[number].kind in {STRING, FLOAT} for number in used):
            raise NotHereError("bpftrace compares and adds up whole numbers only")
        self.lines = list(map(self._loaded, used))
        pairs = [tally for tally in tallies if tally.side]
        inside = [f"@c[{index}, pid] = count();"]
        if plan.what != COUNT:
            inside.append(_printed(index, target, separator))
        for tally in tallies:
            if not tally.side:
                inside += self._tally(plan.measures.index(tally.measure), tally)
        if pairs or predicate is True:
            self.lines += inside
        else:
            self.lines += _if(test, inside)
        for tally in pairs:
            write = self._begin if tally.side == BEGIN else self._end
            self.lines += write(plan.measures.index(tally.measure), tally, test)

    def _loaded(self, number: int) -> str:
        operand = self._operands[number]
        number_ = cast(operand.place.text, operand.size or 8, signed=operand.signed)
        return f"$a{number} = {_kind(operand.signed)}{number_};"

    def _map(self, letter: str, place: int) -> str:
        self.maps[f"@{letter}{place}"] = None
        return f"@{letter}{place}"

    def _tally(self, place: int, tally: Tally) -> Iterator[str]:
        keys = [_key(one) for one in (tally.key, tally.second)]
        step = int(tally.measure.step)
        if step and tally.key is not None:
            yield from _divided(keys[0], step, signed=tally.signs(self._operands)[0])
            keys[0] = "$q"
        if tally.of is None:
            yield f"{self._map('n', place)}[{self._index}, pid, {keys[0]}, {keys[1]}, (uint64)0] = count();"
            return
        operand = self._operands[tally.of]
        yield from self._row(place, keys, f"$a{tally.of}", operand, classes=tally.measure.classes)

    def _row(
        self, place: int, keys: Sequence[str], value: str, operand: Operand | None, *, classes: bool
    ) -> Iterator[str]:
        """Yield lines that add a value up in a row; `operand` is None for a time."""
        bias, wide = _bias(operand), _is_wide(operand)
        yield f"$b = (uint64){value}" + (f" + (uint64){bias:#x};" if bias else ";")
        part = "(uint64)0"
        if classes:
            yield from _class(value, signed=bool(bias))
            part = "$c"
        elif wide:
            yield "$h = ($b >> 63) & 1;"
            part = "(uint64)$h"
        row = f"[{self._index}, pid, {', '.join(keys)}, {part}]"
        yield f"{self._map('n', place)}{row} = count();"
        yield f"{self._map('s', place)}{row} = sum($b{' & 0xffffffff' if wide else ''});"
        if wide:
            yield f"{self._map('u', place)}{row} = sum(($b >> 32) & 0xffffffff);"
            yield f"$b = $b & {_POSITIVE:#x};"
        yield f"{self._map('g', place)}{row} = max($b);"
        yield f"{self._map('l', place)}{row} = max({_POSITIVE:#x} - $b);"

    def _begin(self, place: int, tally: Tally, test: str) -> Iterator[str]:
        """Yield lines that put a begin on top of its thread's stack, where the youngest take the room of older ones.

        The maps of stacks aren't printed: bpftrace 0.17 ends where a key goes while it prints a map.
        """
        known = (_TESTED if tally.tested and not tally.partly else 0) | (_KEYED if tally.key is not None else 0)
        yield f"@d{place}[pid, tid]++;"
        yield f"$d = @d{place}[pid, tid];"
        yield f"$f = (uint64){known};"
        if tally.partly:  # the end says the rest
            yield f"$f = $f + (uint64){_TESTED};"
            yield from _if(test, [f"$f = $f - (uint64){_TESTED};"])
        elif tally.tested:
            yield from _if(test, [f"$f = $f + (uint64){_PASSED};"])
        yield from _if(_MAY_PASS, [self._counted("o", place)])
        given_up = f"@z{place}[pid, tid]"  # of the begins that wait so many
        yield f"$w = {given_up};"
        yield from _if(f"$d - $w > {MOST_WAITING}", [f"$w = $d - {MOST_WAITING}; {given_up} = $w;"])
        yield from _if("$d <= $w", [f"$w = $d - 1; {given_up} = $w;"])
        yield from self._places
        yield from _if("$d - 1 > $w", list(self._gone_on(place)))
        stored = {"b": "nsecs", "f": "$f", "a": "$h"}
        if tally.measure.by:
            stored["k"] = _key(tally.key)
        yield from (f"@{letter}{place}[pid, tid, {_at('$d')}] = {value};" for letter, value in stored.items())

    def _gone_on(self, place: int) -> Iterator[str]:
        """Yield lines that see whether a begin comes where the youngest that waits was, or further up the stack."""
        known, where = (f"@{letter}{place}[pid, tid, {_at('$d - 1')}]" for letter in "fa")
        yield f"$g = {known};"
        marked = [f"{known} = $g + (uint64){_LEFT};", *self._counted_once("$g", place)]
        yield from _if(f"($g & {_LEFT}) == 0 && {where} <= $h", marked)

    def _counted_once(self, known: str, place: int) -> list[str]:
        """Return lines that count a begin which its thread has left behind, if it isn't known yet and may pass."""
        return _if(f"({known} & {_LEFT}) == 0", _if(_MAY_PASS.replace("$f", known), [self._counted("q", place)]))

    def _left(self, place: int, letters: str) -> Iterator[str]:
        """Yield lines that take away the begins that are further down the stack than the end, if there is one at the
        end's place behind them."""
        where = f"@a{place}[pid, tid, {_at('$n')}]"
        yield from self._places
        yield "$n = $d; $i = (uint64)0;"
        stop = _if(f"{where} >= $h || $i >= {MOST_WAITING}", ["break;"])
        yield from ("while ($n > $w) {", *stop, "$n--; $i++;", "}", "$i = (uint64)0;")
        slot = f"[pid, tid, {_at('$d')}]"
        taken = [
            f"while ($d > $n && $i < {MOST_WAITING}) {{",
            f"$g = @f{place}{slot};",
            *self._counted_once("$g", place),
            *(f"delete(@{letter}{place}{slot});" for letter in letters),
            f"@d{place}[pid, tid]--; $d--; $i++;",
            "}",
        ]
        yield from _if(f"$n > $w && {where} == $h", taken)

    def _end(self, place: int, tally: Tally, test: str) -> Iterator[str]:
        """Yield lines that take a begin of the thread, and add up how long that has taken: as `patch` does, that at the
        end's place of the stack, else the youngest."""
        by = tally.measure.by
        adds = list(self._row(place, ["$k", "(int64)0"], "$t", None, classes=True))
        if by:
            has = f"($f & {_KEYED})"
            lacking = [f"$k = {_key(tally.key)};", f"$f = $f + (uint64){_KEYED};"]
            if tally.key is None:
                lacking = [self._counted("x", place)]
            adds = [*_if(f"{has} == 0", lacking), *_if(f"{has} != 0", [self._counted("p", place), *adds])]
        slot, letters = f"[pid, tid, {_at('$d')}]", "bfak" if by else "bfa"
        pair = [
            "$t = nsecs - $s;",
            f"$f = @f{place}{slot};",
            f"$k = @k{place}{slot};" if by else "$k = (int64)0;",
            *(f"delete(@{letter}{place}{slot});" for letter in letters),
            *_if(_MAY_PASS, [self._counted("t", place), *_if(f"($f & {_LEFT}) != 0", [self._counted("v", place)])]),
        ]
        if tally.tested:
            pair += _if(f"($f & {_TESTED}) == 0", _if(test, [f"$f = $f + (uint64){_PASSED};"]))
        pair += _if(f"($f & {_PASSED}) != 0", adds)
        open_ = [f"$s = @b{place}{slot};", *_if("$s == 0", [self._counted("r", place)]), *_if("$s != 0", pair)]
        left = _if(self._with_begin, list(self._left(place, letters))) if self._with_begin else []
        taken = [f"$w = @z{place}[pid, tid];", *left,
                 f"@d{place}[pid, tid]--;",
                 *_if("$d == 1", [f"delete(@d{place}[pid, tid]);", f"delete(@z{place}[pid, tid]);"]),
                 *_if("$d <= $w", [self._counted("e", place)]), *_if("$d > $w", open_)]  # fmt: skip
        yield f"$d = @d{place}[pid, tid];"
        alone = [self._counted("w", place)]
        yield from _if("$d == 0", _if(test, alone) if tally.tested and test else alone)
        yield from _if("$d != 0", taken)

    def _counted(self, letter: str, place: int) -> str:
        return f"{self._map(letter, place)}[{self._index}, pid] = count();"


def _asked(plan: Plan, target: Target, operands: Sequence[Operand]) -> tuple[Predicate, list[Tally]]:
    predicate, tallies = asked(plan, target, operands)
    if any(one.pair_keys for one in tallies):
        raise NotHereError("bpftrace pairs the hits of a thread")
    if any(one.width for one in tallies):
        raise NotHereError("bpftrace tells hits apart by one number, or by two of four bytes")
    return predicate, tallies


def _printed(index: int, target: Target, separator: str) -> str:
    texts = expressions(target)
    values = [text or "0" for text in texts]
    strings = [f"str({text})" for text, one in zip(texts, target.arguments) if one.kind == STRING and text]
    pattern = f"h {index} %llu %d %d" + " %lu" * len(values) + f"{separator}%s" * len(strings)
    return f'printf("{pattern}", {", ".join(["nsecs", "pid", "tid", *values, *strings])});'


def _if(test: str, lines: Sequence[str]) -> list[str]:
    return [f"if ({test}) {{", *(f"  {line}" for line in lines), "}"]


def _whether_at(sites: Sequence[tuple[int, bool]]) -> str:
    """Return a test whether a hit is at a site of those that are marked False, '' if there is none: where in a page it
    is says that, but of a site that is there in its page, too."""
    others = {address & _IN_PAGE for address, is_other in sites if is_other}
    wanted = {address & _IN_PAGE for address, is_other in sites if not is_other} - others
    if not others:
        return "1 == 1"
    return _is_in_page_at(wanted)


def _is_in_page_at(places: Iterable[int]) -> str:
    return " || ".join(f'(reg("ip") & {_IN_PAGE}) == {one}' for one in sorted(places))


def _places(sites: Sequence[Site]) -> Iterator[str]:
    """Yield lines that find what is the same in all of a call, at any of these sites."""
    known: dict[str, set[int]] = {}
    for site in sites:
        pointer = "bp" if site.around.by_frame else "sp"
        known.setdefault(f'$h = reg("{pointer}") + {site.around.offset};', set()).add(site.address & _IN_PAGE)
    first, *others = sorted(known, key=lambda line: (-len(known[line]), line))
    yield first
    for line in others:
        yield from _if(_is_in_page_at(known[line]), [line])


def _at(number: str) -> str:
    """Return at which key the begin with a number is."""
    return f"({number}) & {MOST_WAITING - 1}"


def _kind(signed: bool) -> str:
    return "(int64)" if signed else "(uint64)"


def _test(predicate: Predicate) -> str:
    """Return a predicate in the language. Raises NotHereError."""
    if isinstance(predicate, bool):
        return "1 == 1" if predicate else "1 == 0"
    if isinstance(predicate, Joined):
        return f" {'&&' if predicate.word == 'and' else '||'} ".join(f"({_test(part)})" for part in predicate.parts)
    if not isinstance(predicate, Compare):
        raise NotHereError("bpftrace compares numbers only")
    kind = _kind(predicate.signed)
    other = _value(predicate.other) if predicate.other is not None else _literal(predicate.constant)
    value = f"{kind}{_value(predicate.operand)}"
    if predicate.mask:
        value = f"({value} & {kind}{_literal(predicate.mask)})"
    return f"{value} {predicate.sign} {kind}{other}"


def _literal(value: int) -> str:
    """Return a number, of which those that don't fit into 63 bits are given by their bits."""
    return str(value) if abs(value) <= _POSITIVE else f"{value & _WORD:#x}"


def _used(predicate: Predicate, tallies: Sequence[Tally]) -> set[int]:
    """Return which operands are looked at. Raises NotHereError."""
    found = set[int]()
    if isinstance(predicate, Joined):
        found.update(*(_used(part, ()) for part in predicate.parts))
    elif isinstance(predicate, Compare):
        found.update(one for one in (predicate.operand, predicate.other) if one is not None and one >= 0)
    for tally in tallies:
        found.update(one for one in (tally.key, tally.second, tally.of) if one is not None and one >= 0)
    return found


def _key(number: int | None) -> str:
    return f"(int64){_value(number)}"


def _value(number: int | None) -> str:
    """Return what an operand is called, or what every hit has; 0 for none."""
    return {None: "0", THREAD: "tid", PROCESS: "pid", TIME: "nsecs"}.get(number, f"$a{number}")


def _divided(value: str, step: int, *, signed: bool) -> Iterator[str]:
    unsigned = value.replace("(int64)", "(uint64)")
    yield f"$q = (int64)({unsigned} / (uint64){step});"
    if signed:
        up = f"((uint64)0 - {unsigned} + (uint64){step - 1}) / (uint64){step}"
        yield from _if(f"{value} < (int64)0", [f"$q = (int64)((uint64)0 - {up});"])


def _is_wide(operand: Operand | None) -> bool:
    return operand is not None and (operand.size or 8) == 8


def _bias(operand: Operand | None) -> int:
    """Return what is added to values so that none is negative."""
    return 1 << 8 * (operand.size or 8) - 1 if operand is not None and operand.signed else 0


def _class(value: str, *, signed: bool) -> Iterator[str]:
    """Yield lines that set $c to a number's class (`measures.class_of`): 8 for each power of two."""
    yield f"$v = (uint64){value};"
    yield "$n = (uint64)0;"
    if signed:
        yield from _if(f"{value} < (int64)0", [f"$v = (uint64)0 - $v; $n = (uint64){_NEGATIVE};"])
    for shift in (32, 16, 8, 4, 2, 1):
        keep = " & 0xffffffff" if shift == 32 else ""
        yield from _if(f"($v >> {shift + 3}) != 0", [f"$v = ($v >> {shift}){keep}; $n = $n + (uint64){8 * shift};"])
    yield "$c = $n + $v;"


# --- what is read -----------------------------------------------------------------------------------------------------


class _Row(NamedTuple):
    """A row of the measure at a place: its numbers are index, process, two keys, and a part."""

    maps: Maps
    place: int
    numbers: tuple[int, ...]
    hits: int

    def _in(self, letter: str) -> int | None:
        return self.maps.get(f"@{letter}{self.place}", {}).get(",".join(map(str, self.numbers)))

    def add_to(self, table: Table, tally: Tally, operands: Sequence[Operand]) -> None:
        _, _, key, second, part = self.numbers
        signed, _, second_signed = tally.signs(operands)
        if not tally.measure.pair and not signed:  # the key of a pair may be the begin's
            key &= _WORD
        cell = Cell(self.hits)
        if tally.of is not None or tally.measure.pair:
            found = self._added_up(operands[tally.of] if tally.of is not None else None, tally.measure)
            if found is None:
                return
            cell = found
        if tally.measure.classes:
            cell.classes[part if part < _NEGATIVE else _NEGATIVE - part] = self.hits
        both = key, second if second_signed else second & _WORD
        table.cells.setdefault(key if tally.second is None else both, Cell()).plus(cell)

    def _added_up(self, operand: Operand | None, measure: Measure) -> Cell | None:
        total, most, least = (self._in(letter) for letter in "sgl")
        wide, bias = _is_wide(operand), _bias(operand)
        upper = self._in("u") if wide else 0
        if total is None or most is None or least is None or upper is None:
            return None
        part = self.numbers[-1]
        high = part < _NEGATIVE if measure.classes and bias else part >= _TOP_CLASS if measure.classes else part
        top = 1 << 63 if wide and high else 0  # the highest bit of all its numbers, which the extremes leave out
        total += (upper << 32) - self.hits * bias
        return Cell(self.hits, total, _POSITIVE - least + top - bias, most + top - bias)


def _numbers(maps: Maps, name: str) -> Iterator[tuple[tuple[int, ...], int]]:
    for keys, value in maps.get(name, {}).items():
        yield tuple(map(int, keys.split(","))), value


def _unpaired(maps: Maps, place: int, processes: Container[int]) -> Unpaired:
    """Return what was not paired. Begins that wait and did not pass the filter don't count."""
    without, deep, many, keyless, begun, taken, gone_on, ended = (
        sum(count for (_, pid), count in _numbers(maps, f"@{letter}{place}") if pid in processes)
        for letter in "werxotqv"
    )
    left = max(0, gone_on - ended)
    return Unpaired(without, deep, many, keyless, max(0, begun - taken - many - deep - left), left=left)
