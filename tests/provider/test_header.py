"""The header's text: what others' tools look for in it, and what it depends on."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from usdtbuild import __version__
from usdtbuild.provider import complete, describe, header
from usdtbuild.provider.parser import parse

TEXT = "provider myapp { probe req__done(uint64_t n, char *s); probe none(); };"


def write(text: str, none: bool = False) -> str:
    return header.write(parse(text, "myapp.d"), none)


def test_the_macros_have_the_layout_of_dtraces_header() -> None:
    live = write(TEXT).partition("#else\n\n#define")[2]
    assert ("#define" + live).startswith(
        "#define\tMYAPP_REQ_DONE(arg0, arg1) \\\n"
        "\tusdtbuild_on_myapp___req__done(arg0, arg1)\n"
        "#define\tMYAPP_REQ_DONE_ENABLED() \\\n"
        "\tUSDTBUILD_ENABLED(myapp_req__done_semaphore, __dtraceenabled_myapp___req__done)\n"
        "#if !(defined(USDTBUILD_PASSED) && USDTBUILD_PASSED >= 2 && defined(USDTBUILD_64_BITS))\n"
        "#define __dtrace_myapp___req__done USDTBUILD_CALLED(__dtrace_myapp___req__done)\n"
        "#endif\n"
        "#define __dtraceenabled_myapp___req__done USDTBUILD_CALLED(__dtraceenabled_myapp___req__done)\n"
        "extern void __dtrace_myapp___req__done(usdtbuild_uint64, const char *) USDTBUILD_NOEXCEPT USDTBUILD_STUB;\n"
        "extern int __dtraceenabled_myapp___req__done(void) USDTBUILD_NOEXCEPT USDTBUILD_STUB;\n"
        "extern volatile unsigned short myapp_req__done_semaphore USDTBUILD_HIDDEN;\n"
    )
    assert "\n#define\tMYAPP_NONE() \\\n\tusdtbuild_on_myapp___none()\n" in live


def test_without_probes_every_macro_is_there_and_does_nothing() -> None:
    text = write(TEXT, none=True)
    assert (
        "#define\tMYAPP_REQ_DONE(arg0, arg1) \\\n\t(0 ? usdtbuild_off_myapp___req__done(arg0, arg1) : (void)0)\n"
        in text
    )
    assert "#define\tMYAPP_REQ_DONE_ENABLED() \\\n\t(0)\n" in text
    for word in ("__dtrace", "semaphore", "__asm__", '#error "no probes'):
        assert word not in text


@pytest.mark.parametrize(
    ("name", "guard"),
    [
        ("app.h", "_APP_H"),
        ("my-app.probes.h", "_MY_APP_PROBES_H"),
        ("a b+c.h", "_A_B_C_H"),
        ("caf\u00e9.h", "_CAF__H"),
        ("3d", "_3D"),
    ],
)
def test_the_drop_ins_include_guard_is_made_of_the_headers_name(name: str, guard: str) -> None:
    text = complete.write(parse(TEXT, "myapp.d"), name)
    assert f"\n#ifndef\t{guard}\n#define\t{guard}\n" in text
    assert text.endswith(f"#endif /* {guard} */\n")


def test_the_header_says_who_wrote_it() -> None:
    assert write(TEXT).startswith(f"/* Written by usdtbuild {__version__}; do not edit. Providers: myapp. */\n")


@pytest.mark.parametrize(
    "same",
    [
        "/* Licence */\n" + TEXT,
        TEXT.replace("probe", "\n// about\nprobe"),
        '# 1 "elsewhere/myapp.d"\n' + TEXT,
        TEXT.replace("()", "(void)").replace(";", ";\n\n"),
        "typedef int unused;\n" + TEXT,
    ],
)
def test_the_header_depends_on_nothing_but_what_the_file_says(same: str) -> None:
    assert write(same) == write(TEXT)


@pytest.mark.parametrize(
    "other",
    [TEXT.replace("uint64_t n", "uint64_t m"), TEXT + "\n#pragma D attributes Stable/Stable/ISA provider myapp args"],
)
def test_what_tracers_can_see_changes_the_header(other: str) -> None:
    assert write(other) != write(TEXT)


def test_a_macro_stands_once_on_a_line_so_that_sed_without_g_renames_it() -> None:
    """CPython's makefile runs sed 's/PYTHON_/PyDTrace_/' over the header, PostgreSQL's runs one with /g."""
    for line in write(TEXT).split("\n"):
        assert line.count("MYAPP_") <= 1 or line.startswith(("#ifndef", "#define\t_"))
    assert [line for line in write(TEXT).split("\n") if "MYAPP_" in line and not line.startswith("#")] == []


def test_pointers_to_char_are_spelled_so_that_seds_for_const_leave_them_alone() -> None:
    """PostgreSQL's build rewrites `(char *` and `, char *`; a second const would be an error in C++."""
    text = write("provider a { probe b(char *x, char *y); };")
    assert "(const char *, const char *)" in text
    assert "(char *" not in text
    assert ", char *" not in text


def test_a_provider_read_back_from_an_object_has_a_header_too() -> None:
    arguments = "int8_t a, long b, size_t c, double d, float e, char *f, struct x *g, uint64_t h, bool i"
    source = f"provider app {{ probe p({arguments}); }};"
    ((provider, _),) = describe.decode(describe.encode(parse(source, "app.d")[0])).values()
    types = "signed char, usdtbuild_ssize, usdtbuild_size, usdtbuild_uint64, unsigned int, "
    types += "const char *, const void *, usdtbuild_uint64, unsigned char"
    declared = f"extern void __dtrace_app___p({types}) USDTBUILD_NOEXCEPT USDTBUILD_STUB;\n"
    assert declared in header.write((provider,))


def test_an_empty_file_makes_a_header_that_can_be_included() -> None:
    assert "Providers: none." in header.write(())


def test_the_command_makes_the_same_header_as_the_library(make_header: Callable[..., Path]) -> None:
    assert make_header(TEXT, "myapp").read_text() == write(TEXT)
    assert make_header(TEXT, "myapp", "--none").read_text() == write(TEXT, none=True)
