"""SDT notes: round trips, where addresses stand, and damage that is refused by our own error."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from usdtbuild.formats.stapsdt import Note, NoteError, decode, decode_with_offsets, encode, fields

WORDS = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=20)
NOTES = {
    size: st.lists(st.builds(Note, *[st.integers(0, (1 << 8 * size) - 1)] * 3, WORDS, WORDS, WORDS), max_size=5)
    for size in (4, 8)
}
EXAMPLE = [
    Note(0x1139, 0x2004, 0, "app", "req__done", "-4@%edi 8@%rsi"),
    Note(0x1149, 0x2004, 0x3000, "app", "start", ""),
]


@given(st.data(), st.sampled_from([4, 8]), st.booleans())
@settings(max_examples=200, deadline=None)
def test_what_is_encoded_is_decoded_again(data: st.DataObject, size: int, little: bool) -> None:
    notes = data.draw(NOTES[size])
    assert decode(b"".join(encode(note, size, little=little) for note in notes), size, little=little) == notes


@pytest.mark.parametrize("little", [True, False])
@pytest.mark.parametrize("size", [4, 8])
def test_addresses_stand_where_relocations_are_put(size: int, little: bool) -> None:
    data = encode(EXAMPLE[1], size, little=little)
    values = [int.from_bytes(data[at : at + size], "little" if little else "big") for at in fields(size)]
    assert values == [0x1149, 0x2004, 0x3000]
    assert len(data) % 4 == 0


def test_offsets_are_those_of_the_notes() -> None:
    first = encode(EXAMPLE[0], 8, little=True)
    assert decode_with_offsets(first + encode(EXAMPLE[1], 8, little=True), 8, little=True) == [
        (0, EXAMPLE[0]), (len(first), EXAMPLE[1])
    ]  # fmt: skip


def test_notes_of_others_are_passed_over() -> None:
    other = encode(EXAMPLE[0], 8, little=True).replace(b"stapsdt\0", b"rtapsdt\0")
    assert decode(other + encode(EXAMPLE[1], 8, little=True), 8, little=True) == [EXAMPLE[1]]


@pytest.mark.parametrize("size", [4, 8])
def test_every_changed_byte_and_every_cut_is_accepted_or_refused_by_our_own_error(size: int) -> None:
    data = bytearray(b"".join(encode(note, size, little=True) for note in EXAMPLE))

    def decoded(changed: bytes) -> list[Any] | None:
        try:
            return decode(changed, size, little=True)
        except NoteError:
            return None

    cuts, changes = 0, Counter[bool]()
    for place, old in enumerate(data):
        for value in range(256):
            data[place] = value
            changes[decoded(bytes(data)) is None] += 1
        data[place] = old
        cut = decoded(bytes(data[:place]))
        assert cut in (None, [], EXAMPLE[:1], EXAMPLE[:2]), f"cut after {place} bytes"
        cuts += cut is None
    assert cuts > len(data) * 3 / 4, cuts
    assert min(changes[True], changes[False]) > 1000, changes
