"""What is changed in a process is written down first, and put back byte by byte, whoever else has been there."""

from __future__ import annotations

import ctypes
import os
import struct
from typing import Any, cast

import pytest

from usdtbuild.tracing.model import PROBE, Module, Site, Target
from usdtbuild.tracing.patch import journal
from usdtbuild.tracing.patch.changes import Changes, in_force
from usdtbuild.tracing.patch.forms import Form, before_entry, behind_leads, joined_form, leads, leads_of, steps_of
from usdtbuild.tracing.patch.spot import Spot
from usdtbuild.tracing.trap.breakpoints import Breakpoints

AT, SEMAPHORE = 0x1000, 0x2000
X86 = pytest.mark.skipif(os.uname().machine != "x86_64", reason="the bytes are x86-64's")
BEFORE, AFTER = bytes.fromhex("900f1f4000"), bytes.fromhex("e90f1f4020")


class Bytes:
    """A process' memory: some bytes by address."""

    def __init__(self) -> None:
        self.bytes: dict[int, int] = {}
        self.written: list[int] = []
        self.before_write: Any = lambda address: None

    def put(self, address: int, data: bytes) -> None:
        self.bytes.update(enumerate(data, address))

    def read(self, address: int, size: int) -> bytes:
        return bytes(self.bytes.get(one, 0) for one in range(address, address + size))

    def word(self, address: int, size: int = 8) -> int:
        return int.from_bytes(self.read(address, size), "little")

    def write(self, address: int, data: bytes) -> None:
        self.before_write(address)
        self.written.append(address)
        self.put(address, data)

    write_code = write


def spots(count: int = 1) -> list[Spot]:
    target = Target(0, PROBE, "p", "n", Module("/p", 0, "", 62), (), ())
    form = Form(1, False, BEFORE[1:], (3,))
    sites = [Site(AT + 16 * index, 0, (), semaphore=SEMAPHORE) for index in range(count)]
    return [Spot(target, site, form, BEFORE, AFTER, 0x9000) for site in sites]


def changed(count: int = 1) -> tuple[Bytes, Changes]:
    memory = Bytes()
    memory.put(SEMAPHORE, b"\x05\0")
    changes = Changes(spots(count), cast("Any", memory))
    changes.data = cast("Any", bytearray(changes.packed(journal.Places(0, 0, 0, ()))))
    for spot in spots(count):
        memory.put(spot.site.address, AFTER)
    return memory, changes


def as_armed(count: int) -> tuple[Bytes, Changes]:
    """Return as `changed`, of code that was there before."""
    memory = Bytes()
    for spot in spots(count):
        memory.put(spot.site.address, BEFORE)
    changes = Changes(spots(count), cast("Any", memory))
    changes.count_semaphores(cast("Any", memory))
    memory.written.clear()
    for spot in spots(count):
        memory.put(spot.site.address, AFTER)
    return memory, changes


@X86
def test_sites_go_back_at_once_where_nobody_else_has_changed_anything() -> None:
    memory, changes = as_armed(3)
    assert changes.put_back(cast("Any", memory)) == []
    assert [memory.read(spot.site.address, 5) for spot in spots(3)] == [BEFORE] * 3
    assert memory.written == [AT, SEMAPHORE]


@X86
def test_what_somebody_has_put_between_sites_stays_and_each_goes_back_by_itself() -> None:
    memory, changes = as_armed(3)
    memory.put(AT + 10, b"\xcc")
    assert changes.put_back(cast("Any", memory)) == []
    assert [memory.read(spot.site.address, 5) for spot in spots(3)] == [BEFORE] * 3
    assert memory.read(AT + 10, 1) == b"\xcc"
    assert AT + 10 not in memory.written


@X86
def test_a_site_that_is_not_armed_any_more_stays_as_it_is() -> None:
    memory, changes = as_armed(2)
    changes.mark(1, 0)
    assert changes.put_back(cast("Any", memory)) == []
    assert [memory.read(spot.site.address, 5) for spot in spots(2)] == [BEFORE, AFTER]


