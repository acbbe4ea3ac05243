"""What the site makes from another source: its first page's beginning, and the references of usdt_live.h and of JSON.

`conf.py` puts each into its page. `front_door` takes what the README says before its first heading.

`live_reference` reads the header as that is written: one comment at the top, whose paragraphs begin with a topic in
capitals; then declarations, parted by empty lines, each below the comment that is about it. `json_reference` reads the
descriptions in the schemas.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_TOPIC = re.compile(r"([A-Z]{4,}(?: [A-Z]+)*)(\. | )(.+)", re.DOTALL)
_CODE = re.compile(r"(?<![`\w])(usdt_live_\w+(?:\(\))?|USDT_LIVE_\w+|_o(?:n|ff)\(\))")
_NAME = re.compile(r"(\w+)\([^;]*\);$|\} (\w+);$|#define (USDT_LIVE_\w+)|\b(\w+)\(")


def front_door(readme: Path) -> str:
    """Return what the README says below its title and above its first heading, with links as they are in docs/."""
    return readme.read_text().split("\n## ", 1)[0].split("\n", 1)[1].strip().replace("](docs/", "](")


def live_reference(header: Path) -> str:
    """Return the header's manual and declarations as Markdown."""
    text = header.read_text()
    top, _, rest = text.partition("*/")
    # What follows the guard: not the checks of the machine, the includes and the macros of compilers.
    body = rest[rest.index("/* What can be switched") : rest.rindex("#ifdef __cplusplus")]
    return "\n\n".join([*_manual(top), "## Declarations", *_declarations(body)]) + "\n"


def _manual(comment: str) -> Iterator[str]:
    """Yield the topics of the comment at the top; its first paragraphs and its example are on the page itself."""
    lines = [re.sub(r"^ \* ?", "", line) for line in comment.splitlines()]
    for paragraph in "\n".join(lines).split("\n\n"):
        found = _TOPIC.match(paragraph)
        if found:
            title = found[1].capitalize()
            yield f"## {title}"
            yield _marked(" ".join((f"{title} " if found[2] == " " else "").split() + found[3].split()))


def _declarations(body: str) -> Iterator[str]:
    """Yield for each group of declarations a heading, the words above it, and its code."""
    for block in re.split(r"\n\n(?!\t)", _without_bodies(body)):
        comment, code = _parted(block.strip("\n"))
        if not code or code.startswith(("#if", "#else")):
            continue
        names = [next(filter(None, found.groups())) for found in map(_NAME.search, _statements(code)) if found]
        titles = dict.fromkeys(name for name in names if name.startswith(("usdt_live", "USDT_LIVE")))
        if titles:
            yield f"### {', '.join(f'`{name}`' for name in titles)}"
        if comment:
            yield _marked(comment)
        yield f"```c\n{code}\n```"


def _parted(block: str) -> tuple[str, str]:
    """Return the comment that a block begins with, on one line, and the rest."""
    if not block.startswith("/*"):
        return "", block
    comment, _, code = block.partition("*/")
    return " ".join(comment.removeprefix("/*").split()), code.strip("\n")


def _statements(code: str) -> list[str]:
    """Return the definitions of macros and the statements, each on a line, without comments and what is in braces."""
    bare = re.sub(r"\{[^{}]*\}", "{}", re.sub(r"/\*.*?\*/", "", code, flags=re.DOTALL))
    macros = [line for line in bare.splitlines() if line.startswith("#define")]
    others = " ".join(line for line in bare.splitlines() if not line.startswith("#")).split(";")
    return macros + [f"{' '.join(other.split())};" for other in others if other.strip()]


def _without_bodies(body: str) -> str:
    """Replace the bodies of inline functions by a semicolon."""
    return re.sub(r"(static __inline__ [^{;]*?)\s*\n\{\n.*?^\}", r"\1;", body, flags=re.DOTALL | re.MULTILINE)


def _marked(text: str) -> str:
    """Set names of the header in code, and what Markdown would take for emphasis apart."""
    parts = re.split(r"(`[^`]*`)", text)
    return "".join(part if part.startswith("`") else _CODE.sub(r"`\1`", part.replace("*", r"\*")) for part in parts)


# -- what --json prints ----------------------------------------------------------------------------------------------


def json_reference(folder: Path) -> str:
    """Return the fields of all schemas in a folder as Markdown: a table for each kind of object."""
    parts = []
    for path in sorted(folder.glob("*.json")):
        schema = json.loads(path.read_text())
        parts.append(f"## {path.name}\n\n`{schema['title']}`")
        parts += _objects(schema)
    return "\n\n".join(parts) + "\n"


def _objects(schema: dict[str, Any]) -> Iterator[str]:
    """Yield a table of the whole's fields, and one for each kind of object that these are made of."""
    if "$ref" in schema.get("items", {}):
        yield f"A {_type(schema)}."
    for name, kind in {"": schema, **schema.get("$defs", {})}.items():
        rows = list(_rows("", kind)) or list(_rows("[].", kind.get("items") or {}))
        if not rows:
            continue
        about = kind.get("description", "")
        head = f"**{name}**{': ' if about else ''}{about}\n\n" if name else ""
        yield f"{head}| field | type | what it is |\n|---|---|---|\n" + "\n".join(rows)


def _rows(prefix: str, kind: dict[str, Any]) -> Iterator[str]:
    for one in [kind, *kind.get("oneOf", []), *kind.get("anyOf", []), *kind.get("allOf", [])]:
        for name, field in one.get("properties", {}).items():
            about = field.get("description", "").replace("|", "\\|")
            yield f"| `{prefix}{name}` | {_type(field)} | {about} |"
            yield from _rows(f"{prefix}{name}.", field)
            if isinstance(field.get("items"), dict):
                yield from _rows(f"{prefix}{name}[].", field["items"])


def _type(field: dict[str, Any]) -> str:
    """Return the type of a field in words."""
    if "$ref" in field:
        return f"**{field['$ref'].rpartition('/')[2]}**"
    if "const" in field:
        return f"`{json.dumps(field['const'])}`"
    if "enum" in field:
        return ", ".join(f"`{json.dumps(value)}`" for value in field["enum"])
    if options := field.get("oneOf", field.get("anyOf")):
        return " or ".join(dict.fromkeys(map(_type, options)))
    kinds = field.get("type", "any")
    if kinds == "array" and isinstance(field.get("items"), dict):
        return f"list of {_type(field['items'])}"
    return " or ".join(kinds) if isinstance(kinds, list) else kinds
