"""Every error of the provider language: its sentence, its place, and that the parser goes on behind it."""

from __future__ import annotations

import time

import pytest

from usdtbuild.errors import InputError, UsdtError
from usdtbuild.provider.parser import ParseError, parse, parse_bytes, parse_file


def errors(text: str, path: str = "app.d") -> list[tuple[int, int, str]]:
    with pytest.raises(ParseError) as raised:
        parse(text, path)
    assert isinstance(raised.value, UsdtError)
    return [(d.line, d.column, d.message) for d in raised.value.diagnostics]


LONG = "x" * 64

NO_OBJECTS = (
    "tracers read numbers and text, no C++ objects: declare 'const char *' and pass text.c_str(), or pass a number"
)
NO_REFERENCES = "there are no references here: declare the value itself, or a pointer ('*')"
LETTERS = "'{}' in the name '{}': names have the letters a to z, digits and '_', also in upper case"
# In each text a « stands where the error is.
ONE_ERROR = [
    # names
    (f"provider «{LONG} {{}};", "provider name is 64 characters long, and DTrace takes 53"),
    (f"provider «{'x' * 54} {{}};", "provider name is 54 characters long, and DTrace takes 53"),
    ("provider «pid {};", "provider name 'pid' is taken: DTrace's own pid provider has it"),
    ("provider «a___b {};", "provider name 'a___b' contains '___', which separates provider and probe in symbols"),
    ("provider «app_ {};", "provider name 'app_' ends in '_', which separates provider and probe in symbols"),
    (f"provider app {{ probe «{LONG}(); }};", "probe name is 64 characters long, and DTrace takes 63"),
    ("provider «{ probe a(); };", "expected the provider's name, found '{'"),
    ('provider «"app" {};', "expected the provider's name, found '\"app\"'"),
    ("provider «3app {};", "expected the provider's name, found '3app'"),
    ("provider a«`b {};", "expected '{' after provider a, found '`'"),
    ("provider app { probe req«-done(); };", "a probe's name is an identifier; write '__' for '-'"),
    ("provider app { probe «(int); };", "expected the probe's name, found '('"),
    # punctuation
    ("provider app«;", "expected '{' after provider app, found ';'"),
    ("provider app «probe a(); };", "expected '{' after provider app, found 'probe'"),
    ("provider app «{ probe a();", "this '{' of provider app is never closed"),
    ("provider app «probe a();", "expected '{' after provider app, found 'probe'"),
    ("provider app { probe a(int a «= 3); };",
     "expected ')' or ',' after the argument, found '='; a probe's arguments have no default values"),
    ("provider app { probe a(char[16] «x); };",
     "expected ')' or ',' after the argument, found 'x'; an array's size stands behind its name: x[...]"),
    ("provider app { probe a(«u8 x); };", "unknown type 'u8'; write 'uint8_t'"),
    ("provider app { probe a(«str s); };", "unknown type 'str'; write 'const char *'"),
    ("provider app { probe a(«str *s); };", "unknown type 'str'; declare it in this file (typedef ... str;), or "
     "write 'void *', which takes any pointer to data"),
    ("provider app«", "expected '{' after provider app, found the end of the file"),
    ("provider«\n", "expected the provider's name, found the end of the file"),
    ("provider app { probe a«; };", "expected '(', as in: probe a();"),
    ("provider app { probe a«}; };", "expected '(', as in: probe a();"),
    ("provider app { probe a() «int; };", "expected ';' after probe a, found 'int'"),
    ("provider app { probe a()« probe b(); };", "expected ';' after probe a, found 'probe'"),
    ("provider app {\n  probe a()« // a\n  probe b();\n};", "expected ';' after probe a, found 'probe'"),
    ("provider app { probe a(int) : (long)« probe b(); };", "expected ';' after probe a, found 'probe'"),
    ("provider app { probe a(int«; };", "expected ')' or ',' after the argument, found ';'"),
    ("provider app { probe a(int x «int y); };", "expected ')' or ',' after the argument, found 'int'"),
    ("provider app { probe a(int,«); };", "expected a type, found ')'"),
    ("provider app { probe a(«, int); };", "expected a type, found ','"),
    ("provider app { probe a(«4); };", "expected a type, found '4'"),
    ('provider app { probe a(int x["«4"]); };'.replace('"«4"', '«"4"'), "expected the array's size"),
    ("provider app { probe a(int x«[4); };", "this '[' is never closed"),
    ("provider app { probe a(struct «*x); };", "expected the name of the struct, found '*'"),
    ("provider app { probe a(int a) : «int b; };", "expected '(' before the translated arguments, found 'int'"),
    ("provider app { «int x; };", "expected 'probe', found 'int'"),
    ("provider app {\n«#define X 1\n};", "'#define' is for the C preprocessor, which the option -C runs"),
    (
        "«#include <stdint.h>\nprovider app {};",
        "'#include' is for the C preprocessor, which the option -C runs; or leave it out: C's standard types are "
        "known, and others are declared here",
    ),
    # what somebody writes who thinks of C++
    (
        "provider my«-app { probe a(); };",
        "expected '{' after provider my, found '-'; a provider's name is an identifier: write my_app",
    ),
    ("provider app { probe a(std«::string s); };", f"expected ')' or ',' after the argument, found ':'; {NO_OBJECTS}"),
    ("provider app { probe a(vector«<int> v); };", f"expected ')' or ',' after the argument, found '<'; {NO_OBJECTS}"),
    ("provider app { probe a(int «&x); };", f"expected ')' or ',' after the argument, found '&'; {NO_REFERENCES}"),
    (
        "provider app { probe a(class Foo «*x); };",
        "expected ')' or ',' after the argument, found '*'; declare it as 'struct Foo *', which any pointer to an "
        "object becomes",
    ),
    ("«#if 1 \\\n || 2\nprovider app {};", "'#if' is for the C preprocessor, which the option -C runs"),
    ("provider app { probe a(); «\\ };", r"stray character '\\'"),
    ("provider app { probe «\u00e9(); };", LETTERS.format("\u00e9", "\u00e9")),
    ("provider app { probe gr«\u00f6\u00dfe(int x); };", LETTERS.format("\u00f6", "gr\u00f6\u00dfe")),
    ("provider app { probe a(int gr«\u00f6\u00dfe, int b); };", LETTERS.format("\u00f6", "gr\u00f6\u00dfe")),
    ("provider app { probe a(int o«\u0308l); };", LETTERS.format("\u0308", "o\u0308l")),
    ("provider gr«\u00f6\u00dfe { probe a(int b); };", LETTERS.format("\u00f6", "gr\u00f6\u00dfe")),
    ("provider app {};\n«/* provider", "this comment never ends: '*/' is missing"),
    ("#pragma D «/* option\nprovider app {};", "this comment never ends: '*/' is missing"),
    ('BEGIN { x = «"abc;\n}', 'this string never ends: " is missing'),
    ("struct x «{ int i;\nprovider app {};", "this '{' is never closed"),
    ("«porvider app { probe a(); };", "expected 'provider', found 'porvider'"),
    ("«probe a();", "this probe is outside of a provider: provider NAME { probe ...; };"),
    ("«stray provider app {};", "stray 'stray' in front of the provider"),
    ("provider app { probe a(); }; int x; «stray text", "stray 'stray' behind the providers: no ';' ends it"),
    ("provider app { probe a(int); }; «};", "stray '}': no brace is open here"),
    ("provider app { probe a(int); } «} provider b { probe b(); };", "stray '}': no brace is open here"),
    ("int x «}; provider app { probe a(int); };", "stray '}': no brace is open here"),
    ("provider app { probe a(int x, long y, «int x); };", "probe 'a' has two arguments named 'x'"),
    ("typedef int «;", "expected the new type's name, found ';'"),
    ("typedef «;", "expected a type, found ';'"),
    ("typedef int a «b;", "expected ';' after typedef a, found 'b'"),
    ("typedef int a; typedef long «a; provider app {};", "type 'a' is defined twice, and differently"),
    # probes
    ("provider app { probe a(); probe «a(int); };", "probe 'a' is declared twice in provider app"),
    ("provider app { probe a(int); }; provider app { probe «a(); };",
     "provider app is declared already, and has no such probe"),
    ("provider app { probe a(); }; provider app { probe a(); probe «b(); };",
     "provider app is declared already, and has no such probe"),
    ("provider app { probe a_b(); probe «a__b(); };", "probes app:a_b and app:a__b would both be the macro APP_A_B"),
    ("provider app { probe a(); probe «a_enabled(); };",
     "probes app:a and app:a_enabled would both be the macro APP_A_ENABLED"),
    ("provider app { probe a(); }; provider APP { probe «a(); };",
     "probes app:a and APP:a would both be the macro APP_A"),
    ("provider app { probe a_b(); }; provider app_a { probe «b(); };",
     "probes app:a_b and app_a:b would both be the macro APP_A_B"),
    (f"provider app {{ probe «a({', '.join(['int'] * 256)}); }};", "probe 'a' has 256 arguments, and DTrace takes 255"),
    (f"provider app {{ probe «a(int x) : ({', '.join(['int x'] * 256)}); }};",
     "probe 'a' has 256 translated arguments, and DTrace takes 255"),
    ("provider app { probe a(int x, «...); };", "a probe has a fixed number of arguments"),
    ("provider app { probe a(int x) : («foo_t *y); };",
     "translated argument 'y' has no argument of that name to come from"),
    ("provider app { probe a(int x) : (foo_t, «foo_t); };", "translated argument 2 has no argument to come from"),
    ("provider app { probe a(int x, «nonsense y); };",
     "unknown type 'nonsense'; declare it in this file (typedef ... nonsense;)"),
    ("provider app { probe a(«intt x); };",
     "unknown type 'intt'; did you mean 'int'? Else declare it in this file (typedef ... intt;)"),
    ("provider app { probe a(«uint46_t x); };",
     "unknown type 'uint46_t'; did you mean 'uint64_t'? Else declare it in this file (typedef ... uint46_t;)"),
    ("provider app { probe a(int x, «struct s y); };",
     "struct s is passed by value, which no tracer can read; pass a pointer: struct s *"),
    # attributes
    ("#pragma D attributes «Evolving/Evolving provider app args\nprovider app {};",
     "'Evolving/Evolving' is no attribute; write NAME/DATA/CLASS, as in Evolving/Evolving/Common"),
    ("#pragma D attributes «Evolvin/Evolving/Common provider app args\nprovider app {};",
     "'evolvin' is no stability; choose one of Internal, Private, Obsolete, External, Unstable, Evolving, Stable, "
     "Standard"),
    ("#pragma D attributes «Evolving/Evolving/Comon provider app args\nprovider app {};",
     "'comon' is no class; choose one of Unknown, CPU, Platform, Group, ISA, Common"),
    ("#pragma D attributes Stable/Stable/ISA provider app «arguments\nprovider app {};",
     "'arguments' is no part of a provider; the parts are provider, module, function, name, args"),
    ("#pragma D attributes Stable/Stable/ISA provider «ap args\nprovider app {};",
     "no provider 'ap' is declared in this file"),
    ("#«pragma D attributes Stable/Stable/ISA provider app\nprovider app {};",
     "expected '#pragma D attributes NAME/DATA/CLASS provider PROVIDER PART'"),
    ("#«pragma D attributes\nprovider app {};",
     "expected '#pragma D attributes NAME/DATA/CLASS provider PROVIDER PART'"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "message"), ONE_ERROR)
