"""Writes the C and C++ header of a provider file: one pair of macros and the stubs behind them for each probe.

The layout of the macros is that of DTrace's `dtrace -h`, because projects edit such headers with sed (a line begins
with `#define`, a tab and the macro; the expansion is on the next line; a macro's name stands once on a line). The text
depends on the providers' content and on nothing else: not on comments, not on where the file lies.

A probe is a branch to its stub in inline assembly where that can become a NOP, and a call elsewhere (`placing`).

What the header must bear: C89 to C17 and C++98 to C++20, warnings as errors, two headers in one file, one header in
two languages, unity builds, precompiled headers, compilers that are not GNU, and assembler sources. Knows no ELF
beyond the one section that carries the provider's description (see `describe`).
"""

from __future__ import annotations

from .._version import __version__
from ..model import FLOAT, INTEGER, CType, Probe, Provider, macro_name
from . import describe, placing
from .types import ANY, BY_VALUE, FUNCTION, INT64, LLONG, SIZE, SSIZE, UINT64, ULLONG, UNDECLARED

FIRING = "usdtbuild_on_"  # how the functions that hold probes' branches are called

# Parameters that aren't passed as they are declared: the stub's C type, and how the macro converts. Floating point
# travels as its bits; C89 has no bool; and no pointer to a function converts to `void *` in ISO C.
_CONVERTED = {
    "double": (UINT64, "usdtbuild_double_bits(%s)"),
    "float": ("unsigned int", "usdtbuild_float_bits(%s)"),
    "bool": ("unsigned char", "((%s) ? 1 : 0)"),
    FUNCTION: (FUNCTION, "USDTBUILD_FUNCTION(%s)"),
    UNDECLARED: (INT64, f"({INT64})(%s)"),
    BY_VALUE: (ANY, "&(%s)"),
}
# What C promotes to `int` in expressions, and a call fills up a register with.
_PROMOTED = ("char", "signed char", "unsigned char", "short", "unsigned short")
_BY_SIZE = {
    (True, 1): "signed char", (True, 2): "short", (True, 4): "int", (True, 8): INT64,
    (False, 1): "unsigned char", (False, 2): "unsigned short", (False, 4): "unsigned int", (False, 8): UINT64,
}  # fmt: skip

_PLATFORM = """\
#if !defined(USDT_DISABLED) && (defined(_WIN32) || (defined(__GNUC__) && !defined(__ELF__)))
#error "no probes on this platform: compile with -DUSDT_DISABLED, or use a header made by usdtbuild header --none"
#endif

"""

