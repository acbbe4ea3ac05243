"""The compiler's option for patchable entries: which one, for which machine, and whether it may be used at all.

Right at configure time or not at all: the pair is checked against the machine's table, the other options against what
can't work together, and then a probe is compiled, its entries are checked byte by byte, and it is run, because some
compilers accept the option and miscompile it. Prints nothing; `usdtbuild flags` and the build plugins do.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from typing import NamedTuple

from ..errors import UsageError
from ..functions import nops
from ..machines import all_entries
from ..machines.facts import Entries as Machine
from ..options import RELATIVE
from .ask import last_line, macros, name_of, run
from .target import CompilerTarget, FlagsError

OPTION = "-fpatchable-function-entry="
S390_OPTION = "-mhotpatch=4,2"


class Choice(NamedTuple):
    """The options to compile with, and what the user should know."""

    flags: tuple[str, ...]
    machine: str
    pair: tuple[int, int] | None
    warnings: tuple[str, ...]
    ran: bool  # whether the probe was run, not only compiled and checked


# -- the pair --------------------------------------------------------------------------------------------------------


def parse_pair(text: str, where: str) -> tuple[int, int]:
    """Return N and M of `text`, which is N,M or N (then M is 0, as for the compilers). Raises UsageError."""
    match = re.fullmatch(r"(\d+)(?:,(\d+))?", text.strip())
    if not match:
        raise UsageError(f"{where}: {text!r} is not N,M, two numbers like 7,5")
    n, m = int(match.group(1)), int(match.group(2) or 0)
    if n > 65535:
        raise UsageError(f"{where}: {n} NOPs are more than compilers take (65535)")
    if m > n:
        raise UsageError(f"{where}: of {n} NOPs {m} can't be before the entry; N counts all of them")
    return n, m


def check_pair(pair: tuple[int, int], target: CompilerTarget) -> None:
    """Raise FlagsError if no safe patch fits N,M on the target's machine."""
    n, m = pair
    machine, unit = target.machine, target.unit
    said = f"{OPTION}{n},{m}"
    usual = f"{machine.scheme[0]},{machine.scheme[1]}"
    if not machine.ways:
        small = nops.too_small(machine, m * unit, (n - m) * unit)
        raise FlagsError(f"{said} can't be patched on {machine.name}: {small}; leave N,M out to get {S390_OPTION}")
    small = nops.too_small(machine, m * unit, (n - m) * unit)
    if small:
        raise FlagsError(f"{said} is too small: {small}; use {usual}")
    if nops.has_long_nops(machine):
        for landing in (0, 4) if target.landing_pads else (0,):
            hazard = nops.second_byte_hazard(m, landing)
            if hazard:
                pad = " behind a landing pad" if landing else ""
                raise FlagsError(
                    f"{said} can't be patched safely: the second byte of the jump from an entry{pad} to its padding "
                    f"would be {hazard}, which a thread between the NOPs would run; use {usual}"
                )


# -- the other options -----------------------------------------------------------------------------------------------

# Compilers take most of these together: the NOPs come first, then the call of mcount or __fentry__.
_PROFILED = "each entry would call mcount, whatever a patcher does with its NOPs, and tools would instrument it twice"
_CONFLICTS = {
    "-pg": _PROFILED,
    "-p": _PROFILED,
    "-mfentry": "the call of __fentry__ must be a function's first instruction, and the NOPs would come before it",
    "-mnop-mcount": "its own NOPs must be a function's first instruction, and these would come before them",
    "-mrecord-mcount": "it makes a table of entries of its own, for tools that know nothing of these NOPs",
    "-fxray-instrument": "XRay's sleds are patched at the entry, too",
}


def check_options(options: Sequence[str], pair: tuple[int, int]) -> None:
    """Raise FlagsError if one of the `options` can't go together with patchable entries of `pair`."""
    for option in options:
        if option in _CONFLICTS:
            raise FlagsError(f"{option} and {OPTION}{pair[0]},{pair[1]} can't go together: {_CONFLICTS[option]}")
        if option.startswith("-mhotpatch") and option != S390_OPTION:
            raise FlagsError(f"{option} puts its own NOPs at the entry; leave it out")
        if option.startswith(OPTION):
            other = parse_pair(option[len(OPTION) :], option)
            if other != pair:
                raise FlagsError(f"the options already have {option}, and {OPTION}{pair[0]},{pair[1]} was asked for")


