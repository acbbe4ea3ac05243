r"""Writes what `dtrace -h` writes: a header whose macros are complete probes, whatever is done with the objects later.

Projects that call `dtrace -h` often hand no object to `dtrace -G`, install the header, or edit it with sed. So on
Linux, with GNU-compatible compilers, a macro is the site and its record as inline assembly: one NOP, the arguments in
the registers in which a call would pass them (see `placing`), and an SDT note that is tied to the code. An integer's
size and sign in the note are those of the expression, as in SystemTap's headers, and never less than the declared size;
all else comes from the provider's types and from the machine, not from what the compiler chooses. What has no register
lies in cells of eight bytes that one register points to. An is-enabled test reads a semaphore, which
each object that reads it defines (in a COMDAT group, as `instrument` does).

Elsewhere, on machines whose row in `placing.MACHINES` has no base register, and with -DUSDT_PROBES_BY_CALL, the macros
call the classic stubs, which the launcher (`usdtbuild cc`) or `dtrace -G` complete. With -DUSDT_DISABLED they do
nothing.

The layout is DTrace's: a line begins with `#define`, a tab and the macro, and the expansion is on the next line. Of
what projects replace by sed, nothing stands in the rest that must stay: not a provider's name in capitals, and not
`char *` or `void *`, before which they put a const; so ours stands behind the type. What is common with the header of
`usdtbuild header` comes from there. No use of sys/sdt.h, and no conflict with it.
"""

from __future__ import annotations

from .._version import __version__
from ..formats.stapsdt import MAX_ARGUMENTS
from ..model import INTEGER, POINTER, CType, Probe, Provider, macro_name
from ..record import NamedTuple
from . import describe, header, placing
from .types import BY_VALUE, INT64, UNDECLARED

