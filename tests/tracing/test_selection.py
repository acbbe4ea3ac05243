"""Which of several patterns decides: their order, and what is left out for good."""

from __future__ import annotations

import pytest

from usdtbuild.tracing.selection import Wanted

P, F, L, X = "PFLX"


def wanted(*order: tuple[str, str]) -> Wanted:
    kinds = {kind: tuple(pattern for k, pattern in order if k == kind) for kind in (P, F, L, X)}
    return Wanted(kinds[P], kinds[F], kinds[X], calls=kinds[L], order=order)


@pytest.mark.parametrize(
    ("order", "taken"),
    [
        ([(F, "*")], ["parse", "parse_all", "run"]),
        ([(F, "*"), (X, "parse*")], ["run"]),
        ([(F, "*"), (X, "parse*"), (F, "*_all")], ["parse_all", "run"]),
        ([(F, "*"), (X, "parse*"), (F, "*_all"), (X, "*l*")], ["run"]),
        ([(X, "parse*"), (F, "*_all"), (F, "run")], ["run"]),
        ([(X, "parse*")], []),
        ([(P, "*"), (X, "*"), (F, "run")], ["run"]),
    ],
)
def test_the_last_function_pattern_that_matches_decides(order: list[tuple[str, str]], taken: list[str]) -> None:
    asked = wanted(*order)
    assert [name for name in ("parse", "parse_all", "run") if asked.takes_function([name])] == taken


def test_probes_and_calls_have_the_same_order() -> None:
    asked = wanted((P, "app:*"), (L, "mem*"), (X, "*move"), (P, "app:move"), (L, "memmove"), (X, "memset"))
    assert asked.takes_probe("app", "move")
    assert asked.takes_call(["memmove"])
    assert not asked.takes_call(["memset"])
    assert not asked.takes_probe("other", "move")


def test_without_patterns_of_its_own_kind_all_probes_are_taken_but_those_left_out() -> None:
    asked = wanted((X, "go__*"))
    assert asked.takes_probe("app", "stop")
    assert not asked.takes_probe("app", "go__on")
    assert not asked._replace(functions=("f",), order=((F, "f"),)).takes_probe("app", "stop")


def test_without_an_order_what_is_left_out_stays_out() -> None:
    assert not Wanted(functions=("*",), exclude=("f",)).takes_function(["f"])
