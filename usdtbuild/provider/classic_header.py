r"""Writes what `dtrace -h` writes: a header whose macros are complete probes, whatever is done with the objects later.

Projects that call `dtrace -h` often hand no object to `dtrace -G`, install the header, or edit it with sed. So on
Linux, with GNU-compatible compilers, a macro calls an inline function that holds the site and its record as inline
assembly: one NOP, the arguments in the registers in which a call would pass them, and an SDT note that is tied to
the code. The operands come from the provider's types and from the machine, not from what the compiler chooses; what
has no register lies in cells of eight bytes that one register points to. An is-enabled test reads a semaphore, which
each object that reads it defines (in a COMDAT group, as `instrument` does).

Elsewhere, on machines without a row in `_MACHINES`, and with -DUSDT_PROBES_BY_CALL, the macros call the classic stubs,
which the launcher (`usdtbuild cc`) or `dtrace -G` complete. With -DUSDT_DISABLED they do nothing.

The layout is DTrace's: a line begins with `#define`, a tab and the macro, and the expansion is on the next line. Of
what projects replace by sed, nothing stands in the rest that must stay: not a provider's name in capitals, and not
`char *` or `void *`, before which they put a const; so ours stands behind the type. What is common with the header of
`usdtbuild header` comes from there. No use of sys/sdt.h, and no conflict with it.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from .._version import __version__
from ..formats.stapsdt import MAX_ARGUMENTS
from . import header
from .model import FLOAT, Probe, Provider
from .parser import macro_name

_IN_REGISTERS = 6
_CELL = 8


class _Machine(NamedTuple):
    """How the arguments of a site are spelled on one machine.

    `condition` is the preprocessor's; `narrow` and `wide` are the operands of the first arguments with up to 32 and
    with 64 bits, `registers` what the compiler calls these registers, and `letters` the constraints that name the first
    of them (a variable bound to a register costs compilers more than the rest of a probe). Further arguments are in
    cells, in `memory` at the register `base`. Machines with 32-bit addresses have cells only, since no operand names a
    pair of registers.
    """

    condition: str
    base: str
    memory: str
    at_zero: str
    registers: tuple[str, ...] = ()
    narrow: tuple[str, ...] = ()
    wide: tuple[str, ...] = ()
    letters: str = ""


def _numbered(pattern: str, first: int) -> tuple[str, ...]:
    return tuple(pattern.format(number) for number in range(first, first + _IN_REGISTERS))


_X86_64_LETTERS = "DSdc"
# The registers are those of the machine's calling convention as far as it has six, see `usdtbuild.arch`.
_MACHINES = (
    _Machine("defined(__x86_64__) && defined(__LP64__)", "rax", "{}(%%rax)", "0(%%rax)",
             ("rdi", "rsi", "rdx", "rcx", "r8", "r9"),
             ("%%edi", "%%esi", "%%edx", "%%ecx", "%%r8d", "%%r9d"),
             ("%%rdi", "%%rsi", "%%rdx", "%%rcx", "%%r8", "%%r9"), _X86_64_LETTERS),
    _Machine("defined(__x86_64__)", "eax", "{}(%%rax)", "0(%%rax)"),
    _Machine("defined(__i386__)", "eax", "{}(%%eax)", "0(%%eax)"),
    _Machine("defined(__aarch64__) && defined(__LP64__)", "x8", "[x8, {}]", "[x8]",
             _numbered("x{}", 0), _numbered("x{}", 0), _numbered("x{}", 0)),
    _Machine("defined(__arm__)", "r0", "[r0, #{}]", "[r0]"),
    _Machine("defined(__riscv) && defined(__LP64__)", "a6", "{}(a6)", "0(a6)",
             _numbered("a{}", 0), _numbered("a{}", 0), _numbered("a{}", 0)),
    _Machine("defined(__s390x__)", "r1", "{}(%%r1)", "0(%%r1)",
             _numbered("r{}", 2), _numbered("%%r{}", 2), _numbered("%%r{}", 2)),
    _Machine("defined(__powerpc64__)", "r9", "{}(9)", "0(9)",
             _numbered("r{}", 3), _numbered("{}", 3), _numbered("{}", 3)),
)  # fmt: skip

# A change of these macros' meaning changes the number in their guard.
_COMMON = """\
#ifndef USDTBUILD_CLASSIC_1
#define USDTBUILD_CLASSIC_1
#if defined(__linux__) && defined(__ELF__) && defined(__GNUC__) && !defined(USDT_PROBES_BY_CALL)
{machines}#endif
#if defined(USDTBUILD_MEMORY_0)
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
/* Otherwise a compiler takes each line of text for an instruction when it decides what to inline. */
#if defined(__clang__) ? __clang_major__ >= 11 : __GNUC__ >= 9
#define USDTBUILD_ASM __asm__ __volatile__ __inline__
#else
#define USDTBUILD_ASM __asm__ __volatile__
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
#define USDTBUILD_SITE(provider, probe, semaphore, operands) \\
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
USDTBUILD_INLINE int usdtbuild_is_set(int semaphore)
{{
	return __builtin_expect(semaphore, 0) != 0;
}}
#define USDTBUILD_IS_ENABLED(semaphore, stub) \\
	(__extension__ ({{ USDTBUILD_SEMAPHORE(#semaphore); usdtbuild_is_set(semaphore); }}))
#else
#define USDTBUILD_IS_ENABLED(semaphore, stub) stub()
#endif
#endif
"""
# Where macros do nothing: installed headers reach platforms that have no probes.
_NO_PROBES = "defined(USDT_DISABLED) || defined(_WIN32) || (defined(__GNUC__) && !defined(__ELF__))"
_CONST_FIRST = re.compile(r"const (volatile )?((?:struct |union )?\w+(?: \w+)*) \*")
_FUNCTIONS = """\
#if defined(USDTBUILD_COMPLETE)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Woverlength-strings"
{complete}#pragma GCC diagnostic pop
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
        [*header.helpers(used), _common(), *map(_body, sorted(counts)), "\n"],
        used,
        [_provider(provider) for provider in providers],
    )


def _common() -> str:
    machines = "".join(_machine(row, "elif" if index else "if") for index, row in enumerate(_MACHINES)) + "#endif\n"
    return _COMMON.replace("{machines}", machines).replace("{places}", _places()).replace("{{", "{").replace("}}", "}")


def _machine(machine: _Machine, keyword: str) -> str:
    """Return the macros of one machine: registers and operands of the first arguments, memory for the others."""
    lines = [
        f"#{keyword} {machine.condition}",
        f'#define USDTBUILD_BASE_REGISTER "{machine.base}"',
        f'#define USDTBUILD_MEMORY_0 "{machine.at_zero}"',
        "#define USDTBUILD_MEMORY(offset) "
        + " ".join(word for word in _around_offset(machine.memory) if word != '""'),
    ]
    if machine.registers:
        lines.append("#define USDTBUILD_IN_REGISTERS")
    if machine.letters:
        lines.append("#define USDTBUILD_IN_LETTERS")
    for index, (register, narrow, wide) in enumerate(zip(machine.registers, machine.narrow, machine.wide)):
        lines.append(f'#define USDTBUILD_REGISTER_{index} "{register}"')
        lines.append(f'#define USDTBUILD_N{index} "{narrow}"')
        lines.append(f'#define USDTBUILD_W{index} "{wide}"')
    return "\n".join(lines) + "\n"


def _around_offset(memory: str) -> tuple[str, str, str]:
    before, after = memory.split("{}")
    return f'"{before}"', "#offset", f'"{after}"'


def _places() -> str:
    """Return where arguments beyond the registers are, on machines with and without registers for the others."""
    lines = ["#if defined(USDTBUILD_IN_REGISTERS)", *_cell_places(_IN_REGISTERS), "#else", *_cell_places(0), "#endif"]
    return "\n".join(lines) + "\n"


def _cell_places(first: int) -> list[str]:
    lines = []
    for index in range(first, MAX_ARGUMENTS):
        offset = (index - first) * _CELL
        place = f"USDTBUILD_MEMORY({offset})" if offset else "USDTBUILD_MEMORY_0"
        lines += [f"#define USDTBUILD_N{index} {place}", f"#define USDTBUILD_W{index} {place}"]
    return lines


def _body(count: int) -> str:
    """Return the macro with the body of a probe function with so many arguments: it puts them in place at the site."""
    name = f"USDTBUILD_PROBE_{count}"
    head = f"#define {name}({', '.join(['site', *(f'arg{index}' for index in range(count))])}) \\\n"
    text = head + _continued(_body_lines(count, 0))
    if count:
        with_letters = head + _continued(_body_lines(count, _IN_REGISTERS, _X86_64_LETTERS))
        in_registers = head + _continued(_body_lines(count, _IN_REGISTERS))
        text = (
            f"#if defined(USDTBUILD_IN_LETTERS)\n{with_letters}"
            f"#elif defined(USDTBUILD_IN_REGISTERS)\n{in_registers}#else\n{text}#endif\n"
        )
    return f"#if defined(USDTBUILD_COMPLETE) && !defined({name})\n{text}#endif\n"


def _continued(lines: list[str]) -> str:
    return " \\\n".join(f"\t{line}" for line in lines) + "\n"


def _body_lines(count: int, registers: int, letters: str = "") -> list[str]:
    """Return a body's lines.

    All values are computed before the first variable gets its register (the empty statement holds them): what a
    compiler computed in between, such as a call for a division, could change registers that are set already. It
    can't where all registers are named by the site's own constraints.
    """
    held, cells = range(min(count, registers)), range(registers, count)
    bound = held[len(letters) :]
    lines = []
    if cells:
        members = " ".join(f"__typeof__(arg{i}) v{i} __attribute__((__aligned__({_CELL})));" for i in cells)
        lines.append(f"struct {{ {members} }} usdt_cells;")
    lines.append("USDTBUILD_BASE();")
    if bound or (held and cells):
        lines.append("__asm__(\"\" : " + ", ".join(f'"+r"(arg{i})' for i in held) + ");")
    lines += [f"usdt_cells.v{i} = arg{i};" for i in cells]
    variables = [f"register __typeof__(arg{i}) usdt_{i} __asm__(USDTBUILD_REGISTER_{i}) = arg{i};" for i in bound]
    inputs = [*(f'"{letter}"(arg{i})' for i, letter in zip(held, letters)), *(f'"r"(usdt_{i})' for i in bound)]
    if cells:
        variables.append("register void const *usdt_base __asm__(USDTBUILD_BASE_REGISTER) = &usdt_cells;")
        inputs += ['"r"(usdt_base)', '"m"(usdt_cells)']
    site = f"USDTBUILD_ASM(site : : {', '.join(inputs)});"
    if not variables:
        return [*lines, site]
    return [*lines, f"{{ {variables[0]}", *(f"  {variable}" for variable in variables[1:]), f"  {site} }}"]


def _provider(provider: Provider) -> str:
    macros = "".join(_macros(provider.name, probe) for probe in provider.probes)
    off = _const_last("".join(header.disabled(provider.name, probe) for probe in provider.probes))
    functions = _FUNCTIONS.format(
        complete="".join(_complete(provider.name, probe) for probe in provider.probes),
        called="".join(_called(provider.name, probe) for probe in provider.probes),
    )
    # `char *` in the description is text, which the assembler takes with its blank as a number.
    description = _DESCRIPTION.format(header.description(provider).replace(" *", r"\\040*"))
    live = f"{macros}\n{functions}\n{description}"
    return header.provider_block(provider, f"#if {_NO_PROBES}\n\n{off}\n#else\n\n{live}\n#endif\n")


def _const_last(declarations: str) -> str:
    """Return C declarations with `char const *` for `const char *`."""
    return _CONST_FIRST.sub(r"\2 const \1*", declarations)


def _macros(provider: str, probe: Probe) -> str:
    stub = f"{provider}___{probe.stub}"
    return header.macro(provider, probe, False, f"__dtrace_{stub}(%s)") + (
        f"#define\t{macro_name(provider, probe.stub)}_ENABLED() \\\n"
        f"\tUSDTBUILD_IS_ENABLED({provider}_{probe.stub}_semaphore, __dtraceenabled_{stub})\n"
    )


def _called(provider: str, probe: Probe) -> str:
    stub = f"{provider}___{probe.stub}"
    types = _const_last(", ".join(header.stub_types(probe))) or "void"
    return (
        f"extern void __dtrace_{stub}({types}) USDTBUILD_STUB;\n"
        f"extern int __dtraceenabled_{stub}(void) USDTBUILD_STUB;\n"
    )


def _complete(provider: str, probe: Probe) -> str:
    """Return the function that is a probe's site wherever it is inlined, and the semaphore of its is-enabled test."""
    stub, semaphore = f"{provider}___{probe.stub}", f"{provider}_{probe.stub}_semaphore"
    names = [f"arg{index}" for index in range(len(probe.arguments))]
    parameters = _const_last(", ".join(map(header.declare, header.stub_types(probe), names))) or "void"
    shown = names[:MAX_ARGUMENTS]
    unused = "".join(f" (void){name};" for name in names[MAX_ARGUMENTS:])
    operands = _operands(probe) or '""'
    site = f'USDTBUILD_SITE("{provider}", "{probe.stub}", "{semaphore}", {operands})'
    return (
        f"extern volatile unsigned short {semaphore} USDTBUILD_HIDDEN;\n"
        f"USDTBUILD_INLINE void __dtrace_{stub}({parameters})\n"
        f"{{\n\tUSDTBUILD_PROBE_{len(shown)}({', '.join([site, *shown])}){unused}\n}}\n"
    )


def _operands(probe: Probe) -> str:
    """Return the operands of the note as C strings and macros: `"-4@" USDTBUILD_N0 " " USDTBUILD_P USDTBUILD_W1`."""
    words = []
    for index, argument in enumerate(probe.arguments[:MAX_ARGUMENTS]):
        ctype = argument.type
        sign = "-" if ctype.signed and ctype.kind != FLOAT else ""
        before = (" " if index else "") + sign
        place = f"USDTBUILD_{'W' if ctype.size64 == 8 else 'N'}{index}"
        if ctype.size64 == ctype.size32:
            words.append(f'"{before}{ctype.size64}@" {place}')
        else:
            words.append((f'"{before}" ' if before else "") + f"USDTBUILD_P {place}")
    return " ".join(words)
