r"""Writes the header whose macros are complete probes: `usdtbuild header` and, under DTrace's names, `dtrace -h`.

A macro is the site and its record as one statement of inline assembly: a NOP, and an SDT note that is tied to the
code. An argument is a constant or in any register (`nr`), so that a site costs what one of sys/sdt.h does; but it is
never in memory, because few tracers read operands such as `sym(%rip)`. What has more arguments than registers, and
everything on 32-bit machines, puts them into cells of eight bytes that one register points to. An is-enabled test reads
a semaphore, which each object that reads it defines (in a COMDAT group, as `instrument` does).

The arguments are those of a call: converted to the declared types. In C the conversion is a compound literal, without a
variable whose name could be the caller's; in C++ it is an inline function. In what `dtrace -h` writes, an integer's
size and sign are those of the expression, as in SystemTap's headers, and never less than the declared size.

On systems other than Linux, for compilers without GNU's inline assembly, and with -DUSDT_DISABLE, the macros check
their arguments and do nothing. What `dtrace -h` writes has calls of the classic stubs there, which `dtrace -G` or the
launcher (`usdtbuild cc`) complete; so it has with -DUSDT_PROBES_BY_CALL.

The layout is DTrace's: a line begins with `#define`, a tab and the macro, and the expansion is on the next line. Of
what projects replace by sed, nothing stands in the rest that must stay: not a provider's name in capitals, and not
`char *` or `void *`, before which they put a const; so ours stands behind the type.
"""

from __future__ import annotations

from ..model import INTEGER, POINTER, CType, Probe, Provider, macro_name
from ..record import NamedTuple
from . import describe, first_screen, header
from .types import BY_VALUE, INT64, UNDECLARED

# SDT notes describe no more arguments than that (reference: systemtap-sdt's STAP_PROBE12).
MAX_ARGUMENTS = 12
_CELL = 8


class Machine(NamedTuple):
    """How operands are spelled on one machine, in the text of a statement.

    `condition` is the preprocessor's. A statement may ask for `registers` of them at once, each fit for 64 bits;
    argument `i` is then `register` in the text, and `constraint` may say that a constant is no operand. Arguments in
    cells are `cell`, with their `offset`; `base` is the constraint of the register that points to them.
    `live` are other lines in the header, with -DUSDT_LIVE; `more` are further ones without.
    """

    condition: str
    registers: int
    register: str = '"%[usdt_" #i "]"'
    cell: str = '#offset "(%[usdt_b])"'
    base: str = '"r"'
    constraint: str = '"nr"'
    live: str = ""
    more: str = ""


# What four of these of these are in the header.
_ROW = ("USDTBUILD_REGISTER(i)", "USDTBUILD_CELL(offset)", "USDTBUILD_BASE", "USDTBUILD_ANYWHERE(letter)")


# Intel's dialect prints `rax` and `5`, to which the assembler puts the sign. (Clang writes a line's end in one
# dialect's text to the other's, too, hence the semicolons; and no $ at all. Before 14 it prints signs as ever.)
_X86 = '"{%q[usdt_" #i "]|\\"; usdtbuild_place %q[usdt_" #i "]; .ascii \\"}"'
# Room for a jump, and arguments in the registers that a handler of usdt_live.h reads, or in cells. Each has one of its
# own: of a choice of several, GCC takes those of one class of registers only, and says that the others are impossible.
_LETTERS = "DSdca"
_LIVE = """#define USDTBUILD_REGISTERS 5
#define USDTBUILD_ANYWHERE(letter) #letter "n"
#define USDTBUILD_NOP "nop; .byte 15,31,64,0"
"""
# What Linux 7.2 turns into a call that spares the stack below its pointer (is_optimizable_nop10(),
# arch/x86/kernel/uprobes.c). The NOP before it is for other kernels, which take no probe on a CS prefix.
_NOP10 = """#if defined(USDT_NOP10)
#define USDTBUILD_NOP "nop; .byte 102,46,15,31,132,0,0,0,0,0"
#endif
"""
# At the user's word GCC may leave a value where it is, as with sys/sdt.h.
_IN_MEMORY = """#if defined(USDT_OPERANDS_IN_MEMORY) && !defined(USDTBUILD_ANYWHERE) && !defined(__clang__)
#define USDTBUILD_ANYWHERE(letter) "nor"
#elif !defined(USDTBUILD_ANYWHERE)
"""
_AARCH64 = '"[%[usdt_b], " #offset "]"'
MACHINES = (
    Machine("defined(__x86_64__)", 10, _X86, '#offset "(%%rax)"', '"a"', live=_LIVE, more=_NOP10),
    Machine("defined(__i386__)", 0, cell='#offset "(%%eax)"', base='"a"'),
    # Clang prints `w0` without the x, and with it xzr for a constant 0; few tracers know either.
    Machine("defined(__aarch64__) && defined(__clang__)", 12, '"%x[usdt_" #i "]"', _AARCH64, constraint='"r"'),
    Machine("defined(__aarch64__)", 12, cell=_AARCH64),
    Machine("defined(__arm__)", 0, cell='"[%[usdt_b], #" #offset "]"'),
    Machine("defined(__riscv) && defined(__LP64__)", 12),
    Machine("defined(__s390x__)", 8, base='"a"'),
    Machine("defined(__powerpc64__)", 12, '"%I[usdt_" #i "]%[usdt_" #i "]"', base='"b"'),
)


