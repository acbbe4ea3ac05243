"""MIPS: o32 (32 bits), n32 and n64 (64 bits), in either byte order: routers, older workstations, Loongson before 2021.

Every instruction is one 32-bit word. In code with fixed addresses a call is `jal`, a jump `j`, with the target in words
in 26 bits. But Linux code is nearly always position independent ("abicalls"): the target's address is loaded from the
global offset table into $25, and the call is `jalr $25`. Compilers mark such a call with a relocation (JALR) that
names its target, so that linkers can make a direct branch of it; that mark is a site for us too. The load stays and
needs a definition of the stub.

As on SPARC, the instruction behind a branch (the delay slot) is executed before the branch's target. A call's delay
instruction moves to the call's own place, with its relocation, and the NOP behind it. In a tail call there is no room
for that, so one whose delay slot isn't empty stays as it is and goes to the stub.

Arguments are in $4...$7 with o32 and in $4...$11 with n32 and n64, the others on the stack: o32 has 32-bit slots, with
homes for the registers too, so that the fifth is at 16($sp), n32 and n64 64-bit slots from 0($sp) on. With o32 an
argument of eight bytes takes two slots beginning with an even one. The return address is in $31, the result in $2.

o32 has relocations without addend of their own (SHT_REL). n64 packs three types into one relocation, which are applied
one after the other; a single one has the others 0.

ABI: "System V ABI MIPS Processor Supplement" 3 and 4; "64-bit ELF Object File Specification" 2.9 (relocations);
"MIPSpro N32 ABI Handbook" 2 (parameters).
"""

from __future__ import annotations

from ..arguments import Convention, spell
from ..calls import PlaceRelocation, ProbeCalls, Replacement, StandIn, StubRelocation, signed, word, words
from ..numbers import EM_MIPS

TYPE_CHECKING = False
if TYPE_CHECKING:
    import re
    from collections.abc import Iterator, Sequence
    from typing import Literal

    from ..facts import Facts
    from ..stubs import Branch, CodeSpan, FileCode, LibraryCalls
    from ..values import Step

# Relocation types.
R_NONE, R_32, R_26, R_64, R_JALR, R_PC32 = 0, 2, 4, 18, 37, 248

# e_flags.
EF_ABI2 = 0x20  # n32
EF_ARCH, ARCH_32R6, ARCH_64R6 = 0xF0000000, 0x90000000, 0xA0000000

# Instruction words.
_JAL, _J = 0x0C000000, 0x08000000
_JALR_25 = 0x0320F809  # jalr $25
_JR_25, _JR_25_R6 = 0x03200008, 0x03200009  # jr $25; release 6 has no `jr` and uses jalr $0, $25
_NOP = 0
_CLEAR = 0x00001025  # or $2, $0, $0
_JR = 0x00000008  # jr $0; the register goes into bits 21-25
_JALR_0 = 0x00000009  # jalr $0, $0, the same in release 6
_RA, _T8 = 31, 24


def machine(*, is64: bool, little: bool, flags: int) -> ProbeCalls:
    """Return MIPS for the ABI that the object's class and flags say."""
    long_slots = is64 or bool(flags & EF_ABI2)
    if long_slots:
        registers = tuple(f"${i}" for i in range(4, 12))
        convention = Convention(registers, "{}($sp)", "0($sp)", -8 * 8, 8, big=not little)
    else:
        registers = tuple(f"${i}" for i in range(4, 8))
        convention = Convention(registers, "{}($sp)", "0($sp)", 0, 4, big=not little, even_registers=True)
    jump = _JALR_0 if flags & EF_ARCH in {ARCH_32R6, ARCH_64R6} else _JR

    def replace(
        code: memoryview, offset: int, type_: int, addend: int | None, enabled: bool, nop: str
    ) -> Replacement | None:
        if addend or type_ not in {R_26, R_JALR} or offset + 8 > len(code):
            return None
        instruction, delay = word(code, offset, little), word(code, offset + 4, little)
        call, tail = (_JAL, {_J}) if type_ == R_26 else (_JALR_25, {_JR_25, _JR_25_R6})
        if instruction == call and _may_move(delay):
            moved = words(little, delay, _CLEAR if enabled else _NOP)
            return Replacement(offset, moved, offset + 4, False, moved_relocations=((offset + 4, offset),))
        if instruction in tail and delay == _NOP and not enabled:
            return Replacement(offset, words(little, jump | _RA << 21, _NOP), offset, True)
        return None

    def stub(enabled: bool, semaphore: bool, nop: str) -> StandIn:
        back = words(little, _NOP, jump | _RA << 21, _NOP)
        if not enabled:
            return StandIn(back, 0, 4)
        if not semaphore:
            return StandIn(words(little, _CLEAR) + back, 4, 4)
        return _semaphore_stub(little, long_slots, jump)

    return ProbeCalls(
        name="mips n64" if is64 else "mips n32" if long_slots else "mips o32", none=R_NONE,
        absolute=R_64 if is64 else R_32, replace=replace, stub=stub,
        operands=lambda arguments, tail: spell(convention, arguments),
        # n64 could write a distance as 64 bits in a second step (R_PC32, then R_64), but bfd doesn't extend its sign.
        pc_relative=() if is64 else (PlaceRelocation(R_PC32, 0 if little else 4, 0 if little else 4),),
        pc_relative_bits=32,
    )  # fmt: skip


