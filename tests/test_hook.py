"""`usdtbuild hook`: the options it prints make a compiler's own objects carry their probes, or it says why not."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest

PROVIDER = "provider app { probe go(int x); };\n"
SOURCE = '#include "app.h"\nint f(int);\nint f(int x) { if (APP_GO_ENABLED()) APP_GO(x); return x; }\n'


@pytest.fixture
def folder(tmp_path: Path, header_of: Any) -> Path:
    header_of(tmp_path, "app.d", PROVIDER, "--formats=dof")
    (tmp_path / "app.c").write_text(SOURCE)
    return tmp_path


@pytest.mark.parametrize("compiler", ["gcc", "clang", "gcc -m32", "clang --target=aarch64-linux-gnu"])
def test_compilers_instrument_their_own_objects(
    compiler: str, folder: Path, need: Any, usdtbuild: Any, run: Any
) -> None:
    if "aarch64" in compiler:
        need("aarch64-linux-gnu-as")
    program, *options = compiler.split()
    words = [need(program), *options]
    flags = usdtbuild("hook", "--into", folder / "a hook", "--", *words).stdout.splitlines()
    for extra in ([], ["-g", "-O2"], ["-flto"], ["-pipe", "-ffunction-sections"]):
        run(*words, *extra, *flags, "-c", "app.c", cwd=folder)
        assert "app:go" in usdtbuild("list", folder / "app.o").stdout
    assert usdtbuild("hook", "--into", folder / "a hook", "--", *words).stdout.splitlines() == flags


def test_one_line_goes_into_make_s_cflags(folder: Path, need: Any, usdtbuild: Any, run: Any) -> None:
    """As a line of shell: gcc gets two options, and the folder's name has a space."""
    (folder / "Makefile").write_text("app.o: app.c\n\t$(CC) $(CFLAGS) -c app.c\n")
    line = usdtbuild("hook", "--one-line", "--into", folder / "a hook", "--", need("gcc")).stdout
    assert line.count("\n") == 1
    run(need("make"), f"CC={need('gcc')}", f"CFLAGS=-O2 {line.rstrip()}", cwd=folder)
    assert "app:go" in usdtbuild("list", folder / "app.o").stdout


def test_ccache_shares_objects_between_checkouts(folder: Path, need: Any, usdtbuild: Any, run: Any) -> None:
    ccache = need("ccache")
    settings = {**os.environ, "CCACHE_DIR": str(folder / "cache"), "CCACHE_NOHASHDIR": "1"}
    for name in ("one", "two"):
        checkout = folder / name
        checkout.mkdir()
        for file in ("app.h", "app.c"):
            shutil.copy(folder / file, checkout)
        flags = usdtbuild("hook", "--into", "hook", "--", "gcc", cwd=checkout).stdout.splitlines()
        run(ccache, "gcc", *flags, "-c", "app.c", cwd=checkout, env={**settings, "CCACHE_BASEDIR": str(checkout)})
        assert "app:go" in usdtbuild("list", checkout / "app.o").stdout
    assert "direct_cache_hit\t1" in run(ccache, "--print-stats", env=settings).stdout


def test_formats_that_know_no_semaphore_ask_by_call(folder: Path, usdtbuild: Any, run: Any) -> None:
    command = ["hook", "--into", folder / "hook", "--formats"]
    assert "-DUSDT_ENABLED_BY_CALL" not in usdtbuild(*command, "stapsdt", "--", "gcc").stdout
    flags = usdtbuild(*command, "stapsdt,usdt", "--", "gcc").stdout.splitlines()
    run("gcc", *flags, "-c", "app.c", cwd=folder)
    listed = usdtbuild("list", folder / "app.o").stdout
    assert "is-enabled" in listed
    # The function that is called has a longer name on the way, which nobody is shown.
    assert "__dtraceenabled_app___go+" in listed
    assert "is_defined_by" not in listed
    assert b"__dtraceenabled_app___go\0" in (folder / "app.o").read_bytes()  # in the record


def test_a_table_of_the_sites_is_made(folder: Path, usdtbuild: Any, run: Any) -> None:
    flags = usdtbuild("hook", "--into", "hook", "--site-table", "--", "gcc", cwd=folder).stdout.splitlines()
    run("gcc", *flags, "-c", "app.c", cwd=folder)
    assert ".usdtbuild.sites" in run("readelf", "-SW", folder / "app.o").stdout


def test_an_error_of_ours_fails_the_compilation(folder: Path, usdtbuild: Any, run: Any) -> None:
    flags = usdtbuild("hook", "--into", "hook", "--formats", "usdt", "--", "gcc", cwd=folder).stdout.splitlines()
    flags.remove("-DUSDT_ENABLED_BY_CALL")
    done = run("gcc", *flags, "-c", "app.c", cwd=folder, code=1)
    assert "usdtbuild: app.o: tests app_go_semaphore" in done.stderr
    assert not (folder / "app.o").exists()


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (["--", "no-such-compiler"], 1, "no-such-compiler -dM -E -x c /dev/null: can't be run"),
        (["--", "true"], 1, "true: doesn't write ELF objects"),
        (["--formats", "ctf", "--", "gcc"], 2, "--formats takes some of stapsdt, dof, usdt"),
        (["--patchable-table", "relative", "--", "gcc"], 2, "--patchable-table goes with --patchable"),
        (["--patchable", "3,1", "--", "gcc"], 1, "is too small"),
    ],
)
def test_what_cannot_be_is_said(words: list[str], code: int, says: str, folder: Path, usdtbuild: Any) -> None:
    done = usdtbuild("hook", "--into", folder / "hook", *words, code=code)
    assert says in done.stderr
    assert done.stdout == ""