def test_an_error_has_its_sentence_and_its_place(text: str, message: str) -> None:
    before, _, after = text.partition("«")
    line, column = before.count("\n") + 1, len(before) - (before.rfind("\n") + 1) + 1
    found = errors(before + after)
    assert found[0][:2] == (line, column)
    assert [item[2] for item in found] == [message]


def test_several_errors_are_reported_in_the_order_of_the_file() -> None:
    text = (
        "typedef nonsense;\n"
        "provider app {\n"
        "  probe a(nonsense x, other y);\n"
        "  probe b-c();\n"
        "  probe good(int x);\n"
        "  probe d(int;\n"
        "  probe good(int x);\n"
        "};\n"
        "provider pid {\n"
        "  probe e(struct s x);\n"
        "  probe f(short char x);\n"
        "};\n"
    )
    assert [(line, column) for line, column, _ in errors(text)] == [
        (1, 17), (3, 11), (3, 23), (4, 10), (6, 14), (7, 9), (9, 10), (10, 11), (11, 11),
    ]  # fmt: skip


def test_of_lines_for_the_preprocessor_the_first_is_told() -> None:
    assert [line for line, _, said in errors("#ifndef A\n#define A\n#endif\n") if "preprocessor" in said] == [1]


def test_a_missing_brace_does_not_swallow_the_next_provider() -> None:
    found = errors("provider a { probe x(); \nprovider b { probe y(nonsense n); };")
    assert [item[:2] for item in found] == [(2, 1), (2, 22)]


