"""The loaded table of sites (`--site-table`): probes of programs and libraries whose files can't be read any more."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from usdtbuild.formats import site_table

HERE = Path(__file__).resolve().parent
RUNTIME = HERE.parent.parent / "usdtbuild" / "runtime" / "live"
pytestmark = pytest.mark.usefixtures("native")

LINKERS = ["bfd", "lld", "gold", "mold"]
KINDS = ["-pie", "-no-pie", "-shared"]


@pytest.fixture(scope="module")
def compiled(usdtbuild: Any, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Compile `hidden.c` or `module.c` once for a compiler and options: `compiled("module", "gcc", "-fPIC")`."""
    made: dict[tuple[str, ...], Path] = {}

    def compile_one(name: str, compiler: str, *options: str, table: bool = True) -> Path:
        key = (name, compiler, *options, str(table))
        if key not in made:
            folder = tmp_path_factory.mktemp("object")
            usdtbuild("header", "--formats=dof", HERE / f"{name}.d", "-o", folder / f"{name}.h")
            words = (compiler, "-O2", *options, "-I", folder, "-I", RUNTIME, "-c", HERE / f"{name}.c")
            made[key] = folder / f"{name}.o"
            usdtbuild("cc", *(["--site-table"] if table else []), "--", *words, "-o", made[key])
        return made[key]

    return compile_one


@pytest.fixture(params=LINKERS)
def linker(request: Any, need: Any) -> str:
    need({"mold": "mold"}.get(request.param, f"ld.{request.param}"))
    return str(request.param)


def build(folder: Path, linker: str, run: Any, compiled: Any, runtime: Any, *, table: bool = True) -> tuple[Path, Path]:
    """Return the program and its library, linked in `folder`."""
    use = f"-fuse-ld={linker}"
    library, program = folder / "module.so", folder / "hidden"
    run("gcc", use, "-shared", "-Wl,--build-id=sha1", compiled("module", "gcc", "-fPIC", table=table), "-o", library)
    run("gcc", use, compiled("hidden", "gcc", table=table), *runtime("gcc", "-O2"), "-lpthread", "-ldl", "-o", program)
    return program, library


EXPECTED = """\
on 2 of module, 2 of hidden
module:tick int number=0
module:tick int number=1
hidden:step int number=5
hidden:asked int twice=10
off 2
module:tick int number=0
hits 5
"""


def begins_as_expected(out: str) -> bool:
    """Whether it does, with at least the module's two sites: a compiler may make several of one in a loop."""
    return re.sub(r"^(on|off) [2-9]\b", r"\1 2", out, flags=re.MULTILINE).startswith(EXPECTED)


@pytest.mark.parametrize("how", ["deleted", "replaced", "chroot"])
def test_probes_are_found_where_the_file_is_not(
    how: str, linker: str, run: Any, compiled: Any, runtime: Any, tmp_path: Path
) -> None:
    program, library = build(tmp_path, linker, run, compiled, runtime)
    other = tmp_path / "other"
    if how == "chroot":
        other.mkdir()
    else:
        shutil.copy(program, other)
    out = run(program, how, library, *([other] if how != "deleted" else [])).stdout
    if out == "no chroot\n":
        pytest.skip("this user may not change the root")
    assert begins_as_expected(out), out
    why = "isn't the one that is loaded" if how == "replaced" else "can't be read"
    assert f"{library}: the file {why}; its probes are known from memory, its functions aren't\n" in out


def test_without_the_table_the_file_is_named(run: Any, compiled: Any, runtime: Any, tmp_path: Path) -> None:
    program, library = build(tmp_path, "bfd", run, compiled, runtime, table=False)
    out = run(program, "deleted", library).stdout
    assert out.startswith("on 0 of module, 2 of hidden\n")
    assert f"{library}: the file can't be read\n" in out


def test_a_file_without_section_headers_and_notes_has_its_probes(
    run: Any, compiled: Any, runtime: Any, need: Any, tmp_path: Path
) -> None:
    need("llvm-objcopy")
    program, library = build(tmp_path, "bfd", run, compiled, runtime)
    run("llvm-objcopy", "--strip-sections", library)
    out = run(program, "chroot", library, tmp_path).stdout
    assert begins_as_expected(out) or out.startswith("no chroot"), out


# -- what is in the table --------------------------------------------------------------------------------------------

SPLIT = ("-ffunction-sections", "-fdata-sections")
MORE = """
#include "hidden.h"
int dead(int n) {{ HIDDEN_STEP(n); return n; }}
int alive(int n) {{ HIDDEN_STEP(n); HIDDEN_STEP(n + 1); return n; }}
{main}
"""


def read_table(path: Path, run: Any) -> list[site_table.TableRow]:
    """Return a linked file's table, with what readelf says of where it is."""
    text = run("readelf", "-SW", path).stdout
    match = re.search(r" \.usdtbuild\.sites +PROGBITS +([0-9a-f]+) ([0-9a-f]+) ([0-9a-f]+)", text)
    assert match is not None
    address, offset, size = (int(number, 16) for number in match.groups())
    return site_table.decode(path.read_bytes()[offset : offset + size], address, little=True)


def noted(path: Path, run: Any) -> list[int]:
    return [int(at, 16) for at in re.findall(r"Location: 0x([0-9a-f]+)", run("readelf", "-nW", path).stdout)]


