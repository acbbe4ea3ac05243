"""Programs of functions with random signatures, which write down themselves what each was called with and returned.

A caller writes a line of JSON for each call, `["f3", {"a.x": 1, ...}]`, and one for each result. Functions are
optimized as they may be: some arguments and results aren't used, some are constants, some functions are called from
their file alone.
"""

from __future__ import annotations

import random
from typing import NamedTuple

HEAD = r"""
#include <stdio.h>
#include <string.h>
#include <stdint.h>
static FILE *out;
static volatile long seed = 1;
static long next(void) { seed = seed * 6364136223846793005L + 1442695040888963407L; return seed >> 20; }
static void number(const char *key, long long value) { fprintf(out, "\"%s\":%lld,", key, value); }
static void unsigned_number(const char *key, unsigned long long value) { fprintf(out, "\"%s\":%llu,", key, value); }
static void real(const char *key, double value) {
    if (value != value || value - value != 0)
        fprintf(out, "\"%s\":{\"float\":\"%s\"},", key, value != value ? "nan" : value < 0 ? "-inf" : "inf");
    else
        fprintf(out, "\"%s\":%.17g,", key, value);
}
static void text(const char *key, const char *value) { fprintf(out, "\"%s\":\"%s\",", key, value); }
static void place(const char *key, const volatile void *value) {
    fprintf(out, "\"%s\":{\"pointer\":\"0x%lx\"},", key, (long)value);
}
static void truth(const char *key, int value) { fprintf(out, "\"%s\":%s,", key, value ? "true" : "false"); }
static void begin(const char *name) { fprintf(out, "[\"%s\",{", name); }
static void end(void) { fprintf(out, "\"\":0}]\n"); fflush(out); }
static const char *const texts[] = {"", "a", "abc", "a longer text of some forty characters", "x=1, y"};
__attribute__((noinline, noclone)) static void sink(const volatile void *p) {
    __asm__ volatile("" : : "r"(p) : "memory");
}
enum colour { RED, GREEN = 5, BLUE };
struct two { int x; int y; };
struct floats { float a; float b; };
struct mixed { double d; int i; };
struct three { long a; long b; long c; };
struct small { char c; short s; };
struct nested { struct two in; int z; };
struct odd { float f; double d; };
struct __attribute__((packed)) packed { char c; int i; };
struct bits { unsigned a : 3; unsigned b : 20; int whole; };
struct pointed { const char *name; long n; };
struct four { float a, b, c, d; };
struct wide { __int128 w; };
union either { int i; float f; };
"""
CXX = r"""
#include <string>
#include <string_view>
#include <memory>
#include <vector>
enum class level : unsigned char { LOW, HIGH = 200 };
struct empty {};
struct owned {
    int v;
    owned(int v) : v(v) {}
    owned(const owned &o) : v(o.v) { sink(this); }
    ~owned() { sink(this); }
};
struct base { int b; };
struct derived : base { int d; };
struct defaulted { int v; defaulted() = default; defaulted(const defaulted &) = default; ~defaulted() = default; };
struct shaped { virtual ~shaped() {} int s = 0; };
struct moved {
    int v;
    moved(int v) : v(v) {}
    moved(moved &&o) : v(o.v) { sink(this); }
    moved(const moved &) = default;
};
template <typename T> struct pair_of { T first; T second; };
"""


class Kind(NamedTuple):
    """A type: how it is declared, how a value is made of `next()`, and what is written down of a value called NAME."""

    type: str
    make: str
    said: tuple[tuple[str, str, str], ...]  # suffix of the key, function, expression
    use: str = ""  # an expression of a number that depends on it


def scalar(type_: str, say: str = "number", use: str = "NAME") -> Kind:
    return Kind(type_, f"({type_})next()", (("", say, "NAME"),), use)


def structure(type_: str, values: str, *members: tuple[str, str]) -> Kind:
    said = tuple((f".{name}", say, f"NAME.{name}") for name, say in members)
    use = f"NAME.{members[0][0]}" if members and members[0][1] != "text" else "sizeof(NAME)"
    return Kind(type_, f"({type_}){{{values}}}", said, use)


