"""The machine code of stubs: count a hit, or write a record of it, and go back as if nothing had happened.

A stub must assume that every register and the 128 bytes below the stack pointer (the red zone) are alive, and only the
flags are not: a probe's inline assembly gives them up, and functions don't get any. It calls nothing but what stands
beside it, and makes a system call only where a pointer must be tried (`rt_sigprocmask` with a wrong first argument:
EFAULT where 8 bytes can't be read, else EINVAL, and no other effect).

A record is a slot of a ring, and every thread that hits claims the next slot of the ring that its number chooses:

    0   sequence   u64   number of the slot in its ring, plus 1; written last: the record is complete
    8   time       u64   what rdtsc says
    16  thread     u32
    20  site       u32
    24  process    u32
    28  missing    u32   bit i: argument i lies in memory that can't be read
    32  arguments, 8 bytes each; behind them for each string its length (i64, -1: can't be read) and its bytes

A ring is a page with `head` (0: slots claimed) and `tail` (64: slots read), then its slots. A full ring takes nothing,
and the hit is counted as lost. Claims are atomic, so it doesn't matter when two threads share a ring, or a signal
handler hits a probe while its thread is in a stub.

Encodings: Intel's manual, volume 2. tests/tracing disassembles and runs all of it.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, NamedTuple

from ...formats.operands import CONSTANT, MEMORY, REGISTER
from ...machines.x86_64 import INT3
from ..hosts.x86_64 import HOST, NUMBERS, full_register

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...formats.operands import Operand, Place

HEADER, HEAD, TAIL, RING_HEADER = 32, 0, 64, 4096
RINGS = 16
# What is on the stack in a record stub, below the red zone: five registers.
_RED_ZONE, _SAVED = 128, {"rdi": 0, "rsi": 8, "rdx": 16, "rcx": 24, "rax": 32}
_ABOVE = _RED_ZONE + 8 * len(_SAVED)
_SAVE = bytes.fromhex("48 8d 64 24 80  50 51 52 56 57")  # lea -128(%rsp),%rsp; push rax, rcx, rdx, rsi, rdi
_RESTORE = bytes.fromhex("5f 5e 5a 59 58  48 8d a4 24 80 00 00 00")  # pop them; lea 128(%rsp),%rsp
_GETPID, _GETTID, _SIGPROCMASK = (HOST.kernel.numbers[name] for name in ("getpid", "gettid", "rt_sigprocmask"))


class Shape(NamedTuple):
    """What all stubs of one trace agree on: bytes of a slot, slots of a ring (a power of two), bytes between rings (a
    power of two), and the longest string."""

    slot: int
    slots: int
    stride: int
    string_size: int


def _rel32(source_end: int, target: int) -> bytes:
    return struct.pack("<i", target - source_end)


def jump(at: int, target: int) -> bytes:
    """Return `jmp target`, to stand at an address."""
    return b"\xe9" + _rel32(at + 5, target)


class Through(NamedTuple):
    """Where a stub goes on: at the address that the slot holds by then."""

    slot: int


class Instruction(NamedTuple):
    """With which instruction a stub goes on (aarch64): one that has the same meaning wherever it stands."""

    word: int


# An address, to where a slot leads, or by an instruction; None: it returns from the function instead.
Back = int | Through | Instruction | None


def _back(at: int, target: Back) -> bytes:
    if isinstance(target, Through):
        return b"\xff\x25" + _rel32(at + 6, target.slot)  # jmp *slot(%rip)
    return jump(at, target) if isinstance(target, int) else b"\xc3"


def count_stub(at: int, counter: int, back: Back) -> bytes:
    """Return a stub that adds 1 to a counter and goes `back`."""
    code = b"\xf0\x48\xff\x05" + _rel32(at + 8, counter)  # lock incq counter(%rip)
    return code + _back(at + 8, back)


class Routines(NamedTuple):
    """Addresses of what stubs call: claim a slot, copy a string, try whether memory can be read."""

    claim: int
    copy: int
    probe: int


def routines(at: int, shape: Shape, rings: int, pid_cell: int, tid_offset: int | None) -> tuple[bytes, Routines]:
    """Return the code of the routines, to stand at an address.

    `rings` is the address of the first ring, `pid_cell` that of a word that holds the number of this process, or 0 in a
    process that was forked and doesn't know its own yet. `tid_offset` is where the C library keeps the number of a
    thread, from its thread pointer; None: ask the kernel each time.
    """
    claim = _claim(shape, rings, pid_cell, tid_offset)
    claim += INT3 * (-len(claim) % 16)
    copy = _copy(shape.string_size)
    copy += INT3 * (-len(copy) % 16)
    return claim + copy + _probe(), Routines(at, at + len(claim), at + len(claim) + len(copy))


def _claim(shape: Shape, rings: int, pid_cell: int, tid_offset: int | None) -> bytes:
    """Claim a slot: rsi = its address or 0, rdi = the sequence to store last. Changes rax, rcx, rdx, rsi, rdi."""
    shift = shape.stride.bit_length() - 1
    ask_pid = (
        bytes.fromhex("41 53 b8") + struct.pack("<I", _GETPID)  # push r11; mov $39,%eax
        + bytes.fromhex("0f 05 41 5b a3") + struct.pack("<Q", pid_cell)  # syscall; pop r11; movabs %eax,pid_cell
    )  # fmt: skip
    code = b"\xa1" + struct.pack("<Q", pid_cell)  # movabs pid_cell,%eax
    code += b"\x85\xc0\x75" + bytes([len(ask_pid)]) + ask_pid + b"\x89\xc7"  # test; jnz over; ...; mov %eax,%edi
    if tid_offset is not None:
        code += bytes.fromhex("64 8b 14 25") + struct.pack("<i", tid_offset)  # mov %fs:tid_offset,%edx
    else:
        code += bytes.fromhex("41 53 b8") + struct.pack("<I", _GETTID)  # push r11; mov $186,%eax
        code += bytes.fromhex("0f 05 41 5b 89 c2")  # syscall; pop r11; mov %eax,%edx
    code += bytes.fromhex("89 d1 83 e1") + bytes([RINGS - 1])  # mov %edx,%ecx; and $15,%ecx
    code += bytes.fromhex("48 c1 e1") + bytes([shift])  # shl $shift,%rcx
    code += b"\x48\xbe" + struct.pack("<Q", rings) + b"\x48\x01\xf1"  # movabs $rings,%rsi; add %rsi,%rcx
    again = bytes.fromhex("48 8b 01 48 89 c6 48 2b 71 40")  # mov (%rcx),%rax; mov %rax,%rsi; sub 64(%rcx),%rsi
    again += bytes.fromhex("48 81 fe") + struct.pack("<I", shape.slots)  # cmp $slots,%rsi
    swap = bytes.fromhex("48 8d 70 01 f0 48 0f b1 31")  # lea 1(%rax),%rsi; lock cmpxchg %rsi,(%rcx)
    rest = b"\x25" + struct.pack("<I", shape.slots - 1)  # and $slots-1,%eax
    rest += bytes.fromhex("48 69 c0") + struct.pack("<I", shape.slot)  # imul $slot,%rax,%rax
    rest += bytes.fromhex("48 8d 8c 01") + struct.pack("<I", RING_HEADER)  # lea 4096(%rcx,%rax),%rcx
    rest += bytes.fromhex("89 51 10 48 89 79 18")  # mov %edx,16(%rcx); mov %rdi,24(%rcx): process, nothing missing
    rest += bytes.fromhex("48 89 f7 48 89 ce")  # mov %rsi,%rdi; mov %rcx,%rsi
    rest += bytes.fromhex("0f 31 48 c1 e2 20 48 09 d0 48 89 46 08 c3")  # rdtsc; shl; or; mov %rax,8(%rsi); ret
    full = bytes.fromhex("31 f6 c3")  # xor %esi,%esi; ret
    loop = again + b"\x7d" + bytes([len(swap) + 2 + len(rest)]) + swap  # jge full
    loop += b"\x75" + struct.pack("<b", -(len(loop) + 2))  # jne again
    return code + loop + rest + full


def _copy(string_size: int) -> bytes:
    """Copy the string at rdx to 8(%rcx), its length to (%rcx): -1 if it can't be read. Changes rax, rcx, rdx.

    Each page is tried once, where the string enters it: 8 aligned bytes lie in one page.
    """
    start = bytes.fromhex("56 57 53 41 50 41 51 41 52 41 53")  # push rsi, rdi, rbx, r8, r9, r10, r11
    start += bytes.fromhex("48 89 d3 49 89 c8 45 31 c9")  # mov %rdx,%rbx; mov %rcx,%r8; xor %r9d,%r9d
    start += bytes.fromhex("49 c7 00 ff ff ff ff")  # movq $-1,(%r8)
    page = _try_rbx()
    loop = bytes.fromhex("8a 03 43 88 44 08 08")  # mov (%rbx),%al; mov %al,8(%r8,%r9)
    loop_middle = bytes.fromhex("49 ff c1 48 ff c3 49 81 f9") + struct.pack("<I", string_size)  # inc r9, rbx; cmp
    boundary = bytes.fromhex("f7 c3 ff 0f 00 00")  # test $0xfff,%ebx
    done = bytes.fromhex("4d 89 08")  # mov %r9,(%r8)
    end = bytes.fromhex("41 5b 41 5a 41 59 41 58 5b 5f 5e c3")  # pop them; ret
    # Forward distances from behind each branch, in the order in which the code stands.
    inner = loop + b"\x84\xc0\x74" + bytes([len(loop_middle) + 2 + len(boundary) + 2 + 2])  # test %al,%al; je done
    inner += loop_middle + b"\x74" + bytes([len(boundary) + 2 + 2])  # je done
    inner += boundary
    inner += b"\x75" + struct.pack("<b", -(len(inner) + 2))  # jnz loop
    branch_over = b"\x74" + bytes([len(inner) + 2])  # je failed: the page can't be read
    whole = page + branch_over + inner
    whole += b"\xeb" + struct.pack("<b", -(len(whole) + 2))  # jmp page
    # Failed at the first byte: the -1 stays. Failed later: what is there is kept.
    failed = bytes.fromhex("4d 85 c9 74 03")  # test %r9,%r9; jz end
    # `je failed` lands behind the jump back; `je done` must skip `failed`.
    return start + _with_done(whole, len(failed)) + failed + done + end


def _with_done(code: bytes, more: int) -> bytes:
    """Return the loop with its two jumps to the end made longer by what stands between the loop and the end."""
    changed = bytearray(code)
    for pattern in (b"\x84\xc0\x74", b"\x00\x00\x74"):
        at = code.rindex(pattern) + len(pattern)
        changed[at] += more
    return bytes(changed)


def _try_rbx() -> bytes:
    """Try the 8 aligned bytes at rbx: equal if they can't be read. Changes rax, rcx, rdx, rsi, rdi, r10, r11."""
    code = b"\xb8" + struct.pack("<I", _SIGPROCMASK)  # mov $14,%eax
    code += bytes.fromhex("bf 63 00 00 00 48 89 de 48 83 e6 f8")  # mov $99,%edi; mov %rbx,%rsi; and $-8,%rsi
    call = bytes.fromhex("31 d2 41 ba 08 00 00 00 0f 05 48 83 f8 f2")  # xor edx; mov $8,%r10d; syscall; cmp $-14,%rax
    return code + b"\x74" + bytes([len(call)]) + call  # je over: NULL means something else to the system call


