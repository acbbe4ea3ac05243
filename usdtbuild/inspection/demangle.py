"""C++ and Rust names as their authors wrote them, through the demangler of binutils or LLVM; probes' stubs as DTrace
spells them.

One process for all names. The demangler is the user's: none is carried along.
"""

from __future__ import annotations

import shutil
import subprocess
from typing import TYPE_CHECKING

from ..errors import UsdtError
from ..provider.describe import plain_name

if TYPE_CHECKING:
    from collections.abc import Iterable

PROGRAMS = ("c++filt", "llvm-cxxfilt")


def demangle(names: Iterable[str]) -> dict[str, str]:
    """Return mangled -> demangled for those of `names` that are mangled. Raises UsdtError if no demangler is there."""
    mangled = sorted({name for name in names if name.startswith(("_Z", "_R", "__Z")) and "\n" not in name})
    if not mangled:
        return {}
    program = next((path for path in map(shutil.which, PROGRAMS) if path), None)
    if program is None:
        raise UsdtError(f"--demangle needs {' or '.join(PROGRAMS)}, and neither is installed; install binutils")
    done = subprocess.run(
        [program],
        input="\n".join(mangled) + "\n",
        capture_output=True,
        text=True,
        errors="surrogateescape",
        check=False,
    )
    lines = done.stdout.split("\n")[:-1]
    if done.returncode or len(lines) != len(mangled):
        raise UsdtError(f"{program} failed with exit code {done.returncode}: {done.stderr.strip()}")
    return {name: line for name, line in zip(mangled, lines) if name != line}


def demangle_if_possible(names: Iterable[str]) -> dict[str, str]:
    """Return what `demangle` does, where a demangler is installed, and the plain names of probes' stubs."""
    names = set(names)
    plain = {name: plain_name(name) for name in names if name.startswith("__dtrace") and plain_name(name) != name}
    try:
        return {**demangle(names), **plain}
    except UsdtError:
        return plain
