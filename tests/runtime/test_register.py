"""The registration runtime: one DOF for each module, with every live site at its true address, whatever the linker."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from usdtbuild.formats.dof import layout
from usdtbuild.formats.dof.check import check

from .conftest import HOST, Piece, Target, c_source, probe, provider

HELPER = Path(__file__).resolve().parent / "helper.c"
DOFREL, SETX = layout.DOFREL, layout.SETX
WRAP = "-Wl,--wrap=open,--wrap=open64,--wrap=ioctl,--wrap=close"
PLATFORMS = ("freebsd", "illumos", "oracle")
MAIN = """
#include <stdio.h>
int one_a(int); int one_b(int); int two_a(int); int in_one(int); int in_two(int);
int main(void)
{
    printf("%p\\n", (void *)main);
    return one_a(1) + one_b(2) + two_a(3) + in_one(4) + in_two(5) == 0;
}
"""


def one(relocation: int = DOFREL, version: int = 2, target: Target = HOST) -> str:
    """Return an object with two DOFs, and a static function of a name that the other object has too."""
    first = Piece(
        (
            provider("app", probe("one_a", "start", 0, 4), probe("one_a", "stop", 3, types="char *,int"),
                     probe("one_b", "start", 1, enabled=(2,))),
            provider("other", probe("one_b", "tick", 2, types="")),
        ), relocation, version=version,
    )  # fmt: skip
    second = Piece((provider("app", probe("local", "start", 0, 5)),), relocation, version=version)
    return c_source(
        ["one_a", "one_b", "static local"], [first, second], "int in_one(int x) { return local(x); }\n", target
    )


def two(relocation: int = DOFREL, target: Target = HOST) -> str:
    """Return an object whose DOF has no is-enabled site (version 1)."""
    piece = Piece((provider("app", probe("two_a", "start", 1), probe("local", "start", 0, 4)),), relocation, version=1)
    return c_source(["two_a", "static local"], [piece], "int in_two(int x) { return local(x); }\n", target)


PARTS = {"one": one(), "two": two(), "runtime": "runtime", "main": MAIN}
PLACES: dict[tuple[str, str, str], Any] = {
    ("app", "start", "one_a"): [("one_a", (0, 4))],
    ("app", "stop", "one_a"): [("one_a", (3,))],
    ("app", "start", "one_b"): [("one_b", (1,))],
    ("other", "tick", "one_b"): [("one_b", (2,))],
    ("app", "start", "two_a"): [("two_a", (1,))],
    ("app", "start", "local"): [("local", (0, 4)), ("local", (0, 5))],
}


def expected(table: dict[str, list[int]], base: int, order: str = "one two") -> dict[tuple[str, str, str], set[int]]:
    """Return what PLACES means in a program with these symbols, loaded at `base`."""
    found = {}
    locals_ = dict(zip(order.split(), table["local"]))
    offsets = {"one": (0, 5), "two": (0, 4)}
    for key, functions in PLACES.items():
        if key[2] == "local":
            found[key] = {base + locals_[unit] + offset for unit in locals_ for offset in offsets[unit]}
        else:
            found[key] = {base + table[function][0] + offset for function, all_ in functions for offset in all_}
    return found


def verify(outcome: Any, program: Any, symbols: Any, platform: str = "freebsd") -> Any:
    """Check a run of the program above: one registration, taken back at the end, and each address in it."""
    assert [call.split()[0] for call in outcome.calls] == ["open", "add", "close", "open", "remove", "close"]
    (found,) = outcome.registered
    assert outcome.calls[0] == "open /dev/dtrace/helper 2 present"
    assert outcome.calls[4].split()[1] == "101"
    assert check(found.data, platform) == []
    table = symbols(program)
    base = int(outcome.out, 16) - table["main"][0]
    assert found.base == (0 if platform == "oracle" else base)
    assert found.module == program.name
    places = found.places()
    local = places.pop(("app", "start", "local"))
    wanted = expected(table, base)
    candidates = [wanted.pop(("app", "start", "local"))]
    candidates.append(expected({**table, "local": table["local"][::-1]}, base)["app", "start", "local"])
    assert local in candidates  # nm says of neither `local` whose it is
    assert places == wanted
    return found


# -- every shape of program, every linker ------------------------------------------------------------------------


@pytest.mark.parametrize("shape", ["-pie", "-no-pie", "-pie -Wl,-z,relro,-z,now"])
def test_one_dof_with_all_sites_is_registered(shape: str, linker: str, build: Any, watch: Any, symbols: Any) -> None:
    program = build(PARTS, f"-fuse-ld={linker}", "-Wl,--fatal-warnings", *shape.split())
    verify(watch(program), program, symbols)


@pytest.mark.parametrize("order", ["runtime one two main", "one two main runtime", "main one runtime two runtime2"])
def test_the_order_of_objects_does_not_matter(order: str, linker: str, build: Any, watch: Any, symbols: Any) -> None:
    texts = {**PARTS, "runtime2": "runtime"}
    program = build({name: texts[name] for name in order.split()}, f"-fuse-ld={linker}")
    verify(watch(program), program, symbols)


def test_no_relocation_is_left_to_the_loader(linker: str, build: Any, run: Any) -> None:
    bare = build({"one": one(), "two": two(), "main": MAIN}, f"-fuse-ld={linker}", "-pie")
    program = build(PARTS, f"-fuse-ld={linker}", "-pie", "-Wl,-z,text")
    sections = run("readelf", "-SW", program).stdout
    (flags,) = re.findall(r" \.SUNW_dof\s+\S+\s+[0-9a-f]+ [0-9a-f]+ [0-9a-f]+ \S+ +([A-Z]*) ", sections)
    assert set(flags) <= set("AL")
    counts = [run("readelf", "-rW", path).stdout.count("R_X86_64_RELATIVE") for path in (bare, program)]
    assert counts[1] - counts[0] <= 2  # constructor and destructor
    found = re.search(r" \.SUNW_dof\s+\S+\s+([0-9a-f]+)", sections)
    assert found
    start = int(found[1], 16)
    relocations = run("readelf", "-rW", program).stdout.splitlines()
    places = [int(line.split()[0], 16) for line in relocations if "R_X86" in line]
    assert not [place for place in places if start <= place < start + 0x400]


@pytest.mark.parametrize("platform", PLATFORMS)
@pytest.mark.parametrize("relocation", [DOFREL, SETX])
@pytest.mark.parametrize("shape", ["-no-pie", "-pie -Wl,-z,notext"])
def test_every_system_gets_the_flavour_it_takes(
    platform: str, relocation: int, shape: str, build: Any, watch: Any, symbols: Any
) -> None:
    version = 3 if platform == "oracle" else 2
    texts = {**PARTS, "one": one(relocation, version), "two": two(relocation)}
    program = build(texts, *shape.split(), platform=platform)
    outcome = watch(program)
    found = verify(outcome, program, symbols, platform)
    assert found.dof.version == version
    assert found.dof.relocation == SETX
    (enabled,) = found.enabled_places().values()
    table = symbols(program)
    assert enabled == {table["one_b"][0] + 2 + int(outcome.out, 16) - table["main"][0]}
    assert found.pid == (found.own_pid if platform == "freebsd" else 0)


@pytest.mark.parametrize("platform", PLATFORMS)
def test_enabled_sites_of_another_kernel_are_left_out(platform: str, build: Any, watch: Any, symbols: Any) -> None:
    """A version 2 site reads a returned value, a version 3 site a variable: to confuse them would crash programs."""
    program = build({**PARTS, "one": one(version=2 if platform == "oracle" else 3)}, platform=platform)
    found = verify(watch(program), program, symbols, platform)
    assert found.enabled_places() == {}


def test_attributes_and_arguments_survive_the_merging(build: Any, watch: Any) -> None:
    from usdtbuild.formats.dof.types import DofProbe
    from usdtbuild.model import Attribute, Attributes

    stable = Attributes(*[Attribute(5, 5, 5)] * 5)
    native, translated = ("struct conn *", "int"), ("int", "conninfo_t *", "int")
    full = DofProbe("one_a", "start", native, translated, (1, 0, 1), (1, 2), (3,))
    again = full._replace(function="one_b", offsets=(4,), enabled_offsets=())
    source = c_source(
        ["one_a", "one_b"],
        [Piece((provider("app", full, attributes=stable),)), Piece((provider("app", again, attributes=stable),))],
        "int main(void) { return one_a(1) + one_b(1) == 0; }",
    )
    (found,) = watch(build({"one": source, "runtime": "runtime"})).registered
    ((name, attributes, probes),) = found.dof.providers
    assert (name, attributes) == ("app", stable)
    assert [entry._replace(address=0) for entry in probes] == [full, again]
    assert found.data.count(b"struct conn *\0") == 1


@pytest.mark.parametrize("shape", ["-no-pie", "-pie"])
def test_tools_see_in_the_file_what_is_registered(shape: str, build: Any, watch: Any, in_file: Any) -> None:
    program = build(PARTS, shape)
    (found,) = watch(program).registered
    told = in_file(program)
    assert {key: {address + found.base for address in places} for key, places in told.items()} == found.places()


def test_the_same_program_registers_the_same_bytes_every_time(build: Any, watch: Any) -> None:
    program = build(PARTS, "-no-pie")
    assert len({watch(program).registered[0].data for _ in range(3)}) == 1


# -- static programs ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", ["-static -no-pie", "-static-pie"])
def test_static_programs_register(
    shape: str, linker: str, build: Any, watch: Any, symbols: Any, run: Any, tmp_path: Any
) -> None:
    if (linker, shape) == ("gold", "-static-pie"):
        pytest.skip("gold can't link static PIEs")
    run("gcc", "-O1", "-fPIC", "-DWRAPPED", "-c", HELPER, "-o", tmp_path / "helper.o")
    program = build(PARTS, f"-fuse-ld={linker}", *shape.split(), WRAP, more=(tmp_path / "helper.o",))
    verify(watch(program, preload=False), program, symbols)


def test_static_programs_open_the_device_once_and_say_nothing(build: Any, run: Any, tmp_path: Any) -> None:
    program = build(PARTS, "-static")
    device = tmp_path / "device"
    device.write_text("")
    done = run(program, env={"DTRACE_DOF_INIT_DEVNAME": str(device)})
    assert done.stderr == ""
    assert device.read_text() == ""
    talk = run(program, env={"DTRACE_DOF_INIT_DEVNAME": str(device), "DTRACE_DOF_INIT_DEBUG": "1"})
    assert "didn't take the DOF: Inappropriate ioctl" in talk.stderr
    talk = run(program, env={"DTRACE_DOF_INIT_DEVNAME": "/nonexistent/device", "DTRACE_DOF_INIT_DEBUG": "1"})
    assert talk.stderr == "usdt_dof_register: /nonexistent/device: No such file or directory\n"


# -- life and death ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("platform", PLATFORMS)
def test_without_a_device_nothing_happens(platform: str, build: Any, watch: Any) -> None:
    program = build(PARTS, platform=platform)
    outcome = watch(program, mode="absent")
    opens = {"illumos": ["/dev/dtrace/helper", "/devices/pseudo/dtrace@0:helper"]}.get(platform, ["/dev/dtrace/helper"])
    assert outcome.calls == [f"open {name} 2 absent" for name in opens]
    assert outcome.errors == ""


def test_illumos_has_a_second_name_for_the_device(build: Any, watch: Any, symbols: Any) -> None:
    program = build(PARTS, platform="illumos")
    outcome = watch(program, mode="second")
    calls = [call.split()[0] for call in outcome.calls]
    assert calls == ["open", "open", "add", "close", "open", "open", "remove", "close"]
    assert outcome.calls[1] == "open /devices/pseudo/dtrace@0:helper 2 present"


def test_a_kernel_that_refuses_is_not_asked_to_remove(build: Any, watch: Any) -> None:
    program = build(PARTS)
    outcome = watch(program, mode="refuse")
    assert [call.split()[0] for call in outcome.calls] == ["open", "add", "close"]
    assert outcome.errors == ""


def test_the_environment_is_honoured(build: Any, watch: Any, tmp_path: Any) -> None:
    program = build(PARTS)
    assert watch(program, DTRACE_DOF_INIT_DISABLE="1").calls == []
    other = str(tmp_path / "other device")
    outcome = watch(program, DTRACE_DOF_INIT_DEVNAME=other)
    assert outcome.calls[0].startswith(f"open {other} ")
    assert len(outcome.registered) == 1
    assert watch(program, DTRACE_DOF_INIT_DEBUG="1").errors == (
        "usdt_dof_register: registered: program\nusdt_dof_register: removed: program\n"
    )


def test_a_module_without_probes_registers_nothing(build: Any, watch: Any) -> None:
    program = build({"runtime": "runtime", "main": "int main(void) { return 0; }"})
    assert [call.split()[0] for call in watch(program).calls] == ["open", "close"]


LOADER = """
#include <dlfcn.h>
#include <stdio.h>
int main(int argc, char **argv)
{
    int i;
    for (i = 1; i < argc; i++) {
        void *library = dlopen(argv[i], RTLD_NOW | RTLD_LOCAL);
        if (!library) { puts(dlerror()); return 1; }
        printf("%p\\n", dlsym(library, "one_a"));
        if (i % 2) dlclose(library);
    }
    return 0;
}
"""


def test_libraries_come_and_go(linker: str, build: Any, watch: Any, symbols: Any) -> None:
    """Each library registers its own DOF; dlclose takes it back, and so does the end of the program."""
    calls = "int one_b(int); int two_a(int); int (*in_library[])(int) = { one_b, two_a };\n"
    texts = {"one": one(), "runtime": "runtime", "two": two(), "calls": calls}
    libraries = [build(texts, f"-fuse-ld={linker}", "-shared", *option) for option in ([], ["-Wl,-z,now"])]
    program = build({"main": LOADER}, "-ldl")
    outcome = watch(program, *libraries)
    words = [call.split() for call in outcome.calls if call.split()[0] in ("add", "remove")]
    assert [(word[0], word[1]) for word in words] == [("add", "1"), ("remove", "101"), ("add", "2"), ("remove", "102")]
    for library, printed, found in zip(libraries, outcome.out.split(), outcome.registered):
        table = symbols(library)
        base = int(printed, 16) - table["one_a"][0]
        assert (found.base, found.module) == (base, "program")
        assert found.places()["app", "stop", "one_a"] == {base + table["one_a"][0] + 3}
        assert check(found.data, "freebsd") == []


def test_libraries_and_program_register_each_for_itself(build: Any, watch: Any, tmp_path: Any) -> None:
    source = c_source(["lib_a"], [Piece((provider("lib", probe("lib_a", "go", 1)),))])
    library = build({"lib": source, "runtime": "runtime"}, "-shared", "-Wl,-soname,liba.so")
    library = library.rename(tmp_path / "liba.so")
    program = build(PARTS, "-Wl,--no-as-needed", str(library), f"-Wl,-rpath,{tmp_path}", "-rdynamic")
    found = watch(program).registered
    assert sorted((each.module, [p.name for p in each.dof.providers]) for each in found) == [
        ("liba.so", ["lib"]), ("program", ["app", "other"]),
    ]  # fmt: skip


FORKER = """
#include <stdio.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>
int one_a(int); int two_a(int);
int main(void)
{
    pid_t child;
    fflush(NULL);
    child = fork();
    if (child == 0)
        return one_a(1) + two_a(2) == 0;
    waitpid(child, NULL, 0);
    printf("%d\\n", (int)child);
    return 0;
}
"""


@pytest.mark.parametrize("platform", PLATFORMS)
@pytest.mark.parametrize("shape", ["-pie", "-static"])
def test_forked_children_are_registered_where_the_kernel_forgets_them(
    platform: str, shape: str, build: Any, watch: Any, run: Any, tmp_path: Any
) -> None:
    run("gcc", "-O1", "-DWRAPPED", "-c", HELPER, "-o", tmp_path / "helper.o")
    wrap = [WRAP] if shape == "-static" else []
    more = (tmp_path / "helper.o",) if wrap else ()
    program = build({**PARTS, "main": FORKER}, shape, *wrap, platform=platform, more=more)
    outcome = watch(program, preload=not wrap)
    child = int(outcome.out)
    parent, *others = outcome.registered
    if platform == "oracle":
        (again,) = others
        assert again.own_pid == child
        assert again.data == parent.data
    else:
        assert others == []
    removed = [call.split()[2] for call in outcome.calls if call.startswith("remove")]
    assert removed == [str(child), str(parent.own_pid)]


# -- what else stands in the section -------------------------------------------------------------------------------


def test_dofs_of_others_are_left_to_them(build: Any, watch: Any, symbols: Any) -> None:
    """Objects of `dtrace -G` bring their own registration."""
    foreign = c_source(["theirs"], [Piece((provider("theirs", probe("theirs", "go", 0)),), trailer=False)])
    texts = {**PARTS, "their": foreign}
    for at in range(4):
        names = ["one", "runtime", "two", "main"]
        names.insert(at, "their")
        program = build({name: texts[name] for name in names})
        verify(watch(program), program, symbols)


def test_padding_between_dofs_is_passed_over(build: Any, watch: Any, symbols: Any) -> None:
    padding = '__asm__(".pushsection .SUNW_dof,\\"a\\",%0x6ffffff4\\n.balign 64\\n.popsection\\n");\n'
    texts = {"p1": padding, "one": one(), "p2": padding, "runtime": "runtime", "p3": padding, "two": two()}
    program = build({**texts, "main": MAIN})
    verify(watch(program), program, symbols)


@pytest.mark.parametrize("option", ["", "-Wl,--gc-sections"])
def test_functions_that_the_linker_dropped_are_dropped(
    option: str, linker: str, build: Any, watch: Any, symbols: Any
) -> None:
    functions = ["kept", "dropped"]
    pieces = [Piece((provider("app", probe(name, "go", 1)),), function=name) for name in functions]
    source = c_source(functions, pieces)
    main = '#include <stdio.h>\nint kept(int);\nint main(void) { printf("%p\\n", (void *)main); return kept(1) == 0; }'
    program = build(
        {"one": source, "runtime": "runtime", "main": main}, f"-fuse-ld={linker}", *option.split(),
        flags_of_c="-O1 -fPIC -ffunction-sections",
    )  # fmt: skip
    outcome = watch(program)
    (found,) = outcome.registered
    table = symbols(program)
    base = int(outcome.out, 16) - table["main"][0]
    alive = [name for name in functions if name in table]
    assert alive == (["kept"] if option else functions)
    assert found.places() == {("app", "go", name): {base + table[name][0] + 1} for name in alive}


def test_records_without_sense_are_left_out(build: Any, watch: Any) -> None:
    """An address that isn't code (a function that went without its record) must not become a probe."""
    lost = Piece((provider("app", probe("nowhere", "go", 1)),), SETX)
    source = c_source(
        ["one_a"], [Piece((provider("app", probe("one_a", "go", 1)),)), lost],
        '__asm__(".set code_nowhere, 8");\nint main(void) { return one_a(1) == 0; }',
    )  # fmt: skip
    outcome = watch(build({"one": source, "runtime": "runtime"}, "-no-pie"), DTRACE_DOF_INIT_DEBUG="1")
    (found,) = outcome.registered
    assert list(found.places()) == [("app", "go", "one_a")]
    assert "some of its records make no sense" in outcome.errors


