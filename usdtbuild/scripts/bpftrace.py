"""Scripts for bpftrace, each for all processes or for the one whose number is its argument.

They are in what all versions since 0.17 have in common. bpftrace 0.27 attaches a probe of a file twice with `-p`, and
counts each hit twice; and it takes no strncmp() any more.
"""

from __future__ import annotations

from functools import partial

from ..tracing.filters import argument_index
from ..tracing.model import STRING, Argument, Target
from ..tracing.others.program import MOST_ARGUMENTS, attached, cast, expressions
from ..tracing.predicates import BEGIN
from .wish import Wish, Words, clauses, format_of, heading, is_whole, unreadable


def write(wish: Wish) -> str:
    """Return a script."""
    lines = ["#!/usr/bin/env bpftrace", "/*", *heading(wish, " * ", "Run it as root: bpftrace FILE, or bpftrace FILE"
             " PID for one process. Ctrl-C ends it, and prints what was added up."), " */"]  # fmt: skip
    lines += clauses(wish, _WORDS, "@begin[tid]", partial(attached, wish.program), _action,
                     "($1 == 0 || pid == $1)")  # fmt: skip
    if wish.latency:
        kept = [f"@key{place}" for place in wish.kept]
        lines += ["", "END", "{", *(f"\tclear({name});" for name in ("@begin", *kept)), "}"]
    return "\n".join(lines) + "\n"


def _action(wish: Wish, target: Target, side: str) -> list[str]:
    if side:
        return _pair(wish, target, side)
    keys = wish.keys(_WORDS, target)
    if wish.of:
        keys = keys or [_WORDS.key(target, "probe")]
        index = argument_index(target, wish.of)
        value = _number(target, index)
        at = f"[{', '.join(keys)}]"
        if wish.histogram:
            return [f"@{_map(wish.histogram)}{at} = hist({value});"]
        return [f"@{name}{at} = {name}({value});" for name in ("sum", "avg", "min", "max")]
    if not wish.prints:
        return [f"@hits[{', '.join(keys or [_WORDS.key(target, 'probe')])}] = count();"]
    text = format_of(target, _conversion, "%s")
    values = [_WORDS.value(target, index) for index in range(len(target.arguments))]
    return [f'printf("%d/%d {text}\\n", {", ".join(["pid", "tid", *values])});']


def _pair(wish: Wish, target: Target, side: str) -> list[str]:
    kept = wish.kept
    if side == BEGIN:
        return ["@begin[tid] = nsecs;", *(f"@key{at}[tid] = {_WORDS.key(target, wish.by[at])};" for at in kept)]
    keys = [f"@key{at}[tid]" if at in kept else _WORDS.key(target, name) for at, name in enumerate(wish.by)]
    at = f"[{', '.join(keys)}]" if keys else ""
    return [
        f"@nanoseconds{at} = hist(nsecs - @begin[tid]);",
        "delete(@begin[tid]);",
        *(f"delete(@key{place}[tid]);" for place in kept),
    ]


def _map(name: str) -> str:
    return name if name.isidentifier() and name.isascii() else "values"


def _expression(target: Target, index: int) -> str:
    texts = expressions(target) if target.sites else [f"arg{index}" * (index < MOST_ARGUMENTS) for index in
                                                      range(len(target.arguments))]  # fmt: skip
    if not texts[index] or not is_whole(target, index):
        raise unreadable("bpftrace", target, index)
    return texts[index]


def _number(target: Target, index: int) -> str:
    one = target.arguments[index]
    return cast(_expression(target, index), 8 if one.kind == STRING else one.size, signed=one.signed)


def _conversion(one: Argument) -> str:
    return "%lld" if one.signed else "%p" if one.kind == "pointer" else "%llu"


def _begins(text: str, wanted: str, length: int) -> str:
    # str()'s length includes the NUL in newer versions, and not in 0.17: there the first one is it, here the second.
    exact = [f"{text[:-1]}, {length + more}) == {wanted}" for more in (0, 1)]
    return " || ".join(exact) if length else "1 == 1"


_WORDS = Words("bpftrace", _number, lambda target, index: f"str({_expression(target, index)})", _begins)