# A change of these macros' meaning changes the number in their guard.
_COMMON = """\
#ifndef USDTBUILD_CLASSIC_2
#define USDTBUILD_CLASSIC_2
#if defined(__linux__) && defined(USDTBUILD_BASE_REGISTER)
#define USDTBUILD_COMPLETE
/* Assemblers that link a section to another (GNU's from 2.35 on, with retained sections from 2.36 on). */
#ifndef USDT_LINKED_SECTIONS
#if defined(__clang__) ? __clang_major__ >= 13 : __GNUC__ >= 11
#define USDT_LINKED_SECTIONS 1
#else
#define USDT_LINKED_SECTIONS 0
#endif
#endif
#if USDT_LINKED_SECTIONS
#define USDTBUILD_NOTE_SECTION ".note.stapsdt,\\"?o\\",\\"note\\",.Lusdt%="
#define USDTBUILD_BASE_FLAGS "axGR"
#else
#define USDTBUILD_NOTE_SECTION ".note.stapsdt,\\"?\\",\\"note\\""
#define USDTBUILD_BASE_FLAGS "axG"
#endif
#if defined(__LP64__)
#define USDTBUILD_WORD ".8byte"
#define USDTBUILD_P "8@"
#else
#define USDTBUILD_WORD ".4byte"
#define USDTBUILD_P "4@"
#endif
/* The note's number for an integer of type T: its size, or the declared one where that is more, below 0 if signed. The
   compiler prints it with the other sign. A cell of a big-endian machine begins with the high half. */
#define USDTBUILD_SIGN(T) ((T)-1 < (T)1 ? 1 : -1)
#define USDTBUILD_SIZED(T, size, v) (USDTBUILD_SIGN(T) * (int)(sizeof(T) > (size) ? sizeof(T) : (size)))
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
#define USDTBUILD_SIZED_IN_CELL(T, size, v) (USDTBUILD_SIGN(T) * (int)sizeof(v))
#else
#define USDTBUILD_SIZED_IN_CELL(T, size, v) USDTBUILD_SIZED(T, size, v)
#endif
{places}#define USDTBUILD_BASE() \\
	USDTBUILD_ASM("\\t.ifndef _.stapsdt.base\\n" \\
	"\\t.pushsection .stapsdt.base,\\"" USDTBUILD_BASE_FLAGS "\\",\\"progbits\\",.stapsdt.base,comdat\\n" \\
	"\\t.weak _.stapsdt.base\\n" \\
	"\\t.hidden _.stapsdt.base\\n" \\
	"_.stapsdt.base:\\t.zero 1\\n" \\
	"\\t.size _.stapsdt.base,1\\n" \\
	"\\t.popsection\\n" \\
	"\\t.endif\\n" : :)
#define USDTBUILD_NOTE(provider, probe, semaphore, operands) \\
	".Lusdt%=:\\tnop\\n" \\
	"\\t.pushsection " USDTBUILD_NOTE_SECTION "\\n" \\
	"\\t.balign 4\\n" \\
	"\\t.4byte 992f-991f,994f-993f,3\\n" \\
	"991:\\t.asciz \\"stapsdt\\"\\n" \\
	"992:\\t.balign 4\\n" \\
	"993:\\t" USDTBUILD_WORD " .Lusdt%=,_.stapsdt.base," semaphore "\\n" \\
	"\\t.weak " semaphore "\\n" \\
	"\\t.hidden " semaphore "\\n" \\
	"\\t.asciz \\"" provider "\\"\\n" \\
	"\\t.asciz \\"" probe "\\"\\n" \\
	"\\t.asciz \\"" operands "\\"\\n" \\
	"994:\\t.balign 4\\n" \\
	"\\t.popsection\\n"
/* One page for all semaphores of a program or library; what else lies there would be written by tracers too. */
#define USDTBUILD_SEMAPHORE(semaphore) \\
	USDTBUILD_ASM("\\t.ifndef usdtbuild.probes.page\\n" \\
	"\\t.pushsection .probes,\\"awG\\",\\"progbits\\",usdtbuild.probes.page,comdat\\n" \\
	"\\t.balign 4096\\n" \\
	USDTBUILD_OBJECT("usdtbuild.probes.page") \\
	"\\t.endif\\n" : :); \\
	USDTBUILD_ASM("\\t.ifndef " semaphore "\\n" \\
	"\\t.pushsection .probes,\\"awG\\",\\"progbits\\"," semaphore ",comdat\\n" \\
	"\\t.balign 2\\n" \\
	"\\t.reloc .,BFD_RELOC_NONE,usdtbuild.probes.page\\n" \\
	USDTBUILD_OBJECT(semaphore) \\
	"\\t.endif\\n" : :)
#define USDTBUILD_OBJECT(name) \\
	"\\t.weak " name "\\n" \\
	"\\t.hidden " name "\\n" \\
	"\\t.type " name ",%%object\\n" \\
	"\\t.size " name ",2\\n" \\
	name ":\\t.zero 2\\n" \\
	"\\t.popsection\\n"
/* Not a function for each probe: compilers spend more on those that nobody calls than on all the rest. One for all
   makes a call of it, which, unlike other expressions, may stand anywhere without effect and without a warning. */
USDTBUILD_INLINE int usdtbuild_is_on(int semaphore)
{
	return __builtin_expect(semaphore, 0) != 0;
}
#define USDTBUILD_TEST(semaphore, stub) \\
	(__extension__ ({ USDTBUILD_SEMAPHORE(#semaphore); usdtbuild_is_on(semaphore); }))
{passed}#else
#define USDTBUILD_TEST(semaphore, stub) stub()
#endif
#endif
"""
# What a record says of an integer is decided where the probe is used: sizes and signs of types are constants there. C
# asks for an expression's type by a statement that is never run, which takes bit-fields and arrays, too.
_PASSED = r"""#if defined(__cplusplus)
extern "C++" {
template <class T> struct usdtbuild_integer { typedef T type; };
template <> struct usdtbuild_integer<float> { typedef usdtbuild_int64 type; };
template <> struct usdtbuild_integer<double> { typedef usdtbuild_int64 type; };
template <> struct usdtbuild_integer<long double> { typedef usdtbuild_int64 type; };
template <class T, bool is_class, bool is_short> struct usdtbuild_any {
	typedef T type; typedef T passed;
	static USDTBUILD_INLINE type of(T const &value) { return value; }
};
template <class T> struct usdtbuild_any<T, false, true> {
	typedef usdtbuild_int64 type; typedef T passed;
	static USDTBUILD_INLINE type of(T const &value) { return (type)value; }
};
template <class T> struct usdtbuild_any<T *, false, true> {
	typedef T *type; typedef T *passed;
	static USDTBUILD_INLINE type of(T *value) { return value; }
};
template <class T, bool is_short> struct usdtbuild_any<T, true, is_short> {
	typedef void const *type; typedef unsigned passed;
	static USDTBUILD_INLINE type of(T const &value) { return &value; }
};
}
#define USDTBUILD_TYPE(x, T) T
#define USDTBUILD_INTEGER(x, T) typename usdtbuild_integer<T>::type
#define USDTBUILD_NARROW(x, T) typename usdtbuild_integer<__typeof__((x) + 0)>::type
#define USDTBUILD_WIDE(x, T) typename usdtbuild_integer<__typeof__((x) + (usdtbuild_int64)0)>::type
#define USDTBUILD_ANY_AS(T) usdtbuild_any<T, __is_class(T) || __is_union(T), sizeof(T) < 8>
#define USDTBUILD_ANY(x, T) typename USDTBUILD_ANY_AS(T)::type
#define USDTBUILD_ANY_PASSED(x, T) typename USDTBUILD_ANY_AS(T)::passed
#define USDTBUILD_ANY_OF(x, T) USDTBUILD_ANY_AS(T)::of(x)
#else
#define USDTBUILD_TYPE(x, T) __typeof__(__extension__ ({ (x); }))
#define USDTBUILD_IS_FLOAT(x) (__builtin_classify_type(x) == 8)
#define USDTBUILD_WHOLE(x, y) __typeof__(__builtin_choose_expr(USDTBUILD_IS_FLOAT(x), (usdtbuild_int64)0, y))
#define USDTBUILD_INTEGER(x, T) USDTBUILD_WHOLE(x, __extension__ ({ (x); }))
#define USDTBUILD_NARROW(x, T) USDTBUILD_WHOLE(x, (x) + 0)
#define USDTBUILD_WIDE(x, T) USDTBUILD_WHOLE(x, (x) + (usdtbuild_int64)0)
#define USDTBUILD_IS_CLASS(x) (__builtin_classify_type(x) == 12 || __builtin_classify_type(x) == 13)
#define USDTBUILD_IS_SHORT(x) (sizeof(x) < 8 && __builtin_classify_type(x) != 5 && !USDTBUILD_IS_CLASS(x))
#define USDTBUILD_ANY(x, T) __typeof__(__builtin_choose_expr(USDTBUILD_IS_CLASS(x), (void const *)0, \
	__builtin_choose_expr(USDTBUILD_IS_SHORT(x), (usdtbuild_int64)0, x)))
#define USDTBUILD_ANY_PASSED(x, T) __typeof__(__builtin_choose_expr(USDTBUILD_IS_CLASS(x), 0u, x))
#define USDTBUILD_ANY_OF(x, T) __builtin_choose_expr(USDTBUILD_IS_CLASS(x), (void const *)&(x), x)
#endif
#if defined(__LP64__)
#define USDTBUILD_LONG(x, T) USDTBUILD_WIDE(x, T)
#else
#define USDTBUILD_LONG(x, T) USDTBUILD_NARROW(x, T)
#endif
"""
# Where macros do nothing: installed headers reach platforms that have no probes.
_NO_PROBES = "defined(USDT_DISABLED) || defined(_WIN32) || (defined(__GNUC__) && !defined(__ELF__))"
_CONST_FIRST = r"const (volatile )?((?:struct |union )?\w+(?: \w+)*) \*"
_FUNCTIONS = """\
#if defined(USDTBUILD_COMPLETE)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Woverlength-strings"
{complete}{mark}#pragma GCC diagnostic pop
#else
{called}#endif
"""
_DESCRIPTION = """\
#if defined(__GNUC__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Woverlength-strings"
#endif
{}#if defined(__GNUC__)
#pragma GCC diagnostic pop
#endif
"""