def _may_move(instruction: int) -> bool:
    """Whether a delay instruction does the same before the call: is no branch, and doesn't touch $31."""
    major, rs, rt, rd = instruction >> 26, instruction >> 21 & 31, instruction >> 16 & 31, instruction >> 11 & 31
    if major == 0:
        return instruction & 0x3F not in {8, 9} and _RA not in {rs, rt, rd}  # jr, jalr
    if 1 <= major <= 7 or 20 <= major <= 23 or major in {29, 50, 58}:  # branches and jumps of all releases
        return False
    if major == 17 and rs in {8, 9, 10, 13}:  # branches on the floating point unit's condition
        return False
    three_registers = major in {17, 18, 19, 28, 31}
    return _RA not in {rs, rt} and not (three_registers and rd == _RA)


def _semaphore_stub(little: bool, long_registers: bool, jump: int) -> StandIn:
    """Return the stub that reads a semaphore by its distance from the code, since $gp may not be set up."""
    add = 0x005F102D if long_registers else 0x005F1021
    code = words(
        little,
        0x03E0C025,  # or $24, $31, $0
        0x04110001,  # bal .+8: $31 becomes 12
        _NOP,
        0x8FE2001C,  # lw $2, 28($31)
        _NOP,
        add,  # addu $2, $2, $31 / daddu
        0x94420000,  # lhu $2, 0($2)
        _NOP,
        jump | _T8 << 21,
        _NOP,
        0,  # semaphore - 12: the distance from this word, + 40 - 12
    )
    return StandIn(code, 28, 4, (StubRelocation(40, R_PC32, 28),))


# -- facts ------------------------------------------------------------------------------------------------------------


def _branch(instruction: int) -> int | None:
    """MIPS volume II: bltz and bgez, beq to bgtz, beql to bgtzl."""
    opcode = instruction >> 26
    return signed(instruction & 0xFFFF, 16) * 4 + 4 if opcode in {1, 4, 5, 6, 7, 20, 21, 22, 23} else None


def _atomic(code: bytes, address: int, little: bool) -> tuple[int, ...]:
    """See `Stopped.atomic`. MIPS volume II: LL, LLD, SC, SCD; of release 6 with another opcode."""
    from ..exclusive import Exclusive

    loads = (0xFC000000, 48 << 26), (0xFC000000, 52 << 26), (0xFC00007E, 0x7C000036)
    stores = (0xFC000000, 56 << 26), (0xFC000000, 60 << 26), (0xFC00007E, 0x7C000026)
    return Exclusive(loads, stores, _branch).ends(code, address, little)


def facts() -> dict[int, Facts]:
    """Return what is known beside probe calls, by machine number. Only who asks for it pays for it."""
    from ..facts import Facts, Operands, Relocations, Stopped

    # gdb's order, 73 words (gdb/mips-linux-tdep.h, and qemu's gdb server, which describes none)
    order = (
        *(f"r{n}" for n in range(32)), "sr", "lo", "hi", "bad", "cause", "pc", *(f"f{n}" for n in range(32)), "fsr",
        "fir", "fp",
    )  # fmt: skip
    return {
        EM_MIPS: Facts(
            "mips", 2,  # there is a compressed form, too
            Operands(r"\$\w+", r"(?P<front>NUMBER)?\((?P<base>REG)\)"), Relocations(),
            quiet={"00000000": "nop", "03e00008": "jr ra", "03e00009": "jalr zero, ra (release 6)"},
            clears={"00001025": "move $v0, $zero"}, pairs=True, page=65536,
            stopped=Stopped(
                spelled={"sp": "r29", "fp": "r30", "ra": "r31", "gp": "r28", **{str(n): f"r{n}" for n in range(32)}},
                zero=frozenset({"0", "zero"}), layouts=tuple(tuple((name, word) for name in order) for word in (4, 8)),
                atomic=_atomic, debug_tags=(0x70000016, 0x70000035),  # DT_MIPS_RLD_MAP, DT_MIPS_RLD_MAP_REL
            ),
        )
    }  # fmt: skip