def has_room(machine: str) -> bool:
    """Whether a header's sites have room for the runtime's jumps, on a machine that uname(1) calls so."""
    return any(one.live for one in MACHINES if f"__{machine}__" in one.condition)


_VERSION = "1"  # of what headers share; two of them can't be in one file
_COMMON = r"""
/* What all headers of usdtbuild share. */
#ifndef USDTBUILD_COMPLETE
#define USDTBUILD_COMPLETE @VERSION@
#if !defined(USDT_DISABLE) && !defined(USDT_DISABLED) && defined(__GNUC__) && defined(__ELF__) && defined(__linux__)
#define USDTBUILD_LINUX
{rows}#define USDTBUILD_SEMAPHORE __attribute__((__visibility__("hidden"), __section__(".probes")))
/* Unlike other expressions, a call may stand anywhere without effect and without a warning. */
USDTBUILD_INLINE int usdtbuild_is_on(int usdt_on) { return __builtin_expect(usdt_on, 0) != 0; }
#endif
#if defined(__LP64__)
#define USDTBUILD_WORD ".8byte"
#define USDTBUILD_P "8@"
#else
#define USDTBUILD_WORD ".4byte"
#define USDTBUILD_P "4@"
#endif
/* Assemblers that link a section to another (GNU's from 2.35 on, with retained sections from 2.36 on). */
#if defined(USDT_LINKED_SECTIONS) ? USDT_LINKED_SECTIONS : defined(__clang__) ? __clang_major__ >= 13 : __GNUC__ >= 11
#define USDTBUILD_NOTE_SECTION ".note.stapsdt,\"?o\",\"note\",.Lusdt%="
#define USDTBUILD_BASE_FLAGS "axGR"
#else
#define USDTBUILD_NOTE_SECTION ".note.stapsdt,\"?\",\"note\""
#define USDTBUILD_BASE_FLAGS "axG"
#endif
#if defined(__x86_64__) && defined(__clang__) && __clang_major__ < 14
#define USDTBUILD_INTEL "{|.ifndef .Lusdtbuild_place; .set .Lusdtbuild_place,1; .macro usdtbuild_place x:vararg; " \
	".ascii \"\\x\"; .endm; .endif;}"
#elif defined(__x86_64__)
#define USDTBUILD_INTEL "{|.ifndef .Lusdtbuild_place; .set .Lusdtbuild_place,1; .macro usdtbuild_place x; " \
	".set .Lusdtbuild_name,0; .irp r,rax,rbx,rcx,rdx,rsi,rdi,rbp,r8,r9,r10,r11,r12,r13,r14,r15; .ifc \\r,\\x; " \
	".set .Lusdtbuild_name,1; .endif; .endr; .if .Lusdtbuild_name; .ascii \"%%\"; .else; .ascii \"\\044\"; .endif; " \
	".ascii \"\\x\"; .endm; .endif;}"
#else
#define USDTBUILD_INTEL
#endif
/* Compilers copy what they take for small: GCC counts lines, Clang statements. Debuggers show the caller's line. */
#if defined(__clang__)
#define USDTBUILD_ONCE __asm__ __volatile__("");
#define USDTBUILD_LINES
#define USDTBUILD_SITE USDTBUILD_INLINE __attribute__((__nothrow__, __nodebug__)) void
#else
#define USDTBUILD_ONCE
#define USDTBUILD_LINES "\n\n\n\n\n\n\n"
#define USDTBUILD_SITE USDTBUILD_INLINE __attribute__((__nothrow__, __artificial__)) void
#endif
#define USDTBUILD_NOTE(provider, probe, semaphore, operands) USDTBUILD_INTEL \
	".Lusdt%=:\t" USDTBUILD_NOP "\n" \
	"\t.pushsection " USDTBUILD_NOTE_SECTION "\n\t.balign 4\n\t.4byte 992f-991f,994f-993f,3\n" \
	"991:\t.asciz \"stapsdt\"\n992:\t.balign 4\n993:\t" USDTBUILD_WORD " .Lusdt%=,_.stapsdt.base," semaphore "\n" \
	"\t.weak " semaphore "\n\t.hidden " semaphore "\n\t.asciz \"" provider "\"\n" \
	"\t.asciz \"" probe "\"\n\t.ascii \"" operands "\\0\"\n" \
	"994:\t.balign 4\n\t.popsection\n\t.reloc .Lusdt%=,BFD_RELOC_NONE," semaphore "\n\t.ifndef _.stapsdt.base\n" \
	"\t.pushsection .stapsdt.base,\"" USDTBUILD_BASE_FLAGS "\",%%progbits,.stapsdt.base,comdat\n" \
	"\t.weak _.stapsdt.base\n\t.hidden _.stapsdt.base\n" \
	"_.stapsdt.base:\t.zero 1\n\t.size _.stapsdt.base,1\n\t.popsection\n\t.endif\n" USDTBUILD_LINES
/* One page for all semaphores of a program or library; what else lies there would be written by tracers too. */
#define USDTBUILD_OBJECT(name, align, more) \
	"\t.ifndef " name "\n\t.pushsection .probes,\"awG\",%%progbits," name ",comdat\n" \
	"\t.balign " align "\n" more "\t.weak " name "\n\t.hidden " name "\n" \
	"\t.type " name ",%%object\n\t.size " name ",2\n" name ":\t.zero 2\n\t.popsection\n\t.endif\n"
#define USDTBUILD_TEST(semaphore) (__extension__ ({ \
	__asm__ __volatile__(USDTBUILD_OBJECT("usdtbuild.probes.page", "4096", "") \
	USDTBUILD_OBJECT(#semaphore, "2", "\t.reloc .,BFD_RELOC_NONE,usdtbuild.probes.page\n") : :); \
	usdtbuild_is_on(semaphore); }))
/* A probe may show freed memory and variables without a value: compilers have nothing to warn of. */
#if defined(__GNUC__) && !defined(__clang__) && __GNUC__ >= 12
#define USDTBUILD_SILENT _Pragma("GCC diagnostic push") _Pragma("GCC diagnostic ignored \"-Wuse-after-free\"") \
	_Pragma("GCC diagnostic ignored \"-Wmaybe-uninitialized\"")
#define USDTBUILD_END_SILENT _Pragma("GCC diagnostic pop")
#define USDTBUILD_SHOWN(number) __attribute__((__access__(__none__, number)))
#define USDTBUILD_SILENT_CALL(call) (__extension__ ({ USDTBUILD_SILENT call; USDTBUILD_END_SILENT (void)0; }))
#else
#define USDTBUILD_SILENT
#define USDTBUILD_END_SILENT
#define USDTBUILD_SHOWN(number)
#endif
/* What a statement says of memory: compilers may leave out or put off stores that it doesn't read. */
#define USDTBUILD_MEMORY : "memory"
#define USDTBUILD_NONE
#define USDTBUILD_IN_CELL(T) union { T usdt_value; double usdt_cell; }
#if !defined(__cplusplus)
#define USDTBUILD_VALUE(T, x) ((T){ (x) })
#else
#define USDTBUILD_VALUE(T, x) (x)
#endif
#elif USDTBUILD_COMPLETE != @VERSION@
#error "two headers were written by different versions of usdtbuild; write both with the same one"
#endif
"""
# What a record says of an integer as it was passed is decided where the probe is used: sizes and signs of types are
# constants there. C asks for an expression's type by a statement that is never run, which takes bit-fields and arrays.
_AS_PASSED = r"""#if !defined(USDTBUILD_TYPE)
/* The note's number for an integer of type T: its size, or the declared one where that is more, below 0 if signed. The
   compiler prints it with the other sign. A cell of a big-endian machine begins with the high half. */
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
#define USDTBUILD_SIZED(T, size, V) (int)sizeof(V)
#else
#define USDTBUILD_SIZED(T, size, V) (int)(sizeof(T) > (size) ? sizeof(T) : (size))
#endif
#define USDTBUILD_NUMBER(name, T, size, V) [name] "n"(((T)-1 < (T)1 ? 1 : -1) * USDTBUILD_SIZED(T, size, V)),
#if defined(__cplusplus)
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
#define USDTBUILD_CAST(T, x) static_cast<T>(x)
#define USDTBUILD_TYPE(x, T) T
#define USDTBUILD_INTEGER(x, T) typename usdtbuild_integer<T>::type
#define USDTBUILD_NARROW(x, T) typename usdtbuild_integer<__typeof__((x) + 0)>::type
#define USDTBUILD_WIDE(x, T) typename usdtbuild_integer<__typeof__((x) + (usdtbuild_int64)0)>::type
#define USDTBUILD_ANY_AS(T) usdtbuild_any<T, __is_class(T) || __is_union(T), sizeof(T) < 8>
#define USDTBUILD_ANY(x, T) typename USDTBUILD_ANY_AS(T)::type
#define USDTBUILD_ANY_PASSED(x, T) typename USDTBUILD_ANY_AS(T)::passed
#define USDTBUILD_ANY_OF(x, T) USDTBUILD_ANY_AS(T)::of(x)
#else
#define USDTBUILD_CAST(T, x) x
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
#endif
"""
# Where macros of `dtrace -h` do nothing: installed headers reach platforms that have no probes.
_NO_PROBES = (
    "defined(USDT_DISABLE) || defined(USDT_DISABLED) || defined(_WIN32) || (defined(__GNUC__) && !defined(__ELF__))"
)
_CONST_FIRST = r"const (volatile )?((?:struct |union )?\w+(?: \w+)*) \*"
# In C++ no name may have two underscores side by side; those of probes do.
_NAMES = """#if defined(__clang__) && defined(__cplusplus)
#pragma clang diagnostic push
#pragma clang diagnostic ignored "-Wunknown-warning-option"
#pragma clang diagnostic ignored "-Wreserved-identifier"
#endif
"""
_END_NAMES = """#if defined(__clang__) && defined(__cplusplus)
#pragma clang diagnostic pop
#endif
"""
# A plain char has the compiler's sign.
_CHAR = """#if defined(USDTBUILD_CHAR)
#elif defined(__CHAR_UNSIGNED__)
#define USDTBUILD_CHAR "1@"
#else
#define USDTBUILD_CHAR "-1@"
#endif
"""
_UNKNOWN = """#if defined(USDTBUILD_LINUX) && !defined(USDTBUILD_REGISTERS)
#error "no probes on this machine: compile with -DUSDT_DISABLE"
#elif defined(USDTBUILD_LINUX) && defined(USDT_ENABLED_BY_CALL)
#error "this header's probes have SDT notes; for DOF or .note.usdt make it with usdtbuild header --formats"
#endif
"""