# Macros that every header needs. Any number of headers may be included: the first one defines them, and a change
# of their meaning changes the number.
#
# A semaphore's declaration names its section, because compilers for MIPS and PowerPC take a variable as small as that
# for one in .sdata (-G, -msdata), and would read it by its distance from there.
#
# A stub's declaration names the calling convention that records go by: -mregparm and -mabi=ms would put arguments
# elsewhere, and with -mrtd a call that has become a NOP would leave its arguments on the stack.
_COMMON = """\
#ifndef USDTBUILD_COMMON_2
#define USDTBUILD_COMMON_2
#if defined(__GNUC__)
#define USDTBUILD_HIDDEN __attribute__((__visibility__("hidden"), __section__(".probes")))
#if defined(__i386__)
#define USDTBUILD_STUB __attribute__((__visibility__("hidden"), __nothrow__, __cdecl__, __regparm__(0)))
#elif defined(__x86_64__)
#define USDTBUILD_STUB __attribute__((__visibility__("hidden"), __nothrow__, __sysv_abi__))
#else
#define USDTBUILD_STUB __attribute__((__visibility__("hidden"), __nothrow__))
#endif
#else
#define USDTBUILD_HIDDEN
#define USDTBUILD_STUB
#endif
#if defined(__linux__) && defined(__GNUC__) && !defined(USDT_ENABLED_BY_CALL)
#define USDTBUILD_ENABLED(semaphore, stub) (__builtin_expect(semaphore, 0) != 0)
#else
#define USDTBUILD_ENABLED(semaphore, stub) (stub() != 0)
#endif
#endif
"""
# Names of functions that are called, for linkers to tell what is missing where nothing defines them. No asm label:
# gcc doesn't write `.hidden` for a function that has one: a shared library would link without it.
_CALLED = f"""\
#ifndef USDTBUILD_CALLED
#if defined(__GNUC__) && defined(__linux__) && !defined(USDT_PLAIN_NAMES)
#define USDTBUILD_CALLED(stub) stub##{describe.DEFINED_BY}
#else
#define USDTBUILD_CALLED(stub) stub
#endif
#endif
"""
# Functions that no object shall contain. C99's `static inline` may not be used in an `inline` function, so GNU C gets
# a form that exists only where it is inlined.
_INLINE = """\
#ifndef USDTBUILD_INLINE
#if defined(__cplusplus) && defined(__GNUC__)
#define USDTBUILD_INLINE inline __attribute__((__always_inline__, __no_instrument_function__))
#elif defined(__GNUC__)
#define USDTBUILD_INLINE extern __inline__ \\
	__attribute__((__gnu_inline__, __always_inline__, __no_instrument_function__))
#elif defined(__cplusplus) || defined(__STDC_VERSION__)
#define USDTBUILD_INLINE static inline
#elif defined(_MSC_VER)
#define USDTBUILD_INLINE static __inline
#else
#define USDTBUILD_INLINE static
#endif
#endif
"""
# g++ finds `long long` in C++98 even behind __extension__, so the warning is switched off where it could be meant.
_QUIET = """\
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wlong-long"
__extension__ typedef {type} {name};
#pragma GCC diagnostic pop
"""
_TYPE = """\
#ifndef {guard}
#define {guard}
#if defined({predefined})
{quiet}#elif defined({microsoft_if})
typedef {microsoft} {name};
#else
typedef {plain} {name};
#endif
#endif
"""
_TYPES = {
    INT64: ("__INT64_TYPE__", "_MSC_VER", "__int64", "long long"),
    UINT64: ("__UINT64_TYPE__", "_MSC_VER", "unsigned __int64", "unsigned long long"),
    SIZE: ("__SIZE_TYPE__", "_WIN64", "unsigned __int64", "unsigned long"),
    SSIZE: ("__INTPTR_TYPE__", "_WIN64", "__int64", "long"),
}
_LONG_LONG = """\
#ifndef {guard}
#define {guard}
#if defined(__GNUC__)
{quiet}#else
typedef {plain} {name};
#endif
#endif
"""
_FUNCTION = """\
#ifndef USDTBUILD_FUNCTION
typedef void (*usdtbuild_function)(void);
#if defined(__cplusplus)
#define USDTBUILD_FUNCTION(function) usdtbuild_function(function)
#else
#define USDTBUILD_FUNCTION(function) (usdtbuild_function)(function)
#endif
#endif
"""
_BITS = """\
#ifndef {guard}
#define {guard}
USDTBUILD_INLINE {integer} usdtbuild_{name}_bits({name} usdt_value)
{{
	union {{ {name} usdt_value; {integer} usdt_bits; }} usdt_both;
	usdt_both.usdt_value = usdt_value;
	return usdt_both.usdt_bits;
}}
#endif
"""


def write(providers: tuple[Provider, ...], none: bool = False) -> str:
    """Return the header's text for these providers.

    With `none` the macros do nothing, on any platform, but still check their arguments' types.
    """
    used = {parameter_type(a.type) for p in providers for probe in p.probes for a in probe.arguments}
    counts = {len(probe.arguments) for p in providers for probe in p.probes if len(probe.arguments) <= placing.MOST}
    branches = [] if none else [placing.common(), *map(_branch_body, sorted(counts)), "\n"]
    names = ", ".join(provider.name for provider in providers) or "none"
    return frame(
        f"/* Written by usdtbuild {__version__}; do not edit. Providers: {names}. */",
        guard(providers, "NONE" if none else "CALLED"),
        ["" if none else _PLATFORM + _CALLED, *helpers(used, none), *branches],
        used,
        [_provider(provider, none) for provider in providers],
        "".join(_in_assembly(provider, none) for provider in providers),
    )


def _in_assembly(provider: Provider, none: bool) -> str:
    """Return the macros for assembler sources (.S): they can't fire probes, and are told what can."""
    body = "" if none else ' .error "probes fire from C and C++: call a C function that fires this one"'
    names = [macro_name(provider.name, probe.written) for probe in provider.probes]
    return "".join(f"#define\t{name}(...){body}\n" for name in names)