def test_a_thousand_probes_of_a_hundred_objects_become_one(build: Any, watch: Any, symbols: Any) -> None:
    functions = [f"f{i}" for i in range(100)]
    pieces = [Piece((provider("app", *(probe(name, f"p{j}", j, j + 8) for j in range(10))),)) for name in functions]
    calls = "".join(f"x += {name}(x);" for name in functions)
    source = c_source(functions, pieces, f"int main(void) {{ int x = 1; {calls} return x == 0; }}")
    program = build({"runtime": "runtime", "all": source}, "-no-pie")
    (found,) = watch(program).registered
    table = symbols(program)
    assert check(found.data, "freebsd") == []
    assert found.places() == {
        ("app", f"p{j}", name): {table[name][0] + j, table[name][0] + j + 8} for name in functions for j in range(10)
    }
    assert len(found.data) < 100_000


# -- compilers -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "words",
    ["-std=gnu89 -O0 -pedantic -Wno-long-long", "-O3 -fPIE", "-O2 -flto", "-Os -fno-plt", "-O2 -fsanitize=address",
     "-O1 -fsanitize=undefined -fno-sanitize-recover=all", "-O2 -ffunction-sections -g"],
)  # fmt: skip
def test_the_runtime_bears_every_way_of_compiling(words: str, cc: str, build: Any, watch: Any, symbols: Any) -> None:
    if "clang" in cc and "-fsanitize" in words:
        pytest.skip("clang's sanitizer runtimes are a package of their own")
    link = [word for word in words.split() if word.startswith(("-flto", "-fsanitize"))]
    link += ["-fuse-ld=lld"] if "-flto" in link and "clang" in cc else []
    objects = build({"one": one(), "two": two(), "main": MAIN}, "-r", "-nostdlib")
    program = build({"runtime": "runtime"}, *link, cc=cc, flags_of_c=words, more=(objects,))
    verify(watch(program, ASAN_OPTIONS="verify_asan_link_order=0:detect_leaks=0"), program, symbols)


