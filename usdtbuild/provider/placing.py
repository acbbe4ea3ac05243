"""Puts a probe's arguments where a call would have them: the machines' rows, and C macros made of them.

For headers whose probes are branches that `instrument` turns into NOPs (`header`). What is here: which registers a
machine's calling convention has for the first arguments, and the statements that hold the arguments there and nothing
else, so that the compiler keeps all other registers, and its stack, as they are.

Knows no records: the statement's text is the macro's first argument.
"""

from __future__ import annotations

from ..record import NamedTuple
from . import describe

_X86_64_LETTERS = "DSdc"


class HeaderMachine(NamedTuple):
    """One machine's registers, as its compilers call them.

    `condition` is the preprocessor's. `registers` are those of the calling convention, in order, and `letters` the
    constraints that name the first of them (a variable bound to a register costs compilers more than the rest of a
    probe). `passed` says how many of them a call to a stub fills, and `branch` is the instruction for it, with
    `{}` for the stub's name; `wide` says that one of them holds 64 bits.
    """

    condition: str
    registers: tuple[str, ...] = ()
    letters: str = ""
    passed: int = 0
    branch: str = ""
    wide: bool = True


def _numbered(pattern: str, first: int, count: int) -> tuple[str, ...]:
    return tuple(pattern.format(number) for number in range(first, first + count))


_X86_64 = ("rdi", "rsi", "rdx", "rcx", "r8", "r9")
# `call` with R_X86_64_PC32. With R_X86_64_PLT32, which assemblers write for `call`, mold 2.37 links a shared library
# without a word though nobody defines the hidden symbol, and the call leads to the library's first byte.
_CALL = ".byte 0xe8\\n\\t.long {} - . - 4"
# The conventions are those of `usdtbuild.machines`. A branch must be of a form that `Calls.replace` knows wherever
# an assembler may put it: nothing says that the stub, if it were called, could change registers.
MACHINES = (
    HeaderMachine("defined(__x86_64__)", _X86_64, _X86_64_LETTERS, 6, _CALL),
    HeaderMachine("defined(__i386__)", (), "", 0, "call {}", False),
    HeaderMachine("defined(__aarch64__)", _numbered("x{}", 0, 8), "", 8, "bl {}"),
    # In Thumb code what looks like an `it` block before a branch keeps it from being replaced.
    HeaderMachine("defined(__arm__) && !defined(__thumb__)", _numbered("r{}", 0, 4), "", 4, "bl {}", False),
    HeaderMachine("defined(__riscv) && defined(__LP64__)", _numbered("a{}", 0, 8), "", 8, "call {}"),
    HeaderMachine("defined(__riscv)", _numbered("a{}", 0, 8), "", 8, "call {}", False),
    HeaderMachine("defined(__s390x__)", _numbered("r{}", 2, 6), "", 5, "brasl %%r14,{}"),
    HeaderMachine("defined(__powerpc64__)", _numbered("r{}", 3, 8), "", 8, "bl {}\\n\\tnop"),
    HeaderMachine("defined(__loongarch64)", _numbered("$r{}", 4, 8), "", 8, "bl {}"),
)  # fmt: skip


# More arguments than this are in registers nowhere.
MOST = max(machine.passed for machine in MACHINES)

# A change of these macros' meaning changes the number in their guard.
_COMMON = """\
#ifndef USDTBUILD_MACHINE_2
#define USDTBUILD_MACHINE_2
#if defined(__GNUC__) && defined(__ELF__) && !defined(USDT_PROBES_BY_CALL)
{rows}#endif
/* Otherwise a compiler takes each line of text for an instruction when it decides what to inline. */
#if defined(__clang__) ? __clang_major__ >= 11 : __GNUC__ >= 9
#define USDTBUILD_ASM __asm__ __volatile__ __inline__
#else
#define USDTBUILD_ASM __asm__ __volatile__
#endif
/* A probe doesn't use what it points to, so compilers have nothing to warn of: freed memory may be shown, and a
   variable without a value. */
#if defined(__GNUC__) && !defined(__clang__) && __GNUC__ >= 12
#define USDTBUILD_QUIET _Pragma("GCC diagnostic push") _Pragma("GCC diagnostic ignored \\"-Wuse-after-free\\"") \\
	_Pragma("GCC diagnostic ignored \\"-Wmaybe-uninitialized\\"")
#define USDTBUILD_END_QUIET _Pragma("GCC diagnostic pop")
#define USDTBUILD_UNUSED(number) __attribute__((__access__(__none__, number)))
#define USDTBUILD_QUIET_CALL(call) (__extension__ ({ USDTBUILD_QUIET call; USDTBUILD_END_QUIET (void)0; }))
#else
#define USDTBUILD_QUIET
#define USDTBUILD_END_QUIET
#define USDTBUILD_UNUSED(number)
#endif
/* So linkers tell of an object that hasn't been completed what is missing. Elsewhere the system's own `dtrace -G` may
   complete it, which knows the plain names. */
#if defined(__linux__)
#define USDTBUILD_MADE_BY "{made_by}"
#else
#define USDTBUILD_MADE_BY
#endif
/* Says in the object, once, that a provider's probes are branches which nothing may follow. */
#define USDTBUILD_MARK(percent, provider) "\\t.ifndef .Lusdtbuild.branch." provider "\\n" \\
	"\\t.pushsection {section},\\"G\\"," percent "progbits,usdtbuild.branch." provider ",comdat\\n" \\
	".Lusdtbuild.branch." provider ":\\t.ascii \\"{mark}\\\\t" provider "\\\\n\\"\\n" \\
	"\\t.popsection\\n" \\
	"\\t.endif\\n"
#if !defined(__cplusplus)
#define USDTBUILD_NOEXCEPT
#elif __cplusplus >= 201103L
#define USDTBUILD_NOEXCEPT noexcept
#else
#define USDTBUILD_NOEXCEPT throw()
#endif
/* What a statement says of memory: compilers may leave out or put off stores that it doesn't read. */
#define USDTBUILD_READS : "memory"
#define USDTBUILD_PLAIN
/* Functions that throw nothing and that debuggers shall not stop in: the place of a site is the caller's. */
#if defined(__clang__)
#define USDTBUILD_UNSEEN __attribute__((__nothrow__, __nodebug__))
#else
#define USDTBUILD_UNSEEN __attribute__((__nothrow__, __artificial__))
#endif
#endif
"""


