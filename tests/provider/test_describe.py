"""The description that travels through the compiler into the object, and back."""

from __future__ import annotations

from pathlib import Path

import pytest

from usdtbuild.provider import describe
from usdtbuild.provider.parser import parse

TEXT = """
typedef unsigned Oid;
/* comment */
provider app {
  /* comment */
  probe req__done(int fd, char *s, unsigned long n, double d, float f, void (*cb)(int, char *), Oid o, D`uint8_t b)
    : (info_t *fd, string s);
  probe none();
  probe hidden(int x) : ();
};
#pragma D attributes Evolving/Evolving/ISA provider app args
"""


def test_the_lines() -> None:
    (provider,) = parse(TEXT, "app.d")
    assert describe.encode(provider) == (
        f"provider\t1\tapp\t{describe.digest(provider)}\t04040500,04040500,04040500,04040500,05050400\n"
        "probe\treq__done\ts4|int|fd;z|char *|s;u8/4|unsigned long|n;f8|double|d;f4|float|f;"
        "p|void (*)(int, char *)|cb;u4|Oid|o;u1|D`uint8_t|b\tinfo_t *|fd|0;string|s|1\n"
        "probe\tnone\t\t-\n"
        "probe\thidden\ts4|int|x\t\n"
    )


def test_what_was_encoded_is_decoded() -> None:
    (provider,) = parse(TEXT, "app.d")
    assert describe.decode(describe.encode(provider)) == {"app": (provider.bare(), describe.digest(provider))}


def test_linkers_may_pad_and_several_objects_may_say_the_same() -> None:
    (provider,) = parse(TEXT, "app.d")
    (other,) = parse("provider other {};", "other.d")
    text = describe.encode(provider) + "\0\0" + describe.encode(other) + "\0" + describe.encode(provider)
    assert list(describe.decode(text)) == ["app", "other"]
    assert describe.conflicts(text) == {}


def test_two_different_descriptions_of_a_provider_are_a_conflict() -> None:
    (one,) = parse("provider app { probe a(int); };", "app.d")
    (two,) = parse("provider app { probe a(long); };", "app.d")
    text = describe.encode(one) + describe.encode(two)
    assert describe.conflicts(text) == {"app": ("probe a",)}
    assert describe.decode(text)["app"][0] == one.bare()


@pytest.mark.parametrize(
    ("change", "differs"),
    [
        (("/* comment */", "// other words\n\n"), False),
        (("probe none();", "probe none(void);"), False),
        (("typedef unsigned Oid", "typedef unsigned int Oid"), False),
        (("int fd", "int g"), True),
        (("int x)", "unsigned x)"), True),
        (("typedef unsigned Oid", "typedef signed Oid"), True),
        (("provider app {", "provider apple {"), True),
        (("/ISA", "/CPU"), True),
        (("none", "nothing"), True),
        ((": ()", ""), True),
    ],
)
def test_the_hash_changes_with_what_tracers_see(change: tuple[str, str], differs: bool) -> None:
    (provider,) = parse(TEXT, "app.d")
    text = TEXT.replace(*change).replace("fd, string", "fd, string" if "int fd" not in change else "g, string")
    text = text.replace("info_t *fd", "info_t *g") if change == ("int fd", "int g") else text
    text = text.replace("provider app args", "provider apple args") if "provider apple {" in change else text
    (changed,) = parse(text, "app.d")
    assert (describe.digest(changed) != describe.digest(provider)) == differs


@pytest.mark.parametrize(
    "text",
    ["garbage\n", "provider\t2\tapp\tx\t0,0,0,0,0\n", "probe\ta\t\t-\n", "provider\t1\tapp\n",
     "provider\t1\ta\th\t1,2\n", "provider\t1\ta\th\tx,0,0,0,0\n",
     "provider\t1\ta\th\t0,0,0,0,0\nprobe\ta\tq4|int|x\t-\n",
     "provider\t1\ta\th\t0,0,0,0,0\nprobe\ta\ts4\t-\n", "provider\t1\ta\th\t0,0,0,0,0\nprobe\ta\t\tx\n"],
)  # fmt: skip
def test_foreign_text_is_an_error_of_its_own(text: str) -> None:
    with pytest.raises(describe.DescriptionError):
        describe.decode(text)


def test_real_files_survive_the_journey(plain_file: Path) -> None:
    for provider in parse(plain_file.read_text(), plain_file.name):
        assert describe.decode(describe.encode(provider))[provider.name][0] == provider.bare()