def frame(
    first_line: str, guard: str, common: list[str], used: set[str], providers: list[str], assembly: str = ""
) -> str:
    """Return a header around what is `common` to the probes and the text of each provider.

    `used` are the C types of all parameters, `assembly` is what assembler sources see.
    """
    pieces = [
        f"{first_line}\n\n#ifndef\t{guard}\n#define\t{guard}\n#ifndef __ASSEMBLER__\n",
        *common,
        '#ifdef __cplusplus\nextern "C" {\n#endif\n',
        "".join(f"{tag};\n" for tag in sorted(filter(None, map(_tag, used)))),
        *providers,
        "#ifdef __cplusplus\n}\n#endif\n",
        f"#else /* __ASSEMBLER__ */\n\n{assembly}\n" if assembly else "",
        "#endif /* __ASSEMBLER__ */\n",
        f"#endif /* {guard} */\n",
    ]
    return "".join(pieces)


def guard(providers: tuple[Provider, ...], kind: str) -> str:
    """Return the include guard of a header of this kind: whatever it is called, one that says something else is read.

    Two headers that describe a provider differently are an error then (`provider_block`).
    """
    return "_".join(["USDTBUILD_HEADER", kind, *(f"{each.name}_{describe.digest(each)[:7]}" for each in providers)])


def dtrace_guard(file_name: str) -> str:
    """Return the include guard of a header of this name, as `dtrace -h` has it."""
    return "_" + "".join(c if c.isascii() and c.isalnum() else "_" for c in file_name.upper())


def helpers(used: set[str], none: bool = False, called: bool = True) -> list[str]:
    """Return the definitions that these parameters need, and with `called` what declares a stub."""
    pieces = [_COMMON] if called and not none else []
    pieces.append(_INLINE)
    needed = {word for parameter in used for word in _converted(parameter, none).split()}
    for name, (predefined, microsoft_if, microsoft, plain) in _TYPES.items():
        if name in needed:
            quiet = _QUIET.format(type=predefined, name=name)
            pieces.append(
                _TYPE.format(
                    guard=name.upper(),
                    name=name,
                    predefined=predefined,
                    plain=plain,
                    quiet=quiet,
                    microsoft_if=microsoft_if,
                    microsoft=microsoft,
                )
            )
    for name, plain in ((LLONG, "long long"), (ULLONG, "unsigned long long")):
        if name in needed:
            quiet = _QUIET.format(type=plain, name=name)
            pieces.append(_LONG_LONG.format(guard=name.upper(), name=name, plain=plain, quiet=quiet))
    if FUNCTION in needed:
        pieces.append(_FUNCTION)
    for name, integer in (("double", UINT64), ("float", "unsigned int")):
        if name in used and not none:
            pieces.append(_BITS.format(guard=f"USDTBUILD_{name.upper()}_BITS", name=name, integer=integer))
    return [*pieces, "\n"]


def parameter_type(ctype: CType) -> str:
    """Return a parameter's C type; one that came from an object, and not from a file, is known by its size only."""
    if ctype.parameter:
        return ctype.parameter
    if ctype.kind == INTEGER:
        if ctype.size64 != ctype.size32:
            return SSIZE if ctype.signed else SIZE
        return _BY_SIZE[ctype.signed, ctype.size64]
    if ctype.kind == FLOAT:
        return "double" if ctype.size64 == 8 else "float"
    return "const char *" if ctype.is_string else ANY


def _converted(parameter: str, none: bool) -> str:
    """Return the C type that the stub takes for a parameter; where nothing is called, floating point stays so."""
    if none and parameter in ("double", "float"):
        return parameter
    return _CONVERTED[parameter][0] if parameter in _CONVERTED else parameter


def stub_types(probe: Probe, none: bool = False) -> list[str]:
    """Return the C types that a probe's stub takes."""
    return [stub_type(argument.type, none) for argument in probe.arguments]


def stub_type(ctype: CType, none: bool = False) -> str:
    """Return the C type that a probe's stub takes for an argument of this type."""
    return _converted(parameter_type(ctype), none)


def _tag(parameter: str) -> str:
    """Return `struct x` for a parameter that points to one; it is declared ahead, not inside a prototype."""
    words = parameter.split()
    return " ".join(words[-3:-1]) if len(words) > 3 and words[-3] in ("struct", "union") else ""


def _provider(provider: Provider, none: bool) -> str:
    off = "".join(disabled(provider.name, probe) for probe in provider.probes)
    if not none:
        live = "".join(_live(provider.name, probe) for probe in provider.probes)
        described = f"#if defined(__GNUC__)\n{description(provider)}#endif\n"
        marked = f'#if defined(USDTBUILD_PASSED)\n__asm__(USDTBUILD_MARK("%", "{provider.name}"));\n#endif\n'
        off = f"#if defined(USDT_DISABLED)\n\n{off}\n#else\n\n{live}\n{described}{marked}\n#endif\n"
    return provider_block(provider, off)