def test_the_parser_gives_up_after_twenty_errors() -> None:
    found = errors("provider app {" + "".join(f"probe p{i}x(nonsense x);\n" for i in range(100)) + "};")
    assert len(found) == 20


def test_an_error_looks_like_a_compilers() -> None:
    with pytest.raises(ParseError) as raised:
        parse("provider app {\n\tprobe a(int x,\tnonsense y);\n};\n", "some/app.d")
    assert str(raised.value) == (
        "some/app.d:2:17: error: unknown type 'nonsense'; declare it in this file (typedef ... nonsense;)\n"
        "  \tprobe a(int x,\tnonsense y);\n"
        "  \t              \t^"
    )


def test_a_long_line_is_shown_around_the_error() -> None:
    with pytest.raises(ParseError) as raised:
        parse("provider app { probe a(" + "int, " * 140 + "nonsense y" + ", int" * 100 + "); };", "app.d")
    place, source, caret = str(raised.value).split("\n")
    assert place.startswith("app.d:1:724: error:")
    assert len(source) <= 122
    assert source[caret.index("^") :].startswith("nonsense y")


def test_control_characters_do_not_reach_the_terminal() -> None:
    with pytest.raises(ParseError) as raised:
        parse("provider app { /* \x1b[2J\x07 */ probe a(nonsense \x1b x); };", "app.d")
    assert "\x1b" not in str(raised.value)
    assert "\x07" not in str(raised.value)


