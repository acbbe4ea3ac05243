"""Prints providers as a provider file: the one canonical text of what a file says.

Parsing the printed text gives the same providers, and printing those gives the same text. A provider read back from
an object prints too, with as much of its types as the object carries. Names that the file had declared are declared
again, each by the plainest typedef that means the same to every probe that uses it.
"""

from __future__ import annotations

from ..model import POINTER, Argument, Attributes, CType, Probe, Provider
from .lexer import LETTERS, scan
from .parser import ParseError, parse
from .stability import attribute_text
from .types import FUNCTION, INT64, KEYWORD_TYPES, LLONG, SIZE, STANDARD_TYPES, UINT64, ULLONG, USUAL_TYPES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

# What a provider file calls the types that the header makes up.
_IN_D = {INT64: "int64_t", UINT64: "uint64_t", SIZE: "size_t", LLONG: "long long", ULLONG: "unsigned long long"}
_NOT_NAMES = frozenset(("const", "volatile", "restrict"))


def show(providers: tuple[Provider, ...]) -> str:
    """Return the text of a provider file that declares these providers."""
    pieces = [_provider(provider) for provider in providers]
    typedefs = _typedefs(providers)
    if typedefs:
        pieces.insert(0, "".join(f"{line}\n" for line in typedefs))
    return "\n".join(pieces)


def declaration(spelling: str, name: str) -> str:
    """Put a name into a type: `int [4]` and `x` give `int x[4]`; `void (*)(int)` and `f` give `void (*f)(int)`."""
    if not name:
        return spelling
    at, end = 0, len(spelling)
    while at < end and spelling[at] not in "*([":
        at += 1
    # The name stands behind the pointers, qualifiers and opening parentheses that begin the declarator.
    while at < end and (spelling[at] in "*( " or spelling[at].isalpha()):
        if spelling[at] == "(" and spelling[at + 1 : at + 2] not in ("*", "(", "["):
            break
        at += 1
    head, tail = spelling[:at], spelling[at:]
    return f"{head}{'' if head[-1:] in ('*', '(', ' ') else ' '}{name}{tail}"


def signature(arguments: tuple[Argument, ...]) -> str:
    """Return arguments as a provider file lists them: `int fd, char *path`."""
    return ", ".join(declaration(argument.type.spelling, argument.name) for argument in arguments)


def _provider(provider: Provider) -> str:
    probes = "".join(_probe(probe) for probe in provider.probes)
    pragmas = "".join(
        f"#pragma D attributes {attribute_text(attribute)} provider {provider.name} {part}\n"
        for part, attribute, default in zip(Attributes._fields, provider.attributes, Attributes())
        if attribute != default
    )
    separator = "\n" if pragmas else ""
    return f"{_comment(provider.comment, '')}provider {provider.name} {{\n{probes}}};\n{separator}{pragmas}"


def _probe(probe: Probe) -> str:
    translated = ""
    if probe.translated is not None:
        translated = f" : ({', '.join(declaration(t.type, t.name) for t in probe.translated)})"
    return f"{_comment(probe.comment, chr(9))}\tprobe {probe.written}({signature(probe.arguments)}){translated};\n"


def _comment(comment: str, indentation: str) -> str:
    lines = comment.split("\n")
    if not comment:
        return ""
    if len(lines) == 1:
        return f"{indentation}/* {comment} */\n"
    body = "".join(f"{indentation} * {line}".rstrip() + "\n" for line in lines)
    return f"{indentation}/*\n{body}{indentation} */\n"


def _typedefs(providers: tuple[Provider, ...]) -> list[str]:
    uses: dict[str, dict[str, CType]] = {}
    for provider in providers:
        for probe in provider.probes:
            for argument in probe.arguments:
                name = _declared_name(argument.type.spelling)
                if name:
                    uses.setdefault(name, {})[argument.type.spelling] = argument.type
    lines = []
    for name, types in sorted(uses.items()):
        if not _means("", types):
            lines += [line for line in _candidates(name, types) if _means(line, types)][:1]
    return lines


def _declared_name(spelling: str) -> str:
    """Return the name that a type is built on, or '' if that is a keyword or a tag."""
    tokens = [token for token in scan(spelling).tokens if token not in _NOT_NAMES]
    if tokens[1:2] == ["`"]:
        tokens = tokens[2:]
    name = tokens[0]
    is_keyword = name in KEYWORD_TYPES or name in ("signed", "unsigned", "void", "struct", "union", "enum", "string")
    return name if name[:1] in LETTERS and not is_keyword else ""


def _means(typedef: str, types: dict[str, CType]) -> bool:
    """Return whether, with this typedef, each spelling is its type."""
    arguments = ", ".join(types)
    try:
        probe = parse(f"{typedef}\nprovider check {{ probe types({arguments}); }};", "")[0].probes[0]
    except ParseError:
        return False
    return all(
        found.type == expected or found.type._replace(parameter="") == expected
        for found, expected in zip(probe.arguments, types.values())
    )


def _candidates(name: str, types: dict[str, CType]) -> Iterator[str]:
    """Yield typedefs of `name` that may mean what it means in `types`."""
    for ctype in types.values():
        if ctype.kind == POINTER:
            yield from _pointer_candidates(name, ctype.parameter or ("const char *" if ctype.is_string else ""))
        else:
            for table in (KEYWORD_TYPES, STANDARD_TYPES, USUAL_TYPES):
                for known, basic in table.items():
                    if basic[:4] == (ctype.kind, ctype.signed, ctype.size64, ctype.size32):
                        yield f"typedef {known} {name};"


def _pointer_candidates(name: str, parameter: str) -> Iterator[str]:
    if parameter == FUNCTION:
        yield f"typedef void (*{name})(void);"
        yield f"typedef void {name}(void);"
        return
    pointed = (parameter or "const void *")[len("const ") : -len(" *")]
    words = pointed.split()
    pointed = " ".join(_IN_D.get(word, word) for word in words)
    yield f"typedef {pointed} {name};"
    yield f"typedef {pointed} *{name};"