def write(providers: tuple[Provider, ...], file_name: str) -> str:
    """Return the header's text for these providers. `file_name` is the header's own, for its include guard."""
    used = {header.parameter_type(a.type) for p in providers for probe in p.probes for a in probe.arguments}
    counts = {min(len(probe.arguments), MAX_ARGUMENTS) for p in providers for probe in p.probes}
    names = ", ".join(provider.name for provider in providers) or "none"
    return header.frame(
        f"/* Written by usdtbuild {__version__} as dtrace -h does; do not edit. Providers: {names}. */",
        file_name,
        [*header.helpers(used | {INT64}), placing.common(), _common(), *map(_body, sorted(counts)), "\n"],
        used,
        [_provider(provider) for provider in providers],
    )


def _common() -> str:
    return _COMMON.replace("{places}", placing.cell_macros(MAX_ARGUMENTS)).replace("{passed}", _PASSED)


def _body(count: int) -> str:
    name = f"USDTBUILD_AT_{count}"
    return f"#if defined(USDTBUILD_COMPLETE) && !defined({name})\n{placing.body('USDTBUILD_AT', count, True)}#endif\n"


def _provider(provider: Provider) -> str:
    macros = "".join(_macros(provider.name, probe) for probe in provider.probes)
    off = _const_last("".join(header.disabled(provider.name, probe) for probe in provider.probes))
    functions = _FUNCTIONS.format(
        complete="".join(_complete(provider.name, probe) for probe in provider.probes),
        mark=header.mark(provider, describe.PASSED),
        called="".join(_called(provider.name, probe) for probe in provider.probes),
    )
    # `char *` in the description is text, which the assembler takes with its blank as a number.
    description = _DESCRIPTION.format(header.description(provider).replace(" *", r"\\040*"))
    live = f"{macros}\n{functions}\n{description}"
    return header.provider_block(provider, f"#if {_NO_PROBES}\n\n{off}\n#else\n\n{live}\n#endif\n")


