"""The object that `dtrace -G` writes: what a program's objects refer to and none of them has.

Callers of the classic tool link their original objects together with this one. So it defines, hidden and in COMDAT
groups, the stubs that they call, as functions that are probe sites themselves, and the semaphores that they read.
Objects whose probes are complete (the header's inline assembly, `usdtbuild cc`) need nothing. Where no object is
given, or one isn't there yet, all semaphores are defined, since it isn't known who reads them.

The way: an object without code is made that resembles the given ones (or what `$CC` writes) and has the missing names
as undefined symbols; `instrument` then defines them as it does in any object. Given objects are read only, unless the
caller asks for `--in-place`. Knows no command line.
"""

# ruff: noqa: PTH110, PTH112, PTH118, PTH120

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

from .. import machines
from ..elf import archive
from ..elf import layout as elf
from ..elf.bare import Text, bare_object
from ..elf.foreign import BITCODE
from ..elf.object import ElfObject, find_symbols
from ..errors import InputError
from ..files import edited, open_input
from ..formats import stapsdt
from ..instrument import sites
from ..instrument.main import Options, define, instrument_file
from ..instrument.target import system_of
from ..provider import describe, header

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ..elf.layout import SymbolIndex
    from ..files import Data
    from ..model import Provider
    from ..outputs import Outputs

_LTO_SYMBOLS = b".gnu.lto_.symtab"
_LIBTOOL = b"libtool object file"


class ClassicRun(NamedTuple):
    """What one run of -G is about. `bits` is 32, 64, or 0 for what the objects or the compiler say."""

    providers: tuple[Provider, ...]
    objects: tuple[str, ...] = ()
    bits: int = 0
    in_place: bool = False
    strict: bool = False


