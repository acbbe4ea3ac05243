r"""Writes what `dtrace -h` writes: a header whose macros are complete probes, whatever is done with the objects later.

Projects that call `dtrace -h` often hand no object to `dtrace -G`, install the header, or edit it with sed. So on Linux,
with GNU-compatible compilers, a macro calls an inline function that holds the site and its record as inline assembly:
one NOP, the arguments in the registers in which a call would pass them, and an SDT note that is tied to the code. The
operands come from the provider's types and from the machine, not from what the compiler chooses; what has no register
lies in cells of eight bytes that one register points to. An is-enabled test reads a semaphore, which each object
that reads it defines (in a COMDAT group, as `instrument` does).

Elsewhere, on machines without a row in `_MACHINES`, and with -DUSDT_PROBES_BY_CALL, the macros call the classic stubs,
which the launcher (`usdtbuild cc`) or `dtrace -G` complete. With -DUSDT_DISABLED they do nothing.

The layout is DTrace's: a line begins with `#define`, a tab and the macro, the expansion is on the next line, and
nothing that sed may look for (`char *`, a provider's name in capitals) stands in the rest. What is common with the
header of `usdtbuild header` comes from there. No use of sys/sdt.h, and no conflict with it.
"""

from __future__ import annotations

from typing import NamedTuple

from .._version import __version__
from ..formats.stapsdt import MAX_ARGUMENTS
from . import describe, header
from .model import FLOAT, INTEGER, Probe, Provider
from .parser import macro_name

_IN_REGISTERS = 6
_CELL = 8


class _Machine(NamedTuple):
    """How the arguments of a site are spelled on one machine.

    `condition` is the preprocessor's; `narrow` and `wide` are the operands of the first arguments with up to 32 and
    with 64 bits, `registers` what the compiler calls these registers. Further arguments are in cells, in `memory` at
    the register `base`. Machines with 32-bit addresses have cells only, since no operand names a pair of registers.
    """

    condition: str
    base: str
    memory: str
    at_zero: str
    registers: tuple[str, ...] = ()
    narrow: tuple[str, ...] = ()
    wide: tuple[str, ...] = ()


def _numbered(pattern: str, first: int) -> tuple[str, ...]:
    return tuple(pattern.format(number) for number in range(first, first + _IN_REGISTERS))


# The registers are those of the machine's calling convention as far as it has six, see `usdtbuild.arch`.
_MACHINES = (
    _Machine("defined(__x86_64__) && defined(__LP64__)", "rax", "{}(%%rax)", "0(%%rax)",
             ("rdi", "rsi", "rdx", "rcx", "r8", "r9"),
             ("%%edi", "%%esi", "%%edx", "%%ecx", "%%r8d", "%%r9d"),
             ("%%rdi", "%%rsi", "%%rdx", "%%rcx", "%%r8", "%%r9")),
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
#define USDTBUILD_BASE_FLAGS "aGR"
#else
#define USDTBUILD_NOTE_SECTION ".note.stapsdt,\\"?\\",\\"note\\""
#define USDTBUILD_BASE_FLAGS "aG"
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
#define USDTBUILD_BASE() \\
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
	USDTBUILD_TIE \\
	USDTBUILD_OBJECT(semaphore) \\
	"\\t.endif\\n" : :)
#define USDTBUILD_OBJECT(name) \\
	"\\t.weak " name "\\n" \\
	"\\t.hidden " name "\\n" \\
	"\\t.type " name ",%%object\\n" \\
	"\\t.size " name ",2\\n" \\
	name ":\\t.zero 2\\n" \\
	"\\t.popsection\\n"
#endif
#endif
"""
_FUNCTIONS_OPEN = """\
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Woverlength-strings"
"""
