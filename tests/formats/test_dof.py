"""DOF: what is encoded is decoded again, consumers would take it, and no damage does worse than one clear error."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from usdtbuild.formats.dof import layout
from usdtbuild.formats.dof.check import IGNORED, PLATFORMS, REJECTED, check
from usdtbuild.formats.dof.decode import decode
from usdtbuild.formats.dof.encode import encode
from usdtbuild.formats.dof.merge import merge, resolve
from usdtbuild.formats.dof.types import Dof, DofError, DofProbe, DofProvider
from usdtbuild.model import Attribute, Attributes

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
    return Dof(version, size, little, draw(st.sampled_from([0, layout.SETX, layout.DOFREL])), providers)


SMALL = Dof(
    2, 8, True, layout.SETX,
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
    order: Literal["little", "big"] = "little" if dof.little else "big"
    for field in encoded.addresses:
        address = dof.providers[field.provider].probes[field.probe].address
        assert int.from_bytes(encoded.data[field.offset : field.offset + 8], order) == address
    for place in encoded.offsets:
        probe = dof.providers[place.provider].probes[place.probe]
        offsets = probe.enabled_offsets if place.enabled else probe.offsets
        assert int.from_bytes(encoded.data[place.offset : place.offset + 4], order) == offsets[place.number]


@pytest.mark.parametrize("platform", PLATFORMS)
def test_consumers_take_what_is_written_for_them(platform: str) -> None:
    dof = SMALL._replace(relocation=layout.DOFREL if platform == "freebsd" else layout.SETX)
    if platform == "oracle":
        dof = dof._replace(version=3)
    assert check(encode(dof).data, platform) == []


def test_nothing_of_the_host_is_inside() -> None:
    import platform

    data = encode(SMALL).data
    assert platform.node().encode() not in data
    assert data == encode(SMALL).data


def read_all(data: bytes) -> tuple[bool, ...]:
    """Do all that tools do with a DOF; only our own error may come of it. Return what each of them took."""
    uses = (lambda: encode(decode(data)), lambda: merge([resolve(data, 0x1000), resolve(data, 0x2000)]))
    return (*(check(data, platform) == [] for platform in PLATFORMS), *map(_succeeds, uses))


def _succeeds(use: Callable[[], object]) -> bool:
    try:
        use()
    except DofError:
        return False
    return True


def assert_both(outcomes: Collection[tuple[bool, ...]]) -> None:
    """Our reader, and some system's, took some of the damaged DOFs and refused some; else nothing was looked at."""
    *systems, ours, _ = zip(*outcomes)
    assert set(ours) == {True, False}
    assert any(set(answers) == {True, False} for answers in systems)


@pytest.mark.parametrize("value", [0x00, 0x01, 0x7F, 0x80, 0xFF])
def test_every_changed_byte_is_accepted_or_refused_by_our_own_error(value: int) -> None:
    data = bytearray(encode(SMALL).data)
    outcomes = set()
    for place, old in enumerate(data):
        data[place] = old ^ value if value not in (0, 0xFF) else value
        outcomes.add(read_all(bytes(data)))
        data[place] = old
    assert_both(outcomes)


@pytest.mark.slow
@pytest.mark.parametrize("little", [True, False])
@pytest.mark.parametrize("quarter", range(4))
def test_every_value_of_every_byte(quarter: int, little: bool) -> None:
    data = bytearray(encode(SMALL._replace(little=little, address_size=8 if little else 4)).data)
    outcomes = set()
    for place in range(quarter, len(data), 4):
        old = data[place]
        for value in range(256):
            data[place] = value
            outcomes.add(read_all(bytes(data)))
        data[place] = old
    assert_both(outcomes)


@given(st.binary(max_size=400), st.integers(0, 600))
@settings(max_examples=200, deadline=None)
def test_garbage_in_the_middle(garbage: bytes, at: int) -> None:
    data = bytearray(encode(SMALL).data)
    data[at : at + len(garbage)] = garbage
    read_all(bytes(data))


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


