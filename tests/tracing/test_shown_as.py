"""Arguments that nobody declared: a user says what they are, and is told of those that look like text."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import usdtbuild as public

from .conftest import built_with_probes

PROVIDER = """
provider plain {
    probe said(unsigned long a, unsigned long b, int c, unsigned d);
    probe odd(unsigned long a, double b);
};
"""
PROGRAM = r"""
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include "plain.h"
static const char *const texts[] = {"one and all", "\x01\x02\x03\x04\x05", "\xff\xfe\xfd\xfc\xfb", "abc", (char *)8, 0};
int main(int count, char **words)
{
    static char own[64];
    for (int i = 0; i < atoi(words[1]); i++) {
        snprintf(own, sizeof own, "caf\303\251 number %d", i);
        PLAIN_SAID((uintptr_t)own, (unsigned long)(i - 2), -7, 8);
        PLAIN_ODD((uintptr_t)(count > 2 ? texts[i % 6] : (char *)(uintptr_t)(i * 0x123456789abUL)), 0.5);
    }
    sleep(count > 2 ? atoi(words[2]) : 0);
    return 0;
}
"""
ENGINES = ["patch", "trap", "gdb", pytest.param("bpftrace", marks=pytest.mark.live)]


@pytest.fixture(scope="module")
def plain(run: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build a program without a description of its probes, as `sys/sdt.h` has none: `plain HITS [SECONDS]`."""
    made = built_with_probes(run, tmp_path_factory.mktemp("plain"), "plain", PROVIDER, PROGRAM)
    run("objcopy", "--remove-section=.usdtbuild.provider", made)
    return made


@pytest.mark.parametrize("engine", ENGINES)
def test_what_a_user_says_is_what_is_read(plain: Path, usdtbuild: Any, request: Any, need: Any, engine: str) -> None:
    if engine == "bpftrace":
        request.getfixturevalue("bpftrace")
    elif engine == "gdb":
        need("gdb")
    kinds: tuple[str, ...] = (
        "--as",
        "plain:said:arg0:string",
        "--as",
        "arg1:int",
        "--as",
        "*:said:arg2:hex",
        "--as",
        "arg3:pointer",
    )
    kinds += ("--as", "plain:odd:arg1:float")
    hits = usdtbuild("trace", "--engine", engine, "-P", "plain:*", *kinds, "--", plain, 3).stdout
    assert re.findall(r"plain:said (.*)$", hits, re.MULTILINE) == [
        f'arg0="café number {i}" arg1={i - 2} arg2=0xfffffff9 arg3=0x8' for i in range(3)
    ]
    assert re.findall(r"plain:odd (.*)$", hits, re.MULTILINE) == [
        f"arg0={i * 0x123456789AB} arg1=0.5" for i in range(3)
    ]


@pytest.mark.parametrize("engine", ["patch", "trap"])
def test_it_is_a_text_to_filters_and_keys_too(plain: Path, usdtbuild: Any, engine: str) -> None:
    asked = ("--engine", engine, "--as", "arg0:string", "--as", "arg1:int", "-P", "plain:said")
    shown = usdtbuild("trace", *asked, "--filter", 'arg0 =~ "caf*" and arg1 < 0', "--by", "arg0", "--", plain, 5).stdout
    assert re.findall(r'^ +(\d+) .*% +"(.*)"$', shown, re.MULTILINE) == [("1", "café number 0"), ("1", "café number 1")]


@pytest.mark.parametrize("engine", ["patch", "trap"])
def test_text_is_noticed_once(plain: Path, usdtbuild: Any, engine: str) -> None:
    done = usdtbuild("trace", "--engine", engine, "--", plain, 20, 1)
    said = "plain:said: arg0 looks like text; --as plain:said:arg0:string shows it"
    assert done.stderr.count("looks like text") == 1
    assert said in done.stderr
    for more in (("--as", "arg0:string"), ("--as", "arg0:hex"), ("--count",), ("-q",), ("-P", "plain:odd")):
        done = usdtbuild("trace", "--engine", engine, *more, "--", plain, 20, 1)
        assert "looks like text" not in done.stderr, more


@pytest.mark.parametrize("text", ["", "arg0", "arg0:", ":string", "arg0:double", "a:b:c:text"])
def test_what_is_no_type_is_refused_at_once(refused: Any, text: str) -> None:
    assert "it is [PROBE:]ARGUMENT:TYPE" in refused("--as", text)


@pytest.mark.parametrize("text", ["arg4:string", "plain:none:arg0:string", "name:hex"])
def test_an_argument_that_nothing_has_is_told(plain: Path, usdtbuild: Any, text: str) -> None:
    done = usdtbuild("trace", "--as", text, "--", plain, 1)
    assert f"warning: --as {text}: nothing that is traced has this argument" in done.stderr


def test_a_number_that_is_called_text_is_an_address_that_can_not_be_read(plain: Path, usdtbuild: Any) -> None:
    for engine in ("patch", "trap"):
        hits = usdtbuild(
            "trace", "--engine", engine, "--as", "arg2:string", "--as", "arg1:string", "--", plain, 3
        ).stdout
        assert re.findall(r"said arg0=\d+ arg1=(\S+) arg2=(\S+)", hits) == [
            ("0xfffffffffffffffe", "0xfffffff9"), ("0xffffffffffffffff", "0xfffffff9"), ("NULL", "0xfffffff9"),
        ]  # fmt: skip


def test_the_engine_inside_reads_what_is_declared(plain: Path, usdtbuild: Any) -> None:
    done = usdtbuild("trace", "--engine", "inside", "--as", "arg0:string", "--", plain, 1, code=2)
    assert "--as: with the engine inside" in done.stderr


def test_python_programs_say_it_alike(plain: Path) -> None:
    with public.trace(command=[plain, "2"], probes=["plain:said"], show_as=["arg0:string", "arg1:int"]) as hits:
        assert [(hit["arg0"], hit["arg1"]) for hit in hits] == [
            ("café number 0".encode(), -2),
            ("café number 1".encode(), -1),
        ]
    with pytest.raises(public.UsageError, match="ARGUMENT:TYPE"):
        public.trace(command=[plain, "2"], show_as=["arg0"])