def _probe() -> bytes:
    """Try whether the 8 bytes at rdx can be read: equal if not. Keeps all registers but rax."""
    start = bytes.fromhex("56 57 53 51 52 41 52 41 53 48 89 d3")  # push rsi, rdi, rbx, rcx, rdx, r10, r11; mov rdx,rbx
    end = bytes.fromhex("41 5b 41 5a 5a 59 5b 5f 5e c3")
    tried = _try_rbx()
    second = bytes.fromhex("48 83 c3 07") + tried  # add $7,%rbx: where the last byte lies
    return start + tried + b"\x74" + bytes([len(second)]) + second + end


# -- record stubs ------------------------------------------------------------------------------------------------------


class Taken(NamedTuple):
    """An argument for a record stub: its operand, whether it points to a string, and where in the slot it goes
    (`string_at` is where the string's length is)."""

    operand: Operand
    is_string: bool
    at: int
    string_at: int


def record_stub(
    at: int,
    site: int,
    arguments: Sequence[Taken],
    calls: Routines,
    lost: int,
    back: Back,
    symbols: dict[str, int],
) -> bytes:
    """Return a stub that writes a record and goes `back`. `symbols` are addresses of symbols that operands name."""
    code = _SAVE
    code += b"\xe8" + _rel32(at + len(code) + 5, calls.claim)
    code += b"\x48\x85\xf6\x0f\x84"  # test %rsi,%rsi; jz full
    hole = len(code)
    body = b"\xc7\x46\x14" + struct.pack("<I", site)  # movl $site,20(%rsi)
    start = at + hole + 4
    for index, argument in enumerate(arguments):
        body += _take(start + len(body), index, argument, calls, symbols)
    body += b"\x48\x89\x3e" + _RESTORE  # mov %rdi,(%rsi)
    body += _back(start + len(body), back)
    code += struct.pack("<i", len(body)) + body
    code += b"\xf0\x48\xff\x05" + _rel32(at + len(code) + 8, lost) + _RESTORE  # lock incq lost(%rip)
    return code + _back(at + len(code), back)


