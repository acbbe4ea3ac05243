"""`.note.usdt`: round trips, and damage that is refused by our own error."""

from __future__ import annotations

from collections import Counter
from typing import Any, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from usdtbuild.formats.usdt_note import (
    FUNCTION_FIELD,
    PC_FIELD,
    NotedProbe,
    ProviderNote,
    SiteNote,
    UsdtNoteError,
    decode,
    encode,
    guard,
)
from usdtbuild.model import Attribute, Attributes

WORDS = st.text("abcdefghijklmnopqrstuvwxyz_", min_size=1, max_size=12)
OPERANDS = st.lists(st.sampled_from(["-4@%edi", "8@%rsi", "2@8(%rsp)"]), max_size=14).map(tuple)
TYPES = st.lists(st.sampled_from(["int", "char *"]), max_size=4).map(tuple)
U64 = st.integers(0, 2**64 - 1)
SITES = st.builds(SiteNote, U64, U64, WORDS, WORDS, OPERANDS, st.booleans())
ATTRIBUTE = st.builds(Attribute, st.integers(0, 7), st.integers(0, 7), st.integers(0, 5))


def declared(name: str, native: tuple[str, ...]) -> st.SearchStrategy[NotedProbe]:
    """A declaration of a probe, each of whose translated arguments comes from one of its native ones."""
    one = st.tuples(st.sampled_from(["int", "string"]), st.integers(0, max(len(native) - 1, 0)))
    mapped = st.lists(one, max_size=3 if native else 0).map(tuple)
    return st.builds(NotedProbe, st.just(name), st.just(native), mapped)


DECLARED = st.lists(st.tuples(WORDS, TYPES).flatmap(lambda made: declared(*made)), max_size=4).map(tuple)
PROVIDERS = st.builds(ProviderNote, WORDS, st.builds(Attributes, *[ATTRIBUTE] * 5), DECLARED)

EXAMPLE: Any = [
    ProviderNote("app", Attributes(), (NotedProbe("req__done", ("int", "char *"), (("char *", 1),)),)),
    SiteNote(0x1139, 0x2004, "app", "req__done", ("-4@%edi", "8@%rsi")),
    SiteNote(0x1149, 0x2004, "app", "req__done", ("8@%rdi",), enabled=True),
]


@given(st.lists(st.one_of(SITES, PROVIDERS), max_size=5), st.booleans())
@settings(max_examples=200, deadline=None)
def test_what_is_encoded_is_decoded_again(notes: list[SiteNote | ProviderNote], little: bool) -> None:
    assert decode(b"".join(encode(note, little=little) for note in notes), little=little) == notes


def test_addresses_stand_where_relocations_are_put() -> None:
    data = encode(EXAMPLE[1], little=True)
    assert int.from_bytes(data[PC_FIELD : PC_FIELD + 8], "little") == 0x1139
    assert int.from_bytes(data[FUNCTION_FIELD : FUNCTION_FIELD + 8], "little") == 0x2004


def test_every_changed_byte_and_every_cut_is_accepted_or_refused_by_our_own_error() -> None:
    data = bytearray(b"".join(encode(note, little=True) for note in EXAMPLE))

    def decoded(changed: bytes) -> list[Any] | None:
        try:
            return decode(changed, little=True)
        except UsdtNoteError:
            return None

    cuts, changes = 0, Counter[bool]()
    for place, old in enumerate(data):
        for value in range(256):
            data[place] = value
            changes[decoded(bytes(data)) is None] += 1
        data[place] = old
        cut = decoded(bytes(data[:place]))
        assert cut is None or cut == EXAMPLE[: len(cut)], f"cut after {place} bytes"
        cuts += cut is None
    assert cuts > len(data) * 3 / 4, cuts
    assert min(changes[True], changes[False]) > 1000, changes


@pytest.mark.parametrize(
    ("note", "what"),
    [
        (EXAMPLE[1]._replace(probe="x" * 64), "1 to 63 bytes"),
        (EXAMPLE[1]._replace(provider=""), "1 to 53 bytes"),
        (EXAMPLE[1]._replace(provider="x" * 54), "1 to 53 bytes"),
        (EXAMPLE[1]._replace(probe="a\0b"), "1 to 63 bytes"),
        (ProviderNote("app", Attributes(), (NotedProbe("p", ("x" * 128,), ()),)), "1 to 127 bytes"),
        (ProviderNote("app", Attributes(), (NotedProbe("p", ("int",), (("int", 1),)),)), "none of the native ones"),
        (ProviderNote("app", Attributes(), (NotedProbe("p", ("int",) * 256, ()),)), "256 arguments"),
    ],
)
def test_what_dtrace_has_no_room_for_is_refused(note: SiteNote | ProviderNote, what: str) -> None:
    with pytest.raises(UsdtNoteError, match=what):
        encode(note, little=True)


def test_places_with_a_blank_inside_are_one_operand() -> None:
    """aarch64 has them; the count would be wrong if they were split."""
    note = EXAMPLE[1]._replace(arguments=("-4@x0", "8@[sp, 8]"))
    assert decode(encode(note, little=True), little=True) == [note]


@pytest.mark.parametrize("little", [True, False])
@pytest.mark.parametrize("address", [0, 1, 0x1139, 0x401000, 0x7FFFFFFFFFFF, (1 << 48) - 1])
@pytest.mark.parametrize("count", [1, 2, 3000])
def test_guarded_notes_are_there_unless_the_address_is_0(little: bool, address: int, count: int) -> None:
    """Does what a linker does: the word first, then the two that make it good again."""
    order: Literal["little", "big"] = "little" if little else "big"
    notes = b"".join(encode(EXAMPLE[1]._replace(pc=i), little=little) for i in range(count))
    made = guard(len(notes), little=little)
    data = bytearray(made.data + notes)
    again = [bytes(data[offset : offset + 4]) for offset in made.again]
    assert len(decode(bytes(data), little=little)) == count  # as it is in the object
    data[made.word : made.word + 8] = (address + made.addend & (1 << 64) - 1).to_bytes(8, order)
    for offset, word in zip(made.again, again):
        data[offset : offset + 4] = word
    assert len(decode(bytes(data), little=little)) == (count if address else 0)
    following = encode(EXAMPLE[0], little=little)
    assert decode(bytes(data) + following, little=little)[-1] == EXAMPLE[0]


def test_too_many_arguments_are_refused() -> None:
    with pytest.raises(UsdtNoteError, match="256 arguments"):
        encode(EXAMPLE[1]._replace(arguments=("-4@%edi",) * 256), little=True)
