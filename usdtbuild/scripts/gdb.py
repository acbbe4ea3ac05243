"""Scripts for gdb, which has Python in it: any gdb with it, no root."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from ..tracing.filters import argument_index
from ..tracing.model import Target
from ..tracing.predicates import BEGIN, END
from .wish import Wish, Words, heading, is_whole, label, literal, unreadable

_READING = Path(__file__).parents[1] / "tracing/others/gdb_script.py"
# A hit is what a function is called with: the arguments, `text` for strings.
_HEAD = """\
set pagination off
set confirm off
set breakpoint pending on
handle SIGSEGV SIGPIPE SIGALRM SIGUSR1 SIGUSR2 SIGCHLD nostop noprint pass
python
from __future__ import annotations
import collections, time


READING


added = collections.defaultdict(list)
began = {}


def watch(probe, sizes, action):
    def hit():
        values = [number(index, *size) for index, size in enumerate(sizes)]
        action(gdb.selected_inferior().pid, gdb.selected_thread().ptid[1], *values)

    Watch(probe, hit)


def text(address):
    try:
        return string(address, 200)[0].decode("utf-8", "replace") if address else "NULL"
    except (gdb.error, OverflowError):
        return hex(address)

"""


def write(wish: Wish) -> str:
    """Return a script."""
    lines = heading(wish, "# ", "Run it: gdb -q -batch -x FILE -p PID, or gdb -q -batch -x FILE --args COMMAND ARGS...",
                    "Each hit stops the program for a moment.")  # fmt: skip
    lines += _HEAD.replace("READING", _reading()).splitlines()
    for number, target in enumerate(wish.targets):
        names = ", ".join(f"a{index}" for index in range(len(target.arguments)))
        lines += ["", f"def hit_{number}(pid, tid{', ' if names else ''}{names}):  # {target.title}"]
        test = _WORDS.test(wish, target)
        lines += [f"    if not ({test}):", "        return"] if test else []
        lines += [f"    {line}" for line in _action(wish, target)]
    lines += [""]
    for number, target in enumerate(wish.targets):
        sizes = ", ".join(f"({_sized(target, i)[0]}, {_sized(target, i)[1]})" for i in range(len(target.arguments)))
        lines.append(f'watch("{target.provider}:{target.name}", [{sizes}], hit_{number})')
    lines += ["end", 'python gdb.execute("continue" if gdb.selected_inferior().pid else "run")']
    return "\n".join([*lines, *_shown(wish)]) + "\n"


def _reading() -> str:
    code = _READING.read_text("utf-8")
    parts = [one for one in ast.parse(code).body if getattr(one, "name", "") in {"Watch", "number", "string"}]
    return "\n\n\n".join(re.sub("  # .*", "", ast.get_source_segment(code, one) or "") for one in parts)


def _action(wish: Wish, target: Target) -> list[str]:
    side = wish.side(target)
    if side == BEGIN:
        kept = [_WORDS.key(target, wish.by[at]) for at in wish.kept]
        return [f"began[tid] = {_tuple(['time.monotonic_ns()', *kept])}"]
    if side == END:
        at = {place: index + 1 for index, place in enumerate(wish.kept)}
        keys = [f"kept[{at[i]}]" if i in at else _WORDS.key(target, name) for i, name in enumerate(wish.by)]
        return [
            "kept = began.pop(tid, None)",
            "if kept is not None:",
            f"    added[{_tuple(keys)}].append(time.monotonic_ns() - kept[0])",
        ]
    keys = wish.keys(_WORDS, target) or [_WORDS.key(target, "probe")]
    if wish.of:
        return [f"added[{_tuple(keys)}].append({_number(target, argument_index(target, wish.of))})"]
    if not wish.prints:
        return [f"added[{_tuple(keys)}].append(1)"]
    shown = [literal(target.title.encode())]
    for index, one in enumerate(target.arguments):
        shown += [f'"{label(one, index)}=" + str({_WORDS.value(target, index)})']
    return [f'print("%d/%d" % (pid, tid), {", ".join(shown)}, flush=True)']


def _tuple(keys: list[str]) -> str:
    return f"({', '.join(keys)}{',' if len(keys) == 1 else ''})"


def _shown(wish: Wish) -> list[str]:
    if wish.prints:
        return []
    lines = ["python", "for key, values in sorted(added.items(), key=lambda one: -sum(one[1])):",
             '    name = " ".join(map(str, key)) if key else "all"']  # fmt: skip
    if wish.histogram or wish.latency:
        lines += ["    print(name, len(values))",
                  "    bits = collections.Counter(max(0, one).bit_length() for one in values)",
                  "    for bits, count in sorted(bits.items()):",
                  '        print("    [%d, %d)  %d" % (1 << bits >> 1, 1 << bits, count))']  # fmt: skip
    elif wish.sum_of:
        lines.append('    print(name, "sum %d, mean %g, min %d, max %d" %'
                     " (sum(values), sum(values) / len(values), min(values), max(values)))")  # fmt: skip
    else:
        lines.append('    print("%d  %s" % (len(values), name))')
    return [*lines, "end"]


def _sized(target: Target, index: int) -> tuple[int, bool]:
    one = target.arguments[index]
    return min(8, one.size), one.signed


def _number(target: Target, index: int) -> str:
    if not is_whole(target, index):
        raise unreadable("gdb", target, index)
    return f"a{index}"


_WORDS = Words(
    "gdb", _number, lambda target, index: f"text(a{index})",
    lambda text, wanted, length: f"{text}[:{length}] == {wanted}",
    both=" and ", either=" or ", negation="not ",
)  # fmt: skip