def _take(at: int, index: int, argument: Taken, calls: Routines, symbols: dict[str, int]) -> bytes:
    """Return code that stores one argument. It may change rax, rcx and rdx, which are on the stack."""
    place = argument.operand.place
    store = b"\x48\x89\x86" + struct.pack("<i", argument.at)  # mov %rax,at(%rsi)
    missing = b"\x83\x4e\x1c" if index < 7 else b"\x81\x4e\x1c"  # orl $bit,28(%rsi)
    missing += bytes([1 << index]) if index < 7 else struct.pack("<I", 1 << min(index, 31))
    code = b""
    if place.kind == CONSTANT:
        code = b"\x48\xb8" + struct.pack("<Q", place.displacement & 0xFFFFFFFFFFFFFFFF) + store
    elif place.kind == REGISTER:
        loaded = _load_register(place.register)
        code = loaded + store if loaded is not None else missing
    elif place.kind == MEMORY:
        loaded = _load_memory(at, argument.operand, place, calls, missing, store, symbols)
        code = loaded if loaded is not None else missing
    else:
        code = missing
    if argument.is_string:
        code += b"\x48\x8b\x96" + struct.pack("<i", argument.at)  # mov at(%rsi),%rdx
        code += b"\x48\x8d\x8e" + struct.pack("<i", argument.string_at)  # lea string_at(%rsi),%rcx
        code += b"\xe8" + _rel32(at + len(code) + 5, calls.copy)
    return code