def write(providers: tuple[Provider, ...], dtrace_file: str = "") -> str:
    """Return the header's text for these providers, as `usdtbuild header` has it, or `dtrace -h` for a file name."""
    as_dtrace = bool(dtrace_file)
    probes = [probe for provider in providers for probe in provider.probes]
    used = {header.parameter_type(a.type) for probe in probes for a in probe.arguments}
    counts = {min(len(probe.arguments), MAX_ARGUMENTS) for probe in probes}
    common = header.helpers(used | ({INT64} if as_dtrace else set()), called=as_dtrace)
    common += [
        _common(),
        _AS_PASSED if as_dtrace else _UNKNOWN,
        _CHAR if "char" in used else "",
        *map(_body, sorted(counts)),
    ]
    first = first_screen.write(providers, as_dtrace)
    guard = header.dtrace_guard(dtrace_file) if as_dtrace else header.guard(providers, _VERSION)
    text = header.frame(first, guard, common, used, [_provider(provider, as_dtrace) for provider in providers])
    return text if as_dtrace else text.replace("\n#ifndef", _NAMES + "#ifndef", 1) + _END_NAMES


def _common() -> str:
    rows = ""
    usual = Machine("", 0)[2:-2]
    for index, machine in enumerate(MACHINES):
        rows += f"#{'elif' if index else 'if'} {machine.condition}\n"
        rows += "".join(f"#define {n} {own}\n" for n, own, other in zip(_ROW, machine[2:-2], usual) if own != other)
        registers = f"#define USDTBUILD_REGISTERS {machine.registers}\n"
        usually = registers + machine.more
        rows += f"#if defined(USDT_LIVE)\n{machine.live}#else\n{usually}#endif\n" if machine.live else usually
    rows += "#endif\n"
    for row, value in zip((*_ROW, "USDTBUILD_NOP"), (*usual, '"nop"')):
        name = row.partition("(")[0]
        rows += _IN_MEMORY if name == "USDTBUILD_ANYWHERE" else f"#ifndef {name}\n"
        rows += f"#define {row} {value}\n#endif\n"
    return _COMMON.lstrip("\n").replace("{rows}", rows).replace("@VERSION@", _VERSION)


