"""Filters: what they let through, and what is said, with the place, about those that can't be meant."""

from __future__ import annotations

import contextlib
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given

from usdtbuild.tracing.filters import Filter, FilterError, own_of
from usdtbuild.tracing.model import (
    CALL,
    FLOAT,
    INTEGER,
    MISSING,
    POINTER,
    PROBE,
    RETURN,
    STRING,
    Argument,
    Event,
    Module,
    Target,
    Unreadable,
)  # fmt: skip
from usdtbuild.tracing.sieve import Sieve

ARGUMENTS = (
    Argument("length", "int", 4, True, INTEGER),
    Argument("name", "char *", 8, False, STRING),
    Argument("where", "void *", 8, False, POINTER),
    Argument("ratio", "double", 8, False, FLOAT),
    Argument("", "", 8, True, INTEGER),
)
MODULE = Module("/bin/app", 0, "", 62)
TARGET = Target(0, PROBE, "app", "done", MODULE, ARGUMENTS, ())
PLAIN = (5000, b"x", 0x7F00, 0.5, -3)


def passes(text: str, *values: Any) -> bool:
    """Whether a hit with these values (the first ones; the others are PLAIN's) passes."""
    return Filter(text).compile(TARGET)((*values, *PLAIN[len(values) :]))


@pytest.mark.parametrize(
    "text",
    [
        'length > 4096 and name == "x"',
        "length == 5000",
        "length == 0x1388",
        "length >= 5e3",
        "length != 4",
        "4096 < length",
        "length <= 5000",
        "arg0 == 5000",
        "arg4 == -3",
        "arg4 < 0",
        "ratio < .75",
        "ratio < inf and ratio > -inf and not ratio == inf",
        "1e308 > ratio",
        "ratio == 0.5",
        "where == 0x7f00",
        "where != NULL",
        "name != NULL",
        "name != 'y'",
        "name < 'y'",
        'name =~ "[w-z]"',
        'name =~ "*"',
        "length > arg4",
        'not name == "y"',
        'not (name == "y" or length < 10)',
        "length == 1 or length == 5000 and arg4 == -3",
        '!(length == 1) && (arg4 == -3 || name == "q")',
        "not not length == 5000",
        "((length == 5000))",
        "length & 8",
        "(length & 8)",
        "not length & 7",
        "length & 0xff == 0x88 and arg4 & 0xff == 0xfd",
        "((length & 0x1008) == 0x1008)",
        "8 == length & 8",
        "arg4 & 0xffffffffffffffff > 0x7fffffffffffffff",
        "where & 0xf00 != NULL",
        "length & 7 or (length & 8 and name == 'x')",
    ],
)
def test_passes(text: str) -> None:
    assert passes(text)


@pytest.mark.parametrize(
    "text",
    [
        "length > 5000",
        'name == "X"',
        'name =~ "[a-w]"',
        "not length == 5000",
        "where == NULL",
        "name == NULL",
        "(length == 1 or length == 5000) and arg4 == 3",
        'not (name == "x" and arg4 == -3)',
        'not name =~ "x*"',
        "length & 7",
        "length & 0x1388 == 8",
        "not (length & 8)",
    ],
)
def test_is_kept_out(text: str) -> None:
    assert not passes(text)


@pytest.mark.parametrize(
    ("text", "after", "passed"),
    [
        ("time > 5s", 5.1, True),
        ("time > 5s", 4.9, False),
        ("time <= 5", 5.0, True),
        ("200ms < time and time < .5", 0.3, True),
        ("not time >= 1.5m", 89, True),
        ("time >= 1h", 3600, True),
        ("time != 100us", 0.0001, False),
    ],
)
def test_time_counts_from_the_beginning_of_the_trace(text: str, after: float, passed: bool) -> None:
    wanted = Filter(text)
    event = Event(wanted.begun + round(after * 1e9), 7, 7, 0, PLAIN)
    assert wanted.compile(TARGET)(PLAIN, own_of(event)) is passed


def test_an_argument_called_time_is_one() -> None:
    target = TARGET._replace(arguments=(Argument("time", "int", 4, True, INTEGER),))
    assert Filter("time > 5").compile(target)((6,), (7, 7, 0))
    with pytest.raises(FilterError, match="only time is compared with a time"):
        Filter("time > 5s").compile(target)


