"""Properties: no input breaks the parser, and printing is parsing backwards."""

from __future__ import annotations

from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from usdtbuild.model import Provider
from usdtbuild.provider import describe, documentation, header
from usdtbuild.provider.parser import Diagnostic, ParseError, parse, parse_bytes
from usdtbuild.provider.printer import show

FILES = [path.read_bytes() for path in sorted((Path(__file__).parent / "files").glob("*.d"))]
patient = settings(deadline=None, max_examples=200, suppress_health_check=[HealthCheck.too_slow])

WORDS = """
provider probe typedef struct union enum translator inline int char void unsigned long double float string bool const
volatile app conn_t size_t va_list __int128 _Complex __attribute__((packed)) __extension__ { } ( ) [ ] ; , : * ` . ...
< > - = / # \\ " ' 4 0x7f /* */ // D`int x y z \0 \u00e9 \U0001f600 attributes Evolving/Evolving/Common
""".split()  # noqa: SIM905 - words are easier to read than quotes
FRAGMENTS = [
    *WORDS, "\n", "\t", "#pragma D attributes ", '\n# 12 "x.h" 1\n', "provider a {", "probe b(", "};", "): (",
    "typedef int ",
]  # fmt: skip


def parses_or_complains(data: bytes) -> None:
    diagnostics: tuple[Diagnostic, ...] = ()
    providers: tuple[Provider, ...] = ()
    try:
        providers = parse_bytes(data, "app.d")
    except ParseError as error:
        diagnostics = error.diagnostics
        assert_words(str(error))
    assert all(d.line >= 0 and d.column >= 1 and d.message for d in diagnostics)
    header.write(providers)
    documentation.write(providers)
    if providers:
        assert parse(show(providers), "app.d") == providers


def assert_words(text: str) -> None:
    assert ": error: " in text


@patient
@given(st.binary(max_size=400))
def test_no_bytes_break_the_parser(data: bytes) -> None:
    parses_or_complains(data)


@patient
@given(st.text(max_size=400))
def test_no_text_breaks_the_parser(text: str) -> None:
    parses_or_complains(text.encode("utf-8", "surrogatepass"))


@patient
@given(st.lists(st.sampled_from(FRAGMENTS), max_size=60), st.sampled_from(["", " "]))
def test_no_sequence_of_tokens_breaks_the_parser(tokens: list[str], separator: str) -> None:
    parses_or_complains(separator.join(tokens).encode())


@patient
@given(st.sampled_from(FILES), st.data())
def test_no_damage_to_a_file_breaks_the_parser(content: bytes, data: st.DataObject) -> None:
    """Cut pieces out of a real file, double them, or put something else in their place."""
    for _ in range(data.draw(st.integers(1, 4))):
        start = data.draw(st.integers(0, len(content)))
        end = data.draw(st.integers(start, min(len(content), start + 80)))
        middle = data.draw(
            st.sampled_from([b"", content[start:end] * 2, b"{", b"}", b"(", b")", b";", b"*", b"\0", b'"', b"/*"])
        )
        content = content[:start] + middle + content[end:]
    parses_or_complains(content)


# --- a strategy for provider files ------------------------------------------------------------------------------------

LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_"
ARGUMENT_NAMES = st.sampled_from(["", "fd", "path", "n", "x_1", "string", "probe"])
BASES = st.sampled_from(
    ["int", "char", "unsigned", "long long", "unsigned char", "const char", "volatile int", "double", "float", "bool",
     "size_t", "uint64_t", "string", "struct conn", "union u", "enum color", "D`uint32_t", "alias_t", "opaque_t",
     "handler_t", "row_t", "alias2_t", "letters", "worker_t"]
)  # fmt: skip
DECLARATORS = st.sampled_from(
    ["{n}", "*{n}", "* const {n}", "**{n}", "{n}[4]", "*{n}[2]", "(*{n})(int, char *)", "(*{n})[3]", "( {n} )"]
)
BLANKS = st.sampled_from([" ", "\n", "\t", " /* c */ ", " // c\n", "  "])
COMMENTS = st.one_of(
    st.just(""),
    st.text(max_size=40).map(lambda text: "/*" + text.replace("*/", "* ").replace("\r", "") + " */\n"),
    st.text(alphabet=" *a/\n!#", max_size=20).map(lambda text: "/*" + text.replace("*/", "* ") + " */\n"),
    st.text(max_size=30).map(lambda text: "// " + text.replace("\n", "").replace("\r", "") + "\n"),
    st.lists(st.text(alphabet="abc */ -", max_size=8), max_size=3).map(
        lambda ls: "".join(f"  # {line}\n" for line in ls)
    ),
)
DECLARATIONS = """
typedef unsigned alias_t; typedef alias_t alias2_t; typedef struct { int x; } opaque_t; typedef void (*handler_t)(int);
typedef int row_t[4]; typedef enum { RED } letters; typedef pid_t worker_t;
"""


@st.composite
def arguments(draw: st.DrawFn, name: str) -> str:
    base, declarator = draw(BASES), draw(DECLARATORS)
    if base in ("struct conn", "union u", "opaque_t") and declarator in ("{n}", "( {n} )"):
        declarator = "*{n}"
    if base == "row_t" and declarator == "(*{n})(int, char *)":
        declarator = "*{n}"  # C has no function that returns an array
    if not name and declarator == "( {n} )":
        declarator = "{n}"
    return f"{base} {declarator.format(n=name)}"


@st.composite
def provider_files(draw: st.DrawFn) -> str:
    names = st.text(alphabet=LETTERS, min_size=1, max_size=12)
    provider_name = draw(names.map(lambda name: "x" + name.replace("_", "x")))
    probes = []
    for number, name in enumerate(draw(st.lists(names, max_size=5))):
        called = st.lists(ARGUMENT_NAMES, max_size=5, unique_by=lambda name: name or object())
        listed = [draw(arguments(name)) for name in draw(called)]
        blank = draw(BLANKS)
        # The number in front keeps macros apart, whatever the names.
        probes.append(f"{draw(COMMENTS)}probe{blank}p{number}x{name}({(',' + blank).join(listed)});\n")
    pragma = draw(st.sampled_from(["", f"#pragma D attributes Evolving/Private/ISA provider {provider_name} name\n"]))
    body = "".join(probes)
    return f"{pragma}{DECLARATIONS}{draw(COMMENTS)}provider{draw(BLANKS)}{provider_name} {{\n{body}}};\n"


@patient
@given(provider_files())
def test_printing_is_parsing_backwards(text: str) -> None:
    providers = parse(text, "app.d")
    printed = show(providers)
    assert parse(printed, "app.d") == providers
    assert show(parse(printed, "app.d")) == printed


@patient
@given(provider_files())
def test_what_the_header_carries_is_what_the_file_says(text: str) -> None:
    providers = parse(text, "app.d")
    for provider in providers:
        assert describe.decode(describe.encode(provider)) == {
            provider.name: (provider.bare(), describe.digest(provider))
        }