def _body(count: int) -> str:
    """Return the macro `USDTBUILD_AT_COUNT(text, memory, numbers, T0, x0...)`: a statement with so many arguments.

    `memory` is USDTBUILD_MEMORY where one points to something, else USDTBUILD_NONE; `numbers` are further operands,
    each with a comma behind it. USDTBUILD_OPERAND_COUNT(i, offset) is argument i in the text.
    """
    name = f"USDTBUILD_AT_{count}"
    each = "".join(f", T{i}, x{i}" for i in range(count))
    head = f"#define {name}(text, memory, numbers{each}) "
    letters = _LETTERS.ljust(count, "a")  # more are in cells there
    operands = ", ".join(
        f"[usdt_{i}] USDTBUILD_ANYWHERE({letters[i]})(USDTBUILD_VALUE(T{i}, x{i}))" for i in range(count)
    )
    plain = f"{head}\\\n\t__asm__ __volatile__(text : : numbers {operands} memory); USDTBUILD_ONCE\n"
    if not count:
        return f"#if !defined({name})\n{plain}#endif\n"
    values = ", ".join(f"{{ x{i} }}" for i in range(count))
    cells = "struct { " + " ".join(f"USDTBUILD_IN_CELL(T{i}) usdt_v{i};" for i in range(count)) + " }"
    site = '__asm__ __volatile__(text : : numbers [usdt_b] USDTBUILD_BASE({}) : "memory"); USDTBUILD_ONCE'
    return (
        f"#if defined({name})\n#elif defined(USDTBUILD_REGISTERS) && USDTBUILD_REGISTERS >= {count}\n"
        f"#define USDTBUILD_OPERAND_{count}(i, offset) USDTBUILD_REGISTER(i)\n{plain}"
        f"#else\n#define USDTBUILD_OPERAND_{count}(i, offset) USDTBUILD_CELL(offset)\n#if defined(__cplusplus)\n"
        f"{head}\\\n\t{cells} const usdt_cells = {{ {values} }}; \\\n\t{site.format('&usdt_cells')}\n"
        f"#else\n{head}\\\n\t{site.format(f'&({cells}){{ {values} }}')}\n#endif\n#endif\n"
    )