class _Scan:
    def __init__(self, wanted: ClassicRun) -> None:
        self.providers = wanted.providers
        self.prefixes = tuple(
            f"{kind}{p.name}___" for kind in (sites.PROBE_PREFIX, sites.ENABLED_PREFIX) for p in wanted.providers
        )
        self.semaphore_names = frozenset(
            sites.semaphore_name(p.name, probe).encode() for p in wanted.providers for probe in p.probes
        )
        self.template: ElfObject | None = None
        self.stubs: set[str] = set()
        self.semaphores: set[str] = set()
        self.with_sites: set[str] = set()
        self.unknown = not wanted.objects  # whether there may be objects whose needs nobody sees

    def add(self, data: Data, path: str) -> None:
        """Note what one object refers to. Raises UsdtError for what is no object, or one for another machine."""
        if data[:4] in BITCODE:
            self.unknown = True
            return
        if self.template is None:
            self.template = ElfObject(data, path)
        elif data[:8] != self.template.data[:8] or data[16:20] != self.template.data[16:20]:
            self._refuse_other(ElfObject(data, path), self.template)
        self._note_sites(data)
        if data.find(b"__dtrace") >= 0 or data.find(sites.SEMAPHORE_SUFFIX.encode()) >= 0:
            self._note_references(ElfObject(data, path))
        if data.find(_LTO_SYMBOLS) >= 0:
            self._note_intermediate_code(ElfObject(data, path))

    @staticmethod
    def _refuse_other(found: ElfObject, first: ElfObject) -> None:
        """Raise if two objects can't be linked with each other; the ELF header's system and version may differ."""

        def kind(source: ElfObject) -> tuple[int, bool, bool]:
            return source.machine, source.layout.is64, source.layout.little

        if kind(found) != kind(first):
            raise InputError(
                found.path,
                f"is for {_describe(found)}, while {first.path} is for {_describe(first)}",
                "give objects of one program, for one machine",
            )

    def _note_sites(self, data: Data) -> None:
        if data.find(stapsdt.OWNER) < 0 and data.find(b"__dtrace") < 0:
            return
        for provider in self.providers:
            name = provider.name.encode()
            # The name as a string of its own is a record's; behind a stub's prefix it is a call.
            if data.find(b"\0" + name + b"\0") >= 0 or data.find(sites.PROBE_PREFIX.encode() + name + b"___") >= 0:
                self.with_sites.add(provider.name)

    def _note_intermediate_code(self, source: ElfObject) -> None:
        """Note what an object of gcc for link-time optimisation calls: its plugin's symbol table has the names.

        Semaphores may be read in the code, which is compressed.
        """
        self.unknown = True
        for index, _ in source.numbered():
            if index and source.section_name(index).startswith(_LTO_SYMBOLS.decode()):
                names = str(bytes(source.content(index)), "ascii", "replace").split("\0")
                self.stubs.update(name for name in names if name.startswith(self.prefixes))

    def _note_references(self, source: ElfObject) -> None:
        suffix = sites.SEMAPHORE_SUFFIX
        called: dict[SymbolIndex, str] = {}
        for index, name in find_symbols(source, (b"__dtrace",), self.semaphore_names, suffix.encode()).items():
            symbol = source.symbol(index)
            # What an instrumented object leaves over is weak.
            if not symbol.is_undefined or symbol.binding == elf.STB_WEAK:
                continue
            if name.encode("utf-8", "surrogateescape") in self.semaphore_names:
                self.semaphores.add(name)
            elif name.startswith(self.prefixes):
                self.stubs.add(name)
                called[index] = name
        self._refuse_branches(source, called)

    def _refuse_branches(self, source: ElfObject, called: dict[SymbolIndex, str]) -> None:
        """Raise where a header wrote branches that nothing may follow: they must become NOPs in the object itself."""
        if not called or source.data.find(b"branch\t") < 0:
            return
        machine = machines.for_object(
            source.machine, is64=source.layout.is64, little=source.layout.little, flags=source.flags, path=source.path
        )
        marked = describe.marked(sites.description(source), describe.BRANCH)
        known = sites.Known({provider.name: provider for provider in self.providers}, marked)
        if known.branched(source, machine, {index: known.stub(source, name) for index, name in called.items()}):
            raise InputError(
                source.path, "its probes are branches that must become NOPs where they are, and -G defines functions",
                "compile it by `usdtbuild cc` or with -DUSDT_PROBES_BY_CALL, or give -G --in-place",
            )  # fmt: skip


def make(wanted: ClassicRun, outputs: Outputs, warn: Callable[[str], None]) -> bytes:
    """Return the object's bytes, and stage the given objects in `outputs` if they are to change.

    `warn` takes messages about what is odd, but no error. Raises UsdtError.
    """
    if wanted.in_place:
        options = Options(providers=wanted.providers)
        for path in _existing(wanted.objects):
            _instrument_in_place(path, outputs, options, warn)
    scan = _Scan(wanted)
    for path in wanted.objects:
        if not os.path.exists(path):
            scan.unknown = True
            continue
        for data, name in _contents(path, outputs):
            scan.add(data, name)
    _report_missing(scan, wanted, warn)
    template = scan.template
    if template is None:
        from .compiler import compile_nothing

        template = compile_nothing(wanted.bits)
    elif wanted.bits not in (0, template.layout.address_size * 8):
        raise InputError(
            template.path, f"is for {_describe(template)}, and -{wanted.bits} asks for {wanted.bits} bits",
            "leave the option out: the objects say what they are for",
        )  # fmt: skip
    registers = system_of(template.osabi) in ("freebsd", "illumos")
    if scan.unknown and not registers:  # where probes are registered, there are no semaphores
        scan.semaphores |= {name.decode() for name in scan.semaphore_names}
    content = _complete(template, scan, wanted.providers)
    return _registered(content, wanted, warn) if registers and any(p.probes for p in wanted.providers) else content