# -- calls into libraries ---------------------------------------------------------------------------------------------


def stubs(code: FileCode) -> LibraryCalls:
    """Return what library calls look like.

    Position-independent code calls what its slot of the global offset table holds. Until the function's address is
    known that is a stub, which tells the resolver the symbol's number in t8; no later call goes through the stub. No
    relocation names such slots: DT_MIPS_GOTSYM is the first symbol that has one, and they stand in the symbols' order
    behind DT_MIPS_LOCAL_GOTNO others (System V ABI MIPS supplement, 5-9). Other code jumps through slots of a PLT.
    Files too large for one table have more (`_further_tables`), whose slots relocations name.
    """
    from ..stubs import Form, LibraryCalls, Word, low16, pattern, word

    little, size = code.little, 8 if code.is64 else 4
    first, last = code.tags.get(0x70000013, 0), code.tags.get(0x70000011, 0)  # DT_MIPS_GOTSYM, DT_MIPS_SYMTABNO
    start = code.tags.get(3, 0) + code.tags.get(0x7000000A, 0) * size  # DT_PLTGOT, DT_MIPS_LOCAL_GOTNO

    def of_symbol(match: re.Match[bytes], address: int, base: int) -> int | None:
        number = word(match, 3, little) << 16 & 0x7FFF0000 | word(match, 5, little) & 0xFFFF
        return start + (number - first) * size if first <= number < last else None

    def of_plt(match: re.Match[bytes], address: int, base: int) -> int:
        value = signed(word(match, 1, little) << 16 & 0xFFFFFFFF, 32) + low16(word(match, 2, little))
        return value & (0xFFFFFFFFFFFFFFFF if code.is64 else 0xFFFFFFFF)

    lazy = pattern(
        little,
        (Word(0x8F998010), Word(0xDF998010)),  # lw or ld $t9, -32752($gp): the resolver
        (Word(0x03E07825), Word(0x03E07821), Word(0x03E0782D)),  # move $t7, $ra: or, addu, daddu
        Word(0x3C180000, 0xFFFF0000, optional=True),  # lui $t8, number
        Word(0x0320F809),  # jalr $t9
        (Word(0x24180000, 0xFFFF0000), Word(0x34180000, 0xFFFF0000), Word(0x37180000, 0xFFFF0000),
         Word(0x64180000, 0xFFFF0000)),  # li, ori $t8
    )  # fmt: skip
    jump = (Word(0x03200008), Word(0x03200009))  # jr $t9, of release 6 jalr $zero, $t9
    add = (Word(0x25F80000, 0xFFFF0000), Word(0x65F80000, 0xFFFF0000))  # addiu or daddiu $t8, $t7, lo
    plt = (
        Word(0x3C0F0000, 0xFFFF0000),  # lui $t7, hi
        (Word(0x8DF90000, 0xFFFF0000), Word(0xDDF90000, 0xFFFF0000)),  # lw or ld $t9, lo($t7)
    )
    forms = (
        Form(lazy, of_symbol),
        Form(pattern(little, *plt, add, jump), of_plt),
        Form(pattern(little, *plt, jump, add), of_plt),
    )
    slots = tuple((number, start + (number - first) * size) for number in range(first, last)) if first else ()
    further = _further_tables(code, start + len(slots) * size if first else 0, size)
    slots += tuple(_of_relocations(code, further, size))
    # R_MIPS_JUMP_SLOT; GLOB_DAT; no IFUNCs
    return LibraryCalls(
        127, (51,), (), forms, lambda span: _sites(span, little), lambda span: _slot_sites(span, code, further),
        first_call_only=True, slots=slots, missing=lambda: _missing(code, further),
    )  # fmt: skip