def test_a_jump_or_call_behind_a_nop_gives_it_other_distances() -> None:
    for opcode in ("e9", "e8"):
        code = bytes.fromhex(f"90 {opcode} 55 ff ff ff 0f 1f")
        form = joined_form(code)
        assert form is not None
        assert (form.length, form.size, form.behind) == (1, 6, code[1:6])
        distances = dict(form.distances())
        assert len(distances) > 500
        assert all(tail[0] == code[1] and tail[1] == code[2] for tail in distances.values())
        assert behind_leads(AT, code) == AT + 6 - 171
    assert joined_form(bytes.fromhex("90 e9 55 ff ff")) is None
    assert joined_form(bytes.fromhex("90 eb be 41 0f 1f")) is None
    assert joined_form(bytes.fromhex("6690 e9 55 ff ff ff")) is None


def test_what_is_behind_a_nop_is_put_back_with_it_and_leads_to_memory_of_ours() -> None:
    before, after = bytes.fromhex("90e955ffffff"), bytes.fromhex("e9e95500d0ff")
    form = joined_form(before)
    assert form is not None
    (spot,) = spots()
    spot = spot._replace(form=form, before=before, after=after, mirror=AT + 5 - 0x2FFFAA17)
    memory = Bytes()
    memory.put(SEMAPHORE, b"\x05\0")
    changes = Changes([spot], cast("Any", memory))
    assert changes.entries[0].leads() == (spot.mirror, AT + 6 - 0x2FFFAB)
    memory.put(AT, after)
    assert changes.put_back(cast("Any", memory)) == []
    assert memory.read(AT, 6) == before


@X86
@pytest.mark.parametrize(
    ("found", "left"),
    [
        ("e9e9909090", "c3e9909090"),
        ("e990909090", "c390909090"),  # a breakpoint at the entry has come and gone
        ("e9cc909090", "c3cc909090"),
        ("cce9909090", "cce9909090"),
    ],
)
def test_a_return_goes_back_and_leaves_the_entry_that_its_jump_reads(found: str, left: str) -> None:
    before, after = bytes.fromhex("c390909090"), bytes.fromhex("e9e9909090")
    (spot,) = spots()
    form = before_entry(0, after, b"\x90")
    spot = spot._replace(form=form, before=before, after=after, mirror=leads(AT, after[1:]), near=(0,))
    assert spot.changes == ((AT, bytes.fromhex("c3e9909090"), after),)  # the entry is first
    memory = Bytes()
    changes = Changes([spot], cast("Any", memory))
    memory.put(AT, bytes.fromhex(found))
    changes.put_back(cast("Any", memory))
    assert memory.read(AT, 5).hex() == left


@X86
def test_where_a_return_leads_that_is_right_before_an_entry_is_apart_from_where_that_leads() -> None:
    """With each byte that the entry may begin with: the jump's, the file's, and a breakpoint."""
    after, before = bytes.fromhex("e990909090"), bytes.fromhex("9090909090")
    own = {leads(AT + 1, after[1:]), *leads_of(AT + 1, after[1:], (0, 1, 2, 3))}
    form = before_entry(0, after, before)
    found = [leads(AT, form.tail), *leads_of(AT, form.tail, (0,), form.was)]
    steps = steps_of(AT, form.tail, (0,), form.was)
    assert {at + 1 for at in steps} <= own
    assert all(at + 2 - 23 in found for at in steps)  # as `eb e9` leads
    taken = [byte for at in {*own, *found} for byte in range(at, at + 5)] + list(steps)
    assert len({*taken}) == len(taken)
    assert {leads(AT, bytes.fromhex(tail)) for tail in ("e9909090", "90909090", "cc909090")} == {found[0], *steps}