@pytest.mark.parametrize(
    ("name", "text", "passed"),
    [
        (None, "name == NULL", True),
        (None, "name != NULL", False),
        (None, 'name == "x"', False),
        (None, 'name != "x"', True),
        (None, 'name < "x"', False),
        (None, 'name =~ "*"', False),
        (None, 'not name =~ "*"', True),
        (b"", 'name == ""', True),
        (b'\xff\n"', r'name == "\xff\n\""', True),
        ("é".encode(), 'name == "é"', True),
        (b"\xff/a", 'name =~ "?/a"', True),
        (b"a\nb", 'name =~ "a*b"', True),
        (b"[", 'name =~ "[[]"', True),
    ],
)
def test_strings_are_bytes_and_null_is_none_of_them(name: Any, text: str, passed: bool) -> None:
    assert passes(text, 1, name) is passed


@pytest.mark.parametrize("test", ["{} == {}", "{} != {}", "{} < {}", "{} >= {}"])
@pytest.mark.parametrize("negation", ["", "not ", "not not "])
def test_what_could_not_be_read_compares_with_nothing(test: str, negation: str) -> None:
    number, text = test.format("length", 0), test.format("name", '"x"')
    assert not passes(f"{negation}({number})", MISSING)
    assert not passes(f"{negation}({text})", 1, MISSING)
    assert not passes(f"{negation}({text})", 1, Unreadable(16))
    assert not Filter(f"{negation}({text})").compile(TARGET)((1,)), "a site with fewer arguments"


@pytest.mark.parametrize(
    ("text", "at", "said"),
    [
        ("", 0, "is empty"),
        ("length", 6, "a comparison must follow"),
        ("length >", 8, "not the end"),
        ("length > and", 9, "not and"),
        ("length = 4", 7, "equality is =="),
        ("length > 4 name", 11, "name was not expected"),
        ("(length > 4", 11, "opened at character 1 is not closed"),
        ("length > 4)", 10, ") was not expected"),
        ('name == "x', 8, "has no end"),
        ("3 < 4", 0, "one side"),
        ("1 < length < 3", 11, "not chained"),
        ("length > 4 and size > 3", 15, "app:done has no argument size; it has length, name, where, ratio, arg4"),
        ("arg5 == 1", 0, "no argument arg5"),
        ('length == "x"', 0, "length of app:done is a number"),
        ("name == 4", 0, 'is a string; compare it with a string, "..."'),
        ('length =~ "x"', 7, "=~ is for strings"),
        ("name =~ length", 5, "compares an argument with a pattern"),
        ("length < NULL", 7, "NULL can be compared by == and !="),
        (f'name == "{"x" * 64}"', 8, "read up to 64 bytes"),
        (f'name =~ "*{"x" * 64}[ab]*"', 8, "what matches this has more"),
        ("(" * 200, 100, "nested deeper"),
        ("length ? 3", 7, "'?' means"),
        ("length > 08x", 9, "'0' means nothing"),
        ("length > 5s", 9, "only time is compared with a time, and length of app:done is none"),
        ("time > 5days", 7, "'5' means nothing"),
        ("time > length", 7, "time is compared with seconds"),
        ("time == NULL", 8, "time is compared with seconds"),
        ("name & 1", 0, "& is for whole numbers, and name of app:done is none"),
        ("1 < ratio & 1", 4, "& is for whole numbers"),
        ("time & 1 == 1", 0, "& is for whole numbers"),
        ("length & 0", 9, "a mask must stand behind &"),
        ("length & 1.5", 9, "a mask must stand behind &"),
        ("length & -1", 9, "a mask must stand behind &"),
        ("length & 0x10000000000000000", 9, "a mask must stand behind &"),
        ("(length & arg4) == 1", 10, "a mask must stand behind &"),
        ("length & 1 == arg4", 0, "what is masked by & is compared with a number"),
        ("length & 1 & 2", 11, "a comparison must follow"),
        ("(length & 1", 11, "opened at character 1 is not closed"),
        ("length & 4 == 'x'", 0, "length of app:done is a number"),
    ],
)
def test_mistakes_are_shown_at_their_place(text: str, at: int, said: str) -> None:
    with pytest.raises(FilterError) as caught:
        Filter(text).compile(TARGET)
    assert said in str(caught.value)
    line, caret = str(caught.value).split("\n")[1:]
    assert (line, caret) == (f"  {text}", f"  {' ' * at}^")