def _const_last(declarations: str) -> str:
    """Return C declarations with `char const *` for `const char *`."""
    declarations = declarations.replace("const char *", "char const *")
    if declarations.count("const ") == declarations.count("const *"):
        return declarations
    import re  # takes as long as all of the header, and few providers need it

    return re.sub(_CONST_FIRST, r"\2 const \1*", declarations)


def _macros(provider: str, probe: Probe) -> str:
    stub = f"{provider}___{probe.stub}"
    return header.macro(provider, probe, False, f"__dtrace_{stub}(%s)") + (
        f"#define\t{macro_name(provider, probe.stub)}_ENABLED() \\\n"
        f"\tUSDTBUILD_TEST({provider}_{probe.stub}_semaphore, __dtraceenabled_{stub})\n"
    )


def _called(provider: str, probe: Probe) -> str:
    stub = f"{provider}___{probe.stub}"
    types = _const_last(", ".join(header.stub_types(probe))) or "void"
    words = [(f"arg{index}", argument.type) for index, argument in enumerate(probe.arguments)]
    text = (
        f"extern void __dtrace_{stub}({types}) USDTBUILD_NOEXCEPT USDTBUILD_STUB;\n"
        f"extern int __dtraceenabled_{stub}(void) USDTBUILD_NOEXCEPT USDTBUILD_STUB;\n"
    )
    if any(ctype.parameter in (UNDECLARED, BY_VALUE) for _, ctype in words):
        names = ", ".join(name for name, _ in words)
        left = (UNDECLARED, BY_VALUE)
        passed = ", ".join(header.converted(type_, name) if type_.parameter in left else name for name, type_ in words)
        text += f"#define __dtrace_{stub}({names}) __dtrace_{stub}({passed})\n"
    return text


class _Passed(NamedTuple):
    """How one argument reaches its place: statements before the site, its number and its operand in the note.

    `declaration` is the parameter of the C++ function, `generic` whether its type is the passed one.
    """

    declaration: str
    before: str
    number: str
    operand: str
    generic: bool = False


