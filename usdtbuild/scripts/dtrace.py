"""Scripts for DTrace: illumos, FreeBSD, Linux."""

from __future__ import annotations

from ..model import dashed
from ..tracing.filters import argument_index
from ..tracing.model import STRING, Argument, Target
from ..tracing.predicates import BEGIN, END
from .wish import Wish, Words, clauses, format_of, heading, is_whole, unreadable

_MOST = 10  # arguments with a name


def write(wish: Wish) -> str:
    """Return a script."""
    lines = ["#!/usr/sbin/dtrace -s", "/*", *heading(wish, " * ", "Run it as root: dtrace -s FILE. It is for all"
             " processes that have the probes. Write app$target for app* and add -p PID for one; SDT notes need that."),
             " */"]  # fmt: skip
    lines += ["#pragma D option quiet"]
    # A variable's first assignment declares it, so what begins a pair stands before what ends it.
    ordered = wish._replace(targets=tuple(sorted(wish.targets, key=lambda it: wish.side(it) == END)))
    lines += clauses(ordered, _WORDS, "self->begin", lambda it: f"{it.provider}*:::{dashed(it.name)}", _action)
    return "\n".join(lines) + "\n"


def _action(wish: Wish, target: Target, side: str) -> list[str]:
    if side == BEGIN:
        return [
            "self->begin = timestamp;",
            *(f"self->key{at} = {_WORDS.key(target, wish.by[at])};" for at in wish.kept),
        ]
    if side == END:
        kept = wish.kept
        keys = [f"self->key{at}" if at in kept else _WORDS.key(target, name) for at, name in enumerate(wish.by)]
        at = f"[{', '.join(keys)}]" if keys else ""
        ends = [f"self->{name} = 0;" for name in ("begin", *(f"key{place}" for place in kept))]
        return [f"@nanoseconds{at} = quantize(timestamp - self->begin);", *ends]
    keys = wish.keys(_WORDS, target) or [_WORDS.key(target, "probe")]
    at = f"[{', '.join(keys)}]"
    if wish.of:
        index = argument_index(target, wish.of)
        names = {"quantize": "quantize"} if wish.histogram else {one: one for one in ("sum", "avg", "min", "max")}
        return [f"@{name}{at} = {function}({_number(target, index)});" for name, function in names.items()]
    if not wish.prints:
        return [f"@hits{at} = count();"]
    values = [_WORDS.value(target, index) for index in range(len(target.arguments))]
    text = format_of(target, _conversion, "%s")
    return [f'printf("%d/%d {text}\\n", {", ".join(["pid", "tid", *values])});']


def _number(target: Target, index: int) -> str:
    one = target.arguments[index]
    if index >= _MOST or not is_whole(target, index):
        raise unreadable("DTrace", target, index)
    if one.kind == STRING or one.size >= 8:
        return f"(int64_t)arg{index}" if one.signed else f"(uint64_t)arg{index}"
    return f"({'' if one.signed else 'u'}int{8 * one.size}_t)arg{index}"


def _text(target: Target, index: int) -> str:
    if index >= _MOST:
        raise unreadable("DTrace", target, index)
    return f'(arg{index} == 0 ? "?" : copyinstr(arg{index}))'  # copyinstr(0) is an error, and the hit isn't shown


def _conversion(one: Argument) -> str:
    return "%d" if one.signed else "0x%x" if one.kind == "pointer" else "%u"


_WORDS = Words("DTrace", _number, _text, lambda text, wanted, length: f"index({text}, {wanted}) == 0", unsigned="ull")
