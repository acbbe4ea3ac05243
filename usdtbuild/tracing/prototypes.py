"""What functions of the C library take and return (`prototypes.txt`), by name: for calls, whose stubs don't tell.

Only names, sizes and kinds; where a machine passes them is `library_calls`' matter.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from .model import FLOAT, INTEGER, POINTER, STRING, Argument

_WORD = 0  # as large as a pointer (LP64 and ILP32 alike)
_SIGNED, _UNSIGNED = True, False
# C type -> size in bytes and whether it is signed; as the headers of glibc and musl define them for Linux.
_INTEGERS = {
    "char": (1, _SIGNED), "int": (4, _SIGNED), "unsigned int": (4, _UNSIGNED), "long": (_WORD, _SIGNED),
    "unsigned long": (_WORD, _UNSIGNED), "long long": (8, _SIGNED), "unsigned long long": (8, _UNSIGNED),
    "size_t": (_WORD, _UNSIGNED), "ssize_t": (_WORD, _SIGNED), "off_t": (_WORD, _SIGNED), "off64_t": (8, _SIGNED),
    "pid_t": (4, _SIGNED), "uid_t": (4, _UNSIGNED), "gid_t": (4, _UNSIGNED), "mode_t": (4, _UNSIGNED),
    "dev_t": (8, _UNSIGNED), "time_t": (_WORD, _SIGNED), "clock_t": (_WORD, _SIGNED), "clockid_t": (4, _SIGNED),
    "socklen_t": (4, _UNSIGNED), "in_addr_t": (4, _UNSIGNED), "nfds_t": (_WORD, _UNSIGNED),
    "useconds_t": (4, _UNSIGNED), "key_t": (4, _SIGNED), "id_t": (4, _UNSIGNED), "idtype_t": (4, _UNSIGNED),
    "intptr_t": (_WORD, _SIGNED), "uint16_t": (2, _UNSIGNED), "uint32_t": (4, _UNSIGNED), "wchar_t": (4, _SIGNED),
    "wint_t": (4, _UNSIGNED), "nl_item": (4, _SIGNED), "pthread_t": (_WORD, _UNSIGNED), "pthread_key_t": (4, _UNSIGNED),
    "__itimer_which_t": (4, _SIGNED), "__rlimit_resource_t": (4, _SIGNED), "__rusage_who_t": (4, _SIGNED),
}  # fmt: skip
# Pointers behind names of their own.
_POINTERS = frozenset((
    "va_list", "sighandler_t", "timer_t", "iconv_t", "__compar_fn_t", "__compar_d_fn_t", "__nftw_func_t",
))  # fmt: skip
_FLOATS = {"float": 4, "double": 8, "long double": 16}
_LINE = re.compile(r"(?P<result>.*?)(?P<name>\w+)\((?P<arguments>.*)\)")
_FUNCTION = re.compile(r".+\(\*(\w+)\)\(.*\)")


class Prototype(NamedTuple):
    """What a function takes, without what `...` stands for, and what it returns; None where that is nothing."""

    arguments: tuple[Argument, ...]
    result: Argument | None


def prototype_of(name: str, word: int) -> Prototype | None:
    """Return a function's prototype for pointers of `word` bytes; None where the function isn't known."""
    text = _lines().get(name)
    return _parsed(text, word) if text is not None else None


@lru_cache(maxsize=1)
def _lines() -> dict[str, re.Match[str]]:
    lines = Path(__file__).with_name("prototypes.txt").read_text("utf-8").splitlines()
    found = [_LINE.fullmatch(line) for line in lines if line and not line.startswith("#")]
    return {match["name"]: match for match in found if match is not None}


def _parsed(match: re.Match[str], word: int) -> Prototype:
    listed = [one for one in _split(match["arguments"]) if one not in {"void", "..."}]
    arguments = tuple(_argument(one, word) for one in listed)
    type_ = match["result"].strip()
    if type_ == "void":
        return Prototype(arguments, None)
    result = _typed("result", type_, word)
    is_text = type_ in {"char *", "const char *"}
    return Prototype(arguments, result._replace(kind=STRING) if is_text else result)


def _split(text: str) -> Iterator[str]:
    """Yield what stands between commas that are in no brackets."""
    depth = start = 0
    for at, letter in enumerate(text):
        depth += {"(": 1, ")": -1}.get(letter, 0)
        if letter == "," and not depth:
            yield text[start:at].strip()
            start = at + 1
    yield text[start:].strip()


def _argument(text: str, word: int) -> Argument:
    is_text = text.startswith("in ")
    text = text.removeprefix("in ") if is_text else text
    function = _FUNCTION.fullmatch(text)
    if function:
        return Argument(function[1], text, word, False, POINTER)
    found = re.fullmatch(r"(.*?)(\w+)", text)
    assert found is not None, text
    type_ = found[1].strip()
    one = _typed(found[2], type_, word)
    return one._replace(kind=STRING) if is_text or type_ == "const char *" else one


def _typed(name: str, type_: str, word: int) -> Argument:
    if type_.endswith("*") or type_ in _POINTERS:
        return Argument(name, type_, word, False, POINTER)
    if type_ in _FLOATS:
        return Argument(name, type_, _FLOATS[type_], True, FLOAT)
    size, signed = _INTEGERS[type_]
    return Argument(name, type_, size or word, signed, INTEGER)
