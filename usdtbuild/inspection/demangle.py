"""C++ and Rust names as their authors wrote them, through the demangler of binutils or LLVM; probes' stubs as DTrace
spells them; and what may be left out of such a name.

One process for all names. The demangler is the user's: none is carried along.
"""

from __future__ import annotations

import itertools
import os
import re
import resource
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from typing import IO

from .. import limits
from ..errors import UsdtError, reason
from ..provider.describe import plain_name
from ..text import ELLIPSIS, elide

PROGRAMS = ("c++filt", "llvm-cxxfilt")

# What counts in a written name: operators whose signs are brackets, brackets, and spaces.
_MARK = re.compile(r"\boperator(?:\(\)|\[\]|->\*?|<=>|<<=?|>>=?|[<>]=?)|[(<\[{]|[)>\]}]| ")
_TAG = re.compile(r"\[abi:\w+\]")
_SIMPLE = re.compile(r"[\w:~]+(?=\()")
_SIGNS = re.compile(r"\W+| .*")
_DEEPEST = 8  # brackets in brackets that are told apart where names are shortened
_ARROW = re.compile(r"operator(?:->\*?|<=>|<<=?|>>=?|[<>]=?)|->")
_ENCLOSING = re.compile(r"(?: const| volatile| ?&&?)*::")


