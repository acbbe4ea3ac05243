r"""The provider's description as it travels: header -> assembler -> section of the object -> instrument.

The generated header makes the assembler put these lines into the section `SECTION` of every object that includes
it, so that a compile step needs no argument that names the `.d`. The text is ASCII, one record a line, fields
separated by tabs, so that reading it back is a few `str.split`:

    provider TAB 1 TAB name TAB hash TAB attr,attr,attr,attr,attr NEWLINE
    probe TAB name TAB arg;arg;... TAB translated;translated;... NEWLINE

An `arg` is `code|type|name`. The code is a letter (s signed integer, u unsigned integer, p pointer, z pointer to
char, f floating point), and for s, u and f the size in bytes, or `size64/size32` where the two data models differ.
A `translated` is `type|name|native index`; the field is `-` where the probe has no translation. The hash is
`digest` of everything else, so comments and layout of the `.d` don't change it.

A line `passed TAB name` says that the object was compiled with the drop-in's header, whose records show an integer of
this provider as it was passed; a line `branch TAB name`, that its probes are branches in inline assembly, which take
neither registers nor the stack's red zone.
"""

from __future__ import annotations

from ..model import FLOAT, INTEGER, POINTER, Argument, Attribute, Attributes, CType, Probe, Provider, Translated

SECTION = ".usdtbuild.provider"
VERSION = "1"
PASSED, BRANCH = "passed", "branch"
# What a linker says of a stub that nothing has replaced or defined ends with this: what would have, in each build
# system. The stub of a branch is never defined, so no program ever holds its name; objects that are in order have it as
# a weak symbol. That of a call may be, so its name is another one: no branch ever leads to what is defined for calls.
_BUILDS = "usdtbuild_cc__CMake_target_usdt_providers__Meson_usdt_dep"
MADE_BY, DEFINED_BY = f"___is_made_by_{_BUILDS}", f"___is_defined_by_{_BUILDS}"
_MOST_DECODED = 16
_decoded: dict[str, list[tuple[str, tuple[Provider, str]]]] = {}  # the latest texts, and what they say
_KIND_LETTER = {INTEGER: ("u", "s"), FLOAT: ("f", "f")}


class DescriptionError(ValueError):
    """The description section holds something this version didn't write."""


def plain_name(stub: str) -> str:
    """Return a stub's name, or the end of it, as DTrace spells it: without what tells how it is made."""
    for ending in (MADE_BY, DEFINED_BY):
        if stub.endswith(ending):
            return stub[: -len(ending)]
    return stub


def encode(provider: Provider) -> str:
    """Return the lines for one provider, with its hash."""
    attributes = ",".join(f"{attribute.encode():08x}" for attribute in provider.attributes)
    probes = "".join(_encode_probe(probe) for probe in provider.probes)
    return f"provider\t{VERSION}\t{provider.name}\t{digest(provider)}\t{attributes}\n{probes}"


def digest(provider: Provider) -> str:
    """Return 16 hex digits that change exactly when what tracers can see of the provider changes."""
    try:
        from _blake2 import blake2b  # what hashlib offers under the same name, without loading OpenSSL first
    except ImportError:
        from hashlib import blake2b

    attributes = ",".join(f"{attribute.encode():08x}" for attribute in provider.attributes)
    text = provider.name + "\n" + attributes + "\n" + "".join(_encode_probe(probe) for probe in provider.probes)
    return blake2b(text.encode(), digest_size=8).hexdigest()


def decode(text: str) -> dict[str, tuple[Provider, str]]:
    """Return provider name -> (provider, hash) for every provider in the section's text.

    Linkers may pad between the pieces they concatenate, so NUL bytes are skipped. Several descriptions of one provider
    are joined, under a hash of their own; where they contradict each other the first wins, and `conflicts` says so.
    Raises DescriptionError.
    """
    parts = _parts(text)
    found = {name: (provider, hash_) for (name, hash_), provider in parts.items()}
    if len(found) < len(parts):
        from .join import join_all

        providers, _ = join_all(parts.values())
        several = {name for name, hash_ in parts if found[name][1] != hash_}
        found = {name: (p, digest(p) if name in several else found[name][1]) for name, p in providers.items()}
    return found


def conflicts(text: str) -> dict[str, tuple[str, ...]]:
    """Return the providers of which descriptions in the text contradict each other, each with what they differ in.

    That is so where objects were built from two versions of a `.d`. Raises DescriptionError.
    """
    from .join import join_all

    return dict(sorted(join_all(_parts(text).values())[1].items()))


