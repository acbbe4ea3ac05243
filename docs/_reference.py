"""The reference of usdt_live.h for the site, made from the header's own comments: `docs/conf.py` puts it into its page.

It reads the header as that is written: one comment at the top, whose paragraphs begin with a topic in capitals; then
declarations, parted by empty lines, each below the comment that is about it.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_TOPIC = re.compile(r"([A-Z]{4,}(?: [A-Z]+)*)(\. | )(.+)", re.DOTALL)
_CODE = re.compile(r"(?<![`\w])(usdt_live_\w+(?:\(\))?|USDT_LIVE_\w+|_o(?:n|ff)\(\))")
_NAME = re.compile(r"(\w+)\([^;]*\);$|\} (\w+);$|#define (USDT_LIVE_\w+)|\b(\w+)\(")


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
