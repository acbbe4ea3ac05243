"""What a compiler leaves running when a signal ends it: its own children, which may be writing the object still.

The compilers' drivers run the compiler proper and the assembler as children, and die of most signals without a word to
them. `launch.compile` comes here when a signal has arrived, and never otherwise. Linux only; elsewhere nothing is done.
"""

from __future__ import annotations

import contextlib
import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Literal

_PR_SET_CHILD_SUBREAPER = 36  # linux/prctl.h


def adopt() -> None:
    """From now on become the parent of whatever loses its own among the processes below this one."""
    with contextlib.suppress(ImportError, OSError, AttributeError):
        import ctypes

        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def end(number: int) -> None:
    """Hand a signal on to every child, and wait until there is none, but for those with a session of their own.

    The latter are servers that the compiler has started (a compiler cache's, for one).
    """
    while found := _children():
        for process in found:
            with contextlib.suppress(OSError):
                os.kill(process, number)
        for process in found:
            with contextlib.suppress(OSError):
                os.waitpid(process, 0)


def _children() -> list[int]:
    """Return this process's children in its own session."""
    own, session = os.getpid(), os.getsid(0)
    try:
        processes = [name for name in os.listdir("/proc") if name.isdecimal()]  # noqa: PTH208
    except OSError:
        return []
    found = []
    for name in processes:
        fields = state_of(int(name))
        if fields and int(fields[1]) == own and int(fields[3]) == session:
            found.append(int(name))
    return found


def state_of(process: int) -> list[str]:
    """Return the fields of /proc/PID/stat from the third on (proc(5)): state, parent, group, session, ..."""
    try:
        with open(f"/proc/{process}/stat", "rb") as file:  # noqa: PTH123
            text = file.read().decode("ascii", "replace")
    except OSError:
        return []
    return text[text.rfind(")") + 1 :].split()


def is_whole(path: str) -> bool:
    """Tell whether an ELF file has everything that its header speaks of; what writes one ends with the sections' table.

    False for other files, and where there is none.
    """
    try:
        with open(path, "rb") as file:  # noqa: PTH123
            header = file.read(64)
            size = os.fstat(file.fileno()).st_size
    except OSError:
        return False
    if len(header) < 52 or header[:4] != b"\x7fELF":
        return False
    order: Literal["little", "big"] = "little" if header[5] == 1 else "big"
    # e_shoff and its size, and where e_shentsize and e_shnum are
    table, width, entry, count = (40, 8, 58, 60) if header[4] == 2 else (32, 4, 46, 48)
    start = int.from_bytes(header[table : table + width], order)
    length = int.from_bytes(header[entry : entry + 2], order) * int.from_bytes(header[count : count + 2], order)
    return start > 0 and start + length <= size