def _sites(span: CodeSpan, little: bool) -> Iterator[Branch]:
    """Yield jal and j, by which code at fixed addresses calls stubs."""
    from ..stubs import CALL, JUMP, Branch, units

    for at, value in enumerate(units(span, 4, little)):
        if value >> 26 in {2, 3}:
            place = span.address + 4 * at
            target = (place + 4 & ~0xFFFFFFF) | (value & 0x3FFFFFF) << 2
            yield Branch(place, target, CALL if value >> 26 == 3 else JUMP)


# Position-independent code makes gp, which points 0x7ff0 behind the table's beginning, of t9, its own address: lui,
# addiu, addu (o32), or lui, addu, addiu (n32, n64), with others between. clang may use another register, and keep the
# value on the stack.
_GP, _T9, _GP_OFFSET = 28, 25, 0x7FF0
_LARGE = 0x4000  # bytes of a first table that has others behind it: a quarter of what one may have
_ALL_TABLES = 1 << 22  # bytes in which further tables are looked for
_PROLOGUE = 24  # words in which all of that stands, and where the function begins before it
_KEPT = 0xFF << 16 | 1 << 28 | 1 << 29 | 1 << 30  # s0 to s7, gp (o32 restores it), sp, s8


def _further_tables(code: FileCode, at: int, size: int) -> tuple[int, ...]:
    """Return where the tables behind the first begin: with two words of the dynamic linker's, of which the second has
    its highest bit set and nothing else (bfd, _bfd_mips_elf_finish_dynamic_sections)."""
    data = code.read(at, _ALL_TABLES) if at else b""
    order: Literal["little", "big"] = "little" if code.little else "big"
    mark, found = bytes(size) + (1 << 8 * size - 1).to_bytes(size, order), []
    place = data.find(mark)
    while place >= 0:
        if (at + place) % size == 0:
            found.append(at + place)
        place = data.find(mark, place + 1)
    return tuple(found) or (_named_tables(code, at) if at and size == 4 and not code.flags & EF_ABI2 else ())


def _named_tables(code: FileCode, first: int) -> tuple[int, ...]:
    """Return where tables from `first` on begin, as code says: lld's have no mark. Only o32 counts from the instruction
    itself (_gp_disp); with the other ABIs it counts from where its function begins, and nothing says where that is."""
    from ..stubs import Word, low16, pattern, word

    add = (Word(0x24420000, 0xFFFF0000), Word(0x279C0000, 0xFFFF0000))  # addiu $2, $2 or $gp, $gp
    load = (Word(0x3C020000, 0xFFFF0000), Word(0x3C1C0000, 0xFFFF0000))  # lui $2 or $gp
    make = pattern(code.little, load, add, (Word(0x0059E021), Word(0x0399E021)))  # addu $gp, $2 or $gp, $t9
    found = set()
    for span in code.spans:
        for match in make.finditer(span.code):
            high, low = low16(word(match, 1, code.little)) << 16, low16(word(match, 2, code.little))
            found.add((span.address + match.start() + high + low - _GP_OFFSET) & 0xFFFFFFFF)
    return tuple(sorted(one for one in found if first <= one < first + _ALL_TABLES and not one % 4))


def _missing(code: FileCode, further: tuple[int, ...]) -> str:
    """Return what code there is whose calls can't be found, and why; '' if none."""
    from ..stubs import units

    for flag, name in ((0x04000000, "MIPS16"), (0x02000000, "microMIPS")):  # e_flags
        if code.flags & flag:
            return f"some of its code is {name}, which is not read: calls from there are missing"
    size = 8 if code.is64 else 4
    entries = code.tags.get(0x7000000A, 0) + code.tags.get(0x70000011, 0) - code.tags.get(0x70000013, 0)
    if entries * size < _LARGE:  # one table was enough, and what is taken for making gp is none
        return ""
    starts = [at + _GP_OFFSET for at in (code.tags.get(3, 0), *further)]
    spans = ((units(span, 4, code.little), span.address) for span in code.spans)
    lost = sum(made is None for words_, start in spans for _, made, _ in _tables(words_, start, starts))
    return f"{lost} functions use a table of slots that can't be found: calls from there are missing" if lost else ""


