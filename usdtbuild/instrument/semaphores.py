"""Semaphores: which of them an object defines, and how its records and stubs refer to one."""

from __future__ import annotations

from ..elf import layout as elf
from ..elf.edit import NewRelocation
from ..elf.layout import SectionIndex
from ..formats import stapsdt
from . import sites
from .context import Context

# One hidden symbol whose section makes the linked `.probes` begin on a page of its own (see _anchor_symbol).
ANCHOR_SYMBOL = "usdtbuild.probes.page"
_PAGE = 4096


def define_all(context: Context) -> None:
    """Define every semaphore that this object's code or stubs read, each in a group that objects can share."""
    wanted = set(context.found.undefined_semaphores)
    for index in context.found.indirect if context.by_semaphore else ():
        stub = context.found.stubs[index]
        name = sites.semaphore_name(stub.provider, stub.probe)
        if stub.enabled and name not in context.found.semaphores:
            wanted.add(name)
    for name in sorted(wanted):
        _define(context, name)


def _define(context: Context, name: str) -> None:
    tie = NewRelocation(0, context.machine.none, _anchor_symbol(context), 0)
    section = context.editor.section_after(1)
    symbol: int
    if name in context.found.semaphores:
        symbol = found = context.found.semaphores[name]
        context.editor.change_symbol(found, elf.STB_WEAK, elf.STT_OBJECT, section, 0, 2)
    else:
        symbol = context.editor.add_global(name, elf.STB_WEAK, section, 0, 2, elf.STT_OBJECT)
    context.semaphores[name] = symbol
    group = context.editor.add_group(symbol)
    context.editor.add_section(
        stapsdt.SEMAPHORE_SECTION, elf.SHT_PROGBITS, elf.SHF_ALLOC | elf.SHF_WRITE, b"\0\0",
        align=2, relocations=[tie], group=group,
    )  # fmt: skip
    if context.options.site_table:
        _list(context, name, section, group)


def _list(context: Context, name: str, section: SectionIndex, group: int) -> None:
    """Tell the loaded table of the semaphore in `section`, which keeps what is told."""
    from .site_table import add_semaphore

    for provider in context.providers.values():
        for probe in provider.probes:
            if sites.semaphore_name(provider.name, probe) == name:
                label = add_semaphore(context, provider.name, probe, context.semaphores[name], group)
                context.editor.add_relocations(section, [NewRelocation(0, context.machine.none, label, 0)])


def _anchor_symbol(context: Context) -> int:
    """Return a symbol whose section aligns the linked `.probes` to a page; every semaphore refers to it.

    Without it lld and mold put the semaphores on a file page that RELRO has too, and a tracer that starts before
    the program increments the other mapping's copy (docs/formats/stapsdt.md). One anchor aligns them all.
    """
    if not context.anchor:
        context.anchor = context.symbol(ANCHOR_SYMBOL)  # the header of the classic tool brings one
    if not context.anchor:
        section = context.editor.section_after(1)
        context.anchor = context.editor.add_global(ANCHOR_SYMBOL, elf.STB_WEAK, section, 0, 2, elf.STT_OBJECT)
        group = context.editor.add_group(context.anchor)
        context.editor.add_section(
            stapsdt.SEMAPHORE_SECTION,
            elf.SHT_PROGBITS,
            elf.SHF_ALLOC | elf.SHF_WRITE,
            b"\0\0",
            align=_PAGE,
            group=group,
        )
    return context.anchor


def semaphore(context: Context, name: str) -> int:
    """Return the symbol of a semaphore; a weak undefined one if this object doesn't read it.

    Where no object of the program tests whether the probe is enabled, the reference stays 0 and the probe has no
    semaphore. Where one does, all sites of the module show the semaphore, whichever object they are in.
    """
    if name not in context.semaphores:
        context.semaphores[name] = context.editor.add_global(name, elf.STB_WEAK)
    return context.semaphores[name]
