"""Which machine this is, of those that engines are for: `HOST` is its record (`machines.host`).

What a machine's probes and calls look like in files is in `machines`, how a site becomes a jump in `patch`.
"""

from __future__ import annotations

import os
from importlib import import_module
from pathlib import Path

from .. import machines
from ..machines.host import Host


def _known() -> dict[str, Host]:
    """Return the records by the names that uname(1) has; only this machine's, if there is one."""
    folders = sorted(path.parent.name for path in Path(str(machines.__file__)).parent.glob("*/host.py"))
    found = {}
    for folder in [NAME] if NAME in folders else folders:
        host: Host = import_module(f"{machines.__name__}.{folder}.host").HOST
        found[host.title.replace("-", "_")] = host
    return found


NAME = os.uname().machine if hasattr(os, "uname") else ""
_KNOWN = _known()
# What this machine is. Elsewhere it is any of them, so that what needs one can be imported; `why_not` tells.
HOST: Host = _KNOWN.get(NAME) or next(iter(_KNOWN.values()))


def why_not(machine: int = 0) -> str:
    """Return why no process of a machine (an ELF number; 0: any) can be traced by ptrace here; '' if it can."""
    if NAME not in _KNOWN:
        names = ", ".join(host.title for host in _KNOWN.values())
        return f"this machine is {NAME}, and the engines patch and trap are for {names}"
    if machine and machine != HOST.number:
        return f"only {HOST.title} programs can be traced like this on this machine"
    return ""
