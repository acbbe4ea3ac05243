"""What is known about a machine beside its probe calls, as records: the vocabulary of the machines' tables of facts.

Instructions that may stand at a site, how its assembler writes operands and which of them tracers understand,
relocation types, branches, and what a patchable entry looks like. Records and no behaviour; nothing here reads a
file. (What a probe call looks like, and what takes its place, is `calls`.)
"""

from __future__ import annotations

from ..record import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping

    from .calling import Calling

    Macros = Mapping[str, str]
    # Gets code, its address, targets and a mask for addresses.
    Seeker = Callable[[bytes, int, Collection[int], int], Iterator[tuple[int, int, int]]]


class Relocations(NamedTuple):
    """Relocation types (from the ELF psABIs), -1 where none is known. R_*_NONE is 0 for all machines.

    `relative` is what a dynamic linker adds the load address for, `absolute` an address, `pc32` a distance of 32
    bits; `absolute32` is an address of 32-bit objects where that is another type. `branches` says of an object's
    branches what to add to symbol and addend to get the target. `differences` are the types that add (1) or subtract
    (-1) a symbol in a 32-bit word.
    """

    relative: int = -1
    absolute: int = -1
    pc32: int = -1
    absolute32: int = -1
    branches: Mapping[int, int] = {}
    differences: Mapping[int, int] = {}

    def address(self, *, is64: bool) -> int:
        """Return the type of an address of 64-bit or of 32-bit objects."""
        return self.absolute if is64 or self.absolute32 < 0 else self.absolute32


class Operands(NamedTuple):
    """How the assembler writes a register, a memory operand and a constant.

    In the patterns NUMBER, NAME and REG stand for themselves. `readable` are the patterns of what a tracer (libbpf,
    bcc, perf) understands behind the `@`.
    """

    register: str
    memory: str
    constant: str = r"(?P<constant>NUMBER)"
    readable: Mapping[str, str] = {}


class Scheme(NamedTuple):
    """One way to patch an entry: at least `padding` bytes before it, and `entry` bytes of NOPs in it."""

    padding: int
    entry: int
    what: str


class LongNop(NamedTuple):
    """A form of NOP: at most `most` of the prefix bytes, the bytes `code`, and behind these `more` of any value."""

    prefixes: bytes
    most: int
    code: bytes
    more: int


class Verdict(NamedTuple):
    """What a patch that covers an instruction must do: what its copy must be changed into, or what forbids one.

    `ends`: the function ends there. `relative_to` is an address that the copy must still reach with 32 bits.
    """

    fix: str = ""
    against: str = ""
    ends: bool = False
    relative_to: int | None = None


class Entries(NamedTuple):
    """What a checker of patchable entries must know about one instruction set. NOP bytes are in file order.

    `told_by` says of a compiler's macros, and whether it is for little-endian machines, if this is what it compiles
    for; `emulator` runs a program, and `hosts` are names that uname(1) has where it runs by itself. `long_nops`
    are NOPs of any length, where there are many; `foreign_nops` are those of the machine's other
    instruction set, which compilers wrongly put into padding. `relaxed` is the length of the NOP that a linker may
    write in place of a function's first instruction. `unit` returns how long the compiler's NOP is by its macros,
    where that isn't the usual. `cure` is what to say of a compiler that doesn't take the option. `judge` says of an
    instruction (address, length, mnemonic, operands) what a patch of an ordinary prologue that covers it must do.
    """

    name: str
    align: int  # every instruction starts at a multiple of this
    nops: tuple[tuple[bytes, str], ...]  # fixed forms and names
    pads: tuple[tuple[bytes, str], ...]  # landing pads
    units: tuple[int, ...]  # bytes in the compiler's one NOP, the usual first
    scheme: tuple[int, int]  # the smallest N,M that can be patched safely, as the flags command gives it
    ways: tuple[Scheme, ...]  # what any other N,M has to have room for
    prologue: int = 0  # bytes a patch of an ordinary prologue needs; 0: not known here
    told_by: Callable[[Macros, bool], bool] = lambda macros, little: False
    emulator: str = ""
    hosts: tuple[str, ...] = ()
    long_nops: tuple[LongNop, ...] = ()
    foreign_nops: tuple[tuple[bytes, str], ...] = ()
    relaxed: int = 0
    unit: Callable[[Macros], int] | None = None
    cure: str = ""
    judge: Callable[[int, int, str, str], Verdict] | None = None


class Branches(NamedTuple):
    """What relative branches look like in bytes, in code made of units of 2 or 4 bytes.

    `decode` gets a word, or a halfword and the one behind it, and returns the distance from its first byte, or None.
    `little` is whether code is little-endian in files of either byte order; None where it is in the file's.
    """

    unit: int
    decode: Callable[[int], int | None] | Callable[[int, int], int | None]
    little: bool | None = None


class Passing(NamedTuple):
    """How functions get arguments and give results: places as notes spell them, the first argument's first.

    `integers` are the registers for integers and pointers, `floats` those for floating-point numbers of at most 8
    bytes; none where these have an influence on where integers are. `stack` is a place on the stack, at a distance
    from the stack pointer, '' where that isn't said here; at a function's entry the first argument there has the
    distance `first`, and a call instruction moves the stack pointer by `pushed`. `results` are the places of an
    integer or pointer, and of a floating-point number, that a function has returned; '' where that isn't said here.
    """

    integers: tuple[str, ...]
    floats: tuple[str, ...] = ()
    stack: str = ""
    first: int = 0
    pushed: int = 0
    results: tuple[str, str] = ("", "")


