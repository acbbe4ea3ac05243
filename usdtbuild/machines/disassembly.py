"""capstone, set up for a machine. A module of its own, since loading capstone takes a while."""

from __future__ import annotations

import functools

import capstone

from . import facts_of


def new_disassembler(machine: int, *, is64: bool, little: bool, thumb: bool = False) -> capstone.Cs:
    """Return a disassembler for ELF machine number `machine`. Raises KeyError where capstone isn't used for it."""
    known = facts_of(machine)
    if known is None or known.disassembler is None:
        raise KeyError(machine)
    architecture, *modes = (
        next(getattr(capstone, name) for name in names if hasattr(capstone, name))
        for names in known.disassembler(is64, little, thumb)
    )
    return capstone.Cs(architecture, sum(modes))


@functools.cache
def disassembler(machine: int, is64: bool, little: bool, thumb: bool = False) -> capstone.Cs:
    """Return a shared disassembler for ELF machine number `machine`, which skips what it doesn't know."""
    decoder = new_disassembler(machine, is64=is64, little=little, thumb=thumb)
    decoder.skipdata = True
    return decoder