def _provider(provider: Provider, as_dtrace: bool) -> str:
    macros = "".join(
        _macros(provider.name, probe, as_dtrace, "USDTBUILD_TEST({}_{}_semaphore)") for probe in provider.probes
    )
    off = _const_last("".join(header.disabled(provider.name, probe) for probe in provider.probes))
    live = macros + "".join(_complete(provider.name, probe, as_dtrace) for probe in provider.probes)
    # `char *` in the description is text, which the assembler takes with its blank as a number.
    description = header.description(provider).replace(" *", r"\\040*")
    if as_dtrace:
        description = f"#if defined(__GNUC__)\n{description}#endif\n"
    if not as_dtrace:
        body = f"#if !defined(USDTBUILD_REGISTERS)\n{off}#else\n{live}{description}#endif\n"
        return header.provider_block(provider, body)
    called = "".join(_macros(provider.name, probe, True, "__dtraceenabled_{}___{}()") for probe in provider.probes)
    called += "\n" + "".join(_called(provider.name, probe) for probe in provider.probes)
    live += "\n" + header.mark(provider, describe.PASSED)
    body = (
        f"#if {_NO_PROBES}\n\n{off}\n#elif defined(USDTBUILD_REGISTERS) && !defined(USDT_PROBES_BY_CALL)\n\n{live}\n"
        f"{description}\n#else\n\n{called}\n{description}\n#endif\n"
    )
    return header.provider_block(provider, body)