def without_outputs(options: Sequence[str]) -> tuple[str, ...]:
    """Leave out the options that say what to write, which a probe has its own of."""
    kept: list[str] = []
    skip = False
    for option in options:
        if skip:
            skip = False
        elif option in ("-o", "-MF", "-MT", "-MQ", "-MJ"):
            skip = True
        elif option not in ("-c", "-S", "-E", "-fsyntax-only") and not re.match(r"-MM?D?P?$|-save-temps", option):
            kept.append(option)
    return tuple(kept)


# -- the compiler ----------------------------------------------------------------------------------------------------


def identify(compiler: str, options: Sequence[str], language: str = "") -> CompilerTarget:
    """Ask the compiler what it builds for: its predefined macros. Raises FlagsError."""
    command = tuple(shlex.split(compiler))
    if not command:
        raise UsageError("--compiler: names no compiler")
    language = language or ("c++" if command[-1].rsplit("/", 1)[-1].rstrip("0123456789.-").endswith("++") else "c")
    kept = without_outputs(options)
    done = run([*command, *kept, "-x", language, "-dM", "-E", "-"])
    if done.returncode:
        raise FlagsError(f"{compiler} does not preprocess: {last_line(done.stderr)}")
    known = macros(done.stdout)
    machine, unit = _machine(known)
    if machine is None:
        raise FlagsError(f"{compiler} builds for a machine whose patchable entries are not known")
    pads = int(known.get("__CET__", "0")) & 1 or "__ARM_FEATURE_BTI_DEFAULT" in known
    return CompilerTarget(command, kept, language, name_of(known), machine, unit, bool(pads))


def _machine(macros: dict[str, str]) -> tuple[Machine | None, int]:
    """Return the machine that the macros tell, and the bytes of the NOP that the compiler repeats."""
    little = macros.get("__BYTE_ORDER__") != "__ORDER_BIG_ENDIAN__"
    machine = next((known for known in all_entries() if known.told_by(macros, little)), None)
    if machine is None:
        return None, 0
    return machine, machine.unit(macros) if machine.unit else machine.units[0]


# -- everything together ---------------------------------------------------------------------------------------------


def choose(
    pair: tuple[int, int] | None,
    compiler: str,
    options: Sequence[str] = (),
    language: str = "",
    emulator: str = "",
    probe: bool = True,
    table: str = "",
) -> Choice:
    """Return the options that make patchable entries with this compiler.

    `pair` is N,M or None for the machine's own; `options` are the others it will be compiled with; `emulator` runs
    programs of another machine. Without `probe`, no compilation tells whether the compiler does it right. `table` is
    the one that the objects will have (`options.TABLES`): a flaw of the compiler's own that a relative one doesn't
    have is not warned of. Raises FlagsError with the reason where it can't work, and UsageError.
    """
    target = identify(compiler, options, language)
    machine = target.machine
    wanted = pair or machine.scheme
    if machine.ways or pair:
        check_pair(wanted, target)
        flags: tuple[str, ...] = (f"{OPTION}{wanted[0]},{wanted[1]}",)
        if machine.name == "thumb" and "gcc" in target.name and wanted[1]:
            # gcc writes a file's first padding before it says .thumb; the assembler must know by itself.
            flags = (*flags, "-Wa,-mthumb")
        found: tuple[int, int] | None = wanted
    else:
        flags, found = (S390_OPTION,), None
    check_options(options, wanted)
    warnings: list[str] = []
    ran = False
    if probe:
        from .probe import check_comdat, check_compiler

        ran = check_compiler(target, flags, found, emulator, warnings)
        if target.language == "c++" and table != RELATIVE:
            check_comdat(target, flags, found, warnings)
    return Choice(flags, machine.name, found, tuple(warnings), ran)
