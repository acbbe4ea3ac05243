"""The corpus on every machine: built, instrumented, linked by every linker, run under qemu-user, watched by gdb.

For each build of a target: the program computes what the unprobed one computes; every record's address holds an
instruction that was put there; and with a breakpoint at every site, the probes fire in the order and with the
arguments that the reference build printed.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from usdtbuild.provider.parser import parse_file

# Whether is-enabled tests call a stub, or read the semaphore themselves, and whether probes are calls for the compiler.
BY_CALL, CALLS = "USDT_ENABLED_BY_CALL", "USDT_PROBES_BY_CALL"
BOTH = f"{BY_CALL} {CALLS}"
# Flags, and which of these.
BUILDS = {
    "gcc": (
        ("-O0 -fno-pic", ""), ("-O1 -fno-pic", BOTH), ("-O2 -fno-pic", CALLS), ("-O2 -fPIC", BY_CALL),
        ("-Os -fPIE", ""), ("-O3 -fPIC -fno-plt", BOTH), ("-O2 -fno-pic -ffunction-sections -g", BY_CALL),
    ),
    "clang": (
        ("-O0 -fno-pic", BY_CALL), ("-O1 -fPIC", CALLS), ("-O2 -fno-pic", BY_CALL), ("-O2 -fPIC", ""),
        ("-Os -fPIE -fno-plt", BOTH), ("-Oz -fno-pic", CALLS), ("-O3 -fPIC -ffunction-sections -g", ""),
    ),
}  # fmt: skip
# What only some machines have: long calls, other code models, no relaxation, landing pads, conditional instructions.
MORE = {
    ("x86-64", "gcc"): ("-O2 -fPIE -mcmodel=large", "-O2 -fPIC -fcf-protection=full"),
    ("x86-64", "clang"): ("-O2 -fno-pic -mretpoline", "-O2 -fPIC -mcmodel=large"),
    ("i386", "gcc"): ("-O2 -fno-pic -march=i386", "-O2 -fPIC -mregparm=0 -fomit-frame-pointer"),
    ("aarch64", "gcc"): ("-O2 -fPIC -mbranch-protection=standard", "-O2 -fno-pic -mcmodel=large"),
    ("arm", "gcc"): ("-O2 -fno-pic -mlong-calls", "-O2 -fno-pic -march=armv7-a -mfloat-abi=soft"),
    ("thumb-2", "gcc"): ("-O2 -fno-pic -mlong-calls", "-O2 -fno-pic -mno-restrict-it -fno-if-conversion2"),
    ("ppc32", "gcc"): ("-O2 -fno-pic -mlongcall", "-O2 -fpic -msecure-plt"),
    ("ppc64", "gcc"): ("-O2 -fPIC -mcmodel=small", "-O2 -fno-pic -mcmodel=large"),
    ("ppc64le", "gcc"): ("-O2 -fPIC -mcmodel=small", "-O2 -fPIC -mlongcall"),
    ("s390x", "gcc"): ("-O2 -fno-pic -march=z900", "-O2 -fPIC -mbackchain"),
    ("riscv64", "gcc"): ("-O2 -fPIC -mno-relax", "-O2 -fno-pic -march=rv64g -mcmodel=medany"),
    ("riscv64", "clang"): ("-O2 -fPIC -mno-relax", "-O2 -fno-pic -mrelax -g"),
    ("sparc64", "gcc"): ("-O2 -fno-pic -mcmodel=medany", "-O2 -fno-pic -mno-app-regs"),
    ("mips", "gcc"): ("-O2 -fno-pic -mlong-calls", "-O2 -fPIC -mno-relax-pic-calls -fno-delayed-branch"),
    ("mipsel", "clang"): ("-O2 -fPIC -mxgot",),
    ("loongarch64", "clang"): ("-O2 -fPIC -mcmodel=medium", "-O2 -fPIC -mcmodel=medium -mrelax", "-O2 -mrelax -g"),
}  # fmt: skip
# What goes wrong without probes too: clang 19 crashes on x32 with -fno-plt; of power10's calls with -fno-plt bfd 2.40
# makes half a direct call, which loops for ever.
BROKEN = {("x32", "clang", "-Os -fPIE -fno-plt"), ("power10", "gcc", "-O3 -fPIC -fno-plt")}
NAMES = (
    "x86-64", "i386", "x32", "aarch64", "aarch64_be", "aarch64 ilp32", "arm", "thumb-2", "thumb-1", "armeb", "ppc32",
    "ppc64", "ppc64 elfv2", "ppc64le", "power10", "s390x", "riscv64", "riscv32", "sparc64", "sparc", "mips", "mipsel",
    "mips r6", "mips64", "mips64el", "mips n32", "loongarch64",
)  # fmt: skip


# What verify finds: arguments of 64 bits in two registers; and how the linker lays out a file, which perf minds.
SPLIT = {"arm", "thumb-2", "thumb-1", "armeb", "ppc32", "riscv32", "sparc", "mips", "mipsel", "mips r6"}
OF_LAYOUT = {"build-id", "perf-offset", "semaphore-page"}


def declared_sizes(word: Any) -> Any:
    """Return probe -> sizes of its arguments in bytes."""
    (provider,) = parse_file(str(Path(__file__).with_name("corpus.d")))
    return {probe.written: [argument.type.size(word) for argument in probe.arguments] for probe in provider.probes}


def check_sites(shop: Any, sites: Any, program: Any) -> None:
    """Each address holds one of the instructions that we put there; each operand has its argument's size."""
    found = shop.instructions(program, [site.address for site in sites])
    wrong = [(site.probe, hex(site.address), what) for site, what in zip(sites, found) if what not in shop.mnemonics]
    assert not wrong, f"{program}: {wrong}"
    sizes = declared_sizes(shop.word)
    for site in sites:
        shown = [operand.size for operand in site.operands]
        if shop.word == 8:
            assert shown == sizes[site.probe], site
        else:  # a pair of registers shows as its low half
            assert all(size in {wanted, min(4, wanted)} for size, wanted in zip(shown, sizes[site.probe])), site
            assert len(shown) == len(sizes[site.probe])