def _of_relocations(code: FileCode, tables: tuple[int, ...], size: int) -> Iterator[tuple[int, int]]:
    """Yield symbols' numbers, and the slots in further tables that relocations (DT_REL, R_MIPS_REL32) fill so."""
    if not tables:
        return
    order: Literal["little", "big"] = "little" if code.little else "big"
    raw, length = code.read(code.tags.get(17, 0), code.tags.get(18, 0)), 2 * size
    for at in range(0, len(raw) - length + 1, length):
        place = int.from_bytes(raw[at : at + size], order)
        if size == 8:  # of three types the first is the last byte, in either byte order
            number, type_ = int.from_bytes(raw[at + 8 : at + 12], order), raw[at + 15]
        else:
            number, type_ = divmod(int.from_bytes(raw[at + 4 : at + 8], order), 256)
        if number and type_ == 3 and any(0 <= place - table < 0x10000 for table in tables):
            yield number, place


def _slot_sites(span: CodeSpan, code: FileCode, further: tuple[int, ...]) -> Iterator[Branch]:
    """Yield the calls and jumps by a register that was loaded from the table: `lw t9, distance(gp)`, `jalr t9`."""
    from bisect import bisect_right

    from ..stubs import CALL, JUMP, Branch, units
    from ..values import CONSTANT, Step, loaded, words_way
    from .steps import steps

    if 3 not in code.tags:  # DT_PLTGOT
        return
    words_, start = units(span, 4, code.little), span.address
    starts = [at + _GP_OFFSET for at in (code.tags[3], *further)]
    tables = _tables(words_, start, starts)
    places = [start + 4 * at for at, _, _ in tables]
    made = {
        start + 4 * at: Step(CONSTANT, words_[at] >> 11 & 31, value) for at, value, _ in tables if value is not None
    }

    usual = steps()

    def step(value: int, address: int) -> Step:
        return made.get(address) or usual(value, address)

    way = words_way(words_, start, step, _KEPT, 1 << 29 | 1 << 30)
    way = way._replace(delayed=1, bits=64 if code.is64 else 32)
    ways = {table: way._replace(known={_GP: table}) for table in starts}
    for at, value in enumerate(words_):
        if value & 0xFC1F003E == 8 and value >> 11 & 31 in {0, 31}:  # jr, jalr
            register, kind = value >> 21 & 31, CALL if value >> 11 & 31 else JUMP
        elif value & 0xDFE0FFFF == 0xD8000000:  # jrc, jalrc
            register, kind = value >> 16 & 31, CALL if value >> 29 & 1 else JUMP
        else:
            continue
        place = start + 4 * at
        prologue = bisect_right(places, place) - 1
        if prologue >= 0 and tables[prologue][1] is None:
            continue
        table = tables[prologue][2] if prologue >= 0 else starts[0]
        slot = loaded(ways[table], at, register) if register != 31 else None
        if slot is not None:
            yield Branch(place, slot, kind, slot=True)


def _tables(words_: Sequence[int], start: int, tables: Sequence[int]) -> list[tuple[int, int | None, int]]:
    """Return where code adds t9 to make gp, the sum (gp, or what lacks its low part), and gp; None: no table's."""
    from ..stubs import low16

    found: list[tuple[int, int | None, int]] = []
    for at, value in enumerate(words_):
        if value & 0xFC0007FF not in {0x21, 0x2D} or _T9 not in {value >> 21 & 31, value >> 16 & 31}:  # addu, daddu
            continue
        other = (value >> 21 & 31) + (value >> 16 & 31) - _T9
        high = low = None
        for back in range(at - 1, max(at - _PROLOGUE, 0) - 1, -1):
            before = words_[back]
            if before >> 26 in {9, 25} and before >> 16 & 31 == other == before >> 21 & 31 and low is None:
                low = low16(before)
            elif before & 0xFFFF0000 == 0x3C000000 | other << 16:  # lui
                high = back
                break
        if high is None:
            continue
        lacks, rest = 0, low
        if low is None:  # it is added later
            target = value >> 11 & 31
            behind = words_[at + 1 : at + _PROLOGUE]
            rest = next((low16(one) for one in behind if one >> 26 in {9, 25} and one >> 21 & 31 == target), None)
            if rest is None:
                continue
            lacks = rest
        assert rest is not None
        distance = (signed(words_[high] & 0xFFFF, 16) << 16) + rest
        near = (one for one in tables if 0 <= (start + 4 * high - one + distance & 0xFFFFFFFF) <= 4 * _PROLOGUE)
        table = next(near, None)
        found.append((at, table - lacks if table is not None else None, table or 0))
    return found