def provider_block(provider: Provider, body: str) -> str:
    """Return what a header says about a provider, guarded against other headers of the same provider."""
    mark = f"USDTBUILD_PROVIDER_{provider.name}"
    version = f"0x{describe.digest(provider)[:7]}"
    return (
        f"/* provider {provider.name} */\n#ifndef {mark}\n#define {mark} {version}\n{body}"
        f"#elif {mark} != {version}\n"
        f'#error "two headers describe provider {provider.name} differently; make both from the same provider file"\n'
        f"#endif\n"
    )


def macro(provider: str, probe: Probe, none: bool, expansion: str) -> str:
    """Return a probe's macro; `expansion` has a %s for the converted arguments."""
    names = [f"arg{index}" for index in range(len(probe.arguments))]
    passed = []
    for name, argument in zip(names, probe.arguments):
        parameter = parameter_type(argument.type)
        converts = parameter == FUNCTION or _converted(parameter, none) != parameter
        converts = converts and (none or parameter not in (UNDECLARED, BY_VALUE))  # the drop-in's own business
        passed.append(_CONVERTED[parameter][1] % name if converts else name)
    call = expansion % ", ".join(passed)
    return f"#define\t{macro_name(provider, probe.written)}({', '.join(names)}) \\\n\t{call}\n"


def converted(ctype: CType, name: str) -> str:
    """Return the expression that a probe's stub takes for the argument `name`."""
    parameter = parameter_type(ctype)
    return _CONVERTED[parameter][1] % name if parameter in _CONVERTED else name


def _live(provider: str, probe: Probe) -> str:
    stub = f"{provider}___{probe.written}"
    types = ", ".join(stub_types(probe)) or "void"
    semaphore = f"{provider}_{probe.written}_semaphore"
    return (
        macro(provider, probe, False, f"{FIRING}{stub}(%s)")
        + f"#define\t{macro_name(provider, probe.written)}_ENABLED() \\\n"
        f"\tUSDTBUILD_ENABLED({semaphore}, __dtraceenabled_{stub})\n"
        + _named(probe, f"__dtrace_{stub}")
        + f"#define __dtraceenabled_{stub} USDTBUILD_CALLED(__dtraceenabled_{stub})\n"
        f"extern void __dtrace_{stub}({types}) USDTBUILD_NOEXCEPT USDTBUILD_STUB;\n"
        f"extern int __dtraceenabled_{stub}(void) USDTBUILD_NOEXCEPT USDTBUILD_STUB;\n"
        f"extern volatile unsigned short {semaphore} USDTBUILD_HIDDEN;\n" + _branch(provider, stub, probe)
    )


def _branch_body(count: int) -> str:
    name = f"USDTBUILD_TO_{count}"
    condition = f"{_can_branch(count)} && !defined({name})"
    return f"#if {condition}\n{placing.body('USDTBUILD_TO', count)}#endif\n"


def _can_branch(count: int) -> str:
    return "defined(USDTBUILD_PASSED)" + (f" && USDTBUILD_PASSED >= {count}" if count else "")


def _branches(probe: Probe) -> str:
    """Return the preprocessor's condition for a probe to be a branch; '' where it never is."""
    if len(probe.arguments) > placing.MOST:
        return ""
    wide = any(argument.type.size32 == 8 for argument in probe.arguments)
    return _can_branch(len(probe.arguments)) + (" && defined(USDTBUILD_64_BITS)" if wide else "")


def _named(probe: Probe, stub: str) -> str:
    """Return what gives a probe's function its name where it is called."""
    named, branches = f"#define {stub} USDTBUILD_CALLED({stub})\n", _branches(probe)
    return f"#if !({branches})\n{named}#endif\n" if branches else named