def unused(parameters: list[str]) -> str:
    """Return the attributes of a function with parameters of these C types: it uses nothing that they point to."""
    return "".join(f" USDTBUILD_UNUSED({i})" for i, type_ in enumerate(parameters, 1) if type_.endswith("*"))


def common() -> str:
    """Return the macros that choose a row of MACHINES; none are defined where probes must be calls.

    They are USDTBUILD_BRANCH(stub), USDTBUILD_PASSED (how many arguments), USDTBUILD_64_BITS, USDTBUILD_REGISTER_N and
    USDTBUILD_IN_LETTERS.
    """
    rows = "".join(_row(machine, "elif" if index else "if") for index, machine in enumerate(MACHINES))
    text = _COMMON.replace("{section}", describe.SECTION).replace("{mark}", describe.BRANCH)
    text = text.replace("{made_by}", describe.MADE_BY)
    return text.replace("{rows}", rows + "#endif\n")


def _row(machine: HeaderMachine, keyword: str) -> str:
    lines = [f"#{keyword} {machine.condition}"]
    if machine.branch:
        before, after = machine.branch.split("{}")
        branch = f'"\\t{before}" stub USDTBUILD_MADE_BY' + (f' "{after}"' if after else "")
        lines.append(f'#define USDTBUILD_BRANCH(stub) "\\t.hidden " stub USDTBUILD_MADE_BY "\\n" {branch} "\\n"')
        lines.append(f"#define USDTBUILD_PASSED {machine.passed}")
    lines += ["#define USDTBUILD_64_BITS"] if machine.wide else []
    lines += ["#define USDTBUILD_IN_LETTERS"] if machine.letters else []
    lines += [f'#define USDTBUILD_REGISTER_{index} "{name}"' for index, name in enumerate(machine.registers)]
    return "\n".join(lines) + "\n"


def body(name: str, count: int) -> str:
    """Return the macro `NAME_COUNT(text, clobber, function, arg0...)`: the statement `text` with arguments in place.

    `clobber` is USDTBUILD_READS where an argument points to something, else USDTBUILD_PLAIN; to the `function` the
    statement refers, wherever it is.
    """
    names = ", ".join(["text", "clobber", "function", *(f"arg{i}" for i in range(count))])
    head = f"#define {name}_{count}({names}) \\\n"
    if not count:
        return head + _continued(_lines(0, ""))
    letters, registers = (head + _continued(_lines(count, letters)) for letters in (_X86_64_LETTERS, ""))
    return f"#if defined(USDTBUILD_IN_LETTERS)\n{letters}#else\n{registers}#endif\n"


def _continued(lines: list[str]) -> str:
    return " \\\n".join(f"\t{line}" for line in lines) + "\n"


def _lines(count: int, letters: str) -> list[str]:
    """Return a body's lines.

    All values are computed before the first variable gets its register (the empty statement holds them): what a
    compiler computed in between, such as a call for a division, could change registers that are set already. It
    can't where all registers are named by the site's own constraints.
    """
    bound = range(min(count, len(letters)), count)
    lines = ['__asm__("" : ' + ", ".join(f'"+r"(arg{i})' for i in range(count)) + ");"] if bound else []
    variables = [f"register __typeof__(arg{i}) usdt_{i} __asm__(USDTBUILD_REGISTER_{i}) = arg{i};" for i in bound]
    function = '"X"(function)'
    inputs = [*(f'"{letter}"(arg{i})' for i, letter in enumerate(letters[:count])), *(f'"r"(usdt_{i})' for i in bound)]
    site = f"USDTBUILD_ASM(text : : {', '.join([*inputs, function])} clobber);"
    if not variables:
        return [*lines, site]
    return [*lines, f"{{ {variables[0]}", *(f"  {variable}" for variable in variables[1:]), f"  {site} }}"]