def _registered(content: bytes, wanted: ClassicRun, warn: Callable[[str], None]) -> bytes:
    """Return the object with the code that tells DTrace about the probes at start-up, as classic callers expect it."""
    from .compiler import REGISTRATION, NothingCompiledError, with_registration

    try:
        return with_registration(content, wanted.bits)
    except NothingCompiledError as error:
        warn(f"the output won't register its probes with DTrace, so compile {REGISTRATION} and link it, too: {error}")
        return content


def _complete(template: ElfObject, scan: _Scan, providers: tuple[Provider, ...]) -> bytes:
    texts = [
        Text(describe.SECTION, header.description_group(provider), describe.encode(provider).encode())
        for provider in providers
    ]
    bare = bare_object(template, texts, sorted(scan.stubs))
    options = Options(providers=providers)
    patches, tail = define(bare, template.path, sorted(scan.semaphores), options)
    return bytes(edited(bare, patches, tail))


def _report_missing(scan: _Scan, wanted: ClassicRun, warn: Callable[[str], None]) -> None:
    if scan.unknown:
        return
    for provider in wanted.providers:
        if provider.probes and provider.name not in scan.with_sites:
            where = "the object" if len(wanted.objects) == 1 else f"any of the {len(wanted.objects)} objects"
            message = f"no probe site of provider {provider.name} in {where}"
            if wanted.strict:
                raise InputError(wanted.objects[0], message, "compile with the header that dtrace -h made")
            warn(message)


def _describe(source: ElfObject) -> str:
    layout, flags = source.layout, source.flags
    machine = machines.for_object(source.machine, is64=layout.is64, little=layout.little, flags=flags, path=source.path)
    return f"{machine.name} ({'little' if layout.little else 'big'}-endian)"


# --- given objects ----------------------------------------------------------------------------------------------


def _existing(paths: tuple[str, ...]) -> Iterator[str]:
    """Yield the object files behind the given names, libtool's replaced by what they stand for."""
    for path in paths:
        if not os.path.exists(path):
            continue
        with open_input(path) as opened:
            start = bytes(opened.view[:200])
            yield from _libtool_objects(bytes(opened.view), path) if _LIBTOOL in start else [path]


def _contents(path: str, outputs: Outputs) -> Iterator[tuple[Data, str]]:
    """Yield (content, name) of the objects in a file: one, or an archive's members, or what libtool's file names."""
    if os.path.isdir(path):
        raise InputError(path, "is a directory, not an object")
    with open_input(outputs.staged(path)) as opened:
        data = opened.view
        if archive.is_archive(bytes(data[:8])):
            for member in archive.members(data, path):
                if member.file:
                    yield from _contents(member.file, outputs)
                elif data[member.offset : member.offset + 4] in (b"\x7fELF", *BITCODE):
                    yield bytes(data[member.offset : member.offset + member.size]), f"{path}({member.name})"
        elif _LIBTOOL in data[:200]:
            for name in _libtool_objects(bytes(data), path):
                yield from _contents(name, outputs)
        else:
            yield data, path


def _libtool_objects(content: bytes, path: str) -> list[str]:
    folder = os.path.dirname(path)
    names = []
    for line in content.decode("utf-8", "surrogateescape").split("\n"):
        key, _, value = line.partition("=")
        name = os.path.join(folder, value.strip("'"))
        if key in ("pic_object", "non_pic_object") and value != "none" and os.path.exists(name):
            names.append(name)
    return names


def _instrument_in_place(path: str, outputs: Outputs, options: Options, warn: Callable[[str], None]) -> None:
    with open_input(path) as opened:
        start = bytes(opened.view[:8])
    if archive.is_archive(start):
        warn(f"{path} is an archive, which stays as it is; the output defines what its members call")
    elif start[:4] not in BITCODE:
        try:
            instrument_file(path, outputs.stage(path), options)
        except sites.UndescribedProbeError:
            # Probes of another provider file are another run's business, but then nothing here may be changed.
            warn(f"{path} calls probes that the given files don't describe; it stays as it is")