def check_events(shop: Any, seen: Any, expected: Any, sites: Any, program: Any) -> None:
    """What fired is what had to fire, in order, argument by argument; gdb's own reading says the same."""
    assert [event.probe for event, _ in seen] == [event.probe for event in expected], program
    sizes = {site.probe: [operand.size for operand in site.operands] for site in sites}
    for number, ((event, by_gdb), wanted) in enumerate(zip(seen, expected)):
        values = wanted.values
        if event.probe != "text":
            values = tuple(value & (1 << 8 * size) - 1 for value, size in zip(values, sizes[event.probe]))
        assert event.values == values, f"{program}: event {number}, {event.probe}"
        if shop.target.sdt:
            assert by_gdb == event, f"{program}: event {number}, {event.probe}: gdb's own reading"


def check_build(shop: Any, build: Any, instrumented: Any, name: Any, expected: Any, watch_with: Any) -> Any:
    """Link a build with every linker that takes it, and check each program; return which linkers did, and the sites.

    Which linkers do is known from the code without probes alone: an old one doesn't know what a new compiler writes.
    """
    done = []
    for linker in shop.linkers():
        program = shop.try_link(linker, build, instrumented, name)
        if program is None:
            continue
        sites = shop.sites(program)
        check_sites(shop, sites, program)
        if shop.target.qemu:
            assert shop.run(program) == expected[1], program
        done.append((linker, program, sites))
    if done and shop.target.qemu:
        linker, program, sites = done[watch_with % len(done)]
        check_events(shop, shop.watch(program), expected[0], sites, program)
    return [linker for linker, _, _ in done], len(done[0][2]) if done else 0


