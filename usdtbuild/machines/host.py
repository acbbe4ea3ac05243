"""The machine that tracing runs on, as its kernel and its instructions have it: what engines need to know of it.

A machine that engines are for has a module `host` with its record, HOST. With the first part of it the trap engine
works; what comes behind that is for the patch engine, which needs machine code, too (`templates`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ..record import NamedTuple


class Registers(NamedTuple):
    """A thread's registers as ptrace has them.

    `names` are those of NT_PRSTATUS in order, 8 bytes each; `counter`, `stack`, `result` those of them that are the
    instruction pointer, the stack pointer, and where a system call's result is. `link` is the one that a called
    function finds its return address in ('': it is on the stack). `part` returns the register of 8 bytes that an
    operand's name is (a part of), and how many bits up the part is; None for others. `zero` are names of a register
    that is always 0.

    `floats` names the registers of floating-point numbers, whose low 8 bytes are the words `float_places` of the
    `float_words` that NT_FPREGSET has; `float_part` returns which of them an operand's name is, '' for others.
    """

    names: tuple[str, ...]
    counter: str
    stack: str
    result: str
    link: str
    part: Callable[[str], tuple[str, int] | None]
    zero: frozenset[str]
    floats: tuple[str, ...]
    float_words: int
    float_places: range
    float_part: Callable[[str], str]


class WayBack(NamedTuple):
    """Code that makes a system call, and then lets the thread go on as if it had never been there: a file is closed,
    the signal mask set, registers loaded, and the last instruction jumps. Nothing of it touches flags or the stack.

    The call is its first instruction; `begins` is where the way back does. Data stands behind the code: `name` is where
    a text may be, 16 bytes, `file` the file's number (4 bytes), `mask` 8 bytes, `values` 8 bytes for each of
    `registers`. `resumed` returns a thread's registers as they are when the kernel has restarted the call that the
    thread was stopped in.
    """

    code: bytes
    size: int
    begins: int
    name: int
    file: int
    mask: int
    values: int
    registers: tuple[str, ...]
    resumed: Callable[[Mapping[str, int]], dict[str, int]]


class Kernel(NamedTuple):
    """How system calls are made: their numbers by name, the registers of number and arguments, the instruction.

    `idle` are registers to set so that the kernel doesn't take a thread for one in a system call; `restarts` says that
    the kernel has prepared a thread that stopped in a call for its restart, in a way that only shows when it goes on.
    `loop` makes the calls of a table, and then says so: its registers hold the table (a number and six arguments, 8
    bytes each), how many, where results go and where a 1 goes at the end. Where there is a `way_back`, two more hold
    its address and a file that the loop then waits for (`flock`), to go that way when it gets it.
    """

    numbers: Mapping[str, int]
    number: str = ""
    arguments: tuple[str, ...] = ()
    instruction: bytes = b""
    idle: Mapping[str, int] = {}
    restarts: bool = False
    loop: bytes = b""
    loop_registers: tuple[str, ...] = ()
    way_back: WayBack | None = None


class Traps(NamedTuple):
    """Breakpoints: the instruction, and how many bytes behind it the thread stands that has run into it.

    `stands` says whether code begins with anybody's breakpoint. `skip` returns how many bytes of code that begins with
    a NOP a thread may go on behind, RETURN where it begins with a return, 0 for any other. `called` returns where a
    call leads that ends at an address, given the 8 bytes before that; None where no direct call is there. Where there
    is a link register, `calls` returns how many bytes the call by a register has that code begins with, 0 for others.

    Where a kernel can't let a thread execute one instruction, `leads` returns where the one at an address, with which
    code begins, leads to, by the values of registers: nowhere if that can't be told.
    """

    instruction: bytes
    behind: int
    stands: Callable[[bytes], bool]
    skip: Callable[[bytes], int]
    called: Callable[[bytes, int], int | None]
    calls: Callable[[bytes], int] = lambda code: 0
    leads: Callable[[bytes, int, Mapping[str, int]], tuple[int, ...]] | None = None


RETURN = -1


def skip_by(quiet: Mapping[str, str]) -> Callable[[bytes], int]:
    """Return `Traps.skip` of a little-endian machine by what its facts call quiet."""
    known = [
        (bytes.fromhex(digits)[::-1], RETURN if name.endswith("ret") else len(digits) // 2)
        for digits, name in quiet.items()
    ]
    return lambda code: next((length for form, length in known if code.startswith(form)), 0)


class Space(NamedTuple):
    """The address space. `end` returns its end, from the end of the highest mapping; `libraries` from where on, in
    sixteenths of it, the kernel puts what asks for no address."""

    end: Callable[[int], int]
    libraries: int


class Host(NamedTuple):
    """One machine. `number` is its e_machine, `title` the name for people, which uname(1) has with another hyphen.

    `tids` are places where C libraries keep a thread's number, from its thread pointer, which `thread_pointer` is: a
    register, or (a number) a regset of its own. Instructions begin at multiples of `alignment`.

    Functions in machine code, C calling convention, for this process: `ticks` returns what the clock of the stubs says
    (b'': stubs are not for this machine), `ticks_a_second` its rate (b'' where only looking twice tells), `skip` is
    what `native.skip` does, and `fence` keeps loads and stores before it before those behind it (b'': the machine
    does).
    """

    number: int
    title: str
    registers: Registers
    traps: Traps
    kernel: Kernel
    space: Space = Space(lambda last: last, 0)
    alignment: int = 1
    thread_pointer: str | int = ""
    tids: tuple[int, ...] = ()
    ticks: bytes = b""
    ticks_a_second: bytes = b""
    skip: bytes = b""
    fence: bytes = b""


# <asm-generic/unistd.h>, which all machines have that Linux came to later.
GENERIC = {
    "mmap": 222, "munmap": 215, "close": 57, "madvise": 233, "memfd_create": 279, "pidfd_getfd": 438, "getpid": 172,
    "gettid": 178, "rt_sigprocmask": 135, "clone": 220, "clone3": 435, "tgkill": 131, "futex": 98,
}  # fmt: skip