def test_line_markers_say_where_an_error_really_is() -> None:
    text = '# 1 "app.d"\n# 30 "include/types.h" 1\ntypedef ;\n# 2 "app.d" 2\n\n'
    text += "provider app {\n  probe a(nonsense x);\n};\n"
    with pytest.raises(ParseError) as raised:
        parse(text, "given.d")
    assert [(d.path, d.line, d.column) for d in raised.value.diagnostics] == [
        ("include/types.h", 30, 9), ("app.d", 4, 11),
    ]  # fmt: skip


def test_bytes_that_are_no_text_are_an_error_outside_of_comments_only() -> None:
    (provider,) = parse_bytes(b"/* caf\xe9 */ provider app { probe a(); };", "app.d")
    assert provider.name == "app"
    with pytest.raises(ParseError, match="stray character"):
        parse_bytes(b"provider caf\xe9 { probe a(); };", "app.d")
    with pytest.raises(ParseError, match="stray character"):
        parse_bytes("provider app { probe a(); };".encode("utf-16"), "app.d")


def test_a_file_that_cannot_be_read_is_named(tmp_path: object) -> None:
    with pytest.raises(InputError, match=r"nowhere\.d: no such file or directory"):
        parse_file(f"{tmp_path}/nowhere.d")
    with pytest.raises(InputError, match="is a directory"):
        parse_file(str(tmp_path))


def test_an_error_behind_many_line_markers_is_found_at_once() -> None:
    """As `-C` leaves them; processor time, so that a busy machine is no failure."""
    began = time.process_time()
    with pytest.raises(ParseError) as caught:
        parse('# 7 "x.d"\n' * 50_000 + "provider app { probe }", "big.d")
    assert str(caught.value).startswith("x.d:7:22: ")
    assert time.process_time() - began < 1.5
