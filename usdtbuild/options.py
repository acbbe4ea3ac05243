"""The choices that users have, each said once: commands, setuptools and Meson's function take them from here.

CMake's files and Meson's options say them again in languages of their own; a test compares (`tests/test_options.py`).
It imports next to nothing, because a compile step reads it.
"""

from __future__ import annotations

from .record import NamedTuple

# What stands at a site: a NOP of one byte, x86-64's of 5 bytes, one of 10 bytes behind that of one byte (where a header
# writes the site; a call has no room for it), or as FreeBSD writes it.
SAFE, NOP5, NOP10, CLASSIC = "safe", "nop5", "nop10", "classic"
NOPS = (SAFE, NOP5, NOP10, CLASSIC)


class Records(NamedTuple):
    """A format of records of probes (docs/formats/): what people call it, its section, the module of `instrument` that
    writes it, and in which turn: what the next one must keep comes first. `loaded`: its labels are in loaded sections,
    so that what refers to one keeps it."""

    title: str
    section: str
    writer: str
    turn: int
    loaded: bool


RECORDS = {
    "stapsdt": Records("SDT notes", ".note.stapsdt", "stapsdt", 1, loaded=False),
    "dof": Records("DOF", ".SUNW_dof", "dof_section", 3, loaded=True),
    "usdt": Records(".note.usdt", ".note.usdt", "usdt_note", 2, loaded=True),
}
FORMATS = tuple(RECORDS)
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


# Options of the build steps, for `cc`, `instrument` and `hook`: the choices of values (() where there are others, None
# for a flag), the value by default (() where it may be given again), what the value is called, and the help.
STEP_OPTIONS: dict[str, tuple[tuple[str, ...] | None, str | tuple[()], str, str]] = {
    "--nop": (
        NOPS, SAFE, "",
        "The NOP in place of a call: for every kernel, for kernels from 6.18 on, or as FreeBSD writes it.",
    ),
    "--formats": (FORMATS, "", "LIST", f"Records to write: {', '.join(FORMATS)}, with commas."),
    "--target-os": (tuple(SYSTEMS), "", "OS", f"{one_of(tuple(SYSTEMS))}; else as the object says."),
    "--lto": (
        LTO, LTO[0], "",
        "What to do with an LTO object whose probes must be completed: compile it again without LTO, or stop.",
    ),
    "--provider": ((), (), "FILE.d", "A provider file for objects without a description of their probes."),
    "--patchable-table": (
        TABLES, ABSOLUTE, "",
        "The table of -fpatchable-function-entry: the compiler's, or one that costs nothing at a program's start.",
    ),
    "--site-table": (
        None, "", "",
        "Also a table of the sites that is loaded with the code: for usdt_live.h where the file can't be read.",
    ),
    "--tool-version": ((), "", "TEXT", "Ignored; makes a build system rebuild when it changes."),
}  # fmt: skip
