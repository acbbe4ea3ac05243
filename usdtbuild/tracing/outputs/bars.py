"""Distributions: values sorted into classes, and drawn as bars of text."""

from __future__ import annotations

import contextlib
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from fractions import Fraction

from ..measures import Cell, bounds, class_of

_WIDTH = 40
_MOST = 100_000  # classes; some 10 MB
_EXACT = 1 << 60  # above it there is nothing behind the point
_BITS = 1074  # behind the point of the most exact floating-point number; all are multiples of a part of so many
_UNIT = 1 << _BITS
_MOST_EMPTY = 3  # so many classes without a value are shown one by one, more as one line of dots


class Distribution:
    """Counts values by class. Exact about the extremes.

    Classes are bounded by powers of two, and told apart 8 times more finely for quantiles; if `floating` also below 1;
    with `step` by its multiples; if `decimal` by 1, 2, 5, 10, 20, ... `all` is what the values add up to; `unsorted`
    are those whose class isn't known.
    """

    def __init__(self, step: float = 0, decimal: bool = False, floating: bool = False) -> None:
        self._step, self._decimal, self._floating = step, decimal, floating and not step
        self._width = step if isinstance(step, int) else Fraction(repr(step))  # 0.1 is a tenth
        self._fine: Counter[int] = Counter()
        self.all = Cell()
        self.unsorted = 0

    def add(self, value: float) -> None:
        """Count a value. NaN and infinite ones belong to no class, and are left out."""
        if not math.isfinite(value):
            return
        number = self.class_of(value)
        if number in self._fine or len(self._fine) < _MOST:
            self._fine[number] += 1
        else:
            self.unsorted += 1
        self.all.add(value)

    def class_of(self, value: float) -> int:
        """Return the number of a value's class."""
        if self._floating:
            number, parts = value.as_integer_ratio()
            return class_of(number * (_UNIT // parts))
        if not self._step:
            return (_decade if self._decimal else class_of)(value)
        if isinstance(value, int) and (isinstance(self._step, int) or abs(value) > 1 << 53):  # a rounded quotient
            return int(value // self._width)
        quotient = value / self._step
        number = math.floor(quotient) if math.isfinite(quotient) else int(Fraction(value) // self._width)
        return number + (value >= self._multiple(number + 1)) - (value < self._multiple(number))

    def _multiple(self, number: int) -> float:
        """Return a multiple of the step, an integer where it is no floating-point number."""
        found = number * self._width
        with contextlib.suppress(OverflowError):
            return found if isinstance(found, int) else float(found)
        return int(found)

    def take(self, cell: Cell, classes: Mapping[int, int]) -> None:
        """Take values that were counted elsewhere, of integers by classes of `measures`."""
        if self._floating:
            least = {number: bounds(number)[0] * (1 if number >= 0 else -1) for number in classes}
            classes = {self.class_of(least[number]): hits for number, hits in classes.items()}
        self._take(cell, classes)

    def _take(self, cell: Cell, classes: Mapping[int, int]) -> None:
        self._fine.update(classes)
        self.all.plus(cell)
        self.unsorted += max(0, cell.count - sum(classes.values()))

    def plus(self, other: Distribution) -> None:
        """Take those of another of the same kind."""
        self._take(other.all, other._fine)

    def quantile(self, part: float) -> float:
        """Return what so many of the values don't exceed: within 6 %, or within a step; of integers one; NaN where it
        isn't known, since some values are in no class."""
        if self.unsorted:
            return math.nan
        wanted, seen, found = part * sum(self._fine.values()), 0, self.all.most
        is_whole = not isinstance(self.all.total, float)
        for number in sorted(self._fine):
            seen += self._fine[number]
            if seen >= wanted:
                found = min(max(self._middle(number, whole=is_whole), self.all.least), self.all.most)
                break
        return int(found) if is_whole and not math.isnan(found) else float(found)

    def _middle(self, number: int, *, whole: bool) -> float:
        """Return the middle of a class, as far from both ends in proportion where there are no steps."""
        if self._step:
            twice = self._multiple(2 * number + 1)
            return twice // 2 if whole or abs(twice) > _EXACT else twice / 2
        low, high = bounds(number)
        high += self._floating
        middle = 2 * low * high // (low + high or 1)
        middle = middle if number >= 0 else -middle
        return middle / _UNIT if self._floating else middle

    @property
    def _classes(self) -> Counter[int]:
        if self._step or self._decimal:
            return self._fine
        found: Counter[int] = Counter()
        for number, count in self._fine.items():
            power = bounds(number)[1].bit_length()
            found[power if number >= 0 else -power] += count
        return found

    def lines(self, shown: Callable[[float], str] = str) -> Iterator[str]:
        """Yield a line for each class from the lowest to the highest; `shown` writes a bound."""
        classes = self._classes
        most = max(classes.values(), default=1)
        rows = [(self._interval(number, shown), classes[number], number) for number in _shown(classes)]
        width = max((len(interval) for interval, _, _ in rows), default=0)
        digits = len(str(most))
        before = None
        for interval, count, number in rows:
            if before is not None and number != before + 1:
                yield f"  {'...':>{width}}"
            bar = "#" * (count * _WIDTH // most or (1 if count else 0))
            yield f"  {interval:>{width}}  {count:>{digits}}  {bar}".rstrip()
            before = number

    def buckets(self) -> list[tuple[float, float, int]]:
        """Return the bounds of each class, and how many values are in it."""
        return [(*self._bounds(number), count) for number, count in sorted(self._classes.items())]

    def _bounds(self, number: int) -> tuple[float, float]:
        if self._step:
            return self._multiple(number), self._multiple(number + 1)
        if number == 0:
            return 0, 2.0**-_BITS if self._floating else 1
        ends = abs(number) - 1, abs(number)
        low, high = map(_decade_bound if self._decimal else self._power, ends)
        return (low, high) if number > 0 else (-high, -low)

    def _power(self, number: int) -> float:
        number -= _BITS * self._floating
        return 2**number if number >= 0 else 2.0**number

    def _interval(self, number: int, shown: Callable[[float], str]) -> str:
        if self._floating and not number:
            return shown(0)
        bounds_ = self._bounds(number)
        low, high = map(shown, bounds_)
        if low == high and abs(bounds_[0]) <= 1 << 64:  # an integer, beside which such a step needs more digits
            from decimal import Decimal

            low, high = (str(one * Decimal(repr(self._step))) for one in (number, number + 1))
        return f"[{low}, {high})" if number >= 0 or self._step else f"({low}, {high}]"


def _shown(classes: Iterable[int]) -> Iterator[int]:
    before = None
    for number in sorted(classes):
        if before is not None and number - before - 1 <= _MOST_EMPTY:
            yield from range(before + 1, number)
        yield number
        before = number


def _decade(value: float) -> int:
    """Return the class of a value: 0 below 1 (and above -1), then 1 to 2, 2 to 5, 5 to 10, ...; minus it below 0."""
    whole, number = int(abs(value)), 0
    while whole >= _decade_bound(number):
        number += 1
    return number if value >= 0 else -number


def _decade_bound(number: int) -> int:
    return int((1, 2, 5)[number % 3] * 10 ** (number // 3))


_UNITS = ((1_000_000_000, "s"), (1_000_000, "ms"), (1_000, "us"))


def duration(nanoseconds: float) -> str:
    """Return a time with three digits that count: `999 ns`, `1.23 us`, `45.6 ms`, `789 s`; `?` for NaN."""
    for size, unit in _UNITS:
        if nanoseconds >= size * 0.9995:
            value = nanoseconds / size
            return f"{value:.{2 if value < 9.995 else 1 if value < 99.95 else 0}f} {unit}"
    return "?" if math.isnan(nanoseconds) else f"{nanoseconds:.0f} ns"


def round_duration(nanoseconds: float) -> str:
    """Return a round number of nanoseconds as briefly as that goes: `500 us`, `1 ms`."""
    for size, unit in _UNITS:
        if nanoseconds >= size:
            return f"{nanoseconds / size:g} {unit}"
    return f"{nanoseconds:g} ns"
