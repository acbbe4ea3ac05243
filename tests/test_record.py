"""Named tuples of the launcher's path behave as typing's do, which stand beside them here."""

from __future__ import annotations

import copy
import pickle
import typing
from typing import Any

import pytest

from usdtbuild.record import NamedTuple


class Ours(NamedTuple):
    """A text."""

    first: int
    second: str = "two"
    third: tuple[int, ...] = ()

    @property
    def both(self) -> str:
        return f"{self.first}{self.second}"


class Typings(typing.NamedTuple):
    """A text."""

    first: int
    second: str = "two"
    third: tuple[int, ...] = ()

    @property
    def both(self) -> str:
        return f"{self.first}{self.second}"


KINDS = pytest.mark.parametrize("kind", [Ours, Typings])


@KINDS
def test_values_are_given_in_order_by_name_or_not_at_all(kind: Any) -> None:
    assert kind(1) == (1, "two", ()) == kind(first=1)
    assert kind(1, "x", (2,)) == kind(third=(2,), second="x", first=1) == kind(1, third=(2,), second="x")
    made = kind(1, "x")
    assert (made.first, made.second, made.third, made.both) == (1, "x", (), "1x")
    assert kind._fields == ("first", "second", "third")
    assert kind.__doc__ == "A text."


@KINDS
@pytest.mark.parametrize(
    ("values", "named"), [((), {}), ((1, "", (), 4), {}), ((1,), {"other": 2}), ((1,), {"first": 2})]
)
def test_wrong_values_are_refused(kind: Any, values: tuple[Any, ...], named: dict[str, Any]) -> None:
    with pytest.raises(TypeError):
        kind(*values, **named)


def test_a_class_that_is_used_often_goes_on_as_before() -> None:
    class Often(NamedTuple):
        first: int
        second: str = "two"

    class Below(Often):
        __slots__ = ()

    for number in range(1000):
        assert Often(number) == (number, "two") == Often(second="two", first=number)
        assert type(Below(number)) is Below
    with pytest.raises(TypeError):
        Often()  # type: ignore[call-arg]
    with pytest.raises(TypeError):
        Often(1, third=2)  # type: ignore[call-arg]
    assert Often(1)._replace(second="x") == Often(1, "x")


@KINDS
def test_it_is_a_tuple(kind: Any) -> None:
    made = kind(1, "x")
    first, *_ = made
    assert first == 1
    assert {made: 2}[1, "x", ()] == 2
    assert kind(1) < kind(2)
    assert repr(made) == f"{kind.__name__}(first=1, second='x', third=())"
    with pytest.raises(AttributeError):
        made.first = 2
    with pytest.raises(AttributeError):
        made.fourth = 2


@KINDS
def test_copies_keep_the_class(kind: Any) -> None:
    made = kind(1)._replace(second="y")
    assert (made, type(made)) == ((1, "y", ()), kind)
    for other in (copy.copy(made), copy.deepcopy(made), pickle.loads(pickle.dumps(made))):
        assert (other, type(other)) == (made, kind)
    with pytest.raises((TypeError, ValueError)):
        made._replace(fourth=1)