def _complete(provider: str, probe: Probe) -> str:
    """Return what is a probe's site wherever it is used, and the semaphore of its is-enabled test.

    A record shows an integer as it was passed, so in C a site is a macro, and in C++ a template.
    """
    stub, semaphore = f"{provider}___{probe.stub}", f"{provider}_{probe.stub}_semaphore"
    names = [f"arg{index}" for index in range(len(probe.arguments))]
    passed = [_passed(index, argument.type) for index, argument in enumerate(probe.arguments[:MAX_ARGUMENTS])]
    rest = names[MAX_ARGUMENTS:]
    operands = ' " " '.join(each.operand for each in passed) or '""'
    reads = any(a.type.kind == POINTER or a.type.parameter == UNDECLARED for a in probe.arguments)
    words = [f'USDTBUILD_NOTE("{provider}", "{probe.stub}", "{semaphore}", {operands})']
    words.append("USDTBUILD_READS" if reads else "USDTBUILD_PLAIN")
    words += [word for index, each in enumerate(passed) for word in (each.number, f"usdt_a{index}")]
    lines = [*(each.before for each in passed), *(f"(void)({name});" for name in rest), "USDTBUILD_BASE();"]
    lines.append(f"USDTBUILD_AT_{len(passed)}({', '.join(words)})")
    generic = [f"class T{index}" for index, each in enumerate(passed) if each.generic]
    declarations = [each.declaration for each in passed]
    declarations += [_parameter(a.type, name) for a, name in zip(probe.arguments[MAX_ARGUMENTS:], rest)]
    function = f"__dtrace_{stub}({', '.join(declarations) or 'void'})"
    template = f"template <{', '.join(generic)}>\n" if generic else ""
    types = ["" if each.generic else header.stub_type(a.type) for each, a in zip(passed, probe.arguments)]
    inside = "".join(f"\t{line}\n" for line in lines)
    statement = " \\\n".join(f"\t{line}" for line in lines)
    return (
        f"extern volatile unsigned short {semaphore} USDTBUILD_HIDDEN;\n"
        f'#if defined(__cplusplus)\nextern "C++" {{\nUSDTBUILD_QUIET\n{template}'
        f"USDTBUILD_INLINE USDTBUILD_UNSEEN{placing.unused(types)} void {function} USDTBUILD_NOEXCEPT\n"
        f"{{\n{inside}}}\nUSDTBUILD_END_QUIET\n}}\n#else\n"
        f"#define __dtrace_{stub}({', '.join(names)}) (__extension__ ({{ USDTBUILD_QUIET \\\n"
        f"{statement} USDTBUILD_END_QUIET (void)0; }}))\n#endif\n"
    )


def _parameter(ctype: CType, name: str) -> str:
    return _const_last(header.declare(header.stub_type(ctype), name))


def _passed(index: int, ctype: CType) -> _Passed:
    """Return how an argument is passed: an integer as the wider of its own and the declared type, with its own sign."""
    name, value, place = f"arg{index}", f"usdt_a{index}", f"USDTBUILD_PLACE_{index}"
    shown = f'"%n[usdt_s{index}]@" {place}'
    own = f"USDTBUILD_TYPE({name}, T{index})"
    if ctype.parameter in (UNDECLARED, BY_VALUE):
        copy = f"usdt_c{index}"
        before = (
            f"{own} {copy} = ({name}); typedef USDTBUILD_ANY_PASSED({copy}, T{index}) usdt_t{index}; "
            f"USDTBUILD_ANY({copy}, T{index}) {value} = USDTBUILD_ANY_OF({copy}, T{index});"
        )
        number = f"USDTBUILD_SIZED_{index}(usdt_t{index}, sizeof({value}), {value})"
        return _Passed(f"T{index} {name}", before, number, shown, True)
    if ctype.kind == INTEGER and header.parameter_type(ctype) != "bool":
        same = ctype.size64 == ctype.size32
        wide = "LONG" if not same else "WIDE" if ctype.size64 == 8 else "NARROW"
        passed = f"typedef USDTBUILD_INTEGER({name}, T{index}) usdt_t{index};"
        before = f"{passed} USDTBUILD_{wide}({name}, T{index}) {value} = ({name});"
        declared = str(ctype.size64) if same else "sizeof(void *)"
        number = f"USDTBUILD_SIZED_{index}(usdt_t{index}, {declared}, {value})"
        return _Passed(f"T{index} {name}", before, number, shown, True)
    size = f'"{ctype.size64}@"' if ctype.size64 == ctype.size32 else "USDTBUILD_P"
    return _Passed(_parameter(ctype, name), f"{_parameter(ctype, value)} = ({name});", "0", f"{size} {place}")
