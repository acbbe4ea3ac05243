"""The machine that tracing runs on, as its kernel and its instructions have it: what engines need to know of it.

Each machine has a module here with its record, so that nothing else names its registers, its numbers of system calls or
its traps. What a machine's probes and calls look like in files is in `usdtbuild.machines`, how a site becomes a jump in
`patch`.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

from . import aarch64, x86_64

if TYPE_CHECKING:
    from .record import Host

HOSTS: dict[str, Host] = {"x86_64": x86_64.HOST, "aarch64": aarch64.HOST}


class _Here(NamedTuple):
    name: str
    host: Host | None


def _here() -> _Here:
    name = os.uname().machine if hasattr(os, "uname") else ""
    return _Here(name, HOSTS.get(name))


_HERE = _here()
# What this machine is. Elsewhere it is any of them, so that what needs one can be imported; `why_not` tells.
HOST: Host = _HERE.host or x86_64.HOST


def why_not(machine: int = 0) -> str:
    """Return why no process of a machine (an ELF number; 0: any) can be traced by ptrace here; '' if it can."""
    if _HERE.host is None:
        return f"this machine is {_HERE.name}, and the engines patch and trap are for x86-64 and aarch64"
    if machine and machine != HOST.number:
        return f"only {HOST.title} programs can be traced like this on this machine"
    return ""