N, INT, F, D = "next()", "(int)next()", "(float)(next() % 1000) / 8", "(double)(next() % 1000) / 8"
TEXT = "texts[(unsigned long)next() % 5]"
C_KINDS = (
    *(scalar(one) for one in ("char", "signed char", "short", "int", "long", "long long")),
    *(scalar(one, "unsigned_number") for one in ("unsigned char", "unsigned short", "unsigned", "unsigned long")),
    scalar("uint16_t", "unsigned_number"), scalar("int64_t"), scalar("size_t", "unsigned_number"),
    Kind("float", F, (("", "real", "NAME"),), "(long)NAME"), Kind("double", D, (("", "real", "NAME"),), "(long)NAME"),
    Kind("long double", D, (), "(long)NAME"), Kind("__int128", N, (), "(long)NAME"),
    Kind("_Complex double", D, (), "(long)__real__ NAME"), Kind("_Complex float", F, (), "(long)__real__ NAME"),
    Kind("enum colour", "(enum colour)(next() & 1 ? GREEN : BLUE)",
         (("", "text", '(NAME == GREEN ? "GREEN" : "BLUE")'),), "NAME"),
    Kind("const char *", TEXT, (("", "text", "NAME"),), "(long)strlen(NAME)"),
    Kind("void *", "(void *)next()", (("", "place", "NAME"),), "(long)NAME"),
    Kind("const int *", "(const int *)&spare[next() & 3]", (("", "place", "NAME"),), "*NAME"),
    Kind("struct two *", "&twos[next() & 3]", (("", "place", "NAME"), ("->x", "number", "NAME->x"),
                                                ("->y", "number", "NAME->y")), "NAME->x"),
    structure("struct two", f"{INT}, {INT}", ("x", "number"), ("y", "number")),
    structure("struct floats", f"{F}, {F}", ("a", "real"), ("b", "real")),
    structure("struct mixed", f"{D}, {INT}", ("d", "real"), ("i", "number")),
    structure("struct three", f"{N}, {N}, {N}", ("a", "number"), ("b", "number"), ("c", "number")),
    structure("struct small", "(char)next(), (short)next()", ("c", "number"), ("s", "number")),
    structure("struct odd", f"{F}, {D}", ("f", "real"), ("d", "real")),
    structure("struct packed", f"(char)next(), {INT}", ("c", "number"), ("i", "number")),
    structure("struct four", f"{F}, {F}, {F}, {F}", ("a", "real"), ("b", "real"), ("c", "real"), ("d", "real")),
    structure("struct pointed", f"{TEXT}, {N}", ("name", "text"), ("n", "number")),
    structure("struct bits", f"3, 1000, {INT}", ("whole", "number")),
    Kind("struct nested", f"(struct nested){{{{{INT}, {INT}}}, {INT}}}", ((".z", "number", "NAME.z"),), "NAME.in.x"),
    Kind("struct wide", "(struct wide){next()}", (), "(long)NAME.w"),
    Kind("union either", "(union either){" + INT + "}",
         ((".i", "number", "NAME.i"), (".f", "real", "NAME.f")), "NAME.i"),
)  # fmt: skip
CXX_KINDS = (
    *C_KINDS,
    scalar("bool", "truth"),
    Kind("level", "(next() & 1 ? level::HIGH : level::LOW)",
         (("", "text", '(NAME == level::HIGH ? "HIGH" : "LOW")'),), "(int)NAME"),
    Kind("int &", "spare[next() & 3]", (("", "number", "NAME"),), "NAME"),
    Kind("const double &", "doubles[next() & 3]", (("", "real", "NAME"),), "(long)NAME"),
    Kind("two &", "twos[next() & 3]",
         (("", "place", "&NAME"), (".x", "number", "NAME.x"), (".y", "number", "NAME.y")), "NAME.x"),
    Kind("std::string", f"std::string({TEXT})", (("", "text", "NAME.c_str()"),), "(long)NAME.size()"),
    Kind("const std::string &", "strings[next() & 3]", (("", "text", "NAME.c_str()"),), "(long)NAME.size()"),
    Kind("std::string_view", f"std::string_view({TEXT})",
         (("._M_len", "unsigned_number", "NAME.size()"), ("._M_str", "place", "NAME.data()")), "(long)NAME.size()"),
    Kind("owned", "owned((int)next())", ((".v", "number", "NAME.v"),), "NAME.v"),
    Kind("moved", "moved((int)next())", ((".v", "number", "NAME.v"),), "NAME.v"),
    Kind("empty", "empty()", (), "1"),
    Kind("derived", "made_derived()", ((".b", "number", "NAME.b"), (".d", "number", "NAME.d")), "NAME.d"),
    Kind("defaulted", "made_defaulted()", ((".v", "number", "NAME.v"),), "NAME.v"),
    Kind("shaped", "made_shaped()", ((".s", "number", "NAME.s"),), "NAME.s"),
    Kind("pair_of<int>", "pair_of<int>{(int)next(), 2}",
         ((".first", "number", "NAME.first"), (".second", "number", "NAME.second")), "NAME.first"),
    Kind("pair_of<double>", f"pair_of<double>{{{D}, 2}}",
         ((".first", "real", "NAME.first"), (".second", "real", "NAME.second")), "(long)NAME.first"),
    Kind("std::unique_ptr<int>", "std::unique_ptr<int>(new int(3))", (), "*NAME"),
    Kind("std::vector<int>", "std::vector<int>(3, (int)next())", (), "NAME[0]"),
    Kind("std::nullptr_t", "nullptr", (), "1"),
)  # fmt: skip
SPARE = "static int spare[4] = {1, -2, 3, -4};\nstatic struct two twos[4] = {{1, 2}, {3, -4}, {-5, 6}, {7, 8}};\n"
CXX_SPARE = """
static double doubles[4] = {1.5, -2.25, 3, 0};
static std::string strings[4] = {"", "one", "something that is too long to be in the string itself", "4"};
static derived made_derived() { derived d; d.b = (int)next(); d.d = (int)next(); return d; }
static defaulted made_defaulted() { defaulted d; d.v = (int)next(); return d; }
static shaped made_shaped() { shaped s; s.s = (int)next(); return s; }
"""
# Such results are moved out of what the function was given, or made anew.
NOT_RETURNED = {"int &", "const double &", "two &", "const std::string &", "std::unique_ptr<int>", "std::nullptr_t"}


