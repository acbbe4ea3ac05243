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

NO_PROVIDER = (
    "no provider is in this file; declare one: provider NAME { probe NAME(int); }; (scripts for dtrace or bpftrace "
    "name probes, and declare none)"
)


def after_argument(tokens: Sequence[str], at: int) -> str:
    """Return what to write where an argument was read and `tokens[at]` doesn't fit, behind '; '; '' if unknown."""
    token, before = tokens[at], tokens[max(at - 2, 0) : at]
    if token in ("&", "&&"):
        return f"; {_REFERENCE}"
    if token in (":", "::", "<"):
        return f"; {_OBJECT}"
    if "class" in before or "enum" in before[:1]:
        return f"; declare it as 'struct {tokens[at - 1]} *', which any pointer to an object becomes"
    if token == "=":
        return "; a probe's arguments have no default values"
    if before[-1:] == ["]"] or tokens[max(at - 1, 0)] == "]":
        return f"; an array's size stands behind its name: {token}[...]"
    return ""


# How languages and projects around C spell what C calls otherwise; nearest names would mislead.
_ELSEWHERE = {
    **{f"{letter}{bits}": f"{'u' * (letter == 'u')}int{bits}_t" for letter in "uis" for bits in (8, 16, 32, 64)},
    "byte": "uint8_t", "usize": "size_t", "isize": "ssize_t", "f32": "float", "f64": "double",
    "str": "const char *", "String": "const char *", "text": "const char *", "char_ptr": "const char *",
}  # fmt: skip


def unknown_type(name: str, known: Sequence[str], pointed_to: bool) -> str:
    """Return what to write in place of a type that nothing declares."""
    if name in _ELSEWHERE and not (pointed_to and _ELSEWHERE[name].endswith("*")):
        return f"write '{_ELSEWHERE[name]}'"
    from difflib import get_close_matches  # only for mistakes: it imports much

    close = get_close_matches(name, known, 1, 0.75)
    if close:
        return f"did you mean '{close[0]}'? Else declare it in this file (typedef ... {name};)"
    pointer = ", or write 'void *', which takes any pointer to data" if pointed_to else ""
    return f"declare it in this file (typedef ... {name};){pointer}"


def after_provider(name: str, tokens: Sequence[str], at: int) -> str:
    """Return what to write where '{' was expected behind a provider's name, behind '; '; '' if unknown."""
    if tokens[at] in ("-", ".", ":") and tokens[at + 1 : at + 2]:
        return f"; a provider's name is an identifier: write {name}_{tokens[at + 1]}"
    return ""
