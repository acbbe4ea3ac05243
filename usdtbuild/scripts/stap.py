"""Scripts for SystemTap."""

from __future__ import annotations

from ..tracing.filters import argument_index
from ..tracing.model import Argument, Target
from ..tracing.predicates import BEGIN, END
from .wish import Wish, Words, format_of, heading, is_whole, unreadable


def write(wish: Wish) -> str:
    """Return a script."""
    lines = ["#!/usr/bin/env stap", *heading(wish, "# ", "Run it as root: stap FILE, with -x PID for one process.")]
    blocks: list[str] = []
    maps: dict[str, int] = {}
    for target in wish.targets:
        blocks += ["", f'probe process("{wish.program}").provider("{target.provider}").mark("{target.name}")', "{"]
        blocks += ["\tif (target() && pid() != target()) next"]
        side = wish.side(target)
        if side == END:
            blocks.append("\tif (!(tid() in began)) next")
        test = _WORDS.test(wish, target)
        blocks += [f"\tif (!({test})) next"] if test else []
        blocks += [*(f"\t{line}" for line in _action(wish, target, side, maps)), "}"]
    names = [*maps, *(["began", *(f"key{at}" for at in wish.kept)] if wish.latency else [])]
    lines += ["", f"global {', '.join(names)}"] if names else []
    return "\n".join([*lines, *blocks, *_shown(wish, maps)]) + "\n"


def _action(wish: Wish, target: Target, side: str, maps: dict[str, int]) -> list[str]:
    if side == BEGIN:
        kept = [f"key{at}[tid()] = {_WORDS.key(target, wish.by[at])}" for at in wish.kept]
        return ["began[tid()] = gettimeofday_ns()", *kept]
    if side == END:
        keys = [f"key{at}[tid()]" if at in wish.kept else _WORDS.key(target, key) for at, key in enumerate(wish.by)]
        keys = keys or [_WORDS.key(target, "probe")]
        maps["nanoseconds"] = len(keys)
        ends = [f"delete {name}[tid()]" for name in ("began", *(f"key{at}" for at in wish.kept))]
        return [f"nanoseconds[{', '.join(keys)}] <<< gettimeofday_ns() - began[tid()]", *ends]
    if wish.prints:
        values = [_WORDS.value(target, index) for index in range(len(target.arguments))]
        text = format_of(target, _conversion, "%s")
        return [f'printf("%d/%d {text}\\n", {", ".join(["pid()", "tid()", *values])})']
    keys = wish.keys(_WORDS, target) or [_WORDS.key(target, "probe")]
    maps["hits"] = len(keys)
    value = _number(target, argument_index(target, wish.of)) if wish.of else "1"
    return [f"hits[{', '.join(keys)}] <<< {value}"]


def _shown(wish: Wish, maps: dict[str, int]) -> list[str]:
    lines = []
    for name, number in maps.items():
        keys = ", ".join(f"k{at}" for at in range(number))
        row = f"{name}[{keys}]"
        # What a key is, a number or a string, its own type says.
        shown = ' . " " . '.join(f"sprint(k{at})" for at in range(number))
        lines += ["", "probe end", "{", f"\tforeach ([{keys}] in {name}-) {{"]
        if wish.histogram or wish.latency:
            lines += [f"\t\tprintln({shown})", f"\t\tprint(@hist_log({row}))"]
        elif wish.sum_of:
            lines += [f'\t\tprintf("%s: sum %d, mean %d, min %d, max %d\\n", {shown}, '
                      + ", ".join(f"@{one}({row})" for one in ("sum", "avg", "min", "max")) + ")"]  # fmt: skip
        else:
            lines += [f'\t\tprintf("%d  %s\\n", @count({row}), {shown})']
        lines += ["\t}", "}"]
    return lines


def _number(target: Target, index: int) -> str:
    if not is_whole(target, index):
        raise unreadable("SystemTap", target, index)
    return f"$arg{index + 1}"


def _conversion(one: Argument) -> str:
    return "%d" if one.signed else "%p" if one.kind == "pointer" else "%u"


def _text(target: Target, index: int) -> str:
    return f'user_string2($arg{index + 1}, "?")'


_WORDS = Words(
    "SystemTap", _number, _text, lambda text, wanted, length: f"substr({text}, 0, {length}) == {wanted}",
    "tid()", "pid()",
)  # fmt: skip