def test_the_runtime_is_cxx_too(cxx: str, build: Any, watch: Any, symbols: Any) -> None:
    """A project without C can have it."""
    objects = build({"one": one(), "two": two(), "main": MAIN}, "-r", "-nostdlib")
    program = build({"runtime": "runtime"}, cc=cxx, flags_of_c="-x c++ -std=gnu++98 -O2", more=(objects,))
    verify(watch(program), program, symbols)


# -- other machines ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("relocation", [DOFREL, SETX])
@pytest.mark.parametrize(
    ("prefix", "emulator", "target"),
    [("i686", "qemu-i386", Target(4, True)), ("powerpc", "qemu-ppc", Target(4, False)),
     ("aarch64", "qemu-aarch64", Target(8, True)), ("s390x", "qemu-s390x", Target(8, False))],
    ids=["i386", "ppc", "aarch64", "s390x"],
)  # fmt: skip
def test_both_byte_orders_and_address_sizes(
    prefix: str, emulator: str, target: Target, relocation: int, build: Any, watch: Any, symbols: Any, need: Any,
    run: Any, tmp_path: Any, need_c_library: Any,
) -> None:  # fmt: skip
    compiler, emulator = need(f"{prefix}-linux-gnu-gcc"), need(emulator)
    need_c_library(compiler, "-static")
    run(compiler, "-O1", "-DWRAPPED", "-c", HELPER, "-o", tmp_path / "helper.o")
    texts = {**PARTS, "one": one(relocation, target=target), "two": two(relocation, target)}
    more = {"cc": compiler, "flags_of_c": "-O1 -fno-pie", "more": (tmp_path / "helper.o",)}
    program = build(texts, "-static", WRAP, **more)
    verify(watch(emulator, program, preload=False), program, symbols)