def _const_last(declarations: str) -> str:
    """Return C declarations with `char const *` for `const char *`."""
    declarations = declarations.replace("const char *", "char const *")
    if declarations.count("const ") == declarations.count("const *"):
        return declarations
    import re  # takes as long as all of the header, and few providers need it

    return re.sub(_CONST_FIRST, r"\2 const \1*", declarations)


def _inner(provider: str, probe: Probe, as_dtrace: bool) -> str:
    """Return the name of what a probe's macro expands to."""
    return f"{'__dtrace_' if as_dtrace else header.FIRING}{provider}___{probe.written}"


def _macros(provider: str, probe: Probe, as_dtrace: bool, test: str) -> str:
    return header.macro(provider, probe, False, f"{_inner(provider, probe, as_dtrace)}(%s)") + (
        f"#define\t{macro_name(provider, probe.written)}_ENABLED() \\\n\t{test.format(provider, probe.written)}\n"
    )


def _called(provider: str, probe: Probe) -> str:
    stub = f"{provider}___{probe.written}"
    types = _const_last(", ".join(header.stub_types(probe))) or "void"
    words = [(f"arg{index}", argument.type) for index, argument in enumerate(probe.arguments)]
    text = (
        f"extern void __dtrace_{stub}({types}) USDTBUILD_STUB;\n"
        f"extern int __dtraceenabled_{stub}(void) USDTBUILD_STUB;\n"
    )
    if any(ctype.parameter in (UNDECLARED, BY_VALUE) for _, ctype in words):
        names = ", ".join(name for name, _ in words)
        left = (UNDECLARED, BY_VALUE)
        passed = ", ".join(header.converted(type_, name) if type_.parameter in left else name for name, type_ in words)
        text += f"#define __dtrace_{stub}({names}) __dtrace_{stub}({passed})\n"
    return text


class _Passed(NamedTuple):
    """How one argument reaches its place: its type there, its value, and its size in the note.

    `declaration` is the parameter of the C++ function, and `generic` whether its type is the passed one. `number` is an
    operand with the size where the compiler computes that, `before` a statement in front of all.
    """

    declaration: str
    type_: str
    value: str
    size: str
    number: str = ""
    before: str = ""
    generic: bool = False


