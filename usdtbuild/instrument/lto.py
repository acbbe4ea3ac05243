"""Probes in objects that stay intermediate code (`--lto=keep`): stubs written in assembly, for the compiler to take in.

An LTO object holds no call yet that could become a NOP, and what it will become is decided inside the linker. But
assembly at the top level of a source travels through intermediate code as it is. So the source is compiled once more,
with the text from here before it: it defines the stubs that the code calls, in COMDAT groups; each stub is a probe
site, with its note beside it. The LTO object stays whole: it goes into archives and through any linker like another.
What a probe costs then is a call and a return.

GCC's and LLVM's assemblers both read the text, and both may meet it several times in one unit, since linkers join the
top-level assembly of objects: hence `.ifndef`. No linker script, plugin or option takes part. docs/lto.md has the
measurements behind this.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from .. import machines
from ..elf.object import ElfObject
from ..errors import InputError
from ..formats import stapsdt
from . import sites
from .context import operand_text
from .semaphores import ANCHOR_SYMBOL
from .target import Options, known_providers

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from mmap import mmap

    from ..machines.calls import Calls
    from ..model import Probe, Provider

    Data = bytes | mmap

_PAGE = 4096
_CURE = "compile this file without LTO (--lto=recompile does)"


def stub_source(intermediate: Data, plain: Data, path: str, options: Options) -> str:
    """Return C or C++ source that defines what the code in the LTO object `intermediate` wants of probes.

    `plain` is the object that the same source gives without LTO: it describes the providers. '' means that nothing
    is wanted. `path` is what errors call the object. Raises UsdtError.
    """
    source = ElfObject(plain, path)
    machine = machines.for_object(
        source.machine, is64=source.layout.is64, little=source.layout.little, flags=source.flags, path=path
    )
    known = machines.facts_of(source.machine)
    if known is None or known.assembler is None or not source.layout.is64:
        raise InputError(path, f"is an LTO object with probes, which can't be kept on {machine.name}", _CURE)
    if options.formats not in {(), ("stapsdt",)}:
        raise InputError(path, "is an LTO object with probes, which can only be kept with --formats=stapsdt", _CURE)
    if options.site_table:
        raise InputError(path, "is an LTO object with probes, which can only be kept without --site-table", _CURE)
    described = known_providers(source, options)
    providers = described.providers
    found = sites.find(source, machine, described, options.nop, patch_enabled=False)
    stubs = {(stub.provider, stub.probe, stub.enabled) for stub in found.stubs.values()}
    stubs.update(_mentioned(bytes(intermediate), providers))
    semaphores = {*found.undefined_semaphores, *_read(bytes(intermediate), providers)}
    semaphores.update(sites.semaphore_name(provider, probe) for provider, probe, enabled in stubs if enabled)
    if not stubs and not semaphores:
        return ""
    text = _Assembly(source, machine, options.nop)
    for name in sorted(semaphores):
        text.semaphore(name)
    for provider, probe, enabled in sorted(stubs, key=lambda each: (each[0], each[1].stub, each[2])):
        text.stub(provider, probe, enabled)
    return text.finish()


def _mentioned(content: bytes, providers: dict[str, Provider]) -> Iterator[tuple[str, Probe, bool]]:
    """Yield the stubs whose names stand in an LTO object. In bitcode they stand without anything between them."""
    known = {
        f"{prefix}{provider.name}___{probe.stub}".encode(): (provider.name, probe, prefix == sites.ENABLED_PREFIX)
        for provider in providers.values()
        for probe in provider.probes
        for prefix in (sites.PROBE_PREFIX, sites.ENABLED_PREFIX)
    }
    for name in _names_in(content, known):
        yield known[name]


def _read(content: bytes, providers: dict[str, Provider]) -> set[str]:
    """Return the semaphores whose names stand in an LTO object."""
    known = [sites.semaphore_name(p.name, probe).encode() for p in providers.values() for probe in p.probes]
    return {name.decode() for name in _names_in(content, known)}


def _names_in(content: bytes, names: Iterable[bytes]) -> set[bytes]:
    """Return those of `names` that stand in `content`; of two that begin at one place, the longer one."""
    longest_first = sorted(names, key=lambda name: (-len(name), name))
    return set(re.findall(b"|".join(map(re.escape, longest_first)), content)) if longest_first else set()


class _Assembly:
    """Collects the assembly, one top-level `asm` for each thing defined: linkers may keep any and drop any."""

    def __init__(self, plain: ElfObject, machine: Calls, nop: str) -> None:
        from hashlib import blake2b

        self.path, self.machine, self.nop = plain.path, machine, nop
        known = machines.facts_of(plain.machine)
        assert known is not None
        assert known.assembler is not None  # stub_source has asked
        self.none, self.absolute, self.absolute32 = known.assembler
        # Each object names its sites for itself, so that no copy's records count from another copy.
        self.prefix = f"usdtbuild.{blake2b(plain.data, digest_size=8).hexdigest()}"
        self.statements: list[str] = []
        self.has_anchor = self.has_base = False

    def finish(self) -> str:
        """Return the source text."""
        body = "".join(self.statements)
        return (
            "#if defined(__GNUC__) && !defined(__ASSEMBLER__)\n"
            "#pragma GCC diagnostic push\n"
            '#pragma GCC diagnostic ignored "-Woverlength-strings"\n'
            f"{body}"
            "#pragma GCC diagnostic pop\n"
            "#endif\n"
        )

    def _define(self, name: str, *lines: str) -> None:
        """Add a definition that is passed over where the same unit has it already."""
        text = [f".ifndef {name}", *lines, ".endif"]
        strings = "".join('\t"' + line.replace("\\", "\\\\").replace('"', '\\"') + '\\n"\n' for line in text)
        self.statements.append(f"__asm__(\n{strings});\n")

    def _data(self, section: str, flags: str, name: str, align: int, group: str) -> tuple[str, ...]:
        """Return the lines that define a weak, hidden datum of zeros in a group of its own."""
        size = 1 if section == stapsdt.BASE_SECTION else 2
        return (
            f'.pushsection {section},"{flags}G",%progbits,{group},comdat',
            f".balign {align}", f".weak {name}", f".hidden {name}",
            f".type {name},%object", f".size {name},{size}", f"{name}: .skip {size}", ".popsection",
        )  # fmt: skip

    def semaphore(self, name: str) -> None:
        """Define a semaphore, and what gives all semaphores their page."""
        if not self.has_anchor:
            self.has_anchor = True
            anchor = ANCHOR_SYMBOL
            self._define(anchor, *self._data(stapsdt.SEMAPHORE_SECTION, "aw", anchor, _PAGE, anchor))
        # A reference of no effect: whoever keeps the semaphore keeps the page's beginning.
        lines = list(self._data(stapsdt.SEMAPHORE_SECTION, "aw", name, 2, name))
        lines.insert(-1, f".reloc {name}, {self.none}, {ANCHOR_SYMBOL}")
        self._define(name, *lines)

    def _base(self) -> None:
        if not self.has_base:
            self.has_base = True
            name = stapsdt.BASE_SYMBOL
            self._define(name, *self._data(stapsdt.BASE_SECTION, "ax", name, 1, stapsdt.BASE_SECTION))

    def stub(self, provider: str, probe: Probe, enabled: bool) -> None:
        """Define a stub, and, if it is a probe's, the note of its site."""
        name = f"{sites.ENABLED_PREFIX if enabled else sites.PROBE_PREFIX}{provider}___{probe.stub}"
        code = self.machine.stub(enabled, True, self.nop)
        label = f"{self.prefix}.{name}"
        lines = [
            f'.pushsection .text.{name},"axG",%progbits,{name},comdat', f".balign {code.align}",
            f".weak {name}", f".hidden {name}", f".type {name},%function", f"{name}:",
        ]  # fmt: skip
        place = 0
        for relocation in code.relocations:
            lines.append(_bytes(code.code[place : relocation.offset]))
            # S + A - P, which is what the machine's PC-relative relocation means
            lines.append(f".long {sites.semaphore_name(provider, probe)} - . + {relocation.addend}")
            place = relocation.offset + 4
        lines.append(_bytes(code.code[place : code.site]))
        if not enabled:
            lines += [f".globl {label}", f".hidden {label}", f"{label}:"]
        lines += [_bytes(code.code[max(place, code.site) :]), f".size {name}, . - {name}", ".popsection"]
        if not enabled:
            self._base()
            # A reference of no effect: whoever keeps the stub keeps the section without which gdb sees no note.
            lines.insert(-1, f".reloc {name}, {self.none}, {stapsdt.BASE_SYMBOL}")
            lines += self._note(provider, probe, name, label, tail=code.tail)
        self._define(name, *lines)

    def _note(self, provider: str, probe: Probe, group: str, label: str, *, tail: bool) -> list[str]:
        """Return the lines of a probe's note (see `stapsdt.write` and `dropped.void_if_dropped`)."""
        operands = operand_text(self.path, self.machine, 8, provider, probe, tail=tail)
        note = stapsdt.encode(stapsdt.Note(0, 0, 0, provider, probe.stub, operands), 8, little=True)
        fields = stapsdt.fields(8)
        semaphore = sites.semaphore_name(provider, probe)
        owner = stapsdt.HEADER_SIZE - len(stapsdt.OWNER)
        start = f"{label}.note"
        lines = [
            f'.pushsection {stapsdt.SECTION},"G",%note,{group},comdat', ".balign 4", f"{start}:",
            _bytes(note[: fields.pc]),
            f".8byte {label}", f".8byte {stapsdt.BASE_SYMBOL}",
            f".weak {semaphore}", f".hidden {semaphore}", f".8byte {semaphore}",
            _bytes(note[fields.semaphore + 8 :]),
            f".reloc {start}+{owner - 7}, {self.absolute}, {label}+{(stapsdt.OWNER[0] << 56) - 1:#x}",
        ]  # fmt: skip
        for offset in (owner - 7, owner - 4):
            value = int.from_bytes(note[offset : offset + 4], "little")
            lines.append(f".reloc {start}+{offset}, {self.absolute32}, {value:#x}")
        return [*lines, ".popsection"]


def _bytes(data: bytes) -> str:
    return ".byte " + ",".join(map(str, data)) if data else ""
