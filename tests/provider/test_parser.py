"""The provider language, one test for each line of the list of what files contain."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from usdtbuild.model import Argument, Attribute, Attributes, Probe, Provider, Translated
from usdtbuild.provider.parser import Diagnostic, ParseError, parse, parse_bytes

OneProvider = Callable[[str], Provider]
OneProbe = Callable[..., Probe]


def names(text: str) -> list[tuple[str, list[str]]]:
    return [(p.name, [probe.written for probe in p.probes]) for p in parse(text, "app.d")]


def written(arguments: tuple[Argument, ...]) -> list[tuple[str, str]]:
    return [(argument.type.spelling, argument.name) for argument in arguments]


# --- the file ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "provider app { probe a(); probe b(int); };",
        "provider app{probe a();probe b(int);};",
        "provider\napp\n{\nprobe\na\n(\n)\n;probe b ( int ) ;\n}\n;\n",
        "provider app { probe a(); probe b(int); }",
        "provider app { probe a(); probe b(int) }",
        "provider app { ; probe a();; probe b(int);; };;",
        "\ufeffprovider app { probe a(); probe b(int); };",
        "provider app {\r\n  probe a();\r\n  probe b(int);\r\n};\r\n",
        "provider app {\r// a comment\r  probe a();\r  probe b(int);\r};",
        "provider\tapp\v{\fprobe a(); probe b(int); };",
    ],
    ids=[
        "plain", "no blanks", "a token a line", "no semicolon behind the brace", "no semicolon behind a probe",
        "empty statements", "byte order mark", "CRLF", "CR", "other blanks",
    ],
)  # fmt: skip
def test_layout_means_nothing(text: str) -> None:
    (provider,) = parse_bytes(text.encode(), "app.d")
    assert [probe.written for probe in provider.probes] == ["a", "b"]


@pytest.mark.parametrize(
    "text",
    [
        "", "\n", "/* nothing */", "BEGIN{}", 'BEGIN { trace("}"); }\n', "#!/usr/sbin/dtrace", "typedef int fd_t;",
        '#!/usr/bin/env bpftrace\nusdt:./app:app:a { printf("%d\\n", arg0); }\n',
        '# include the others\n# 12 monkeys\n# if in doubt\n#99999999999999999999 "x"\n',
    ],
)  # fmt: skip
def test_a_file_without_a_provider_is_no_provider_file(text: str) -> None:
    with pytest.raises(ParseError, match=r"app.d:1:1: error: no provider is in this file") as raised:
        parse(text, "app.d")
    assert len(raised.value.diagnostics) == 1
    warnings: list[Diagnostic] = []
    assert parse(text, "app.d", warnings.append) == ()  # SystemTap's dtrace takes it
    assert len(warnings) == 1


def test_a_provider_may_hold_no_probe(one_provider: OneProvider) -> None:
    assert one_provider("provider app { };").probes == ()


def test_several_providers_stay_in_their_order() -> None:
    assert names("provider b { probe x(); }; provider a { probe x(); probe y(); }\nprovider c {}") == [
        ("b", ["x"]), ("a", ["x", "y"]), ("c", []),
    ]  # fmt: skip


def test_a_provider_may_be_declared_again_with_probes_it_has() -> None:
    assert names("provider a { probe x(int i); probe y(); }; provider a { probe x(int i); };") == [("a", ["x", "y"])]


@pytest.mark.parametrize("name", ["APP", "lz4", "my_app", "my__app", "Provider", "probe", "struct", "_app", "x"])
def test_provider_names(one_provider: OneProvider, name: str) -> None:
    assert one_provider(f"provider {name} {{ probe a(); }};").name == name


@pytest.mark.parametrize(
    "name",
    ["error", "raise", "exit", "trace", "probe", "provider", "int", "typedef", "string", "printf", "BEGIN", "_x"],
)
def test_probe_names_may_be_keywords_elsewhere(one_provider: OneProvider, name: str) -> None:
    assert one_provider(f"provider app {{ probe {name}(); }};").probes[0].written == name


def test_two_underscores_are_a_dash_to_dtrace_from_left_to_right(one_provider: OneProvider) -> None:
    probes = one_provider("provider my__app { probe req__done(); probe a___b(); probe c____d(); };").probes
    assert [probe.name for probe in probes] == ["req-done", "a-_b", "c--d"]
    assert [probe.sdt_name for probe in probes] == ["req__done", "a___b", "c____d"]


# --- comments ---------------------------------------------------------------------------------------------------------


def test_comments_of_every_kind_are_blanks() -> None:
    text = (
        "#!/usr/sbin/dtrace -s\n# hash, with an apostrophe: don't\n// slashes { ; */\n/* C\n * probe no(); */\n"
        "provider /* a */ app // b\n{ # inside\n  # again }\n probe /* c */ a(int /* fd */ x, // d\n char *y # e\n);\n"
        "  #probe off();\n  # include the others\n /**/ probe b(/* nothing */); /* no end of line */ } # end"
    )
    (provider,) = parse(text, "app.d")
    assert [(probe.written, written(probe.arguments)) for probe in provider.probes] == [
        ("a", [("int", "x"), ("char *", "y")]), ("b", []),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("above", "comment"),
    [
        ("/* One line. */\n", "One line."),
        ("  // Slashes.\n  /// And more.\n", "Slashes.\nAnd more."),
        ("# Hash.\n", "Hash."),
        ("/** Doxygen. */\n", "Doxygen."),
        ("/*! Doxygen, too. */\n", "Doxygen, too."),
        ("/*\n\t * First.\n\t *\n\t *   Second, in.\n\t */\n", "First.\n\n  Second, in."),
        ("/* First.\n   Second.\n */\n", "First.\nSecond."),
        ("/*\n  - no star\n  - down the side\n*/\n", "- no star\n- down the side"),
        ("/* On its line. */ ", "On its line."),
        ("/* Apart. */\n\n", ""),
        ("probe z(int); /* Behind another probe. */\n", ""),
        ("/* Far. */\n\n/* Near. */\n", "Near."),
        ("/**/\n", ""),
        ("// An end */ in it.\n", "An end * / in it."),
        ("/* Bell \a and tab\tkept apart. */\n", "Bell   and tab       kept apart."),
    ],
)
def test_the_comment_directly_above_a_probe_is_kept(one_provider: OneProvider, above: str, comment: str) -> None:
    probe = one_provider("provider app {\n" + above + "probe a(int x);\n};").probes[-1]
    assert (probe.written, probe.comment) == ("a", comment)


def test_the_comment_directly_above_a_provider_is_kept(one_provider: OneProvider) -> None:
    assert one_provider("/* Licence. */\n\n/* What it traces. */\nprovider app {};").comment == "What it traces."


# --- what stands outside of providers ---------------------------------------------------------------------------------

OUTSIDE = [
    "struct conn { int fd; struct { char c; } inner; };",
    "union u { int i; float f; };",
    "enum color { RED, GREEN = 3, };",
    "struct { int anonymous; };",
    "enum { A, B };",
    "struct conn;",
    "struct point { int x; } origin, *here;",
    "typedef int my_int;",
    "typedef struct conn { int fd; } conn_t, *conn_p;",
    "typedef struct { int fd; } conn_t;",
    "typedef enum { X, Y } xy;",
    "typedef enum color color_t;",
    "typedef union { int i; } u_t;",
    "typedef int vector[4], matrix[4][4];",
    "typedef void (*handler)(int, char *, ...);",
    "typedef int (*(*factory)(void))(int);",
    "typedef int (plain);",
    "typedef int function(int);",
    "typedef struct packed { char c; } __attribute__((packed)) packed_t;",
    "__extension__ typedef long long wide;",
    "typedef enum small : unsigned char { S } small_t;",
    'translator psinfo_t < struct x *p > { pr_fd = p->fd; pr_name = "}"; };',
    "translator lwp_t <int *p> { x = *p; }",
    "inline int LIMIT = 3;",
    'inline string name = "a;b";',
    "extern int printf(const char *, ...) __attribute__((format(printf, 1, 2)));",
    "static inline int twice(int x) { return x * 2; }",
    "int table[] = { 1, 2, { 3 } };",
    '_Static_assert(sizeof(int) == 4, "int; {");',
    'extern int renamed(void) __asm__("other");',
    "#pragma D option quiet",
    "#pragma D depends_on library net.d",
    '#pragma ident "@(#)app.d 1.2"',
    "#pragma D attributes Evolving/Evolving/Common variable",
    '#pragma D binding "1.0" variable',
    '#pragma whatever { ; "',
    "#pragma",
    '#ident "x"',
    'syscall::read:entry /execname == "app"/ { @[probefunc] = count(); }',
    'BEGIN { x = \'a\'; y = "\\"}"; }',
    "self int depth;",
]


@pytest.mark.parametrize("declaration", OUTSIDE)
@pytest.mark.parametrize("place", ["before", "behind"])
def test_other_declarations_may_stand_around_the_provider(declaration: str, place: str) -> None:
    provider = "provider app { probe a(int); };"
    text = f"{declaration}\n{provider}" if place == "before" else f"{provider}\n{declaration}"
    assert names(text) == [("app", ["a"])]


# --- arguments --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("arguments", ["", "void", " void ", "/* none */"])
def test_no_arguments(one_probe: OneProbe, arguments: str) -> None:
    assert one_probe(arguments).arguments == ()


@pytest.mark.parametrize(
    ("argument", "spelling", "name"),
    [
        ("int", "int", ""),
        ("int fd", "int", "fd"),
        ("char *", "char *", ""),
        ("char*path", "char *", "path"),
        ("const  char\n* path", "const char *", "path"),
        ("char const *p", "char const *", "p"),
        ("const char *const p", "const char *const", "p"),
        ("char *const *p", "char *const *", "p"),
        ("char **argv", "char **", "argv"),
        ("char * * * p", "char ***", "p"),
        ("char *restrict p", "char *restrict", "p"),
        ("char *__restrict p", "char *restrict", "p"),
        ("volatile int *v", "volatile int *", "v"),
        ("register int r", "int", "r"),
        ("unsigned", "unsigned", ""),
        ("unsigned u", "unsigned", "u"),
        ("long long int signed x", "long long int signed", "x"),
        ("struct conn *c", "struct conn *", "c"),
        ("union u *c", "union u *", "c"),
        ("enum color c", "enum color", "c"),
        ("string s", "string", "s"),
        ("string", "string", ""),
        ("bool on", "bool", "on"),
        ("D`uint32_t n", "D`uint32_t", "n"),
        ("genunix`vnode_t *v", "genunix`vnode_t *", "v"),
        ("struct genunix`vnode *v", "struct genunix`vnode *", "v"),
        ("`cred_t *c", "`cred_t *", "c"),
        ("userland char *s", "char *", "s"),
        ("int[4]", "int [4]", ""),
        ("int x[4]", "int [4]", "x"),
        ("int x[]", "int []", "x"),
        ("int x[sizeof (int) * 2][3]", "int [sizeof ( int ) * 2][3]", "x"),
        ("char *names[8]", "char *[8]", "names"),
        ("int (*row)[4]", "int (*)[4]", "row"),
        ("void (*f)(int, char *s)", "void (*)(int, char *)", "f"),
        ("void (*)(void)", "void (*)(void)", ""),
        ("int (*f)(const char *, ...)", "int (*)(const char *, ...)", "f"),
        ("int *(*f)(void (*)(int))", "int *(*)(void (*)(int))", "f"),
        ("int f(int)", "int (int)", "f"),
        ("int (x)", "int", "x"),
        ("int *(x)", "int *", "x"),
        ("char *s __attribute__((unused))", "char *", "s"),
        ("char *string", "char *", "string"),
        ("int probe", "int", "probe"),
    ],
)
def test_an_argument_keeps_its_spelling_and_name(one_probe: OneProbe, argument: str, spelling: str, name: str) -> None:
    assert written(one_probe(argument).arguments) == [(spelling, name)]
    assert written(one_probe(f"int, {argument}, long last").arguments)[1:] == [(spelling, name), ("long", "last")]


def test_255_arguments(one_probe: OneProbe) -> None:
    assert len(one_probe(", ".join(f"int a{i}" for i in range(255))).arguments) == 255


@pytest.mark.parametrize(
    ("translated", "expected"),
    [
        ("(foo_t *b, string a)", (("foo_t *", "b", 1), ("string", "a", 0))),
        ("(foo_t *b, bar_t *b)", (("foo_t *", "b", 1), ("bar_t *", "b", 1))),
        ("(foo_t, bar_t *)", (("foo_t", "", 0), ("bar_t *", "", 1))),
        ("(struct info b)", (("struct info", "b", 1),)),
        ("()", ()),
        ("(void)", ()),
    ],
)
def test_translated_arguments_name_where_they_come_from(
    one_provider: OneProvider, translated: str, expected: tuple[tuple[str, str, int], ...]
) -> None:
    for semicolon in (";", ""):
        (probe,) = one_provider(f"provider app {{ probe p(int a, char *b) : {translated}{semicolon} }};").probes
        assert probe.translated == tuple(Translated(*item) for item in expected)


def test_without_translation_there_is_none(one_probe: OneProbe) -> None:
    assert one_probe("int a").translated is None


# --- attributes -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("place", ["{pragma}\n{provider}", "{provider}\n{pragma}", "{provider}\n  #\tpragma {rest}"])
def test_attributes_stand_before_or_behind_the_provider(one_provider: OneProvider, place: str) -> None:
    rest = "D attributes Evolving/Private/ISA provider app function"
    text = place.format(pragma=f"#pragma {rest}", rest=rest, provider="provider app { probe a(); };")
    assert one_provider(text).attributes == Attributes(function=Attribute(5, 1, 3 + 1))


@pytest.mark.parametrize("part", Attributes._fields)
def test_every_part_has_its_attribute(one_provider: OneProvider, part: str) -> None:
    provider = one_provider(f"provider app {{}}\n#pragma D attributes Stable/Standard/CPU provider app {part}")
    assert provider.attributes == Attributes()._replace(**{part: Attribute(6, 7, 1)})


@pytest.mark.parametrize(
    "rest", ["evolving/EVOLVING/common provider app args", "EVOLVING/Evolving/COMMON Provider app ARGS"]
)
def test_attributes_are_read_in_any_case(one_provider: OneProvider, rest: str) -> None:
    attributes = one_provider(f"provider app {{}}\n#pragma D attributes {rest}\n").attributes
    assert attributes.args == Attribute(5, 5, 5)


def test_stability_numbers_are_those_of_dof(one_provider: OneProvider) -> None:
    words = ["Internal", "Private", "Obsolete", "External", "Unstable", "Evolving", "Stable", "Standard"]
    classes = ["Unknown", "CPU", "Platform", "Group", "ISA", "Common"]
    for number, word in enumerate(words):
        dependency = min(number, 5)
        pragma = f"#pragma D attributes {word}/{word}/{classes[dependency]} provider app name"
        assert one_provider(f"{pragma}\nprovider app {{}}").attributes.name == Attribute(number, number, dependency)


def test_no_attributes_are_unstable_unstable_common(one_provider: OneProvider) -> None:
    assert {attribute.encode() for attribute in one_provider("provider app {}").attributes} == {0x04040500}


def test_the_last_of_two_attributes_counts_and_comments_in_pragmas_do_not(one_provider: OneProvider) -> None:
    text = (
        "provider app {}\n#pragma D attributes Stable/Stable/CPU provider app name\n"
        "#pragma D attributes /* now */ Evolving/Evolving/ISA provider \\\n app name // done\n"
    )
    assert one_provider(text).attributes.name == Attribute(5, 5, 4)


# --- text from the C preprocessor -------------------------------------------------------------------------------------


def test_line_markers_are_not_code_and_types_of_included_files_count() -> None:
    text = (
        '# 1 "app.d"\n# 1 "<built-in>"\n# 1 "types.h" 1 3 4\ntypedef unsigned long Oid;\n# 2 "app.d" 2\n'
        'provider app {\n#line 9 "app.d"\nprobe a(Oid o);\n};\n'
    )
    (provider,) = parse(text, "app.d")
    assert provider.probes[0].arguments[0].type.size64 == 8
