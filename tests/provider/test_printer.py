"""The canonical text of a provider file."""

from __future__ import annotations

from pathlib import Path

import pytest

from usdtbuild.provider import describe
from usdtbuild.provider.parser import parse
from usdtbuild.provider.printer import declaration, show

ROUGH = """
#pragma D attributes evolving/evolving/common provider app provider
typedef struct { int x; } conn_t; typedef unsigned Oid; typedef void (*handler)(int); typedef struct s *sp;
typedef pid_t worker; typedef char ch; typedef int fn(void); typedef double real; typedef uint64_t big;
typedef bool yes;
typedef volatile int port; typedef enum { A } letter; typedef long uint_t;
# What
#  it does
provider app{probe a(conn_t*c,Oid o,handler h,sp s,worker *w);probe b ( void );
/* With a
 * comment. */ probe c(ch *s, fn *f, real r, big x, big *y, yes z, port *p, letter l, uint_t u, pid_t k, int v[2],
 int(*)(Oid))
 :(info_t*s,string);
}; provider empty {}
"""
CANONICAL = """\
typedef unsigned int Oid;
typedef uint64_t big;
typedef char ch;
typedef void conn_t;
typedef void fn(void);
typedef void (*handler)(void);
typedef int letter;
typedef volatile int port;
typedef double real;
typedef struct s *sp;
typedef long uint_t;
typedef void worker;
typedef _Bool yes;

/*
 * What
 *  it does
 */
provider app {
	probe a(conn_t *c, Oid o, handler h, sp s, worker *w);
	probe b();
	/*
	 * With a
	 * comment.
	 */
	probe c(ch *s, fn *f, real r, big x, big *y, yes z, port *p, letter l, uint_t u, pid_t k, int v[2], int (*)(Oid)) : (info_t *s, string);
};

#pragma D attributes Evolving/Evolving/Common provider app provider

provider empty {
};
"""  # noqa: E101, E501


def test_the_canonical_text() -> None:
    assert show(parse(ROUGH, "app.d")) == CANONICAL


def test_the_canonical_text_means_the_same_and_stays_as_it_is() -> None:
    providers = parse(ROUGH, "app.d")
    assert parse(CANONICAL, "app.d") == providers
    assert show(parse(CANONICAL, "app.d")) == CANONICAL


def test_what_an_object_carries_prints_as_well() -> None:
    """A description has no C types, so a typedef that only a file could know is replaced by a plain one."""
    bare = [provider.bare() for provider in parse(ROUGH, "app.d")]
    decoded = describe.decode("".join(describe.encode(provider) for provider in bare))
    assert [provider for provider, _ in decoded.values()] == bare
    text = show(tuple(bare))
    assert [provider.bare() for provider in parse(text, "app.d")] == bare


def test_real_files_print_and_parse_again(plain_file: Path) -> None:
    providers = parse(plain_file.read_text(), plain_file.name)
    assert providers
    printed = show(providers)
    assert parse(printed, "again.d") == providers
    assert show(parse(printed, "again.d")) == printed


@pytest.mark.parametrize(
    ("spelling", "declared"),
    [
        ("int", "int x"), ("char *", "char *x"), ("char *const", "char *const x"),
        ("const char *const *", "const char *const *x"),
        ("int [4]", "int x[4]"), ("char *[4]", "char *x[4]"), ("int (*)[4]", "int (*x)[4]"),
        ("void (*)(int)", "void (*x)(int)"), ("int *(*)(void (*)(int))", "int *(*x)(void (*)(int))"),
        ("void (*const)(int)", "void (*const x)(int)"), ("int (int)", "int x(int)"), ("int ()", "int x()"),
        ("int (*(*)(int))[3]", "int (*(*x)(int))[3]"), ("D`uint32_t", "D`uint32_t x"),
    ],
)  # fmt: skip
def test_a_name_goes_to_its_place_in_a_type(spelling: str, declared: str) -> None:
    assert declaration(spelling, "x") == declared
    assert declaration(spelling, "") == spelling
