"""Checks of how a file was made: was it instrumented, is it whole, is it the right one?"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ..elf import layout as elf
from ..elf.image import Image
from ..elf.sections import ImageSection
from ..elf.symbols import Symbol
from ..formats import stapsdt
from ..provider import describe
from .report import ERROR, NOTE, WARNING, Finding, FoundAt, Gathered, Subject, section_place

_STUB = re.compile(r"(?P<mangled>_Z\w*?)?__dtrace(?:enabled)?_(?P<provider>\w+?)___(?P<probe>\w+)")
_COMPILED_IN = "compile the calls of probes in, without -DUSDT_DISABLE, and with a header made without --none"
LATER = Finding(
    "lto-object", NOTE, "holds intermediate code only (LTO): its probes show when it is linked", (),
    "verify the program or library that it is linked into",
)  # fmt: skip
_INSTRUMENT = "build it with `usdtbuild cc` as the compiler, or pass its objects through `usdtbuild instrument`"


def unusable(subject: Subject) -> Iterator[Finding]:
    """Yield what makes every other check pointless."""
    image = subject.image
    if not image.sections:
        what = "has no section headers, and tracers find probes by them"
        cure = "don't run sstrip or `strip --strip-section-headers` on it; plain `strip` keeps what tracers need"
        yield Finding("no-section-headers", ERROR, what, (), cure)
    elif image.is_debug_file:
        what = "is a split debug file: the code that tracers attach to is in another file"
        yield Finding("debug-file", ERROR, what, (), "verify the stripped binary that belongs to it")


def _stubs(subject: Subject) -> Iterator[Finding]:
    """Undefined probe stubs: nobody has turned the calls into sites."""
    gathered = Gathered("not-processed", ERROR, _INSTRUMENT)
    for symbol in _undefined_stubs(subject.image):
        match = _STUB.search(symbol.name)
        if match is None:
            continue
        probe = describe.plain_name(match["probe"])
        place = FoundAt(f"{match['provider']}:{probe}", symbol.name, None, "", 0)
        if match["mangled"]:
            cure = "include the header that `usdtbuild header` made instead of declaring the probe by hand"
            gathered.add('calls probes that were declared without extern "C"', place, cure=cure)
        else:
            gathered.add("calls probes that nobody has turned into sites", place)
    yield from gathered


def calls_stubs(image: Image) -> bool:
    """Tell whether a file still calls probes that were not turned into sites."""
    return any(True for _ in _undefined_stubs(image))


def _undefined_stubs(image: Image) -> Iterator[Symbol]:
    used: set[int] | None = None
    kind = elf.SHT_SYMTAB if image.has_symbols(elf.SHT_SYMTAB) else elf.SHT_DYNSYM
    for number, symbol in image.symbols_with(kind, b"__dtrace"):
        if symbol.section:
            continue
        if symbol.binding == 1:  # instrumenting leaves weak ones behind, and mold makes local ones of these
            yield symbol
        elif image.is_object and symbol.binding == 2:
            used = _called_symbols(image) if used is None else used
            if number in used:
                yield symbol


def _called_symbols(image: Image) -> set[int]:
    return {
        relocation.symbol
        for section in image.sections
        if section.executable
        for relocation in image.relocations(section)
        if relocation.type
    }


def _intermediate_code(subject: Subject) -> Iterator[Finding]:
    """Objects for link-time optimisation: what is in them isn't what is linked."""
    image = subject.image
    code = [s for s in image.sections if s.name.startswith(".gnu.lto_") or s.type == elf.SHT_LLVM_LTO]
    code = [s for s in code if s.size and s.type != elf.SHT_NULL]
    if not image.is_object or not code:
        return
    slim = is_slim(image)
    cure = "compile this file with -fno-lto; `usdtbuild cc` does that by itself for files with probes"
    calls = image.data.find(b"__dtrace") >= 0  # a probe that its header completes calls nothing
    if slim and calls:
        what = "holds no machine code yet (slim LTO), so its probe calls can't have become sites"
        yield Finding("lto-object", ERROR, what, (section_place(code[0]),), cure)
    elif slim and not subject.seen.probes:
        yield LATER
    elif calls and subject.notes:
        what = "also holds intermediate code, which a linker plugin prefers to the code with the sites"
        yield Finding("lto-object", ERROR, what, (section_place(code[0]),), cure)


def is_slim(image: Image) -> bool:
    """Tell whether an object has GCC's intermediate code and no other."""
    return any(symbol.name == "__gnu_lto_slim" for _, symbol in image.symbols_with(elf.SHT_SYMTAB, b"__gnu_lto"))


def traces_of_probes(image: Image) -> list[ImageSection]:
    """Return the sections that show that a linked file without records has had some."""
    if image.is_object or image.sections_named(stapsdt.SECTION):
        return []
    names = (stapsdt.BASE_SECTION, stapsdt.SEMAPHORE_SECTION)
    return [section for name in names for section in image.sections_named(name) if section.size]


def _stripped(subject: Subject) -> Iterator[Finding]:
    """No records, though something else shows that there were some."""
    image = subject.image
    traces = traces_of_probes(image)
    if subject.seen.probes or not traces:
        return
    if not image.has_symbols(elf.SHT_SYMTAB):
        what = "the records of its probes were stripped away"
        cure = "strip it with binutils' strip, or `llvm-strip --keep-section=.note.stapsdt`"
        yield Finding("notes-stripped", ERROR, what, tuple(map(section_place, traces)), cure)
        return
    what = "holds traces of probes, and no probe: the linker dropped them all, or a tool removed the records"
    cure = "call the functions with probes; strip with 'strip' or 'llvm-strip --strip-unneeded', not 'llvm-strip -s'"
    yield Finding("notes-missing", WARNING, what, tuple(map(section_place, traces)), cure)


def _nothing(subject: Subject) -> Iterator[Finding]:
    image, seen = subject.image, subject.seen
    found = seen.probes or seen.providers or image.is_object or image.kind.startswith("ELF file")
    marks = (stapsdt.SECTION, stapsdt.BASE_SECTION, stapsdt.SEMAPHORE_SECTION)
    if not found and not any(image.sections_named(name) for name in marks):
        what = "has no probes"
        yield Finding("no-probes", WARNING, what, (), _COMPILED_IN)


CHECKS = (_stubs, _intermediate_code, _stripped, _nothing)
