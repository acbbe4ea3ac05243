"""bpftrace's language: what it is told to watch, and how what it prints is read. Nothing here starts it.

Measured with bpftrace 0.17: six arguments have names; a string has at most 200 bytes, and all of a hit's together must
fit on BPF's stack of 512; of an address that can't be read comes an empty string; a byte beyond ASCII is printed as a
negative number.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...formats.operands import MEMORY
from ..model import COUNT, STRING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..job import Job
    from ..model import Target

UPROBES = Path("/sys/bus/event_source/devices/uprobe")
_EVENTS = Path("/sys/kernel/tracing/uprobe_events")
# What BPF's stack can hold of strings, and what bpftrace takes at most for one.
ALL_STRINGS, LONGEST = 400, 200
MOST_ARGUMENTS = 6
# <linux/capability.h>: to load BPF programs, and to attach them. bpftrace itself may ask for user 0 besides.
_CAPABILITIES = {"CAP_BPF": 39, "CAP_PERFMON": 38}
# The first version that can leave out a probe which the kernel refuses, and goes on with the others.
_KNOWS_MISSING = (0, 23)
_ESCAPE = re.compile(r"\\(?:uffffff([0-9a-f]{2})|.)")


def find() -> str | None:
    """Return the path of bpftrace, or None."""
    return shutil.which("bpftrace", path=os.pathsep.join((os.environ.get("PATH", ""), "/usr/sbin", "/sbin")))


def version() -> tuple[int, ...]:
    """Return the version of bpftrace, (0,) if it doesn't say one."""
    done = subprocess.run([find() or "bpftrace", "--version"], capture_output=True, check=False)
    return tuple(map(int, re.findall(rb"\d+", done.stdout)[:2])) or (0,)


def attached(file: Path, target: Target) -> str:
    """Return what a probe of a file is called in the language, and in what bpftrace says of it."""
    return f"usdt:{file}:{target.provider}:{target.name}"


def forget_events(pid: int) -> None:
    """Take out of the kernel's list what a bpftrace that has ended leaves for each place that it couldn't attach to."""
    with contextlib.suppress(OSError):
        names = [line.split()[0].partition(":")[2] for line in _EVENTS.read_text("utf-8", "replace").splitlines()]
        events = os.open(_EVENTS, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)  # whose end Python's own can't look for
        try:
            for name in names:
                if name.endswith(f"_bcc_{pid}"):
                    os.write(events, f"-:{name}\n".encode())
        finally:
            os.close(events)


def why_not(_: Job) -> str:
    """Return why bpftrace can't be used here, '' if it can."""
    lacking = [name for name, number in _CAPABILITIES.items() if not _effective() >> number & 1]
    if lacking:
        return f"bpftrace needs root, or the capabilities {' and '.join(_CAPABILITIES)}; here is no {lacking[0]}"
    if not UPROBES.exists():
        return f"this kernel has no uprobes ({UPROBES} is missing)"
    return "" if find() else "bpftrace is not installed"


def _effective() -> int:
    """Return the capabilities of this process, a bit each."""
    status = Path("/proc/self/status").read_text("ascii", "replace")
    found = re.search(r"^CapEff:\s*([0-9a-f]+)$", status, re.MULTILINE)
    return int(found[1], 16) if found else 0


def decode(line: str) -> dict[str, Any]:
    """Return a line of bpftrace's output; of what isn't JSON, nothing."""
    if not line.startswith("{"):
        return {}
    try:
        record: dict[str, Any] = json.loads(
            _ESCAPE.sub(lambda found: rf"\udc{found[1]}" if found[1] else found[0], line)
        )
    except ValueError:
        return {}
    if isinstance(record.get("data"), str):
        record["data"] = record["data"].encode("utf-8", "surrogateescape").decode("utf-8", "surrogateescape")
    return record


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


def string_length(targets: Sequence[Target], wanted: int) -> int:
    """Return how many bytes bpftrace is told to keep for a string, the NUL among them, if `wanted` are without it."""
    most = max((sum(one.kind == STRING for one in target.arguments) for target in targets), default=0)
    return min(LONGEST, ALL_STRINGS // max(1, most), wanted + 8 & -8)


def script(files: Sequence[Path], targets: Sequence[Target], what: str, only: int, separator: str) -> str:
    """Return a program that counts each hit by probe and process and, unless COUNT is asked, prints it.

    It prints `h`, the probe's index, time, process, thread, and the arguments, strings behind all numbers, each after
    the separator. `t` with a processor and a time says that all before it from there is printed, `m` with a time that
    the counts which follow are of later. `only` is the one process of which hits are wanted, 0 for all.
    """
    lines = ['config = { missing_probes = "warn" }'] if version() >= _KNOWS_MISSING else []
    guard = f" /pid == {only}/" if only else ""
    for index, (file, target) in enumerate(zip(files, targets)):
        shown = ""
        if what != COUNT:
            values = [text or "0" for text in expressions(target)]
            strings = [f"str({text})" for text, one in zip(expressions(target), target.arguments)
                       if one.kind == STRING and text]  # fmt: skip
            pattern = f"h {index} %llu %d %d" + " %lu" * len(values) + f"{separator}%s" * len(strings)
            shown = f' printf("{pattern}", {", ".join(["nsecs", "pid", "tid", *values, *strings])});'
        lines.append(f"{attached(file, target)}{guard} {{ @c[{index}, pid] = count();{shown} }}")
    if what != COUNT:
        lines.append('profile:hz:20 { printf("t %d %llu", cpu, nsecs); }')
    # Attached last, so that its first word says that all is in place.
    lines.append('interval:ms:200 { printf("m %llu", nsecs); print(@c); }')
    return "\n".join(lines)
