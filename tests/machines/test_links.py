"""What linkers do with the records on every machine: dropped functions, `-r`, shared stubs, distances for DOF."""

from __future__ import annotations

from collections import Counter
from typing import Any, Literal

import pytest
from elftools.elf.elffile import ELFFile

from usdtbuild import machines
from usdtbuild.elf import layout
from usdtbuild.elf.edit import NewRelocation, ObjectEditor
from usdtbuild.elf.object import ElfObject

NAMES = (
    "x86-64", "i386", "aarch64", "aarch64_be", "arm", "thumb-2", "armeb", "ppc32", "ppc64", "ppc64 elfv2", "ppc64le",
    "s390x", "riscv64", "riscv32", "sparc64", "sparc", "mips", "mipsel", "mips64", "mips64el", "mips n32",
    "loongarch64",
)  # fmt: skip

# n64 has no relocation that holds a distance of 64 bits.
WITH_DISTANCES = [name for name in NAMES if name not in {"mips64", "mips64el"}]
FIRST_PAGE = 4096  # below which no program has code


def halves(shop: Any, build_of: Any) -> Any:
    """Return the two instrumented halves and platform.o, and the linkers that can link such code."""
    build = build_of(shop.compilers()[0], "-O2 -fPIC -ffunction-sections")
    objects = [shop.compile(build, "links.c", f"PART={part}") for part in (1, 2)]
    linkers = taking(shop, build)
    return [*shop.instrument(objects), shop.platform(build)], linkers


def taking(shop: Any, build: Any) -> Any:
    """Return the linkers that can link such code without probes; skips where there is none."""
    linkers = [linker for linker in shop.linkers() if shop.takes(linker, build)]
    if not linkers:
        pytest.skip(f"no linker for what {build.compiler} writes for {shop.name} is installed")
    return linkers


@pytest.mark.slow
@pytest.mark.parametrize("way", ["at once", "through -r"])
@pytest.mark.parametrize("name", NAMES)
def test_dropped_functions_leave_nothing_and_stubs_are_shared(
    name: Any, way: Any, workshop: Any, build_of: Any
) -> None:
    shop = workshop(name)
    objects, linkers = halves(shop, build_of)
    if linkers == ["gold"] and way == "through -r":
        pytest.skip("gold alone is installed, which loses what -r must keep")
    for linker in linkers:
        parts = objects
        if way == "through -r":
            if linker == "gold":
                continue  # it loses the mark that keeps .stapsdt.base, and then drops that section
            parts = [shop.combine(linker, objects[:2], "half"), objects[-1]]
        program = shop.link(linker, parts, f"dropped-{way.replace(' ', '-')}", "--gc-sections")
        if shop.target.qemu:
            assert shop.run(program) == "sum 000000000000001e\n"
        sites = [site for site in shop.sites(program) if site.address >= FIRST_PAGE]
        if (name, linker) == ("ppc64", "mold"):  # which drops no function of ELFv1, since .opd refers to all
            sites = [site for site in sites if site.probe not in {"args2", "args3"}]
        assert Counter(site.probe for site in sites) == expected_sites(shop), f"{program}: {sites}"
        assert set(shop.instructions(program, [site.address for site in sites])) <= set(shop.mnemonics)


def expected_sites(shop: Any) -> Any:
    """Two calls of `one` and the stub that is called through a pointer, once in the program.

    With calls through the global offset table the address of every stub that is called is taken, so each has a body.
    """
    gives_bodies = shop.target.capstone.startswith("MIPS")
    return Counter({"one": 3, "by__pointer": 1}) if gives_bodies else Counter({"one": 2, "by__pointer": 1})


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_no_record_of_a_dropped_function_stays(name: Any, workshop: Any, build_of: Any) -> None:
    """A reader must not meet an SDT note of code that is at no address: perf then drops all probes of the file.

    Where addresses have 32 bits no relocation can void a note that gold and mold keep; docs/architectures.md says so.
    """
    shop = workshop(name)
    objects, linkers = halves(shop, build_of)
    for linker in linkers:
        program = shop.link(linker, objects, "ghosts", "--gc-sections")
        ghosts = [site for site in shop.sites(program) if site.address < FIRST_PAGE]
        assert not ghosts or (shop.word == 4 and linker in {"gold", "mold"}), program


