"""DOF: what is encoded is decoded again, consumers would take it, and no damage does worse than one clear error."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from usdtbuild.formats.dof import layout as L
from usdtbuild.formats.dof.check import PLATFORMS, check
from usdtbuild.formats.dof.decode import decode
from usdtbuild.formats.dof.encode import encode
from usdtbuild.formats.dof.types import Dof, DofError, DofProbe, DofProvider
from usdtbuild.provider.model import Attribute, Attributes

WORDS = st.text("abcdefghijklmnopqrstuvwxyz_0123456789", min_size=1, max_size=20).filter(lambda w: w != "pid")
TYPES = st.lists(st.sampled_from(["int", "char *", "uint64_t", "struct conn *"]), max_size=5).map(tuple)
OFFSETS = st.lists(st.integers(0, 2**32 - 1), unique=True, max_size=6).map(tuple)


@st.composite
def probes(draw: Any, version: int) -> DofProbe:
    native = draw(TYPES)
    mapping = draw(st.lists(st.integers(0, len(native) - 1), max_size=4)) if native else []
    offsets = draw(OFFSETS)
    enabled = draw(OFFSETS) if version > 1 else ()
    if not offsets and not enabled:
        offsets = (draw(st.integers(0, 100)),)
    translated = tuple(native[index] for index in mapping)
    return DofProbe(
        draw(WORDS), draw(WORDS), native, translated, tuple(mapping), offsets, enabled, draw(st.integers(0, 2**64 - 1))
    )


@st.composite
def dofs(draw: Any) -> Dof:
    version = draw(st.sampled_from([1, 2, 3]))
    attribute = st.builds(Attribute, st.integers(0, 7), st.integers(0, 7), st.integers(0, 5))
    attributes = st.builds(Attributes, *[attribute] * 5)
    members = st.lists(probes(version), min_size=1, max_size=4).map(tuple)
    providers = draw(st.lists(st.builds(DofProvider, WORDS, attributes, members), min_size=1, max_size=3).map(tuple))
    size, little = draw(st.sampled_from([4, 8])), draw(st.booleans())
    return Dof(version, size, little, draw(st.sampled_from([0, L.SETX, L.DOFREL])), providers)


SMALL = Dof(
    2, 8, True, L.SETX,
    (
        DofProvider(
            "app", Attributes(),
            (
                DofProbe("main", "start", ("int", "char *"), ("char *", "int"), (1, 0), (4, 60), (12,), 0x1000),
                DofProbe("other", "start", ("int", "char *"), ("char *", "int"), (1, 0), (7,), (), 0x2000),
            ),
        ),
    ),
)  # fmt: skip


@given(dofs())
@settings(max_examples=200, deadline=None)
def test_what_is_encoded_is_decoded_again(dof: Dof) -> None:
    encoded = encode(dof)
    assert decode(encoded.data) == dof
    assert len(encoded.data) % 8 == 0
    platform = "oracle" if dof.version == 3 else "freebsd"
    assert [finding for finding in check(encoded.data, platform) if "is unknown" in finding.what] == []


@given(dofs())
@settings(max_examples=100, deadline=None)
def test_fields_are_where_encode_says(dof: Dof) -> None:
    encoded = encode(dof)
    order = "little" if dof.little else "big"
    for field in encoded.addresses:
        address = dof.providers[field.provider].probes[field.probe].address
        assert int.from_bytes(encoded.data[field.offset : field.offset + 8], order) == address
    for place in encoded.offsets:
        probe = dof.providers[place.provider].probes[place.probe]
        offsets = probe.enabled_offsets if place.enabled else probe.offsets
        assert int.from_bytes(encoded.data[place.offset : place.offset + 4], order) == offsets[place.number]


@pytest.mark.parametrize("platform", PLATFORMS)
def test_consumers_take_what_is_written_for_them(platform: str) -> None:
    dof = SMALL._replace(relocation=L.DOFREL if platform == "freebsd" else L.SETX)
    if platform == "oracle":
        dof = dof._replace(version=3)
    assert check(encode(dof).data, platform) == []


def test_nothing_of_the_host_is_inside() -> None:
    import platform

    data = encode(SMALL).data
    assert platform.node().encode() not in data
    assert data == encode(SMALL).data


@pytest.mark.parametrize("value", [0x00, 0x01, 0x7F, 0x80, 0xFF])
def test_every_changed_byte_is_accepted_or_refused_by_our_own_error(value: int) -> None:
    data = bytearray(encode(SMALL).data)
    for place, old in enumerate(data):
        data[place] = old ^ value if value not in (0, 0xFF) else value
        for platform in PLATFORMS:
            check(bytes(data), platform)
        with contextlib.suppress(DofError):
            decode(bytes(data))
        data[place] = old


def test_every_truncation_is_refused() -> None:
    data = encode(SMALL).data
    for length in range(len(data)):
        with pytest.raises(DofError):
            decode(data[:length])


def test_records_that_refer_to_the_same_table_again_and_again_are_refused() -> None:
    """Half a megabyte must not unfold into a gigabyte of offsets."""
    large = DofProbe("f", "p", (), (), (), tuple(range(60000)))
    others = tuple(DofProbe("f", f"p{i}", (), (), (), (1,)) for i in range(3000))
    encoded = encode(Dof(1, 8, True, 0, (DofProvider("a", Attributes(), (large, *others)),)))
    assert len(decode(encoded.data).providers[0].probes) == 3001
    data = bytearray(encoded.data)
    for field in encoded.addresses[1:]:
        data[field.offset + 28 : field.offset + 32] = bytes(4)  # dof_probe.offidx
        data[field.offset + 34 : field.offset + 36] = (60000).to_bytes(2, "little")  # dof_probe.noffs
    with pytest.raises(DofError, match="far more"):
        decode(bytes(data))


LIMITS = [
    ({"function": "f" * 192}, "more than 191 characters"),
    ({"name": "n" * 64}, "1 to 63 characters"),
    ({"name": ""}, "1 to 63 characters"),
    ({"offsets": (), "enabled_offsets": ()}, "no site"),
    ({"offsets": (4, 4)}, "two sites at one address"),
    ({"enabled_offsets": (4, 4)}, "two is-enabled sites"),
    ({"offsets": (-1,)}, "outside its function"),
    ({"offsets": (2**32,)}, "outside its function"),
    ({"native": ("int",) * 256}, "more than 255 arguments"),
    ({"mapping": (0,)}, "needs the index"),
    ({"mapping": (0, 2)}, "none of the native ones"),
    ({"native": ("x" * 128, "int")}, "more than 127 characters"),
    ({"offsets": tuple(range(65536))}, "more than 65535 sites"),
]


@pytest.mark.parametrize(("change", "message"), LIMITS, ids=[message for _, message in LIMITS])
def test_limits_are_enforced_before_anything_is_written(change: dict[str, Any], message: str) -> None:
    probe = SMALL.providers[0].probes[0]._replace(**change)
    with pytest.raises(DofError, match=message):
        encode(SMALL._replace(providers=(SMALL.providers[0]._replace(probes=(probe,)),)))


@pytest.mark.parametrize("name", ["", "pid", "p" * 54])
def test_provider_names_that_dtrace_makes_nothing_of_are_refused(name: str) -> None:
    with pytest.raises(DofError, match="makes no provider"):
        encode(SMALL._replace(providers=(SMALL.providers[0]._replace(name=name),)))


def test_provider_without_probes_is_refused() -> None:
    with pytest.raises(DofError, match="has no probe"):
        encode(SMALL._replace(providers=(DofProvider("app", Attributes(), ()),)))


def test_version_1_has_no_is_enabled_sites() -> None:
    with pytest.raises(DofError, match="version 1"):
        encode(SMALL._replace(version=1))