@pytest.mark.parametrize("number", ["1e400", "-1e400", "1" + "0" * 400, "1" + "0" * 5000])
@pytest.mark.parametrize("argument", ["ratio", "length", "name"])
def test_a_number_that_no_argument_can_be_is_an_error(number: str, argument: str) -> None:
    with pytest.raises(FilterError) as caught:
        Filter(f"{argument} < {number}")
    assert caught.value.at == len(argument) + 3
    assert "is a greater number than any argument can be; infinity is inf" in str(caught.value)


@pytest.mark.parametrize("text", ["length < inf", "-inf < length", "arg4 > -inf"])
def test_only_floating_point_arguments_are_infinite(text: str) -> None:
    with pytest.raises(FilterError, match="only floating-point numbers are infinite"):
        passes(text)


def test_infinite_values_and_an_argument_called_inf() -> None:
    found = [
        passes("ratio == inf or ratio == -inf", 5000, b"x", 0, one) for one in (float("inf"), float("-inf"), 1e308)
    ]
    assert found == [True, True, False]
    named = TARGET._replace(arguments=(Argument("inf", "double", 8, False, FLOAT), *ARGUMENTS))
    assert Filter("inf == 0.5 and ratio > inf").compile(named)((0.5, 1, b"x", 0, 0.75, 1))


def test_a_pattern_may_ask_for_all_that_is_read_of_a_string() -> None:
    assert passes(f'name =~ "*{"x" * 63}[]a]*"', 1, b"x" * 63 + b"a")


def test_control_characters_do_not_reach_the_terminal() -> None:
    with pytest.raises(FilterError) as caught:
        Filter('length == "\x1b[31m"').compile(TARGET)
    assert "\x1b" not in str(caught.value)


def test_a_sieve_counts_what_passes_and_refuses_later_targets_that_lack_the_argument() -> None:
    sieve = Sieve(Filter("length > 4"))
    other = Target(1, PROBE, "lib", "late", MODULE, (), ())
    sieve.start([TARGET])
    sieve.start([TARGET, other], strict=False)
    hits = [Event(i, 1, 1, number, values) for i, (number, values) in enumerate([(0, (3,)), (0, (5,)), (1, ())])]
    assert [event.time for event in sieve.take(hits)] == [1]
    assert sieve.counts({}) == (1, 0)
    assert [refusal.what for refusal in sieve.refused] == ["lib:late"]
    with pytest.raises(FilterError, match="lib:late has no argument length; it has no arguments"):
        Sieve(Filter("length > 4")).start([TARGET, other])


def test_where_nothing_is_named_libraries_probes_may_lack_what_the_filter_asks_for() -> None:
    library = Target(1, PROBE, "libc", "setjmp", MODULE._replace(path="/lib/libc.so.6"), (), ())
    sieve = Sieve(Filter("length > 4"), is_open=True)
    sieve.start([library, TARGET])
    assert sieve.refused == []
    assert sieve.take([Event(1, 1, 1, 0, ())]) == []
    with pytest.raises(FilterError, match="libc:setjmp has no argument length"):
        Sieve(Filter("length > 4"), is_open=True).start([library])
    with pytest.raises(FilterError, match="libc:setjmp has no argument length"):
        Sieve(Filter("length > 4")).start([library, TARGET])


OPERANDS = st.sampled_from(["arg0", "arg4", "-3", "0", "5000", "0x10"])
COMPARISONS = st.tuples(
    st.sampled_from(["arg0", "length", "arg4"]), st.sampled_from(["==", "!=", "<", "<=", ">", ">="]), OPERANDS
).map(" ".join)
EXPRESSIONS = st.recursive(
    COMPARISONS,
    lambda inner: st.one_of(
        inner.map("not ({})".format),
        inner.map("not {}".format),
        inner.map("({})".format),
        st.lists(inner, min_size=2, max_size=3).map(" and ".join),
        st.lists(inner, min_size=2, max_size=3).map(" or ".join),
    ),
    max_leaves=12,
)