def _parts(text: str) -> dict[tuple[str, str], Provider]:
    """Return (name, hash) -> provider for every different description in the text, in its order."""
    found: dict[tuple[str, str], Provider] = {}
    for name, (provider, hash_) in _decode_all(text):
        found.setdefault((name, hash_), provider)
    return found


def marked(text: str, mark: str) -> frozenset[str]:
    """Return the names of the providers that have a mark: PASSED or BRANCH."""
    lines = (line.split("\t") for line in text.replace("\0", "").split("\n"))
    return frozenset(words[1] for words in lines if words[0] == mark and len(words) == 2)


def _decode_all(text: str) -> list[tuple[str, tuple[Provider, str]]]:
    """Return name -> (provider, hash) for each description in the text. Most of a project's objects have the same."""
    if text not in _decoded:
        if len(_decoded) >= _MOST_DECODED:
            _decoded.clear()
        _decoded[text] = _decode_anew(text)
    return _decoded[text]


def _decode_anew(text: str) -> list[tuple[str, tuple[Provider, str]]]:
    providers: list[tuple[str, str, Attributes, list[Probe]]] = []
    for line in text.replace("\0", "").split("\n"):
        fields = line.split("\t")
        if not line or (fields[0] in (PASSED, BRANCH) and len(fields) == 2):
            continue
        try:
            if fields[0] == "provider" and fields[1] == VERSION:
                _, _, name, hash_, attributes = fields
                providers.append((name, hash_, _decode_attributes(attributes), []))
            elif fields[0] == "probe":
                providers[-1][3].append(_decode_probe(fields))
            else:
                raise DescriptionError(f"line {line[:60]!r} is of no known kind or version")
        except (ValueError, IndexError) as error:
            if isinstance(error, DescriptionError):
                raise
            raise DescriptionError(f"line {line[:60]!r} can't be read") from None
    return [(name, (Provider(name, tuple(probes), attrs), hash_)) for name, hash_, attrs, probes in providers]


def arguments_text(probe: Probe) -> str:
    """Return a probe's arguments as its line has them: `code|type|name;...`."""
    return ";".join(f"{_code(a.type)}|{a.type.spelling}|{a.name}" for a in probe.arguments)


def _encode_probe(probe: Probe) -> str:
    native = arguments_text(probe)
    translated = "-"
    if probe.translated is not None:
        translated = ";".join(f"{t.type}|{t.name}|{t.native}" for t in probe.translated)
    return f"probe\t{probe.written}\t{native}\t{translated}\n"


def _code(ctype: CType) -> str:
    if ctype.kind == POINTER:
        return "z" if ctype.is_string else "p"
    letter = _KIND_LETTER[ctype.kind][ctype.signed]
    if ctype.size64 == ctype.size32:
        return f"{letter}{ctype.size64}"
    return f"{letter}{ctype.size64}/{ctype.size32}"


def _decode_probe(fields: list[str]) -> Probe:
    _, written, native, translated = fields
    arguments = tuple(_decode_argument(item) for item in native.split(";")) if native else ()
    if translated == "-":
        return Probe(written, arguments)
    items = [item.rsplit("|", 2) for item in translated.split(";")] if translated else []
    return Probe(written, arguments, tuple(Translated(type_, name, int(index)) for type_, name, index in items))


def _decode_argument(item: str) -> Argument:
    code, rest = item.split("|", 1)
    spelling, name = rest.rsplit("|", 1)
    letter, sizes = code[0], code[1:]
    if letter in "pz":
        return Argument(CType(spelling, POINTER, False, 8, 4, letter == "z"), name)
    if letter not in "suf":
        raise DescriptionError(f"argument code {code!r} is unknown")
    size64, _, size32 = sizes.partition("/")
    kind = FLOAT if letter == "f" else INTEGER
    return Argument(CType(spelling, kind, letter != "u", int(size64), int(size32 or size64)), name)


def _decode_attributes(text: str) -> Attributes:
    words = [int(word, 16) for word in text.split(",")]
    if len(words) != 5:
        raise DescriptionError(f"{len(words)} attributes where there are five")
    return Attributes(*(Attribute(word >> 24 & 0xFF, word >> 16 & 0xFF, word >> 8 & 0xFF) for word in words))