def demangle(names: Iterable[str]) -> dict[str, str]:
    """Return mangled -> demangled for those of `names` that are mangled. Raises UsdtError if no demangler is there.

    Names that nobody could read stay as they are: too long ones, and those that make more work than the limits allow.
    """
    mangled = sorted({name for name in names if _is_mangled(name)})
    if not mangled:
        return {}
    program = next((path for path in map(shutil.which, PROGRAMS) if path), None)
    if program is None:
        raise UsdtError(f"--demangle needs {' or '.join(PROGRAMS)}, and neither is installed; install binutils")
    seconds = limits.DEMANGLER_SECONDS * (1 + len(mangled) // limits.DEMANGLED)
    with tempfile.TemporaryFile() as asked:
        asked.write("".join(f"{name}\n" for name in mangled).encode("utf-8", "surrogateescape"))
        asked.seek(0)
        with _started(program, asked) as process:
            resource.prlimit(process.pid, resource.RLIMIT_AS, (limits.DEMANGLER_MEMORY,) * 2)
            resource.prlimit(process.pid, resource.RLIMIT_CPU, (seconds, seconds))
            assert process.stdout is not None
            lines = list(itertools.islice(_lines(process.stdout), len(mangled)))
            process.kill()
    written = zip(mangled, lines)
    ratio, more = limits.WRITTEN_RATIO
    return {
        name: line.decode("utf-8", "surrogateescape")
        for name, line in written
        if line and line != name.encode() and len(line) <= ratio * len(name) + more
    }


def _started(program: str, asked: IO[bytes]) -> subprocess.Popen[bytes]:
    """Start a demangler. Raises UsdtError.

    Where we use files as one user and are another's process (`rights.give_up`), it is wholly the latter's: of a mixed
    one the kernel lets nobody set the limits.
    """
    user = os.getuid() if os.getuid() != os.geteuid() else None
    try:
        return subprocess.Popen([program], stdin=asked, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, user=user)
    except OSError as error:
        raise UsdtError(f"{program} can't be run: {reason(error)}") from None


def _is_mangled(name: str) -> bool:
    return name.startswith(("_Z", "_R", "__Z")) and len(name) <= limits.MANGLED_NAME and "\n" not in name


def _lines(stream: IO[bytes]) -> Iterator[bytes]:
    """Yield lines without their ends; b"" for those that are too long."""
    while line := stream.readline(limits.WRITTEN_NAME):
        if line.endswith(b"\n"):
            yield line[:-1]
            continue
        while line and not line.endswith(b"\n"):
            line = stream.readline(1 << 20)
        yield b""


def demangle_if_possible(names: Iterable[str]) -> dict[str, str]:
    """Return what `demangle` does, where a demangler is installed, and the plain names of probes' stubs."""
    names = set(names)
    plain = {name: plain_name(name) for name in names if name.startswith("__dtrace") and plain_name(name) != name}
    try:
        return {**demangle(names), **plain}
    except UsdtError:
        return plain


def without_parameters(written: str) -> str:
    """Return `shop::sum<int>` of `int shop::sum<int>(int) const`; a name that has no list of parameters as it is."""
    simple = _SIMPLE.match(written)
    if simple and "operator" not in simple[0] and not _ENCLOSING.match(written, _closed(written, simple.end())):
        return simple[0]
    depth = begin = 0
    past = 0  # of a list of parameters that only says in which function a name is
    operator = -1  # where its signs end: a space may follow, as in `operator<< <int>`
    for mark in _MARK.finditer(written):
        sign, at = mark[0], mark.start()
        if at < past:
            continue
        if len(sign) > 1:
            operator = mark.end()
        elif sign == " ":
            if not depth and at != operator and not written.endswith("operator", 0, at):
                begin = at + 1
        elif sign in ")>]}":
            depth -= 1
        elif sign == "(" and not depth and _names(written, begin, at):
            enclosing = _ENCLOSING.match(written, _closed(written, at))
            if not enclosing:
                return written[begin:at]
            past = enclosing.end()
        else:
            depth += 1
    return written


def template_name(called: str) -> str:
    """Return `shop::Box::sum` of `shop::Box<int>::sum<long>`, a name without parameters; an operator's as it is."""
    if "operator" in called:
        return called
    parts, depth = list[str](), 0
    for part in re.split(r"([<>])", called):
        depth += {"<": 1, ">": -1}.get(part, 0)
        if not depth and part != ">":
            parts.append(part)
    return "".join(parts)


def shortened(written: str, room: int) -> str:
    """Return a written name in so many characters: without what is deepest in its brackets, then without what it
    returns and takes, so that templates still differ, then without its middle."""
    if len(written) <= room:
        return written
    name, called = without_parameters(written), written
    if (at := written.find(f"{name}(")) >= 0:
        begin, end = at + len(name) + 1, _closed(written, at + len(name)) - 1
        called = written[at:begin] + ELLIPSIS * (end > begin) + written[end:]
    text = written
    for whole, least in ((written, 2), (called, 1)):
        for level in range(_DEEPEST, least - 1, -1):
            if len(text) <= room:
                return text
            text = "".join(_above(whole, level))
    return elide(text, room)


def _above(written: str, most: int) -> Iterator[str]:
    """Yield the parts of a name that are in fewer than so many brackets, and an ellipsis for each other."""
    depth = begin = 0
    for mark in _MARK.finditer(written):
        sign = mark[0]
        if len(sign) > 1 or sign in " {}":
            continue
        if sign in "(<[":
            depth += 1
            if depth == most:
                yield written[begin : mark.end()]
                begin = mark.end()
        else:
            if depth == most:
                yield ELLIPSIS if mark.start() > begin + 1 else written[begin : mark.start()]
                begin = mark.start()
            depth -= 1
    yield written[begin:] if depth < most else ELLIPSIS


def parameter_count(written: str) -> int | None:
    """Return how many parameters a written name lists, without `...`; None if it has no list."""
    name = without_parameters(written)
    at = written.find(f"{name}(") + len(name)
    if at < len(name):
        return None
    depth = count = 0
    end = _closed(written, at)
    listed = written[at + 1 : end - 1].removesuffix("...").rstrip(", ")
    for letter in _ARROW.sub("", listed):
        depth += (letter in "(<[{") - (letter in ")>]}")
        count += letter == "," and not depth
    return count + bool(listed)


def _names(written: str, begin: int, at: int) -> bool:
    last = written[at - 1 : at] if at > begin else ""
    if last.isalnum() or last in {"_", ">", "]", "}"}:
        return True
    operator = written.rfind("operator", begin, at)
    return operator >= 0 and _SIGNS.fullmatch(written, operator + len("operator"), at) is not None


def _closed(written: str, at: int) -> int:
    depth = 0
    for mark in _MARK.finditer(written, at):
        if len(mark[0]) == 1 and mark[0] != " ":
            depth += 1 if mark[0] in "(<[{" else -1
            if not depth:
                return mark.end()
    return len(written)


def all_spellings(names: Iterable[str], written: Mapping[str, str]) -> tuple[str, ...]:
    """Return all that a user may call a function that is linked by these names: so, as it was written, and the latter
    without parameters, or without what tells libraries' versions apart (`f[abi:cxx11]()`)."""
    found = dict.fromkeys(names)
    for name in list(found):
        if name in written:
            plain = _TAG.sub("", written[name])
            for whole in (written[name], plain):
                found.update(dict.fromkeys((whole, without_parameters(whole))))
    return tuple(found)
