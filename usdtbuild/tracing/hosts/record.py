"""What a record of a machine says; see the package."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...record import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


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
    number: str
    arguments: tuple[str, ...]
    instruction: bytes
    idle: Mapping[str, int]
    restarts: bool
    loop: bytes
    loop_registers: tuple[str, ...]
    way_back: WayBack | None


class Traps(NamedTuple):
    """Breakpoints: the instruction, and how many bytes behind it the thread stands that has run into it.

    `stands` says whether code begins with anybody's breakpoint. `skip` returns how many bytes of code that begins with
    a NOP a thread may go on behind, RETURN where it begins with a return, 0 for any other.
    """

    instruction: bytes
    behind: int
    stands: Callable[[bytes], bool]
    skip: Callable[[bytes], int]


RETURN = -1


class Space(NamedTuple):
    """The address space. `end` returns its end, from the end of the highest mapping; `libraries` from where on, in
    sixteenths of it, the kernel puts what asks for no address."""

    end: Callable[[int], int]
    libraries: int


class Host(NamedTuple):
    """One machine. `number` is its e_machine; `tids` are places where C libraries keep a thread's number, from its
    thread pointer, which `thread_pointer` is: a register, or (a number) a regset of its own. Instructions begin at
    multiples of `alignment`.

    Functions in machine code, C calling convention, for this process: `ticks` returns what the clock of the stubs says,
    `ticks_a_second` its rate (b'' where only looking twice tells), `skip` is what `native.skip` does, and `fence` keeps
    loads and stores before it before those behind it (b'': the machine does).
    """

    number: int
    title: str
    registers: Registers
    kernel: Kernel
    traps: Traps
    space: Space
    alignment: int
    thread_pointer: str | int
    tids: tuple[int, ...]
    ticks: bytes
    ticks_a_second: bytes
    skip: bytes
    fence: bytes
