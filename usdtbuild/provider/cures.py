"""What people write in provider files who think of C++, and what to write instead: the second half of an error.

The parser says what it expected and what it found; this module knows what was probably meant. It reads no files.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

_OBJECT = (
    "tracers read numbers and text, no C++ objects: declare 'const char *' and pass text.c_str(), or pass a number"
)
_REFERENCE = "there are no references here: declare the value itself, or a pointer ('*')"


def after_argument(tokens: Sequence[str], at: int) -> str:
    """Return what to write where an argument was read and `tokens[at]` doesn't fit, behind '; '; '' if unknown."""
    token, before = tokens[at], tokens[max(at - 2, 0) : at]
    if token in ("&", "&&"):
        return f"; {_REFERENCE}"
    if token in (":", "::", "<"):
        return f"; {_OBJECT}"
    if "class" in before or "enum" in before[:1]:
        return f"; declare it as 'struct {tokens[at - 1]} *', which any pointer to an object becomes"
    return ""


def after_provider(name: str, tokens: Sequence[str], at: int) -> str:
    """Return what to write where '{' was expected behind a provider's name, behind '; '; '' if unknown."""
    if tokens[at] in ("-", ".", ":") and tokens[at + 1 : at + 2]:
        return f"; a provider's name is an identifier: write {name}_{tokens[at + 1]}"
    return ""
