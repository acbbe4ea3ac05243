"""The choices that users have, each said once: commands, setuptools and Meson's function take them from here.

CMake's files and Meson's options say them again in languages of their own; a test compares (`tests/test_options.py`).
It imports nothing, because a compile step reads it.
"""

from __future__ import annotations

# What stands at a site: a NOP of one byte, x86-64's of 5 bytes, one of 10 bytes behind that of one byte (where a header
# writes the site; a call has no room for it), or as FreeBSD writes it.
SAFE, NOP5, NOP10, CLASSIC = "safe", "nop5", "nop10", "classic"
NOPS = (SAFE, NOP5, NOP10, CLASSIC)
# Records of probes (docs/formats/).
FORMATS = ("stapsdt", "dof", "usdt")
# Those that a header writes by itself; for any other, objects are completed after the compiler (`usdtbuild cc`).
BY_HEADER = ("stapsdt",)
# System -> the records that its tracers read.
SYSTEMS = {"linux": ("stapsdt",), "freebsd": ("dof",), "illumos": ("dof",), "oracle": ("dof",)}
# What to do with objects of intermediate code that have probes.
LTO = ("recompile", "error")
# The table of patchable function entries: the compiler's, or ours of distances.
ABSOLUTE, RELATIVE = "absolute", "relative"
TABLES = (ABSOLUTE, RELATIVE)


def one_of(names: tuple[str, ...]) -> str:
    """Return names for a sentence: `a, b or c`."""
    return " or ".join(part for part in (", ".join(names[:-1]), names[-1]) if part)