@given(text=EXPRESSIONS, length=st.sampled_from([-3, 0, 16, 5000]), last=st.sampled_from([-3, 0, 5000]))
def test_expressions_mean_what_they_mean_in_python(text: str, length: int, last: int) -> None:
    """The same words, joined with the same precedence."""
    meant = eval(text, {}, {"arg0": length, "length": length, "arg4": last})
    assert Filter(text).compile(TARGET)((length, b"", 0, 0.0, last)) is meant


@given(text=st.text(alphabet="()=!<>~&|\"'\\ andornot0x19.a\n\x1bé", max_size=30))
def test_anything_else_is_one_clear_error(text: str) -> None:
    with contextlib.suppress(FilterError):
        Filter(text).compile(TARGET)
        return
    with pytest.raises(FilterError) as caught:
        Filter(text).compile(TARGET)
    assert 0 <= caught.value.at <= len(text)
    assert len(str(caught.value).split("\n")) == 3


MODULE = Module("/bin/app", 0, "", 62)
OPEN = Target(0, CALL, "", "open", MODULE, (Argument("path", "char *", 8, False, STRING),), ())
OPENED = Target(1, RETURN, "", "open", MODULE, (Argument("result", "int", 4, True, INTEGER),), ())
FREE = Target(2, CALL, "", "free", MODULE, (Argument("ptr", "void *", 8, False, POINTER),), ())
FREED = Target(3, RETURN, "", "free", MODULE, (), ())


def call(time: int, path: bytes, thread: int = 7) -> Event:
    return Event(time, 7, thread, 0, (path,))


def back(time: int, result: int, thread: int = 7) -> Event:
    return Event(time, 7, thread, 1, (result,))


def times(sieve: Sieve, *events: Event) -> list[int]:
    return [event.time for event in sieve.take(events)]


def test_a_return_passes_with_its_call() -> None:
    sieve = Sieve(Filter('path == "a"'))
    sieve.start([OPEN, OPENED])
    # A recursion, and another thread in between.
    events = (call(1, b"a"), call(2, b"b"), call(3, b"a", 8), back(4, 0), back(5, 0, 8), back(6, 0))
    assert times(sieve, *events) == [1, 3, 5, 6]
    assert sieve.counts({}) == (2, 2)


def test_a_call_waits_for_the_result_that_the_filter_asks_for() -> None:
    sieve = Sieve(Filter('result < 0 and path =~ "/etc/*"'))
    sieve.start([OPEN, OPENED])
    assert times(sieve, call(1, b"/etc/one"), call(2, b"/etc/two")) == []
    assert times(sieve, back(3, -1), back(4, 5), call(5, b"/tmp/one"), back(6, -1)) == [2, 3]
    assert sieve.counts({}) == (1, 1)


def test_a_call_that_was_left_passes_nothing_of_another() -> None:
    sieve = Sieve(Filter("result == 1"))
    sieve.start([OPEN, OPENED, OPEN._replace(number=2, name="read"), OPENED._replace(number=3, name="read")])
    # `read` leaves by longjmp; later it returns to nobody that is known.
    events = (call(1, b"a"), call(2, b"b")._replace(target=2), back(3, 1), back(4, 1)._replace(target=3))
    assert times(sieve, *events) == [1, 3]


def test_a_filter_of_the_result_is_not_for_what_has_none() -> None:
    with pytest.raises(FilterError, match="free has no argument result"):
        Sieve(Filter("result == 1")).start([OPEN, OPENED, FREE, FREED])
    sieve = Sieve(Filter("result == 1"))
    sieve.start([OPEN, OPENED])
    sieve.start([OPEN, OPENED, FREE, FREED], strict=False)
    assert [refusal.what for refusal in sieve.refused] == ["free"]
    assert times(sieve, Event(1, 7, 7, 2, (0,)), Event(2, 7, 7, 3, ())) == []


def test_of_a_filter_of_megabytes_an_error_repeats_the_place_only() -> None:
    text = " or ".join(["length == 1"] * 9000)
    for wrong in (f"{text} ] {text}", f"{text} and {'x' * 90_000} == 1"):
        with pytest.raises(FilterError) as caught:
            Filter(wrong).compile(TARGET)
        assert len(str(caught.value)) < 2000
        line, place = str(caught.value).split("\n")[1:3]
        assert line[place.index("^")] in "]x"
