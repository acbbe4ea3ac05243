"""bpftrace itself: where it is, what it needs, what it leaves, and how what it prints is read. Nothing here starts it.

Measured with bpftrace 0.17: of an address that can't be read comes an empty string; a byte beyond ASCII is printed as a
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
from typing import Any

from ...inspection.process import in_container
from ..job import Job

UPROBES = Path("/sys/bus/event_source/devices/uprobe")
_TYPES, _ADMINISTRATOR = Path("/sys/kernel/btf/vmlinux"), 21  # CAP_SYS_ADMIN, which bpftrace needs to read these
_EVENTS = Path("/sys/kernel/tracing/uprobe_events")
# <linux/capability.h>: to load BPF programs, and to attach them. bpftrace itself may ask for user 0 besides.
_CAPABILITIES = {"CAP_BPF": 39, "CAP_PERFMON": 38}
# The first version that can leave out a probe which the kernel refuses, and goes on with the others.
_KNOWS_MISSING = (0, 23)
_PRINTED, _PRINTED_END = '{"type": "printf", "data": "', '\\n"}'  # a line of hits that bring no text
_ESCAPE = re.compile(r"\\(?:uffffff([0-9a-f]{2})|.)")


def find() -> str | None:
    """Return the path of bpftrace, or None."""
    return shutil.which("bpftrace", path=os.pathsep.join((os.environ.get("PATH", ""), "/usr/sbin", "/sbin")))


def version() -> tuple[int, ...]:
    """Return the version of bpftrace, (0,) if it doesn't say one."""
    done = subprocess.run([find() or "bpftrace", "--version"], capture_output=True, check=False)
    return tuple(map(int, re.findall(rb"\d+", done.stdout)[:2])) or (0,)


def settings() -> list[str]:
    """Return what stands first in every program."""
    return ['config = { missing_probes = "warn" }'] if version() >= _KNOWS_MISSING else []


def of_tracees() -> str:
    """Return a test, in bpftrace's language, that this process traces a thread; '' where its types are unknown.

    The same probes, of libc perhaps, are hit by others, and by bpftrace itself. They would fill the buffer.
    """
    knows_types = _TYPES.exists() and _effective() >> _ADMINISTRATOR & 1
    return f"curtask->ptrace && curtask->parent->tgid == {os.getpid()}" if knows_types else ""


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
    if in_container():  # versions before 0.22 print the host's numbers, and later ones swapped process and thread
        return (
            "bpftrace sees the host's process numbers, and not those of this container;"
            " leave out --engine, or run it on the host"
        )
    return "" if find() else "bpftrace is not installed"


def _effective() -> int:
    status = Path("/proc/self/status").read_text("ascii", "replace")
    found = re.search(r"^CapEff:\s*([0-9a-f]+)$", status, re.MULTILINE)
    return int(found[1], 16) if found else 0


def decode(line: str) -> dict[str, Any]:
    """Return a line of bpftrace's output; of what isn't JSON, nothing."""
    if not line.startswith("{"):
        return {}
    is_plain = line.startswith(_PRINTED) and line.endswith(_PRINTED_END) and line.count("\\") == 1
    if is_plain:  # as most are, of which there are many
        return {"type": "printf", "data": line[len(_PRINTED) : -len(_PRINTED_END)]}
    try:
        record: dict[str, Any] = json.loads(
            _ESCAPE.sub(lambda found: rf"\udc{found[1]}" if found[1] else found[0], line)
        )
    except ValueError:
        return {}
    if isinstance(record.get("data"), str):
        record["data"] = record["data"].encode("utf-8", "surrogateescape").decode("utf-8", "surrogateescape")
    return record