def add_distance(path: Any, target: Any, functions_too: Any) -> Any:
    """Add the section .distance: a field as DOF has it, and if asked for the two addresses between which it lies."""
    data = path.read_bytes()
    source = ElfObject(data, str(path))
    header: dict[str, Any] = {"is64": source.layout.is64, "little": source.layout.little, "flags": source.flags}
    machine = machines.for_object(source.machine, path=str(path), **header)
    editor = ObjectEditor(source)
    text: Any = next(i for i, s in enumerate(source.sections) if s.flags & layout.SHF_EXECINSTR and s.size)
    function = editor.add_label(text, 0)
    place = editor.add_label(editor.next_section, 0)
    relocations = [
        NewRelocation(r.offset, r.type, place if r.place else function, r.addend) for r in machine.pc_relative
    ]
    if functions_too:
        relocations.append(NewRelocation(8, machine.absolute, function, 0))
        relocations.append(NewRelocation(16, machine.absolute, place, 0))
    flags = layout.SHF_ALLOC | (layout.SHF_GNU_RETAIN if source.osabi == layout.ELFOSABI_GNU else 0)
    editor.add_section(".distance", layout.SHT_PROGBITS, flags, bytes(24), align=8, relocations=relocations)
    patches, tail = editor.finish()
    content = bytearray(data)
    for offset, patch in patches:
        content[offset : offset + len(patch)] = patch
    target.write_bytes(content + tail)
    return machine


@pytest.mark.slow
@pytest.mark.parametrize("name", WITH_DISTANCES)
def test_distance_for_dof_is_right_after_every_link(name: Any, workshop: Any, build_of: Any) -> None:
    """The field holds function minus field, in all 64 bits or, where the machine says so, in the low half."""
    shop = workshop(name)
    build = build_of(shop.compilers()[0], "-O2 -fPIC")
    with_distance = shop.folder / "distance.o"
    (instrumented,) = shop.instrument([shop.compile(build)])
    machine = add_distance(instrumented, with_distance, True)
    for linker in taking(shop, build):
        program = shop.link(linker, [with_distance, shop.platform(build)], "distance")
        with program.open("rb") as file:
            elf: Any = ELFFile(file)
            section = elf.get_section_by_name(".distance")
            order: Literal["little", "big"] = "little" if elf.little_endian else "big"
            data, word = section.data(), elf.elfclass // 8
        function, place = (int.from_bytes(data[at : at + word], order) for at in (8, 16))
        assert place == section["sh_addr"], program
        assert function > 0
        distance = int.from_bytes(data[:8], order) & (1 << machine.pc_relative_bits) - 1
        assert distance == (function - place) & (1 << machine.pc_relative_bits) - 1, program


@pytest.mark.slow
@pytest.mark.parametrize("name", WITH_DISTANCES)
def test_distance_for_dof_needs_nothing_at_run_time(name: Any, workshop: Any, build_of: Any) -> None:
    """In a shared library it is no dynamic relocation, so that the records can be read-only."""
    shop = workshop(name)
    build = build_of(shop.compilers()[0], "-O2 -fPIC")
    with_distance = shop.folder / "shared-distance.o"
    (instrumented,) = shop.instrument([shop.compile(build)])
    add_distance(instrumented, with_distance, False)
    libraries = [shop.share(linker, build, with_distance, "distance") for linker in taking(shop, build)]
    if not any(libraries):
        pytest.skip(f"no linker makes a shared library of what {build.compiler} writes for {name}")
    for library in filter(None, libraries):
        with library.open("rb") as file:
            elf: Any = ELFFile(file)
            section = elf.get_section_by_name(".distance")
            fields = range(section["sh_addr"], section["sh_addr"] + section["sh_size"])
            dynamic = [
                relocation["r_offset"]
                for name in (".rela.dyn", ".rel.dyn")
                if elf.get_section_by_name(name)
                for relocation in elf.get_section_by_name(name).iter_relocations()
            ]
        assert not [offset for offset in dynamic if offset in fields], library
