"""`.note.usdt`: round trips, and damage that is refused by our own error."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from usdtbuild.formats.usdt_note import (
    FUNCTION_FIELD,
    PC_FIELD,
    DeclaredProbe,
    ProviderNote,
    SiteNote,
    UsdtNoteError,
    decode,
    encode,
)
from usdtbuild.provider.model import Attribute, Attributes

WORDS = st.text("abcdefghijklmnopqrstuvwxyz_", min_size=1, max_size=12)
OPERANDS = st.lists(st.sampled_from(["-4@%edi", "8@%rsi", "2@8(%rsp)"]), max_size=14).map(tuple)
TYPES = st.lists(st.sampled_from(["int", "char *"]), max_size=4).map(tuple)
U64 = st.integers(0, 2**64 - 1)
SITES = st.builds(SiteNote, U64, U64, WORDS, WORDS, OPERANDS, st.booleans())
ATTRIBUTE = st.builds(Attribute, st.integers(0, 7), st.integers(0, 7), st.integers(0, 5))
MAPPED = st.lists(st.tuples(st.sampled_from(["int", "string"]), st.integers(0, 255)), max_size=3).map(tuple)
DECLARED = st.lists(st.builds(DeclaredProbe, WORDS, TYPES, MAPPED), max_size=4).map(tuple)
PROVIDERS = st.builds(ProviderNote, WORDS, st.builds(Attributes, *[ATTRIBUTE] * 5), DECLARED)

EXAMPLE = [
    ProviderNote("app", Attributes(), (DeclaredProbe("req__done", ("int", "char *"), (("char *", 1),)),)),
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
    for place, old in enumerate(data):
        for value in (0, 0xFF, old ^ 1, old ^ 0x80):
            data[place] = value
            with contextlib.suppress(UsdtNoteError):
                decode(bytes(data), little=True)
        data[place] = old
        with contextlib.suppress(UsdtNoteError):
            decode(bytes(data[:place]), little=True)


def test_too_many_arguments_are_refused() -> None:
    with pytest.raises(UsdtNoteError, match="256 arguments"):
        encode(EXAMPLE[1]._replace(arguments=("-4@%edi",) * 256), little=True)