def _complete(provider: str, probe: Probe, as_dtrace: bool) -> str:
    """Return what is a probe's site wherever it is used, and the semaphore of its is-enabled test."""
    semaphore = f"{provider}_{probe.written}_semaphore"
    names = [f"usdt_arg{index}" for index in range(len(probe.arguments))]
    passed = [_passed(index, a.type, as_dtrace) for index, a in enumerate(probe.arguments[:MAX_ARGUMENTS])]
    rest = names[MAX_ARGUMENTS:]
    count = len(passed)
    operands = (
        ' " " '.join(f"{p.size} USDTBUILD_OPERAND_{count}({i}, {i * _CELL})" for i, p in enumerate(passed)) or '""'
    )
    reads = any(a.type.kind == POINTER or a.type.parameter == UNDECLARED for a in probe.arguments)
    words = [f'USDTBUILD_NOTE("{provider}", "{probe.written}", "{semaphore}", {operands})']
    words += ["USDTBUILD_MEMORY" if reads else "USDTBUILD_NONE"]
    words += [" ".join(p.number for p in passed if p.number) or "USDTBUILD_NONE"]
    words += [word for p in passed for word in (p.type_, p.value)]
    lines = [*(p.before for p in passed if p.before), *(f"(void)({name});" for name in rest)]
    lines.append(f"USDTBUILD_AT_{count}({', '.join(words)})")
    generic = [f"class T{index}" for index, each in enumerate(passed) if each.generic]
    declarations = [each.declaration for each in passed]
    declarations += [_parameter(a.type, name) for a, name in zip(probe.arguments[MAX_ARGUMENTS:], rest)]
    inner = _inner(provider, probe, as_dtrace)
    template = f"template <{', '.join(generic)}>\n" if generic else ""
    pointers = "".join(f"USDTBUILD_SHOWN({i}) " for i, d in enumerate(declarations, 1) if "*" in d)
    inside = "".join(f"\t{line}\n" for line in lines)
    statement = " \\\n".join(f"\t{line}" for line in lines)
    function = f"{pointers}USDTBUILD_SITE {inner}({', '.join(declarations) or 'void'})"
    function = f"{template}{function}\n{{\n\tUSDTBUILD_SILENT {inside.lstrip()}\tUSDTBUILD_END_SILENT\n}}\n"
    if generic:
        function = f'extern "C++" {{\n{function}}}\n'
    called = f"{inner}({', '.join(names)})"
    if pointers:
        function += "#if defined(USDTBUILD_SILENT_CALL) && __GNUC__ >= 14\n"
        function += f"#define {called} USDTBUILD_SILENT_CALL({called})\n#endif\n"
    return (
        f"extern volatile unsigned short {semaphore} USDTBUILD_SEMAPHORE;\n"
        f"#if defined(__cplusplus)\n{function}#else\n"
        f"#define {called} (__extension__ ({{ USDTBUILD_SILENT \\\n"
        f"{statement} USDTBUILD_END_SILENT (void)0; }}))\n#endif\n"
    )


def _parameter(ctype: CType, name: str) -> str:
    return _const_last(header.declare(header.stub_type(ctype), name))


def _passed(index: int, ctype: CType, as_dtrace: bool) -> _Passed:
    """Return how an argument is passed.

    As DTrace has it, an integer is the wider of its own and the declared type, with its own sign.
    """
    name = f"usdt_arg{index}"
    number, numbered = f"usdt_s{index}", f'"%n[usdt_s{index}]@"'
    if ctype.parameter in (UNDECLARED, BY_VALUE):
        copy, type_ = f"usdtbuild_copy_{index}", f"usdtbuild_type_{index}"
        before = (
            f"USDTBUILD_TYPE({name}, T{index}) {copy} = ({name}); typedef USDTBUILD_ANY({copy}, T{index}) {type_}; "
            f"typedef USDTBUILD_ANY_PASSED({copy}, T{index}) usdtbuild_passed_{index};"
        )
        sized = f"USDTBUILD_NUMBER({number}, usdtbuild_passed_{index}, sizeof({type_}), {type_})"
        value = f"USDTBUILD_CAST({type_}, (USDTBUILD_ANY_OF({copy}, T{index})))"
        return _Passed(f"T{index} {name}", type_, value, numbered, sized, before, True)
    parameter = header.parameter_type(ctype)
    same = ctype.size64 == ctype.size32
    if as_dtrace and ctype.kind == INTEGER and parameter != "bool":
        wide = "LONG" if not same else "WIDE" if ctype.size64 == 8 else "NARROW"
        type_ = f"USDTBUILD_{wide}({name}, T{index})"
        declared = str(ctype.size64) if same else "sizeof(void *)"
        sized = f"USDTBUILD_NUMBER({number}, USDTBUILD_INTEGER({name}, T{index}), {declared}, {type_})"
        value = f"USDTBUILD_CAST({type_}, {name})"
        return _Passed(f"T{index} {name}", type_, value, numbered, sized, "", True)
    size = f'"{ctype.size64}@"' if same else "USDTBUILD_P"
    if parameter == "char":
        size = "USDTBUILD_CHAR"
    elif ctype.kind == INTEGER and ctype.signed:
        size = f'"-" {size}' if not same else f'"-{ctype.size64}@"'
    return _Passed(_parameter(ctype, name), _const_last(header.stub_type(ctype)), name, size)