@pytest.mark.parametrize("compiler", ["gcc", "clang"])
@pytest.mark.parametrize("kind", KINDS)
def test_the_table_has_the_sites_that_the_notes_have_and_no_dynamic_relocation(
    kind: str, compiler: str, linker: str, run: Any, usdtbuild: Any, need: Any, tmp_path: Path
) -> None:
    """Dropped code is in neither; two objects that know the provider share the way to the table."""
    need(compiler)
    usdtbuild("header", "--formats=dof", HERE / "hidden.d", "-o", tmp_path / "hidden.h")
    main = "int main(void) { return alive(1) - 1 + asks(0); }"
    (tmp_path / "one.c").write_text(MORE.format(main=f"int asks(int); {main}"))
    (tmp_path / "two.c").write_text(
        '#include "hidden.h"\nint asks(int n) { if (HIDDEN_ASKED_ENABLED()) HIDDEN_ASKED(n); return n; }\n'
    )
    flags = ("-fPIC", "-fvisibility=hidden") if kind == "-shared" else ()
    for name in ("one", "two"):
        words = (compiler, "-O1", "-fno-inline", *SPLIT, *flags, "-I", tmp_path, "-c", tmp_path / f"{name}.c")
        usdtbuild("cc", "--site-table", "--", *words, "-o", tmp_path / f"{name}.o")
    linked = tmp_path / "linked"
    roots = ("-Wl,-u,main",) if kind == "-shared" else ()
    run(compiler, kind, f"-fuse-ld={linker}", "-Wl,--gc-sections,-z,text", *roots, tmp_path / "one.o",
        tmp_path / "two.o", "-o", linked)  # fmt: skip
    entries = read_table(linked, run)
    sites = sorted(entry.place for entry in entries if not entry.is_semaphore)
    assert sites == sorted(noted(linked, run))
    assert len(sites) == 3
    semaphores = {int(at, 16) for at in re.findall(r"Semaphore: 0x([0-9a-f]+)", run("readelf", "-nW", linked).stdout)}
    assert {entry.place for entry in entries if entry.is_semaphore} == semaphores - {0}
    assert {(entry.name, entry.arguments) for entry in entries if not entry.is_semaphore} == {
        ("step", "s4|int|number"), ("asked", "s4|int|twice"),
    }  # fmt: skip
    assert "usdtbuild" not in run("readelf", "-rW", linked).stdout


TRIPLES = ["aarch64-linux-gnu", "riscv64-linux-gnu", "s390x-linux-gnu", "arm-linux-gnueabihf", "powerpc64le-linux-gnu"]


@pytest.mark.parametrize("triple", TRIPLES)
def test_other_machines_have_the_same_table(triple: str, run: Any, usdtbuild: Any, need: Any, tmp_path: Path) -> None:
    compiler = need(f"{triple}-gcc")
    usdtbuild("header", "--formats=dof", HERE / "module.d", "-o", tmp_path / "module.h")
    words = (compiler, "-O2", "-fPIC", "-I", tmp_path, "-c", HERE / "module.c", "-o", tmp_path / "module.o")
    usdtbuild("cc", "--site-table", "--", *words)
    run(compiler, "-shared", "-nostdlib", tmp_path / "module.o", "-o", tmp_path / "module.so")
    text = run("readelf", "-SW", tmp_path / "module.so").stdout
    match = re.search(r" \.usdtbuild\.sites +PROGBITS +([0-9a-f]+) ([0-9a-f]+) ([0-9a-f]+)", text)
    assert match is not None
    address, offset, size = (int(number, 16) for number in match.groups())
    data = (tmp_path / "module.so").read_bytes()[offset : offset + size]
    entries = site_table.decode(data, address, little=triple != "s390x-linux-gnu")
    assert sorted(entry.place for entry in entries) == sorted(noted(tmp_path / "module.so", run))


def test_mips_has_no_such_table_and_says_so(usdtbuild: Any, need: Any, tmp_path: Path) -> None:
    compiler = need("mips64el-linux-gnuabi64-gcc")
    usdtbuild("header", "--formats=dof", HERE / "module.d", "-o", tmp_path / "module.h")
    words = (compiler, "-O2", "-I", tmp_path, "-c", HERE / "module.c", "-o", tmp_path / "module.o")
    done = usdtbuild("cc", "--site-table", "--", *words, code=1)
    assert "a table of sites can't be written for mips n64" in done.stderr
    assert not (tmp_path / "module.o").exists()


def test_what_is_read_is_what_was_written_and_damage_is_named() -> None:
    site = site_table.TableRow(0, "p", "n", "4@%edi", "s4|int|x")
    chunk = site_table.encode([site, site_table.TableRow(0, "p", "n", is_semaphore=True), site], little=False)
    first = 0x1000 + 4 + site_table.FIRST
    found = site_table.decode(bytes(4) + chunk + chunk, 0x1000, little=False)
    assert found[:3] == [site._replace(place=first), site_table.TableRow(first + 8, "p", "n", is_semaphore=True),
                         site._replace(place=first + 16)]  # fmt: skip
    assert len(found) == 6
    for damaged in (b"x" + chunk[1:], chunk[:-1] + b"x", chunk[:8] + b"\0\0\0\x63" + chunk[12:], chunk[:-8] + bytes(8)):
        with pytest.raises(site_table.SiteTableError):
            site_table.decode(damaged, 0, little=False)