def _branch(provider: str, stub: str, probe: Probe) -> str:
    """Return what a probe's macro expands to: it branches to the stub without the compiler's knowledge.

    So nothing is lost at the site, and no frame is made for it. The arguments are converted as a call's are: in C by
    the variables of a statement expression, so that debuggers show the user's line; in C++ by a function, which may
    also stand where a constant is computed, and brings its mark to those who import it. That the statement names the
    stub tells what reads intermediate code of the probe. Elsewhere, and with more arguments than registers, the stub is
    called in the compiler's own way.
    """
    types, branches = stub_types(probe), _branches(probe)
    by_call = f"#define {FIRING}{stub} __dtrace_{stub}\n"
    if not branches:
        return by_call
    names, values = ([f"{letter}{index}" for index in range(len(types))] for letter in ("arg", "usdt_a"))
    held = " ".join(_held(*each) for each in zip(types, names, values))
    reads = "USDTBUILD_READS" if any(type_.endswith("*") for type_ in types) else "USDTBUILD_PLAIN"
    text = f'USDTBUILD_BRANCH("__dtrace_{stub}")'
    rest = f"{', '.join([reads, f'__dtrace_{stub}', *values])})"
    start = f"{held}{' ' if held else ''}USDTBUILD_TO_{len(types)}({text}"
    called = f"{FIRING}{stub}({', '.join(names)})"
    unused = placing.unused(types)
    quiet = "#if defined(USDTBUILD_QUIET_CALL) && __GNUC__ >= 14\n"
    quiet += f"#define {called} USDTBUILD_QUIET_CALL({called})\n#endif\n"
    return (
        f"#if {branches}\n"
        "#if defined(__cplusplus)\nUSDTBUILD_QUIET\n"
        f"USDTBUILD_INLINE USDTBUILD_UNSEEN{unused}\n"
        f"void {FIRING}{stub}({', '.join(map(declare, types, names)) or 'void'}) USDTBUILD_NOEXCEPT\n"
        f'{{\n\t{start} USDTBUILD_MARK("%%", "{provider}"), {rest}\n}}\nUSDTBUILD_END_QUIET\n'
        f"{unused and quiet}#else\n"
        f"#define {called} (__extension__ ({{ USDTBUILD_QUIET \\\n"
        f"\t{start}, {rest} USDTBUILD_END_QUIET (void)0; }}))\n#endif\n"
        f"#else\n{by_call}#endif\n"
    )


def _held(type_: str, name: str, value: str) -> str:
    """Return the declarations that convert an argument to its type, and then as a call would."""
    if type_ in _PROMOTED:
        return f"{type_} {value}n = ({name}); int {value} = {value}n;"
    return f"{declare(type_, value)} = ({name});"


def disabled(provider: str, probe: Probe) -> str:
    """Return a probe's macros for a program without probes: the arguments are checked and never evaluated."""
    function = f"usdtbuild_off_{provider}___{probe.written}"
    types = stub_types(probe, none=True)
    parameters = ", ".join(declare(type_, f"usdt_arg{index}") for index, type_ in enumerate(types))
    body = " ".join(f"(void)usdt_arg{index};" for index in range(len(types)))
    head = f"USDTBUILD_INLINE void {function}"
    return (
        macro(provider, probe, True, f"(0 ? {function}(%s) : (void)0)")
        + f"#define\t{macro_name(provider, probe.written)}_ENABLED() \\\n\t(0)\n"
        f"{head}({parameters or 'void'}) {{ {body} }}\n".replace("{  }", "{ }")
    )


def declare(type_: str, name: str) -> str:
    """Return the declaration of a parameter."""
    return type_ + name if type_.endswith("*") else f"{type_} {name}"


def description_group(provider: Provider) -> str:
    """Return the name of the COMDAT group that holds a provider's description."""
    return f"usdtbuild.provider.{provider.name}.{describe.digest(provider)}"


def description(provider: Provider) -> str:
    """Return the assembler statement that puts the provider's description into every object, once.

    The section is a COMDAT group named by the description's hash, so that an executable, too, holds one copy.
    """
    return _text(description_group(provider), describe.encode(provider))


def mark(provider: Provider, what: str) -> str:
    """Return the assembler statement that puts a mark (see `describe`) into every object, once."""
    return _text(f"usdtbuild.{what}.{provider.name}", f"{what}\t{provider.name}\n")


def _text(group: str, text: str) -> str:
    """Return the assembler statement for lines of the section that travels, in a COMDAT group.

    `%progbits` and not `@progbits`, because `@` begins a comment on ARM. C89 promises 509 characters in a string, and
    compilers count them but in what is an extension.
    """
    lines = "".join(f'\n\t"\\t.ascii \\"{_escaped(line)}\\"\\n"' for line in text.splitlines(keepends=True))
    section = f'.pushsection {describe.SECTION},\\"G\\",%progbits,{group},comdat\\n'
    return f'__extension__ __asm__("{section}"{lines}\n\t"\\t.popsection");\n'


def _escaped(line: str) -> str:
    line = line.replace("\\", "\\\\").replace('"', '\\"').replace("\t", "\\t").replace("\n", "\\n")
    return line.replace("\\", "\\\\").replace('"', '\\"')
