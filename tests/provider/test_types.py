"""What a type is to a tracer: its kind, its sizes, its signedness, and what the header declares for it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from usdtbuild.model import FLOAT, INTEGER, POINTER, Probe
from usdtbuild.provider.parser import ParseError, parse

OneProbe = Callable[..., Probe]

SIGNED, UNSIGNED = True, False
INTEGERS = [
    ("char", SIGNED, 1, 1), ("signed char", SIGNED, 1, 1), ("unsigned char", UNSIGNED, 1, 1),
    ("short", SIGNED, 2, 2), ("short int", SIGNED, 2, 2), ("signed short", SIGNED, 2, 2),
    ("unsigned short", UNSIGNED, 2, 2), ("short unsigned int", UNSIGNED, 2, 2),
    ("int", SIGNED, 4, 4), ("signed", SIGNED, 4, 4), ("signed int", SIGNED, 4, 4),
    ("unsigned", UNSIGNED, 4, 4), ("unsigned int", UNSIGNED, 4, 4), ("int unsigned", UNSIGNED, 4, 4),
    ("long", SIGNED, 8, 4), ("long int", SIGNED, 8, 4), ("signed long", SIGNED, 8, 4),
    ("unsigned long", UNSIGNED, 8, 4), ("long unsigned int", UNSIGNED, 8, 4),
    ("long long", SIGNED, 8, 8), ("long long int", SIGNED, 8, 8), ("signed long long int", SIGNED, 8, 8),
    ("unsigned long long", UNSIGNED, 8, 8), ("long unsigned long", UNSIGNED, 8, 8),
    ("const int", SIGNED, 4, 4), ("volatile unsigned", UNSIGNED, 4, 4), ("__signed__ char", SIGNED, 1, 1),
    ("_Bool", UNSIGNED, 1, 1), ("bool", UNSIGNED, 1, 1),
    ("int8_t", SIGNED, 1, 1), ("int16_t", SIGNED, 2, 2), ("int32_t", SIGNED, 4, 4), ("int64_t", SIGNED, 8, 8),
    ("uint8_t", UNSIGNED, 1, 1), ("uint16_t", UNSIGNED, 2, 2), ("uint32_t", UNSIGNED, 4, 4),
    ("uint64_t", UNSIGNED, 8, 8), ("intptr_t", SIGNED, 8, 4), ("uintptr_t", UNSIGNED, 8, 4),
    ("intmax_t", SIGNED, 8, 8), ("uintmax_t", UNSIGNED, 8, 8),
    ("size_t", UNSIGNED, 8, 4), ("ssize_t", SIGNED, 8, 4), ("ptrdiff_t", SIGNED, 8, 4), ("wchar_t", SIGNED, 4, 4),
    ("pid_t", SIGNED, 4, 4), ("uid_t", UNSIGNED, 4, 4), ("gid_t", UNSIGNED, 4, 4), ("mode_t", UNSIGNED, 4, 4),
    ("off_t", SIGNED, 8, 4), ("time_t", SIGNED, 8, 4), ("dev_t", UNSIGNED, 8, 8), ("socklen_t", UNSIGNED, 4, 4),
    ("uchar_t", UNSIGNED, 1, 1), ("ushort_t", UNSIGNED, 2, 2), ("uint_t", UNSIGNED, 4, 4),
    ("ulong_t", UNSIGNED, 8, 4), ("longlong_t", SIGNED, 8, 8), ("u_longlong_t", UNSIGNED, 8, 8),
    ("hrtime_t", SIGNED, 8, 8), ("boolean_t", SIGNED, 4, 4), ("u_int", UNSIGNED, 4, 4), ("__u32", UNSIGNED, 4, 4),
    ("D`uint32_t", UNSIGNED, 4, 4), ("C`size_t", UNSIGNED, 8, 4), ("enum color", SIGNED, 4, 4),
]  # fmt: skip


@pytest.mark.parametrize(("spelling", "signed", "size64", "size32"), INTEGERS)
def test_integers(one_probe: OneProbe, spelling: str, signed: bool, size64: int, size32: int) -> None:
    ctype = one_probe(f"{spelling} x").arguments[0].type
    assert (ctype.kind, ctype.signed, ctype.size64, ctype.size32) == (INTEGER, signed, size64, size32)
    assert (ctype.size(8), ctype.size(4), ctype.is_string) == (size64, size32, False)


@pytest.mark.parametrize(("spelling", "size"), [("float", 4), ("double", 8), ("const double", 8)])
def test_floating_point(one_probe: OneProbe, spelling: str, size: int) -> None:
    ctype = one_probe(spelling).arguments[0].type
    assert (ctype.kind, ctype.size64, ctype.size32) == (FLOAT, size, size)


DECLARATIONS = """
typedef int my_int; typedef my_int my_int2; typedef my_int2 *my_int_p;
typedef unsigned Oid;
typedef struct conn conn_t; typedef conn_t *conn_p;
typedef struct { int x; } anonymous_t;
typedef enum { A, B } letters_t;
typedef char *text_t; typedef const char *const ctext_t; typedef char character;
typedef int vector[4]; typedef struct conn conns[2];
typedef void (*handler)(int); typedef void function(int); typedef function *function_p;
typedef volatile int port;
typedef double real;
typedef int off_t;
"""
# argument -> what the stub takes in the header
PARAMETERS = {
    "char *": "const char *", "const char *": "const char *", "string": "const char *", "text_t": "const char *",
    "ctext_t": "const char *", "character *": "const char *", "char x[16]": "const char *",
    "volatile char *": "const volatile char *",
    "signed char *": "const signed char *", "unsigned char *": "const unsigned char *",
    "uint8_t *": "const unsigned char *", "int *": "const int *", "my_int2 *": "const int *",
    "my_int_p": "const int *", "vector": "const int *", "int x[2]": "const int *", "uint32_t *": "const unsigned int *",
    "port *": "const volatile int *", "volatile int *": "const volatile int *",
    "uint64_t *": "const usdtbuild_uint64 *", "int64_t *": "const usdtbuild_int64 *",
    "long long *": "const usdtbuild_llong *", "size_t *": "const usdtbuild_size *", "double *": "const double *",
    "void *": "const void *", "const void *": "const void *", "volatile void *": "const volatile void *",
    "FILE *": "const void *", "bool *": "const void *", "pid_t *": "const void *", "wchar_t *": "const void *",
    "struct conn *": "const struct conn *", "conn_t *": "const struct conn *", "conn_p": "const struct conn *",
    "conns": "const struct conn *", "union u *": "const union u *", "const struct conn *": "const struct conn *",
    "struct class *": "const void *", "anonymous_t *": "const void *", "enum color *": "const void *",
    "letters_t *": "const void *",
    "char **": "const void *", "conn_p *": "const void *", "text_t *": "const void *", "vector *": "const void *",
    "int x[2][3]": "const void *", "char *names[4]": "const void *", "int (*row)[4]": "const void *",
    "genunix`vnode_t *": "const void *", "struct genunix`vnode *": "const struct vnode *",
    "long double *": "const void *", "va_list *": "const void *", "__int128 *": "const void *",
    "void (*f)(int)": "usdtbuild_function", "handler": "usdtbuild_function", "function_p": "usdtbuild_function",
    "function *": "usdtbuild_function", "function": "usdtbuild_function", "int f(int)": "usdtbuild_function",
    "handler *": "const void *",
    "my_int2": "int", "Oid": "unsigned int", "letters_t": "int", "real": "double", "port": "int",
    "char": "char", "bool": "bool", "long": "long", "unsigned long": "unsigned long",
    "long long": "usdtbuild_int64", "uint64_t": "usdtbuild_uint64", "size_t": "usdtbuild_size",
    "ssize_t": "usdtbuild_ssize", "int16_t": "short", "off_t": "int",
}  # fmt: skip


@pytest.mark.parametrize(("argument", "parameter"), PARAMETERS.items())
def test_what_the_header_declares(one_probe: OneProbe, argument: str, parameter: str) -> None:
    ctype = one_probe(argument, DECLARATIONS).arguments[0].type
    assert ctype.parameter == parameter
    is_pointer = parameter.endswith("*") or parameter == "usdtbuild_function"
    assert (ctype.kind == POINTER) == is_pointer
    assert ctype.is_string == (parameter in ("const char *", "const volatile char *"))
    if is_pointer:
        assert (ctype.size64, ctype.size32) == (8, 4)


def test_a_typedef_may_follow_its_use(one_provider: Callable[..., object]) -> None:
    ((probe,),) = (p.probes for p in parse("provider app { probe p(b x); }; typedef a b; typedef short a;", "app.d"))
    assert probe.arguments[0].type.parameter == "short"


def test_the_file_cannot_redefine_standard_names(one_probe: OneProbe) -> None:
    """A header of the build machine, brought in by -C, must not make an int64_t four bytes long on another machine."""
    declarations = "typedef long __int64_t; typedef __int64_t int64_t; typedef unsigned long size_t;"
    ctype = one_probe("int64_t x, size_t y", declarations).arguments[0].type
    assert (ctype.size64, ctype.size32) == (8, 8)


def test_a_long_chain_of_typedefs_is_followed(one_probe: OneProbe) -> None:
    forward = "typedef char t0;" + "".join(f"typedef t{i} t{i + 1};" for i in range(3000))
    backward = "".join(f"typedef t{i} t{i + 1};" for i in reversed(range(3000))) + "typedef char t0;"
    for declarations in (forward, backward):
        assert one_probe("t3000 *x", declarations).arguments[0].type.is_string


@pytest.mark.parametrize(
    ("argument", "sentence"),
    [
        ("struct conn c", "struct conn is passed by value, which no tracer can read; pass a pointer: struct conn *"),
        ("conn_t c", "struct conn is passed by value, which no tracer can read; pass a pointer: conn_t *"),
        ("union u c", "union u is passed by value, which no tracer can read; pass a pointer: union u *"),
        ("anonymous_t c", "struct is passed by value, which no tracer can read; pass a pointer: anonymous_t *"),
        ("long double x", "long double is no argument that a tracer could read"),
        ("__int128 x", "__int128 is wider than a register; pass two uint64_t"),
        ("unsigned __int128 x", "unsigned __int128 is wider than a register; pass two uint64_t"),
        ("double _Complex x", "_Complex is no argument that a tracer could read"),
        ("va_list ap", "va_list is no value that a tracer could read"),
        ("_Float16 x", "_Float16 is no argument that a tracer could read"),
        ("vec x", "__attribute__ (mode, vector_size) makes a type that only the compiler knows"),
        ("same x", "typeof gives a type that only the compiler knows"),
        ("void x", "an argument can't be void; pass a pointer: void *"),
        ("int, void", "an argument can't be void; pass a pointer: void *"),
        ("FILE f", "an argument can't be FILE; pass a pointer: FILE *"),
        ("nonsense x", "unknown type 'nonsense'; declare it in this file (typedef ... nonsense;)"),
        (
            "nonsense *x",
            "unknown type 'nonsense'; declare it in this file (typedef ... nonsense;), or write 'void *', "
            "which takes any pointer to data",
        ),
        ("genunix`vnode_t v", "nothing says what vnode_t is; a type of another module can only be pointed to"),
        ("loop x", "unknown type"),
        ("short char x", "'short char' is no type"),
        ("unsigned double x", "'unsigned double' is no type"),
        ("long long long x", "'long long long' is no type"),
        ("struct s { int i; } *x", "declare this struct in front of the provider, not in an argument"),
        ("int " + "*" * 130, "the type is 134 characters long, and DTrace takes 127"),
    ],
)
def test_types_that_no_probe_can_take(one_probe: OneProbe, argument: str, sentence: str) -> None:
    more = "typedef float vec __attribute__((vector_size(16))); typedef __typeof__(1) same;"
    more += "typedef l2 loop; typedef loop l2;"
    with pytest.raises(ParseError) as raised:
        one_probe(argument, DECLARATIONS + more)
    assert sentence in raised.value.diagnostics[0].message
