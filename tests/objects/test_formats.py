"""What only Oracle's formats ask for: all arguments, short names of functions, is-enabled stubs; what is refused."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from usdtbuild.errors import UsdtError
from usdtbuild.formats import usdt_note
from usdtbuild.formats.usdt_note import ProviderNote, SiteNote
from usdtbuild.instrument.main import Options, instrument
from usdtbuild.model import Argument, CType, Probe, Provider

USDT = Options(formats=("usdt",))


def notes(check: Any, program: Path) -> list[SiteNote | ProviderNote]:
    return usdt_note.decode(check.binary(program).section(".note.usdt").data(), little=True)


def test_all_arguments_are_described(bench: Any, check: Any) -> None:
    types = ["char", "short", "int", "long", "char *", "unsigned char", "double", *["int"] * 8]
    bench.header(f"provider app {{ probe p({', '.join(types)}); }};\n")
    source = 'int main(void) { APP_P(1, 2, 3, 4, "5", 6, 7.0, 8, 9, 10, 11, 12, 13, 14, 15); return 0; }\n'
    program = bench.link(bench.instrument(bench.compile("gcc", source), USDT))
    sites = [note for note in notes(check, program) if isinstance(note, SiteNote)]
    assert sites[0].arguments[:7] == ("-1@%edi", "-2@%esi", "-4@%edx", "-8@%rcx", "8@%r8", "1@%r9d", "8@0(%rsp)")
    assert sites[0].arguments[7:] == tuple(f"-4@{offset}(%rsp)" for offset in range(8, 72, 8))
    (record,) = check.binary(program).records("usdt")
    assert record.function == "main"


def test_long_names_of_functions_are_shortened(bench: Any, check: Any) -> None:
    name = "f" * 200
    source = f"void {name}(void) {{ APP_START(); }}\nint main(void) {{ {name}(); return 0; }}\n"
    program = bench.link(bench.instrument(bench.compile("gcc", source), USDT))
    (record,) = check.binary(program).records("usdt")
    assert len(record.function) == 127
    assert record.function.startswith("f" * 118 + "~")


def test_the_provider_is_declared_once_and_wholly(bench: Any, check: Any) -> None:
    """However many objects there are, of whatever probes; with its stability and translated arguments."""
    bench.header(
        "provider app { probe a__b(int x, char *y) : (char *y, int x); probe c(); };\n"
        "#pragma D attributes Evolving/Stable/ISA provider app args\n"
    )
    bodies = ["int main(void) { APP_C(); return 0; }", 'void f(void) { APP_A_B(1, "x"); }', "void g(void) { APP_C(); }"]
    objects = [bench.instrument(bench.compile("gcc", body + "\n"), USDT) for body in bodies]
    program = bench.link(*objects)
    (declared,) = [note for note in notes(check, program) if isinstance(note, ProviderNote)]
    assert [(probe.name, probe.native, probe.translated) for probe in declared.probes] == [
        ("a-b", ("int", "char *"), (("char *", 1), ("int", 0))), ("c", (), ())
    ]  # fmt: skip
    assert [attribute.encode() for attribute in declared.attributes] == [0x04040500] * 4 + [0x05060400]
    assert sorted(record.probe for record in check.binary(program).records("usdt")) == ["a__b", "c", "c"]


def test_what_dtrace_has_no_room_for_is_refused(bench: Any) -> None:
    """The parser of provider files refuses it too, so the object must have another provider's description."""
    plain = bench.compile("gcc", "void f(void) { APP_START(); }\n")
    content = plain.read_bytes()
    provider = Provider("app", (Probe("start", (Argument(CType("x" * 128, "integer", True, 4, 4), ""),)),))
    damaged = content.replace(b".usdtbuild.provider", b".usdtbuild.forgotten"[:19])
    with pytest.raises(UsdtError, match=r"^x\.o: probe app:start: 'x+' has not 1 to 127 bytes"):
        instrument(damaged, "x.o", USDT._replace(providers=(provider,)))


def test_an_is_enabled_call_on_a_machine_without_such_a_dtrace(bench: Any, need: Any) -> None:
    compiler = need("riscv64-linux-gnu-gcc")
    source = "int f(void) { return APP_START_ENABLED(); }\n"
    plain = bench.compile(compiler, source, "-DUSDT_ENABLED_BY_CALL")
    for formats in ("usdt", "dof", "stapsdt,usdt"):
        words = ("instrument", "--formats", formats, plain, "-o", bench.fresh("out.o"))
        assert "Oracle's DTrace can't answer on riscv64" in bench.usdtbuild(*words, code=1).stderr
    for options in (Options(formats=("stapsdt",)), Options(formats=("dof",), target_os="freebsd")):
        assert instrument(plain.read_bytes(), "x.o", options)[2].changed


# A format that is only half added: it has its row among the choices, and nothing writes it.
HALF_ADDED = """
from usdtbuild import options
options.RECORDS["probe9"] = options.Records("probe9", ".probe9", "probe9", 9, loaded=False)
options.FORMATS = tuple(options.RECORDS)
options.STEP_OPTIONS["--formats"] = (options.FORMATS, *options.STEP_OPTIONS["--formats"][1:])
from usdtbuild.__main__ import main
raise SystemExit(main())
"""


@pytest.mark.parametrize("formats", ["probe9", "stapsdt,probe9"])
def test_a_format_without_a_writer_is_an_error(bench: Any, run: Any, formats: str) -> None:
    plain, out = bench.compile("gcc", "void f(void) { APP_START(); }\n"), bench.fresh("out.o")
    before = plain.read_bytes()
    done = run(sys.executable, "-c", HALF_ADDED, "instrument", f"--formats={formats}", plain, "-o", out, code=1)
    assert done.stderr.startswith("usdtbuild: ")
    assert "nothing here writes records of a format: No module named 'usdtbuild.instrument.probe9'" in done.stderr
    assert plain.read_bytes() == before
    assert not out.exists()


def test_a_compile_step_with_such_a_format_leaves_no_object(run: Any, tmp_path: Path, header_of: Any) -> None:
    header_of(tmp_path, "app.d", "provider app { probe go(int x); };\n", "--formats=dof")
    (tmp_path / "a.c").write_text('#include "app.h"\nvoid f(int x) { APP_GO(x); }\n')
    words = ("cc", "--formats=probe9", "--", "gcc", "-c", "a.c")
    done = run(sys.executable, "-c", HALF_ADDED, *words, cwd=tmp_path, code=1)
    assert "nothing here writes records of a format: No module named 'usdtbuild.instrument.probe9'" in done.stderr
    assert not (tmp_path / "a.o").exists()


def test_a_provider_that_ends_in_a_digit_is_refused_only_where_dtrace_would_read_it(bench: Any, check: Any) -> None:
    bench.header("provider lzx { probe frame(int size); };\n")
    header = (bench.folder / "app.h").read_text()
    bench.write("app.h", header.replace("lzx", "lz4").replace("LZX", "LZ4"))  # as another program may write it
    plain = bench.compile("gcc", "int main(void) { LZ4_FRAME(4); return 0; }\n")
    program = bench.link(bench.instrument(plain, Options()))
    assert [record.provider for record in check.binary(program).records("stapsdt", "lz4")] == ["lz4"]
    for formats in ("dof", "usdt", "stapsdt,usdt"):
        words = ("instrument", "--formats", formats, plain, "-o", bench.fresh("out.o"))
        said = bench.usdtbuild(*words, code=1).stderr
        assert "provider name 'lz4' ends in a digit" in said
        assert "--formats=stapsdt" in said