def _load_register(name: str) -> bytes | None:
    """Return code that loads a register, as it was at the site, into rax."""
    if name.startswith("xmm") and name[3:].isdigit() and int(name[3:]) < 16:
        number = int(name[3:])
        return b"\x66" + bytes([0x48 | (number >> 3) << 2]) + b"\x0f\x7e" + bytes([0xC0 | (number & 7) << 3])
    found = full_register(name)
    if found is None:
        return None
    loaded = _copy_register(0, found[0])
    return loaded + (b"\x48\xc1\xe8\x08" if found[1] else b"")  # shr $8,%rax


def _copy_register(target: int, name: str) -> bytes:
    """Return code that loads a 64-bit register, as it was at the site, into rax (0), rcx (1) or rdx (2)."""
    if name in _SAVED:
        return b"\x48\x8b" + bytes([0x44 | target << 3, 0x24, _SAVED[name]])  # mov saved(%rsp),%target
    if name == "rsp":
        return b"\x48\x8d" + bytes([0x84 | target << 3, 0x24]) + struct.pack("<i", _ABOVE)  # lea above(%rsp),%target
    number = NUMBERS[name]
    return bytes([0x48 | (number >> 3) << 2, 0x89, 0xC0 | (number & 7) << 3 | target])  # mov %name,%target


# size and sign -> mov (%rdx),%rax that extends to 64 bits
_LOADS = {
    (1, True): "48 0f be 02", (1, False): "0f b6 02", (2, True): "48 0f bf 02", (2, False): "0f b7 02",
    (4, True): "48 63 02", (4, False): "8b 02", (8, True): "48 8b 02", (8, False): "48 8b 02",
}  # fmt: skip


def _load_memory(
    at: int, operand: Operand, place: Place, calls: Routines, missing: bytes, store: bytes, symbols: dict[str, int]
) -> bytes | None:
    """Return code that loads a memory operand and stores it; None if there is no way.

    What lies on the stack or beside the code is there. Any other pointer may be wild, because the program itself may
    never follow it, and is tried first.
    """
    load = _LOADS.get((operand.size, operand.signed))
    if load is None:
        return None
    if place.base in {"rip", "eip"} or (place.symbol and not place.base and not place.index_register):
        if place.symbol not in symbols:
            return None
        return b"\x48\xba" + struct.pack("<Q", symbols[place.symbol] + place.displacement) + bytes.fromhex(load) + store
    base, index = full_register(place.base or "rax"), full_register(place.index_register or "rax")
    if base is None or index is None or place.symbol or place.scale not in {1, 2, 4, 8}:
        return None
    if not -(1 << 31) <= place.displacement < 1 << 31:
        return None
    code = _copy_register(2, base[0]) if place.base else b"\x31\xd2"  # xor %edx,%edx
    if place.index_register:
        code += _copy_register(1, index[0])
        scale = {1: 0, 2: 1, 4: 2, 8: 3}[place.scale]
        code += b"\x48\x8d\x14" + bytes([scale << 6 | 1 << 3 | 2])  # lea (%rdx,%rcx,scale),%rdx
    code += b"\x48\x81\xc2" + struct.pack("<i", place.displacement)  # add $displacement,%rdx
    loaded = bytes.fromhex(load) + store
    if base[0] == "rsp" and not place.index_register:
        return code + loaded
    code += b"\xe8" + _rel32(at + len(code) + 5, calls.probe)
    return code + b"\x74" + bytes([len(loaded) + 2]) + loaded + b"\xeb" + bytes([len(missing)]) + missing
