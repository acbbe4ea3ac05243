"""What of tables that a program can write into may be believed (`patch/plausible.py`)."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from usdtbuild.tracing.measures import ALL, Cell, Measure, Table, Tables, Unpaired, class_of
from usdtbuild.tracing.patch.plausible import fits

SUM, SPREAD = Measure(of="size"), Measure(of="size", classes=True)
PAIRS = Measure(classes=True, pair=("begin", "end"))
SPARE, LASTED, RATE = 3, 1_000_000_000, 2.0


def added_up(values: list[int], classes: bool) -> Cell:
    cell = Cell()
    for value in values:
        cell.add(value)
        if classes:
            cell.classes[class_of(value)] += 1
    return cell


def in_part(cell: Cell, value: int, steps: int) -> None:
    """Do some steps of what a trampoline does of a hit before it counts it, in its order."""
    if steps > 0:
        cell.most = max(cell.most, value)
    if steps > 1:
        cell.least = min(cell.least, value)
    if steps > 2:
        cell.total += value


@pytest.mark.parametrize("measure", [SUM, SPREAD])
def test_what_hits_add_up_to_fits_whatever_their_values_are(measure: Measure) -> None:
    chance = random.Random(7)
    for _ in range(2000):
        reach = 1 << chance.randrange(63)
        values = [chance.randint(-reach, reach - 1) for _ in range(chance.randrange(1, 20))]
        cell = added_up(values, measure.classes)
        for _ in range(chance.randrange(SPARE + 1)):
            in_part(cell, chance.randint(-reach, reach - 1), chance.randrange(4))
        assert fits({(0, measure): Table({}, cell)}, {0: len(values)}, SPARE, LASTED), cell
        assert cell.least * cell.count <= cell.total <= cell.most * cell.count


CHANGES: dict[str, Callable[[Cell], None]] = {
    "a sum above all values": lambda cell: setattr(cell, "total", 10 * 600 + 1),
    "a sum below all values": lambda cell: setattr(cell, "total", -1000),
    "a greatest value below the least": lambda cell: setattr(cell, "most", 99),
    "no value in the greatest's class": lambda cell: cell.classes.update({class_of(195): -1}),
    "more values in classes than hits": lambda cell: cell.classes.update({class_of(150): 1}),
    "fewer values in classes than hits": lambda cell: cell.classes.update({class_of(100): -1}),
    "values in classes beyond the greatest": lambda cell: cell.classes.update({class_of(100): -4, class_of(999): 4}),
    "classes that don't add up to the sum": lambda cell: cell.classes.update({class_of(100): -8, class_of(195): 8}),
}


@pytest.mark.parametrize("change", CHANGES)
def test_what_hits_can_t_add_up_to_is_found(change: str) -> None:
    cell = added_up([100] * 9 + [195], classes=True)
    tables: Tables = {(0, SPREAD): Table({7: cell}, Cell())}
    assert fits(tables, {0: 10}, 0, LASTED)
    CHANGES[change](cell)
    cell.count = sum(cell.classes.values())  # as tables are read
    assert not fits(tables, {0: 10}, 0, LASTED)


def test_what_is_found_without_classes() -> None:
    cell = added_up([100] * 9 + [195], classes=False)
    tables: Tables = {(0, SUM): Table({7: cell}, Cell())}
    assert fits(tables, {0: 10 - SPARE}, SPARE, LASTED)
    assert not fits(tables, {0: 9 - SPARE}, SPARE, LASTED)


def pairs(unpaired: Unpaired, longest: int = 9) -> Tables:
    """100 pairs of a few ticks each, or one of them of many."""
    return {
        (0, PAIRS): Table({}, added_up([5] * 99 + [longest], classes=True)),
        (ALL, PAIRS): Table({}, Cell(), unpaired, RATE),
    }


@pytest.mark.parametrize(
    ("unpaired", "hits", "can_be"),
    [
        (Unpaired(), (100, 100), True),
        (Unpaired(without_begin=20), (100, 120), True),
        (Unpaired(without_begin=20), (100, 110), False),
        (Unpaired(without_begin=5, rejected=15), (100, 120), True),
        (Unpaired(without_begin=5, rejected=15), (100, 110), False),
        (Unpaired(without_key=20), (120, 120), True),
        (Unpaired(without_key=20), (120, 100), False),
        (Unpaired(deep=20), (120, 120), True),
        (Unpaired(deep=20), (120, 100), False),
        (Unpaired(many=20, without_begin=20), (120, 120), True),
        (Unpaired(many=20), (110, 120), False),
        (Unpaired(open=20), (120, 100), True),
        (Unpaired(open=20), (110, 100), False),
        (Unpaired(), (90, 100), False),
    ],
)
def test_there_are_as_many_begins_and_ends_as_were_paired_and_not_paired(
    unpaired: Unpaired, hits: tuple[int, int], can_be: bool
) -> None:
    begins, ends = hits
    assert fits(pairs(unpaired), {0: ends, 1: begins}, SPARE, LASTED) == can_be


def test_no_pair_lasts_longer_than_the_trace_or_less_than_nothing() -> None:
    hits = {0: 100, 1: 100}
    assert fits(pairs(Unpaired(), int(RATE * LASTED)), hits, SPARE, LASTED)
    assert not fits(pairs(Unpaired(), int(RATE * 2 * LASTED) + 1), hits, SPARE, LASTED)
    assert not fits(pairs(Unpaired(), -1), hits, SPARE, LASTED)
