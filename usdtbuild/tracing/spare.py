"""How much memory a process may still take: what the machine can spare, and what its control groups leave it."""

from __future__ import annotations

import contextlib
from pathlib import Path

_CONTROL = "memory"
# Names of files (Documentation/admin-guide/cgroup-v2.rst, cgroup-v1/memory.rst): the limit, what is used, and of that,
# by memory.stat, files that can be read again.
_UNIFIED = ("memory.max", "memory.current", ("inactive_file", "active_file"))
_LEGACY = ("memory.limit_in_bytes", "memory.usage_in_bytes", ("total_inactive_file", "total_active_file"))


def spare_memory(pid: int | str = "self") -> int:
    """Return how many bytes of memory a process may take before somebody is ended for it."""
    spare = 1 << 62
    with contextlib.suppress(OSError, ValueError):
        spare = 1024 * _field(Path("/proc/meminfo"), "MemAvailable:")
    for group, names in _groups(pid):
        with contextlib.suppress(OSError, ValueError):  # "max", or no file: no limit there
            limit, used = (int((group / name).read_text("ascii")) for name in names[:2])
            files = sum(_field(group / "memory.stat", name) for name in names[2])
            spare = min(spare, max(0, limit - used + files))
    return spare


def _field(file: Path, name: str) -> int:
    for line in file.read_text("ascii").splitlines():
        words = line.split()
        if words[0] == name:
            return int(words[1])
    return 0


def _groups(pid: int | str) -> list[tuple[Path, tuple[str, str, tuple[str, str]]]]:
    """Return the folders of the control groups that a process is in, up to the root that we see, and the names of their
    files."""
    found = []
    with contextlib.suppress(OSError, ValueError):
        mounts = [line.split() for line in Path("/proc/self/mountinfo").read_text("utf-8", "replace").splitlines()]
        for line in Path(f"/proc/{pid}/cgroup").read_text("utf-8", "replace").splitlines():
            _, controllers, path = line.split(":", 2)
            if controllers and _CONTROL not in controllers.split(","):
                continue
            for mount in mounts:
                kind, options = mount[mount.index("-") + 1], mount[-1].split(",")
                if kind != ("cgroup" if controllers else "cgroup2") or (controllers and _CONTROL not in options):
                    continue
                root, folder = mount[3], Path(mount[4])
                inside = path.removeprefix(root) if root != "/" else path
                group = folder / inside.strip("/")
                names = _LEGACY if controllers else _UNIFIED
                found += [(one, names) for one in (group, *group.parents) if one == folder or folder in one.parents]
    return found
