"""`-C`: the user's own C preprocessor, as the environment names it."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

TEXT = """
#include "types.h"
#ifdef EXTRA
#define TYPE long
#else
#define TYPE Oid
#endif
provider app {
  /* Of the probe. */
  probe a(TYPE x, int y[SIZE]);
#ifdef EXTRA
  probe extra();
#endif
};
#pragma D attributes Evolving/Evolving/Common provider app provider
"""

Make = Callable[..., str]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "include").mkdir()
    (tmp_path / "include" / "types.h").write_text("#include <stdint.h>\n#include <stdio.h>\ntypedef uint16_t Oid;\n")
    (tmp_path / "app.d").write_text(TEXT)
    monkeypatch.chdir(tmp_path)
    for variable in ("CPP", "CC", "CFLAGS", "CPPFLAGS"):
        monkeypatch.delenv(variable, raising=False)
    return tmp_path


@pytest.fixture
def make(folder: Path, usdtbuild: Any) -> Make:
    def run(*options: str, **environment: str) -> str:
        more = {"env": {**os.environ, **environment}} if environment else {}
        return str(usdtbuild("header", "--formats=dof", "-C", "app.d", "-o", "-", *options, **more).stdout)

    return run


def test_types_macros_and_pragmas_come_through(make: Make) -> None:
    text = make("-I", "include", "-D", "SIZE=4")
    assert "extern void __dtrace_app___a(unsigned short, const int *) USDTBUILD_NOEXCEPT USDTBUILD_STUB;" in text
    assert "u2|Oid|x;p|int [4]|y" in text
    assert "05050500,04040500" in text
    assert "EXTRA" not in text


def test_defining_and_undefining(make: Make) -> None:
    text = make("-Iinclude", "-DSIZE=2", "-D", "EXTRA")
    assert "(long, const int *)" in text
    assert "APP_EXTRA()" in text
    assert "APP_EXTRA()" not in make("-Iinclude", "-DSIZE=2", "-U", "EXTRA", CFLAGS="-DEXTRA")


@pytest.mark.parametrize(
    "environment",
    [
        {"CPP": "gcc -E -Iinclude"}, {"CPP": "cpp", "CPPFLAGS": "-Iinclude"},
        {"CC": "gcc -std=c99", "CFLAGS": "-O2 -Iinclude"},
        {"CC": "clang", "CFLAGS": "'-Iinclude' -Wall -g"},
        {"CC": "nonsense", "CPP": "clang -E", "CFLAGS": "-I include"},
        {"CC": "clang --target=aarch64-linux-gnu -ffreestanding -nostdlibinc -I/usr/include", "CPPFLAGS": "-I include"},
    ],
    ids=" ".join,
)  # fmt: skip
def test_the_environment_names_the_preprocessor(
    make: Make, folder: Path, need: Callable[[str], str], environment: dict[str, str]
) -> None:
    need("clang")
    (folder / "include" / "types.h").write_text("typedef unsigned short Oid;\n")
    assert "u2|Oid|x" in make("-DSIZE=4", **environment)


def test_words_with_blanks_need_no_shell(make: Make, folder: Path) -> None:
    (folder / "in clude; echo x").mkdir()
    (folder / "include" / "types.h").rename(folder / "in clude; echo x" / "types.h")
    assert "u2|Oid|x" in make("-DSIZE=4", CFLAGS="'-Iin clude; echo x'", CC="gcc")


def test_an_error_of_the_preprocessor_shows_its_command_and_its_words(folder: Path, usdtbuild: Any) -> None:
    environment = {**os.environ, "CC": "gcc", "CFLAGS": "-DNAME='a b'"}
    done = usdtbuild("header", "-C", "app.d", "-o", "app.h", code=1, env=environment)
    assert done.stderr.startswith(
        "usdtbuild: the C preprocessor failed (exit code 1): gcc -E '-DNAME=a b' -x c app.d\n  app.d:2:10:"
    )
    assert "types.h: No such file or directory" in done.stderr
    assert not (folder / "app.h").exists()


def test_a_warning_of_the_preprocessor_is_passed_on(folder: Path, usdtbuild: Any) -> None:
    (folder / "app.d").write_text("#warning careful\nprovider app { probe a(); };")
    assert "careful" in usdtbuild("header", "-C", "app.d", "-o", "app.h").stderr


@pytest.mark.parametrize(
    ("environment", "message"),
    [
        (
            {"CC": "/nowhere/cc"},
            "usdtbuild: can't run the C preprocessor /nowhere/cc: no such file or directory; set CC or CPP",
        ),
        (
            {"CFLAGS": "'open"},
            "usdtbuild: the environment variable CFLAGS can't be split into words: No closing quotation",
        ),
    ],
)
def test_a_preprocessor_that_cannot_be_run(
    folder: Path, usdtbuild: Any, environment: dict[str, str], message: str
) -> None:
    done = usdtbuild("header", "-C", "app.d", "-o", "app.h", code=1, env={**os.environ, **environment})
    assert done.stderr == message + "\n"


def test_errors_name_the_line_of_the_file_that_holds_them(folder: Path, usdtbuild: Any) -> None:
    (folder / "include" / "types.h").write_text("typedef int Oid;\n\ntypedef int Oid Oid;\n")
    done = usdtbuild("header", "-C", "app.d", "-o", "app.h", "-Iinclude", "-DSIZE=a b", code=1)
    assert "include/types.h:3:17: error: expected ';' after typedef Oid, found 'Oid'" in done.stderr


def test_every_type_of_the_c_library_is_understood(folder: Path, usdtbuild: Any, need: Callable[[str], str]) -> None:
    """Real headers: attributes, inline functions, anonymous unions, assembler names, vector types."""
    headers = ["stdio", "stdlib", "string", "math", "complex", "sys/socket", "sys/stat", "netinet/in", "pthread",
               "signal", "stdarg", "wchar", "inttypes", "locale", "sys/mman", "linux/types", "ucontext",
               "stdbool"]  # fmt: skip
    arguments = (
        "pid_t p, struct stat *st, pthread_t t, pthread_mutex_t *m, sigset_t *s, in_addr_t ia, div_t *d, __u32 u"
    )
    (folder / "app.d").write_text(
        "".join(f"#include <{name}.h>\n" for name in headers) + f"provider app {{ probe a({arguments}, bool b); }};"
    )
    types = (
        "int, const struct stat *, unsigned long, const void *, const void *, unsigned int, const void *, unsigned int"
    )
    for compiler in ("gcc", "clang"):
        for options in ("-std=c99 -D_GNU_SOURCE", "-std=gnu17 -O2"):
            environment = {**os.environ, "CC": need(compiler), "CFLAGS": options}
            done = usdtbuild("header", "--formats=dof", "-C", "app.d", "-o", "-", env=environment)
            assert f"__dtrace_app___a({types}, unsigned char) " in done.stdout


def test_comments_reach_the_documentation_through_the_preprocessor(folder: Path, usdtbuild: Any) -> None:
    usdtbuild("header", "-C", "-Iinclude", "-DSIZE=3", "app.d", "-o", "app.h", "--doc", "app.md")
    assert "\nOf the probe.\n" in (folder / "app.md").read_text()
