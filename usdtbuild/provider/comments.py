"""The comments above a declaration: which they are, and what they say without their signs and margins."""

from __future__ import annotations

from .lexer import Scan

_LONGEST = 1 << 16  # characters of what stands above a probe; what is longer documents nothing
_MOST_INDENTATION = 120  # characters in front of a comment that are looked at


def comment_above(scan: Scan, text: str, token: int) -> str:
    """Return the text of the comments that stand on the lines directly above a token."""
    comments = scan.comments
    low, high = 0, len(comments)
    while low < high:
        middle = (low + high) // 2
        if comments[middle].token <= token:
            low = middle + 1
        else:
            high = middle
    pieces: list[str] = []
    below, left = scan.offsets[token], _LONGEST
    for comment in reversed(comments[:low]):
        gap = text[comment.end : below]
        # Indentation is short; a file of one line must not be searched to its start for every comment.
        before = text[max(0, comment.start - _MOST_INDENTATION) : comment.start].rpartition("\n")[2]
        if comment.token != token or gap.strip() or gap.count("\n") > 1 or before.strip():
            break
        pieces.append(_comment_text(text[comment.start : min(comment.end, comment.start + left)]))
        below, left = comment.start, left - (comment.end - comment.start)
        if left <= 0:
            break
    return _without_margin("\n".join(piece for piece in reversed(pieces) if piece))


def _comment_text(comment: str) -> str:
    """Return what a comment says: without its signs, and without the stars down its side."""
    comment = "".join(c if c.isprintable() or c == "\n" else " " for c in comment.expandtabs())
    if comment.startswith("/*"):
        body = comment[3:] if comment[2:3] in ("*", "!") and comment[3:4] != "/" else comment[2:]
        lines = body[:-2].split("\n") if body.endswith("*/") else body.split("\n")
        rest = [line.lstrip(" ") for line in lines[1:]]
        if all(line.startswith("*") or not line for line in rest):
            lines[1:] = [line[1:] for line in rest]
        lines[1:] = _without_margin("\n".join(lines[1:])).split("\n") if rest else []
        lines[0] = lines[0].lstrip(" ")
    elif comment[0] == "#":
        lines = [comment[1:].removeprefix(" ")]
    else:
        line = comment.lstrip("/")
        lines = [(line[1:] if line[:1] in ("!", "<") else line).removeprefix(" ")]
    return "\n".join(line.rstrip(" ") for line in lines).strip("\n").replace("*/", "* /")


def _without_margin(text: str) -> str:
    lines = [line.rstrip(" ") for line in text.split("\n")]
    margin = min((len(line) - len(line.lstrip(" ")) for line in lines if line), default=0)
    return "\n".join(line[margin:] for line in lines)