@pytest.mark.slow
@pytest.mark.parametrize("compiler", ["gcc", "clang"])
@pytest.mark.parametrize("name", NAMES)
def test_corpus(name: Any, compiler: Any, workshop: Any, build_of: Any, record_property: Any) -> None:
    shop = workshop(name)
    if compiler not in shop.compilers():
        pytest.skip(f"{compiler} doesn't know {name}, or isn't installed")
    more = [(flags, BOTH) for flags in MORE.get((name, compiler), ())]
    chosen = [(flags, way) for flags, way in (*BUILDS[compiler], *more) if (name, compiler, flags) not in BROKEN]
    builds = [(build_of(compiler, flags), way) for flags, way in chosen]
    objects = [shop.compile(build, "corpus.c", *way.split()) for build, way in builds]
    expected: Any = ([], "")
    if shop.target.qemu:
        expected = (shop.reference(1)[0], shop.reference(0)[1])
    linked: Counter[str] = Counter()
    count = 0
    for number, ((build, _), instrumented) in enumerate(zip(builds, shop.instrument(objects))):
        linkers, sites = check_build(shop, build, instrumented, f"{build.stem}", expected, number)
        linked.update(linkers)
        count += sites
    if not linked:
        pytest.skip(f"no linker for what {compiler} writes for {name} is installed (make test-all installs one)")
    rarely = [linker for linker in shop.own_linkers(compiler) if linked[linker] < 2]
    assert not rarely, f"{rarely} took hardly any build"
    fired = len(expected[0]) * len(builds)
    facts = f"{name}|{compiler}|{len(builds)}|{count}|{' '.join(sorted(linked))}|{fired}|{shop.target.sdt}"
    record_property("machine", facts)


@pytest.mark.parametrize("name", NAMES)
def test_one_build_of_each_machine(name: Any, workshop: Any, build_of: Any) -> None:
    """The same with one build and one linker, and without gdb, and verify finds nothing: seconds for all machines."""
    shop = workshop(name)
    build = build_of(shop.compilers()[-1], "-O2 -fPIC")
    linker = next((linker for linker in shop.linkers() if shop.takes(linker, build)), None)
    if linker is None:
        pytest.skip(f"no linker for what {build.compiler} writes for {name} is installed (make test-all installs one)")
    (instrumented,) = shop.instrument([shop.compile(build, "corpus.c", BY_CALL)])
    program = shop.link(linker, [instrumented, shop.platform(build)], "one")
    check_sites(shop, shop.sites(program), program)
    (file,) = json.loads(shop.call(*shop.usdtbuild, "verify", "--json", program))["files"]
    found = {finding["check"] for finding in file["findings"]}
    assert found - OF_LAYOUT == ({"half-argument"} if name in SPLIT else set())
    if shop.target.qemu:
        assert shop.run(program) == shop.reference(0)[1]


@pytest.mark.slow
@pytest.mark.parametrize("system", ["freebsd", "illumos"])
@pytest.mark.parametrize("name", NAMES)
def test_dof_names_the_places_that_notes_name(name: Any, system: Any, workshop: Any, build_of: Any) -> None:
    """In the object and after the link: distances and addresses, in fields of 64 bits that relocations of 32 fill."""
    shop = workshop(name)
    build = build_of(shop.compilers()[-1], "-O2 -fPIC")
    linker = next((linker for linker in shop.linkers() if shop.takes(linker, build)), None)
    if linker is None:
        pytest.skip(f"no linker for what {build.compiler} writes for {name} is installed (make test-all installs one)")
    if (name in {"mips64", "mips64el"}) and system == "freebsd":
        pytest.skip("no relocation of n64 holds a distance of 64 bits")
    raw = shop.compile(build, "corpus.c", BY_CALL, CALLS)
    made = shop.folder / f"{system}.o"
    shop.call(*shop.usdtbuild, "instrument", raw, "-o", made, "--formats", "stapsdt,dof", "--target-os", system)
    program = shop.link(linker, [made, shop.platform(build)], system)
    for path in (made, program):
        (file,) = json.loads(shop.call(*shop.usdtbuild, "list", "--json", path))["files"]
        shown: dict[str, Counter[tuple[str, str, str]]] = {"stapsdt": Counter(), "dof": Counter()}
        for probe in file["probes"]:
            for site in probe["sites"]:
                place, function = site["address"] or f"{site['section']}+{site['offset']}", site["function"]["name"]
                if site["is_enabled"]:  # only DOF has these, in the stubs that read semaphores
                    assert site["function"]["demangled"] == f"__dtraceenabled_corpus___{probe['name']}"
                else:
                    shown[probe["format"]][probe["name"].replace("__", "-"), place, function] += 1
        assert shown["dof"] == shown["stapsdt"], path
        assert len(shown["dof"]) > 50
    checked = shop.call(*shop.usdtbuild, "dof", "check", "--platform", system, program).splitlines()
    assert checked
    assert all(line.endswith(f"{system}: accepted") for line in checked)