def test_illumos_and_oracle_take_shorter_function_names_than_freebsd() -> None:
    name = "f" * 191
    probe = SMALL.providers[0].probes[0]._replace(function=name)
    dof = SMALL._replace(relocation=layout.DOFREL, providers=(SMALL.providers[0]._replace(probes=(probe,)),))
    data = encode(dof).data
    assert check(data, "freebsd") == []
    assert [finding.effect for finding in check(data, "illumos") if "function name" in finding.what] == [REJECTED]


LIMITS = [
    ({"function": "f" * 128}, "more than 127 bytes"),
    ({"name": "n" * 64}, "1 to 63 bytes"),
    ({"name": ""}, "1 to 63 bytes"),
    ({"offsets": (), "enabled_offsets": ()}, "no site"),
    ({"offsets": (4, 4)}, "two sites at one address"),
    ({"enabled_offsets": (4, 4)}, "two is-enabled sites"),
    ({"offsets": (-1,)}, "outside its function"),
    ({"offsets": (2**32,)}, "outside its function"),
    ({"native": ("int",) * 256}, "more than 255 arguments"),
    ({"mapping": (0,)}, "needs the index"),
    ({"mapping": (0, 2)}, "none of the native ones"),
    ({"native": ("x" * 128, "int")}, "more than 127 bytes"),
    ({"offsets": tuple(range(65536))}, "more than 65535 sites"),
    ({"name": "\u00e4" * 32}, "1 to 63 bytes"),
    ({"function": "f\0g"}, "a name with a NUL"),
    ({"mapping": (-1, 0)}, "none of the native ones"),
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


# -- what consumers check ------------------------------------------------------------------------------------------

ALL = frozenset(PLATFORMS)
# Numbers of SMALL's sections
STRTAB, PROBES, PRARGS, PROFFS, PRENOFFS, PROVIDER, RELTAB, URELHDR = range(8)
TYPE, ALIGN, FLAGS, ENTSIZE, OFFSET, SIZE = 0, 4, 8, 12, 16, 24


def header_of(section: int, field: int) -> int:
    return 64 + 32 * section + field


def inside(section: int, offset: int) -> int:
    """Return the place of a byte of one of SMALL's sections."""
    data = encode(SMALL).data
    return int.from_bytes(data[header_of(section, OFFSET) : header_of(section, OFFSET) + 8], "little") + offset


# (what, place, bytes, effect, platforms for which it holds; the others take the DOF)
RULES = [
    ("magic", 0, b"x", REJECTED, ALL),
    ("model", 4, b"\3", REJECTED, ALL),
    ("encoding", 5, b"\0", REJECTED, ALL),
    ("version", 6, b"\4", REJECTED, ALL),
    ("version 3", 6, b"\3", REJECTED, ALL - {"oracle"}),
    ("DIF version", 7, b"\1", REJECTED, ALL),
    ("integer registers", 8, b"\11", REJECTED, ALL),
    ("fewer registers", 8, b"\7", "", ALL),
    ("tuple registers", 9, b"\11", REJECTED, ALL),
    ("ident padding", 10, b"\1", REJECTED, ALL),
    ("last of ident", 15, b"\1", REJECTED, ALL),
    ("header flags", 16, b"\1", REJECTED, ALL),
    ("section header size", 24, b"\0", REJECTED, ALL),
    ("unaligned section headers", 24, b"\44", REJECTED, ALL),
    ("section headers' place", 32, b"\104", REJECTED, ALL),
    ("section count", 28, b"\xff\xff\xff\xff", REJECTED, ALL),
    ("section headers far away", 32, b"\xf8\xff\xff\xff\xff\xff\xff\xff", REJECTED, ALL),
    ("size 0", 40, b"\0\0", REJECTED, ALL),
    ("larger than it is", 40, b"\xff\xff", REJECTED, ALL),
    ("not loaded", header_of(PROFFS, FLAGS), b"\0", REJECTED, ALL),
    ("comments not loaded", header_of(RELTAB, TYPE), b"\1\0\0\0\10\0\0\0\0", REJECTED, ALL),
    ("alignment 3", header_of(PRARGS, ALIGN), b"\3", REJECTED, ALL),
    ("alignment 0", header_of(PRARGS, ALIGN), b"\0", REJECTED, ALL),
    ("offset against alignment", header_of(PROBES, OFFSET), b"\104", REJECTED, ALL),
    ("section behind the end", header_of(PROFFS, SIZE), b"\0\0\1", REJECTED, ALL),
    ("size that overflows", header_of(PROFFS, SIZE), b"\xff" * 8, REJECTED, ALL),
    ("string table's end", inside(STRTAB, 0) + len(encode(SMALL).data) - inside(STRTAB, 0) - 1, b"x", REJECTED, ALL),
    ("URELHDR too small", header_of(URELHDR, SIZE), b"\10", REJECTED, ALL),
    ("URELHDR alignment", header_of(URELHDR, ALIGN), b"\10", REJECTED, ALL),
    ("URELHDR's strings", inside(URELHDR, 0), b"\1", REJECTED, ALL),
    ("URELHDR's relocations", inside(URELHDR, 4), b"\1", REJECTED, ALL),
    ("URELHDR's target", inside(URELHDR, 8), b"\77", REJECTED, ALL),
    ("RELTAB entries", header_of(RELTAB, ENTSIZE), b"\20", REJECTED, ALL),
    ("RELTAB alignment", header_of(RELTAB, ALIGN), b"\4", REJECTED, ALL),
    ("relocation's name", inside(RELTAB, 0), b"\xff\xff", REJECTED, ALL),
    ("relocation type 3", inside(RELTAB, 4), b"\3", REJECTED, ALL),
    ("relocations of two types", inside(RELTAB, 4), b"\2", REJECTED, ALL),
    ("relocation that does nothing", inside(RELTAB, 4), b"\0", "", ALL),
    ("relocation's offset", inside(RELTAB, 8), b"\4", REJECTED, ALL),
    ("relocation behind the end", inside(RELTAB, 8), b"\xf8\xff\xff\xff\xff\xff\xff\xff", REJECTED, ALL),
    ("provider too small", header_of(PROVIDER, SIZE), b"\50", REJECTED, ALL),
    ("provider's strings", inside(PROVIDER, 0), b"\1", REJECTED, ALL),
    ("provider's probes", inside(PROVIDER, 4), b"\0", REJECTED, ALL),
    ("provider's arguments", inside(PROVIDER, 8), b"\1", REJECTED, ALL),
    ("provider's offsets", inside(PROVIDER, 12), b"\1", REJECTED, ALL),
    ("provider's is-enabled offsets", inside(PROVIDER, 40), b"\1", REJECTED, ALL),
    ("no is-enabled offsets", inside(PROVIDER, 40), b"\0", REJECTED, ALL),
    ("provider's name", inside(PROVIDER, 16), b"\xff\xff", REJECTED, ALL),
    ("PROBES entry 0", header_of(PROBES, ENTSIZE), b"\0", REJECTED, ALL),
    ("PROBES entry 52", header_of(PROBES, ENTSIZE), b"\64", REJECTED, ALL),
    ("PROBES entry too large", header_of(PROBES, ENTSIZE), b"\0\1", REJECTED, ALL),
    ("PROBES empty", header_of(PROBES, SIZE), b"\0", REJECTED, ALL),
    ("PRARGS entry", header_of(PRARGS, ENTSIZE), b"\2", REJECTED, ALL),
    ("PROFFS entry", header_of(PROFFS, ENTSIZE), b"\2", REJECTED, ALL),
    ("PRENOFFS entry", header_of(PRENOFFS, ENTSIZE), b"\2", REJECTED, ALL),
    ("function's name", inside(PROBES, 8), b"\xff\xff", REJECTED, ALL),
    ("probe's name", inside(PROBES, 12), b"\xff\xff", REJECTED, ALL),
    ("native types", inside(PROBES, 16), b"\xff\xff", REJECTED, ALL),
    ("translated types", inside(PROBES, 20), b"\xff\xff", REJECTED, ALL),
    ("argument index", inside(PROBES, 24), b"\xff", REJECTED, ALL),
    ("offset index", inside(PROBES, 28), b"\xff\xff\xff\xff", REJECTED, ALL),
    ("native arguments", inside(PROBES, 32), b"\xff", REJECTED, ALL),
    ("translated arguments", inside(PROBES, 33), b"\xff", REJECTED, ALL),
    ("offsets", inside(PROBES, 34), b"\xff\xff", REJECTED, ALL),
    ("is-enabled index", inside(PROBES, 36), b"\xff\xff\xff\xff", REJECTED, ALL),
    ("is-enabled offsets", inside(PROBES, 40), b"\xff\xff", REJECTED, ALL),
    ("no site at all", inside(PROBES, 48 + 34), b"\0\0", REJECTED, ALL),
    ("map far outside", inside(PRARGS, 0), b"\3", REJECTED, ALL),
    ("map just outside", inside(PRARGS, 0), b"\2", IGNORED, ALL),
    ("two sites at one offset", inside(PROFFS, 0), b"\74", IGNORED, ALL - {"oracle"}),
    ("two sites at one offset", inside(PROFFS, 0), b"\74", REJECTED, {"oracle"}),
    ("the same probe twice", inside(PROBES, 48 + 8), encode(SMALL).data[inside(PROBES, 8) : inside(PROBES, 12)],
     IGNORED, ALL - {"oracle"}),
]  # fmt: skip


@pytest.mark.parametrize(("what", "place", "change", "effect", "platforms"), RULES, ids=[rule[0] for rule in RULES])
def test_consumers_rules(what: str, place: int, change: bytes, effect: str, platforms: frozenset[str]) -> None:
    plain = encode(SMALL).data
    data = plain[:place] + change + plain[place + len(change) :]
    for platform in PLATFORMS:
        before = set(check(plain, platform))
        found = [finding for finding in check(data, platform) if finding not in before]
        wanted = {effect} if effect and platform in platforms else set()
        assert {finding.effect for finding in found if effect and finding.effect == effect} == wanted, found
        if not effect:
            assert found == []


@pytest.mark.parametrize(
    ("name", "effect"), [("", IGNORED), ("pid", IGNORED), ("p" * 54, IGNORED), ("p" * 64, REJECTED), ("p" * 53, "")]
)
def test_provider_names_that_come_to_nothing_are_found(name: str, effect: str, monkeypatch: Any) -> None:
    from usdtbuild.formats.dof import encode as module

    monkeypatch.setattr(module, "_enforce_limits", lambda dof: None)
    data = encode(SMALL._replace(providers=(SMALL.providers[0]._replace(name=name),))).data
    assert [finding.effect for finding in check(data, "freebsd")] == [effect] * bool(effect)


def test_only_freebsd_knows_dofrel() -> None:
    data = encode(SMALL._replace(relocation=layout.DOFREL)).data
    assert check(data, "freebsd") == []
    assert {finding.effect for finding in check(data, "illumos")} == {REJECTED}
    assert {finding.effect for finding in check(data, "oracle")} == {REJECTED, IGNORED}


def test_oracle_rejects_is_enabled_sites_alone_before_version_3() -> None:
    probe = SMALL.providers[0].probes[0]._replace(offsets=())
    dof = SMALL._replace(providers=(SMALL.providers[0]._replace(probes=(probe,)),))
    assert [finding.what for finding in check(encode(dof).data, "oracle")] == ["app:start in main: it has no site"]
    assert check(encode(dof._replace(version=3)).data, "oracle") == []
    assert check(encode(dof).data, "illumos") == []


def test_sizes_that_consumers_refuse() -> None:
    probes = tuple(DofProbe("f" * 100 + str(i), "p", (), (), (), (1,)) for i in range(47000))
    with pytest.raises(DofError, match="consumers take less than 8388608"):
        encode(SMALL._replace(version=1, providers=(SMALL.providers[0]._replace(probes=probes),)))


# -- several in one ------------------------------------------------------------------------------------------------


def test_merging_makes_addresses_absolute_and_loses_no_site() -> None:
    one = DofProbe("main", "start", ("int",), ("int",), (0,), (4, 60), (12,), 0)
    dofrel = Dof(2, 8, True, layout.DOFREL, (DofProvider("app", Attributes(), (one,)),))
    first = encode(dofrel)
    at = first.addresses[0].offset
    distance = (0x5000 - (0x9000 + at)) % (1 << 64)
    first = encode(dofrel._replace(providers=(DofProvider("app", Attributes(), (one._replace(address=distance),)),)))
    resolved = resolve(first.data, 0x9000)
    assert resolved.providers[0].probes[0].address == 0x5000
    # another file's static function of the same name, and the very same probe again
    other = one._replace(address=0x4000, enabled_offsets=())
    setx = Dof(1, 8, True, layout.SETX, (DofProvider("app", Attributes(), (other,)),))
    second = resolve(encode(setx).data, 0, base=0x800)
    merged = merge([resolved, second, resolved])
    (probe,) = merged.providers[0].probes
    assert probe == one._replace(address=0x4800, offsets=(4, 60, 0x804, 0x83C), enabled_offsets=(0x80C,))
    assert merged.version == 2
    assert check(encode(merged).data, "freebsd") == []


def test_probes_whose_arguments_are_mapped_otherwise_stay_apart() -> None:
    """Two versions of a provider, say: merged into one, the arguments of half the sites would be exchanged."""
    straight = DofProbe("main", "start", ("int", "long"), ("long", "long"), (0, 1), (4,), (), 0x1000)
    crossed = straight._replace(mapping=(1, 0), offsets=(8,))
    same = straight._replace(offsets=(12,))
    dofs = [Dof(2, 8, True, 0, (DofProvider("app", Attributes(), (probe,)),)) for probe in (straight, crossed, same)]
    assert merge(dofs).providers[0].probes == (straight._replace(offsets=(4, 12)), crossed)


def test_32_bit_distances_wrap_at_32_bits() -> None:
    probe = DofProbe("main", "start", (), (), (), (4,), (), 0xFFFFF000)
    encoded = encode(Dof(1, 4, True, layout.DOFREL, (DofProvider("app", Attributes(), (probe,)),)))
    (resolved,) = resolve(encoded.data, 0x9000).providers[0].probes
    assert resolved.address == 0x8000 + encoded.addresses[0].offset


def test_what_does_not_go_together_is_not_merged() -> None:
    plain = SMALL._replace(relocation=0)
    for others, message in (
        ([], "no DOF"),
        ([SMALL], "still to be relocated"),
        ([plain, plain._replace(little=False)], "different machines"),
        ([plain, plain._replace(address_size=4)], "different machines"),
        ([plain, plain._replace(version=3)], "versions 2 and 3"),
    ):
        with pytest.raises(DofError, match=message):
            merge(others)


@given(st.lists(dofs(), min_size=1, max_size=3))
@settings(max_examples=50, deadline=None)
def test_merging_keeps_every_address(some: list[Dof]) -> None:
    some = [dof._replace(relocation=0, address_size=8, little=True, version=2) for dof in some]
    some = [
        dof._replace(providers=tuple(
            p._replace(probes=tuple(probe._replace(address=probe.address % 2**31) for probe in p.probes))
            for p in dof.providers
        ))
        for dof in some
    ]  # fmt: skip

    def sites(dof: Dof) -> set[tuple[Any, ...]]:
        return {
            (p.name, probe.name, probe.function, probe.native, kind, probe.address + offset)
            for p in dof.providers
            for probe in p.probes
            for kind, offsets in (("site", probe.offsets), ("enabled", probe.enabled_offsets))
            for offset in offsets
        }

    merged = merge(some)
    assert sites(merged) == set().union(*(sites(dof) for dof in some))
    assert merge([merged]) == merged
    assert merge(some[::-1]) == merged