def program(seed: int, functions: int, *, cxx: bool) -> str:
    """Return a program's text; what it is started with is the file to write to."""
    dice = random.Random(seed)
    kinds = CXX_KINDS if cxx else C_KINDS
    defined, calls = [], []
    for index in range(functions):
        given = [dice.choice(kinds) for _ in range(dice.choice((0, 1, 2, 3, 3, 4, 5, 6, 8, 10)))]
        result = None if dice.random() < 0.2 else dice.choice([one for one in kinds if one.type not in NOT_RETURNED])
        method = cxx and dice.random() < 0.3
        one, call = _function(dice, f"f{index}", given, result, method=method)
        defined.append(one)
        calls.append(call)
    lines = [HEAD, CXX if cxx else "", SPARE, CXX_SPARE if cxx else "", *defined]
    lines += ["int main(int argc, char **argv) {", '    out = fopen(argv[1], "w"); seed = argc;', *calls, "}"]
    return "\n".join(lines)


def _function(
    dice: random.Random, name: str, given: list[Kind], result: Kind | None, *, method: bool
) -> tuple[str, str]:
    """Return the text of a function, and of a block that calls it and writes that down."""
    storage = "static " if dice.random() < 0.6 and not method else ""
    parameters = ", ".join(f"{kind.type} a{at}" for at, kind in enumerate(given))
    body = ['long sum = 1; __asm__ volatile("" : "+r"(sum));']
    for at, kind in enumerate(given):
        fate = dice.random()
        if fate < 0.6:
            body.append(f"sum += {kind.use.replace('NAME', f'a{at}')};")
        # Of memory that a function doesn't read, optimizers leave out what its callers write to it.
        if fate > 0.85 or len(kind.said) != 1 or kind.said[0][0] or kind.type.endswith("&") or "string" in kind.type:
            body.append(f"sink({'' if kind.type.endswith('*') else '&'}a{at});")
    if method:
        body.append("sum += n;")
    body.append("sink(&sum);")
    if result is not None:
        body.append(f"return {result.make};")
    type_ = result.type if result is not None else "void"
    text = " ".join(body)
    attribute = "__attribute__((noinline))"
    if method:
        defined = f"struct C{name} {{ long n; {attribute} {type_} {name}({parameters}) {{ {text} }} }};"
    else:
        defined = f"{storage}{attribute} {type_} {name}({parameters or 'void'}) {{ {text} }}"
    block = ["    {"]
    for at, kind in enumerate(given):
        made = kind.make
        if kind.make.startswith("(int)") or kind.type in {"int", "long", "short"}:
            made = str(dice.randrange(100)) if dice.random() < 0.2 else made
        block.append(f"        {kind.type} a{at} = {made};")
    if method:
        block.append(f"        C{name} object; object.n = next();")
    block.append(f'        begin("{name}");')
    if method:
        block.append('        place("this", &object); number("this->n", object.n);')
    block += [_said(kind, f"a{at}", f"a{at}") for at, kind in enumerate(given)]
    block.append("        end();")
    words = ", ".join(f"std::move(a{at})" if "unique" in kind.type else f"a{at}" for at, kind in enumerate(given))
    call = f"object.{name}({words})" if method else f"{name}({words})"
    if result is None:
        block.append(f'        {call}; begin("{name}:return"); end();')
    elif dice.random() < 0.25:
        block.append(f'        {call}; begin("{name}:return"); text("unused", ""); end();')
    else:
        block += [f"        {result.type} result = {call};", f'        begin("{name}:return");',
                  _said(result, "result", "result"), "        end();"]  # fmt: skip
    return defined, "\n".join([*block, "    }"])


def _said(kind: Kind, key: str, name: str) -> str:
    return "        " + " ".join(
        f'{say}("{key}{suffix}", {expression.replace("NAME", name)});' for suffix, say, expression in kind.said
    )