class Stopped(NamedTuple):
    """How a stopped thread is seen through the gdb remote protocol.

    `pc` is the name of the program counter. `spelled` is what a register of an operand is called there, where that
    isn't its own name, and `high` are registers that are the second byte of another. `zero` are registers that are
    always 0. `layouts` are names and sizes in bytes of the registers in a `g` packet, in order, for stubs that don't
    describe them; the largest that fits is what a stub has. `trap` returns how many bytes of the code at a site a
    breakpoint takes, which is what Z0 packets call its kind. `debug_tags` are tags of a dynamic section that lead to
    struct r_debug where DT_DEBUG can't, because the section isn't written: with an address, and counted from the entry.
    `stack` is the stack pointer, `link` the register that a called function finds its return address in ('': it is on
    the stack), of which the bits of `thumb` are no address; `call` is how many bytes an instruction has that calls
    through a slot. `below` is in how many words right below the stack pointer a return may have left its address.
    Without `stack` returns are not known. `atomic` returns, given code, its address and whether it is
    little-endian, where a sequence that can't be stepped through has ended; nothing if none begins there. It reserves
    memory for a store, which a stop in between takes away again, so that it would begin anew for ever.
    """

    pc: str = "pc"
    spelled: Mapping[str, str] = {}
    high: Mapping[str, str] = {}
    zero: frozenset[str] = frozenset()
    layouts: tuple[tuple[tuple[str, int], ...], ...] = ()
    trap: Callable[[bytes], int] = lambda code: 4
    debug_tags: tuple[int, int] = (0, 0)
    stack: str = ""
    link: str = ""
    thumb: int = 0
    call: int = 4
    below: int = 0
    atomic: Callable[[bytes, int, bool], tuple[int, ...]] | None = None


class Facts(NamedTuple):
    """All of it for one machine number.

    `align`: every instruction starts at a multiple of this. `quiet` are the instructions that may stand at a site, as
    a big-endian number's hexadecimal digits, with their mnemonics, and `clears` those that clear a function's result,
    where a call has room for nothing else: DTrace sets the result there. Of the digits in `halves` each half is in
    byte order. `code_orders` returns the byte orders (little?) that code may have in a file of the given one.
    `length` returns how long the instruction at an offset is, where lengths differ and bytes say it; `decoded` is
    whether NOPs have so many forms that only a disassembler knows them (x86). `disassembler` returns capstone's names
    for the instruction set and modes, each as alternatives (its versions differ), given 64-bit class, little-endian
    and Thumb; None where capstone isn't used. `mapping_symbols` is whether assemblers mark data in code ($d).
    Where instructions begin at any byte, `branches_of_bytes` returns what yields what looks like a branch to one of
    some targets: its address, the target, where its changeable bytes are; at most `prefixes` bytes stand before it.
    There `returns` is a plain return, and `filler` a byte that fills code which nobody runs.
    `entries` returns what patchable entries look like, given 64-bit class and little-endian. `hotpatch` is an s390x
    function's own form of entry: padding and entry. `thumb` are the entries of a second instruction set, of which bit
    0 of a function symbol's value tells. `descriptors` is the relocation that makes the code's address in a function
    descriptor of `.opd`, where function symbols name these (ppc64 ELFv1). `pairs`: the 32-bit ABI passes arguments of
    eight bytes in two registers. `page` is the largest page a kernel is built with, where that is more than 4096.
    `passing` is how functions get their arguments, where that is known; `calling` returns all of the convention, for
    files of 64-bit class.
    `stopped` is how a stopped thread is seen through the gdb remote protocol. `overwritten` returns, given the code
    from a function's beginning and a site's offset in it, whether a kernel that makes a call of the site's NOP
    overwrites data of the function; None where no kernel does that.
    """

    name: str
    align: int
    operands: Operands
    relocations: Relocations
    quiet: Mapping[str, str] = {}
    clears: Mapping[str, str] = {}
    halves: frozenset[str] = frozenset()
    code_orders: Callable[[bool], tuple[bool, ...]] = lambda little: (little,)
    length: Callable[[bytes, int], int] | None = None
    decoded: bool = False
    disassembler: Callable[[bool, bool, bool], tuple[tuple[str, ...], ...]] | None = None
    mapping_symbols: bool = False
    branches: tuple[Branches, ...] = ()
    branches_of_bytes: Callable[[], Seeker] | None = None
    prefixes: int = 0
    returns: bytes = b""
    filler: bytes = b""
    entries: Callable[[bool, bool], Entries | None] = lambda is64, little: None
    hotpatch: tuple[bytes, bytes] | None = None
    thumb: Entries | None = None
    descriptors: int = 0
    pairs: bool = False
    page: int = 0
    passing: Passing | None = None
    calling: Callable[[], Calling] | None = None
    stopped: Stopped = Stopped()
    overwritten: Callable[[bytes, int], bool] | None = None
