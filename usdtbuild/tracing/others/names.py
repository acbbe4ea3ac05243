"""Names of probes that may be pasted into another tool's program or command.

A binary's notes can hold any bytes as a name, and bpftrace and gdb run what they are given with the rights of whoever
traces. So a name passes only if it is one that both tools read as a name and nothing else.
"""

from __future__ import annotations

import re

_NAME = re.compile(r"[A-Za-z_0-9][A-Za-z_0-9.-]*", re.ASCII)


def why_not(title: str) -> str:
    """Return why `provider:probe` can't be handed to bpftrace or gdb; '' if it can."""
    parts = title.split(":")
    if len(parts) == 2 and all(map(_NAME.fullmatch, parts)):
        return ""
    return "bpftrace and gdb take only letters, digits, '_', '-' and '.' in a probe's name; --engine patch takes any"