@pytest.mark.parametrize(
    ("flags", "before", "after", "found", "needed"),
    [
        (0, "90554889e5", "e9554889e5", "90554889e5", False),
        (0, "90554889e5", "e9554889e5", "e9554889e5", True),
        (journal.NEAR, "90554889e5", "e9554889e5", "e9cc4889e5", True),  # led by it to another mirror
        (0, "90554889e5", "e9554889e5", "cc554889e5", False),  # whose end brings the NOP back
        (journal.NEAR | journal.JOINED, "90e955ffffff", "e9e95500d0ff", "90e955ffffff", False),
        (journal.NEAR | journal.JOINED, "90e955ffffff", "e9e95500d0ff", "cce95500d0ff", True),
        (journal.NEAR | journal.JOINED, "90e955ffffff", "e9e95500d0ff", "90e95500d0ff", True),
        (journal.NEAR | journal.JOINED, "90e955ffffff", "e9e95500d0ff", "e9cc5500d0ff", True),
        (journal.PADDED, "90909090909090", "ebf9e900010203", "9090", False),
        (journal.PADDED, "90909090909090", "ebf9e900010203", "ebf9", True),
    ],
)
def test_memory_is_needed_while_code_may_lead_there(
    flags: int, before: str, after: str, found: str, *, needed: bool
) -> None:
    """As in a process that was forked while it was traced, to which breakpoints come or from which they go."""
    entry, nowhere = (
        journal.Entry(AT, 1, bytes.fromhex(before), bytes.fromhex(after), flags),
        journal.Places(0, 0, 0, ()),
    )
    raw = journal.packed(0, [entry], nowhere)
    one = journal.Found(0, 0, journal.Entries(raw[journal.START :]), nowhere)
    memory = Bytes()
    memory.put(AT, bytes.fromhex(found))
    assert bool([*in_force(one, cast("Any", memory))]) == needed


@X86
@pytest.mark.parametrize(
    ("found", "left", "taken"),
    [
        ("e90f1f4020", "900f1f4000", False),
        ("e9cc1f4020", "90cc1f4000", False),  # a breakpoint behind the NOP
        ("e90f1f40cc", "900f1f40cc", False),
        ("cc0f1f4020", "cc0f1f4000", True),  # a breakpoint at the site
        ("900f1f4020", "900f1f4000", True),  # it has come and gone
        ("e9aaaaaaaa", "e9aaaaaaaa", True),  # another's jump
        ("900f1f4000", "900f1f4000", True),
        ("c30f1f4020", "c30f1f4020", True),  # another's code
    ],
)
def test_every_byte_of_a_jump_goes_back_that_is_still_ours(found: str, left: str, taken: bool) -> None:
    memory, changes = changed()
    memory.put(AT, bytes.fromhex(found))
    refused = changes.put_back(cast("Any", memory))
    assert memory.read(AT, 5).hex() == left
    assert bool(refused) == taken


@X86
def test_the_first_byte_of_a_jump_goes_back_before_the_others() -> None:
    memory, changes = changed()

    def look(address: int) -> None:
        if memory.written:
            assert memory.read(AT, 1) == b"\x90"

    memory.before_write = look
    changes.put_back(cast("Any", memory))
    assert memory.written == [AT, AT]


def test_a_semaphore_is_in_the_journal_before_it_is_counted_up() -> None:
    memory, changes = changed()
    memory.put(SEMAPHORE, b"\x07\0")  # it has changed since it was looked up

    def look(address: int) -> None:
        entries = struct.iter_unpack("<QQ8s8sQ", bytes(changes.data or b"")[journal.START :])
        (entry,) = [one for one in entries if one[0] == SEMAPHORE]
        assert (entry[2][:2], entry[3][:2], entry[4]) == (b"\x07\0", b"\x08\0", journal.ARMED | journal.SEMAPHORE)

    memory.before_write = look
    changes.count_semaphores(cast("Any", memory))
    assert memory.word(SEMAPHORE, 2) == 8


def test_a_semaphore_is_counted_once_for_all_its_sites_and_goes_one_down_at_the_end() -> None:
    """What others have counted meanwhile stays."""
    memory, changes = changed(3)
    changes.count_semaphores(cast("Any", memory))
    assert memory.word(SEMAPHORE, 2) == 6
    memory.put(SEMAPHORE, b"\x08\0")
    changes.put_back(cast("Any", memory))
    assert memory.word(SEMAPHORE, 2) == 7


def test_what_somebody_else_has_put_in_the_place_of_a_breakpoint_stays() -> None:
    code = ctypes.create_string_buffer(b"\x90" * 16, 16)
    points = Breakpoints(os.getpid())
    for offset in (0, 8):
        points.arm_hook(ctypes.addressof(code) + offset, -1)
    assert (code.raw[0], code.raw[8]) == (0xCC, 0xCC)
    code[8] = b"\xe9"
    points.disarm()
    points.close()
    assert (code.raw[0], code.raw[8]) == (0x90, 0xE9)
